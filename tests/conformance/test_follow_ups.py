"""A follow-up has what a direct enqueue of its task would have, and its own follow-ups in turn."""

import json
from typing import Any

import pytest

from rowlock import InvalidArguments, Rowlock, fixed
from rowlock.client.tasks.registry import MAX_FOLLOW_UP_BYTES
from rowlock.core.options import NOT_OF_FOLLOW_UPS, names_in
from rowlock.core.outcome import Failed, Succeeded
from rowlock.store.jobs import tasks
from support.each import each
from support.files.functions import FunctionRig
from support.rigs.app import app, rig, t
from support.rigs.rig import Rig

__all__ = ["app", "rig", "t"]  # fixtures

# Every option that a task can give to its jobs, with the column that it becomes.
OPTIONS: dict[str, tuple[Any, str]] = {
    "queue": ("other", "queue"),
    "max_attempts": (3, "max_attempts"),
    "backoff": (fixed(seconds=3), "backoff"),
    "timeout": (9.0, "timeout_seconds"),
    "priority": (4, "priority"),
    "source": ("api:s", "source"),
    "on_success": ("last", "on_success"),
    "on_dead": ("last", "on_dead"),
    "on_lost": ("dead", "on_lost"),
    "keep": (12345.0, "keep_seconds"),
}
NOT_OPENED = "sqlite:///not-opened.db"  # for what a task is refused before there is a database
JSON = ("backoff", "on_success", "on_dead")
COLUMNS = [column for _, column in OPTIONS.values()]


async def of_task(rig: Rig, task: str) -> list[dict[str, Any]]:
    return [row for row in (await rig.rows()).values() if row["task"] == task]


async def columns(rig: Rig, task: str) -> list[dict[str, Any]]:
    """What `OPTIONS` became in each job of a task, oldest first."""
    rows = await rig.fetch(f"SELECT {', '.join(COLUMNS)} FROM {{t}}jobs_live WHERE task = '{task}' ORDER BY id")
    return [
        {
            column: json.loads(value) if column in JSON and value else value
            for column, value in zip(COLUMNS, row, strict=True)
        }
        for row in rows
    ]


async def end(app: Rowlock, rig: Rig, job_id: str, dead: bool = False) -> None:
    """End a job by the client's calls, or by the SQL functions on their engine."""
    if isinstance(rig, FunctionRig):
        (job,) = await rig.claim(1, task=(await rig.row(job_id))["task"])
        assert job.id == job_id
        await rig.settle(job, Failed("E", "no", permanent=True) if dead else Succeeded())
        return
    lease = await app.claim(job_id)
    assert lease is not None
    await (lease.fail("no", permanent=True) if dead else lease.complete())


def test_every_option_of_a_task_is_in_the_table() -> None:
    assert OPTIONS.keys() == names_in("task").keys()


@pytest.fixture
def last(app: Rowlock) -> Any:
    """The follow-up that `OPTIONS` names."""

    @app.task(keep=60, priority=7)
    async def last(finished: dict[str, Any]) -> None: ...

    return last


@each("how", ["on_success", "on_dead", "on_end"])
@each("given, name", [(OPTIONS, "next"), ({}, "plain")], ids=["every option", "no option"])
async def test_a_follow_up_has_the_columns_of_a_direct_enqueue(
    app: Rowlock, rig: Rig, last: Any, how: str, given: Any, name: str
) -> None:
    async def ended(batch: dict[str, Any]) -> None: ...
    async def after(finished: dict[str, Any]) -> None: ...

    wanted = {key: value for key, (value, _) in given.items()}
    follow_up = app.task(f"{name}.{how}", **wanted)(ended if how == "on_end" else after)

    @app.task(f"before.{name}.{how}", **{} if how == "on_end" else {how: follow_up})
    async def first() -> None: ...

    async with app.batch("b", on_end=follow_up if how == "on_end" else None) as batch:
        job = await first.using(batch=batch).enqueue()
    await end(app, rig, job.id, dead=how == "on_dead")
    await follow_up.enqueue({})
    made, direct = await columns(rig, follow_up.name)
    assert made == direct


