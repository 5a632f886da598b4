"""Two sessions meet on one job, statement by statement, in every order. One of them wins, and both know which."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from rowlock.core.job import NewJob
from rowlock.core.outcome import Failed, Succeeded
from rowlock.core.times import FakeClock
from rowlock.store import Store
from rowlock.store.jobs import cancel, enqueue, leases, retry
from rowlock.store.jobs import claim as claims
from rowlock.store.jobs import settle as settle_jobs
from rowlock.store.jobs import settle as transitions
from rowlock.store.jobs.claim import Range
from support.races.interleave import Actor, add_gate, orders, play
from support.rigs import contract
from support.rigs.rig import KEEP, Rig, numbered, settlement, token

pytestmark = pytest.mark.parametrize("engine", ["postgres"])  # SQLite has one writer: nothing meets

LANES = [Range("default", "t")]


def claim(worker: str, n: int = 1) -> Any:
    return claims.claim(worker, token(), LANES, n, 60)


async def test_claim_and_claim_share_no_job(rig: Rig, other: Store, watcher: Any) -> None:
    for order in orders(2, 2):
        ids = await rig.enqueue_many(3)
        a, b = await play(watcher, order, Actor(rig.store, claim("a", 2)), Actor(other, claim("b", 2)))
        taken = [job.id for job in a + b]
        assert len(taken) == len(set(taken)), order
        assert max(len(a), len(b)) <= 2
        assert a or b
        taken += [job.id for job in await rig.claim(10)]
        assert sorted(taken) == ids, order
        rows = await rig.rows()
        assert {rows[job_id]["attempt"] for job_id in ids} == {1}
        for job in (*a, *b):
            assert rows[job.id]["lease_token"] == job.token
            assert rows[job.id]["locked_by"] == job.worker


async def test_claim_and_claim_of_one_job_have_one_winner(rig: Rig, other: Store, watcher: Any) -> None:
    for order in orders(2, 2):
        job_id = await rig.enqueue()
        a, b = await play(watcher, order, Actor(rig.store, claim("a")), Actor(other, claim("b")))
        assert len(a) + len(b) == 1, order
        row = await rig.row(job_id)
        assert (row["attempt"], row["lease_token"]) == (1, (*a, *b)[0].token)


async def test_a_claim_whose_snapshot_is_old_does_not_take_a_taken_job(
    rig: Rig, other: Store, watcher: Any, clock: FakeClock
) -> None:
    add_gate(other)
    await contract.a_job_has_one_claimer(rig, Rig(other, clock), watcher)


async def test_finish_and_reclaim_write_one_outcome(rig: Rig, other: Store, watcher: Any) -> None:
    seen: Counter[str] = Counter()
    for order in (*orders(4, 2), *orders(3, 5)):  # whoever comes second has fewer steps
        job = await rig.running(lease=5)
        rig.clock.move(6)
        finish = transitions.apply([settlement(job, Succeeded('"done"'))], KEEP)
        a, b = await play(watcher, order, Actor(rig.store, finish), Actor(other, leases.reclaim([0.5], 0, KEEP)))
        row = await rig.row(job.id)
        if a[job.id] == "applied":
            assert (row["state"], row["result"], row["losses"], b) == ("succeeded", "done", 0, []), order
            assert await rig.attempts(job.id) == []
        else:
            assert (row["state"], row["losses"], len(b)) == ("retryable", 1, 1), order
            assert a[job.id] == "lost", order
            assert len(await rig.attempts(job.id)) == 1
        seen[row["state"]] += 1
    assert set(seen) == {"succeeded", "retryable"}  # both have won


async def test_plain_success_and_reclaim_write_one_outcome(rig: Rig, other: Store, watcher: Any) -> None:
    seen = set()
    for order in orders(2, 5):
        job = await rig.running(lease=5)
        rig.clock.move(6)
        finish = settle_jobs.succeed([(job.id, job.token, '"done"')], KEEP)
        a, b = await play(watcher, order, Actor(rig.store, finish), Actor(other, leases.reclaim([0.5], 0, KEEP)))
        row = await rig.row(job.id)
        assert (bool(a), len(b)) in ((True, 0), (False, 1)), order
        assert row["state"] == ("succeeded" if a else "retryable"), order
        seen.add(row["state"])
    assert len(seen) == 2


async def test_reclaim_and_reclaim_end_a_lease_once(rig: Rig, other: Store, watcher: Any) -> None:
    for order in (*orders(5, 2), *orders(2, 5)):
        job = await rig.running(lease=5)
        rig.clock.move(6)
        sweeps = [Actor(store, leases.reclaim([0.5] * 10, 0, KEEP)) for store in (rig.store, other)]
        a, b = await play(watcher, order, *sweeps)
        assert len(a) + len(b) == 1, order
        assert (await rig.row(job.id))["losses"] == 1, order


async def test_cancel_and_finish_agree_on_what_happened(rig: Rig, other: Store, watcher: Any) -> None:
    seen: Counter[str] = Counter()
    for order in orders(4, 4):
        job = await rig.running()
        finish = transitions.apply([settlement(job, Succeeded('"done"'))], KEEP)
        a, b = await play(watcher, order, Actor(rig.store, finish), Actor(other, cancel.cancel([job.id], KEEP)))
        row = await rig.row(job.id)
        assert a[job.id] == "applied", order
        assert row["state"] == "succeeded", order
        assert b[job.id] in ("cancelling", "final"), order
        assert (row["cancel_requested_at"] is not None) == (b[job.id] == "cancelling"), order
        seen[b[job.id]] += 1
    assert set(seen) == {"cancelling", "final"}


async def test_cancel_and_a_failure_agree_on_what_happened(rig: Rig, other: Store, watcher: Any) -> None:
    """Once `cancelled` is answered the job is cancelled, whatever the attempt wrote before."""
    seen = set()
    for order in orders(4, 4):
        job = await rig.running()
        fail = transitions.apply([settlement(job, Failed("E", "no"))], KEEP)
        a, b = await play(watcher, order, Actor(rig.store, fail), Actor(other, cancel.cancel([job.id], KEEP)))
        assert a[job.id] == "applied", order
        assert (await rig.state(job.id) == "cancelled") or b[job.id] == "cancelling", order
        assert len(await rig.attempts(job.id)) == 1, order
        seen.add(b[job.id])
    assert seen == {"cancelling", "cancelled"}


async def test_cancel_and_claim_agree_on_what_happened(rig: Rig, other: Store, watcher: Any) -> None:
    seen = set()
    for order in orders(2, 4):
        job_id = await rig.enqueue()
        a, b = await play(watcher, order, Actor(rig.store, claim("a")), Actor(other, cancel.cancel([job_id], KEEP)))
        assert await rig.state(job_id) == ("running" if a else "cancelled"), order
        assert b == {job_id: "cancelling" if a else "cancelled"}, order
        seen.add(b[job_id])
    assert len(seen) == 2


async def test_settle_and_beat_never_bring_a_lease_back(rig: Rig, other: Store, watcher: Any) -> None:
    for end in (Succeeded(), Failed("E", "no")):
        for order in orders(4, 2):
            job = await rig.running()
            rig.clock.move(1)
            beat = Actor(other, leases.beat([(job.id, job.token)], 1000))
            settle = Actor(rig.store, transitions.apply([settlement(job, end)], KEEP))
            a, _ = await play(watcher, order, settle, beat)
            assert a == {job.id: "applied"}, order
            row = await rig.row(job.id)
            assert row["state"] in ("succeeded", "retryable")
            assert (row["lease_token"], row["lease_expires_at"], row["heartbeat_at"]) == (None, None, None), order


async def test_plain_success_and_another_write_to_the_row_leave_one_row(rig: Rig, other: Store, watcher: Any) -> None:
    """The success waits for the other's lock and then goes on with a row that is newer than its snapshot."""
    for write in ("beat", "progress", "cancel"):
        for order in orders(2, 4 if write == "cancel" else 2):
            job, beside = await rig.running(), await rig.running()
            rig.clock.move(1)
            writes = {
                "beat": leases.beat([(job.id, job.token)], 1000),
                "progress": leases.progress([(job.id, job.token, 50, "p", "m")]),
                "cancel": cancel.cancel([job.id], KEEP),
            }
            done = settle_jobs.succeed([(job.id, job.token, '"done"'), (beside.id, beside.token, None)], KEEP)
            a, b = await play(watcher, order, Actor(rig.store, done), Actor(other, writes[write]))
            assert a is True, (write, order)
            assert await rig.fetch("SELECT count(*) FROM {t}jobs_live") == [(0,)], (write, order)
            row = await rig.row(job.id)  # one row
            assert (row["state"], row["result"]) == ("succeeded", "done"), (write, order)
            if write == "cancel":
                assert (row["cancel_requested_at"] is not None) == (b[job.id] == "cancelling"), order


