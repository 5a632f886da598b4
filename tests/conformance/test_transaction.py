"""What `store.transaction()` promises: operations and the user's own SQL commit together, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from rowlock.core.errors import InvalidArguments, StoreError, TransactionTooLong
from rowlock.core.job import NewJob
from rowlock.core.outcome import Succeeded
from rowlock.core.times import FakeClock
from rowlock.store import Store, open_store
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import StoreOptions
from rowlock.store.jobs import claim, leases, settle
from rowlock.store.jobs import enqueue as enqueue_jobs
from support.rigs.rig import KEEP, Rig, numbered, settlement


@pytest.fixture
async def notes(rig: Rig) -> None:
    """A table of the user's own."""
    await rig.fetch("CREATE TABLE notes (id integer PRIMARY KEY, body text)")


def enqueue(n: int, **options: int) -> Operation[None]:
    return enqueue_jobs.enqueue([(numbered(n), "{}")], NewJob(task="t", **options))


@pytest.mark.usefixtures("notes")
async def test_operations_and_the_users_sql_commit_together(rig: Rig) -> None:
    async with rig.store.transaction() as tx:
        await tx.execute("INSERT INTO notes VALUES (1, 'one')")
        await tx.run(enqueue(1))
        assert [tuple(row) for row in await tx.fetch("SELECT body FROM notes")] == [("one",)]
    assert await rig.fetch("SELECT id, body FROM notes") == [(1, "one")]
    assert await rig.state(numbered(1)) == "queued"


@pytest.mark.usefixtures("notes")
async def test_an_error_in_the_block_undoes_all_of_it(rig: Rig) -> None:
    job = await rig.running()
    before = await rig.everything()
    with pytest.raises(ZeroDivisionError):
        async with rig.store.transaction() as tx:
            await tx.execute("INSERT INTO notes VALUES (1, 'one')")
            await tx.run(enqueue(2))
            assert await tx.run(settle.apply([settlement(job, Succeeded())], KEEP)) == {job.id: "applied"}
            raise ZeroDivisionError
    assert await rig.fetch("SELECT * FROM notes") == []
    assert await rig.everything() == before
    await rig.succeed(job)


@pytest.mark.usefixtures("notes")
async def test_a_cancelled_block_is_undone_and_the_store_goes_on(rig: Rig) -> None:
    inside = asyncio.Event()

    async def hang() -> None:
        async with rig.store.transaction() as tx:
            await tx.execute("INSERT INTO notes VALUES (1, 'one')")
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await rig.fetch("SELECT * FROM notes") == []
    await rig.enqueue()


@pytest.mark.usefixtures("notes")
async def test_a_statement_that_fails_undoes_the_block(rig: Rig) -> None:
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        async with rig.store.transaction() as tx:
            await tx.run(enqueue(1))
            await tx.execute("INSERT INTO notes VALUES (1, 'one')")
            await tx.execute("INSERT INTO notes VALUES (1, 'again')")
    assert await rig.fetch("SELECT * FROM notes") == []
    assert await rig.rows() == {}


async def test_an_operation_that_fails_in_a_block_raises_the_stores_own_error(rig: Rig) -> None:
    with pytest.raises(StoreError):
        async with rig.store.transaction() as tx:
            await tx.run(enqueue(1, priority=1000))


async def test_a_block_that_ends_without_an_error_has_committed(rig: Rig) -> None:
    """Also when the user swallowed an error inside: either all of it is there, or leaving the block raises."""
    raised = False
    try:
        async with rig.store.transaction() as tx:
            await tx.run(enqueue(1))
            try:
                await tx.execute("INSERT INTO no_such_table VALUES (1)")
            except Exception:
                raised = True
    except StoreError:
        assert await rig.rows() == {}
    else:
        assert set(await rig.rows()) == {numbered(1)}, "the block ended well and its job is gone"
    assert raised


async def test_an_operation_that_fails_in_a_block_leaves_nothing_of_itself(rig: Rig) -> None:
    """The user swallows the error and goes on: a half of the operation must not be committed."""
    chosen = enqueue_jobs.enqueue_once(numbered(1), "{}", NewJob(task="t", priority=1000))
    with suppress(StoreError):
        async with rig.store.transaction() as tx:
            with pytest.raises(StoreError):
                await tx.run(chosen)
    assert await rig.store.run(enqueue_jobs.enqueue_once(numbered(1), "{}", NewJob(task="t"))) == [(numbered(1), True)]


