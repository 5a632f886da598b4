"""Dispatchers that come, go, sleep and lose the database: whose schedules are retired, and which come back."""

import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.core.config import Settings, WorkerSettings
from rowlock.core.errors import StoreUnavailable
from rowlock.core.times import FakeClock
from rowlock.store.schedules import dispatchers
from support.rigs.dispatching import Time, by_hand, live, of_one_schedule
from support.rigs.worker import on_one_engine
from support.tasks.contract import fetch


@pytest.fixture
async def app(database: str) -> AsyncIterator[Rowlock]:
    """Under the clock of the machine."""
    async with Rowlock(database) as opened:
        yield opened


@pytest.fixture
def time(clock: FakeClock) -> Time:
    return Time(clock)


async def test_a_living_dispatcher_with_a_short_lease_keeps_its_schedules(database: str, time: Time) -> None:
    """However short the lease that is set, a dispatcher that makes its rounds is never believed gone."""
    app = Rowlock(database, clock=time.clock)
    app.configure(Settings(database=database, worker=WorkerSettings(lease_seconds=2, heartbeat_seconds=0.5)))

    @app.schedule("0 0 1 1 *")
    async def t() -> None: ...

    async with app, by_hand(app, time) as dispatcher:
        while time() < 300:
            delay = await dispatcher.round()
            time.move(delay - 0.1)  # shortly before its next look another one retires
            assert await (await app.store()).run(dispatchers.retire(2)) == []
            time.move(0.1)


async def test_a_dispatcher_that_was_away_for_long_brings_its_schedules_back(database: str, time: Time) -> None:
    """A machine that slept: others have retired what only this one has. Alive again, it has them again."""
    app = Rowlock(database, clock=time.clock)

    @app.schedule("@daily")
    async def t() -> None: ...

    async with app, by_hand(app, time) as dispatcher:
        time.move(200)
        assert await (await app.store()).run(dispatchers.retire(2)) == ["t"]
        await dispatcher.round()
        row = await app.schedules.get("t")
        assert (row.retired_at, row.next_tick) == (None, datetime(2026, 1, 2, tzinfo=UTC))


async def test_an_older_dispatcher_whose_row_was_deleted_does_not_bring_its_old_definitions_back(
    database: str, time: Time
) -> None:
    """An old version that slept for days registers again, and yet the newer version's schedule stays."""

    def version(task: str) -> Rowlock:
        made = Rowlock(database, clock=time.clock)

        @made.schedule("@daily", name="s")
        @made.task(task)
        async def t() -> None: ...

        return made

    old, new = version("old"), version("new")
    async with old, new, by_hand(old, time) as sleeper:
        time.move(1)
        async with by_hand(new, time):
            pass
        async with old.transaction() as session:
            t = "rowlock." if (await old.store()).engine == "postgres" else "rowlock_"
            await session.execute(f"DELETE FROM {t}dispatchers")
        time.move(100)
        await sleeper.round()
        assert [row[0] for row in await fetch(old, "SELECT id FROM {t}dispatchers")] == [sleeper.id]
        assert (await old.schedules.get("s")).task == "new"


async def test_after_an_outage_the_first_one_back_does_not_retire_what_others_have(database: str, time: Time) -> None:
    async with contextlib.AsyncExitStack() as stack:
        first, second = [await of_one_schedule(database, time, name, stack) for name in ("a", "b")]
        await live(time, 900, first, second)
        await first._fire()
        time.move(600)  # the database is away
        await live(time, 120, first)
        assert (await first.app.schedules.get("b")).retired_at is None
        await second._say_alive()
        await live(time, 600, first, second)
        assert [row.retired_at for row in await first.app.schedules.list()] == [None, None]
        await first._fire()
        ticks = await fetch(first.app, "SELECT count(*) FROM {t}ticks WHERE schedule_id = 'b'")
        assert ticks == [(37,)], "one for each minute, those of the outage too"


async def test_a_schedule_that_no_dispatcher_declares_after_an_outage_is_retired(
    database: str, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        first, _ = [await of_one_schedule(database, time, name, stack) for name in ("a", "b")]
        time.move(600)
        await live(time, 180, first)
        assert "schedule 'b' is retired" in caplog.text
        assert [bool(row.retired_at) for row in await first.app.schedules.list()] == [False, True]


async def test_a_retired_schedule_is_back_with_an_older_process_that_has_it(
    database: str, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        older = await of_one_schedule(database, time, "a", stack)
        time.move(1)
        await of_one_schedule(database, time, "a", stack)  # which does not come back
        time.move(1)
        other = await of_one_schedule(database, time, "c", stack)
        time.move(600)
        await live(time, 180, other)
        assert (await other.app.schedules.get("a")).retired_at is not None
        with caplog.at_level(logging.INFO):
            await live(time, 300, older, other)
        row = await other.app.schedules.get("a")
        assert (row.retired_at, row.last_tick) == (None, None)
        assert row.next_tick is not None
        assert "schedule 'a' of the code is back from retirement" in caplog.text


@on_one_engine
async def test_a_sign_of_life_that_failed_is_made_good_in_the_next_round(
    database: str, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        dispatcher = await of_one_schedule(database, time, "a", stack)
        time.move(40)
        with monkeypatch.context() as away:
            away.setattr(dispatcher._store, "run", unavailable)
            with pytest.raises(StoreUnavailable):
                await dispatcher._say_alive()
        await dispatcher._say_alive()
        time.move(50)
        assert await fetch(dispatcher.app, "SELECT count(*) FROM {t}dispatchers") == [(1,)]
        assert await (await dispatcher.app.store()).run(dispatchers.seen(dispatcher.id, 60)), "it was believed gone"


@on_one_engine
async def test_declaring_again_that_failed_half_way_is_made_good_in_the_next_round(
    database: str, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        dispatcher = await of_one_schedule(database, time, "a", stack)
        store = await dispatcher.app.store()
        run = store.run
        time.move(600)
        assert await run(dispatchers.retire(60)) == ["a"]
        with monkeypatch.context() as away:
            away.setattr(store, "run", lambda op: (unavailable if op.name == "declare" else run)(op))
            with pytest.raises(StoreUnavailable):
                await dispatcher._say_alive()
        await dispatcher._say_alive()
        assert (await dispatcher.app.schedules.get("a")).retired_at is None


async def unavailable(op: Any) -> Any:
    raise StoreUnavailable("the database is away")


@on_one_engine
async def test_a_dispatcher_stops_also_when_the_database_is_away(
    app: Rowlock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with app.dispatcher() as dispatcher:
        monkeypatch.setattr(dispatcher._store, "run", unavailable)
    assert "could not remove this dispatcher's row: the database is away" in caplog.text
