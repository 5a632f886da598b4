"""Replays for tests, as a client sends them, and how to wait for a job."""

import asyncio
from typing import Any

from api.conftest import Api


def replay(duration_ms: int = 500, **changes: Any) -> dict[str, Any]:
    """Two players who cross the arena in half a second."""
    return {
        "title": "Final, set 1",
        "durationMs": duration_ms,
        "players": [{"name": "red", "color": "#e5484d"}, {"name": "blue", "color": "#3e63dd"}],
        "frames": [
            {"t": 0, "positions": [[0.0, 0.5], [1.0, 0.5]]},
            {"t": 500, "positions": [[1.0, 0.5], [0.0, 0.5]]},
        ],
        **changes,
    }


async def create(api: Api, token: str, **changes: Any) -> str:
    """The id of a new replay."""
    status, body, _ = await api.ask("POST", "/api/replays", token, replay(**changes))
    assert status == 201, body
    return str(body["replayId"])


async def ask_export(api: Api, token: str, replay_id: str, kind: str = "mp4") -> str:
    """The id of a new export's job."""
    status, body, _ = await api.ask("POST", f"/api/replays/{replay_id}/exports/{kind}", token)
    assert status == 202, body
    return str(body["jobId"])


async def ended(api: Api, token: str, job_id: str, seconds: float = 60) -> dict[str, Any]:
    """The job, once it has ended."""
    async with asyncio.timeout(seconds):
        while True:
            status, job, _ = await api.ask("GET", f"/api/jobs/{job_id}", token)
            assert status == 200, job
            if job["done"]:
                return dict(job)
            await asyncio.sleep(0.02)
