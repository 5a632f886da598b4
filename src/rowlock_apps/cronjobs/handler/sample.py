"""A handler whose params choose how it ends: for tests, for the demo, and to try out retries and timeouts."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pydantic import Field

from rowlock import Permanent, Retry
from rowlock_apps.cronjobs.handler.base import MAX_RETRY, RETRY_PAUSE, CheckedHandler, Params, handler

DAY = 86_400


class SampleParams(Params):
    """What a sample execution does."""

    sleep_seconds: float = Field(default=0, ge=0, le=DAY)
    stubborn: bool = False  # ignore a cancellation, as a handler with a bug does
    should_fail: bool = False  # every attempt fails
    fail_times: int = Field(default=0, ge=0)  # this many attempts fail, the next one succeeds
    retry_after_seconds: float | None = Field(default=None, ge=0, le=DAY)  # instead of the usual pause
    permanent: bool = False  # a failure is final, whatever max_retry is
    message: str = "asked to fail"
    result: Any = {"status": "done"}


class SampleFailed(Exception):
    """The failure that was asked for."""


@handler("sample", max_attempts=1 + MAX_RETRY, backoff=RETRY_PAUSE)
class SampleHandler(CheckedHandler):
    """Sleeps, then fails or returns a result, as its params ask."""

    shape = SampleParams

    async def run(self, params: SampleParams) -> Any:
        await (_sleep_on(params.sleep_seconds) if params.stubborn else asyncio.sleep(params.sleep_seconds))
        if params.should_fail or self.attempt <= params.fail_times:
            raise self._failure(params)
        return params.result

    def _failure(self, params: SampleParams) -> Exception:
        if params.permanent:
            return Permanent(params.message, code="SAMPLE_FAILED")
        if params.retry_after_seconds is not None:
            return Retry(params.message, after=params.retry_after_seconds, code="SAMPLE_FAILED")
        return SampleFailed(params.message)


async def _sleep_on(seconds: float) -> None:
    """Sleep to the end, even when cancelled."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
