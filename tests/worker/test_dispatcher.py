"""A dispatcher at work on both engines: with a worker end to end (S2.35), what it costs, what it cannot fire."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest

from rowlock import Context, Rowlock, fixed
from rowlock.core.config import Settings
from rowlock.core.policy import DAY
from rowlock.core.schedules.rule import parse_rule
from rowlock.core.schedules.schedule import Missed, Schedule
from rowlock.core.times import FakeClock
from rowlock.store.engine.ids import new_token
from rowlock.store.jobs import claim
from rowlock.store.schedules import fire, schedules
from support.rigs.dispatching import Time, by_hand, count_statements, live, of_one_schedule, rounds
from support.rigs.worker import on_one_engine
from support.tasks.contract import attempts_of, fetch, rows_of, until, working

MANY = 10_000


@pytest.fixture
async def app(database: str) -> AsyncIterator[Rowlock]:
    """Under the clock of the machine."""
    async with Rowlock(database) as opened:
        yield opened


@pytest.fixture
async def still(database: str, clock: FakeClock) -> AsyncIterator[Rowlock]:
    """An app whose time stands still."""
    async with Rowlock(database, clock=clock) as opened:
        yield opened


@pytest.fixture
def time(clock: FakeClock) -> Time:
    return Time(clock)


async def declare_many(app: Rowlock, rule: str, task: str = "t") -> None:
    found = [Schedule(f"s{n:05}", task, parse_rule(rule)) for n in range(MANY)]
    await (await app.store()).run(schedules.declare(found, "runtime", None))


async def test_ticks_become_jobs_that_succeed_fail_time_out_and_are_retried(app: Rowlock) -> None:
    @app.schedule("every 1s", args={"name": "ana"})
    async def greet(name: str) -> str:
        return f"hello {name}"

    @app.schedule("every 1s", max_retry=0)
    async def fail(ctx: Context) -> None:
        raise ValueError("no")

    @app.schedule("every 1s", max_retry=0, timeout_seconds=0.2)
    async def hang(ctx: Context) -> None:
        await asyncio.sleep(60)

    @app.schedule("every 1s", max_retry=2)
    @app.task(backoff=fixed(seconds=0.05))
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return ctx.attempt

    rows: list[dict[str, Any]] = []

    async def ticked_twice() -> bool:
        counted = Counter(row["task"] for row in await rows_of(app))
        return len(counted) == 4 and min(counted.values()) >= 2

    async def done() -> bool:
        rows[:] = await rows_of(app)
        return all(row["finished_at"] for row in rows)

    async with working(app):
        async with app.dispatcher():
            await until(ticked_twice, 60)
        await until(done, 60)
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


@on_one_engine
async def test_a_schedule_whose_name_another_place_has_is_refused_and_the_others_fire(
    still: Rowlock, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    @still.schedule("every 1h", name="taken")
    @still.schedule("every 1s", name="free")
    @still.task
    async def t() -> None: ...

    await still.schedules.add("taken", t, every="2h")
    with caplog.at_level(logging.ERROR):
        async with by_hand(still, time) as dispatcher:
            time.move(1)
            await dispatcher.round()
            assert dispatcher.fired == 1
    assert "'taken' of the code is ignored: a schedule from runtime has that name" in caplog.text
    assert (await still.schedules.get("taken")).rule == "every 2h"


# How often an idle dispatcher may run each statement, in seconds.
IDLE_SECONDS = {
    "next_due": 6,
    "written_ahead": 20,
    "dispatcher_seen": 30,
    "declarations": 120,
    "retire_schedules": 120,
}


async def test_an_idle_dispatcher_with_10000_schedules_looks_once_in_six_seconds(still: Rowlock, time: Time) -> None:
    await declare_many(still, "0 0 1 1 *")
    async with by_hand(still, time) as dispatcher:
        told = count_statements(await still.store())
        await rounds(time, 200, dispatcher)  # its start is over
        told.clear()
        await rounds(time, 600, dispatcher)
        counted = Counter(told)
    assert counted.keys() == IDLE_SECONDS.keys()
    assert {name: n for name, n in counted.items() if n > 600 / IDLE_SECONDS[name]} == {}


@pytest.mark.soak
async def test_an_idle_dispatcher_is_not_woken_between_two_looks(app: Rowlock) -> None:
    """The machine's own time: nothing wakes its loop while nothing happens."""
    await declare_many(app, "0 0 1 1 *")
    async with app.dispatcher():
        told = count_statements(await app.store())
        await until(lambda: "next_due" in told, 60)
        told.clear()
        began = monotonic()
        await until(lambda: monotonic() - began > 67, 90)
        assert Counter(told)["next_due"] <= 67 / 6 + 1


