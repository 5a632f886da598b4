"""Handlers that misbehave, and handlers that are told to stop."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rowlock import Rowlock
from rowlock.store.jobs import cancel as cancels
from support.each import each
from support.races.ledger import boottime, unfaulted
from support.races.rig import BEAT, LEASE, LONG_LEASE, SWEEP, Race
from support.rigs.worker import on_one_engine

ONE_TRY = {"max_attempts": 1}
SLOW_BEATS = {"heartbeat_seconds": 20, "lease_seconds": 60}  # so that only a wake-up can be quick


@asynccontextmanager
async def client(race: Race) -> AsyncIterator[Rowlock]:
    async with Rowlock(race.url) as app:
        yield app


async def test_a_handler_that_blocks_the_event_loop_for_longer_than_its_lease_runs_once(race: Race) -> None:
    blocked = race.start(lease_seconds=LONG_LEASE)
    await race.started()
    (job,) = await race.enqueue("block", ms=int(1.5 * LONG_LEASE * 1000), options=ONE_TRY)
    await race.until_noted("start")
    race.start()  # with a shorter lease, it looks for dead workers sooner: well before the other's lease would end
    await race.until_done(1.5 * LONG_LEASE + 5)
    race.judge()
    assert unfaulted([job], race.entries(), race.rows()) == []
    warnings = [line for line in blocked.log().splitlines() if "event loop has not turned" in line]
    assert warnings, blocked.log()
    assert "block" in warnings[0].rpartition(":")[2], warnings[0]


@each("task", ["work", "thread"])
async def test_a_running_job_is_told_of_its_cancel_within_a_second(race: Race, task: str) -> None:
    if not race.workers:
        race.start(**SLOW_BEATS)
        await race.started()
    seconds: list[float] = []
    async with client(race) as app:
        while not seconds or (seconds[-1] >= 1 and len(seconds) < 3):  # a busy machine may be slow, but not each time
            (job,) = await race.enqueue(task, ms=30_000)
            await race.until_noted("start", job=job)
            asked = boottime()
            assert await app.cancel(job) == "cancelling"
            (stopped,) = await race.until_noted("stop" if task == "work" else "end", within=10, job=job)
            seconds.append(stopped.at - asked)
            await race.until_done(10)
            assert (await app.job(job)).state == "cancelled"
    assert seconds[-1] < 1, seconds
    race.judge(state="cancelled" if task == "work" else None)


async def test_a_running_job_is_told_of_its_cancel_within_one_beat_without_wake_ups(race: Race) -> None:
    race.start(wakeups="false")
    await race.started()
    (job,) = await race.enqueue("work", ms=30_000)
    await race.until_noted("start")
    async with client(race) as app:
        asked = boottime()
        await app.cancel(job)
        (stopped,) = await race.until_noted("stop")
    assert stopped.at - asked < BEAT + 5, "it was told by something slower than a beat"
    await race.until_done(3)
    race.judge(state="cancelled")


async def test_once_a_job_reads_cancelled_no_result_appears(race: Race) -> None:
    chance = random.Random(5)
    race.start()
    race.start()
    await race.started()
    cancelled: set[str] = set()
    async with client(race) as app:
        store = await app.store()
        while not cancelled:  # on a busy machine, 60 jobs may end before the first cancel arrives
            ids = await race.enqueue("work", 60, ms=60)
            while race.live():
                for job, answer in (await store.run(cancels.cancel(chance.sample(ids, 3), app.keep))).items():
                    if answer == "cancelled" or race.row(job).state == "cancelled":
                        cancelled.add(job)
                await asyncio.sleep(0.01)
    for worker in race.workers:  # what is still on its way is written before a worker ends
        assert await worker.stop() == 0
    race.judge(state=None)
    shown = race.query("SELECT id, state, result FROM {t}jobs")
    assert all(state == "cancelled" and result is None for job, state, result in shown if str(job) in cancelled)


async def test_a_cancelled_job_whose_worker_dies_is_cancelled_and_never_tried_again(race: Race) -> None:
    victim = race.start()
    await race.started()
    (job,) = await race.enqueue("work", ms=30_000)
    await race.until_noted("start")
    with race.frozen(victim):
        async with client(race) as app:
            assert await app.cancel(job) == "cancelling"
        victim.kill()
    race.start()
    await race.until_done(LEASE + SWEEP + 10)
    race.judge(state="cancelled")
    assert len(race.noted("start")) == 1


@on_one_engine
async def test_a_handler_that_swallows_its_cancel_or_its_timeout_still_gets_its_outcome(race: Race) -> None:
    race.start(pool_size=3, env={"RACE_GIVES_UP_AFTER": "1.5"})
    await race.started()
    (cancel,) = await race.enqueue("insist", ms=600_000)
    (overrun,) = await race.enqueue("insist", ms=600_000, options={"max_attempts": 1, "timeout_seconds": 0.5})
    await race.until_noted("start", 2)
    async with client(race) as app:
        await app.cancel(cancel)
        await race.enqueue("work", 20, ms=5)
        await race.until_done(14)
    assert race.row(cancel).state == "cancelled"
    assert (race.row(overrun).state, race.row(overrun).error_code) == ("dead", "TIMEOUT")
    (race.folder / "let-go").touch()
    await race.until_noted("end", 22)
    assert race.row(cancel).state == "cancelled"
    assert race.row(overrun).state == "dead"


@on_one_engine
async def test_no_attempt_vanishes_while_garbage_is_collected_all_the_time(race: Race) -> None:
    worker = race.start(env={"RACE_GC": "1"})
    await race.started()
    await race.enqueue("work", 100, ms=20)
    await race.enqueue("thread", 10, ms=10)
    await race.enqueue("flaky", 10)
    await race.until_done(40)
    race.judge()
    assert await worker.stop() == 0
    assert worker.counters() == {"stale_refused": 0, "reclaimed": 0, "left": 0}
