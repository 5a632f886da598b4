"""What every test can have: one PostgreSQL server for the whole run, a fresh database, a store on each engine.

With xdist the controller starts the server and hands its address to the workers; without, the first test
that needs it does. PostgreSQL missing is an error of the tests that need it, never a skip.
"""

import gc
import logging
import os
import sys
import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any

import hypothesis
import pytest

from rowlock.store.engine import outage
from support.rigs.stores import (
    clock,
    database,
    engine,
    rig,
    sqlite_template,
    sqlite_url,
    store,
    template,
    used_database,
    used_databases,
)
from support.servers.memory import use_memory_for_files
from support.servers.parts import pytest_runtest_setup, pytest_sessionfinish
from support.servers.postgres import PostgresDatabases, shared_server

__all__ = [  # what pytest finds here
    "clock",
    "database",
    "engine",
    "pytest_runtest_setup",
    "pytest_sessionfinish",
    "rig",
    "sqlite_template",
    "sqlite_url",
    "store",
    "template",
    "used_database",
    "used_databases",
]

use_memory_for_files()

# Hundreds of tests start a process. Where compiled modules are not kept, each would compile the package anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# Both measure the machine: a busy one takes longer than Hypothesis' 200 ms for what is right.
TOO_SLOW = hypothesis.HealthCheck.too_slow
hypothesis.settings.register_profile("rowlock", deadline=None, suppress_health_check=[TOO_SLOW])
hypothesis.settings.load_profile("rowlock")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """No collection while a failure is put into words.

    Python 3.11's `ast` fails with a SystemError when a finalizer runs Python code in the middle of it, as that of a
    task with an exception that nobody asked for does. That would end the whole run and not one test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


class SharedPostgres:
    """Starts the shared server when its address is first wanted, and stops it at the end of the run."""

    def __init__(self) -> None:
        self._exits = ExitStack()
        self._url = ""
        self._problem = ""

    def address(self) -> dict[str, str]:
        """`url`, or the `problem` that stood in the way; plain strings, as they go to xdist's workers."""
        if not self._url and not self._problem:
            try:
                self._url = self._exits.enter_context(shared_server()).url
            except RuntimeError as error:
                self._problem = str(error)
        return {"url": self._url, "problem": self._problem}

    def close(self) -> None:
        self._exits.close()


SHARED = pytest.StashKey[SharedPostgres]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SHARED] = SharedPostgres()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three for each processor: most tests wait for a lease, a tick or a process, and use a quarter of one."""
    return 3 * (os.cpu_count() or 1)


# Folders, the one with the longest tests first.
LONG = ("races/processes", "browser", "api", "apps", "worker", "docs", "cli", "races", "typing", "conformance")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first, shuffled as they are, so that no worker is left alone with them at the end."""

    def place(item: pytest.Item) -> int:
        return next((n for n, part in enumerate(LONG) if f"/tests/{part}/" in str(item.path)), len(LONG))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Thousands of tests and what they import stay to the end: no collection of garbage need look at them again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:  # xdist: in the controller, once for each worker
    node.workerinput["postgres"] = node.config.stash[SHARED].address()


def pytest_unconfigure(config: pytest.Config) -> None:
    if SHARED in config.stash:
        config.stash[SHARED].close()


@pytest.fixture(autouse=True)
def no_outage_of_an_earlier_test() -> None:
    """Addresses come again: a PostgreSQL database is handed on, and pytest gives the name of a removed `tmp_path` to a
    later test whose name begins with the same letters. The log of that test would tell of an outage that is over."""
    outage._outages.clear()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that a test runs in this process configures logging for the rest of the process. Later tests would find
    nothing in `caplog`."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> PostgresDatabases:
    """The server all tests share; it is never stopped. To stop one, make a `PostgresServer` of your own."""
    handed_down = getattr(request.config, "workerinput", {}).get("postgres")
    address = handed_down or request.config.stash[SHARED].address()
    if address["problem"]:
        raise RuntimeError(address["problem"])
    return PostgresDatabases(address["url"])


@pytest.fixture
def postgres_url(postgres_server: PostgresDatabases) -> Iterator[str]:
    """Address of an empty database that only this test uses."""
    name = f"rowlock_test_{os.getpid()}_{uuid.uuid4().hex[:12]}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)
