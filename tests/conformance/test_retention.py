"""Forgetting: what is past its day goes, nothing else does, and nobody who works is kept waiting for it."""

import asyncio
from datetime import timedelta

import pytest

from rowlock.core.job import NewJob
from rowlock.core.outcome import Failed
from rowlock.core.policy import DAY
from rowlock.store.jobs import enqueue
from rowlock.store.jobs.settle import Keep
from rowlock.store.read import job_rows
from rowlock.store.upkeep import retention
from rowlock.store.upkeep.partitions import ensure_partitions
from rowlock.store.upkeep.retention import Pace, prune
from support.rigs.retention import TODAY, Watched, cancelled, dead, left
from support.rigs.rig import Rig, token
from support.rigs.sources import claim_turns, sources

# --- both engines


async def test_a_job_goes_on_its_day_and_not_before(rig: Rig) -> None:
    await ensure_partitions(rig.store)
    await rig.succeed(await rig.running())
    await dead(rig)
    await dead(rig, keep_seconds=90 * DAY)
    await rig.enqueue(delay=999 * DAY)
    counts = []
    for day in (7, 8, 30, 31, 90, 91):
        rig.clock.move(timedelta(days=day) - (rig.clock.now().date() - TODAY))
        await prune(rig.store)
        counts.append(await left(rig))
    assert counts == [4, 3, 3, 2, 2, 1], "kept for 7, 30 and 90 whole days; a live job for ever"


async def test_pruning_twice_finds_nothing_more(rig: Rig) -> None:
    await cancelled(rig, 5)
    rig.clock.move(31 * DAY)
    assert (await prune(rig.store)).jobs == 5
    before = await rig.everything()
    again = await prune(rig.store)
    assert (again.partitions, again.jobs, again.attempts, again.keys, again.busy) == ((), 0, 0, 0, False)
    assert await rig.everything() == before


async def test_rows_are_deleted_in_batches_of_a_thousand_at_most(rig: Rig) -> None:
    await cancelled(rig, 2_500)
    rig.clock.move(31 * DAY)
    watched = Watched(rig.store)
    pruned = await prune(watched)
    batches = [answer for name, answer in watched.answers if name == "forget"]
    assert pruned.jobs == sum(batches) == 2_500
    assert max(batches) <= 1_000
    assert len(batches) >= 3


async def test_pruning_lets_other_writers_in_between_two_batches(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await cancelled(rig, 60)
    rig.clock.move(31 * DAY)
    monkeypatch.setattr(retention, "BATCH", 10)
    pruning = asyncio.create_task(prune(rig.store))
    turns = 0
    while not pruning.done():
        await rig.enqueue()
        turns += not pruning.done()
    assert (await pruning).jobs == 60
    assert turns >= 2


def test_a_slow_batch_makes_the_next_one_smaller_and_a_quick_one_larger() -> None:
    pace, sizes = Pace(), []
    for took in (0.01, 0.06, 0.2, 0.03, 0.001, 0.001, 0.001, *[9.9] * 10):
        pace.learn(took)
        sizes.append(pace.size)
    assert sizes[:7] == [1_000, 500, 250, 250, 500, 1_000, 1_000]
    assert sizes[-1] == retention.SMALLEST_BATCH


async def test_attempts_go_when_they_are_old_and_their_job_is_gone(rig: Rig) -> None:
    gone, kept = await dead(rig), await dead(rig, keep_seconds=90 * DAY)
    waiting = await rig.running(max_attempts=9)
    await rig.settle(waiting, Failed("E", "x"))
    rig.clock.move(31 * DAY)
    young = await dead(rig, keep_seconds=1)
    assert (await prune(rig.store)).attempts == 1
    rig.clock.move(3 * DAY)
    assert (await prune(rig.store)).attempts == 0, "the job is gone, but its attempt is not old"
    found = await rig.fetch("SELECT job_id FROM {t}attempts ORDER BY job_id")
    assert [row[0] for row in found] == [kept, waiting.id, young]
    assert gone not in await rig.rows()
    assert (await prune(rig.store, Keep(DAY, 2 * DAY))).attempts == 1, "old is what the longest keep says"


async def start_one(rig: Rig, source: str) -> bool:
    """Whether a job of the source may start; if so, it ends by a mistake of its own."""
    job_id = await rig.enqueue(source=source)
    jobs = await claim_turns(rig, 1)
    for job in jobs:
        await rig.settle(job, Failed("BUG", "x", permanent=True))
    if not jobs:
        await rig.cancel(job_id)
    return bool(jobs)


async def test_a_source_that_is_in_use_keeps_its_row_and_so_its_bucket(rig: Rig) -> None:
    await sources(rig).set("api", rate="1/hour", burst=1)
    assert await start_one(rig, "api:a")
    rig.clock.move(40 * DAY)
    assert await start_one(rig, "api:a"), "an old row, whose source had neither success nor failure of its own"
    await prune(rig.store)
    assert not await start_one(rig, "api:a")
    rig.clock.move(31 * DAY)
    await prune(rig.store)
    assert [source.name for source in await sources(rig).list()] == ["api", "domain"]


async def test_a_source_keeps_its_row_until_its_bucket_is_full(rig: Rig) -> None:
    await sources(rig).set("api", rate="1/hour", burst=24 * 40)
    for _ in range(3):
        assert await start_one(rig, "api:a")
    for day, there in ((35, True), (41, False)):
        rig.clock.move(timedelta(days=day) - (rig.clock.now().date() - TODAY))
        await prune(rig.store)
        assert ("api:a" in [source.name for source in await sources(rig).list()]) == there


async def test_attempts_that_stay_do_not_hide_those_that_go(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 4)
    for _ in range(3):  # all at one moment, so that the order within it matters
        for _ in range(3):
            await dead(rig, keep_seconds=90 * DAY)
        await dead(rig)
    rig.clock.move(31 * DAY)
    assert (await prune(rig.store)).attempts == 3
    assert await left(rig, "attempts") == 9


async def test_prune_removes_keys_whose_time_is_over(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "KEYS_AT_ONCE", 3)
    await rig.store.run(enqueue.enqueue_once(rig.new_id(), "{}", NewJob(task="t")))
    for n in range(8):
        expires = rig.clock.now() + timedelta(seconds=60 if n < 7 else 61)
        async with rig.store.transaction() as tx:
            table = {"postgres": "rowlock.job_keys", "sqlite": "rowlock_job_keys"}[rig.store.engine]
            await tx.execute(
                f"INSERT INTO {table} (scope, key, job_id, mode, expires_at) VALUES ('k', $1, $2, 'm', $3)",
                str(n),
                token(),
                expires if rig.store.engine == "postgres" else expires.timestamp(),
            )
    rig.clock.move(59)
    assert (await prune(rig.store)).keys == 0
    rig.clock.move(1)
    assert (await prune(rig.store)).keys == 7
    assert [row[0] for row in await rig.fetch("SELECT scope FROM {t}job_keys ORDER BY scope")] == ["id", "k"]


async def test_a_job_that_is_pruned_can_no_longer_be_read_or_retried(rig: Rig) -> None:
    job_id = await dead(rig)
    rig.clock.move(31 * DAY)
    await prune(rig.store)
    assert await rig.store.run(job_rows.get(job_id)) is None
    assert await rig.retry(job_id) == set()
