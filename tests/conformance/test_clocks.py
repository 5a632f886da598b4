"""Jobs after the database's clock was ahead for a time: their leases and retries do not wait for that moment."""

from datetime import timedelta

from rowlock.core.outcome import Failed, Released
from rowlock.core.policy import DAY
from rowlock.store.jobs import cancel, leases
from rowlock.store.upkeep import clock_repair
from support.rigs.rig import KEEP, LEASE, TABLES, Rig

MANY = 1_000


async def test_the_lease_of_a_worker_that_died_under_a_clock_ahead_runs_out_in_one_lease(rig: Rig) -> None:
    await rig.enqueue_many(2)
    rig.clock.move(DAY)
    dead, lives = await rig.claim(2)
    rig.clock.move(-DAY)
    assert await rig.store.run(clock_repair.put_jobs_right(0)) == (2, 0)
    assert await rig.store.run(clock_repair.put_jobs_right(0)) == (0, 0)
    assert await rig.reclaim() == [], "a worker that lives has a whole lease to renew its own"
    rig.clock.move(LEASE - 1)
    assert await rig.store.run(leases.beat([(lives.id, lives.token)], LEASE)) == {lives.id}
    rig.clock.move(2)
    assert [lost.job.id for lost in await rig.reclaim()] == [dead.id]
    await rig.succeed(lives)
    assert await rig.state(lives.id) == "succeeded"


async def test_retries_and_released_jobs_wait_as_long_as_they_were_meant_to(rig: Rig) -> None:
    await rig.enqueue_many(2, max_attempts=3)
    rig.clock.move(DAY)
    failed, released = await rig.claim(2)
    await rig.settle(failed, Failed("E", "no", after=100))
    await rig.settle(released, Released(50))
    delay = (await rig.row(failed.id))["run_after"] - rig.clock.now()
    rig.clock.move(-DAY)
    assert await rig.store.run(clock_repair.put_jobs_right(MANY)) == (0, 2)
    now = rig.clock.now()
    assert (await rig.row(failed.id))["run_after"] == now + delay
    assert (await rig.row(released.id))["run_after"] == now + timedelta(seconds=50)
    assert await rig.store.run(clock_repair.put_jobs_right(MANY)) == (0, 0)


async def test_times_of_a_correct_clock_and_chosen_start_times_stay(rig: Rig) -> None:
    await rig.enqueue_many(3, max_attempts=3)
    failed, _ = await rig.claim(2)
    await rig.settle(failed, Failed("E", "no", after=100))
    rig.clock.move(DAY)
    chosen = await rig.enqueue(run_after=rig.clock.now() + timedelta(days=3))
    rig.clock.move(-DAY)
    before = await rig.everything(TABLES)
    assert await rig.store.run(clock_repair.put_jobs_right(MANY)) == (0, 0)
    assert await rig.everything(TABLES) == before
    assert (await rig.row(chosen))["run_after"] == rig.clock.now() + timedelta(days=4)
    await rig.cancel(chosen)
    assert await rig.store.run(cancel.expire(10, KEEP)) == 0
