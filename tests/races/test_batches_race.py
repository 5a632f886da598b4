"""Two sessions meet on one batch, statement by statement: it ends when all is done, once, and not before."""

import asyncio
import json
from typing import Any

import pytest

from rowlock import NotAllowed, Rowlock
from rowlock.client.handles.batch import Batch
from rowlock.core.job import NewJob
from rowlock.core.outcome import Failed, Succeeded
from rowlock.store import Store, batches
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.postgres import connector
from rowlock.store.jobs import enqueue, retry
from rowlock.store.jobs import settle as settle_jobs
from rowlock.store.jobs import settle as transitions
from rowlock.store.jobs.enqueue import NewRow
from support.races.interleave import GATE, Actor, closed_gate, orders, play, watching
from support.rigs.app import app, rig, t
from support.rigs.rig import KEEP, Rig, settlement

__all__ = ["app", "rig", "t"]  # fixtures

pytestmark = pytest.mark.parametrize("engine", ["postgres"])  # SQLite has one writer: nothing meets

DEAD = Failed("E", "no", permanent=True)


def meetings(first: int, second: int) -> list[str]:
    """Orders in which one comes between two parts of the other, or not at all: more turns meet nothing new."""
    return [order for order in orders(first, second) if order.count("AB") + order.count("BA") <= 2]


@pytest.fixture
def report(app: Rowlock) -> Any:
    @app.task("report")
    async def report(batch: dict[str, Any]) -> None: ...

    return report


async def reports_of(rig: Rig, batch: Any) -> int:
    rows = [row for row in (await rig.rows()).values() if row["task"] == "report"]
    return sum(row["args"]["batch"]["batch_id"] == batch.id for row in rows)


async def made(app: Rowlock, report: Any) -> Batch:
    """A batch that is not sealed."""
    batch_id = new_id()
    await app.perform(batches.make(batch_id, "b", None, json.dumps({"task": report.name})))
    return await app.find_batch(batch_id)


async def once_done(actor: Actor, store: Store, look: Any) -> Any:
    """What can be seen as soon as an actor is done."""
    await actor.task
    return await store.run(look)


async def ended(seal: Actor, store: Store, batch_id: str) -> Any:
    """The batch as soon as it is sealed, once whoever sealed it has looked whether it can end."""
    await once_done(seal, store, batches.end([batch_id]))
    return await store.run(batches.get(batch_id))


async def test_a_retry_and_the_end_leave_no_batch_that_is_over_with_work_left(
    app: Rowlock, t: Any, rig: Rig, other: Store, watcher: Any
) -> None:
    for order in meetings(8, 7):
        async with app.batch("b") as batch:
            await t.using(batch=batch).enqueue()
        (job,) = await rig.claim()
        await rig.settle(job, DEAD)
        await play(watcher, order, Actor(rig.store, retry.retry([job.id], 1)), Actor(other, batches.end([batch.id])))
        row = (await batch.refresh()).record
        assert (row.processed, row.failed, row.over) == (0, 0, False), order
        await rig.cancel(job.id)


async def test_the_ends_of_two_workers_are_one(
    app: Rowlock, t: Any, rig: Rig, other: Store, watcher: Any, report: Any
) -> None:
    for order in meetings(8, 8):
        async with app.batch("b", on_end=report) as batch:
            await t.using(batch=batch).enqueue()
        (job,) = await rig.claim()
        await rig.succeed(job)
        ends = [Actor(store, batches.end([batch.id])) for store in (rig.store, other)]
        a, b = await play(watcher, order, *ends)
        assert sorted([a, b]) == [[], [batch.id]], order
        assert await reports_of(rig, batch) == 1, order


async def test_the_last_two_outcomes_leave_no_batch_that_nobody_ends(
    app: Rowlock, t: Any, rig: Rig, other: Store, watcher: Any, report: Any
) -> None:
    """Each settles and then looks: the second to commit sees both."""
    for order in meetings(8, 8):
        async with app.batch("b", on_end=report) as batch:
            for _ in range(2):
                await t.using(batch=batch).enqueue()
        one, two = await rig.claim(2)
        settles = [transitions.apply([settlement(job, end)], KEEP) for job, end in ((one, Succeeded()), (two, DEAD))]
        await play(watcher, order, Actor(rig.store, settles[0]), Actor(other, settles[1]))
        assert await rig.store.run(batches.end([batch.id])) == [batch.id]
        row = (await batch.refresh()).record
        assert (row.state, row.total, row.processed, row.failed) == ("failed", 2, 2, 1), order
        assert await reports_of(rig, batch) == 1


