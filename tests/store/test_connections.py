"""The few connections of a store on PostgreSQL: kept, limited, and thrown away when they are of no use."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from rowlock.store.engine.postgres import connections, connector
from rowlock.store.engine.postgres.connections import Connections
from rowlock.store.engine.postgres.connector import Connector
from rowlock.store.engine.postgres.errors import TROUBLE
from rowlock.store.engine.store import StoreOptions


@pytest.fixture
async def two(postgres_url: str) -> AsyncIterator[Connections]:
    kept = Connections(Connector(postgres_url, StoreOptions(), {}), 2)
    yield kept
    await kept.close()


async def test_the_one_given_back_last_is_taken_first(two: Connections) -> None:
    first, second = await two.take(5), await two.take(5)
    two.give_back(first)
    two.give_back(second)
    assert await two.take(5) is second
    assert await two.take(5) is first
    two.give_back(first)
    two.give_back(second)


async def test_the_number_of_open_connections_is_limited(two: Connections) -> None:
    first, second = await two.take(5), await two.take(5)
    with pytest.raises(TimeoutError, match=r"all 2 connections to 127.0.0.1:\d+ are in use"):
        await two.take(0.05)
    waiting = asyncio.create_task(two.take(5))
    await asyncio.sleep(0)
    two.give_back(first)
    assert await waiting is first
    two.give_back(first)
    two.give_back(second)


async def test_the_limit_of_connections_can_be_raised_and_is_never_lowered(two: Connections) -> None:
    for size in (3, 1, 3):
        two.widen(size)
    taken = [await two.take(5) for _ in range(3)]
    assert two.crowded
    with pytest.raises(TimeoutError):
        await two.take(0.05)
    for connection in taken:
        two.give_back(connection)
    assert (two.size, two.crowded) == (3, False)


async def test_a_broken_connection_or_one_in_a_transaction_is_not_reused(two: Connections) -> None:
    broken = await two.take(5)
    broken.terminate()
    two.give_back(broken)
    async with two.one() as fresh:
        assert fresh is not broken
        await fresh.execute("BEGIN")
    async with two.one() as clean:
        assert clean is not fresh
        assert await clean.fetchval("SELECT 1") == 1


async def test_a_connection_that_the_server_ended_while_it_was_idle_is_replaced(
    two: Connections, postgres_url: str
) -> None:
    async with two.one() as idle:
        pid = idle.get_server_pid()
    other = await asyncpg.connect(postgres_url)
    await other.execute("SELECT pg_terminate_backend($1)", pid)
    await other.close()
    for _ in range(200):
        if idle.is_closed():
            break
        await asyncio.sleep(0.01)
    async with two.one() as fresh:
        assert await fresh.fetchval("SELECT 1") == 1


async def test_a_failed_connect_takes_up_no_room(postgres_url: str) -> None:
    nowhere = Connections(Connector("postgresql://nobody@127.0.0.1:1/none", StoreOptions(), {}), 1)
    for _ in range(3):
        with pytest.raises(OSError, match="Connect"):
            await nowhere.take(1)


async def test_a_connection_that_is_closed_before_its_settings_are_made_counts_as_broken(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = connector.dial

    async def closed_at_once(url: str, **options: Any) -> Any:
        connection = await opened(url, **options)
        connection.terminate()
        return connection

    monkeypatch.setattr(connector, "dial", closed_at_once)
    with pytest.raises(TROUBLE):
        await Connector(postgres_url, StoreOptions(), {}).connect(5)


async def test_connections_that_stay_unused_are_closed(two: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await two.take(5), await two.take(5)
    two.give_back(first)
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.0)
    two.give_back(second)
    for _ in range(200):
        if first.is_closed():
            break
        await asyncio.sleep(0.01)
    assert first.is_closed()
    assert await two.take(5) is second
    two.give_back(second)


async def test_close_does_not_wait_for_a_connection_that_stays_in_use(
    two: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CLOSE_SECONDS", 0.05)
    in_use = await two.take(5)
    await asyncio.wait_for(two.close(), 20)
    assert in_use.is_closed()
