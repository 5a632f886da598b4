"""A table of the user's own beside Rowlock's tables, for tests of transactions."""

import pytest

from rowlock import Rowlock
from support.tasks.contract import execute, fetch


@pytest.fixture
async def ledger(app: Rowlock) -> Rowlock:
    """The app, with a table of the user's own."""
    await execute(app, "CREATE TABLE ledger (n integer)")
    return app


async def empty(app: Rowlock) -> None:
    """Remove what earlier rows of a test's table have committed."""
    await execute(app, "DELETE FROM ledger")


async def entries(app: Rowlock) -> list[int]:
    """What is committed in that table."""
    return [row[0] for row in await fetch(app, "SELECT n FROM ledger ORDER BY n")]
