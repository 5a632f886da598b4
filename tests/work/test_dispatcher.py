"""Dispatchers at work on both engines: with workers end to end (S2.35), what they cost, and how they come and go."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rowlock import Context, Rowlock, fixed
from rowlock.core.clock import FakeClock
from rowlock.core.config import Settings, WorkerSettings
from rowlock.core.cron import parse_rule
from rowlock.core.errors import StoreUnavailable
from rowlock.core.policy import DAY
from rowlock.core.schedule import Missed, Schedule
from rowlock.store import jobs, schedules
from rowlock.store.ids import new_token
from rowlock.work import dispatcher as dispatching
from support.contract_tasks import attempts_of, fetch, rows_of, until, working
from support.stores import clock, database, engine, template

__all__ = ["clock", "database", "engine", "template"]  # fixtures

MANY = 10_000


@pytest.fixture
async def app(database: str) -> AsyncIterator[Rowlock]:
    async with Rowlock(database) as opened:
        yield opened


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

        return await run(type(op)(op.name, steps, op.single, op.repeatable, op.read, op.hot, op.size))

    store.run = counted
    return told


async def declare_many(app: Rowlock, rule: str, task: str = "t") -> None:
    found = [Schedule(f"s{n:05}", task, parse_rule(rule)) for n in range(MANY)]
    await (await app.store()).run(schedules.declare(found, "runtime", None))


async def test_ticks_become_jobs_that_succeed_fail_time_out_and_are_retried(app: Rowlock) -> None:
    @app.schedule("every 1s", args={"name": "ana"}, end=datetime.now(UTC) + timedelta(seconds=2.5))
    async def greet(name: str) -> str:
        return f"hello {name}"

    @app.schedule("every 1s", max_retry=0, end=datetime.now(UTC) + timedelta(seconds=2.5))
    async def fail(ctx: Context) -> None:
        raise ValueError("no")

    @app.schedule("every 1s", max_retry=0, timeout_seconds=0.2, end=datetime.now(UTC) + timedelta(seconds=2.5))
    async def hang(ctx: Context) -> None:
        await asyncio.sleep(60)

    @app.schedule("every 1s", max_retry=2, end=datetime.now(UTC) + timedelta(seconds=2.5))
    @app.task(backoff=fixed(seconds=0.05))
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return ctx.attempt

    async def done() -> bool:
        rows = await rows_of(app)
        return len(rows) >= 8 and all(row["finished_at"] for row in rows)

    async with app.dispatcher(), working(app):
        await until(done, 30)
    rows = await rows_of(app)
    by_task = {name: [row for row in rows if row["task"] == name] for name in ("greet", "fail", "hang", "flaky")}
    assert [(row["state"], row["result"]) for row in by_task["greet"][:2]] == [("succeeded", "hello ana")] * 2
    assert {(row["state"], row["max_attempts"]) for row in by_task["fail"]} == {("dead", 1)}
    assert {(row["state"], row["error_code"]) for row in by_task["hang"]} == {("dead", "TIMEOUT")}
    assert {(row["state"], row["attempt"], row["result"]) for row in by_task["flaky"]} == {("succeeded", 3, 3)}
    assert len(await attempts_of(app, by_task["flaky"][0]["id"])) == 2
    for name, found in by_task.items():
        ticks = {row["tick"] for row in found if row["schedule_id"] == name and row["tick"].microsecond == 0}
        assert len(found) == len(ticks) >= 2, name
        assert (await app.schedules.get(name)).last_state == ("dead" if name in ("fail", "hang") else "succeeded")


async def test_schedules_of_code_config_and_run_time_fire_from_one_dispatcher(database: str) -> None:
    config: Any = {"s2": {"handler_name": "t", "handler_params": {"n": 2}, "cron": "* * * * *", "max_retry": 3}}
    clock = FakeClock()
    app = Rowlock(database, clock=clock)
    app.configure(Settings(database=database, schedules=config))

    @app.schedule("* * * * *", name="code", args={"n": 1})
    async def t(n: int) -> None: ...

    async with app:
        await app.schedules.add("hand", t, every="1m", args={"n": 3})
        async with app.dispatcher():
            clock.move(60)
        async with app.dispatcher() as second:  # looks at once
            await until(lambda: second.fired == 3)
        rows = await rows_of(app)
        assert sorted((row["schedule_id"], row["args"]["n"], row["max_attempts"]) for row in rows) == [
            ("code", 1, 5), ("hand", 3, 5), ("s2", 2, 4)
        ]  # fmt: skip
        assert [(row.id, row.origin) for row in await app.schedules.list()] == [
            ("code", "code"), ("hand", "runtime"), ("s2", "config")
        ]  # fmt: skip


async def test_a_name_that_another_place_has_is_told_and_the_rest_fires(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Rowlock(database) as app:

        @app.schedule("every 1h", name="taken")
        @app.schedule("every 1s", name="free")
        @app.task
        async def t() -> None: ...

        await app.schedules.add("taken", t, every="2h")
        with caplog.at_level(logging.ERROR):
            async with app.dispatcher() as dispatcher:
                await until(lambda: dispatcher.fired >= 1)
        assert "'taken' of the code is not used: there is one of that name from runtime" in caplog.text
        assert (await app.schedules.get("taken")).rule == "every 2h"


@pytest.mark.parametrize("scale", [10.0, pytest.param(1.0, marks=pytest.mark.soak)])
async def test_an_idle_dispatcher_with_10000_schedules_runs_one_statement_in_five_seconds(
    database: str, monkeypatch: pytest.MonkeyPatch, scale: float
) -> None:
    """In `make test` a dispatcher that lives ten times as fast, signs of life included."""
    monkeypatch.setattr(dispatching, "POLL_SECONDS", dispatching.POLL_SECONDS / scale)
    app = Rowlock(database)
    worker = WorkerSettings(lease_seconds=60 / scale, heartbeat_seconds=15 / scale)
    app.configure(Settings(database=database, worker=worker))
    async with app:
        await declare_many(app, "0 0 1 1 *")
        async with app.dispatcher():
            told = count_statements(await app.store())
            await until(lambda: "retire_schedules" in told, 200 / scale)  # it has come to rest
            told.clear()
            began = time.monotonic()
            await asyncio.sleep(67 / scale)  # two signs of life are in it
            passed, counted = (time.monotonic() - began) * scale, [*told]  # without those of its stop
    assert len(counted) <= passed / 5 + 1, f"{len(counted)} in {passed:.0f} s: {counted}"


def p99(seconds: list[float]) -> float:
    """In milliseconds."""
    return sorted(seconds)[int(len(seconds) * 0.99)] * 1000


async def claim_on(app: Rowlock, seconds: list[float]) -> None:
    """Claim again and again, through a connection of its own."""
    store = await app.store()
    while True:
        began = time.monotonic()
        await store.run(jobs.claim("w", new_token(), [jobs.Lane("default", "nobody's")], 1, 60))
        seconds.append(time.monotonic() - began)
        await asyncio.sleep(0.005)


async def test_10000_schedules_due_in_the_same_minute_are_enqueued_in_bulk_and_claims_go_on(
    app: Rowlock, engine: str, database: str
) -> None:
    await declare_many(app, "* * * * *")
    earlier = {"postgres": "rowlock.schedules SET next_tick = next_tick - interval '1 minute'"}
    async with app.transaction() as session:
        await session.execute(f"UPDATE {earlier.get(engine, 'rowlock_schedules SET next_tick = next_tick - 60')}")
    idle: list[float] = []
    claims: list[float] = []
    async with Rowlock(database) as beside:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(claim_on(beside, idle), 1.5)
        began = time.monotonic()
        claiming = asyncio.create_task(claim_on(beside, claims))
        async with app.dispatcher() as dispatcher:
            await until(lambda: dispatcher.fired >= MANY, 60)
            took = time.monotonic() - began
        claiming.cancel()
        await asyncio.wait([claiming])
    print(f"{MANY} ticks in {took:.2f} s; claims p99 {p99(claims):.1f} ms, without them {p99(idle):.1f} ms")
    assert max(claims) < 1 + took / 4, "on SQLite a claim waited for all of the ticks"
    assert len(claims) > 5 * took
    assert await fetch(app, "SELECT count(DISTINCT schedule_id) FROM {t}jobs WHERE tick IS NOT NULL") == [(MANY,)]
    assert took < 40, "5 s on a machine that does nothing else"


async def test_where_only_one_can_write_ticks_are_fired_in_small_batches_with_rests(app: Rowlock, engine: str) -> None:
    found = [Schedule(f"s{n:05}", "t", parse_rule("0 * * * *")) for n in range(60)]
    await (await app.store()).run(schedules.declare(found, "runtime", None))
    earlier = {"postgres": "rowlock.schedules SET next_tick = next_tick - interval '1 hour'"}
    async with app.dispatcher() as dispatcher:
        await dispatcher._loops.stop_all()  # its own rounds do not come between
        async with app.transaction() as session:
            await session.execute(f"UPDATE {earlier.get(engine, 'rowlock_schedules SET next_tick = next_tick - 3600')}")
        async with asyncio.timeout(30):
            while not dispatcher.fired:  # the round that was stopped may hold its locks for a moment
                delay = await dispatcher._fire()
        assert (dispatcher.fired, delay > 0) == ((20, True) if engine == "sqlite" else (60, False))


async def test_a_living_dispatcher_with_a_short_lease_keeps_its_schedules(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short the lease (2 s, lived ten times as fast), between two looks it is not believed gone."""
    monkeypatch.setattr(dispatching, "POLL_SECONDS", dispatching.POLL_SECONDS / 10)
    app = Rowlock(database)
    app.configure(Settings(database=database, worker=WorkerSettings(lease_seconds=0.2, heartbeat_seconds=0.05)))

    @app.schedule("0 0 1 1 *")
    async def t() -> None: ...

    async def seen() -> list[tuple[Any, ...]]:
        return await fetch(app, "SELECT seen_at FROM {t}dispatchers")

    async with app, app.dispatcher():
        for _ in range(3):
            before = await seen()
            while await seen() == before:
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.49)  # shortly before its next look another one retires
            assert await (await app.store()).run(schedules.retire(0.2)) == []


