"""A worker and a dispatcher in one process, whose database goes away and comes back: what their log says."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from rowlock import Context, Rowlock
from rowlock.core.config import Settings
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from rowlock.worker import loops
from rowlock.worker.dispatcher import Dispatcher
from support.races.disk import disk
from support.servers.postgres import PostgresServer

WORKER = {"heartbeat_seconds": 3, "lease_seconds": 60, "sweep_seconds": 0.5, "poll_interval_seconds": 0.5}
PARTS = {"heart", "settler"}  # the slowest to notice, and the one that has something to write
Switch = tuple[
    str, Callable[[], object], Callable[[], object]
]  # a database's URL, what takes it away, what brings it back


@contextmanager
def postgres() -> Iterator[Switch]:
    with PostgresServer(fsync="off") as server:
        yield server.url, lambda: server.stop("fast"), server.start


@contextmanager
def full_disk(folder: Path) -> Iterator[Switch]:
    full = folder / "full"
    with disk(full):
        yield f"sqlite:///{folder}/jobs.db", full.touch, full.unlink


@asynccontextmanager
async def working(url: str, over: asyncio.Event) -> AsyncIterator[Rowlock]:
    """Ten handlers that report progress and return when they may."""
    await (await open_store(url, StoreOptions(migrate=True))).close()
    app = Rowlock(settings=Settings.model_validate({"database": url, "worker": WORKER}))

    @app.task
    async def wait(ctx: Context) -> None:
        while not over.is_set():
            await ctx.progress(50)
            await asyncio.sleep(0.1)

    async with app:
        dispatcher = Dispatcher(app)
        await dispatcher.start()
        async with app.worker() as worker:
            await wait.enqueue_many([{}] * 10)
            async with asyncio.timeout(20):
                while len(worker.running) < 10:
                    await asyncio.sleep(0.02)
            yield app
        await dispatcher.stop()


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_the_log_has_a_line_when_an_outage_begins_and_one_when_it_is_over(
    engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "rowlock")
    handlers_return = asyncio.Event()
    with postgres() if engine == "postgres" else full_disk(tmp_path) as (url, take_away, bring_back):
        async with working(url, handlers_return) as app:
            await asyncio.to_thread(take_away)
            await asyncio.sleep(1)  # real seconds: how long it lasted is in the line
            handlers_return.set()  # their outcomes wait for the database
            async with asyncio.timeout(60):
                while not noticed_by(caplog) >= PARTS:
                    await asyncio.sleep(0.05)
            await asyncio.to_thread(bring_back)
            back = time.time()
            async with asyncio.timeout(60):
                while not (ends := told(caplog, "database outage over")):
                    await asyncio.sleep(0.1)
            assert await app.jobs(state="succeeded", limit=11), "the outcomes were not written"
    assert len(told(caplog, "")) == 2, told(caplog, "")
    (begun,), (over,) = told(caplog, "noticed by"), ends
    lasted = back - begun.created
    assert lasted - 2 < float(over.getMessage().split()[-2]) < lasted + 10


async def test_jobs_run_as_soon_as_the_database_is_back_although_the_loops_wait_longer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loops, "random", SimpleNamespace(uniform=lambda *_: 6000.0))  # no delay ends by itself
    caplog.set_level(logging.DEBUG, "rowlock.store")
    with postgres() as (url, take_away, bring_back):
        await (await open_store(url, StoreOptions(migrate=True))).close()
        app = Rowlock(settings=Settings.model_validate({"database": url, "worker": WORKER}))

        @app.task
        async def work() -> int:
            return 7

        async with app, app.worker():
            assert await (await work.enqueue()).wait(timeout=30) == 7
            await asyncio.to_thread(take_away)
            async with asyncio.timeout(60):
                while not any("claim: " in record.getMessage() for record in caplog.records):
                    await asyncio.sleep(0.05)
            await asyncio.to_thread(bring_back)
            assert await (await work.enqueue()).wait(timeout=30) == 7


async def test_terminated_connections_are_not_logged_as_an_outage_while_others_work(
    caplog: pytest.LogCaptureFixture, postgres_url: str
) -> None:
    handlers_return = asyncio.Event()
    async with working(postgres_url, handlers_return) as app:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            for _ in range(8):
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"
                )
                await asyncio.sleep(0.3)  # a retry that goes well leaves no line to wait for
                await app.jobs(limit=1)
        handlers_return.set()
        async with asyncio.timeout(60):
            while len(await app.jobs(state="succeeded", limit=11)) < 10:
                await asyncio.sleep(0.1)
    assert told(caplog, "outage") == []


def noticed_by(caplog: pytest.LogCaptureFixture) -> set[str]:
    """The parts of the process that have reported a failure."""
    lines = [record.getMessage().removeprefix("database outage, noticed by ") for record in caplog.records]
    return {re.split(r"\W", line, maxsplit=1)[0] for line in lines}


def told(caplog: pytest.LogCaptureFixture, words: str) -> list[logging.LogRecord]:
    """The warnings and errors with these words in them, except those about a machine that is too busy."""
    found = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [
        record
        for record in found
        if words in record.getMessage() and "event loop has not turned" not in record.getMessage()
    ]
