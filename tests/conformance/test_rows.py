"""What the database itself refuses, whoever writes: a live job's row that no operation could have left."""

import pytest

from rowlock.core.errors import StoreError
from support.rig import Rig, numbered, prefix

TOKEN = f"lease_token = '{numbered(7)}'"
QUEUED = [
    *("state = 'done'", "priority = 101", "priority = -101", "attempt = -1", "releases = -1", "losses = -1"),
    *("max_attempts = 0", "unique_mode = 'sometimes'", "locked_by = 'w'", TOKEN),
    *(f"{column} = created_at" for column in ("locked_at", "lease_expires_at", "heartbeat_at")),
]
RUNNING = [
    *("ready = TRUE", "state = 'queued'", "state = 'retryable'"),
    *(f"{column} = NULL" for column in ("lease_token", "locked_by", "locked_at", "lease_expires_at")),
]


@pytest.mark.parametrize(
    ("state", "change"), [*(("queued", change) for change in QUEUED), *(("running", change) for change in RUNNING)]
)
async def test_an_impossible_row_is_refused_by_the_database(rig: Rig, state: str, change: str) -> None:
    job_id = await rig.enqueue() if state == "queued" else (await rig.running()).id
    before = await rig.row(job_id)
    with pytest.raises(StoreError):
        async with rig.store.transaction() as session:
            await session.execute(f"UPDATE {prefix(rig.store)}jobs_live SET {change}")
    assert await rig.row(job_id) == before


async def test_a_possible_row_is_not(rig: Rig) -> None:
    job_id = await rig.enqueue()
    async with rig.store.transaction() as session:
        await session.execute(f"UPDATE {prefix(rig.store)}jobs_live SET priority = 100, unique_mode = 'forever'")
    assert (await rig.row(job_id))["priority"] == 100
