"""`app.sources`: read and change the limits of outside services while workers run.

Limits are data in the database, so they are equal for every worker, whatever its version or config. A worker that
starts writes the settings of its config file there, unless an operator has set another value since. A setting that a
config no longer has stays, and is logged: it may come from another app's config, and a limit that vanishes by itself
can harm an outside service.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rowlock.core.errors import InvalidArguments, at_most, seconds
from rowlock.core.sources.policy import check_name, check_policy
from rowlock.store.sources import sources
from rowlock.store.sources.sources import Source

if TYPE_CHECKING:
    from rowlock.client.client import Client

log = logging.getLogger("rowlock.sources")


class Sources:
    """The sources of a database. Inside `app.transaction()`, every call is part of the transaction."""

    def __init__(self, app: Client) -> None:
        self._app = app

    async def set(self, name: str, *, afresh: bool = False, **changes: Any) -> Source:
        """Change settings of a source (`api:ebay`) or of all sources of a class (`api`): `concurrency`, `total` (of a
        class), `rate` ("30/min"), `burst`, `threshold`, `cooldown`, `factor`, `block_after`. None removes a
        setting, `afresh` removes all that are not given. The class `domain` is shipped with a concurrency of 2; write
        "unlimited" to remove that limit."""
        if isinstance(changes.get("cooldown"), timedelta):
            changes["cooldown"] = changes["cooldown"].total_seconds()
        checked = check_policy(check_name(name), changes)
        await self._app.perform(sources.set_policy(name, checked, afresh=afresh))
        return await self.get(name)

    async def reset(self, name: str) -> Source:
        """Remove every setting of a source or class. The settings of its class apply then, or the shipped defaults. A
        worker that starts with a config writes the config's settings again."""
        await self.get(name)
        await self._app.perform(sources.set_policy(name, {}, by=None, afresh=True))
        return await self.get(name)

    async def get(self, name: str) -> Source:
        """The source or class of this name; raises InvalidArguments if there is none."""
        found = await self._app.perform(sources.sources(1, only=check_name(name)))
        if not found:
            raise InvalidArguments(f"no source or class named {name!r}")
        return found[0]

    async def left_over(self, policies: Collection[str]) -> list[str]:
        """Sources and classes whose settings came from another config than this one."""
        names = await self._app.perform(sources.set_by_config())
        return [name for name in names if name not in policies]

    async def list(self, limit: int = 1000, *, after: str = "", refused: int = 0) -> list[Source]:
        """Sources and classes by name; with `refused`, only sources with at least this many refusals in a row."""
        return await self._app.perform(sources.sources(at_most(limit), after, None, refused))

    async def pause(self, name: str, duration: float | timedelta | None = None) -> Source:
        """Start no more jobs of a source or class, for a time or until it is resumed. Running jobs go on."""
        limit = None if duration is None else seconds(duration, "a pause")
        await self._app.perform(sources.pause(check_name(name), limit))
        return await self.get(name)

    async def resume(self, name: str) -> Source:
        """End a pause or a block of a source or class, and close its breaker."""
        await self._app.perform(sources.resume(check_name(name)))
        return await self.get(name)

    async def declare(self, policies: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the settings of a config, except where an operator has set another value; log settings that remain from
        other configs."""
        for name in sorted(policies):
            checked = check_policy(check_name(name), dict(policies[name]))
            if not await self._app.perform(sources.set_policy(name, checked, by="config", afresh=True)):
                log.info(
                    "source %s keeps the limits that an operator set, not those of the config; to use the config's:"
                    " rowlock sources set %s --reset",
                    name,
                    name,
                )
        left = await self.left_over(policies)
        if left:
            log.warning(
                "limits of a config that this worker does not have still hold for %s; to lift one:"
                " rowlock sources set NAME --reset",
                ", ".join(left),
            )
