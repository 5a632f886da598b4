"""What expire promises: a job that was not started by its latest start is cancelled, and no other."""

from datetime import timedelta

from rowlock.core.outcome import Failed
from rowlock.core.policy import fixed
from rowlock.store.jobs import cancel
from support.rigs.rig import KEEP, Rig


async def test_a_waiting_job_is_cancelled_at_its_latest_start(rig: Rig) -> None:
    job_id = await rig.enqueue(expires_at=rig.clock.now() + timedelta(seconds=10))
    rig.clock.move(9.5)
    assert await rig.store.run(cancel.expire(10, KEEP)) == 0
    now = rig.clock.move(0.5)
    assert await rig.store.run(cancel.expire(10, KEEP)) == 1
    row = await rig.row(job_id)
    assert (row["state"], row["error_code"], row["finished_at"]) == ("cancelled", "EXPIRED", now)
    assert await rig.attempts(job_id) == []


async def test_a_delayed_and_a_retryable_job_expire_too(rig: Rig) -> None:
    soon = rig.clock.now() + timedelta(seconds=10)
    delayed = await rig.enqueue(delay=100, expires_at=soon)
    failed = await rig.running(expires_at=soon, backoff=fixed(seconds=100).to_json())
    await rig.settle(failed, Failed("E", "no"))
    rig.clock.move(11)
    assert await rig.store.run(cancel.expire(10, KEEP)) == 2
    assert await rig.state(delayed) == await rig.state(failed.id) == "cancelled"
    assert await rig.attempts(failed.id) == [(1, "failed", "E", "worker-1")]


async def test_a_running_job_does_not_expire(rig: Rig) -> None:
    job = await rig.running(expires_at=rig.clock.now() + timedelta(seconds=10))
    rig.clock.move(11)
    before = await rig.everything()
    assert await rig.store.run(cancel.expire(10, KEEP)) == 0
    assert await rig.everything() == before
    await rig.succeed(job)


async def test_a_job_without_a_latest_start_never_expires(rig: Rig) -> None:
    job_id = await rig.enqueue()
    rig.clock.move(timedelta(days=3650))
    assert await rig.store.run(cancel.expire(10, KEEP)) == 0
    assert await rig.state(job_id) == "queued"


async def test_expire_is_bounded(rig: Rig) -> None:
    await rig.enqueue_many(5, expires_at=rig.clock.now())
    assert [await rig.store.run(cancel.expire(2, KEEP)) for _ in range(4)] == [2, 2, 1, 0]
    assert {row["state"] for row in (await rig.rows()).values()} == {"cancelled"}
