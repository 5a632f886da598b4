"""A cache for answers of sources, in an SQLite file that all processes of a machine share.

The cache may lose answers and may be unavailable, but it must never return a wrong answer or make a job fail. An error
of the file is logged once, and for a minute every lookup is a miss; then the file is tried again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from rowlock import ConfigError, InvalidArguments
from rowlock_apps.coins.answer_file import AnswerFile

log = logging.getLogger("rowlock.cache")
T = TypeVar("T")

TTL_SECONDS, MAX_TTL_SECONDS, MAX_BYTES = 3600.0, 3_200_000_000, 64 * 1024 * 1024
SWITCH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class AnswerCache:
    """Keeps answers by key for `ttl` seconds, in at most `max_bytes`. Use it in one event loop, and `close` it."""

    def __init__(
        self,
        path: str | Path,
        *,
        ttl: float | timedelta = TTL_SECONDS,
        enabled: bool = True,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(max_bytes, int) or max_bytes < 1:
            raise InvalidArguments(f"AnswerCache(max_bytes=) must be a whole number above zero, not {max_bytes!r}")
        if not isinstance(enabled, bool):  # the text "false" would count as true
            raise InvalidArguments(f"AnswerCache(enabled=) must be True or False, not {enabled!r}")
        self.enabled = enabled
        self.hits = self.misses = 0
        self._ttl = _lifetime(ttl, "AnswerCache(ttl=)")
        self._file = AnswerFile(Path(path).absolute(), max_bytes, clock)  # the process may chdir later
        # One thread: an SQLite connection may be used only in the thread that opened it.
        self._thread = ThreadPoolExecutor(1, "rowlock-cache")
        self._calls: dict[str, asyncio.Future[str]] = {}

    @classmethod
    def from_env(cls, path: str | Path, env: Mapping[str, str] = os.environ, **options: Any) -> AnswerCache:
        """A cache configured by the variables CACHE_ENABLED and CACHE_TTL_SECONDS; `options`: `max_bytes`, `clock`."""
        switch, ttl = env.get("CACHE_ENABLED", "true"), env.get("CACHE_TTL_SECONDS", str(TTL_SECONDS))
        enabled = SWITCH.get(switch.strip().lower())
        if enabled is None:
            raise ConfigError(f"CACHE_ENABLED = {switch!r} (environment): must be true or false; correct or unset it")
        try:
            lifetime = _lifetime(float(ttl), "CACHE_TTL_SECONDS")
        except ValueError:
            must = "must be a number of seconds above zero; correct or unset it"
            raise ConfigError(f"CACHE_TTL_SECONDS = {ttl!r} (environment): {must}") from None
        return cls(path, ttl=lifetime, enabled=enabled, **options)

    @staticmethod
    def key(**parts: object) -> str:
        """A key made of the values in the order given, such as `ebay|1921|D|1|Morgan|`; a | in a value is escaped."""
        texts = ("" if part is None else str(part) for part in parts.values())
        return "|".join(text.replace("\\", "\\\\").replace("|", "\\|") for text in texts)

    async def get(self, key: str) -> Any | None:
        """The cached answer; None if there is none, or it has expired."""
        text = await self._find(_checked(key))
        return None if text is None else json.loads(text)

    async def put(self, key: str, value: Any, ttl: float | timedelta | None = None) -> None:
        """Store an answer and remove the old one. An answer that is larger than `max_bytes` is not stored."""
        lifetime = self._ttl if ttl is None else _lifetime(ttl, "put(ttl=)")
        await self._do(self._file.store, _checked(key), _json(value), lifetime)

    async def forget(self, key: str) -> None:
        """Drop one answer."""
        await self._do(self._file.forget, _checked(key))

    async def clear(self) -> None:
        """Drop all answers and give their space back."""
        await self._do(self._file.clear)

    async def get_or_call(self, key: str, function: Callable[[], Awaitable[Any]]) -> Any:
        """The cached answer, or else the result of `function`, which is then cached.

        Concurrent callers with one key share one call of `function`. If it raises, all of them get the error, so that a
        source that is down is not called once by each. If the caller that runs it is cancelled, another caller runs it.
        The answer always passes through JSON, cached or not: a tuple comes back as a list.
        """
        while call := self._calls.get(_checked(key)):
            await asyncio.wait([call])  # not `await call`: a cancellation of us and of `call` would look alike
            if not call.cancelled():
                self._count(call.exception() is None)
                return json.loads(call.result())
        call = self._calls[key] = asyncio.get_running_loop().create_future()
        try:
            text = await self._find(key)
            if text is None:
                text = _json(await function())
                await self._do(self._file.store, key, text, self._ttl)
            call.set_result(text)
            return json.loads(text)
        except Exception as error:
            call.set_exception(error)
            call.exception()  # marks the error as retrieved: asyncio would log it if nobody else waits
            raise
        finally:
            call.cancel()  # no effect if it already has a result or an error
            del self._calls[key]

    async def close(self) -> None:
        """Close the file. Afterwards nothing is cached any more."""
        if self.enabled:
            self.enabled = False
            await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown(wait=False)

    async def _find(self, key: str) -> str | None:
        text = await self._do(self._file.find, key)
        self._count(text is not None)
        return text

    def _count(self, hit: bool) -> None:
        self.hits, self.misses = self.hits + hit, self.misses + (not hit)

    async def _do(self, work: Callable[..., T], *args: object) -> T | None:
        if not self.enabled:
            return None
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._file.safely, work, *args)


def _lifetime(ttl: float | timedelta, what: str) -> float:
    number = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidArguments(f"{what} must be seconds or a timedelta, not {ttl!r}")
    if not 0 < number <= MAX_TTL_SECONDS:
        must = "must be above zero and at most 100 years"
        raise InvalidArguments(f"{what} {must}, not {ttl!r}; to cache nothing, use enabled=False")
    return float(number)


def _checked(key: str) -> str:
    try:
        key.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidArguments(f"a key must be valid text, not {key!r:.60}; AnswerCache.key() makes one") from None
    return key


def _json(value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"an answer must be JSON to be cached ({error}): dict, list, str, int, float, bool or None"
        ) from None
