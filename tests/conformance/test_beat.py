"""What beat and held promise: only the holder renews its lease, and learns what became of it."""

from datetime import timedelta

from rowlock.core.outcome import Released
from rowlock.store.jobs import leases
from support.rigs import contract
from support.rigs.rig import Rig, token


async def test_a_beat_renews_the_lease_by_the_stores_clock(rig: Rig) -> None:
    job = await rig.running(lease=60)
    before = await rig.row(job.id)
    now = rig.clock.move(15)
    await rig.store.run(leases.beat([(job.id, job.token)], 60))
    assert await rig.row(job.id) == before | {
        "heartbeat_at": now,
        "lease_expires_at": now + timedelta(seconds=60),
    }


async def test_a_job_that_beats_is_never_reclaimed(rig: Rig) -> None:
    await contract.a_beating_job_is_never_reclaimed(rig)


async def test_one_beat_renews_many_leases(rig: Rig) -> None:
    held = [await rig.running() for _ in range(5)]
    silent = await rig.running()
    rig.clock.move(30)
    await rig.store.run(leases.beat([(job.id, job.token) for job in held], 60))
    rig.clock.move(31)
    assert [lost.job.id for lost in await rig.reclaim()] == [silent.id]


async def test_a_beat_of_nothing_changes_nothing(rig: Rig) -> None:
    await rig.running()
    before = await rig.everything()
    await rig.store.run(leases.beat([], 60))
    assert await rig.everything() == before
    assert await rig.store.run(leases.held([])) == {}


async def test_a_beat_with_an_old_or_forged_token_changes_nothing(rig: Rig) -> None:
    zombie = await rig.running()
    await rig.settle(zombie, Released(0))
    (holder,) = await rig.claim()
    rig.clock.move(10)
    before = await rig.everything()
    await rig.store.run(leases.beat([(zombie.id, zombie.token), (holder.id, token())], 1000))
    assert await rig.everything() == before


async def test_a_beat_after_reclaim_changes_nothing(rig: Rig) -> None:
    job = await rig.running()
    await rig.lose(job)
    before = await rig.everything()
    await rig.store.run(leases.beat([(job.id, job.token)], 1000))
    assert await rig.everything() == before
    assert await rig.store.run(leases.held([(job.id, job.token)])) == {}


async def test_a_stale_lease_does_not_stop_the_beats_beside_it(rig: Rig) -> None:
    lost, alive = await rig.running(), await rig.running()
    await rig.settle(lost, Released(0))
    now = rig.clock.move(30)
    await rig.store.run(leases.beat([(lost.id, lost.token), (alive.id, alive.token)], 60))
    assert (await rig.row(alive.id))["lease_expires_at"] == now + timedelta(seconds=60)


async def test_a_holder_whose_lease_ran_out_may_beat_until_it_is_reclaimed(rig: Rig) -> None:
    job = await rig.running()
    rig.clock.move(1000)
    await rig.store.run(leases.beat([(job.id, job.token)], 60))
    assert await rig.reclaim() == []
    assert await rig.store.run(leases.held([(job.id, job.token)])) == {job.id: False}


async def test_held_tells_which_leases_are_lost_and_which_are_to_be_cancelled(rig: Rig) -> None:
    plain, asked, lost, done = [await rig.running() for _ in range(4)]
    await rig.cancel(asked.id)
    await rig.settle(lost, Released(0))
    await rig.succeed(done)
    mine = [(job.id, job.token) for job in (plain, asked, lost, done)] + [(plain.id, token())]
    before = await rig.everything()
    assert await rig.store.run(leases.held(mine)) == {plain.id: False, asked.id: True}
    assert await rig.everything() == before
