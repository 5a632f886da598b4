"""The heart of a worker: a thread of its own that ends with it."""

import errno
import gc
import resource
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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # asyncio, of a loop half made
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_worker_whose_heart_cannot_begin_does_not_start(tmp_path: Path) -> None:
    """Without a descriptor for its loop the thread would end, and every lease with it, in silence."""
    async with Rowlock(f"sqlite:///{tmp_path}/jobs.db") as app, app.worker() as pool:
        await pool.heart.stop()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(OSError, match="Too many open files") as raised:  # kept until files can be opened again
                pool.heart.start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert raised.value.errno == errno.EMFILE
        del raised
        gc.collect()
