"""Counters and rollups: what triggers count agrees with the rows, whoever ends a job and whenever workers sum up."""

from collections import Counter
from datetime import timedelta

import pytest

from rowlock.core.job import NewJob
from rowlock.core.outcome import Cancelled, Failed, Released, Succeeded, TimedOut
from rowlock.core.times import FakeClock
from rowlock.store import Store
from rowlock.store.jobs import cancel, enqueue, settle
from rowlock.store.read import counters
from support.rigs.rig import KEEP, LEASE, Rig


async def counted(rig: Rig) -> Counter[tuple[str, str, str]]:
    """What the rows themselves say."""
    found: Counter[tuple[str, str, str]] = Counter()
    ends = "SELECT queue, task, state, count(*) FROM {t}jobs_finished GROUP BY queue, task, state"
    for queue, task, state, number in await rig.fetch(ends):
        found[queue, task, state] = number
    attempts = "SELECT queue, task, outcome, count(*) FROM {t}attempts GROUP BY queue, task, outcome"
    for queue, task, outcome, number in await rig.fetch(attempts):
        found[queue, task, f"attempt.{outcome}"] = number
    return found


async def told(store: Store) -> Counter[tuple[str, str, str]]:
    """What the counters say."""
    return Counter({(one.queue, one.task, one.what): one.count for one in await store.run(counters.totals())})


async def sum_up(store: Store) -> None:
    """What a worker does every few seconds."""
    while await store.run(counters.sum_up()):
        pass


async def every_end(rig: Rig) -> None:
    """Jobs that end in every way, some after attempts that did not succeed."""
    await rig.enqueue_many(6)
    await rig.enqueue_many(2, task="other", queue="links", max_attempts=1)
    for job, end in zip(
        await rig.claim(5),
        (Succeeded("1"), Failed("E", "broken"), TimedOut(3.0), Cancelled(), Released(0.0)),
        strict=True,
    ):
        await rig.settle(job, end)
    for job in await rig.claim(2, task="other", queue="links"):
        await rig.settle(job, Failed("HTTP_500", "no answer", permanent=True))
    (lost,) = await rig.claim(1)
    await rig.lose(lost)
    await rig.store.run(enqueue.enqueue([(rig.new_id(), "{}")], NewJob(task="t", expires_at=rig.clock.now())))
    rig.clock.move(1)
    await rig.store.run(cancel.expire(10, KEEP))
    await rig.cancel(await rig.enqueue(task="later", delay=60.0))


async def test_counters_agree_with_the_rows_before_and_after_they_are_summed_up(rig: Rig, store: Store) -> None:
    await every_end(rig)
    expected = await counted(rig)
    whats = {what for _, _, what in expected}
    assert whats == {
        *("succeeded", "dead", "cancelled"),
        *(f"attempt.{outcome}" for outcome in ("failed", "timed_out", "cancelled", "released", "lost")),
    }
    assert await told(store) == expected
    await sum_up(store)
    assert await told(store) == expected
    assert await rig.fetch("SELECT * FROM {t}tallies") == []
    await every_end(rig)
    assert await told(store) == await counted(rig)


async def test_hours_and_totals_keep_what_minutes_forget(rig: Rig, store: Store, clock: FakeClock) -> None:
    began = clock.now() - timedelta(minutes=1)
    await every_end(rig)
    await sum_up(store)
    whole = await told(store)
    clock.move(timedelta(hours=27))
    await store.run(counters.forget())
    seconds = await rig.fetch("SELECT DISTINCT seconds FROM {t}rollups")
    by_hour: Counter[str] = Counter()
    for numbers in (await store.run(counters.by_time(began - timedelta(hours=1), seconds=3600))).values():
        by_hour.update(numbers)
    expected: Counter[str] = Counter()
    for (_, _, what), number in whole.items():
        expected[what] += number
    assert (seconds, by_hour) == ([(3600,)], expected)
    clock.move(timedelta(days=36))
    await store.run(counters.forget())
    assert await rig.fetch("SELECT * FROM {t}rollups") == []
    assert await told(store) == whole


