"""`python -m rowlock_apps.replays.worker`: does the exports behind Redis.

It knows the messages of the worker contract (docs/reference/worker-contract.md) and one folder, and neither Rowlock nor
its database: any program that keeps the contract can take its place. Settings are environment variables:

    REDIS_URL           redis://127.0.0.1:6379/0
    REDIS_PREFIX        the prefix of the names of the streams (redis.prefix of the app)
    JOBS_EXPORT_PATH    the folder of inputs and exports, which it shares with the app
    WORKER_GROUP        the consumer group [workers]
    BEAT_MS             how often it reports that it is still working; well below redis.lease_seconds [15000]
    EXPORT_TIMEOUT_MS   after this long an export is killed [900000]
    TAKEOVER_MS         after this long without a beat it takes over requests of a dead worker [60000]

The first SIGTERM lets the running export finish, a second one ends the program; its request is then taken over.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import sys
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from rowlock_apps.replays.export import LONGEST_SECONDS, cannot_write, export
from rowlock_apps.replays.replay import ExportFailed

REQUESTS, PROGRESS, RESULTS, CANCELS = "job.requests", "job.progress", "job.results", "job.cancels"
REMEMBERED = 10_000  # cancelled jobs whose requests may still come
AWAY_SECONDS = 0.5  # before Redis is tried again
REPORT_SECONDS = 0.25  # between two messages about progress
TROUBLE = (RedisError, OSError)


class Settings(NamedTuple):
    """The settings of a worker, from the environment."""

    url: str
    prefix: str
    folder: Path
    group: str
    beat: float  # seconds
    timeout: float  # seconds
    takeover_ms: int


def settings_of(env: Mapping[str, str]) -> Settings:
    """The settings; SystemExit with a message that names the wrong variable."""
    if not env.get("JOBS_EXPORT_PATH"):
        raise SystemExit("JOBS_EXPORT_PATH is not set: name the folder that this worker shares with the app")
    try:
        beat, takeover = int(env.get("BEAT_MS", 15_000)), int(env.get("TAKEOVER_MS", 60_000))
        timeout = int(env.get("EXPORT_TIMEOUT_MS", LONGEST_SECONDS * 1000))
        if min(beat, takeover, timeout) <= 0:
            raise ValueError
    except ValueError:
        raise SystemExit("BEAT_MS, TAKEOVER_MS and EXPORT_TIMEOUT_MS must be milliseconds, such as 15000") from None
    folder = Path(os.path.realpath(env["JOBS_EXPORT_PATH"]))
    url, group = env.get("REDIS_URL", "redis://127.0.0.1:6379/0"), env.get("WORKER_GROUP", "workers")
    return Settings(url, env.get("REDIS_PREFIX", ""), folder, group, beat / 1000, timeout / 1000, takeover)


# --- requests


class Request(NamedTuple):
    """A request of the stream job.requests, checked: any program that can write to the stream could name any path."""

    job_type: str
    source: Path
    target: Path
    duration_ms: int


def reply_fields(fields: Mapping[str, str]) -> dict[str, str] | None:
    """The fields that go back with every message; None if the entry isn't a request."""
    if not fields.get("jobId"):
        return None
    return {name: fields[name] for name in ("jobId", "attempt") if fields.get(name)}


def read_request(fields: Mapping[str, str], folder: Path) -> Request:
    """Read a request; raises ExportFailed. Both of its paths must be in the folder."""
    try:
        options: dict[str, Any] = json.loads(fields.get("options", ""))
        source, target, duration = options["inputPath"], options["outputPath"], options.get("durationMs") or 0
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ExportFailed("BAD_REQUEST", "options must be JSON with inputPath and outputPath") from None
    if not isinstance(source, str) or not isinstance(target, str) or not isinstance(duration, int):
        raise ExportFailed("BAD_REQUEST", "inputPath and outputPath must be text, durationMs a whole number")
    return Request(
        fields.get("jobType", ""),
        _inside(folder, source, "INVALID_INPUT_PATH"),
        _inside(folder, target, "INVALID_OUTPUT_PATH"),
        duration,
    )


