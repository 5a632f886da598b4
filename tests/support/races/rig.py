"""A race: one database, worker processes on it, and the ledger that their handlers write."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg

from rowlock.core.job import NewJob
from rowlock.store import Store, open_store
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.store import StoreOptions
from rowlock.store.jobs import enqueue as enqueue_jobs
from support.races import ledger as race_ledger
from support.races.ledger import Entry, Row

LEASE, BEAT, SWEEP, POLL, GRACE = 2.0, 0.5, 0.5, 0.5, 4.0
PATIENCE = 60.0  # for what must happen, and where nobody asks how soon: a busy machine takes its time
# For races that last for several leases and in which nobody may lose one: longer than a busy machine stands still.
LONG_LEASE = 6.0
# For races in which nobody dies and no lease may run out, however busy the machine is.
CALM = {"lease_seconds": 60.0, "heartbeat_seconds": 15.0}
SETTINGS = {
    "LEASE_SECONDS": LEASE,
    "HEARTBEAT_SECONDS": BEAT,
    "SWEEP_SECONDS": SWEEP,
    "POLL_INTERVAL_SECONDS": POLL,
    "SHUTDOWN_TIMEOUT_SECONDS": GRACE,
}
TESTS = Path(__file__).resolve().parents[2]
COLUMNS = "id, state, attempt, max_attempts, releases, losses, settled_token, error_code"


class Worker:
    """One worker process."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        self.name, self._log, self._counters = name, folder / f"{name}.log", folder / f"{name}.json"
        environment = environment | {"RACE_COUNTERS": str(self._counters)}
        command = [sys.executable, "-m", "support.races.worker"]
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def started(self) -> bool:
        return "Worker started" in self.log()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def counters(self) -> dict[str, int]:
        """What it counted, once it has stopped."""
        counted: dict[str, int] = json.loads(self._counters.read_text())
        return counted

    def send(self, number: signal.Signals) -> None:
        if self.alive:
            self.process.send_signal(number)

    def kill(self) -> None:
        """What the machine does to it."""
        self.send(signal.SIGKILL)
        self.process.wait(10)

    async def exit(self, within: float) -> int:
        """Its exit code; it must end within that time."""
        await until(lambda: not self.alive, within, lambda: f"worker {self.name} did not exit:\n{self.log()[-3000:]}")
        return int(self.process.returncode)

    async def stop(self, within: float = GRACE + 8) -> int:
        """SIGTERM and wait."""
        self.send(signal.SIGTERM)
        return await self.exit(within)


