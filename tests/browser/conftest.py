"""Tests in a real browser. They and their fixtures share one event loop, because a browser belongs to the loop that
started it."""

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from support.apps import app_url
from support.browser import NoBrowser, OpenWindow, get_chromium, open_window, running_browser

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
