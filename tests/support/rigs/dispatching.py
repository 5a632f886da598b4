"""Dispatchers whose rounds are made by hand, under a clock that stands still until it is moved."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from rowlock import Rowlock
from rowlock.core.policy import DAY
from rowlock.core.times import FakeClock
from rowlock.worker.dispatcher import Dispatcher

SHORTEST = 0.001  # seconds between two rounds; a clock of microseconds may stand just before a moment


class Time:
    """The clock of the database and that of the process, moved together. `clock.move` moves the database's alone."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self._passed = clock, 0.0

    def __call__(self) -> float:
        """What `time.monotonic` is to a process."""
        return self._passed

    def move(self, seconds: float) -> None:
        self.clock.move(seconds)
        self._passed += seconds


@asynccontextmanager
async def by_hand(app: Rowlock, time: Time) -> AsyncIterator[Dispatcher]:
    """A dispatcher of an open app. It makes no round by itself, and its first wake-up lies behind it."""
    dispatcher = Dispatcher(app, now=time)
    await dispatcher.open()
    if (await app.store()).engine == "postgres":
        # Once LISTEN works, the listener reports every kind of change. On a slow machine that came during the rounds,
        # and the dispatcher tried schedules again that it had left out.
        async with asyncio.timeout(30):
            await dispatcher._wake.wait()
        dispatcher._wake.clear()
    try:
        yield dispatcher
    finally:
        await dispatcher.stop()


async def of_one_schedule(database: str, time: Time, name: str, stack: AsyncExitStack) -> Dispatcher:
    """A dispatcher by hand, of an app that has one schedule with one tick a minute."""
    app = Rowlock(database, clock=time.clock)

    @app.schedule("every 1m", name=name, missed="all", missed_window=DAY)
    @app.task(f"t-{name}")
    async def t() -> None: ...

    await stack.enter_async_context(app)
    return await stack.enter_async_context(by_hand(app, time))


async def live(time: Time, seconds: float, *dispatchers: Dispatcher) -> None:
    """Time passes in which these say every half a minute that they are alive. They fire nothing."""
    for _ in range(int(seconds // 30)):
        time.move(30)
        for dispatcher in dispatchers:
            await dispatcher._say_alive()


async def rounds(time: Time, seconds: float, dispatcher: Dispatcher) -> None:
    """Time passes in which the dispatcher makes its rounds, each after the delay that the one before asked for."""
    end = time() + seconds
    while time() < end:
        delay = await dispatcher.round()
        if dispatcher._wake.is_set():  # its loop would not wait
            dispatcher._wake.clear()
            delay = 0.0
        time.move(min(max(delay, SHORTEST), max(end - time(), SHORTEST)))


def count_statements(store: Any) -> list[str]:
    """The names of all statements that this store runs from now on, as it runs them."""
    told: list[str] = []
    run = store.run

    async def counted(op: Any) -> Any:
        start = op.start

        def steps() -> Any:
            inner, answer = start(), None
            try:
                while True:
                    call = inner.send(answer)
                    told.extend([call.name] if hasattr(call, "params") else [])
                    answer = yield call
            except StopIteration as stop:
                return stop.value

        return await run(replace(op, start=steps))

    store.run = counted
    return told
