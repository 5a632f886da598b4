"""EXPLAIN: what a dashboard asks about charts, failures, batches and schedules goes through an index, past 10,000 rows
in each of the tables."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rowlock.store.engine.statements import bind, load
from rowlock.store.read.filter import LAST_ID
from support.rigs.rig import Rig, numbered

ROWS = 10_000
NOW = datetime(2026, 1, 21, tzinfo=UTC)  # the filled rows are one minute apart and end there
SINCE = NOW - timedelta(hours=1)

SERIES = {
    "postgres": "generate_series(1, {n}) n",
    "sqlite": "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {n}) SELECT n FROM s)",
}
WORDS = {
    "postgres": {
        "at": "timestamptz '2026-01-21' - ({n} - n) * interval '1 minute'",
        "id": "('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid",
        "later": "timestamptz '2100-01-01'",
    },
    "sqlite": {
        "at": "1768953600.0 - ({n} - n) * 60",
        "id": "printf('00000000-0000-7000-8000-%012x', n)",
        "later": "4102444800.0",
    },
}
FILL = (
    "INSERT INTO {t}rollups SELECT 60, {at}, 'q' || (n % 5), 't', 'succeeded', 1, 1, 1, 0.1, 0.1 FROM {series}",
    "INSERT INTO {t}queue_samples (at, queue, ready, waiting, running) SELECT {at}, 'q', 1, 1, 1 FROM {series}",
    "INSERT INTO {t}attempts (job_id, attempt, outcome, finished_at, task, queue)"
    " SELECT {id}, 1, 'failed', {at}, 't', 'q' FROM {series}",
    "INSERT INTO {t}batches (id, name, created_at) SELECT {id}, 'b', {at} FROM {series}",
    "INSERT INTO {t}batch_counts (batch_id, shard, total, processed, failed, cancelled) SELECT {id}, 1, 1, 1, 0, 0"
    " FROM {series}",
    "INSERT INTO {t}ticks (schedule_id, tick, job_id, fired_at)"
    " SELECT 's' || (n % 100), {at}, {id}, {at} FROM {series}",
    "INSERT INTO {t}sources (name, opened_at) SELECT 'api:' || n, CASE WHEN n <= 5 THEN {at} END FROM {series}",
    "INSERT INTO {t}schedules (id, task, args, rule, zone, queue, max_attempts, origin, writer_started_at, declared_at,"
    " next_tick, problem, created_at, updated_at) SELECT 's' || n, 't', '[]', '* * * * *', 'UTC', 'q', 1, 'code', {at},"
    " {at}, {later}, CASE WHEN n <= 5 THEN 'no' END, {at}, {at} FROM {series}",
)
CHART: dict[str, Any] = {"what": "run", "seconds": 60, "since": SINCE, "queue": None, "task": None}
# Statement, its parameters, and the tables that it must not read from end to end.
ASKED: tuple[tuple[str, dict[str, Any], str], ...] = (
    *((name, CHART, "rollups") for name in ("ends_by_time", "ends_by_queue", "buckets_by_time")),
    ("spread_by_queue", CHART, "rollups"),
    ("samples", {"since": SINCE, "queue": None, "n": 5_000}, "queue_samples"),
    ("failures", CHART | {"width": 150.0, "n": 5_000}, "attempts"),
    ("oldest_failure", {"since": SINCE, "skip": 5_000}, "attempts"),
    ("error_codes", {"n": 2_000}, "attempts"),
    ("read_batch", {"batch_id": numbered(7)}, "batches batch_counts"),
    ("list_batches", {"n": 50, "batch_id": LAST_ID, "owner": None, "state": None}, "batches batch_counts"),
    ("ticks_of", {"id": "s7", "n": 30}, "ticks"),
    ("panel_marks", {"n": 50, "most": 10_000}, "attempts"),
    ("closed_sources", {"n": 1_000}, "sources"),
    ("troubled_schedules", {"n": 1_000}, "schedules"),
    ("list_schedules", {"n": 25, "id": "", "only": None}, "ticks"),
)


async def plan(rig: Rig, statement: str, params: dict[str, Any]) -> str:
    query = load(rig.store.engine)[statement]
    words = {"postgres": "EXPLAIN", "sqlite": "EXPLAIN QUERY PLAN"}[rig.store.engine]
    async with rig.store.transaction() as tx:
        rows = await tx.fetch(f"{words} {query.sql}", *bind(query, params, None))
    return "\n".join(str(row[-1]) for row in rows)


def walks(text: str, sql: str, tables: str) -> list[str]:
    """The tables among these that the plan reads from end to end, without an index that says in which order."""
    found = []
    for table in tables.split():
        # SQLite prints the alias of a table, if it has one.
        aliases = set(re.findall(rf"rowlock_{table} (\w)\b", sql)) | {f"rowlock_{table}"}
        scans = [rf"SCAN {alias}(?! USING (?:COVERING )?INDEX)" for alias in aliases]
        found += re.findall("|".join([rf"Seq Scan on {table}\b", *scans]), text)
    return found


async def test_what_a_dashboard_asks_goes_through_an_index(rig: Rig) -> None:
    engine, prefix = rig.store.engine, {"postgres": "rowlock.", "sqlite": "rowlock_"}[rig.store.engine]
    words = {"t": prefix, "series": SERIES[engine], **WORDS[engine]}
    async with rig.store.transaction() as tx:
        for statement in FILL:
            await tx.execute(statement.format(**words).replace("{n}", str(ROWS)))
    await rig.fetch("ANALYZE")
    for name, params, tables in ASKED:
        text = await plan(rig, name, params)
        assert walks(text, load(engine)[name].sql, tables) == [], f"{name}:\n{text}"


READY = """
INSERT INTO rowlock.jobs_live (id, task, queue, ready, args, source, max_attempts, run_after, created_at, updated_at)
SELECT {id}, 't', 'q', TRUE, '{{}}', 'api:' || (n % 500), 1, {at}, {at}, {at} FROM {series}
"""


def read_by(node: dict[str, Any]) -> Iterator[int]:
    """How many rows each scan of the live jobs has read, in a plan of PostgreSQL that was carried out."""
    if node.get("Relation Name") == "jobs_live":
        yield int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
    for inner in node.get("Plans", ()):
        yield from read_by(inner)


@pytest.mark.parametrize("engine", ["postgres"])
async def test_which_queues_wait_for_closed_sources_is_found_without_reading_all_ready_jobs(rig: Rig) -> None:
    query = load("postgres")["held_queues"]
    async with rig.store.transaction() as tx:
        words = {"series": SERIES["postgres"], **WORDS["postgres"]}
        await tx.execute(READY.format(**words).replace("{n}", str(ROWS)))
    await rig.fetch("ANALYZE")
    asked = [("api",), *((f"api:{n}",) for n in range(49))]
    async with rig.store.transaction() as tx:
        values = bind(query, {"asked": asked, "n": 100}, None)
        assert len(await tx.fetch(query.sql, *values)) == len(asked)
        ((text,),) = await tx.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {query.sql}", *values)
    (found,) = json.loads(text) if isinstance(text, str) else text
    assert sum(read_by(found["Plan"])) < 1_000
