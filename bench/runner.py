"""What every measure runs on: one server, a fresh database for each run, and the adapters' processes."""

import dataclasses
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.catalog import CANDIDATES, Candidate, Described
from bench.plan import Plan
from bench.processes import Broken, Child, Children, Worker
from bench.results import Results
from bench.server import SERVER_SETTINGS, disk_folder, start_server


@dataclass(frozen=True)
class Run:
    """One thing to measure, again in every round."""

    label: str
    system: Described
    once: Callable[[int], None]  # is given the number of the round
    rounds: int


class Bench:
    """One run of the whole bench or of a part of it."""

    def __init__(self, plan: Plan, wanted: Sequence[str] = (), candidates: Sequence[Candidate] = CANDIDATES) -> None:
        self.plan, self.results = plan, Results(plan.mode)
        self._wanted, self._candidates = wanted, candidates
        self._stack = ExitStack()
        self._children = Children()
        self._numbers = iter(range(1_000_000))
        self._prepared: dict[tuple[str, str], Any] = {}
        self._began = time.monotonic()
        self.systems: list[Described] = []

    # --- life

    def __enter__(self) -> "Bench":
        folder = disk_folder()
        tempfile.tempdir = str(folder)  # the server's files go there too
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rowlock-bench-")))
        try:
            self.server = self._stack.enter_context(start_server())
            self._stack.callback(self._children.end)  # before the server goes
            self.systems = [found for one in self._candidates if (found := self._described(one))]
        except BaseException:
            self._stack.close()
            raise
        self.results.server = self.server_facts()
        self.results.systems = [dataclasses.asdict(system) for system in self.systems]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:6.1f} s] {text}", flush=True)

    # --- systems

    def on(self, engine: str, *names: str) -> list[Described]:
        """The systems on an engine, all of them or those named, as far as they are here."""
        return [one for one in self.systems if one.engine == engine and (not names or one.name in names)]

    def one(self, engine: str, name: str) -> Described:
        found = self.on(engine, name)
        if not found:
            raise Broken(f"{name} on {engine} is needed here and did not start")
        return found[0]

    def _described(self, candidate: Candidate) -> Described | None:
        if self._wanted and candidate.name not in self._wanted:
            return None
        try:
            if why := candidate.missing():
                raise Broken(why)
            # Nothing is opened; the URL only tells a system of two engines which one is meant.
            nowhere = self.server.url if candidate.engine == "postgres" else f"sqlite:///{self.folder / 'none.db'}"
            facts = self.run(candidate, "describe", nowhere)
        except Broken as error:
            if candidate.is_ours:
                raise
            self.say(f"without {candidate.name}: {error}")
            self.results.left_out[candidate.name] = str(error).splitlines()[0]
            return None
        own = {key: facts[key] for key in ("version", "settings", "left_sql")}
        return Described(**dataclasses.asdict(candidate), **own)

    # --- databases

    @contextmanager
    def database(self, system: Described, template: str = "") -> Iterator[str]:
        """The URL of a fresh database: with the system's tables, or a copy of one made by `as_template`."""
        number = next(self._numbers)
        if system.engine == "sqlite":
            with self._sqlite_file(system, number, template) as url:
                yield url
            return
        name = f"bench_{number}"
        url = self.server.create_database(name, template or self._template(system))
        try:
            yield url
        finally:
            self.server.drop_database(name)

    def _template(self, system: Described) -> str:
        name = f"template_{system.name}"
        if ("postgres", system.name) not in self._prepared:
            self.run(system, "setup", self.server.create_database(name))
            self._prepared["postgres", system.name] = name
        return name

    @contextmanager
    def as_template(self, system: Described) -> Iterator[tuple[str, str]]:
        """(name, URL) of a database to prepare and then to copy, for as long as the block lasts."""
        if system.engine == "sqlite":
            with self._sqlite_file(system, next(self._numbers)) as url:
                yield url.removeprefix("sqlite:///"), url
            return
        name = f"prepared_{next(self._numbers)}"
        url = self.server.create_database(name, self._template(system))
        try:
            yield name, url
        finally:
            self.server.drop_database(name)

    @contextmanager
    def _sqlite_file(self, system: Described, number: int, prepared: str = "") -> Iterator[str]:
        template = Path(prepared or self.folder / f"template-{system.name}.db")
        if not prepared and ("sqlite", system.name) not in self._prepared:
            self.run(system, "setup", f"sqlite:///{template}")
            self._prepared["sqlite", system.name] = template
        folder = self.folder / f"sqlite-{number}"
        folder.mkdir()
        for part in template.parent.glob(f"{template.name}*"):  # with what its WAL may still hold
            shutil.copy(part, folder / part.name.replace(template.name, "jobs.db"))
        try:
            yield f"sqlite:///{folder / 'jobs.db'}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def checkpoint(self) -> None:
        """Start the clock with nothing left to write from before, for every system alike."""
        self.query(self.server.url, "CHECKPOINT")

    def server_facts(self) -> dict[str, str]:
        names = [*SERVER_SETTINGS, "fsync", "synchronous_commit", "full_page_writes", "autovacuum", "max_connections"]
        return {name: str(self.query(self.server.url, f"SHOW {name}")) for name in ("server_version", *names)}

    # --- processes

    def start(self, system: Candidate, verb: str, url: str = "", **flags: Any) -> Child:
        """Start an adapter's verb; flags are named as the adapter names them."""
        arguments = [verb, *(("--url", url) if url else ()), *as_flags(flags)]
        child = Child(system, arguments, self.folder)
        self._children.add(child)
        return child

    def adopt(self, child: Child) -> None:
        """End this process too, whatever happens to the run."""
        self._children.add(child)

    def run(self, system: Candidate, verb: str, url: str = "", **flags: Any) -> dict[str, Any]:
        """Run an adapter's verb to its end and return what it said."""
        return self.start(system, verb, url, **flags).wait()

    @contextmanager
    def workers(
        self,
        system: Candidate,
        url: str,
        processes: int = 1,
        slots: int | None = None,
        kill: bool = False,
        **flags: Any,
    ) -> Iterator[list[Worker]]:
        """That many worker processes for as long as the block lasts; killed at its end if they hold long jobs."""
        started: list[Worker] = []
        try:
            for _ in range(processes):
                started.append(Worker(system, url, self.folder, slots or system.slots, as_flags(flags)))
                self._children.add(started[-1])
            yield started
        finally:
            for worker in started:
                if worker.alive:
                    (worker.process.kill if kill else worker.process.terminate)()
            for worker in started:
                worker.stop()

    def fill(self, system: Described, url: str, jobs: int, sleep_ms: int = 0, **flags: Any) -> int:
        """Enqueue that many in the fastest way there is; returns how many it became."""
        if system.has_bulk:
            self.run(system, "bulk", url, jobs=jobs, sleep_ms=sleep_ms, **flags)
            return jobs
        self.run(system, "enqueue", url, jobs=jobs, sleep_ms=sleep_ms)
        return jobs + 5  # five more warm the enqueue up

    def query(self, url: str, statement: str, *parameters: Any) -> Any:
        """Run one statement; the first column of its first row, if it returns rows."""
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)) as file:
                row = file.execute(statement, parameters).fetchone()
                return row[0] if row else None
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters or None)  # type: ignore[arg-type]
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

    # --- rounds

    def interleave(self, runs: Sequence[Run]) -> None:
        """Every run once a round, in another order each time. One that breaks is left out from then on."""
        broken: set[str] = set()
        for number in range(max((run.rounds for run in runs), default=0)):
            turn = number % max(1, len(runs))
            for run in [*runs[turn:], *runs[:turn]]:
                if number >= run.rounds or run.label in broken:
                    continue
                try:
                    run.once(number)
                except (Broken, psycopg.Error, sqlite3.Error) as error:
                    broken.add(run.label)
                    self.broken(f"{run.label}: {error}")

    def broken(self, why: str) -> None:
        self.say(f"BROKEN: {why}")
        # One line: what a program writes to stderr may name places of this machine.
        self.results.broken.append(f"{self.results.measure}: {why.splitlines()[0]}")

    def record(self, case: str, system: str, number: int, value: float, unit: str) -> None:
        self.results.add(case, system, number, value, unit)
        self.say(f"{self.results.measure}, {case}, round {number + 1}: {system} {shown(value, unit)}")


def shown(value: float, unit: str) -> str:
    """A number as people read it."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}".strip()


def as_flags(flags: dict[str, Any]) -> list[str]:
    return [part for key, value in flags.items() for part in (f"--{key.replace('_', '-')}", str(value))]
