"""Real processes: stopping gracefully, two workers and two dispatchers of which some are killed."""

import asyncio
import re
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from apps.cronjobs.readme import blocks, commands
from apps.engines import ONE_ENGINE
from cli.command import LIMIT, Background, Cli, wait_until
from rowlock import Rowlock
from rowlock_apps.cronjobs import cron_jobs
from rowlock_apps.cronjobs.app import make_app
from rowlock_apps.cronjobs.executions import Execution, get_executions

APP = ("--app", "rowlock_apps.cronjobs:app")
T = TypeVar("T")


@pytest.fixture
def cli(tmp_path: Path, url: str) -> Iterator[Cli]:
    made = Cli(tmp_path, url)
    yield made
    made.close()


def asked(url: str, question: Callable[[Rowlock], Coroutine[Any, Any, T]]) -> T:
    """Ask the app, in this process."""

    async def ask() -> T:
        async with make_app(url) as app:
            return await question(app)

    return asyncio.run(ask())


def executions(url: str) -> list[Execution]:
    return asked(url, lambda app: get_executions(limit=1000, app=app))


async def run_now(app: Rowlock, name: str, **params: Any) -> None:
    await cron_jobs.add(name, "sample", params, max_retry=0, cron="0 0 1 1 *", app=app)
    await app.schedules.run(name)


@ONE_ENGINE
def test_sigterm_stops_the_polling_waits_for_what_runs_and_then_gives_it_back(cli: Cli, url: str) -> None:
    """S2.29, S2.30: what finishes within the timeout is SUCCESS; what does not is PENDING again with no retry used up;
    nothing new is taken; the process ends."""

    async def fill(app: Rowlock) -> None:
        await run_now(app, "short", sleep_seconds=0.6)
        await run_now(app, "long", sleep_seconds=60)

    asked(url, fill)
    worker = cli.start("worker", *APP, "--shutdown-timeout-seconds", "6")
    worker.wait_for("claimed by", 2)
    worker.process.send_signal(signal.SIGTERM)
    worker.wait_for("stopping: finishing what runs")
    asked(url, lambda app: run_now(app, "late"))
    assert worker.process.wait(30) == 0, worker.log
    ended = {made.job_id: made for made in executions(url)}
    assert {name: str(made.status) for name, made in ended.items()} == {
        "short": "SUCCESS", "long": "PENDING", "late": "PENDING"
    }  # fmt: skip
    assert {made.retry_count for made in ended.values()} == {0}
    assert ended["late"].started_at is None


@ONE_ENGINE
def test_a_handler_that_ignores_the_stop_does_not_keep_the_process(cli: Cli, url: str) -> None:
    """S2.30: after the timeout the worker ends by force, whatever its handlers do."""
    asked(url, lambda app: run_now(app, "stubborn", sleep_seconds=60, stubborn=True))
    worker = cli.start("worker", *APP, "--shutdown-timeout-seconds", "0")
    worker.wait_for("claimed by")
    worker.process.send_signal(signal.SIGTERM)
    worker.wait_for("Worker stopped")
    (given_back,) = executions(url)
    assert (given_back.status, given_back.retry_count) == ("PENDING", 0)
    assert worker.process.wait(LIMIT) == 0  # half of what its handler takes


CRON = """
worker: {pool_size: 1, poll_interval_seconds: 0.5, heartbeat_seconds: 0.5, lease_seconds: 6, sweep_seconds: 0.5}
schedules:
  one: {handler_name: sample, handler_params: {sleep_seconds: 0.3}, every: 1s, missed: all, max_retry: 0}
  two: {handler_name: sample, handler_params: {sleep_seconds: 0.3}, every: 1s, missed: all, max_retry: 0}
  three: {handler_name: sample, handler_params: {sleep_seconds: 0.3}, every: 1s, missed: all, max_retry: 0}
"""


def test_two_workers_and_two_dispatchers_run_every_tick_once_also_when_some_are_killed(
    tmp_path: Path, postgres_url: str
) -> None:
    """S2.1, S2.6, S2.27, S2.35, S2.36: the README's commands for PostgreSQL. Every second has one execution of each
    cron job; each was claimed once, but for what a killed worker had in hand; no retry is used up."""
    with closing(Cli(tmp_path, postgres_url)) as cli:
        workers = run_and_kill(cli, postgres_url)
    found = executions(postgres_url)
    assert {str(made.status) for made in found} == {"SUCCESS"}
    for name in ("one", "two", "three"):
        ticks = sorted(made.scheduled_time for made in found if made.job_id == name)
        assert {(after - before).total_seconds() for before, after in pairwise(ticks)} == {1.0}, name
    assert {made.retry_count for made in found} == {0}
    judge(workers, found)


def run_and_kill(cli: Cli, url: str) -> list[Background]:
    """Start them all, kill a worker and a dispatcher, and stop the others when everything is done; the workers."""
    (export, migrate, *rest) = commands(blocks("sh")[2])
    assert export[1] == "ROWLOCK_DATABASE_URL=postgresql://user@host/db"
    assert "applied cronjobs/0001_views" in cli.out(*migrate[1:])
    assert [words[1] for words in rest] == ["worker", "worker", "dispatch", "dispatch"]
    (cli.folder / "cron.yaml").write_text(CRON)
    started = [cli.start(*words[1:], "--config", "cron.yaml") for words in rest]
    workers, dispatchers = started[:2], started[2:]
    wait_until(lambda: all("completed in" in worker.log for worker in workers), "both workers at work")
    for killed in (workers[0], dispatchers[0]):
        killed.stop(signal.SIGKILL)
    with psycopg.connect(url, autocommit=True) as sql:
        before = count(sql, "jobs")
        wait_until(lambda: count(sql, "jobs") >= before + 6, "more ticks of each")
        assert dispatchers[1].stop() == 0
        wait_until(lambda: count(sql, "jobs_live") == 0, "everything done")
    assert workers[1].stop() == 0
    return workers


def count(sql: psycopg.Connection[Any], table: str) -> int:
    return int(sql.execute(f"SELECT count(*) FROM rowlock.{table}").fetchone()[0])  # type: ignore[index]


def judge(workers: list[Background], found: list[Execution]) -> None:
    """Claims as the workers logged them: one each, and one more for what was lost with the killed worker."""
    logs = [worker.log for worker in workers]
    claims = Counter(job for log in logs for job in re.findall(r"Job (\S+) claimed by", log))
    done = Counter(job for log in logs for job in re.findall(r"Job (\S+) completed in", log))
    lost = {job for log in logs for job in re.findall(r"Job (\S+) reclaimed from", log)}
    assert {job for job, n in claims.items() if n > 1} <= lost
    assert set(claims) == {made.id for made in found}
    assert {job for job, n in done.items() if n > 1} <= lost, "it may have been done when the worker was killed"
