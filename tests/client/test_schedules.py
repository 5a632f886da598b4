"""Schedules as a program gives them: by hand and in the config, what is refused, and as part of a transaction."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rowlock import InvalidArguments, Rowlock, ScheduleNotFound
from rowlock.core.config import load_settings
from support.each import each
from support.tasks.contract import count_jobs, execute, fetch, until

UNTEXT = "\udcff"  # what Python makes of a byte that is not UTF-8: no database stores it
BAD = [UNTEXT, "api:x\n", "api:\ud800x"]


@pytest.fixture
async def app(database: str) -> AsyncIterator[Rowlock]:
    """An open app with one task."""
    async with Rowlock(database) as opened:

        @opened.task("t")
        async def t(n: int = 0) -> None: ...

        yield opened


@pytest.fixture
async def bare(database: str) -> AsyncIterator[Rowlock]:
    """An app on the same database without any task: it does not know which tasks there are."""
    async with Rowlock(database) as opened:
        yield opened


async def names(app: Rowlock) -> list[str]:
    return [row.id for row in await app.schedules.list()]


# --- names


@pytest.mark.parametrize("engine", ["sqlite"])
@each("bad", BAD)
@each("what", ["name", "owner", "queue", "source", "task"])
async def test_a_name_that_cannot_be_stored_or_shown_is_refused_by_a_schedule(
    bare: Rowlock, what: str, bad: str
) -> None:
    options = {"every": "1h"} | ({what: bad} if what in ("owner", "queue", "source") else {})
    with pytest.raises(InvalidArguments, match="1–200 characters of UTF-8"):
        await bare.schedules.add(bad if what == "name" else "s", bad if what == "task" else "t", **options)
    assert await names(bare) == []


@pytest.mark.parametrize("engine", ["sqlite"])
@each("bad", BAD)
@each("what", ["owner", "queue", "source", "tags"])
async def test_a_name_that_cannot_be_stored_or_shown_is_refused_by_an_enqueue(
    app: Rowlock, what: str, bad: str
) -> None:
    task = app.get_task("t").using(**{what: [bad] if what == "tags" else bad})
    with pytest.raises(InvalidArguments, match="1–200 characters of UTF-8"):
        await task.enqueue(n=1)
    with pytest.raises(InvalidArguments, match="1–200 characters of UTF-8"):
        await task.enqueue_many([{"n": 1}, {"n": 2}])
    with pytest.raises(InvalidArguments, match="1–200 characters of UTF-8"):
        app.task(bad)(lambda: None)
    assert await count_jobs(app) == 0


async def test_no_schedule_has_a_name_that_cannot_be_stored(app: Rowlock) -> None:
    for verb in ("get", "next", "run", "pause", "resume", "remove"):
        with pytest.raises(ScheduleNotFound):
            await getattr(app.schedules, verb)(UNTEXT)


# --- mistakes

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"args": [1]}, "args must be a mapping of argument names to values, not [1]"),
    ({"args": "foo"}, "args must be a mapping of argument names to values, not 'foo'"),
    ({"handler_params": [1]}, "args must be a mapping"),
    ({"args": {1: 2}}, "args must be a mapping of argument names"),
    ({"start": datetime(1, 1, 1, tzinfo=UTC)}, "start must be in the years from 1970 to 2199"),
    ({"end": "9999-12-31T23:59-05:00"}, "end must be in the years from 1970 to 2199, not 9999-12-31T23:59:00-05:00"),
    ({"end": "0001-01-01T00:00+14:00"}, "end must be in the years from 1970 to 2199"),
    ({"end": "2200-01-01T00:00Z"}, "end must be in the years from 1970 to 2199"),
    ({"start": "soon"}, "start must be a time with its zone, as 2026-03-01T09:00:00+01:00, not 'soon'"),
    ({"start": "2026-03-01T09:00"}, "start must be a time with its zone"),
    ({"start": datetime(2026, 3, 1)}, "start must be a time with its zone"),
    ({"start": "2030-01-02T00:00Z", "end": "2030-01-01T00:00Z"}, "is before start"),
    ({"zone": ""}, "unknown zone ''"),
    ({"zone": 0}, "a zone must be an IANA name such as 'Asia/Seoul', not int"),
    ({"missed_most": 10_001}, "missed_most must be at most 10000, not 10001"),
    ({"max_retry": 3, "max_attempts": 9}, "give max_attempts or max_retry, not both"),
    ({"timeout": 3, "timeout_seconds": 9}, "give timeout or timeout_seconds, not both"),
    ({"args": {}, "handler_params": {}}, "give args or handler_params, not both"),
    ({"seconds": "false"}, "seconds must be one of False, True, not 'false'"),
    ({True: 1}, "no option True; there are rule, cron"),
    ({2026: 1, "colour": "red"}, "no option 2026; there are rule, cron"),
]  # fmt: skip


async def test_mistakes_in_the_config_are_told_of_their_schedules_and_the_others_go_on(
    app: Rowlock, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    schedules: Any = {f"wrong-{n}": {"task": "t", "every": "1h"} | wrong for n, (wrong, _) in enumerate(WRONG)}
    schedules |= {"right": {"task": "t", "every": "1s"}}
    app.configure(load_settings(env={}, flags={"database": database, "schedules": schedules}))
    async with app.dispatcher() as dispatcher:
        await until(lambda: dispatcher.fired >= 1)
    for n, (line, (_, said)) in enumerate(zip(caplog.messages, WRONG, strict=True)):
        assert line.startswith(f"schedule 'wrong-{n}': ")
        assert said in line
    assert await names(app) == ["right"]


@pytest.mark.parametrize("engine", ["sqlite"])
@each(
    "name, given, said",
    [
        ("wrong", {"task": ""}, "schedule 'wrong': no task named ''; known: t"),
        ("wrong", {"task": "t", "handler_name": "t"}, "schedule 'wrong': give task or handler_name, not both"),
        (2026, {"task": "t"}, "schedule 2026: a schedule's name must be a string"),
        (True, {"task": "t"}, "schedule True: a schedule's name must be a string"),
    ],
)
async def test_a_wrong_name_in_the_config_is_told_and_the_others_go_on(
    app: Rowlock, database: str, caplog: pytest.LogCaptureFixture, name: Any, given: dict[str, Any], said: str
) -> None:
    await execute(app, "DELETE FROM {t}schedules")
    caplog.clear()
    schedules: Any = {name: given | {"every": "1h"}, "right": {"task": "t", "every": "1h"}}
    app.configure(load_settings(env={}, flags={"database": database, "schedules": schedules}))
    async with app.dispatcher():
        assert await names(app) == ["right"]
    assert [said in line for line in caplog.messages] == [True]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_mistakes_by_hand_are_refused_and_change_nothing(app: Rowlock) -> None:
    for wrong, said in WRONG:
        if all(isinstance(key, str) for key in wrong):  # else no keyword of Python
            with pytest.raises(InvalidArguments) as caught:
                await app.schedules.add("s", "t", **({"every": "1h"} | wrong))
            assert str(caught.value).startswith("schedule 's': ")
            assert said in str(caught.value)
    assert await names(app) == []


@pytest.mark.parametrize("engine", ["sqlite"])
@each("option", ["task", "handler_name"])
async def test_the_task_of_a_schedule_by_hand_is_given_once(app: Rowlock, option: str) -> None:
    with pytest.raises(InvalidArguments, match=f"no option '{option}'"):
        await app.schedules.add("s", "t", every="1h", **{option: "other"})
    with pytest.raises(InvalidArguments, match=f"no option '{option}'"):
        app.schedule("every 1h", **{option: "other"})(app.get_task("t"))


# --- what can be written


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_start_and_end_may_be_text_as_json_and_quoted_yaml_have_them(app: Rowlock, database: str) -> None:
    entry = {"task": "t", "every": "1h", "start": "2030-01-01T09:00:00+09:00", "end": "2030-01-02T00:00:00Z"}
    env = {"ROWLOCK_DATABASE_URL": database, "ROWLOCK_SCHEDULES": json.dumps({"s": entry})}
    yaml = 'schedules: {s: {task: t, every: 1h, start: "2030-01-01T09:00:00+09:00", end: "2030-01-02T00:00:00Z"}}'
    for settings in (
        load_settings(env=env, flags={}),
        load_settings(env={}, flags={"database": database}, file_text=yaml),
        load_settings(env={}, flags={"database": database}, file_text=yaml.replace('"', "")),
    ):
        app.configure(settings)
        async with app.dispatcher():
            row = await app.schedules.get("s")
        assert (row.starts_at, row.ends_at) == (datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC))


@pytest.mark.parametrize("engine", ["sqlite"])
@each(
    "every, rule",
    [
        (timedelta(days=12), "every 12d"),
        (timedelta(days=14), "every 2w"),
        (timedelta(seconds=1_000_001), "every 1000001s"),
        (timedelta(seconds=90), "every 90s"),
    ],
)
async def test_an_interval_is_what_its_timedelta_says(app: Rowlock, every: timedelta, rule: str) -> None:
    assert (await app.schedules.add("s", "t", every=every)).rule == rule


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_timedelta_with_a_fraction_is_refused_however_long_it_is(app: Rowlock) -> None:
    for seconds in (3600.4, 100_000.4, 9_000_000.000001):
        with pytest.raises(InvalidArguments, match=f"'every {seconds}s' is not in whole seconds"):
            await app.schedules.add("s", "t", every=timedelta(seconds=seconds))


# --- in a transaction


async def test_what_is_done_to_schedules_in_a_transaction_is_undone_with_it(app: Rowlock) -> None:
    for name in ("a", "b", "c"):
        await app.schedules.add(name, "t", every="1h")
    await app.schedules.pause("b")
    before = await fetch(app, "SELECT * FROM {t}schedules ORDER BY id")
    async with asyncio.timeout(20):  # on SQLite whoever does not join waits for itself
        with pytest.raises(ZeroDivisionError):
            async with app.transaction():
                job = await app.schedules.run("a")
                assert (job.schedule_id, job.state) == ("a", "queued")
                assert (await app.schedules.add("new", "t", every="1h")).id == "new"
                assert (await app.schedules.pause("a")).paused_at is not None
                assert (await app.schedules.resume("b")).paused_at is None
                await app.schedules.remove("c")
                assert await names(app) == ["a", "b", "new"]
                assert len(await app.schedules.next("new", 2)) == 2
                raise ZeroDivisionError
    assert await fetch(app, "SELECT * FROM {t}schedules ORDER BY id") == before
    assert await count_jobs(app) == 0


async def test_what_is_done_to_schedules_in_a_transaction_commits_with_it(app: Rowlock) -> None:
    async with asyncio.timeout(20), app.transaction():
        await app.schedules.add("s", "t", every="1h")
        job = await app.schedules.run("s")
        with pytest.raises(ScheduleNotFound):
            await app.schedules.get("other")
    assert (await names(app), (await app.job(job.id)).schedule_id) == (["s"], "s")