async def claim_on(app: Rowlock, seconds: list[float]) -> None:
    """Claim again and again, through a connection of its own."""
    store = await app.store()
    while True:
        began = monotonic()
        await store.run(claim.claim("w", new_token(), [claim.Range("default", "nobody's")], 1, 60))
        seconds.append(monotonic() - began)
        await asyncio.sleep(0.005)


async def test_10000_schedules_due_in_the_same_minute_are_enqueued_in_bulk_and_claims_go_on(
    app: Rowlock, engine: str, database: str
) -> None:
    await declare_many(app, "* * * * *")
    earlier = {"postgres": "rowlock.schedules SET next_tick = next_tick - interval '1 minute'"}
    async with app.transaction() as session:
        await session.execute(f"UPDATE {earlier.get(engine, 'rowlock_schedules SET next_tick = next_tick - 60')}")
    claims: list[float] = []
    async with Rowlock(database) as beside:
        began = monotonic()
        claiming = asyncio.create_task(claim_on(beside, claims))
        async with app.dispatcher() as dispatcher:
            await until(lambda: dispatcher.fired >= MANY, 60)
            took = monotonic() - began
        claiming.cancel()
        await asyncio.wait([claiming])
    print(f"{MANY} ticks in {took:.2f} s; {len(claims)} claims, the longest {max(claims) * 1000:.0f} ms")
    assert max(claims) < 1 + took / 2, "on SQLite a claim waited for all of the ticks"
    assert len(claims) > 5 * took
    assert await fetch(app, "SELECT count(DISTINCT schedule_id) FROM {t}jobs WHERE tick IS NOT NULL") == [(MANY,)]
    assert took < 40, "5 s on a machine that does nothing else"


async def test_on_sqlite_ticks_are_fired_in_small_batches_with_rests_between(
    still: Rowlock, time: Time, engine: str
) -> None:
    found = [Schedule(f"s{n:05}", "t", parse_rule("0 * * * *")) for n in range(60)]
    await (await still.store()).run(schedules.declare(found, "runtime", None))
    async with by_hand(still, time) as dispatcher:
        time.move(3600)
        delay = await dispatcher.round()
        assert (dispatcher.fired, delay > 0) == ((20, True) if engine == "sqlite" else (60, False))


