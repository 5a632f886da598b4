"""The disk is full under `ctx.transaction()`: nothing of it has happened, and the job is not to blame."""

import asyncio
from contextlib import suppress

import pytest

from rowlock import Context, Rowlock, StorageFull
from support.each import each
from support.sql.ledger import empty, entries
from support.tasks.contract import in_state, row_of, working

FULL = """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF NEW.n < 0 THEN RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END IF;
RETURN NULL; END $$"""
TRIGGER = "CREATE CONSTRAINT TRIGGER full_disk AFTER INSERT ON ledger {0} FOR EACH ROW EXECUTE FUNCTION refuse()"


async def fill(ledger: Rowlock, deferred: bool) -> None:
    """From now on, an insert of a negative number finds a full disk, at once or at the commit."""
    async with ledger.transaction() as tx:
        await tx.execute(FULL)
        await tx.execute(TRIGGER.format("DEFERRABLE INITIALLY DEFERRED" if deferred else ""))


@pytest.mark.parametrize("engine", ["postgres"])
@each("when", ["passed", "caught", "second block", "commit"])
async def test_a_job_that_met_a_full_disk_is_given_back_and_uses_no_try(ledger: Rowlock, when: str) -> None:
    await empty(ledger)

    @ledger.task(f"book {when}", max_attempts=1)
    async def book(ctx: Context) -> None:
        n = ctx.attempt if ctx.attempt > 1 else -1
        async with ctx.transaction() as tx:
            if when == "caught":
                with suppress(StorageFull):
                    await tx.execute("INSERT INTO ledger VALUES ($1)", n)
            else:
                await tx.execute("INSERT INTO ledger VALUES ($1)", 1 if when == "second block" else n)
        if when == "second block":
            async with ctx.transaction() as tx:
                await tx.execute("INSERT INTO ledger VALUES ($1)", n)

    await fill(ledger, deferred=when == "commit")
    try:
        async with working(ledger):
            job = await book.enqueue()
            assert await in_state(ledger, job.id, "succeeded", "dead") == "succeeded"
        row = await row_of(ledger, job.id)
        assert (row["attempt"], row["releases"]) == (2, 1)
        assert await entries(ledger) == ([1, 2] if when == "second block" else [2])
    finally:
        async with ledger.transaction() as tx:
            await tx.execute("DROP FUNCTION refuse CASCADE")


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_job_that_met_a_full_sqlite_file_is_given_back_and_uses_no_try(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            if ctx.attempt == 1:
                await tx.execute("PRAGMA max_page_count = 1")  # as many as there are
            await tx.execute("INSERT INTO ledger VALUES (zeroblob($1))", 1 << 20)

    async with working(ledger):
        job = await book.enqueue()
        async with asyncio.timeout(30):
            while not (await row_of(ledger, job.id))["releases"]:
                await asyncio.sleep(0.02)
        async with ledger.transaction() as tx:
            await tx.execute("PRAGMA max_page_count = 1073741823")
        assert await in_state(ledger, job.id, "succeeded", "dead") == "succeeded"
    row = await row_of(ledger, job.id)
    assert row["attempt"] - row["releases"] == 1