async def test_beat_and_reclaim_agree_on_who_holds_the_lease(rig: Rig, other: Store, watcher: Any) -> None:
    seen = set()
    for order in orders(2, 5):
        job = await rig.running(lease=5)
        rig.clock.move(6)
        beat = Actor(rig.store, leases.beat([(job.id, job.token)], 60))
        _, b = await play(watcher, order, beat, Actor(other, leases.reclaim([0.5], 0, KEEP)))
        row = await rig.row(job.id)
        assert row["state"] == ("retryable" if b else "running"), order
        assert (row["lease_token"] is None) == bool(b), order
        if not b:
            await rig.succeed(job)
        seen.add(row["state"])
    assert len(seen) == 2


async def test_retry_and_retry_bring_a_job_back_once(rig: Rig, other: Store, watcher: Any) -> None:
    for order in (*orders(5, 2), *orders(2, 5)):
        job = await rig.running()
        await rig.settle(job, Failed("E", "no", permanent=True))
        actors = [Actor(store, retry.retry([job.id], 1)) for store in (rig.store, other)]
        a, b = await play(watcher, order, *actors)
        assert len(a) + len(b) == 1, order
        assert await rig.state(job.id) == "queued"
        await rig.cancel(job.id)


@pytest.mark.parametrize("roll_back", [False, True])
async def test_twins_under_one_chosen_id_make_one_job(rig: Rig, other: Store, watcher: Any, roll_back: bool) -> None:
    """The second waits for the first: it takes over when that one is undone, and is told so when it is not."""
    for n, order in enumerate(orders(3, 3)):
        job_id = numbered(1000 + n)
        first = enqueue.enqueue_once(job_id, '{"by": "a"}', NewJob(task="t"))
        second = enqueue.enqueue_once(job_id, '{"by": "b"}', NewJob(task="t"))
        answers = await play(watcher, order, Actor(rig.store, first, roll_back), Actor(other, second))
        a, b = (isinstance(answer, list) and answer[0][1] for answer in answers)  # whether each has created the job
        row = await rig.row(job_id)  # there is one, whoever wrote it
        if not roll_back:
            assert sorted([a, b]) == [False, True], order
            assert row["args"]["by"] == ("a" if a else "b"), order
        elif b:
            assert row["args"]["by"] == "b", order


