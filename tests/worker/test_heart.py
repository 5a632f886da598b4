"""The heart of a worker: a thread of its own that ends with it, and what it does while somebody has locked a row."""

import asyncio
import errno
import gc
import resource
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from rowlock import Rowlock
from rowlock.core.config import Settings, WorkerSettings
from rowlock.core.job import NewJob, Settlement
from rowlock.core.outcome import Succeeded
from rowlock.core.policy import decide
from rowlock.signals.logs import JobLog
from rowlock.store.engine.clock import boottime
from rowlock.store.engine.ids import new_token
from rowlock.store.engine.outage import Outage
from rowlock.store.engine.store import Store
from rowlock.store.jobs import claim, enqueue, leases, settle
from rowlock.store.jobs.claim import Range
from rowlock.store.jobs.settle import Keep
from rowlock.worker.attempt.attempt import LiveAttempt, Stopping
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.registration import Registration
from rowlock.worker.upkeep import heartbeat
from rowlock.worker.upkeep.heartbeat import Heart
from support.rigs.rig import prefix

only_where_rows_have_locks = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
LIMIT = 30.0


async def test_a_heart_stops_at_once_whenever_it_would_have_looked_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "WATCH_SECONDS", 60)
    async with Rowlock(f"sqlite:///{tmp_path}/jobs.db") as app:
        async with app.worker(heartbeat_seconds=400, lease_seconds=1600) as pool:
            await pool._poll_and_assign()  # by now its heart waits for its next look
            began = time.monotonic()
    assert time.monotonic() - began < 5, "a thread that does not end is waited for for 10 s"


class Held:
    """Jobs under leases that are due for a beat, and a heart for them whose beats are made by hand."""

    def __init__(self, app: Rowlock, claimed: list[LiveAttempt], beat: float) -> None:
        self.all = claimed
        claimer: Any = self
        self.slots = Slots("w", len(claimed), claimer, JobLog("w"))
        self.slots.held.update({running.job.id: running for running in claimed})
        settings = WorkerSettings(heartbeat_seconds=beat, lease_seconds=240.0)
        nothing: Any = None
        stops = Stopping(self.slots, nothing)
        registration = Registration(settings, "w", app.registry.here(), settings.pool_size)
        self.heart = Heart(app, self.slots, stops, registration, Outage(), claimer, on_stop=nothing)
        self.registered_again = 0
        self.store: Store

    def forgotten(self) -> None:
        self.registered_again += 1

    @property
    def lost(self) -> list[LiveAttempt]:
        return [running for running in self.all if not self.slots.holds(running)]

    async def beat(self) -> None:
        for running in self.all:
            running.renewed = boottime() - 1000
        await self.heart._beat(self.store)

    def renewed(self) -> list[bool]:
        return [boottime() - running.renewed < 500 for running in self.all]


@asynccontextmanager
async def held(app: Rowlock, count: int, beat: float = 60.0) -> AsyncIterator[Held]:
    store = await app.store()
    rows = [(f"00000000-0000-7000-8000-{number:012x}", "{}") for number in range(count)]
    await store.run(enqueue.enqueue(rows, NewJob(task="t")))
    found = await store.run(claim.claim("w", new_token(), [Range("default", "t")], count, 100.0))
    made = Held(app, [LiveAttempt(job) for job in found], beat)
    made.store = await made.heart._open()
    yield made
    for waiting in list(made.heart._waiting.values()):
        waiting.cancel()
    await asyncio.gather(*made.heart._waiting.values(), return_exceptions=True)
    await made.store.close()


@asynccontextmanager
async def locked(database: str, rows: list[LiveAttempt]) -> AsyncIterator[asyncpg.Connection]:
    """Rows that a stranger has locked, and let expire, until the block ends."""
    connection = await asyncpg.connect(database)
    try:
        async with connection.transaction():
            await connection.execute(
                "UPDATE rowlock.jobs_live SET lease_expires_at = now() - interval '1 hour' WHERE id = ANY($1::uuid[])",
                [running.job.id for running in rows],
            )
            yield connection
    finally:
        await connection.close()


