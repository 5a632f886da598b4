"""Tests in a real browser. They and their fixtures share one event loop, because a browser belongs to the loop that
started it."""

import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from support.rigs.app import app_url
from support.rigs.stores import ENGINES
from support.servers.postgres import PostgresDatabases
from support.web.browser import NoBrowser, OpenWindow, get_chromium, open_window, running_browser
from support.web.world import World, world

__all__ = ["app_url"]

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get the browser before the first test, whose time limit is meant for the test."""
    if any(HERE in item.path.parents for item in session.items) and not session.config.option.collectonly:
        with suppress(NoBrowser):  # the fixture says it, for each test that needs one
            get_chromium()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One browser for the tests of this process."""
    async with running_browser() as started:
        yield started


@pytest.fixture
def window(browser: Browser) -> OpenWindow:
    """`async with window(url) as shown:` is a fresh window; `shown.page` is Playwright's page."""
    return partial(open_window, browser)


@pytest.fixture(scope="module", params=ENGINES)
def shop_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A migrated database for all tests of this module on an engine."""
    if request.param == "sqlite":
        file = tmp_path_factory.mktemp("shop") / "jobs.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), file)
        yield f"sqlite:///{file}"
        return
    server: PostgresDatabases = request.getfixturevalue("postgres_server")
    name = f"rowlock_shop_{uuid.uuid4().hex[:12]}"
    yield server.create_database(name, template=request.getfixturevalue("template"))
    server.drop_database(name)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shop(shop_url: str) -> AsyncIterator[World]:
    """One system for all tests of this module on an engine. A test changes only jobs that it has made."""
    async with world(shop_url) as made:
        yield made
