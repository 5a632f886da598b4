"""Definitions of schedules: who may write them, what stays over a restart, what becomes of those that leave; and many
dispatchers at once."""

import asyncio
import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from rowlock.core.errors import NotAllowed, ScheduleNotFound
from rowlock.core.policy import DAY
from rowlock.core.schedules.schedule import Missed
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from rowlock.store.schedules import dispatchers, schedules
from rowlock.store.schedules import fire as firing
from support.each import each
from support.rigs.rig import Rig
from support.rigs.schedules import LEASE, NEW_YEAR, declare, fire, fired, schedule, set_to_new_year, shown, ticks


async def start(rig: Rig, name: str, *declares: str) -> Any:
    """A dispatcher of that name is here; when it started."""
    return await rig.store.run(dispatchers.register(name, declares, LEASE))


async def live(rig: Rig, seconds: float, *names: str) -> list[str]:
    """Time passes, in which these dispatchers say that they are alive; what was retired."""
    retired: list[str] = []
    for _ in range(int(seconds // (LEASE / 2))):
        rig.clock.move(LEASE / 2)
        for name in names:
            assert await rig.store.run(dispatchers.seen(name, LEASE))
        retired += await rig.store.run(dispatchers.retire(LEASE))
    return retired


async def test_a_definition_is_read_back_as_it_was_declared(rig: Rig) -> None:
    start_at, end_at = NEW_YEAR + timedelta(days=1), NEW_YEAR + timedelta(days=9)
    given = {"args": '{"a": 1}', "missed": Missed("all", 7, 60.0), "overlap": "skip", "jitter": 2.5, "queue": "slow"}
    given |= {"starts_at": start_at, "ends_at": end_at, "priority": 5, "owner": "ana", "source": "api:x"}
    given |= {"max_attempts": 4, "timeout_seconds": 30.0}
    declared = await declare(rig, schedule("nightly", "0 3 * * *", zone="Asia/Seoul", task="report", **given))
    assert (declared.written, declared.refused) == ({"nightly"}, {})
    row = await shown(rig, "nightly")
    assert (row.task, row.args, row.rule, row.zone) == ("report", {"a": 1}, "0 3 * * *", "Asia/Seoul")
    assert (row.missed, row.overlap, row.jitter_seconds) == ("all", "skip", 2.5)
    assert (row.queue, row.priority, row.owner, row.source) == ("slow", 5, "ana", "api:x")
    assert (row.max_attempts, row.timeout_seconds, row.origin) == (4, 30.0, "code")
    assert (row.starts_at, row.ends_at) == (start_at, end_at)
    assert row.next_tick == NEW_YEAR + timedelta(days=1, hours=18)  # 3 in the morning in Seoul, not before the start
    assert (row.last_tick, row.last_job, row.last_state, row.problem) == (None, None, None, None)
    assert (row.paused_at, row.retired_at) == (None, None)


async def test_only_a_process_that_started_later_changes_a_definition(rig: Rig) -> None:
    old = await start(rig, "old", "s")
    rig.clock.move(1)
    new = await start(rig, "new", "s")
    assert (await declare(rig, schedule(task="new"), started_at=new)).written == {"s"}
    rig.clock.move(1)
    declared = await declare(rig, schedule(task="old"), started_at=old)
    assert (declared.written, declared.refused) == (set(), {})
    assert (await shown(rig)).task == "new"
    rig.clock.move(1)
    newest = await start(rig, "newest", "s")
    await declare(rig, schedule(task="newest"), started_at=newest)
    assert (await shown(rig)).task == "newest"


async def test_two_versions_in_a_rolling_deploy_end_with_the_later_one_in_any_order(rig: Rig) -> None:
    started = []
    for n in range(5):
        started.append(await start(rig, f"d{n}", "s"))
        rig.clock.move(0.01)
    order = [0, 1, 2, 3, 4] * 2
    random.Random(7).shuffle(order)
    for n in order:
        await declare(rig, schedule(task=f"version-{n}"), started_at=started[n])
    assert (await shown(rig)).task == "version-4"


async def test_when_a_process_started_is_kept_by_the_database_and_not_moved_by_its_signs_of_life(rig: Rig) -> None:
    began = await start(rig, "d", "s")
    rig.clock.move(10)
    assert await rig.store.run(dispatchers.seen("d", LEASE))
    assert await start(rig, "d", "s", "u") == began
    assert not await rig.store.run(dispatchers.seen("nobody", LEASE))


async def test_schedules_from_code_config_and_runtime_fire_side_by_side(rig: Rig) -> None:
    for origin in ("code", "config", "runtime"):
        assert (await declare(rig, schedule(f"by-{origin}"), origin=origin)).written == {f"by-{origin}"}
    rig.clock.move(30)
    assert await fire(rig) == (3, 3, 0)


@each("there", ["code", "config", "runtime"])
@each("origin", ["code", "config", "runtime"], afresh=True)
async def test_a_schedule_of_one_origin_cannot_replace_one_of_another_origin(rig: Rig, there: str, origin: str) -> None:
    set_to_new_year(rig)
    await declare(rig, schedule(task="first"), origin=there)
    rig.clock.move(1)
    declared = await declare(rig, schedule(task="second"), schedule("free"), origin=origin)
    if origin == there:
        assert (declared.written, declared.refused) == ({"s", "free"}, {})
    else:
        assert (declared.written, declared.refused) == ({"free"}, {"s": there})
    assert (await shown(rig)).task == ("second" if origin == there else "first")


async def test_a_restart_keeps_the_next_tick_so_that_one_missed_meanwhile_still_fires(rig: Rig) -> None:
    await declare(rig, schedule(rule="every 1h", task="old"))
    rig.clock.move(3600 + 120)  # nobody was there
    await declare(rig, schedule(rule="every 1h", task="new", args='{"b": 2}'))
    assert (await shown(rig)).next_tick == NEW_YEAR + timedelta(hours=1)
    assert (await fire(rig)).jobs == 1
    (job,) = (await rig.rows()).values()
    assert (job["tick"], job["task"], job["args"]) == (NEW_YEAR + timedelta(hours=1), "new", {"b": 2})


@each("changed", [{"rule": "every 7m"}, {"zone": "Asia/Seoul", "rule": "30 * * * *"}], afresh=True)
async def test_a_changed_rule_counts_from_now(rig: Rig, changed: dict[str, str]) -> None:
    set_to_new_year(rig)
    await declare(rig, schedule(rule="30 * * * *"))
    rig.clock.move(3600)
    await declare(rig, schedule(**changed))
    next_tick = (await shown(rig)).next_tick
    assert next_tick is not None
    assert next_tick > rig.clock.now(), "a tick of the old rule, or one that the new rule never missed"
    assert (await fire(rig)).jobs == 0


async def test_a_start_that_is_moved_later_holds_for_the_tick_that_was_next(rig: Rig) -> None:
    await declare(rig, schedule(rule="every 1h"))
    start_at = NEW_YEAR + timedelta(hours=5)
    await declare(rig, schedule(rule="every 1h", starts_at=start_at))
    rig.clock.move(2 * 3600)
    await fire(rig)
    assert await fired(rig) == [], "a tick before the start"
    rig.clock.move(3 * 3600)
    await fire(rig)
    assert await fired(rig) == [start_at]


@each("start", [None, NEW_YEAR - timedelta(days=1), NEW_YEAR + timedelta(hours=2)], afresh=True)
async def test_a_start_that_is_removed_or_moved_earlier_is_not_waited_for(rig: Rig, start: datetime | None) -> None:
    set_to_new_year(rig)
    await declare(rig, schedule(rule="every 1h", starts_at=NEW_YEAR + timedelta(days=3650)))
    rig.clock.move(90)
    await declare(rig, schedule(rule="every 1h", starts_at=start))
    assert (await shown(rig)).next_tick == max(start or NEW_YEAR, NEW_YEAR + timedelta(hours=1))
    rig.clock.move(7200)
    assert (await fire(rig)).jobs == 1


@each("start", [None, NEW_YEAR], afresh=True)
async def test_ticks_that_are_owed_outlive_a_start_that_is_moved_earlier(rig: Rig, start: datetime | None) -> None:
    set_to_new_year(rig)
    given: dict[str, Any] = {"rule": "every 1h", "missed": Missed("all", window=DAY)}
    await declare(rig, schedule(**given, starts_at=NEW_YEAR + timedelta(hours=1)))
    rig.clock.move(3 * 3600)
    await declare(rig, schedule(**given, starts_at=start))
    await fire(rig)
    assert await fired(rig) == [NEW_YEAR + timedelta(hours=n) for n in (1, 2, 3)]


@each("given", [{}, {"starts_at": NEW_YEAR}, {"starts_at": NEW_YEAR + timedelta(minutes=30)}], afresh=True)
async def test_the_same_definition_keeps_the_next_tick_unless_a_clock_that_was_ahead_wrote_it(
    rig: Rig, given: dict[str, Any]
) -> None:
    set_to_new_year(rig)
    await declare(rig, schedule(rule="every 1h", **given))
    for seconds in (
        10,
        3600,
        5 * 3600,
        -2 * 3600,
    ):  # before a tick, after it, after many, and when the clock is set back
        rig.clock.move(seconds)
        await declare(rig, schedule(rule="every 1h", **given))
        assert (await shown(rig)).next_tick == NEW_YEAR + timedelta(hours=1)
    await fire(rig)
    rig.clock.move(-3 * 3600)
    await declare(rig, schedule(rule="every 1h", **given))
    assert (await shown(rig)).next_tick == NEW_YEAR + timedelta(hours=2), "the first tick by the clock as it is now"


async def test_a_change_by_hand_counts_also_when_the_clock_was_set_back(rig: Rig) -> None:
    await declare(rig, schedule(rule="every 1h"), origin="runtime")
    for rule in ("every 5m", "every 7m"):
        rig.clock.move(-120)
        assert (await declare(rig, schedule(rule=rule), origin="runtime")).written == {"s"}
        assert (await shown(rig)).rule == rule


async def test_an_end_that_is_moved_later_brings_a_schedule_back(rig: Rig) -> None:
    await declare(rig, schedule(rule="every 1h", ends_at=NEW_YEAR + timedelta(minutes=30)))
    assert (await shown(rig)).next_tick is None
    await declare(rig, schedule(rule="every 1h", ends_at=NEW_YEAR + timedelta(hours=1)))
    assert (await shown(rig)).next_tick == NEW_YEAR + timedelta(hours=1)


async def test_a_schedule_that_leaves_the_code_is_retired_after_two_leases_and_fires_no_more(rig: Rig) -> None:
    await declare(rig, schedule("stays"), schedule("leaves"), started_at=await start(rig, "old", "stays", "leaves"))
    await declare(rig, schedule("by-hand"), origin="runtime")
    assert await live(rig, 10 * LEASE, "old") == []
    await rig.store.run(dispatchers.leave("old"))
    await declare(rig, schedule("stays"), started_at=await start(rig, "new", "stays"))
    assert await live(rig, 2 * LEASE, "new") == [], "not for two leases yet"
    assert await live(rig, LEASE / 2, "new") == ["leaves"]
    assert await live(rig, 5 * LEASE, "new") == []
    assert (await shown(rig, "leaves")).retired_at is not None
    assert (await shown(rig, "leaves")).coming(rig.clock.now(), 3) == []
    await fire(rig)
    assert (await fired(rig, "leaves"), len(await fired(rig, "stays")), len(await fired(rig, "by-hand"))) == ([], 1, 1)


async def test_schedules_of_a_dead_dispatcher_are_retired_two_leases_after_its_last_sign_of_life(rig: Rig) -> None:
    await declare(rig, schedule(), started_at=await start(rig, "dies", "s"))
    await start(rig, "lives")
    assert await live(rig, 2 * LEASE, "lives") == []
    assert await live(rig, 1.5 * LEASE, "lives") == ["s"]


async def test_a_retired_schedule_is_back_when_it_is_declared_again_and_fires_nothing_of_the_past(rig: Rig) -> None:
    await declare(rig, schedule(missed=Missed("all")), started_at=await start(rig, "old", "s"))
    await start(rig, "other")
    await live(rig, 4 * LEASE, "other")
    assert (await shown(rig)).retired_at is not None
    await declare(rig, schedule(missed=Missed("all")), started_at=await start(rig, "new", "s"))
    assert (await shown(rig)).retired_at is None
    assert (await fire(rig)).jobs == 0
    rig.clock.move(30)
    assert (await fire(rig)).jobs == 1


FULL: dict[str, Any] = {
    "task": "t", "args": '{"a": 1}', "rule": "every 1h", "zone": "UTC", "missed": Missed("all", 7, 60.0),
    "overlap": "skip", "jitter": 2.5, "starts_at": NEW_YEAR, "ends_at": NEW_YEAR + timedelta(days=900), "queue": "slow",
    "priority": 5, "owner": "ana", "source": "api:x", "max_attempts": 4, "backoff": '{"kind": "fixed", "seconds": 1}',
    "timeout_seconds": 30.0, "on_success": '{"task": "u"}', "on_dead": '{"task": "v"}', "on_lost": "dead",
    "keep_seconds": 60.0,
}  # fmt: skip
OTHER: dict[str, Any] = {
    "task": "other", "args": '{"a": 2}', "rule": "every 2h", "zone": "Asia/Seoul", "missed": Missed("all", 8, 60.0),
    "overlap": "allow", "jitter": 3.5, "starts_at": None, "ends_at": None, "queue": "fast", "priority": 6,
    "owner": None, "source": None, "max_attempts": 5, "backoff": None, "timeout_seconds": None, "on_success": None,
    "on_dead": None, "on_lost": None, "keep_seconds": None,
}  # fmt: skip


async def started(rig: Rig, name: str) -> Any:
    """When a dispatcher started, a second after the last one."""
    rig.clock.move(1)
    return await start(rig, name, "s")


async def retire_all(rig: Rig) -> None:
    """All were silent for long: what they declared is retired."""
    rig.clock.move(10 * LEASE)
    await rig.store.run(dispatchers.retire(LEASE))
    assert (await shown(rig)).retired_at is not None


@each("given", [{}, FULL], afresh=True)
async def test_an_older_live_process_brings_back_a_schedule_that_it_declares_alike(
    rig: Rig, given: dict[str, Any]
) -> None:
    set_to_new_year(rig)
    old, between, new = [await started(rig, name) for name in ("old", "between", "new")]
    await declare(rig, schedule(**given), started_at=new)
    await retire_all(rig)
    await start(rig, "old", "s")  # alive again; the newer one is not
    declared = await declare(rig, schedule(**given), started_at=old)
    assert (declared.back, declared.retired) == ({"s"}, set())
    row = await shown(rig)
    assert (row.retired_at, row.next_tick and row.next_tick > rig.clock.now()) == (None, True)
    await declare(rig, schedule(task="between"), started_at=between)
    assert (await shown(rig)).task == "t", "whoever brings it back is not its writer"


@each("changed", OTHER, afresh=True)
async def test_an_older_process_does_not_bring_back_a_schedule_that_it_declares_differently(
    rig: Rig, changed: str
) -> None:
    set_to_new_year(rig)
    old = await started(rig, "old")
    await declare(rig, schedule(**FULL), started_at=await started(rig, "new"))
    await retire_all(rig)
    before = await rig.fetch("SELECT * FROM {t}schedules")
    declared = await declare(rig, schedule(**FULL | {changed: OTHER[changed]}), started_at=old)
    assert (declared.back, declared.retired) == (set(), {"s"})
    assert await rig.fetch("SELECT * FROM {t}schedules") == before


async def test_what_was_declared_within_two_leases_is_not_retired_although_it_was_noted_long_ago(rig: Rig) -> None:
    """Dispatchers look for it every two leases only; another one's last sign may have come after the last note."""
    await declare(rig, schedule(), started_at=await start(rig, "silent", "s"))
    await start(rig, "looks")
    for _ in range(3):
        rig.clock.move(LEASE / 2)
        for name in ("silent", "looks"):
            assert await rig.store.run(dispatchers.seen(name, LEASE))
    rig.clock.move(1.2 * LEASE)  # no sign for more than a lease, which was last noted 2.7 leases ago
    assert await rig.store.run(dispatchers.retire(LEASE)) == []
    rig.clock.move(LEASE)
    assert await rig.store.run(dispatchers.retire(LEASE)) == ["s"]


async def test_a_paused_schedule_stays_paused_over_a_restart(rig: Rig) -> None:
    await declare(rig, schedule())
    await rig.store.run(schedules.pause("s"))
    paused_at = (await shown(rig)).paused_at
    rig.clock.move(45)
    await declare(rig, schedule(task="new"))
    assert (await shown(rig)).paused_at == paused_at == NEW_YEAR
    assert (await fire(rig)).jobs == 0


async def test_only_what_was_added_by_hand_or_is_retired_can_be_removed_and_its_ticks_stay(rig: Rig) -> None:
    await declare(rig, schedule(), started_at=await start(rig, "d", "s"))
    await declare(rig, schedule("by-hand"), origin="runtime")
    rig.clock.move(30)
    await fire(rig)
    with pytest.raises(NotAllowed, match="comes from the code: take it out there, or pause it"):
        await rig.store.run(schedules.remove("s"))
    await rig.store.run(schedules.remove("by-hand"))
    assert [row.id for row in await rig.store.run(schedules.schedules(10))] == ["s"]
    assert len(await ticks(rig, "by-hand")) == 1
    rig.clock.move(5 * LEASE)
    await rig.store.run(dispatchers.retire(LEASE))
    await rig.store.run(schedules.remove("s"))
    assert await rig.store.run(schedules.schedules(10)) == []


@each("verb", ["pause", "resume", "remove", "run_now"])
async def test_a_schedule_that_is_not_there_is_not_found(rig: Rig, verb: str) -> None:
    with pytest.raises(ScheduleNotFound, match="nope"):
        await rig.store.run(getattr(schedules, verb)("nope"))


async def test_schedules_are_listed_by_name_in_pages(rig: Rig) -> None:
    await declare(rig, *[schedule(name) for name in ("c", "a", "b")])
    first = [row.id for row in await rig.store.run(schedules.schedules(2))]
    assert (first, [row.id for row in await rig.store.run(schedules.schedules(2, first[-1]))]) == (["a", "b"], ["c"])


async def test_many_fires_at_once_fire_each_tick_once(rig: Rig, database: str) -> None:
    await declare(rig, *[schedule(f"s{n:03}", missed=Missed("all")) for n in range(100)])
    others = [await open_store(database, StoreOptions(clock=rig.clock)) for _ in range(3)]
    rig.clock.move(60)
    rounds = [store.run(firing.fire(n)) for n in (7, 30, 100) for store in (*others, rig.store)]
    answers = await asyncio.gather(*rounds)
    while (more := await fire(rig)).schedules:
        answers.append(more)
    assert sum(answer.jobs for answer in answers) == 200
    found = [(row["schedule_id"], row["tick"]) for row in (await rig.rows()).values()]
    assert (len(found), len(set(found))) == (200, 200)
    for store in others:
        await store.close()


async def test_a_round_takes_the_longest_due_first_and_no_more_than_asked(rig: Rig) -> None:
    await declare(rig, schedule("later", "every 40s"), schedule("sooner", "every 30s"))
    rig.clock.move(41)
    assert await fire(rig, 1) == (1, 1, 0)
    assert (await fired(rig, "sooner"), await fired(rig, "later")) == ([NEW_YEAR + timedelta(seconds=30)], [])