@on_one_engine
async def test_what_a_dispatcher_cannot_read_is_told_once_and_costs_no_more_looks(
    database: str, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        dispatcher = await of_one_schedule(database, time, "a", stack)
        app = dispatcher.app
        t = "rowlock." if (await app.store()).engine == "postgres" else "rowlock_"
        async with app.transaction() as session:
            await session.execute(f"UPDATE {t}schedules SET zone = 'Mars/Base'")
        await live(time, 60, dispatcher)
        told = count_statements(await app.store())
        for _ in range(3):  # a round that finds something due fires; the others wait, and are woken at once
            dispatcher._wake.set()
            await dispatcher.round()
        assert (told.count("lock_due"), told.count("next_due")) == (1, 3)
        dispatcher._woken("schedules")  # something was changed: it looks again, and does not tell it again
        await dispatcher.round()
        assert told.count("lock_due") == 2
        assert caplog.text.count("schedule 'a' is left to other dispatchers: unknown zone 'Mars/Base'") == 1
        row = await app.schedules.get("a")
        assert (row.next_tick is not None, "Mars/Base" in str(row.problem)) == (True, True)


async def test_many_missed_ticks_are_fired_in_bounded_rounds_with_rests(
    still: Rowlock, time: Time, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fire, "MOST_JOBS", 20)
    missed = Missed("all", window=DAY)
    found = [Schedule(f"s{n}", "t", parse_rule("0 * * * *"), missed=missed) for n in range(5)]
    await (await still.store()).run(schedules.declare(found, "runtime", None))
    async with by_hand(still, time) as dispatcher:
        time.move(10 * 3600)
        delay = await dispatcher.round()
        assert (dispatcher.fired, delay > 0) == (20, engine == "sqlite")


async def test_a_dispatcher_goes_on_within_a_minute_after_a_clock_that_was_ahead(
    still: Rowlock, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    @still.schedule("every 1h", name="s")
    @still.task("t")
    async def t() -> None: ...

    async with by_hand(still, time) as dispatcher:
        time.clock.move(DAY)  # the database's alone
        await rounds(time, 1, dispatcher)
        assert dispatcher.fired == 1
        time.clock.move(-DAY)
        await rounds(time, 60, dispatcher)
        assert "was ahead and was set back; schedules corrected: s" in caplog.text
        next_tick = (await still.schedules.get("s")).next_tick
        assert next_tick is not None
        assert next_tick <= time.clock.now() + timedelta(hours=1)
        await rounds(time, 3600, dispatcher)
        assert dispatcher.fired == 2


async def test_a_schedule_whose_tick_cannot_be_fired_stops_no_other(
    still: Rowlock, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """A row that another program has changed: its job is refused by the table of jobs, and with it the whole batch."""

    @still.task
    async def note() -> None: ...

    for name in ("a", "bad", "c"):
        await still.schedules.add(name, "note", every="1s", missed="all")
    await set_priority(still, 999, "bad")
    with caplog.at_level(logging.ERROR, "rowlock.dispatcher"):
        async with by_hand(still, time) as dispatcher:
            await rounds(time, 3.5, dispatcher)
            assert dispatcher.fired == 6
    fired = {row["schedule_id"] for row in await rows_of(still)}
    assert fired == {"a", "c"}
    assert caplog.text.count("schedule 'bad' is left to other dispatchers: its tick cannot be fired") == 1
    assert "its tick cannot be fired" in str((await still.schedules.get("bad")).problem)


async def set_priority(app: Rowlock, priority: int, name: str) -> None:
    """As another program does it: no dispatcher is told."""
    t = "rowlock." if (await app.store()).engine == "postgres" else "rowlock_"
    async with app.transaction() as tx:
        await tx.execute(f"UPDATE {t}schedules SET priority = $1 WHERE id = $2", priority, name)


async def test_a_schedule_that_could_not_be_fired_is_tried_again_after_a_minute(still: Rowlock, time: Time) -> None:
    """What kept it from being fired may have passed, and nobody changes a schedule for that."""

    @still.task
    async def note() -> None: ...

    await still.schedules.add("late", "note", every="1s", missed="all")
    await set_priority(still, 999, "late")
    async with by_hand(still, time) as dispatcher:
        await rounds(time, 2, dispatcher)
        await set_priority(still, 0, "late")
        await rounds(time, 50, dispatcher)
        assert dispatcher.fired == 0, "it is not looked at in each round"
        await rounds(time, 20, dispatcher)
        assert dispatcher.fired > 0
    assert (await still.schedules.get("late")).problem is None


@on_one_engine
async def test_a_schedule_of_the_config_has_the_options_that_the_tasks_worker_stored(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As `rowlock dispatch --config` without --app: no code, only the file and the database."""
    async with Rowlock(database) as coded:
        await coded.sources.set("svc")

        @coded.task("pay", queue="money", priority=-7, max_attempts=1, on_lost="dead", source="svc:bank")
        async def pay() -> None: ...

        @coded.task("derived", source=lambda n: f"svc:{n}")
        async def derived(n: int) -> None: ...

        async with coded.worker(queues=["none"]):
            pass
    config: Any = {
        "pays": {"task": "pay", "every": "1h"},
        "derives": {"task": "derived", "every": "1h", "args": {"n": 1}},
        "unknown": {"task": "nobody", "every": "1h"},
    }
    bare = Rowlock(database)
    bare.configure(Settings(database=database, schedules=config))
    async with bare:
        async with bare.dispatcher():
            assert [row.id for row in await bare.schedules.list()] == ["pays", "unknown"]
        await bare.schedules.run("pays")
        (row,) = await fetch(bare, "SELECT queue, priority, max_attempts, on_lost, source FROM {t}jobs_live")
    assert tuple(row) == ("money", -7, 1, "dead", "svc:bank")
    assert "'derives': task 'derived' derives its source from its arguments" in caplog.text
    assert "no worker has registered a task named 'nobody'" in caplog.text
