"""The heart of a worker: a thread of its own that ends with it."""

import time
from pathlib import Path

import pytest

from rowlock import Rowlock
from rowlock.work import heartbeat


async def test_a_heart_stops_at_once_whenever_it_would_have_looked_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "WATCH_SECONDS", 60)
    async with Rowlock(f"sqlite:///{tmp_path}/jobs.db") as app:
        async with app.worker(heartbeat_seconds=400, lease_seconds=1600) as pool:
            await pool._poll_and_assign()  # by now its heart waits for its next look
            began = time.monotonic()
    assert time.monotonic() - began < 5, "a thread that does not end is waited for for 10 s"
