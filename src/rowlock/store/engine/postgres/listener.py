"""Wake-ups on PostgreSQL: one connection that LISTENs, checked regularly and replaced if it is broken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from rowlock.core.errors import ConfigError
from rowlock.store.engine.outage import Outage
from rowlock.store.engine.postgres.connector import Connector
from rowlock.store.engine.postgres.errors import TROUBLE, translate

log = logging.getLogger("rowlock.store")

CHANNEL = "rowlock"
EVERY_MESSAGE = ("work", "cancel", "schedules", "events")


class PostgresListener:
    """LISTENs on one connection and checks it every 15 seconds: a broken one looks like one without notifications."""

    address: str | None = None
    CHECK_SECONDS = 15.0

    def __init__(self, connector: Connector, outage: Outage, on_wakeup: Callable[[str], None]) -> None:
        self._connector, self._outage, self._on_wakeup = connector, outage, on_wakeup
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep_listening())

    async def _keep_listening(self) -> None:
        while True:
            connection = None
            try:
                connection = await self._connector.connect(10)
                await connection.add_listener(CHANNEL, lambda *message: self._on_wakeup(message[3]))
                if self._outage.began is not None:
                    self._outage.worked()
                gone = asyncio.Event()
                connection.add_termination_listener(lambda _, gone=gone: gone.set())
                for message in EVERY_MESSAGE:  # earlier notifications are lost, so look at everything
                    self._on_wakeup(message)
                while not connection.is_closed():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self.CHECK_SECONDS):
                            await gone.wait()
                    async with asyncio.timeout(5):
                        if await connection.fetchval("SHOW transaction_read_only") == "on":
                            break  # fenced after a failover: a new connection may lead to the new primary
            except TROUBLE as error:
                self._outage.failed("listener", translate(error, "listen", self._connector.place, connection))
            except ConfigError as error:
                log.error("no wake-ups, polling only: %s", error)
                return
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(random.uniform(0.2, 1.0))

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
