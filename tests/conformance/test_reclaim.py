"""What reclaim promises: leases that ran out end, by their own clock, at no cost to innocent jobs."""

import json
from datetime import timedelta

import pytest

from rowlock.core.errors import StoreError
from rowlock.core.outcome import Failed
from rowlock.core.times import FakeClock
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from rowlock.store.jobs import leases
from support.each import each
from support.rigs import contract
from support.rigs.rig import KEEP, Rig
from support.sql.refusals import refused


async def test_a_lease_that_ran_out_makes_the_job_retryable(rig: Rig) -> None:
    job = await rig.running(worker="w-1", max_attempts=1)
    await rig.store.run(leases.progress([(job.id, job.token, 40, "p", "m")]))
    now = rig.clock.move(61)
    (lost,) = await rig.reclaim(draw=0.5)
    assert (lost.job.id, lost.job.token, lost.job.worker) == (job.id, job.token, "w-1")
    row = await rig.row(job.id)
    assert (
        row
        | {
            "state": "retryable",
            "attempt": 1,
            "losses": 1,
            "releases": 0,
            "lease_token": None,
            "locked_by": None,
            "locked_at": None,
            "heartbeat_at": None,
            "lease_expires_at": None,
            "progress": None,
            "error_code": "WORKER_LOST",
            "run_after": now + timedelta(seconds=0.5),
            "updated_at": now,
        }
        == row
    )
    assert await rig.attempts(job.id) == [(1, "lost", "WORKER_LOST", "w-1")]


async def test_reclaim_goes_by_the_lease_alone_and_not_by_age(rig: Rig) -> None:
    short, long = await rig.running(lease=5), await rig.running(lease=5000)
    rig.clock.move(5)
    assert await rig.reclaim() == []  # not before it is over
    rig.clock.move(1)
    assert [lost.job.id for lost in await rig.reclaim()] == [short.id]
    rig.clock.move(4990)
    assert await rig.reclaim() == []
    assert await rig.state(long.id) == "running"


async def test_only_running_jobs_are_reclaimed(rig: Rig) -> None:
    failed, done = await rig.running(), await rig.running()
    await rig.settle(failed, Failed("E", "no"))
    await rig.succeed(done)
    await rig.enqueue()
    await rig.enqueue(delay=5)
    rig.clock.move(100_000)
    before = await rig.everything()
    assert await rig.reclaim() == []
    assert await rig.everything() == before


async def test_a_loss_costs_no_try(rig: Rig) -> None:
    job_id = await rig.enqueue(max_attempts=1)
    for losses in range(1, 6):
        (job,) = await rig.claim()
        assert job.losses == losses - 1
        await rig.lose(job)
        rig.clock.move(100)
        await rig.promote()
    (job,) = await rig.claim()
    await rig.settle(job, Failed("E", "the only try"))
    row = await rig.row(job_id)
    assert (row["state"], row["attempt"], row["losses"]) == ("dead", 6, 5)


async def test_the_tenth_loss_is_the_last(rig: Rig) -> None:
    job_id = await rig.enqueue(max_attempts=100)
    for losses in range(1, 11):
        (job,) = await rig.claim()
        await rig.lose(job)
        assert await rig.state(job_id) == ("dead" if losses == 10 else "retryable")
        rig.clock.move(100)
        await rig.promote()
    row = await rig.row(job_id)
    assert (row["attempt"], row["losses"], row["error_code"]) == (10, 10, "WORKER_LOST")
    assert len(await rig.attempts(job_id)) == 10


async def test_the_delay_after_a_loss_grows_and_is_spread(rig: Rig) -> None:
    for losses, expected in enumerate([1, 2, 4, 8, 16, 32, 64, 64, 64]):
        if losses == 0:
            await rig.enqueue()
        (job,) = await rig.claim()
        now = rig.clock.move(61)
        await rig.reclaim(draw=0.999)
        assert (await rig.row(job.id))["run_after"] == now + timedelta(seconds=0.999 * expected)
        rig.clock.move(100)
        await rig.promote()


async def test_cancel_asked_for_and_worker_lost_is_cancelled(rig: Rig) -> None:
    job = await rig.running()
    await rig.cancel(job.id)
    await rig.lose(job)
    row = await rig.row(job.id)
    assert (row["state"], row["error_code"], row["losses"]) == ("cancelled", "CANCELLED", 1)
    assert row["finished_at"] == rig.clock.now()
    await rig.promote()
    assert await rig.claim() == []