@each("how", ["on_success", "on_dead", "on_end"])
async def test_a_follow_up_of_another_programs_task_has_the_options_that_its_worker_stored(
    app: Rowlock, rig: Rig, how: str
) -> None:
    other = Rowlock(app.database)

    @other.task("last")
    async def last(finished: dict[str, Any]) -> None: ...

    async def elsewhere(finished: dict[str, Any]) -> None: ...

    there = other.task(f"next.{how}", **{key: value for key, (value, _) in OPTIONS.items()})(elsewhere)
    await rig.store.run(tasks.declare(other.registry.stored()))

    @app.task(f"first.{how}", **{} if how == "on_end" else {how: there.name})
    async def first() -> None: ...

    async with app.batch("b", on_end=there.name if how == "on_end" else None) as batch:
        made_by = [await first.using(batch=batch).enqueue() for _ in range(2)]
    for job in made_by:
        await end(app, rig, job.id, dead=how == "on_dead")
    async with other:
        await there.enqueue({})
    *made, direct = await columns(rig, there.name)
    assert made == [direct] * (1 if how == "on_end" else 2)


async def test_follow_ups_go_on_to_the_end_of_the_chain(app: Rowlock, rig: Rig) -> None:
    @app.task
    async def alarm() -> None: ...

    @app.task(queue="last")
    async def third(finished: dict[str, Any]) -> None: ...

    @app.task(on_success=third, on_dead=alarm)
    async def second(finished: dict[str, Any]) -> None: ...

    @app.task(on_success="second", on_dead=alarm)
    async def first() -> None: ...

    await first.using(owner="ana").enqueue()
    for task in ("first", "second"):
        ((job_id, _),) = [found for found in (await rig.rows()).items() if found[1]["task"] == task]
        await end(app, rig, job_id)
    (job,) = await of_task(rig, "third")
    assert (job["queue"], job["owner"], job["args"]["finished"]["task"]) == ("last", "ana", "second")
    assert job["args"]["finished"]["args"]["finished"]["task"] == "first"
    assert await of_task(rig, "alarm") == []


async def test_follow_ups_that_go_round_are_refused(app: Rowlock, rig: Rig) -> None:
    @app.task(on_dead="two")
    async def one(finished: dict[str, Any] | None = None) -> None: ...

    with pytest.raises(InvalidArguments, match="two → one → two"):  # once all of them are known
        app.task("two", on_success=one)(one.function)
        await one.enqueue()
    again = app.task("again", on_success="again")(one.function)
    with pytest.raises(InvalidArguments, match="must not form a cycle: again → again"):
        await again.enqueue()
    assert await rig.rows() == {}


async def test_a_source_made_from_the_arguments_is_refused_where_the_follow_up_is_named(app: Rowlock, t: Any) -> None:
    @app.task(source=lambda finished: "api:x")
    async def after(finished: dict[str, Any]) -> None: ...

    @app.task(source=lambda batch: "api:x")
    async def ended(batch: dict[str, Any]) -> None: ...

    async def work() -> None: ...

    with pytest.raises(InvalidArguments, match="task 'after' is a follow-up: its source must be a name"):
        app.task("work", on_success=after)(work)
    with pytest.raises(InvalidArguments, match="task 'after' is a follow-up: its source must be a name"):
        await app.task("work", on_success="after")(work).enqueue()
    with pytest.raises(InvalidArguments, match="task 'ended' is a follow-up: its source must be a name"):
        async with app.batch("b", on_end=ended):
            pass


def test_follow_ups_too_long_to_be_stored_with_every_job_are_refused() -> None:
    async def work(finished: dict[str, Any] | None = None) -> None: ...

    app = Rowlock(NOT_OPENED)

    task = app.task("0")(work)
    with pytest.raises(InvalidArguments, match=f"at most {MAX_FOLLOW_UP_BYTES} are stored"):
        for n in range(1, 20):  # each names two: the tree of them doubles
            task = app.task(str(n), on_success=task, on_dead=task)(work)


async def test_a_follow_up_stored_before_chains_were_is_written_as_it_was(app: Rowlock, rig: Rig) -> None:
    stored = {"task": "next", "queue": "q", "max_attempts": 2, "priority": 1, "bare": True, "timeout_seconds": 5}
    await end(app, rig, await rig.enqueue(on_success=json.dumps(stored)))
    (row,) = await of_task(rig, "next")
    assert (row["queue"], row["max_attempts"], row["priority"], row["timeout_seconds"]) == ("q", 2, 1, 5)
    assert (row["args"], row["source"]) == ({}, None)


