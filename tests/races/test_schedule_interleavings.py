"""Two dispatchers meet on the same ticks, statement by statement: each tick has exactly one job."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from rowlock.core.schedules.schedule import Missed
from rowlock.store import Store
from rowlock.store.schedules import fire, schedules
from support.each import each
from support.races.interleave import Actor, orders, play, rewrite
from support.rigs.rig import Rig
from support.rigs.schedules import declare, schedule, shown
from support.rigs.source_claims import all_meetings

pytestmark = pytest.mark.parametrize("engine", ["postgres"])  # SQLite has one writer: nothing meets

STEPS = 6  # what is due, ticks, jobs, wake, where it stands, commit
LOOK = 2  # of whoever finds nothing: what is due, commit
NAMES = ("a", "b")
NO_LOCK = ("lock_due", "FOR UPDATE SKIP LOCKED", "")
LAST_WINS = ("write_ticks", "DO NOTHING", "DO UPDATE SET job_id = excluded.job_id")
NO_CONFLICT = ("write_ticks", r"ON CONFLICT \(schedule_id, tick\) DO NOTHING", "")
JOBS = "SELECT schedule_id, tick, count(*) FROM rowlock.jobs GROUP BY 1, 2"


async def prepare(rig: Rig) -> None:
    await declare(rig, *[schedule(name, "every 10s", missed=Missed("all")) for name in NAMES])


async def each_tick_fires_once(
    rig: Rig, other: Store, watcher: Any, plays: Iterable[str], n: int = 100, roll_back: bool = False
) -> None:
    """Play after play, two ticks of two schedules are due; when both are done, each has one job."""
    for order in plays:
        rig.clock.move(20)
        a = Actor(rig.store, fire.fire(n), roll_back)
        b = Actor(other, fire.fire(n))
        answers = await play(watcher, order, a, b)
        said = sum(answer.jobs for answer in answers) - (answers[0].jobs if roll_back else 0)
        after = await rig.store.run(fire.fire(100))  # what both left over
        found = Counter({(name, tick): count for name, tick, count in await watcher.fetch(JOBS)})
        ticks = {(row[0], row[1]) for row in await watcher.fetch("SELECT schedule_id, tick FROM rowlock.ticks")}
        assert max(found.values()) == 1, f"{order}: a tick fired twice"
        assert said + after.jobs == len(found), order
        assert set(found) == ticks, f"{order}: a tick without a job, or the other way round"
        assert len(found) == 4, f"{order}: {len(found)} of 4 ticks fired"
        for name in NAMES:
            last = (await shown(rig, name)).last_job
            assert await watcher.fetchval("SELECT count(*) FROM rowlock.jobs WHERE id = $1", last) == 1, order
        await watcher.execute("DELETE FROM rowlock.ticks")
        await watcher.execute("DELETE FROM rowlock.jobs_live")


async def test_a_round_has_as_many_statements_as_these_tests_take_it_to_have(rig: Rig, watcher: Any) -> None:
    await prepare(rig)
    for expected in (STEPS, LOOK):
        rig.clock.move(20 if expected == STEPS else 0)
        actor, steps = Actor(rig.store, fire.fire(100)), 0
        while await actor.reach_a_stop(watcher) and not actor.task.done():
            steps += 1
            actor.move_on()
        assert steps == expected


async def test_two_rounds_in_every_order_fire_each_tick_once(rig: Rig, other: Store, watcher: Any) -> None:
    await prepare(rig)
    await each_tick_fires_once(rig, other, watcher, orders(STEPS, LOOK))
    await each_tick_fires_once(rig, other, watcher, orders(LOOK, STEPS))


async def test_two_rounds_that_take_one_schedule_each_fire_each_tick_once(rig: Rig, other: Store, watcher: Any) -> None:
    await prepare(rig)
    await each_tick_fires_once(rig, other, watcher, all_meetings(STEPS, STEPS), n=1)


async def test_a_round_that_is_undone_leaves_its_ticks_to_the_other(rig: Rig, other: Store, watcher: Any) -> None:
    await prepare(rig)
    await each_tick_fires_once(rig, other, watcher, all_meetings(STEPS, LOOK), roll_back=True)


async def test_the_key_of_ticks_alone_keeps_a_tick_from_firing_twice(rig: Rig, other: Store, watcher: Any) -> None:
    """The lock saves work; without it, it is still no two jobs, and nobody points to a job that never was."""
    await prepare(rig)
    for store in (rig.store, other):
        rewrite(store, *NO_LOCK)
    await each_tick_fires_once(rig, other, watcher, all_meetings(STEPS, STEPS))


@pytest.mark.parametrize("mutant", [LAST_WINS, NO_CONFLICT], ids=["last wins", "no conflict"])
async def test_rounds_with_neither_lock_nor_key_are_caught(
    rig: Rig, other: Store, watcher: Any, mutant: tuple[str, str, str]
) -> None:
    await prepare(rig)
    for store in (rig.store, other):
        rewrite(store, *NO_LOCK)
        rewrite(store, *mutant)
    with pytest.raises(Exception, match=r"fired twice|duplicate key"):
        await each_tick_fires_once(rig, other, watcher, all_meetings(STEPS, STEPS))


@each("verb", ["pause", "remove"], afresh=True)
async def test_what_is_paused_or_removed_before_a_round_commits_waits_for_it_and_then_fires_no_more(
    rig: Rig, other: Store, watcher: Any, verb: str
) -> None:
    for i in range(1, STEPS + 1):
        await declare(rig, schedule("s", "every 10s"), origin="runtime")
        await rig.store.run(schedules.resume("s"))
        rig.clock.move(10)
        a, b = Actor(rig.store, fire.fire(100)), Actor(other, getattr(schedules, verb)("s"))
        answer, _ = await play(watcher, "A" * i + "BBB" + "A" * (STEPS - i), a, b)
        rig.clock.move(10)
        assert (answer.jobs, (await rig.store.run(fire.fire(100))).jobs) == (1, 0)
        if verb == "pause":
            assert (await shown(rig)).paused_at is not None
