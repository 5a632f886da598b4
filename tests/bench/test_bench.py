"""The bench's own arithmetic, and one adapter from end to end: figures that nobody checks are worth nothing."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.adapter import Tally, read_tally
from bench.drivers import read_claims
from bench.measures import MEASURES
from bench.processes import environment
from bench.report import TITLES
from bench.results import Results
from bench.stats import paired, percentile, spread
from bench.targets import judge, targets
from support.each import each

ROOT = Path(__file__).parents[2]


def test_ratios_are_taken_within_a_round() -> None:
    # The second round was twice as slow for both: no ratio may mix it with another round.
    assert paired({0: 100.0, 1: 50.0, 2: 90.0}, {0: 50.0, 1: 25.0}) == [2.0, 2.0]
    assert paired({0: 1.0}, {1: 1.0}) == []


def test_the_median_decides_and_the_extremes_are_shown() -> None:
    found = spread([3.0, 1.0, 10.0])
    assert found is not None
    assert (found.median, found.low, found.high, found.rounds) == (3.0, 1.0, 10.0, 3)
    assert spread([]) is None


@each("share, value", [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_percentile_is_the_value_at_that_share_of_the_sorted_values(share: float, value: float) -> None:
    assert percentile(range(1, 101), share) == value


def test_a_tally_is_read_by_another_process(tmp_path: Path) -> None:
    slot, latencies = tmp_path / "slot", tmp_path / "latencies"
    assert read_tally(slot) == (0, 0, 0)
    tally = Tally(slot, latencies)
    began = time.monotonic_ns()
    tally.handled(sent_ns=began)
    tally.handled()
    assert read_tally(slot)[0] == 0  # not before it is published
    tally.publish()
    count, first, last = read_tally(slot)
    assert count == 2
    assert began <= first <= last
    assert latencies.stat().st_size == 8  # one was sent with a time


def test_every_target_is_about_a_measure_that_runs_and_is_reported() -> None:
    assert {target.value.measure for target in targets()} <= MEASURES.keys()
    assert MEASURES.keys() == TITLES.keys()
    assert len({target.id for target in targets()}) == len(targets())


@each(
    "number, top, bottom, word",
    [
        ("10a", 79.0, 100.0, "missed"),
        ("10b", 81.0, 100.0, "met"),
        ("11a", 29.0, 100.0, "missed"),
        ("11b", 31.0, 100.0, "met"),
        ("13a", 69.0, 100.0, "missed"),
        ("13b", 71.0, 100.0, "met"),
        ("12a", 2.0, None, "met"),
        ("12f", 2.1, None, "missed"),
        ("14a", 17.0, 20.0, "missed"),
        ("14b", 18.0, 20.0, "met"),
        ("15a", 2.1, None, "missed"),
    ],
)
def test_a_target_of_sources_or_batches_is_met_only_within_its_bound(
    number: str, top: float, bottom: float | None, word: str
) -> None:
    results = Results("quick")
    target = next(target for target in targets() if target.id == number)
    results.begin(target.value.measure)
    results.add(target.value.case, "rowlock", 0, top, "")
    if bottom is not None:
        assert target.per is not None
        results.add(target.per.case, "rowlock", 0, bottom, "")
    verdict = next(verdict for verdict in judge(results) if verdict.target.id == number)
    assert verdict.word == word


def program(url: str, verb: str, *more: str) -> subprocess.Popen[str]:
    """An adapter of Rowlock."""
    command = [sys.executable, "-m", "bench.systems.rowlock_variants", verb, "--url", url, *more]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=-1, text=True)


def said(url: str, verb: str, *more: str) -> str:
    """What an adapter prints; it must end well."""
    running = program(url, verb, *more)
    text, _ = running.communicate(timeout=60)
    assert running.returncode == 0, verb
    return text


async def handled(worker: subprocess.Popen[str], slot: Path, jobs: int) -> None:
    """Let a worker handle as many jobs, and end it."""
    try:
        deadline = time.monotonic() + 30
        while read_tally(slot)[0] < jobs:
            assert time.monotonic() < deadline, f"{read_tally(slot)[0]} handled"
            await asyncio.sleep(0.02)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert read_tally(slot)[0] == jobs


def test_an_earlier_rowlock_is_found_before_the_installed_one(tmp_path: Path) -> None:
    (tmp_path / "rowlock").mkdir()
    (tmp_path / "rowlock" / "__init__.py").write_text("__version__ = 'earlier'")
    command = [sys.executable, "-c", "import bench, rowlock; print(rowlock.__version__)"]
    done = subprocess.run(command, env=environment(str(tmp_path)), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "earlier"


async def test_an_adapter_runs_as_a_program(tmp_path: Path) -> None:
    url, slot = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "slot"
    said(url, "setup")
    for verb, jobs in (("bulk", "300"), ("enqueue", "20")):
        assert json.loads(said(url, verb, "--jobs", jobs))["seconds"] > 0
    await handled(program(url, "work", "--slot-file", str(slot)), slot, 325)  # five of them to warm up


async def test_a_bulk_has_the_sources_the_batch_or_the_keys_that_are_asked_for(sqlite_url: str, tmp_path: Path) -> None:
    url, file = sqlite_url, tmp_path / "jobs.db"
    slot, statements = tmp_path / "slot", tmp_path / "statements"
    said(url, "bulk", "--jobs", "25", "--sources", "10", "--limit", "2")
    said(url, "bulk", "--jobs", "7", "--source", "api:paused", "--pause", "1")
    said(url, "bulk", "--jobs", "30", "--blocks", "pbp")
    assert json.loads(said(url, "keyed", "--jobs", "20"))["seconds"] > 0
    with sqlite3.connect(file) as reader:
        per_source = reader.execute("SELECT source, count(*) FROM rowlock_jobs_live GROUP BY source ORDER BY 2, 1")
        spread_over = dict(per_source.fetchall())
        assert spread_over == {
            "api:paused": 7,
            **{f"domain:{n}": 3 if n < 5 else 2 for n in range(10)},
            None: 50,
        }
        assert reader.execute("SELECT sum(total) FROM rowlock_batch_counts").fetchone() == (10,)
        assert reader.execute("SELECT count(DISTINCT key) FROM rowlock_job_keys").fetchone() == (20,)
        assert reader.execute("SELECT concurrency FROM rowlock_sources WHERE name = 'domain'").fetchone() == (2,)
    worker = program(url, "work", "--slot-file", str(slot), "--statements", str(statements))
    await handled(worker, slot, 75)  # all but those of the paused source
    begun, transactions = map(int, statements.read_text().split())
    assert begun > transactions > 5
    with sqlite3.connect(file) as reader:
        assert reader.execute("SELECT DISTINCT source FROM rowlock_jobs_live").fetchall() == [("api:paused",)]


async def test_a_steady_load_keeps_to_its_rate_and_a_source_gets_the_rate_asked_for(
    sqlite_url: str, tmp_path: Path
) -> None:
    url = sqlite_url
    steady = json.loads(said(url, "steady", "--rate", "200", "--seconds", "0.5"))
    assert 50 < steady["produced"] <= 200 * steady["seconds"]
    said(url, "bulk", "--jobs", "3", "--source", "api:open", "--rate", "60")
    with sqlite3.connect(tmp_path / "jobs.db") as reader:
        made = reader.execute("SELECT count(*) FROM rowlock_jobs_live GROUP BY source ORDER BY 1").fetchall()
        assert made == [(3,), (steady["produced"],)]
        assert reader.execute(
            "SELECT rate_limit_per_minute FROM rowlock_sources WHERE name = 'api:open'"
        ).fetchone() == (60,)


@pytest.mark.parametrize("engine", ["postgres"])
async def test_a_worker_times_its_claims(database: str, tmp_path: Path) -> None:
    slot, claims = tmp_path / "slot", tmp_path / "claims"
    said(database, "bulk", "--jobs", "40")
    began = time.monotonic()
    await handled(program(database, "work", "--slot-file", str(slot), "--claims", str(claims)), slot, 40)
    found = read_claims(claims)
    assert found
    assert all(began < moment - took < moment < time.monotonic() for moment, took in found)
