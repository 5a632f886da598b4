"""One dispatcher process of the race tests: `python -m support.race_dispatcher`.

Its settings are ROWLOCK_… variables. RACE_SKEW is by how many seconds its own clock is wrong.
"""

import asyncio
import datetime
import logging
import os
import sys
import time
from typing import Any

SKEW = float(os.environ.get("RACE_SKEW", "0"))
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


async def main() -> None:
    from rowlock import Rowlock

    app = Rowlock()

    async def tick() -> None: ...

    task: Any = app.task("tick")(tick)
    for name in NAMES:
        app.schedule("every 1s", name=name, missed="all", missed_most=10_000)(task)
    async with app:
        logging.info("my clock says %s", datetime.datetime.now(datetime.UTC))
        await app.run_dispatcher()


if __name__ == "__main__":
    if SKEW:
        set_clock_wrong(SKEW)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main())
