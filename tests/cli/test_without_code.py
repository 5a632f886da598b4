"""`rowlock enqueue` and `schedules add` without `--app`: the options are those that the task's worker registered."""

import asyncio
from typing import Any

import pytest

from cli.command import Inside
from rowlock import Rowlock, fixed
from support.each import each


@pytest.fixture
def registered(database: str) -> None:
    """A worker of three tasks has been here."""
    asyncio.run(work(database))


async def work(database: str) -> None:
    async with Rowlock(database) as app:

        @app.task
        async def report(finished: dict[str, Any]) -> None: ...

        @app.task(
            queue="money", max_attempts=1, on_lost="dead", timeout=9, keep=60, backoff=fixed(3), priority=4,
            source="api:bank", on_success=report, on_dead="elsewhere",
        )  # fmt: skip
        async def pay(to: str) -> None: ...

        @app.task(source=lambda url: f"domain:{url}")
        async def fetch(url: str) -> None: ...

        async with app.worker():
            pass


WANTED = {
    "queue": "money", "max_attempts": 1, "on_lost": "dead", "timeout_seconds": 9, "keep_seconds": 60, "priority": 4,
    "source": "api:bank",
}  # fmt: skip


def stored(database: str, table: str) -> dict[str, Any]:
    columns = [*WANTED, "backoff", "on_success", "on_dead"]
    texts = ", ".join(f"CAST({c} AS text)" if c in ("backoff", "on_success", "on_dead") else c for c in columns)
    prefix = "rowlock." if database.startswith("postgres") else "rowlock_"

    async def read() -> Any:
        async with Rowlock(database) as app:
            ((*values,),) = await app.fetch(f"SELECT {texts} FROM {prefix}{table}")
            return values

    return dict(zip(columns, asyncio.run(read()), strict=True))


@pytest.mark.usefixtures("registered")
@each(
    "table, words",
    [("jobs_live", ["enqueue", "pay"]), ("schedules", ["schedules", "add", "s", "pay", "--every", "1h"])],
    ids=["enqueue", "schedules add"],
)
def test_a_job_has_the_options_that_its_worker_registered(
    here: Inside, database: str, table: str, words: list[str]
) -> None:
    here.run(*words, "to=bo")
    found = stored(database, table)
    assert {name: found[name] for name in WANTED} == WANTED
    assert '"base": 3' in found["backoff"]
    assert '"report"' in found["on_success"]
    assert '"elsewhere"' in found["on_dead"]


@pytest.mark.usefixtures("registered")
def test_options_that_are_given_win(here: Inside, database: str) -> None:
    here.run("enqueue", "pay", "to=bo", "--queue", "q", "--max-attempts", "2", "--source", "api:other")
    found = stored(database, "jobs_live")
    assert (found["queue"], found["max_attempts"], found["source"], found["on_lost"]) == ("q", 2, "api:other", "dead")


@pytest.mark.usefixtures("registered")
@each("words", [["enqueue"], ["schedules", "add", "s"]], ids=["enqueue", "schedules add"])
def test_a_task_that_no_worker_registered_needs_defaults(here: Inside, words: list[str]) -> None:
    rest = ["--every", "1h"] if words[0] == "schedules" else []
    line = here.error(*words, "payy", *rest, code=2)
    assert "no worker has registered a task named 'payy'" in line
    assert "did you mean 'pay'?" in line
    assert "--defaults" in line
    here.run(*words, "payy", *rest, "--defaults")


@pytest.mark.usefixtures("registered")
@each("words", [["enqueue"], ["schedules", "add", "s"]], ids=["enqueue", "schedules add"])
def test_a_derived_source_must_be_given(here: Inside, words: list[str]) -> None:
    rest = ["url=x.example", *(["--every", "1h"] if words[0] == "schedules" else [])]
    line = here.error(*words, "fetch", *rest, code=2)
    assert "task 'fetch' derives its source from its arguments" in line
    assert "--source" in line
    here.run(*words, "fetch", *rest, "--source", "domain:x.example")


def test_a_wait_limit_without_a_wait_is_refused(inside: Inside) -> None:
    assert "give --wait" in inside.error("enqueue", "add", "--timeout", "5s", "--defaults", code=2)
