"""Jobs of dead workers come back, jobs of live ones never: by lease, not by age."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from apps.engines import ONE_ENGINE
from apps.stickers.rig import Shop, ended, until
from rowlock import FakeClock, State
from rowlock_apps.stickers import app


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    """The app's time, which stands still until it is moved. Later than now: for some time after its start, a server's
    workers may only seem to be silent."""
    app.clock = FakeClock(datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1))
    yield app.clock
    app.clock = None


@pytest.fixture
def timed(clock: FakeClock, shop: Shop) -> Shop:
    return shop


def test_the_numbers_of_the_document_are_in_the_config() -> None:
    """S1.8, S1.12, S1.14: 5 minutes until a silent worker's job goes back; one job at a time in a replica."""
    worker = app.settings.worker
    assert (worker.lease_seconds, worker.pool_size, worker.poll_interval_seconds) == (300, 1, 1)
    assert worker.queues == ("stickers",)
    assert app.settings.database == "sqlite:///stickers.db"


async def test_a_live_workers_job_is_not_reset_however_long_it_takes(
    timed: Shop, clock: FakeClock, in_the_worker: None
) -> None:
    """S1.12, S1.13: seven minutes at work, with another worker that looks for dead ones all the time."""
    job = await timed.submit("ana", "a slow cat", wait_seconds=60)
    leases = {"lease_seconds": app.settings.worker.lease_seconds, "heartbeat_seconds": 0.2, "sweep_seconds": 0.1}
    async with timed.worker(**leases), timed.worker(**leases):
        await until(lambda: _thinks(job.id))
        for _ in range(7):
            moment = clock.move(60)
            await until(lambda moment=moment: _beaten(job.id, moment))
        found = await app.job(job.id)
        assert (found.state, found.attempt, found.losses) == (State.RUNNING, 1, 0)
        stats = await app.stats()
        assert [queue.longest_running_seconds for queue in stats.queues] == [420]
        await app.cancel(job.id)
        await ended(job)


async def test_a_dead_workers_job_is_back_after_five_minutes_and_not_before(timed: Shop, clock: FakeClock) -> None:
    """S1.12, S1.13: the worker is gone and beats no more; the job is for others to take, and still paid."""
    lease = app.settings.worker.lease_seconds
    job = await timed.submit("ana", "a cat")
    assert await timed.claim("host-7-1700000000000", lease) == [job.id]
    clock.move(lease - 1)
    assert await timed.sweep() == []
    assert (await job.refresh()).state == State.RUNNING
    clock.move(2)
    assert await timed.sweep() == [job.id]
    found = await job.refresh()
    assert (found.state, found.locked_by, found.losses) == (State.RETRYABLE, None, 1)
    clock.move(60)  # it does not start again at once
    assert await timed.claim("host-8-1700000000000", lease) == [job.id]
    assert await timed.kinds(job.id) == ["charge"]
    await timed.check_the_books()


@ONE_ENGINE
async def test_a_worker_says_how_many_stuck_jobs_it_has_reset(
    shop: Shop, in_the_worker: None, caplog: pytest.LogCaptureFixture
) -> None:
    """S1.12: "Reset N stuck jobs", beside a line for each that names the worker that was lost."""
    jobs = [await shop.submit("ana", "a cat") for _ in range(2)]
    for number in range(2):
        await shop.claim(f"host-{number}-1700000000000", lease=0.01)
    with caplog.at_level("INFO", "rowlock.worker"):
        # A worker believes that others are lost only after it has listened for as long as its own lease.
        async with shop.worker(lease_seconds=1.5, heartbeat_seconds=0.2, sweep_seconds=0.1):
            await until(lambda: _is_said(caplog, "Reset 2 stuck jobs"))
    assert {(await job.refresh()).state for job in jobs} == {State.RETRYABLE}  # after a loss they wait for a moment
    lost = {record.getMessage() for record in caplog.records if "reclaimed from" in record.getMessage()}
    assert {line.split(" reclaimed from ")[0].removeprefix("Job ") for line in lost} == {job.id for job in jobs}
    assert {line.split(" reclaimed from ")[1].split(",")[0] for line in lost} == {
        "host-0-1700000000000", "host-1-1700000000000"
    }  # fmt: skip


async def _is_said(caplog: pytest.LogCaptureFixture, line: str) -> bool:
    return line in caplog.messages


async def test_a_job_whose_workers_always_die_is_given_up_by_a_sweeper_and_paid_back(
    timed: Shop, clock: FakeClock
) -> None:
    """S1.11: also where no handler is left to run a refund: it is written with the death, by whoever finds it."""
    job = await timed.submit("ana", "a cat")
    for number in range(30):
        if not await timed.claim(f"host-{number}-1", lease=1):
            break
        clock.move(2)
        await timed.sweep()
        clock.move(3600)
    assert (await job.refresh()).state == State.DEAD
    await timed.run_all()
    assert await timed.kinds(job.id) == ["charge", "refund"]
    await timed.check_the_books()


async def test_the_books_are_looked_after_every_five_minutes(timed: Shop, clock: FakeClock) -> None:
    """S1.12: what the document cleans up from time to time is here what an operator's cancel leaves unpaid."""
    job = await timed.submit("ana", "a cat")
    await app.cancel(job.id)
    async with app.dispatcher():
        await until(_scheduled)
    clock.move(300)
    async with app.dispatcher():  # one that starts looks at once
        await until(_has_ticked)
    await timed.run_all()
    assert await timed.kinds(job.id) == ["charge", "refund"]


async def _scheduled() -> bool:
    return len(await app.schedules.list()) == 1


async def _has_ticked() -> bool:
    return len(await app.jobs(task="stickers.reconcile")) == 1


async def _thinks(job_id: str) -> bool:
    return bool((await app.job(job_id)).phase == "thinking")


async def _beaten(job_id: str, moment: object) -> bool:
    return bool((await app.job(job_id)).heartbeat_at == moment)
