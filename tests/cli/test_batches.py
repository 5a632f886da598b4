"""Batches as an operator sees them: how far they are, what went wrong, and their end."""

import asyncio
import json
from datetime import datetime
from typing import Any

import pytest

from cli.command import Cli, Inside, wait_until
from rowlock import Rowlock

NOBODY = "0198a000-0000-7000-8000-00000000dead"
FIELDS = ["id", "name", "owner", "state", "sealed", "created_at", "started_at", "finished_at"]
FIELDS += ["total", "processed", "failed", "succeeded", "dead", "cancelled", "expired", "last_error"]
FIELDS += ["parent_id", "end_job"]


def collect(cli: Cli, *jobs: tuple[str, dict[str, Any]], name: str = "import", owner: str | None = "ana") -> str:
    """A batch of these jobs (task, arguments); its id."""

    async def work() -> str:
        async with Rowlock(cli.env["ROWLOCK_DATABASE_URL"]) as app:

            @app.task("add", max_attempts=1)
            async def add(a: int) -> None: ...

            @app.task("boom", max_attempts=1)
            async def boom() -> None: ...

            @app.task("linger")
            async def linger(file: str) -> None: ...

            async with app.batch(name, owner=owner) as batch:
                for task, arguments in jobs:
                    await app.get_task(task).using(batch=batch).enqueue(**arguments)
            return batch.id

    return asyncio.run(work())


def test_a_batch_is_listed_shown_and_followed_to_its_end(cli: Cli, here: Inside) -> None:
    assert here.out("batches", "list") == "no batches"
    first = collect(cli, ("add", {"a": 1}), ("add", {"a": 2}), ("boom", {}))
    second = collect(cli, ("add", {"a": 3}), name="other", owner=None)
    waiting = here.json("batches", "show", first)
    assert sorted(waiting) == sorted(FIELDS)
    assert (waiting["name"], waiting["owner"], waiting["state"], waiting["sealed"]) == ("import", "ana", "queued", True)
    assert (waiting["total"], waiting["processed"], waiting["failed"], waiting["started_at"]) == (3, 0, 0, None)
    assert "Batch 'import' is queued: 3 jobs of 3 are not final." in here.out("batches", "show", first)
    assert here.out("jobs", "explain", first) == "Batch 'import' is queued: 3 jobs of 3 are not final."
    assert here.json("jobs", "explain", second)["text"] == "Batch 'other' is queued: 1 job of 1 is not final."

    worker = cli.start("worker", "--app", "shop")
    wait_until(lambda: len(here.json("batches", "list", "--state", "failed")) == 1, "the first ends")
    wait_until(lambda: len(here.json("batches", "list", "--state", "succeeded")) == 1, "the other ends")
    assert worker.stop() == 0

    ended = here.json("batches", "show", first)
    assert (ended["state"], ended["total"], ended["processed"], ended["failed"]) == ("failed", 3, 3, 1)
    assert [ended[way] for way in ("succeeded", "dead", "cancelled", "expired")] == [2, 1, 0, 0]
    assert ended["last_error"].startswith("ValueError: ")
    times = [datetime.fromisoformat(ended[name]) for name in ("created_at", "started_at", "finished_at")]
    assert times == sorted(times)
    text = here.out("batches", "show", first)
    assert "Batch 'import' failed at " in text
    assert ": of 3 jobs 2 succeeded, 1 dead." in text
    assert "it broke" in text

    assert [batch["id"] for batch in here.json("batches", "list")] == [second, first]  # newest first
    for words in (["--owner", "ana"], ["--state", "failed"], ["--owner", "ana", "--state", "failed"]):
        assert [batch["id"] for batch in here.json("batches", "list", *words)] == [first]
    told = here.run("batches", "list", "--limit", "1", "--json")
    assert [batch["id"] for batch in json.loads(told.stdout)] == [second]
    assert told.stderr == "rowlock: only the first 1 are shown; --limit shows more\n"
    head, row = here.out("batches", "list", "--state", "failed").splitlines()
    assert head.split() == ["id", "name", "state", "total", "processed", "failed", "owner", "created_at", "finished_at"]
    assert row.split()[:7] == [first, "import", "failed", "3", "3", "1", "ana"]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_retry_of_its_job_opens_a_batch_again(cli: Cli, here: Inside) -> None:
    batch = collect(cli, ("boom", {}))
    worker = cli.start("worker", "--app", "shop")
    wait_until(lambda: here.json("batches", "show", batch)["state"] == "failed", "it fails")
    assert worker.stop() == 0
    (dead,) = here.json("jobs", "list", "--state", "dead")
    assert dead["batch_id"] == batch
    assert here.out("jobs", "retry", dead["id"]) == "retried 1 job"
    again = here.json("batches", "show", batch)
    assert (again["state"], again["processed"], again["failed"], again["finished_at"]) == ("running", 0, 0, None)


def test_cancelling_a_batch_cancels_what_is_left_of_it(cli: Cli, here: Inside) -> None:
    batch = collect(cli, *[("add", {"a": n}) for n in range(3)])
    other = collect(cli, ("add", {"a": 9}), name="other")
    assert here.out("batches", "cancel", batch) == "import is cancelled: 3/3"
    ended = here.json("batches", "show", batch)
    assert (ended["state"], ended["failed"], ended["cancelled"]) == ("cancelled", 0, 3)
    explained = here.json("jobs", "explain", batch)
    assert (explained["state"], explained["reason"]) == ("cancelled", "finished")
    assert ": of 3 jobs 3 cancelled." in explained["text"]
    assert ended["finished_at"] is not None
    states = {job["id"]: (job["batch_id"], job["state"]) for job in here.json("jobs", "list")}
    assert sorted(states.values()) == sorted([(batch, "cancelled")] * 3 + [(other, "queued")])
    assert "already cancelled" in here.error("batches", "cancel", batch, code=4)
    assert here.json("batches", "cancel", other)["state"] == "cancelled"


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_running_job_of_a_cancelled_batch_is_asked_to_stop(cli: Cli, here: Inside) -> None:
    worker = cli.start("worker", "--app", "shop")
    batch = collect(cli, ("linger", {"file": f"{cli.folder}/lingers"}))
    wait_until((cli.folder / "lingers").exists, "the job runs")
    wait_until(lambda: here.json("batches", "show", batch)["state"] == "running", "the batch has started")
    here.run("batches", "cancel", batch)
    wait_until(lambda: here.json("batches", "show", batch)["state"] == "cancelled", "the job stops and the batch ends")
    assert [job["state"] for job in here.json("jobs", "list")] == ["cancelled"]
    assert worker.stop() == 0


def test_an_unknown_batch_is_one_line_and_exit_code_3(here: Inside) -> None:
    for unknown in (NOBODY, "7"):
        for verb in ("show", "cancel"):
            assert (
                here.error("batches", verb, unknown, code=3) == f"no batch with id {unknown}; see: rowlock batches list"
            )
    assert "expected one of queued, running, succeeded" in here.error("batches", "list", "--state", "dead", code=2)
    assert "--limit" in here.error("batches", "list", "--limit", "0", code=2)