class Race:
    """Enqueues, starts workers, waits, reads."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.ledger = url, folder, folder / "ledger"
        self.workers: list[Worker] = []
        self.accepted: list[str] = []
        self.store: Store
        self._reader: Any = None

    @property
    def sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    async def open(self) -> None:
        self.store = await open_store(self.url, StoreOptions(connections=2))

    async def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self._forget_reader()
        await self.store.close()

    # --- workers

    def environment(self, url: str | None = None, **settings: Any) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROWLOCK_", "COV_"))}
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        given = SETTINGS | {"POOL_SIZE": 10} | {name.upper(): value for name, value in settings.items()}
        worker = {f"ROWLOCK_WORKER__{name}": str(value) for name, value in given.items()}
        return kept | worker | {
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "ROWLOCK_DATABASE_URL": url or self.url,
            "RACE_LEDGER": str(self.ledger),
        }  # fmt: skip

    def start(self, url: str | None = None, env: dict[str, str] | None = None, **settings: Any) -> Worker:
        """Start a worker; settings such as pool_size=1 are its own."""
        name = f"worker-{len(self.workers) + 1}"
        worker = Worker(name, self.folder, self.environment(url, **settings) | (env or {}))
        self.workers.append(worker)
        return worker

    async def started(self, *workers: Worker) -> None:
        """Wait until these workers work."""
        for worker in workers or self.workers:
            await until(lambda w=worker: w.started or not w.alive, PATIENCE, lambda w=worker: w.log())  # type: ignore[misc]
            assert worker.alive, worker.log()

    # --- the database

    async def enqueue(
        self, task: str, count: int = 1, /, *, options: dict[str, Any] | None = None, **args: Any
    ) -> list[str]:
        """Jobs that count as accepted once this has returned."""
        rows = [(new_id(), json.dumps(args)) for _ in range(count)]
        await self.store.run(enqueue_jobs.enqueue(rows, NewJob(task=task, **(options or {}))))
        self.accepted += [job_id for job_id, _ in rows]
        return [job_id for job_id, _ in rows]

    def query(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Rows, past everything that is tested; `{t}` is the prefix of the tables, parameters are %s."""
        if self.sqlite:
            if self._reader is None:
                self._reader = apsw.Connection(self.url.removeprefix("sqlite:///"))
                self._reader.set_busy_timeout(10_000)
            return [tuple(row) for row in self._reader.execute(sql.replace("{t}", "rowlock_").replace("%s", "?"), args)]
        try:
            if self._reader is None:
                self._reader = psycopg.connect(self.url, autocommit=True, connect_timeout=5)
            return self._on_postgres(sql, args)
        except psycopg.OperationalError:
            self._forget_reader()
            self._reader = psycopg.connect(self.url, autocommit=True, connect_timeout=5)
            return self._on_postgres(sql, args)

    def _on_postgres(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        cursor = self._reader.execute(sql.replace("{t}", "rowlock."), args)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def _writable(self) -> bool:
        """Whether nobody holds SQLite's lock for writing just now."""
        with closing(apsw.Connection(self.url.removeprefix("sqlite:///"))) as connection:
            connection.set_busy_timeout(100)
            try:
                connection.execute("BEGIN IMMEDIATE; ROLLBACK")
            except apsw.BusyError:
                return False
        return True

    def _forget_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def rows(self) -> dict[str, Row]:
        """Every job."""
        found = self.query(f"SELECT {COLUMNS} FROM {{t}}jobs")
        rows = {str(row[0]): Row(*row[1:6], token=str(row[6]) if row[6] else None, error_code=row[7]) for row in found}
        twice = (
            [row for row in found if sum(row[0] == other[0] for other in found) > 1] if len(rows) < len(found) else []
        )
        assert not twice, f"a job has two rows: {twice[:4]}\n{self.story()}"
        return rows

    def row(self, job_id: str) -> Row:
        return self.rows()[job_id]

    def states(self) -> Counter[str]:
        return Counter({str(state): n for state, n in self.query("SELECT state, count(*) FROM {t}jobs GROUP BY state")})

    def live(self) -> int:
        return int(self.query("SELECT count(*) FROM {t}jobs_live")[0][0])

    def attempts(self) -> list[tuple[str, int, str]]:
        """(job, attempt, outcome) of the attempts that did not succeed."""
        found = self.query("SELECT job_id, attempt, outcome FROM {t}attempts")
        return [(str(job), attempt, outcome) for job, attempt, outcome in found]

    def claimed(self) -> dict[tuple[str, int], float]:
        """When each of those attempts was claimed, in the time of the ledger."""
        since_boot = race_ledger.boottime() - time.time()
        seconds = "started_at" if self.sqlite else "extract(epoch FROM started_at)::float8"
        found = self.query(f"SELECT job_id, attempt, {seconds} FROM {{t}}attempts WHERE started_at IS NOT NULL")
        return {(str(job), attempt): at + since_boot for job, attempt, at in found}

    def settled(self) -> dict[tuple[str, int], float]:
        """When the holder of each of those leases has written how its attempt ended. Not what a sweeper wrote, whose
        moment is what is judged."""
        since_boot = race_ledger.boottime() - time.time()
        seconds = "finished_at" if self.sqlite else "extract(epoch FROM finished_at)::float8"
        found = self.query(
            f"SELECT job_id, attempt, {seconds} FROM {{t}}attempts WHERE outcome <> 'lost' OR error_code = 'CHILD_DIED'"
        )
        return {(str(job), attempt): at + since_boot for job, attempt, at in found}

    def entries(self) -> list[Entry]:
        return race_ledger.read(self.ledger)

    def noted(self, kind: str, job: str | None = None) -> list[Entry]:
        """What handlers wrote down, of one kind."""
        return [entry for entry in self.entries() if entry.kind == kind and job in (None, entry.job)]

    # --- waiting and judging

    async def until_done(self, within: float, keep_alive: Callable[[], Any] | None = None) -> None:
        """Wait until no job is live, this long or as long as a busy machine may take."""

        def done() -> bool:
            if keep_alive:
                keep_alive()
            return self.live() == 0

        await until(done, max(within, PATIENCE), self.story, pause=0.05)

    async def until_noted(
        self, kind: str, count: int = 1, within: float = PATIENCE, job: str | None = None
    ) -> list[Entry]:
        """Wait for lines in the ledger."""
        await until(lambda: len(self.noted(kind, job)) >= count, within, self.story)
        return self.noted(kind, job)

    async def until_at_work(self, worker: Worker, kept: int = 50) -> None:
        """Wait until this worker has begun more jobs than it has ended. There is always something for it to begin: the
        others may be quicker."""

        async def at_work() -> bool:
            if self.live() < kept:
                await self.enqueue("work", kept, ms=400, options={"max_attempts": 1})
            mine = Counter(entry.kind for entry in self.entries() if entry.worker == str(worker.pid))
            return mine["start"] > mine["end"]

        await until(at_work, PATIENCE, self.story)

    def story(self) -> str:
        """Where everything stands, for a failure."""
        left = self.query(
            "SELECT id, task, state, attempt, losses, releases, locked_by, ready FROM {t}jobs_live LIMIT 5"
        )
        logs = "\n".join(f"--- {w.name} ({w.process.poll()})\n{w.log()[-1500:]}" for w in self.workers[-4:])
        return f"{dict(self.states())}\nlive: {left}\n{logs}"

    def judge(self, state: str | None = "succeeded") -> None:
        """Fail with what the checker found, and unless every job ended in that state."""
        rows = self.rows()
        found = race_ledger.problems(self.accepted, self.entries(), rows, LEASE, self.claimed(), self.settled())
        assert not found, f"{len(found)} problems: {found[:5]}\n{self.story()}"
        if state is not None:
            wrong = {job: rows[job] for job in self.accepted if rows[job].state != state}
            assert not wrong, f"{len(wrong)} not {state}: {list(wrong.items())[:5]}\n{self.story()}"

    def check_numbers(self) -> None:
        """The counters, the rollups of each minute and the rows themselves say the same."""
        rows = Counter(
            {state: int(n) for state, n in self.query("SELECT state, count(*) FROM {t}jobs_finished GROUP BY 1")}
        )
        outcomes = self.query("SELECT outcome, count(*) FROM {t}attempts GROUP BY 1")
        rows.update({f"attempt.{outcome}": int(number) for outcome, number in outcomes})
        for table in ("counters", "rollups WHERE seconds = 60", "rollups WHERE seconds = 3600"):
            summed = f"SELECT what, number FROM {{t}}{table} UNION ALL SELECT what, number FROM {{t}}tallies"
            told = Counter(
                {what: int(n) for what, n in self.query(f"SELECT what, sum(number) FROM ({summed}) c GROUP BY 1")}
            )
            assert told == rows, f"{table}: {told} != {rows}"

    @contextmanager
    def frozen(self, worker: Worker) -> Iterator[None]:
        """A worker that gets no time, as on a machine that is paused. On SQLite not while it holds the one lock for
        writing: then nobody else could do anything."""
        deadline = time.monotonic() + PATIENCE
        worker.send(signal.SIGSTOP)
        while self.sqlite and not self._writable():
            worker.send(signal.SIGCONT)
            assert time.monotonic() < deadline, f"the worker holds the lock all the time\n{self.story()}"
            time.sleep(0.01)
            worker.send(signal.SIGSTOP)
        try:
            yield
        finally:
            worker.send(signal.SIGCONT)


async def until(
    holds: Callable[[], bool | Awaitable[bool]], within: float, story: Callable[[], str], pause: float = 0.02
) -> float:
    """Wait until a condition holds; answers the seconds that took. Fails with the story when time is up."""
    began = time.monotonic()
    while True:
        held = holds()
        if held if isinstance(held, bool) else await held:
            return time.monotonic() - began
        if time.monotonic() - began > within:
            raise AssertionError(f"not within {within:g} s: {story()}")
        await asyncio.sleep(pause)