def _inside(folder: Path, given: str, code: str) -> Path:
    """A path in the folder, with every symbolic link on the way followed before it is judged."""
    try:
        found = Path(os.path.realpath(given))
    except (OSError, ValueError) as error:  # a NUL, a loop of links
        raise ExportFailed(code, f"{given!r:.200} isn't a path: {error}") from None
    if not os.path.isabs(given) or folder not in found.parents:
        raise ExportFailed(code, f"{given!r:.200} is not below {folder}")
    return found


# --- outputs


@contextlib.asynccontextmanager
async def written_once(target: Path) -> AsyncIterator[Path]:
    """A path to write to. When the block ends well, what is there gets the target's name, unless a file has it already;
    when the block raises, nothing is left behind."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        yield partial
        _flush(partial)
        _link(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _link(partial: Path, target: Path) -> None:
    try:
        os.link(partial, target)  # unlike a rename, it never replaces a file
    except FileExistsError:
        return  # another worker has done this request meanwhile, and its file stays
    _flush(target.parent)


def _flush(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


# --- the worker


class ProgressMessages:
    """The messages about the progress of one job."""

    def __init__(self, redis: Any, key: str, base: dict[str, str]) -> None:
        self._redis, self._key, self._base = redis, key, base
        self._fields = {"progress": "0", "phase": "start", "message": ""}
        self.changed = asyncio.Event()

    def note(self, percent: int, phase: str, message: str) -> None:
        """Note the progress; it is sent soon."""
        self._fields = {"progress": str(percent), "phase": phase, "message": message}
        self.changed.set()

    async def send(self) -> None:
        self.changed.clear()
        await self._redis.xadd(self._key, self._base | self._fields)


class Worker:
    """Does one request at a time."""

    def __init__(self, settings: Settings, redis: Any) -> None:  # Any: redis-py's methods serve sync and async
        self._settings, self._redis = settings, redis
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self._cancelled: OrderedDict[str, str] = OrderedDict()  # jobId -> the entry that cancelled it
        self._job: tuple[str, str, asyncio.Task[None]] | None = None  # at work: its id, its request's entry
        self.stopping = asyncio.Event()

    def _key(self, stream: str) -> str:
        return self._settings.prefix + stream

    # --- reading

    async def run(self) -> None:
        """Work until `stopping` is set."""
        cancels = asyncio.create_task(self._read_cancels())
        try:
            while not self.stopping.is_set():
                try:
                    for entry, fields in await self._next():
                        await self._handle(entry, fields)
                except TROUBLE as error:
                    await self._wait_for_redis(error)
        finally:
            cancels.cancel()

    async def make_group(self) -> None:
        """Make the consumer group, and the stream if it is not there."""
        try:
            await self._redis.xgroup_create(self._key(REQUESTS), self._settings.group, id="0", mkstream=True)
        except RedisError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def _next(self) -> list[tuple[str, dict[str, str]]]:
        """The request of a worker that has died, else a new one, if one comes in time."""
        key, group = self._key(REQUESTS), self._settings.group
        takeover = self._settings.takeover_ms
        _, left, *_ = await self._redis.xautoclaim(key, group, self.name, min_idle_time=takeover, count=1)
        if left:
            return list(left)
        answer = await self._redis.xreadgroup(group, self.name, {key: ">"}, count=1, block=500)
        return [entry for _, entries in answer or () for entry in entries]

    async def _wait_for_redis(self, error: Exception) -> None:
        if str(error).startswith(("NOGROUP", "UNBLOCKED")):  # Redis was restarted empty
            with contextlib.suppress(*TROUBLE):
                await self.make_group()
            return
        print(f"Redis cannot be used: {error}; trying again", file=sys.stderr, flush=True)
        await asyncio.sleep(AWAY_SECONDS)

    async def _read_cancels(self) -> None:
        """Stop what is cancelled. This saves work and nothing else: the job has ended already."""
        last = ""
        while True:
            try:
                if not last:
                    newest = await self._redis.xrevrange(self._key(CANCELS), count=1)
                    last = newest[0][0] if newest else "0"
                answer = await self._redis.xread({self._key(CANCELS): last}, block=1000)
            except TROUBLE:
                await asyncio.sleep(AWAY_SECONDS)
                continue
            for entry, fields in [entry for _, entries in answer or () for entry in entries]:
                last = entry
                self._cancel(fields.get("jobId", ""), entry)

    def _cancel(self, job_id: str, entry: str) -> None:
        self._cancelled[job_id] = entry
        while len(self._cancelled) > REMEMBERED:
            self._cancelled.popitem(last=False)
        if self._job is not None and self._job[0] == job_id and self._is_cancelled(job_id, self._job[1]):
            self._job[2].cancel()

    def _is_cancelled(self, job_id: str, request: str) -> bool:
        """Whether a job was cancelled after its request. An operator may retry a cancelled job: the new request comes
        after the cancel, and is done."""
        cancelled = self._cancelled.get(job_id)
        return cancelled is not None and _place(cancelled) >= _place(request)

    # --- working

    async def _handle(self, entry: str, fields: dict[str, str] | None) -> None:
        """Do a request, report, and only then acknowledge: what dies before is done again."""
        base = reply_fields(fields or {})
        if base is not None and fields is not None:
            result = await self._do(entry, base, fields)
            await self._redis.xadd(self._key(RESULTS), base | result)
        await self._redis.xack(self._key(REQUESTS), self._settings.group, entry)

    async def _do(self, entry: str, base: dict[str, str], fields: dict[str, str]) -> dict[str, str]:
        """The fields of the result."""
        if self._is_cancelled(base["jobId"], entry):
            return {"status": "CANCELLED"}
        try:
            request = read_request(fields, self._settings.folder)
            messages = ProgressMessages(self._redis, self._key(PROGRESS), base)
            await messages.send()  # from now on the job is RUNNING
            work = asyncio.create_task(self._export(request, messages))
            beats = asyncio.create_task(self._beat(entry, messages))
            self._job = (base["jobId"], entry, work)
            try:
                await work
            finally:
                self._job = None
                beats.cancel()
            if messages.changed.is_set():
                await messages.send()  # the last progress stays with the job
            return {
                "status": "SUCCEEDED",
                "resultUri": str(request.target),
                "checksum": await asyncio.to_thread(checksum, request.target),
            }
        except asyncio.CancelledError:
            if not self._is_cancelled(base["jobId"], entry):
                raise  # it is the program that ends
            return {"status": "CANCELLED"}
        except ExportFailed as failed:
            return {"status": "FAILED", "errorCode": failed.code, "errorMessage": str(failed)}
        except TimeoutError:
            text = f"the export took longer than {self._settings.timeout:g} s"
            return {"status": "FAILED", "errorCode": "TIMEOUT", "errorMessage": text}

    async def _export(self, request: Request, messages: ProgressMessages) -> None:
        """Write the output, unless an earlier delivery of this request has done so: its file stays as it is."""
        if await asyncio.to_thread(request.target.exists):
            return
        try:
            async with asyncio.timeout(self._settings.timeout), written_once(request.target) as partial:
                await export(request.job_type, request.source, partial, request.duration_ms, messages.note)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise cannot_write(request.target, error) from None

    async def _beat(self, entry: str, messages: ProgressMessages) -> None:
        """Send progress when it has changed, and the last one again before anybody takes this worker for dead."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.beat):
                    await messages.changed.wait()
            with contextlib.suppress(*TROUBLE):  # the next beat tries again
                await messages.send()
                # The entry becomes young again: no other worker takes it over.
                group, ids = self._settings.group, [entry]
                await self._redis.xclaim(self._key(REQUESTS), group, self.name, min_idle_time=0, message_ids=ids)
            await asyncio.sleep(REPORT_SECONDS)


def _place(entry: str) -> tuple[int, int]:
    """An entry's id, which is a time of the Redis server and a number, for comparing entries of two streams."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number or 0)


async def main() -> None:
    settings = settings_of(os.environ)
    settings.folder.mkdir(parents=True, exist_ok=True)
    redis: Any = Redis.from_url(settings.url, protocol=2, decode_responses=True, socket_timeout=10)
    worker, this = Worker(settings, redis), asyncio.current_task()
    assert this is not None

    def stop() -> None:
        if worker.stopping.is_set():
            this.cancel()
        worker.stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    async with redis:
        await worker.make_group()
        print(f"worker {worker.name} reads {settings.prefix}{REQUESTS}", flush=True)
        with contextlib.suppress(asyncio.CancelledError):
            await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
