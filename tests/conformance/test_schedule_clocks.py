"""Schedules that were paused, and a database's clock that was ahead for a time: what fires afterwards."""

from datetime import timedelta

from rowlock.core.policy import DAY
from rowlock.core.schedules.schedule import Missed
from rowlock.store.schedules import fire as firing
from rowlock.store.schedules import schedules
from rowlock.store.upkeep import clock_repair
from support.each import each
from support.rigs.rig import Rig
from support.rigs.schedules import at, break_rule, declare, fire, fired, schedule, set_to_new_year, shown


async def test_a_pause_fires_nothing_and_what_was_due_in_it_is_not_missed(rig: Rig) -> None:
    await declare(rig, schedule(missed=Missed("all")))
    await rig.store.run(schedules.pause("s"))
    rig.clock.move(45)
    assert await rig.store.run(firing.next_due()) is None
    assert await fire(rig) == (0, 0, 0)
    await rig.store.run(schedules.resume("s"))
    assert (await shown(rig)).next_tick == at(60)
    rig.clock.move(15)
    await fire(rig)
    assert await fired(rig) == [at(60)]


async def test_resume_forgets_a_problem_and_keeps_what_is_owed(rig: Rig) -> None:
    await declare(rig, schedule(missed=Missed("all")))
    await break_rule(rig)
    rig.clock.move(60)
    await fire(rig)
    await break_rule(rig, rule="every 30s")
    await rig.store.run(schedules.resume("s"))
    assert ((await shown(rig)).problem, (await shown(rig)).next_tick) == (None, at(30))
    assert (await fire(rig)).jobs == 2


async def test_resume_of_a_schedule_that_is_not_paused_keeps_the_ticks_that_it_owes(rig: Rig) -> None:
    await declare(rig, schedule(missed=Missed("all")))
    rig.clock.move(150)
    await rig.store.run(schedules.resume("s"))
    assert (await fire(rig)).jobs == 5


async def test_a_resume_after_a_clock_that_was_ahead_does_not_make_the_wrong_moment_last(rig: Rig) -> None:
    await declare(rig, schedule(rule="every 30s"))
    rig.clock.move(86_400)
    await fire(rig)
    rig.clock.move(-86_400)
    await rig.store.run(schedules.resume("s"))
    rig.clock.move(31)
    assert (await fire(rig))[1] == 1


@each("overlap", ["allow", "skip"], afresh=True)
async def test_resume_fires_the_tick_that_was_owed_before_the_pause_and_none_of_the_pause(
    rig: Rig, overlap: str
) -> None:
    set_to_new_year(rig)
    await declare(rig, schedule(rule="every 1h", overlap=overlap))
    rig.clock.move(3600 + 40)
    await rig.store.run(schedules.pause("s"))  # before a dispatcher has come to it
    rig.clock.move(5 * 3600)
    assert await fire(rig) == (0, 0, 0)
    await rig.store.run(schedules.resume("s"))
    assert await fired(rig) == [at(3600)]
    row = await shown(rig)
    assert (row.last_tick, row.next_tick, row.paused_at) == (at(3600), at(7 * 3600), None)
    await rig.store.run(schedules.resume("s"))
    assert await fire(rig) == (0, 0, 0)
    assert await fired(rig) == [at(3600)]


@each("rule", ["every 30s", "* * * * *"], afresh=True)
async def test_a_schedule_goes_on_once_a_clock_that_was_ahead_is_put_right(rig: Rig, rule: str) -> None:
    set_to_new_year(rig)
    await declare(rig, schedule(rule=rule))
    rig.clock.move(DAY)
    assert (await fire(rig)).jobs > 0
    early = set(await fired(rig))
    rig.clock.move(-DAY)
    assert await fire(rig) == (0, 0, 0)
    assert await rig.store.run(clock_repair.put_schedules_right(10)) == ["s"]
    assert await rig.store.run(clock_repair.put_schedules_right(10)) == []
    rig.clock.move(60)
    await fire(rig)
    assert at(60) in await fired(rig)
    rig.clock.move(DAY - 90)
    while (await shown(rig)).next_tick < at(DAY + 60):
        rig.clock.move(30)
        await fire(rig)
    assert sorted(early) == [tick for tick in await fired(rig) if tick in early], "what has fired does not fire again"


async def test_the_clock_repair_changes_only_schedules_that_a_clock_ahead_has_written(rig: Rig) -> None:
    await declare(rig, schedule("ended", ends_at=at(120)), schedule("fires"))
    rig.clock.move(45)
    assert await rig.store.run(clock_repair.put_schedules_right(10)) == [], "both owe a tick"
    rig.clock.move(DAY)
    assert await fire(rig) == (2, 1, 0)
    assert (await shown(rig, "ended")).next_tick is None
    await declare(rig, schedule("owes"))
    rig.clock.move(-DAY)
    await declare(rig, schedule("new"))
    rig.clock.move(1)
    assert await rig.store.run(clock_repair.put_schedules_right(10)) == ["ended", "fires", "owes"]
    assert [(await shown(rig, name)).next_tick for name in ("ended", "fires", "owes", "new")] == [at(60)] * 4


async def test_the_coming_ticks_are_those_that_will_fire_also_after_a_wrong_clock(rig: Rig) -> None:
    await declare(rig, schedule(rule="every 1h"))
    rig.clock.move(2 * 3600)
    await fire(rig)
    rig.clock.move(-2 * 3600)
    assert (await shown(rig)).coming(None, 3) == [at(3600), at(3 * 3600), at(4 * 3600)], "that of 02:00 has fired"
    await rig.store.run(clock_repair.put_schedules_right(10))
    for _ in range(4):
        rig.clock.move(3600)
        await fire(rig)
    assert await fired(rig) == [at(3600 * hour) for hour in (1, 2, 3, 4)]


async def test_a_definition_that_a_clock_ahead_wrote_is_changed_by_a_later_start(rig: Rig) -> None:
    rig.clock.move(DAY)
    await declare(rig, schedule(rule="every 1h"), started_at=rig.clock.now())
    rig.clock.move(-DAY)
    await declare(rig, schedule(rule="every 2h"), started_at=rig.clock.now())
    assert (await shown(rig)).rule == "every 2h"
    rig.clock.move(60)
    await declare(rig, schedule(rule="every 3h"), started_at=rig.clock.now() - timedelta(seconds=90))
    assert (await shown(rig)).rule == "every 2h", "by a process that started before"


async def test_resume_of_a_pause_that_a_clock_ahead_wrote_fires_nothing_of_the_future(rig: Rig) -> None:
    await declare(rig, schedule(rule="every 1h"))
    rig.clock.move(DAY)
    await rig.store.run(schedules.pause("s"))
    rig.clock.move(3700 - DAY)
    await rig.store.run(schedules.resume("s"))
    assert await fired(rig) == [at(3600)]
    assert (await shown(rig)).next_tick == at(7200)
