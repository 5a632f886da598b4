"""One dispatcher process of the race tests: `python -m support.races.dispatcher`.

Its settings are ROWLOCK_… variables. RACE_SKEW is by how many seconds its own clock is wrong. RACE_DIES_BEFORE is a
statement by name: the process kills itself instead of running it.
"""

import asyncio
import datetime
import logging
import os
import signal
import sys
import time
from typing import Any

SKEW = float(os.environ.get("RACE_SKEW", "0"))
DIES_BEFORE = os.environ.get("RACE_DIES_BEFORE", "")
NAMES = ("all-0", "all-1", "all-2", "all-3")


def set_clock_wrong(by: float) -> None:
    """Every way in which Python tells the time of day is wrong from now on; that of waiting is not."""
    right, right_ns, real = time.time, time.time_ns, datetime.datetime
    time.time = lambda: right() + by
    time.time_ns = lambda: right_ns() + int(by * 1e9)

    class Kind(type):
        def __instancecheck__(cls, found: Any) -> bool:
            return isinstance(found, real)

    class Wrong(real, metaclass=Kind):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.now(tz) + datetime.timedelta(seconds=by)

        @classmethod
        def utcnow(cls) -> Any:
            return real.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=by)

    datetime.datetime = Wrong  # type: ignore[misc]


def die_before(store: Any, statement: str) -> None:
    """Let the first operation that comes to this statement be the end of the process, as by `kill -9`."""
    holder, name = (store, "_execute") if store.engine == "postgres" else (store._runner, "execute")
    execute = getattr(holder, name)

    def until_then(*given: Any) -> Any:
        if given[-1].name == statement:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(*given)

    setattr(holder, name, until_then)


async def main() -> None:
    from rowlock import Rowlock

    app = Rowlock()

    async def tick() -> None: ...

    task: Any = app.task("tick")(tick)
    for name in NAMES:
        app.schedule("every 1s", name=name, missed="all", missed_most=10_000)(task)
    async with app:
        if DIES_BEFORE:
            die_before(await app.store(), DIES_BEFORE)
        logging.info("my clock says %s", datetime.datetime.now(datetime.UTC))
        await app.run_dispatcher()


if __name__ == "__main__":
    if SKEW:
        set_clock_wrong(SKEW)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main())
