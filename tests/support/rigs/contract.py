"""Promises as functions: the conformance tests call them, and so do the mutants, which must fail them."""

import asyncio
from typing import Any

from rowlock.core.outcome import Failed, Released, Succeeded
from rowlock.store.jobs import leases, settle
from support.races.interleave import closed_gate
from support.rigs.rig import KEEP, LEASE, Rig, token


async def every_claim_counts_one_attempt(rig: Rig) -> None:
    """`attempt` grows at each claim, and only there: claims == attempt."""
    job_id = await rig.enqueue()
    for claims in range(1, 6):
        (job,) = await rig.claim()
        assert job.attempt == claims
        assert await rig.settle(job, Released(0)) == "applied"
        assert (await rig.row(job_id))["attempt"] == claims


async def old_tokens_change_nothing(rig: Rig) -> None:
    """Zombies are mute: settle, success, progress, beat and adopt with an old or forged token do nothing."""
    zombie = await rig.running()
    assert await rig.settle(zombie, Released(0)) == "applied"
    (middle,) = await rig.claim()
    assert await rig.settle(middle, Released(0)) == "applied"
    (holder,) = await rig.claim()
    rig.clock.move(7)
    before = await rig.everything()
    for stale in (zombie.token, token()):
        for end in (Succeeded('"stolen"'), Failed("E", "stolen"), Failed("E", "x", permanent=True), Released(0)):
            answer = await rig.settle(zombie, end, under=stale)
            assert await rig.everything() == before, f"an old token wrote {end}"
            assert answer == "lost"
        assert await rig.store.run(settle.succeed([(zombie.id, stale, '"stolen"')], KEEP)) is False
        assert await rig.store.run(leases.progress([(zombie.id, stale, 99, "stolen", "stolen")])) == set()
        await rig.store.run(leases.beat([(zombie.id, stale)], 1000))
        assert await rig.store.run(leases.held([(zombie.id, stale)])) == {}
        assert await rig.everything() == before, "an old token wrote"
    assert await rig.settle(holder, Succeeded('"mine"')) == "applied"
    row = await rig.row(holder.id)
    assert (row["state"], row["result"], row["attempt"]) == ("succeeded", "mine", 3)


async def a_repeated_settle_is_a_duplicate(rig: Rig) -> None:
    """A settle whose reply was lost may be sent again: it is told so, and changes nothing."""
    for end in (
        Succeeded('{"n": 1}'),
        Failed("E", "once"),
        Failed("E", "never", permanent=True),
        Released(5),
    ):
        job = await rig.running()
        assert await rig.settle(job, end) == "applied"
        before = await rig.everything()
        rig.clock.move(3)
        assert await rig.settle(job, end) == "duplicate", f"a repeated {end} was not known again"
        assert await rig.everything() == before


async def follow_ups_come_with_the_final_state(rig: Rig) -> None:
    """What follows a job is written with its final state, in one transaction."""
    job = await rig.running(on_success='{"task": "after"}')
    assert await rig.settle(job, Succeeded()) == "applied"
    followed = [row["args"]["finished"]["job_id"] for row in (await rig.rows()).values() if row["task"] == "after"]
    assert followed.count(job.id) == 1, "the follow-up is missing"


async def nothing_starts_before_its_time(rig: Rig) -> None:
    """A delayed job is not claimed a moment early."""
    job_id = await rig.enqueue(delay=100)
    rig.clock.move(99.5)
    await rig.promote()
    assert await rig.claim() == []
    rig.clock.move(0.5)
    await rig.promote()
    (job,) = await rig.claim()
    assert job.id == job_id
    await rig.succeed(job)


async def a_beating_job_is_never_reclaimed(rig: Rig) -> None:
    """However long it runs."""
    job = await rig.running()
    for _ in range(5):
        rig.clock.move(LEASE - 1)
        await rig.store.run(leases.beat([(job.id, job.token)], LEASE))
        assert await rig.reclaim() == [], "a live job was taken from its worker"
    await rig.succeed(job)


async def an_outage_is_not_the_death_of_every_worker(rig: Rig, guard: float) -> None:
    """The clock stands at the server's start: leases that run out within `guard` seconds of it are not swept."""
    job = await rig.running(lease=guard / 4)
    rig.clock.move(guard / 2)
    assert await rig.reclaim(guard=guard) == [], "swept before the workers could beat again"
    assert (await rig.row(job.id))["lease_token"] == job.token
    rig.clock.move(guard)
    assert [lost.job.id for lost in await rig.reclaim(guard=guard)] == [job.id]


async def a_job_has_one_claimer(rig: Rig, late: Rig, watcher: Any) -> None:
    """`late` took its snapshot before `rig` claimed, and goes on after that claim has committed."""
    ids = await rig.enqueue_many(2)
    async with closed_gate(watcher) as somebody_waits:
        waiting = asyncio.create_task(late.claim(1, worker="late"))
        await somebody_waits()
        (first,) = await rig.claim(1, worker="first")
        assert first.id == ids[0]
    second = await waiting
    assert first.id not in [job.id for job in second], "one job, two owners"
    row = await rig.row(first.id)
    assert (row["attempt"], row["lease_token"], row["locked_by"]) == (1, first.token, "first")