FOREIGN = {
    "batch_id": "00000000-0000-7000-8000-00000000beef", "unique": "until_done", "window": 60,
    "parent_id": "00000000-0000-7000-8000-00000000beef",
}  # fmt: skip


async def put(rig: Rig, job_id: str, stored: str) -> None:
    """Store a follow-up past all checks, as another program may."""
    await rig.fetch(f"UPDATE {{t}}jobs_live SET on_success = '{stored}' WHERE id = '{job_id}' RETURNING id")


def test_the_options_that_no_follow_up_has_are_all_tried() -> None:
    assert FOREIGN.keys() == set(NOT_OF_FOLLOW_UPS)


@each(
    "options",
    [
        {"queue": ""}, {"queue": "q" * 300}, {"priority": 1000}, {"priority": "high"}, {"max_attempts": 0},
        {"backoff": {"kind": "none"}}, {"timeout_seconds": -1}, {"source": ":"}, {"tags": "a"}, {"delay": 1e300},
        {"run_after": "9999-01-01T00:00:00Z"}, {"expires_at": 7}, {"on_success": {"queue": "q"}}, {"on_dead": "u"},
        {"on_dead": {"task": "last", "on_success": "u"}},
        {"colour": "red"}, {"task": 7}, {"task": ""}, {"task": "rowlock.webhook"},
        *({name: value} for name, value in FOREIGN.items()),
        *({"on_dead": {"task": "last", name: value}} for name, value in FOREIGN.items()),
    ],
    ids=str,
)  # fmt: skip
async def test_a_job_ends_without_a_stored_follow_up_that_could_not_be_inserted(
    app: Rowlock, rig: Rig, options: dict[str, Any]
) -> None:
    before, job_id = set(await rig.rows()), await rig.enqueue()
    await put(rig, job_id, json.dumps({"task": "next", "queue": "q", **options}))
    await end(app, rig, job_id)
    rows = await rig.rows()
    assert (rows[job_id]["state"], set(rows)) == ("succeeded", before | {job_id})


async def test_a_follow_up_whose_options_another_language_wrote_has_them(app: Rowlock, rig: Rig) -> None:
    backoff = {"kind": "exponential", "base": 5}
    stored = {"task": "next", "max_attempts": 3.0, "backoff": backoff, "tags": ["a"], "delay": 0, "priority": None}
    job_id = await rig.enqueue()
    await put(rig, job_id, json.dumps(stored))
    await end(app, rig, job_id)
    (row,) = await of_task(rig, "next")
    assert (row["max_attempts"], row["tags"], row["priority"]) == (3, ["a"], 0)
    assert row["backoff"] | backoff == row["backoff"]


async def test_a_result_is_told_to_the_follow_up_as_it_is_stored(app: Rowlock, rig: Rig) -> None:
    job = await rig.running(on_success='{"task": "next"}')
    await rig.settle(job, Succeeded('{"n": 12345678901234567890.5}'))
    (row,) = await of_task(rig, "next")
    assert row["args"]["finished"]["result"] == {"n": 12345678901234567890.5}


@each("name", ["rowlock.webhook", "rowlock.x"])
def test_tasks_of_rowlock_itself_cannot_be_follow_ups(name: str) -> None:
    async def work() -> None: ...

    with pytest.raises(InvalidArguments, match="must not begin with"):
        Rowlock(NOT_OPENED).task("work", on_success=name)(work)


async def test_an_option_of_a_stored_follow_up_that_is_null_is_not_given(app: Rowlock, rig: Rig) -> None:
    job_id = await rig.enqueue()
    inner = {"task": "last", "queue": "q", "priority": None, **dict.fromkeys(FOREIGN)}
    await put(rig, job_id, json.dumps({"task": "next", "on_dead": {**inner, "on_success": inner}}))
    await end(app, rig, job_id)
    assert len(await of_task(rig, "next")) == 1


async def test_a_follow_up_that_is_nested_too_deeply_is_none_and_the_job_ends(app: Rowlock, rig: Rig) -> None:
    job_id = await rig.enqueue()
    await put(rig, job_id, '{"task": "next", "on_dead": ' * 2000 + "{}" + "}" * 2000)
    await end(app, rig, job_id)
    assert await rig.state(job_id) == "succeeded"
    assert len(await rig.rows()) == 1
