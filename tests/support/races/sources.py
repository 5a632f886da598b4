"""A race for sources: limits in the database, an observer beside the workers, and what the claims say afterwards.

A claim is an attempt as the database has written it: from the moment for which its source was asked (`locked_at`) to
the moment of its outcome. A claim counts what runs after all outcomes before it have been committed, so if any moment
lies in more than k of these spans, more than k were let in.
"""

import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import apsw
import psycopg

from rowlock.core.sources.admission import class_of
from rowlock.core.sources.policy import check_policy
from rowlock.store.sources.sources import set_policy
from support.races.rig import LEASE, SWEEP, Race, Worker, until

SLACK = 3.0  # a busy machine may stand still for that long
RECOVERY = LEASE + 1.2 * SWEEP + SLACK  # sweeps come up to a fifth later than said
WINDOWS = (1.0, 5.0, 30.0)


class Claim(NamedTuple):
    """One attempt of a job with a source."""

    source: str
    job: str
    attempt: int
    start: float
    end: float
    outcome: str
    worker: str


class Breaker(NamedTuple):
    """Of a source, now."""

    opened: float  # when; None if it is closed
    opens: int  # how often in a row


class SourceWorker(Worker):
    """A worker process that knows the tasks of race_source_tasks, too."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        self.name, self._log, self._counters = name, folder / f"{name}.log", folder / f"{name}.json"
        environment = environment | {"RACE_COUNTERS": str(self._counters), "RACE_SERVICE": str(folder / "service")}
        command = [sys.executable, "-m", "support.races.source_tasks"]
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)


class SourceRace(Race):
    """Workers on one database whose jobs have sources."""

    def start(self, url: str | None = None, env: dict[str, str] | None = None, **settings: Any) -> Worker:
        name = f"worker-{len(self.workers) + 1}"
        worker = SourceWorker(name, self.folder, self.environment(url, **settings) | (env or {}))
        self.workers.append(worker)
        return worker

    def service(self, how: str) -> None:
        """From now on the service is up, down or silent."""
        (self.folder / "service.new").write_text(how)
        (self.folder / "service.new").rename(self.folder / "service")

    async def policy(self, name: str, **changes: object) -> None:
        """As `app.sources.set` does."""
        await self.store.run(set_policy(name, check_policy(name, changes)))

    def _moment(self, column: str) -> str:
        return column if self.sqlite else f"CAST(extract(epoch FROM {column}) AS double precision)"

    def claims(self) -> list[Claim]:
        """Every attempt of a job with a source, once all jobs have ended; in the order of their claims."""
        start, end = self._moment("f.started_at"), self._moment("f.finished_at")
        found = self.query(
            f"SELECT f.source, f.id, f.attempt, {start}, {end}, f.state, f.last_worker FROM {{t}}jobs_finished f"
            " WHERE f.source IS NOT NULL AND f.state = 'succeeded'"
        )
        start, end = self._moment("a.started_at"), self._moment("a.finished_at")
        found += self.query(
            f"SELECT f.source, f.id, a.attempt, {start}, {end}, a.outcome, a.worker FROM {{t}}attempts a"
            " JOIN {t}jobs_finished f ON f.id = a.job_id WHERE f.source IS NOT NULL"
        )
        return sorted((Claim(source, str(job), *rest) for source, job, *rest in found), key=lambda claim: claim.start)

    def breaker(self, source: str) -> Breaker:
        """How it stands."""
        opened = self._moment("opened_at")
        return Breaker(*self.query(f"SELECT {opened}, opens FROM {{t}}sources WHERE name = %s", source)[0])

    def holds(self, worker: Worker) -> bool:
        """Whether a worker holds a job with a source, dead or alive."""
        found = self.query("SELECT locked_by FROM {t}jobs_live WHERE state = 'running' AND source IS NOT NULL")
        return any(f"-{worker.pid}-" in holder for (holder,) in found)

    async def kill_a_holder(self, among: list[Worker]) -> tuple[Worker, float]:
        """kill -9 one of these workers in the middle of a job with a source; and the time of it."""
        await until(lambda: any(map(self.holds, among)), 15, self.story)
        victim = next((worker for worker in among if self.holds(worker)), among[0])
        victim.kill()
        return victim, time.time()


def most_at_once(claims: Iterable[Claim]) -> int:
    """The largest number of claims that any moment lies in."""
    most = running = 0
    for _, step in sorted([edge for claim in claims for edge in ((claim.start, 1), (claim.end, -1))]):
        running += step
        most = max(most, running)
    return most


def by_source(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Claims of each source, and of each class under its name."""
    grouped: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        grouped[claim.source].append(claim)
        grouped[class_of(claim.source)].append(claim)
    return grouped


def too_often(starts: list[float], per_second: float, burst: int) -> list[str]:
    """Windows in which a bucket gave more than it can have held."""
    starts = sorted(starts)
    found = []
    for window in WINDOWS:
        allowed = burst + per_second * window + 1e-6
        for first, start in enumerate(starts):
            count = sum(1 for other in starts[first:] if other <= start + window)
            if count > allowed:
                found.append(f"{count} in the {window:g} s from {start:.3f}, and {allowed:g} are allowed")
    return found


class Observer:
    """Counts running jobs by source, expired or not, from a thread and a connection of its own, over and over."""

    QUERY = "SELECT source, count(*) FROM {t}jobs_live WHERE state = 'running' AND source IS NOT NULL GROUP BY source"

    def __init__(self, url: str) -> None:
        self._url, self._over = url, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.samples, self.most, self.error = 0, Counter[str](), ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(10)

    def _watch(self) -> None:
        try:
            connection: Any
            if self._url.startswith("sqlite"):
                query = self.QUERY.replace("{t}", "rowlock_")
                connection = apsw.Connection(self._url.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)
            else:
                query = self.QUERY.replace("{t}", "rowlock.")
                connection = psycopg.connect(self._url, autocommit=True)
            while not self._over.wait(0.003):
                self._note(connection.execute(query).fetchall())
            connection.close()
        except Exception as error:
            self.error = repr(error)

    def _note(self, rows: Iterable[tuple[str, int]]) -> None:
        classes = Counter[str]()
        for source, count in rows:
            self.most[source] = max(self.most[source], count)
            classes[class_of(source)] += count
        for name, count in classes.items():
            self.most[name] = max(self.most[name], count)
        self.samples += 1
