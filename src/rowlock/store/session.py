"""What the transactions of both engines share: parts that can be undone alone, and no silent end after a failure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rowlock.core.errors import StoreError


class BaseSession(ABC):
    """An open transaction."""

    def __init__(self) -> None:
        self.failed: BaseException | None = None  # what a statement in it failed of
        self._savepoints = 0

    @abstractmethod
    async def execute(self, sql: str, *args: Any) -> None:
        """A statement in this transaction."""

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """A part of this transaction that can be undone alone."""
        self._savepoints += 1
        name, before = f"rowlock_{self._savepoints}", self.failed
        await self.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            await self.execute(f"ROLLBACK TO {name}")
            self.failed = before
            raise
        await self.execute(f"RELEASE {name}")

    def undone(self) -> StoreError:
        """The error of a block that must not end well: PostgreSQL undoes a transaction in which a statement failed, and
        SQLite must not behave otherwise."""
        return StoreError(f"a statement of this transaction failed, so all of it was rolled back: {self.failed}")