@pytest.fixture
def short_lock_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For stores that are opened from now on."""
    monkeypatch.setitem(connector.SETTINGS, "lock_timeout", "1s")


@pytest.mark.usefixtures("short_lock_waits")
@pytest.mark.parametrize(("waits", "table"), [("the seal", "batches"), ("the settle", "batch_counts")])
async def test_a_seal_and_the_last_outcome_at_the_same_moment_end_the_batch(
    app: Rowlock, t: Any, rig: Rig, watcher: Any, report: Any, waits: str, table: str
) -> None:
    """One of them has written, and looked if it looks before its commit, when the other commits and looks. No sweep."""
    await watcher.execute(
        f"CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NULL; END $$"
    )
    batch = await made(app, report)
    await t.using(batch=batch).enqueue()
    (job,) = await rig.claim()
    await watcher.execute(
        f"CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT OR UPDATE ON rowlock.{table}"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_at_commit()"
    )

    async def settle() -> None:
        assert await settle_jobs.settle(rig.store, [settlement(job, Succeeded())], KEEP) == {job.id: "applied"}

    first, second = (batch.seal, settle) if waits == "the seal" else (settle, batch.seal)
    async with closed_gate(watcher) as somebody_waits:
        waiting = asyncio.create_task(first())
        await somebody_waits()
        await second()
        assert not (await batch.refresh()).over
    await waiting
    assert (await batch.refresh()).state == "succeeded"
    assert await reports_of(rig, batch) == 1


@pytest.mark.parametrize("others", [0, 1])
async def test_a_job_that_is_added_while_the_batch_is_sealed_is_in_it_or_refused(
    app: Rowlock, rig: Rig, other: Store, watcher: Any, others: int
) -> None:
    seen = set()
    for n, order in enumerate(meetings(5, 5)):
        batch_id = f"01890000-0000-7000-8000-{n:012x}"
        await rig.store.run(batches.make(batch_id, "b", None, None))
        row, new = NewRow(rig.new_id(), "{}", None, None), NewJob(task="t", batch_id=batch_id)
        before = [NewRow(rig.new_id(), "{}", None, None) for _ in range(others)]
        await rig.store.run(enqueue.enqueue_rows(before, new))
        seal = Actor(other, batches.seal(batch_id))
        looking = asyncio.create_task(ended(seal, other, batch_id))
        try:
            await play(watcher, order, Actor(rig.store, enqueue.enqueue_rows([row], new)), seal)
            added = True
        except NotAllowed:
            added = False
        for batch in (await looking, await app.find_batch(batch_id)):
            assert (batch.total, batch.sealed, batch.over) == (others + added, True, not (others or added)), order
        assert (row.id in await rig.rows()) == added, order
        seen.add(added)
        await rig.cancel(row.id)
    assert seen == {True, False}  # both have won


async def test_a_job_that_is_added_while_the_batch_is_cancelled_is_there_to_be_cancelled_or_refused(
    rig: Rig, other: Store, watcher: Any
) -> None:
    seen = set()
    for n, order in enumerate(meetings(5, 3)):
        batch_id = f"01890000-0000-7000-8000-{n:012x}"
        await rig.store.run(batches.make(batch_id, "b", None, None))
        row, new = NewRow(rig.new_id(), "{}", None, None), NewJob(task="t", batch_id=batch_id)
        cancel = Actor(other, batches.mark_cancelled(batch_id))
        looking = asyncio.create_task(once_done(cancel, other, batches.left(batch_id, 10)))
        try:
            await play(watcher, order, Actor(rig.store, enqueue.enqueue_rows([row], new)), cancel)
            added = True
        except NotAllowed:
            added = False
        assert await looking == ([row.id] if added else []), order
        seen.add(added)
    assert seen == {True, False}  # both have won


async def test_a_transaction_that_adds_to_a_batch_does_not_hold_up_the_claim_that_starts_it(
    app: Rowlock, t: Any, rig: Rig, database: str
) -> None:
    async with watching(database) as mine, app.batch("b") as batch:
        async with mine.transaction():
            await t.using(batch=batch, connection=mine).enqueue()
            async with asyncio.timeout(10):
                await rig.store.run(batches.start([batch.id]))
            assert (await batch.refresh()).state == "running"


@pytest.mark.parametrize("commits", [True, False])
async def test_a_job_that_is_added_on_the_callers_connection_counts_when_the_caller_commits(
    app: Rowlock, t: Any, rig: Rig, database: str, commits: bool
) -> None:
    async with watching(database) as mine:
        async with app.batch("b") as batch:
            transaction = mine.transaction()
            await transaction.start()
            await t.using(batch=batch, connection=mine).enqueue()
            await t.using(batch=batch, connection=mine).enqueue_many([{}, {}])
            assert (await batch.refresh()).total == 0
            await (transaction.commit() if commits else transaction.rollback())
    assert (await batch.refresh()).total == (3 if commits else 0)
    assert batch.over != commits
