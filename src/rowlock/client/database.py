"""The database of one program: its settings, its open stores, and the transaction around a piece of code."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from rowlock.client.metrics import Enqueued
from rowlock.client.open_stores import Stores
from rowlock.client.results.folder import ResultFolder
from rowlock.client.results.results import Results
from rowlock.client.settings import read_settings
from rowlock.client.sync_bridge import Portal
from rowlock.client.transactions import joined, joining
from rowlock.core.clock import FakeClock
from rowlock.core.config import ResultSettings, Settings
from rowlock.core.errors import ConfigError, InvalidArguments
from rowlock.core.job import NewJob
from rowlock.core.policy import DAY
from rowlock.store.engine import callers_connection
from rowlock.store.engine.app_schema import Migrations, prepare
from rowlock.store.engine.open import open_store
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import Runs, Session, Store, StoreOptions, absolute, here
from rowlock.store.jobs import settle

T = TypeVar("T")


class EnqueueSpans(Protocol):
    """Makes a span of each enqueue."""

    def sending(self, new: NewJob, count: int) -> AbstractContextManager[NewJob]:
        """A block that enqueues `count` jobs, as a span; gives the options with the span's traceparent."""


class Database:
    """Opens the database on first use, once for each event loop, and runs operations in the right transaction."""

    def __init__(
        self,
        database: str | None = None,
        *,
        config: str | Path | None = None,
        settings: Settings | None = None,
        clock: FakeClock | None = None,
        migrations: Migrations | None = None,
    ) -> None:
        self._folder = here()  # where relative paths start, wherever the process goes later
        self._given = (database, config)
        self._settings = settings
        self._found: tuple[Settings, str] | None = None  # the database that these settings mean
        self._results: tuple[ResultSettings, Results] | None = None
        self.clock = clock
        self.migrations = migrations
        self._stores = Stores(self._open)
        self._portal = Portal()
        self._traces: EnqueueSpans | None = None
        self.enqueued = Enqueued()

    # --- settings

    @property
    def settings(self) -> Settings:
        """Flags, environment, file and defaults, read when first needed."""
        if self._settings is None:
            self._settings = read_settings(*self._given, folder=self._folder)
        return self._settings

    def configure(self, settings: Settings, folder: str | None = None) -> None:
        """Use these settings from now on; for the command line, before anything is opened. A relative path in them
        starts at `folder`, or where this app was made."""
        self._settings, self._folder = settings, folder or self._folder

    @property
    def database(self) -> str:
        """The database's URL, a file's with its path from the root. It is found once: everything that opens the
        database opens the same one."""
        settings = self.settings
        if self._found is None or self._found[0] is not settings:
            self._found = (settings, absolute(settings.database, self._folder))
        return self._found[1]

    @property
    def keep(self) -> settle.Keep:
        """How long finished jobs are kept."""
        retention = self.settings.retention
        return settle.Keep(retention.succeeded_days * DAY, retention.dead_days * DAY)

    @property
    def results(self) -> Results:
        """Where result files are kept. Made once, because storage on a network has connections."""
        settings = self.settings.results
        if self._results is None or self._results[0] is not settings:
            self._results = (settings, _open_results(settings, os.path.join(self._folder or "", settings.path)))
        return self._results[1]

    @property
    def result_folder(self) -> ResultFolder:
        """The local folder of results, for workers behind Redis, which are given paths."""
        found = self.results
        if not isinstance(found, ResultFolder):
            raise ConfigError(
                'tasks with runs_on="redis" need results in a folder: their workers are given a path below'
                " results.path; take results.url away"
            )
        return found

    @property
    def traces(self) -> EnqueueSpans | None:
        """Makes a span of each enqueue; None if traces are off."""
        if not self.settings.traces.enabled:
            return None
        if self._traces is None:
            self._traces = self._make_traces()
        return self._traces

    def sending(self, new: NewJob, count: int) -> AbstractContextManager[NewJob]:
        """A block that enqueues jobs with these options, as a span if traces are on; gives the options to use in it."""
        return nullcontext(new) if (traces := self.traces) is None else traces.sending(new, count)

    def _make_traces(self) -> EnqueueSpans:
        raise NotImplementedError("only Rowlock, which knows the signals, can make spans")

    # --- opening and closing

    def store_options(self, **changes: Any) -> StoreOptions:
        """How this app opens its database."""
        settings = self.settings
        options = StoreOptions(
            pooler=settings.pooler,
            direct_url=settings.direct_url,
            transaction_seconds=max(1.0, settings.worker.heartbeat_seconds / 3),
            session_connections=settings.transactions.connections,
            session_patience=settings.transactions.wait_seconds,
            idle_seconds=settings.transactions.idle_seconds,
            statement_seconds=settings.transactions.statement_seconds,
            clock=self.clock,
        )
        return dataclasses.replace(options, **changes)

    async def store(self) -> Store:
        """The open store of the running event loop; opened on first use, closed with the loop."""
        return await self._stores.get()

    async def _open(self, migrate: bool | None = None) -> Store:
        store = await open_store(self.database, self.store_options(migrate=migrate))
        if self.migrations is not None:
            try:
                store.migrated += await prepare(store, self.migrations, migrate)
            except BaseException:
                await store.close()
                raise
        return store

    async def open_reader(self, connections: int, seconds: float) -> Store:
        """Another store of this database, which its caller closes, for reads that must not get in the way of the app's
        own: they share a few connections, and none may take longer than `seconds`."""
        changes = {"connections": connections, "read_seconds": seconds, "command_timeout": 2 * seconds, "repeats": 1}
        return await open_store(self.database, self.store_options(migrate=False, **changes))

    async def open(self) -> Self:
        """Open the database now, so that a wrong URL is found here."""
        await self.store()
        return self

    async def close(self) -> None:
        """Close the database; it opens again on the next use."""
        await self._stores.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def migrate(self) -> list[str]:
        """Apply missing migrations, Rowlock's and the app's own; returns their names."""
        store = await self._open(migrate=True)
        await store.close()
        return list(store.migrated)

    # --- operations and transactions

    async def place(self, connection: Any = None) -> Runs:
        """Where an operation of the running code is to run: on the caller's `connection`; else in the transaction that
        the code is in; else in the store of this event loop, in a transaction of its own."""
        if connection is not None:
            return callers_connection.OnConnection(connection, self.clock)
        return joined(self) or self._stores.opened() or await self._stores.get()

    async def perform(self, op: Operation[T]) -> T:
        """Run an operation in the transaction that the code is in, else in a transaction of its own."""
        return await (await self.place()).run(op)

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of this app from sync code, with or without an event loop running in this thread."""
        if joined(self) is not None:
            work.close()
            raise InvalidArguments("inside a transaction of the app, await it: its connection is not this thread's")
        return self._portal.run(work)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """Your SQL and enqueues that commit together; an enqueue inside joins by itself."""
        around = joined(self)
        if around is not None:  # inside of another: part of it, and undone with it
            async with around.savepoint() as part:
                yield part
            return
        async with (await self.store()).transaction() as session, joining(self, session):
            yield session

    async def fetch(self, sql: str, *args: Any) -> list[Sequence[Any]]:
        """Rows of your own query, which may not write. Inside of `transaction()` it reads there; outside, on SQLite,
        it does not wait for writers."""
        return await (joined(self) or await self.store()).fetch(sql, *args)


def _open_results(settings: ResultSettings, path: str) -> Results:
    if settings.url is None:
        return ResultFolder(path, settings.file_bytes)
    try:
        from rowlock.client.results.objects import open_bucket
    except ImportError as error:
        raise ConfigError('results.url needs a library: pip install "rowlock[s3]" (obstore is missing)') from error
    return open_bucket(settings, path)
