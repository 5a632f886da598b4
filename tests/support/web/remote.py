"""The other side of Redis, for tests of the bridge: what a worker there sees and says."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rowlock import Rowlock
from rowlock.core.states import FINAL
from support.servers.redis import RedisServer

PATIENCE = 60.0


class Remote:
    """The other side of Redis: what a worker there sees and says."""

    def __init__(self, server: RedisServer, prefix: str, results: Path) -> None:
        self.server, self.prefix, self.results = server, prefix, results
        self.redis = server.client(encoding_errors="replace")

    def key(self, name: str) -> str:
        return self.prefix + name

    def requests(self) -> list[dict[str, str]]:
        return [fields for _, fields in self.redis.xrange(self.key("job.requests"))]

    def cancels(self) -> list[str]:
        return [fields["jobId"] for _, fields in self.redis.xrange(self.key("job.cancels"))]

    def letters(self) -> list[dict[str, str]]:
        return [fields for _, fields in self.redis.xrange(self.key("job.deadletter"))]

    def count(self, name: str) -> int:
        return int(self.redis.hget(self.key("job.bridge"), name) or 0)

    async def request(self, job_id: str, attempt: int = 1) -> dict[str, str]:
        """The request of an attempt, once it is there."""
        found: list[dict[str, str]] = []

        def there() -> bool:
            found[:] = [
                request
                for request in self.requests()
                if request["jobId"] == job_id and int(request.get("attempt", 1)) == attempt
            ]
            return bool(found)

        await until(there, lambda: f"no request of attempt {attempt}: {self.requests()}")
        return found[-1]

    def say(self, stream: str, **fields: Any) -> str:
        return str(self.redis.xadd(self.key(stream), {name: str(value) for name, value in fields.items()}))

    def progress(self, job_id: str, progress: int = 1, **fields: Any) -> str:
        return self.say("job.progress", jobId=job_id, progress=progress, **fields)

    def write(self, request: dict[str, str], content: bytes = b"video") -> dict[str, str]:
        """Write the output of a request; answers the fields of its result."""
        path = Path(json.loads(request["options"])["outputPath"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
        fields = {"jobId": request["jobId"], "status": "SUCCEEDED", "resultUri": str(path), "checksum": checksum}
        return fields | ({"attempt": request["attempt"]} if "attempt" in request else {})

    def succeed(self, request: dict[str, str], content: bytes = b"video") -> None:
        self.say("job.results", **self.write(request, content))

    def deliver_often(self, stream: str = "job.results", times: int = 50) -> None:
        """As if all that waits in a stream had been delivered this often, last to a bridge that died long ago."""
        key = self.key(stream)
        self.redis.xreadgroup("rowlock", "dead", {key: ">"})
        if ids := [row["message_id"] for row in self.redis.xpending_range(key, "rowlock", "-", "+", 1000)]:
            self.redis.xclaim(key, "rowlock", "dead", 0, ids, idle=3_600_000, retrycount=times, justid=True)

    async def all_read(self) -> None:
        """Until everything that was said is acknowledged."""

        def done() -> bool:
            for name in ("job.progress", "job.results"):
                for group in self.redis.xinfo_groups(self.key(name)):
                    last = self.redis.xinfo_stream(self.key(name))["last-generated-id"]
                    if group["pending"] or group["last-delivered-id"] != last:
                        return False
            return True

        await until(done, lambda: str(self.redis.xinfo_groups(self.key("job.results"))))


async def until(holds: Callable[[], bool], story: Callable[[], str] = str, within: float = PATIENCE) -> None:
    """Wait until a condition holds."""
    deadline = asyncio.get_running_loop().time() + within
    while not holds():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {within:g} s: {story()}")
        await asyncio.sleep(0.01)


async def until_state(app: Rowlock, job_id: str, state: str) -> Any:
    """The job, once it is in this state. A job that has ended otherwise is not waited for."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while (job := await app.job(job_id)).state != state:
        if job.state in FINAL or asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"{job.state}, not {state}: {job.error_code} {job.error_message}")
        await asyncio.sleep(0.01)
    return job


def with_tasks(app: Rowlock) -> Rowlock:
    """The tasks of these tests."""

    @app.task("REPLAY_MP4", runs_on="redis")
    async def mp4(replayId: int, inputPath: str = "in.rep", durationMs: int = 1000) -> None: ...

    return app
