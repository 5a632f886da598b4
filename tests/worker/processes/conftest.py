"""A pool of child processes, and an executor over it, for all tests of one file."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from rowlock.core.config import Settings
from rowlock.worker.processes.children import Children
from support.rigs.worker import ExecutorRig
from support.tasks.processes import app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def children(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Children]:
    """One pool for all tests: a child that a test has not killed serves the next one."""
    app.configure(Settings(database=f"sqlite:///{tmp_path_factory.mktemp('db')}/jobs.db"))
    opened = Children(app, 2)
    yield opened
    await opened.close()
    await app.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(children: Children) -> AsyncIterator[ExecutorRig]:
    opened = ExecutorRig(app)
    yield opened
    await opened.close()