async def in_line(connection: asyncpg.Connection, count: int) -> None:
    """Wait until so many of the heart's connections wait for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND application_name = 'rowlock-heart'"
    )
    async with asyncio.timeout(LIMIT):
        while await connection.fetchval(waiting) != count:
            await asyncio.sleep(0.01)
            await connection.execute("SELECT pg_stat_clear_snapshot()")  # which a transaction keeps


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not true():
            await asyncio.sleep(0.01)


async def test_a_job_that_its_own_transaction_has_just_settled_is_not_lost(database: str) -> None:
    """Its attempt ends a moment later. It would be stopped, and counted as lost."""
    async with Rowlock(database) as app, held(app, 2) as here:
        first, second = here.all
        done = [Settlement(first.job, decide(first.job, Succeeded(), 0.0))]
        await here.store.run(settle.apply(done, Keep()))
        async with here.store.transaction() as tx:  # another worker has the second
            await tx.execute(f"UPDATE {prefix(here.store)}jobs_live SET lease_token = '{new_token()}'")
        await here.beat()
        await until(lambda: here.lost == [second])


@only_where_rows_have_locks
async def test_a_heart_waits_for_a_locked_row_and_renews_its_lease_once_it_is_free(database: str) -> None:
    async with Rowlock(database) as app, held(app, 2) as here:
        first, second = here.all
        async with locked(database, [first]) as stranger:
            await here.beat()
            assert here.renewed() == [True, True], "no need to fence: with its row locked, nobody can take it"
            first.renewed = 0.0
            await in_line(stranger, 1)
        # No beat comes: what renews it is what stood in line.
        await until(lambda: first.renewed > 0.0)
        assert await (await app.store()).run(leases.reclaim([0.0], 0.0, Keep())) == []
        assert (here.lost, first.unrenewed, second.unrenewed) == ([], False, False)


@only_where_rows_have_locks
async def test_many_locked_rows_leave_the_heart_a_connection_for_the_other_beats(database: str) -> None:
    async with Rowlock(database) as app, held(app, 9) as here:
        *strangers, ours = here.all
        async with locked(database, strangers) as stranger:
            await here.beat()
            await in_line(stranger, heartbeat.LOCKED_ROWS)
            await here.beat()
            assert sum(here.renewed()) == heartbeat.LOCKED_ROWS + 1, "who does not stand in line is unrenewed in time"
            assert ours.job.id not in here.heart._waiting
            assert len(here.heart._waiting) == 8
            for running in strangers:
                running.renewed = 0.0
        await until(lambda: all(running.renewed > 0.0 for running in strangers))
        assert here.lost == []


@only_where_rows_have_locks
async def test_a_heart_that_is_refused_a_locked_row_at_once_asks_again_only_now_and_then(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    beat_waiting = leases.beat_waiting

    def counted(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        return beat_waiting(*given)

    connection = await asyncpg.connect(database)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET lock_timeout = 1')  # ms
    await connection.close()
    monkeypatch.setattr(leases, "beat_waiting", counted)
    settings = Settings(database=database, pooler="transaction")  # its connections bring no lock_timeout of their own
    async with Rowlock(settings=settings) as app, held(app, 1, beat=4.0) as here:
        (job,) = here.all
        async with locked(database, [job]):
            await here.beat()
            await until(lambda: asked > 0)
            await asyncio.sleep(1.0)  # a real second: what is counted is how often it asks in one
            assert asked < 20, "it asks without a pause"
            job.renewed = 0.0
        await until(lambda: job.renewed > 0.0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # asyncio's own, of half a loop
async def test_a_worker_whose_heart_cannot_begin_does_not_start(tmp_path: Path) -> None:
    """Without a descriptor for its loop the thread would end, and every lease with it, in silence."""
    async with Rowlock(f"sqlite:///{tmp_path}/jobs.db") as app, app.worker() as pool:
        await pool.heart.stop()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(OSError, match="Too many open files") as raised:  # kept until files can be opened again
                pool.heart.start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert raised.value.errno == errno.EMFILE
        del raised
        gc.collect()