async def test_a_change_that_is_undone_is_not_counted(rig: Rig, store: Store) -> None:
    job = await rig.running()
    try:
        async with store.transaction() as tx:
            await tx.run(settle.succeed([(job.id, job.token, None)], KEEP))
            raise RuntimeError("undone")
    except RuntimeError:
        pass
    assert await told(store) == Counter()


async def test_jobs_are_counted_by_minute_and_by_how_long_they_ran(rig: Rig, store: Store, clock: FakeClock) -> None:
    begin = clock.now().replace(second=0, microsecond=0)
    clock.move(begin + timedelta(minutes=1) - clock.now())
    for ran in (0.003, 0.3, 4000.0):
        await rig.enqueue()
        clock.move(0.02)
        (job,) = await rig.claim(1, lease=10_000)
        clock.move(ran)
        await rig.succeed(job)
    minutes = await store.run(counters.by_time(begin, queue="default"))
    assert minutes == {
        begin + timedelta(minutes=1): {"succeeded": 2},
        begin + timedelta(minutes=67): {"succeeded": 1},
    }
    assert await store.run(counters.by_time(begin, queue="another")) == {}
    ((run, wait),) = (await store.run(counters.spread(begin))).values()
    assert [n for n, count in enumerate(run) if count] == [0, 6, 16]
    assert [(n, count) for n, count in enumerate(wait) if count] == [(2, 3)]
    ((ran,),) = await rig.fetch("SELECT sum(run_seconds) FROM {t}tallies")
    assert round(ran, 3) == 4000.303
    heat = await store.run(counters.heat("run", begin))
    assert sum(heat[begin + timedelta(minutes=1)]) == 2


async def test_many_jobs_of_one_settle_are_one_row(rig: Rig, store: Store) -> None:
    await rig.enqueue_many(100)
    claimed = await rig.claim(100)
    assert await store.run(settle.succeed([(job.id, job.token, None) for job in claimed], KEEP))
    assert [tuple(row) for row in await rig.fetch("SELECT what, number FROM {t}tallies")] == [("succeeded", 100)]


async def test_queues_are_sampled_once_a_minute_by_one_process(rig: Rig, store: Store, clock: FakeClock) -> None:
    await rig.enqueue_many(3)
    await rig.enqueue(task="t", delay=500.0)
    clock.move(7)
    await rig.claim(1, lease=LEASE)
    assert [await counters.sample(store) for _ in range(2)] == [True, False]
    clock.move(60)
    assert await counters.sample(store)
    found = (await store.run(counters.samples(clock.now() - timedelta(hours=1))))["default"]
    assert [(one.ready, one.waiting, one.running) for one in found] == [(2, 1, 1)] * 2
    assert [round(one.oldest_seconds or 0) for one in found] == [7, 67]
    assert await store.run(counters.samples(clock.now() - timedelta(hours=1), "links")) == {}


async def test_of_too_many_samples_the_newest_are_told_and_of_each_hour_the_longest(
    rig: Rig, store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = clock.now() - timedelta(hours=1)
    for minute in range(90):
        if minute < 30:
            await rig.enqueue(task="t")
        await counters.sample(store)
        clock.move(60)
    hours = (await store.run(counters.samples(since, seconds=3600)))["default"]
    assert [one.ready for one in hours][-1] == 30
    assert len(hours) in (2, 3), "ninety minutes lie in two or three hours"
    assert all(one.at.minute == 0 for one in hours)
    monkeypatch.setattr(counters, "MOST_SAMPLES", 5)
    newest = (await store.run(counters.samples(since)))["default"]
    assert [(clock.now() - one.at).total_seconds() // 60 for one in newest] == [5, 4, 3, 2, 1]


def test_a_percentile_is_estimated_within_its_bucket() -> None:
    counts = [0] * counters.BUCKETS
    assert counters.percentile(counts, 0.5) is None
    counts[7] = 10  # from half a second to one
    assert counters.percentile(counts, 0.5) == 0.75
    counts[16] = 90
    assert counters.percentile(counts, 0.95) == 3600.0
