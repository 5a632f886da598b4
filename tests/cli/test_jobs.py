"""Looking at jobs and changing them, as an operator does."""

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from cli.command import Cli, Inside, wait_until
from rowlock.core.job import Job
from rowlock.store import audit, open_store
from support.each import each
from support.sql.refusals import refused


def test_a_job_that_died_can_be_seen_explained_retried_and_cancelled(cli: Cli, here: Inside) -> None:
    worker = cli.start("worker", "--app", "shop")
    done = here.out("enqueue", "add", "a=1", "--app", "shop", "--owner", "ana", "--tag", "x")
    dead = here.out("enqueue", "boom", "--app", "shop")
    wait_until(lambda: len(here.json("jobs", "list", "--state", "succeeded,dead")) == 2, "both jobs end")
    assert worker.stop() == 0

    assert [job["id"] for job in here.json("jobs", "list")] == [dead, done]
    for words in (["--state", "dead"], ["--task", "boom"], ["--queue", "default", "--limit", "1"]):
        assert [job["id"] for job in here.json("jobs", "list", *words)] == [dead]
    for words in (["--owner", "ana"], ["--tag", "x"], ["--state", "succeeded", "--since", "1h"]):
        assert [job["id"] for job in here.json("jobs", "list", *words)] == [done]
    assert here.out("jobs", "list", "--source", "none") == "no jobs"

    story = here.json("jobs", "show", dead)
    assert set(Job.__slots__) < set(story)
    assert datetime.fromisoformat(story["created_at"]).tzinfo is not None
    (attempt,) = story["attempts"]
    assert (attempt["outcome"], attempt["error_code"]) == ("failed", "ValueError")
    assert story["explain"]["reason"] == "finished"
    text = here.out("jobs", "show", dead)
    assert "state       dead" in text
    assert f" s on {attempt['worker']}: ValueError: it broke\n" in text
    assert "result      2" in here.out("jobs", "show", done)
    assert here.out("jobs", "explain", dead).startswith("It died at ")

    assert here.out("jobs", "retry", dead) == "retried 1 job"
    assert "No live worker serves its queue" in here.out("jobs", "explain", dead)
    assert here.out("jobs", "cancel", dead) == "cancelled 1 job"
    again = here.json("jobs", "show", dead)
    assert (again["state"], again["attempt"]) == ("cancelled", 1)


def test_named_jobs_that_do_not_fit_are_refused_and_the_others_changed(inside: Inside) -> None:
    first, second = (inside.out("enqueue", "add", f"a={n}", "--app", "shop") for n in (1, 2))
    assert (
        f"job {first} is queued; retry is for jobs that are dead and cancelled"
        in inside.run("jobs", "retry", first, code=4).stderr
    )
    done = inside.run("jobs", "cancel", "nobody", second, code=3)
    assert done.stdout == "cancelled 1 job\n"
    assert done.stderr == "rowlock: no job with id nobody; see: rowlock jobs list\n"


def test_a_retry_that_a_newer_jobs_key_forbids_is_refused_and_says_so(inside: Inside) -> None:
    keyed = ["enqueue", "add", "a=1", "--app", "shop", "--key", "k"]
    first = inside.out(*keyed)
    inside.run("jobs", "cancel", first)
    inside.run(*keyed)
    said = inside.run("jobs", "retry", first, code=4)
    assert said.stdout == "no jobs were changed\n"
    assert said.stderr == f"rowlock: job {first} stays cancelled: its key is held by a newer job\n"
    assert inside.out("jobs", "retry", first, "--dry-run") == "would retry 1 job; nothing was changed"


def test_changes_by_filter_are_counted_first_and_need_a_yes(here: Inside) -> None:
    ids = [here.out("enqueue", "elsewhere", "--app", "shop") for _ in range(3)]
    other = here.out("enqueue", "add", "a=1", "--defaults")
    assert here.json("jobs", "cancel", "--queue", "other", "--dry-run") == {"matched": 3, "changed": 0, "dry_run": True}
    assert "the filter matches 3 jobs: add --yes" in here.error("jobs", "cancel", "--queue", "other", code=2)
    assert {job["state"] for job in here.json("jobs", "list")} == {"queued"}

    assert here.out("jobs", "cancel", "--queue", "other", "--yes") == "cancelled 3 jobs"
    assert (
        here.out("jobs", "retry", "--queue", "other", "--yes") == "no jobs were changed"
    )  # only dead ones, unless told
    dry = here.out("jobs", "retry", "--state", "cancelled", "--since", "1h", "--dry-run")
    assert dry == "would retry 3 jobs; nothing was changed"
    assert len(here.json("jobs", "list", "--state", "cancelled")) == 3
    assert here.json("jobs", "retry", "--state", "cancelled", "--yes") == {"matched": 3, "changed": 3, "dry_run": False}
    assert sorted(job["id"] for job in here.json("jobs", "list", "--state", "queued")) == sorted([*ids, other])


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_running_job_is_asked_to_stop(cli: Cli, here: Inside) -> None:
    worker = cli.start("worker", "--app", "shop")
    job_id = here.out("enqueue", "linger", f"file={cli.folder}/lingers", "--app", "shop")
    wait_until((cli.folder / "lingers").exists, "the job runs")
    assert "running on " in here.out("jobs", "show", job_id)
    assert here.out("jobs", "cancel", job_id) == "asked to stop 1 job"
    wait_until(lambda: here.json("jobs", "show", job_id)["state"] == "cancelled", "it stops")
    assert worker.stop() == 0


