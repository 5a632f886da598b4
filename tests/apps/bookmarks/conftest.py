"""The app on a database of its own on each engine, with a web on loopback."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock_apps.bookmarks import import_file, make_app, read_import
from rowlock_apps.bookmarks.imports import Import
from rowlock_apps.bookmarks.shared import now
from rowlock_apps.bookmarks.small_web import Pages, SmallWeb, small_web
from rowlock_apps.bookmarks.web.fetch import Limits
from support.servers.databases import CleanDatabases, databases_of
from support.servers.postgres import PostgresDatabases


@pytest.fixture(scope="session")
def handed_on(postgres_server: PostgresDatabases) -> Iterator[CleanDatabases]:
    """PostgreSQL databases with the app's tables; making one takes longer than most tests."""
    with databases_of("bookmarks", postgres_server, lambda url: asyncio.run(make_app(url).migrate())) as made:
        yield made


@pytest.fixture
def postgres(handed_on: CleanDatabases) -> Iterator[str]:
    """One of them, without rows."""
    with handed_on.lend() as lent:
        yield lent


@pytest.fixture
def database(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each engine."""
    return f"sqlite:///{tmp_path}/bookmarks.db" if engine == "sqlite" else str(request.getfixturevalue("postgres"))


class Place:
    """An app, its web, and short words for what tests do with them."""

    def __init__(self, app: Rowlock, web: SmallWeb) -> None:
        self.app, self.web = app, web

    async def bring(self, file: bytes, user: str = "ana") -> str:
        return await import_file(self.app, user, file)

    async def read(self, import_id: str, user: str | None = None) -> Import:
        """An import as its user sees it, or as `user` does."""
        if user is None:
            [(user,)] = await self.rows("SELECT user_id FROM bookmarks_imports WHERE id = $1", import_id)
        return await read_import(self.app, user, import_id)

    async def rows(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        async with self.app.transaction() as tx:
            return [tuple(row) for row in await tx.fetch(sql, *args)]

    async def work(self, *ids: str, seconds: float = 40, **settings: Any) -> list[Import]:
        """A worker until these imports are over, and no job is left that is due."""
        async with self.app.worker(**{"poll_interval_seconds": 0.2} | settings):
            await self.until(self._over(*ids), seconds)
        return [await self.read(import_id) for import_id in ids]

    def _over(self, *ids: str) -> Callable[[], Awaitable[bool]]:
        async def over() -> bool:
            imports = [await self.read(import_id) for import_id in ids]
            jobs = await self.app.jobs(state=["queued", "running"])
            return all(one.over for one in imports) and not any(job.run_after <= now(self.app) for job in jobs)

        return over

    async def until(self, check: Callable[[], Awaitable[bool]], seconds: float = 40) -> None:
        async with asyncio.timeout(seconds):
            while not await check():
                await asyncio.sleep(0.03)


Make = Callable[..., Awaitable[Place]]


@pytest.fixture
async def place(database: str) -> AsyncIterator[Make]:
    """Makes an app on the database with these pages: `await place({"a.example/": page("A")})`."""
    async with AsyncExitStack() as open_now:

        async def make(pages: Pages, addresses: dict[str, list[str]] | None = None, **options: Any) -> Place:
            web = await open_now.enter_async_context(small_web(pages, addresses))
            # A server that a test holds back must not time out because the machine is busy.
            app = make_app(database, resolve=web.resolve, dial=web.dial, **{"limits": Limits(120, 60, 60)} | options)
            await open_now.enter_async_context(app)
            return Place(app, web)

        yield make
