"""Wake-ups on PostgreSQL: one connection that LISTENs, watched and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import asyncpg

from rowlock.store.engine import StoreOptions

log = logging.getLogger("rowlock.store")

CHANNEL = "rowlock"
# What a broken or refused connection raises. InternalClientError: one that ended in the middle of something.
TROUBLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class NoBell:
    address: str | None = None

    async def close(self) -> None:
        """Nothing to close."""


class Listener:
    """One connection that LISTENs, watched and replaced: a silent socket must not mean a deaf worker."""

    address: str | None = None
    CHECK_SECONDS = 15.0

    def __init__(self, url: str, options: StoreOptions, heard: Callable[[str], None]) -> None:
        self._url, self._options, self._heard = url, options, heard
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep_listening())

    async def _keep_listening(self) -> None:
        while True:
            connection = None
            try:
                connection = await asyncpg.connect(self._url, timeout=10, **connect_options(self._options, {}))
                await connection.add_listener(CHANNEL, lambda *message: self._heard(message[3]))
                gone = asyncio.Event()
                connection.add_termination_listener(partial(_tell, gone))
                self._heard("work")  # something may have been said while nobody listened
                while not connection.is_closed():
                    await self._quiet(gone)
                    async with asyncio.timeout(5):
                        await connection.fetchval("SELECT 1")
            except TROUBLE as error:
                log.warning("listener lost its connection (%s); polling until it is back", error)
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(random.uniform(0.2, 1.0))

    async def _quiet(self, gone: asyncio.Event) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.CHECK_SECONDS):
                await gone.wait()

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def connect_options(options: StoreOptions, plans: dict[str, str]) -> dict[str, Any]:
    if options.pooler == "transaction":
        # A pooler refuses unknown start-up settings and hands each transaction another backend.
        return {"statement_cache_size": 0, "command_timeout": options.command_timeout}
    settings = {
        "application_name": options.name,
        "jit": "off",
        "lock_timeout": "10s",
        "idle_in_transaction_session_timeout": "60s",
    }
    return {"server_settings": settings | plans, "command_timeout": options.command_timeout}


def _tell(event: asyncio.Event, *_: Any) -> None:
    event.set()