@each(
    "app, mine",
    [
        (["--defaults"], "0198a000-0000-7000-8000-000000000001"),
        (["--app", "shop"], "0198a000-0000-7000-8000-000000000002"),
    ],
    ids=["by name", "with its code"],
)
def test_enqueue_takes_every_option(inside: Inside, app: list[str], mine: str) -> None:
    words = ["--args", '{"a": 1}', "b=3", "--queue", "q", "--priority", "-5", "--delay", "1h", "--owner", "ana"]
    words += ["--expires-at", "2090-01-01T00:00:00Z", "--tag", "x", "--tag", "y", "--job-id", mine]
    words += ["--max-attempts", "9"]
    told = inside.json("enqueue", "add", *words, *app)
    assert (told["id"], told["created"]) == (mine, True)
    assert inside.json("enqueue", "add", "a=5", "--job-id", mine, *app)["created"] is False
    job = inside.json("jobs", "show", mine)
    assert job["args"] == {"a": 1, "b": 3}
    assert (job["queue"], job["priority"], job["owner"], job["tags"]) == ("q", -5, "ana", ["x", "y"])
    assert (job["max_attempts"], job["expires_at"]) == (9, "2090-01-01T00:00:00Z")
    assert job["explain"]["reason"] == "time"


def test_waiting_ends_when_the_time_is_up(inside: Inside) -> None:
    line = inside.error("enqueue", "add", "a=1", "--defaults", "--wait", "--timeout", "100ms", code=1)
    assert "has not finished after 0.1 s" in line


def test_prune_says_what_it_removed(here: Inside) -> None:
    assert here.out("jobs", "prune") == "removed 0 jobs, 0 attempts, 0 keys"
    assert here.json("jobs", "prune")["jobs"] == 0


def test_what_the_command_line_does_is_in_the_audit(inside: Inside, folder: Path) -> None:
    job = inside.out("enqueue", "add", "a=1", "--app", "shop")
    inside.out("jobs", "cancel", "--state", "queued", "--yes")
    inside.out("jobs", "retry", job)
    inside.out("queues", "pause", "default")
    inside.out("sources", "pause", "domain")

    async def entries() -> list[audit.AuditEntry]:
        store = await open_store(f"sqlite:///{folder}/inside.db")
        try:
            return await store.run(audit.entries(10))
        finally:
            await store.close()

    found = asyncio.run(entries())
    assert [(one.action, one.count) for one in reversed(found)] == [
        ("jobs.create", 1),
        ("jobs.cancel", 1),
        ("jobs.retry", 1),
        ("queues.pause", 1),
        ("sources.pause", 1),
    ]
    assert {one.via for one in found} == {"cli"}
    assert all("@" in one.who for one in found)


@each("action", ["cancel", "retry"])
@each("by_filter", [True, False])
def test_a_bad_row_is_named_and_the_other_jobs_are_changed(
    inside: Inside, folder: Path, action: str, by_filter: bool
) -> None:
    database = f"sqlite:///{folder}/inside.db"
    queue = f"{action}-{by_filter}"  # of this row alone
    ids = [inside.out("enqueue", "elsewhere", "--queue", queue, "--app", "shop") for _ in range(3)]
    if action == "retry":
        inside.run("jobs", "cancel", *ids)
    which = ["--queue", queue, "--yes", *(["--state", "cancelled"] if action == "retry" else [])] if by_filter else ids
    with refused(database, "jobs_live" if action == "retry" else "jobs_finished", "id", ids[1]):
        done = inside.run("jobs", action, *which, code=4)
        assert done.stdout == f"{'cancelled' if action == 'cancel' else 'retried'} 2 jobs\n"
        assert f"rowlock: job {ids[1]} stays as it is: {action} failed for its row: " in done.stderr
        assert "a bad row" in done.stderr
    (left,) = inside.json("jobs", "list", "--queue", queue, "--state", "cancelled" if action == "retry" else "queued")
    assert left["id"] == ids[1]