async def test_a_task_that_must_not_run_twice_is_dead_when_lost(rig: Rig) -> None:
    job = await rig.running(on_lost="dead")
    await rig.lose(job)
    row = await rig.row(job.id)
    assert (row["state"], row["error_code"]) == ("dead", "WORKER_LOST")


async def test_a_sweep_takes_no_more_than_it_was_asked_to(rig: Rig) -> None:
    held = [await rig.running() for _ in range(7)]
    rig.clock.move(61)
    sizes = [len(await rig.reclaim(n=3)) for _ in range(4)]
    assert sizes == [3, 3, 1, 0]
    assert {row["state"] for row in (await rig.rows()).values()} == {"retryable"}
    assert len(held) == 7


async def test_a_sweep_knows_no_tasks_and_no_queues(rig: Rig) -> None:
    for task in ("a", "b"):
        for queue in ("p", "q"):
            await rig.running(task=task, queue=queue)
    rig.clock.move(61)
    assert len(await rig.reclaim()) == 4


async def test_a_loss_that_ends_the_job_writes_its_follow_up(rig: Rig) -> None:
    on_dead = json.dumps({"task": "report", "queue": "reports", "priority": 7})
    job = await rig.running(on_lost="dead", on_dead=on_dead, owner="ana", args='{"n": 1}')
    retried = await rig.running(on_dead=on_dead)
    rig.clock.move(61)
    assert len(await rig.reclaim()) == 2
    (report,) = [row for row in (await rig.rows()).values() if row["task"] == "report"]
    assert (report["state"], report["queue"], report["priority"], report["owner"]) == ("queued", "reports", 7, "ana")
    finished = report["args"]["finished"]
    assert (
        finished
        | {
            "job_id": job.id,
            "task": "t",
            "owner": "ana",
            "state": "dead",
            "attempt": 1,
            "args": {"n": 1},
            "result": None,
            "error_code": "WORKER_LOST",
        }
        == finished
    )
    assert await rig.state(retried.id) == "retryable"


async def test_a_follow_up_that_cannot_be_stored_undoes_the_whole_sweep(rig: Rig, database: str) -> None:
    await rig.running(on_lost="dead", on_dead='{"task": "report"}')
    await rig.running()
    rig.clock.move(61)
    before = await rig.everything()
    with refused(database, "jobs_live", "task", "report"), pytest.raises(StoreError):
        await rig.reclaim()
    assert await rig.everything() == before


async def test_a_second_sweep_of_the_same_leases_finds_nothing(rig: Rig) -> None:
    for _ in range(3):
        await rig.running()
    rig.clock.move(61)
    first = await rig.reclaim()
    before = await rig.everything()
    assert len(first) == 3
    assert await rig.reclaim() == []
    assert await rig.everything() == before


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@each("guard", [60, 0.5], afresh=True)
async def test_an_outage_is_not_the_death_of_every_worker(database: str, rig: Rig, guard: float) -> None:
    """After its start a server is given one guard's time in which workers beat again."""
    ((started,),) = await rig.fetch("SELECT pg_postmaster_start_time()")
    clock = FakeClock(started)
    after_restart = await open_store(database, StoreOptions(clock=clock))
    try:
        await contract.an_outage_is_not_the_death_of_every_worker(Rig(after_restart, clock), guard)
    finally:
        await after_restart.close()


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_leases_are_reclaimed_although_the_server_started_while_its_clock_was_ahead(
    database: str, rig: Rig
) -> None:
    ((started,),) = await rig.fetch("SELECT pg_postmaster_start_time()")
    clock = FakeClock(started - timedelta(hours=9))  # it was set back after the start
    store = await open_store(database, StoreOptions(clock=clock))
    try:
        set_back = Rig(store, clock)
        job = await set_back.running()
        clock.move(61)
        assert [lost.job.id for lost in await store.run(leases.reclaim([0.0], 60, KEEP))] == [job.id]
    finally:
        await store.close()


async def test_a_sweep_without_a_guard_waits_for_nothing(rig: Rig) -> None:
    job = await rig.running()
    rig.clock.move(61)
    assert [lost.job.id for lost in await rig.store.run(leases.reclaim([0.0], 0, KEEP))] == [job.id]
