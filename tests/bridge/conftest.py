"""A real Valkey for the whole run, streams of its own for each test, and an app on each engine that uses them."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.core.config import load_settings
from support.rigs.app import app_url
from support.servers.redis import RedisServer
from support.web.remote import Remote, with_tasks

__all__ = ["app_url"]


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that all tests of a process share and none stops. To stop one, make a `RedisServer` of your own."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.stop()


@pytest.fixture
def remote(redis_server: RedisServer, tmp_path: Path) -> Remote:
    return Remote(redis_server, f"{uuid.uuid4().hex[:8]}:", tmp_path / "results")


@pytest.fixture
def settings(app_url: str, remote: Remote) -> Callable[..., Any]:
    """Settings of an app with this Redis; others as keywords such as redis__lease_seconds=2."""

    def make(**changes: Any) -> Any:
        flags = {name.replace("__", "."): value for name, value in changes.items()}
        given = {
            "database": app_url,
            "redis.url": remote.server.url,
            "redis.prefix": remote.prefix,
            "results.path": str(remote.results),
            "worker.poll_interval_seconds": 0.5,
        }
        return load_settings(env={}, flags=given | flags)

    return make


@pytest.fixture
async def app(settings: Callable[..., Any]) -> AsyncIterator[Rowlock]:
    async with with_tasks(Rowlock(settings=settings())) as opened:
        yield opened


@pytest.fixture
async def quick_app(settings: Callable[..., Any]) -> AsyncIterator[Rowlock]:
    """One whose leases, takeovers and sweeps take a second or two."""
    quick = {"redis__lease_seconds": 1.5, "redis__takeover_seconds": 1.0}
    worker = {"worker__lease_seconds": 1.0, "worker__heartbeat_seconds": 0.25, "worker__sweep_seconds": 0.25}
    async with with_tasks(Rowlock(settings=settings(**quick, **worker))) as opened:
        yield opened
