"""What code raises inside of a transaction is its own; only what the database says is put into Rowlock's words."""

import asyncio

import asyncpg
import pytest

from rowlock import Context, Rowlock, StoreError, StoreUnavailable
from support.each import each
from support.sql.ledger import entries
from support.tasks.contract import in_state, row_of, working

OWN = [
    FileNotFoundError(2, "no such file", "prices.csv"),
    TimeoutError("the shop did not answer"),
    ConnectionRefusedError(111, "the shop is closed"),
    asyncpg.UniqueViolationError("of another database"),
    asyncpg.ConnectionDoesNotExistError("of another database"),
    asyncpg.InterfaceError("of another pool"),
    asyncpg.InternalClientError("of another pool"),
]
each_of_them = each("error", OWN, ids=lambda error: type(error).__name__)


@each_of_them
async def test_an_error_of_the_block_is_raised_as_it_is(ledger: Rowlock, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        async with ledger.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            raise error
    assert caught.value is error
    with pytest.raises(type(error)) as caught:
        async with ledger.transaction(), ledger.transaction() as part, ledger.batch("b"):
            await part.execute("INSERT INTO ledger VALUES (1)")
            raise error
    assert caught.value is error
    assert await entries(ledger) == []


@each_of_them
async def test_an_error_of_a_handlers_block_is_the_jobs_own(ledger: Rowlock, error: Exception) -> None:
    told: list[BaseException] = []
    ledger.on_error(lambda ctx, raised: told.append(raised))

    @ledger.task(f"book and raise {type(error).__name__}", max_attempts=1)
    async def book(ctx: Context, block: int) -> None:
        for n in range(block):
            async with ctx.transaction() as tx:
                await tx.execute("INSERT INTO ledger VALUES ($1)", n)
                if n == block - 1:
                    raise error

    async with working(ledger):
        jobs = [await book.enqueue(block=block) for block in (1, 2)]
        for job in jobs:
            await in_state(ledger, job.id, "dead")
            assert (await row_of(ledger, job.id))["error_code"] == type(error).__name__
    assert told == [error, error]
    assert await entries(ledger) == []


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_error_that_passes_a_middleware_and_a_lifespan_is_raised_as_it_is(ledger: Rowlock) -> None:
    seen: list[BaseException] = []

    @ledger.middleware
    async def around(ctx: Context, call):
        try:
            async with ledger.transaction():
                return await call()
        except BaseException as error:
            seen.append(error)
            raise

    @ledger.task(max_attempts=1)
    async def book() -> None:
        raise OWN[0]

    async with working(ledger):
        job = await book.enqueue()
        await in_state(ledger, job.id, "dead")
    assert seen == [OWN[0]]

    @ledger.lifespan
    async def resources():
        async with ledger.transaction():
            raise OWN[2]
            yield {}

    with pytest.raises(ConnectionRefusedError) as caught:
        async with working(ledger):
            pass
    assert caught.value is OWN[2]


@each(
    "sql, args",
    [("SELECT $1", ()), ("SELECT 1", (1, 2)), ("SELECT CAST($1 AS integer)", (object(),)), ("SELEKT", ())],
    ids=["too-few", "too-many", "unsendable", "no-sql"],
)
async def test_a_mistake_in_a_statement_is_not_an_outage(ledger: Rowlock, sql: str, args: tuple[object, ...]) -> None:
    for query in (ledger.fetch, None):
        with pytest.raises(StoreError) as caught:
            async with ledger.transaction() as tx:
                await (query or tx.fetch)(sql, *args)
        assert not isinstance(caught.value, StoreUnavailable), caught.value
    with pytest.raises(StoreError) as caught:
        await ledger.fetch(sql, *args)
    assert not isinstance(caught.value, StoreUnavailable), caught.value


async def test_a_timeout_inside_the_callers_code_rolls_the_transaction_back_and_raises_timeout_error(
    ledger: Rowlock,
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), ledger.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            await asyncio.sleep(60)
    assert await entries(ledger) == []