async def test_a_dispatcher_that_was_away_for_long_brings_its_schedules_back(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that slept: others have retired what only this one has. Alive again, it has them again."""
    monkeypatch.setattr(dispatching, "POLL_SECONDS", 0.2)
    clock = FakeClock()
    app = Rowlock(database, clock=clock)
    app.configure(Settings(database=database, worker=WorkerSettings(lease_seconds=2, heartbeat_seconds=0.5)))

    @app.schedule("@daily")
    async def t() -> None: ...

    async def back() -> bool:
        return (await app.schedules.get("t")).retired_at is None

    async with app, app.dispatcher():
        clock.move(100)
        assert await (await app.store()).run(schedules.retire(2)) == ["t"]
        await until(back, 12)
        assert (await app.schedules.get("t")).next_tick == datetime(2026, 1, 2, tzinfo=UTC)


async def test_a_dispatcher_whose_row_was_forgotten_is_no_younger_for_it(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old version that slept for days does not bring its old definitions back."""
    monkeypatch.setattr(dispatching, "POLL_SECONDS", 0.2)
    clock = FakeClock()
    worker = WorkerSettings(lease_seconds=2, heartbeat_seconds=0.5)

    def version(task: str) -> Rowlock:
        made = Rowlock(database, clock=clock)
        made.configure(Settings(database=database, worker=worker))

        @made.schedule("@daily", name="s")
        @made.task(task)
        async def t() -> None: ...

        return made

    old, new = version("old"), version("new")
    async with old, new, old.dispatcher() as sleeper:
        clock.move(1)
        async with new.dispatcher():
            pass
        async with old.transaction() as session:
            t = "rowlock." if (await old.store()).engine == "postgres" else "rowlock_"
            await session.execute(f"DELETE FROM {t}dispatchers")
        clock.move(100)

        async def registered() -> bool:
            return [row[0] for row in await fetch(old, "SELECT id FROM {t}dispatchers")] == [sleeper.id]

        await until(registered, 12)
        assert (await old.schedules.get("s")).task == "new"


class Time:
    """The process' own clock, moved by hand together with the database's."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._began = clock, clock.now()

    def monotonic(self) -> float:
        return (self._clock.now() - self._began).total_seconds()


@pytest.fixture
def moved(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """A clock of which dispatchers know no other."""
    monkeypatch.setattr(dispatching, "time", Time(clock))
    return clock


async def still(database: str, clock: FakeClock, name: str, stack: contextlib.AsyncExitStack) -> dispatching.Dispatcher:
    """A dispatcher of an app with one schedule; its rounds are made by hand."""
    app = Rowlock(database, clock=clock)

    @app.schedule("every 1m", name=name, missed="all", missed_window=DAY)
    @app.task(f"t-{name}")
    async def t() -> None: ...

    await stack.enter_async_context(app)
    dispatcher = await stack.enter_async_context(app.dispatcher())
    await dispatcher._loops.stop_all()
    return dispatcher


async def live(clock: FakeClock, seconds: int, *dispatchers: dispatching.Dispatcher) -> None:
    """Time passes in which these say that they are alive."""
    for _ in range(seconds // 30):
        clock.move(30)
        for dispatcher in dispatchers:
            await dispatcher._say_alive()


async def test_after_an_outage_the_first_one_back_does_not_retire_what_others_have(
    database: str, moved: FakeClock
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        first, second = [await still(database, moved, name, stack) for name in ("a", "b")]
        await live(moved, 900, first, second)
        await first._fire()
        moved.move(600)  # the database is away
        await live(moved, 120, first)
        assert (await first.app.schedules.get("b")).retired_at is None
        await second._say_alive()
        await live(moved, 600, first, second)
        assert [row.retired_at for row in await first.app.schedules.list()] == [None, None]
        await first._fire()
        ticks = await fetch(first.app, "SELECT count(*) FROM {t}ticks WHERE schedule_id = 'b'")
        assert ticks == [(37,)], "one for each minute, those of the outage too"


async def test_after_an_outage_what_nobody_has_any_more_is_retired_all_the_same(
    database: str, moved: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        first, _ = [await still(database, moved, name, stack) for name in ("a", "b")]
        moved.move(600)
        await live(moved, 180, first)
        assert "schedule 'b' is retired" in caplog.text
        assert [bool(row.retired_at) for row in await first.app.schedules.list()] == [False, True]


async def test_a_retired_schedule_is_back_with_an_older_process_that_has_it(
    database: str, moved: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        older = await still(database, moved, "a", stack)
        moved.move(1)
        await still(database, moved, "a", stack)  # which does not come back
        moved.move(1)
        other = await still(database, moved, "c", stack)
        moved.move(600)
        await live(moved, 180, other)
        assert (await other.app.schedules.get("a")).retired_at is not None
        with caplog.at_level(logging.INFO):
            await live(moved, 300, older, other)
        row = await other.app.schedules.get("a")
        assert (row.retired_at, row.last_tick) == (None, None)
        assert row.next_tick is not None
        assert "schedule 'a' of the code is back from retirement" in caplog.text


async def test_a_sign_of_life_that_failed_is_made_good_in_the_next_round(
    database: str, moved: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        dispatcher = await still(database, moved, "a", stack)
        moved.move(40)
        with monkeypatch.context() as away:
            away.setattr(dispatcher._store, "run", unavailable)
            with pytest.raises(StoreUnavailable):
                await dispatcher._say_alive()
        await dispatcher._say_alive()
        moved.move(50)
        assert await fetch(dispatcher.app, "SELECT count(*) FROM {t}dispatchers") == [(1,)]
        assert await (await dispatcher.app.store()).run(schedules.seen(dispatcher.id, 60)), "it was believed gone"


async def test_declaring_again_that_failed_half_way_is_made_good_in_the_next_round(
    database: str, moved: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        dispatcher = await still(database, moved, "a", stack)
        store = await dispatcher.app.store()
        run = store.run
        moved.move(600)
        assert await run(schedules.retire(60)) == ["a"]
        with monkeypatch.context() as away:
            away.setattr(store, "run", lambda op: (unavailable if op.name == "declare" else run)(op))
            with pytest.raises(StoreUnavailable):
                await dispatcher._say_alive()
        await dispatcher._say_alive()
        assert (await dispatcher.app.schedules.get("a")).retired_at is None


async def unavailable(op: Any) -> Any:
    raise StoreUnavailable("the database is away")


async def test_a_dispatcher_stops_also_when_the_database_is_away(
    app: Rowlock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with app.dispatcher() as dispatcher:
        monkeypatch.setattr(dispatcher._store, "run", unavailable)
    assert "could not sign off: the database is away" in caplog.text


async def test_what_a_dispatcher_cannot_read_is_told_once_and_costs_no_more_looks(
    database: str, moved: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        dispatcher = await still(database, moved, "a", stack)
        app = dispatcher.app
        t = "rowlock." if (await app.store()).engine == "postgres" else "rowlock_"
        async with app.transaction() as session:
            await session.execute(f"UPDATE {t}schedules SET zone = 'Mars/Base'")
        await live(moved, 60, dispatcher)
        told = count_statements(await app.store())
        for _ in range(3):  # a round that finds something due fires; the others wait, and are woken at once
            dispatcher._wake.set()
            await dispatcher.round()
        assert (told.count("lock_due"), told.count("next_due")) == (1, 3)
        dispatcher._heard("schedules")  # something was changed: it looks again, and does not tell it again
        await dispatcher.round()
        assert told.count("lock_due") == 2
        assert caplog.text.count("schedule 'a' is left to other dispatchers: unknown zone 'Mars/Base'") == 1
        row = await app.schedules.get("a")
        assert (row.next_tick is not None, "Mars/Base" in str(row.problem)) == (True, True)


async def test_many_missed_ticks_are_fired_in_bounded_rounds_with_rests(
    app: Rowlock, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "MOST_JOBS", 20)
    missed = Missed("all", window=DAY)
    found = [Schedule(f"s{n}", "t", parse_rule("0 * * * *"), missed=missed) for n in range(5)]
    await (await app.store()).run(schedules.declare(found, "runtime", None))
    earlier = {"postgres": "rowlock.schedules SET next_tick = next_tick - interval '10 hours'"}
    async with app.dispatcher() as dispatcher:
        await dispatcher._loops.stop_all()
        async with app.transaction() as session:
            await session.execute(
                f"UPDATE {earlier.get(engine, 'rowlock_schedules SET next_tick = next_tick - 36000')}"
            )
        delay = await dispatcher._fire()
        assert (dispatcher.fired, delay > 0) == (20, engine == "sqlite")


async def test_a_dispatcher_goes_on_within_a_minute_after_a_clock_that_was_ahead(
    database: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert dispatching.PUT_RIGHT_SECONDS + dispatching.POLL_SECONDS < 60
    monkeypatch.setattr(dispatching, "PUT_RIGHT_SECONDS", 0.05)
    monkeypatch.setattr(dispatching, "POLL_SECONDS", 0.05)
    async with Rowlock(database, clock=clock) as app:

        @app.schedule("every 1h", name="s")
        @app.task("t")
        async def t() -> None: ...

        async with app.dispatcher() as dispatcher:
            clock.move(DAY)
            await until(lambda: dispatcher.fired == 1)
            clock.move(-DAY)
            await until(lambda: "was ahead and was set back; schedules go on by it as it is now: s" in caplog.text)
            assert (await app.schedules.get("s")).next_tick == clock.now() + timedelta(hours=1)
            clock.move(3600)
            await until(lambda: dispatcher.fired == 2)


async def test_a_schedule_whose_tick_cannot_be_fired_stops_no_other(
    app: Rowlock, caplog: pytest.LogCaptureFixture
) -> None:
    """A row that another program has changed: its job is refused by the table of jobs, and with it the whole batch."""

    @app.task
    async def note() -> None: ...

    for name in ("a", "bad", "c"):
        await app.schedules.add(name, "note", every="1s", missed="all")
    t = "rowlock." if (await app.store()).engine == "postgres" else "rowlock_"
    async with app.transaction() as tx:
        await tx.execute(f"UPDATE {t}schedules SET priority = 999 WHERE id = 'bad'")
    with caplog.at_level(logging.ERROR, "rowlock.dispatcher"):
        async with app.dispatcher() as dispatcher:
            await until(lambda: dispatcher.fired >= 6)
    fired = {row["schedule_id"] for row in await rows_of(app)}
    assert fired == {"a", "c"}
    assert caplog.text.count("schedule 'bad' is left to other dispatchers: its tick cannot be fired") == 1
    assert "its tick cannot be fired" in str((await app.schedules.get("bad")).problem)


async def test_a_schedule_that_could_not_be_fired_is_tried_again(app: Rowlock, monkeypatch: pytest.MonkeyPatch) -> None:
    """What kept it from being fired may have passed, and nobody changes a schedule for that."""
    monkeypatch.setattr(dispatching, "LOOK_AGAIN_SECONDS", 0.5)

    @app.task
    async def note() -> None: ...

    await app.schedules.add("late", "note", every="1s", missed="all")
    t = "rowlock." if (await app.store()).engine == "postgres" else "rowlock_"
    async with app.transaction() as tx:
        await tx.execute(f"UPDATE {t}schedules SET priority = 999")
    async with app.dispatcher() as dispatcher:
        await until(lambda: bool(dispatcher._unread))
        async with app.transaction() as tx:  # no bell: nobody tells the dispatcher
            await tx.execute(f"UPDATE {t}schedules SET priority = 0")
        await until(lambda: dispatcher.fired >= 1)
    assert (await app.schedules.get("late")).problem is None
