"""The worker in Node of examples/node-worker that speaks SQL: real processes against a real server."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from support.servers.node import example, node

PATIENCE = 120.0  # far above what it takes, for a busy machine


@pytest.fixture
def engine() -> str:
    return "postgres"


class Crew:
    """Workers in Node, and the database that they share."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.script = url, example("node-worker", folder) / "sql_worker.mjs"
        self.folder, self.processes = folder, list[subprocess.Popen[bytes]]()
        self.sql = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def start(self, **settings: Any) -> subprocess.Popen[bytes]:
        given = {"POLL_MS": 50} | settings
        env = os.environ | {"DATABASE_URL": self.url} | {name: str(value) for name, value in given.items()}
        with open(self.folder / f"{len(self.processes)}.log", "wb") as log:
            process = subprocess.Popen([node(), str(self.script)], env=env, stdout=log, stderr=subprocess.STDOUT)
        self.processes.append(process)
        return process

    def log(self) -> list[dict[str, Any]]:
        """What all of them have said, line by line."""
        texts = [(self.folder / f"{n}.log").read_text() for n in range(len(self.processes))]
        return [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]

    def enqueue(self, task: str, args: dict[str, Any], **options: Any) -> Any:
        made = self.sql.execute(
            "SELECT rowlock.enqueue(%s, %s, %s) AS id", [task, json.dumps(args), json.dumps(options)]
        )
        (row,) = made.fetchall()
        return row["id"]

    def job(self, job_id: Any) -> dict[str, Any]:
        (row,) = self.sql.execute("SELECT * FROM rowlock.jobs WHERE id = %s", [job_id]).fetchall()
        return row

    async def until(self, what: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE
        while not (found := what()):
            assert time.monotonic() < end, f"waited in vain; {self.log()[-20:]}"
            await asyncio.sleep(0.05)
        return found

    async def until_state(self, job_id: Any, *states: str) -> dict[str, Any]:
        await self.until(lambda: self.job(job_id)["state"] in states)
        return self.job(job_id)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(30)
        self.sql.close()


@pytest.fixture
def crew(database: str, tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(database, tmp_path)
    yield crew
    crew.close()


async def test_jobs_of_a_node_worker_succeed_fail_report_progress_and_are_cancelled(crew: Crew) -> None:
    worker = crew.start()
    added = crew.enqueue("node.add", {"a": 2, "b": 3})
    refused = crew.enqueue("node.refuse", {"reason": "no such page"})
    failed = crew.enqueue("node.fail", {"reason": "down"}, backoff={"kind": "fixed", "base": 600})
    slow = crew.enqueue("node.slow", {"steps": 3, "ms": 10}, owner="ana")
    endless = crew.enqueue("node.slow", {"steps": 100000, "ms": 50})
    done = await crew.until_state(added, "succeeded")
    assert (done["result"], done["attempt"]) == ({"sum": 5}, 1)
    dead = await crew.until_state(refused, "dead")
    assert (dead["error_code"], dead["error_message"]) == ("Permanent", "no such page")
    waits = await crew.until_state(failed, "retryable")
    assert (waits["error_code"], waits["error_message"]) == ("Error", "down")
    assert (await crew.until_state(slow, "succeeded"))["result"] == {"steps": 3}
    told = crew.sql.execute(
        "SELECT progress, message FROM rowlock.events WHERE type = 'job.progress' ORDER BY id"
    ).fetchall()
    assert told == [{"progress": p, "message": f"step {n} of 3"} for n, p in ((1, 33), (2, 67), (3, 100))]
    await crew.until(lambda: crew.job(endless)["progress"] is not None)
    crew.sql.execute("SELECT rowlock.cancel(%s)", [endless])
    assert (await crew.until_state(endless, "cancelled"))["result"] is None
    # A reply that was lost makes a worker repeat itself: the first one counts.
    late = crew.sql.execute("SELECT rowlock.complete(%s, %s, '7') AS answer", [added, done["settled_token"]]).fetchone()
    assert late == {"answer": "duplicate"}
    assert crew.job(added) == done
    worker.send_signal(signal.SIGTERM)
    await crew.until(lambda: worker.poll() is not None)
    assert worker.returncode == 0


async def test_a_worker_that_is_killed_in_the_middle_loses_no_job_and_no_try(crew: Crew) -> None:
    first = crew.start(LEASE_SECONDS=2)
    job_id = crew.enqueue("node.slow", {"steps": 40, "ms": 50}, max_attempts=1)
    await crew.until(lambda: crew.job(job_id)["progress"] is not None)
    first.kill()
    crew.start(LEASE_SECONDS=10)  # a busy machine must not take the job from it
    row = await crew.until_state(job_id, "succeeded", "dead")
    assert (row["state"], row["attempt"], row["losses"], row["result"]) == ("succeeded", 2, 1, {"steps": 40})
    ended = crew.sql.execute("SELECT attempt, outcome, error_code FROM rowlock.attempts").fetchall()
    assert ended == [{"attempt": 1, "outcome": "lost", "error_code": "WORKER_LOST"}]


async def test_a_worker_that_was_frozen_past_its_lease_changes_nothing(crew: Crew) -> None:
    frozen = crew.start(LEASE_SECONDS=2)
    job_id = crew.enqueue("node.slow", {"steps": 40, "ms": 50})
    await crew.until(lambda: crew.job(job_id)["progress"] is not None)
    frozen.send_signal(signal.SIGSTOP)
    crew.start(LEASE_SECONDS=10)
    await crew.until(lambda: crew.job(job_id)["attempt"] == 2)
    frozen.send_signal(signal.SIGCONT)
    row = await crew.until_state(job_id, "succeeded", "dead")
    assert (row["state"], row["attempt"]) == ("succeeded", 2)
    ends = await crew.until(lambda: len([line for line in crew.log() if line["event"] == "ended"]) == 2 and crew.log())
    assert sorted(line["answer"] for line in ends if line["event"] == "ended") == ["applied", "lost"]
    assert crew.job(job_id) == row


async def test_a_worker_that_is_stopped_gives_its_jobs_back_at_no_try(crew: Crew) -> None:
    worker = crew.start()
    job_id = crew.enqueue("node.slow", {"steps": 100000, "ms": 50}, max_attempts=1)
    await crew.until(lambda: crew.job(job_id)["progress"] is not None)
    worker.send_signal(signal.SIGTERM)
    await crew.until(lambda: worker.poll() is not None)
    row = crew.job(job_id)
    # A claim that was under way when the signal came may have taken it once more.
    assert (row["state"], row["attempt"] - row["releases"]) == ("queued", 0)