@pytest.mark.usefixtures("notes")
async def test_parameters_are_numbered_on_both_engines(rig: Rig) -> None:
    async with rig.store.transaction() as tx:
        await tx.execute("INSERT INTO notes VALUES ($2, $1)", "text", 7)
        await tx.execute("INSERT INTO notes SELECT $1 + 1, $2 WHERE $1 = 7", 7, None)
    assert await rig.fetch("SELECT id, body FROM notes WHERE id >= $1 ORDER BY id", 7) == [(7, "text"), (8, None)]
    many = [str(n) for n in range(1, 12)]
    places = ", ".join(f"${n}" for n in range(1, 12))
    found = await rig.fetch(f"SELECT body FROM notes WHERE body IN ({places}, $12)", *many, "text")
    assert found == [("text",)]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_an_array_parameter_is_refused_on_sqlite(rig: Rig) -> None:
    with pytest.raises(InvalidArguments, match=r"SQLite has no arrays: pass JSON text instead of \[1, 2\]"):
        async with rig.store.transaction() as tx:
            await tx.fetch("SELECT $1", [1, 2])


async def test_a_value_cannot_become_sql(rig: Rig) -> None:
    hostile = "'); DROP TABLE x; -- $1 ? :now"
    assert await rig.fetch("SELECT CAST($1 AS text)", hostile) == [(hostile,)]


@pytest.mark.usefixtures("notes")
async def test_nothing_is_seen_outside_before_the_commit(rig: Rig, database: str) -> None:
    other = await open_store(database, StoreOptions(clock=rig.clock))
    try:
        async with rig.store.transaction() as tx:
            await tx.run(enqueue(1))
            assert await other.run(leases.held([(numbered(1), numbered(1))])) == {}
            assert await other.run(claim.adopt("w", numbered(1))) == []
        claimed = await Rig(other, rig.clock).claim()
        assert [job.id for job in claimed] == [numbered(1)]
    finally:
        await other.close()


@pytest.mark.usefixtures("notes")
async def test_transactions_one_after_another_lose_nothing(rig: Rig) -> None:
    async def one(n: int) -> None:
        async with rig.store.transaction() as tx:
            await tx.execute("INSERT INTO notes VALUES ($1, 'x')", n)
            await tx.run(enqueue(n))

    await asyncio.gather(*map(one, range(20)), *(rig.store.run(enqueue(n)) for n in range(100, 120)))
    assert await rig.fetch("SELECT count(*) FROM notes") == [(20,)]
    assert len(await rig.rows()) == 40


async def test_a_read_operation_sees_what_its_own_transaction_wrote(rig: Rig) -> None:
    job_id = await rig.enqueue()
    async with rig.store.transaction() as tx:
        (job,) = await tx.run(claim.claim("w", numbered(9), [claim.Range("default", "t")], 1, 60))
        assert await tx.run(leases.held([(job.id, job.token)])) == {job_id: False}


class TestTimeLimit:
    """Where a transaction holds the only writer lock, it may not hold it for long."""

    @pytest.fixture(params=["sqlite"])
    def engine(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    async def store(self, database: str, clock: FakeClock) -> AsyncIterator[Store]:
        store = await open_store(database, StoreOptions(clock=clock, transaction_seconds=0.1))
        yield store
        await store.close()

    @pytest.mark.usefixtures("notes")
    async def test_a_transaction_that_is_open_too_long_is_rolled_back(self, rig: Rig) -> None:
        with pytest.raises(TransactionTooLong, match=r"0\.1 s"):
            async with rig.store.transaction() as tx:
                await tx.execute("INSERT INTO notes VALUES (1, 'one')")
                await tx.run(enqueue(1))
                await rig.store.run(enqueue(2))  # waits for the writer: it is written once the block's time is up
        assert await rig.fetch("SELECT * FROM notes") == []
        assert set(await rig.rows()) == {numbered(2)}

    @pytest.mark.usefixtures("notes")
    async def test_a_statement_after_the_time_is_up_is_refused(self, rig: Rig) -> None:
        with pytest.raises(TransactionTooLong):
            async with rig.store.transaction() as tx:
                await tx.execute("INSERT INTO notes VALUES (1, 'one')")
                await rig.store.run(enqueue(2))
                await tx.execute("INSERT INTO notes VALUES (2, 'two')")
                pytest.fail("a statement ran in a transaction that was rolled back")
        assert await rig.fetch("SELECT * FROM notes") == []

    @pytest.mark.usefixtures("notes")
    async def test_an_error_of_the_user_after_the_time_is_up_is_the_users_own(self, rig: Rig) -> None:
        with pytest.raises(ZeroDivisionError):
            async with rig.store.transaction() as tx:
                await tx.execute("INSERT INTO notes VALUES (1, 'one')")
                await rig.store.run(enqueue(2))
                raise ZeroDivisionError
        assert await rig.fetch("SELECT * FROM notes") == []

    @pytest.mark.usefixtures("notes")
    async def test_the_next_transaction_has_its_whole_time(self, rig: Rig) -> None:
        with pytest.raises(TransactionTooLong):
            async with rig.store.transaction():
                await rig.store.run(enqueue(1))
        async with rig.store.transaction() as tx:
            await tx.execute("INSERT INTO notes VALUES (1, 'one')")
        assert await rig.fetch("SELECT count(*) FROM notes") == [(1,)]