async def test_a_row_that_somebody_has_locked_does_not_stop_the_beats_of_others(rig: Rig, watcher: Any) -> None:
    locked, free = await rig.running(), await rig.running()
    mine = [(locked.id, locked.token), (free.id, free.token)]
    before = await rig.row(locked.id)
    transaction = watcher.transaction()
    await transaction.start()
    await watcher.execute("SELECT 1 FROM rowlock.jobs_live WHERE id = $1 FOR UPDATE", locked.id)
    now = rig.clock.move(61)
    async with asyncio.timeout(5):  # less than any lock timeout: nobody waits for the lock
        await rig.store.run(leases.beat(mine, 60))
        assert await rig.store.run(leases.held(mine)) == {locked.id: False, free.id: False}
        assert await rig.reclaim() == []  # skipped is not lost: the sweeper passes the locked row over too
    await transaction.rollback()
    assert (await rig.row(free.id))["heartbeat_at"] == now
    assert (await rig.row(locked.id))["lease_expires_at"] == before["lease_expires_at"]
    await rig.store.run(leases.beat(mine, 60))
    assert (await rig.row(locked.id))["heartbeat_at"] == now


async def test_a_locked_row_does_not_stop_claims_promotions_and_expiries_of_others(rig: Rig, watcher: Any) -> None:
    ready, later, overdue = (
        await rig.enqueue_many(2),
        await rig.enqueue_many(2, delay=5),
        await rig.enqueue_many(2, task="old", expires_at=rig.clock.now()),
    )
    transaction = watcher.transaction()
    await transaction.start()
    first = [ready[0], later[0], overdue[0]]
    await watcher.execute("SELECT 1 FROM rowlock.jobs_live WHERE id = ANY($1::uuid[]) FOR UPDATE", first)
    async with asyncio.timeout(5):
        assert [job.id for job in await rig.claim(10)] == [ready[1]]
        rig.clock.move(6)
        assert (await rig.promote())[0] == 1
        assert [job.id for job in await rig.claim(10)] == [later[1]]
        assert await rig.store.run(cancel.expire(10, KEEP)) == 1
    await transaction.rollback()
    assert await rig.state(overdue[1]) == "cancelled"
    assert (await rig.promote())[0] == 1
    assert [job.id for job in await rig.claim(10)] == [ready[0], later[0]]
