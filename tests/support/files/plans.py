"""Plans of the statements on both engines, in a database with 50,000 rows: what EXPLAIN says, and how it is asked."""

import json
import os
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import psycopg

from rowlock.core.times import FakeClock
from rowlock.store.engine import migrate
from rowlock.store.engine.dialects import SQLITE
from rowlock.store.engine.postgres.store import HOT
from rowlock.store.engine.sqlite.runner import bindable
from rowlock.store.engine.statements import Query, bind, load
from rowlock.store.jobs.claim import Range
from support.rigs.rig import numbered
from support.servers.postgres import PostgresDatabases

ROWS = 50_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "00000000-0000-4000-8000-000000000001"
BATCH = 100
FIRST_RUNNING, FIRST_FINISHED, FIRST_LATER, FIRST_SOURCED = 1_000_000, 2_000_000, 3_000_000, 4_000_000
BATCH_ID = "00000000-0000-7000-9000-000000000001"

BULK = """
INSERT INTO {t}jobs_live (
    id, task, queue, state, ready, priority, args, max_attempts, run_after, created_at, updated_at,
    attempt, lease_token, locked_by, locked_at, lease_expires_at)
SELECT {id}, 'task' || (n % 7), 'default', {state}, {ready}, {priority}, '{{"n": 1}}', 5, {run_after}, {now}, {now},
       1, {lease}
FROM {series}
"""
SOURCED = """
INSERT INTO {t}jobs_live (
    id, task, queue, state, ready, priority, args, max_attempts, run_after, created_at, updated_at,
    attempt, source, batch_id, lease_token, locked_by, locked_at, lease_expires_at)
SELECT {id}, 'task' || (n % 7), 'default', {state}, {ready}, {priority}, '{{"n": 1}}', 5, {now}, {now}, {now},
       1, 'domain:' || (n % 500), {batch}, {lease}
FROM {series}
"""
FINISHED = """
INSERT INTO {t}jobs_finished (
    id, task, queue, state, priority, args, max_attempts, attempt, releases, losses, convictions,
    run_after, created_at, finished_at, updated_at, drop_on)
SELECT {id}, 'task' || (n % 7), 'default', 'succeeded', -100, '{{"n": 1}}', 5, 1, 0, 0, 0, {now}, {now}, {now}, {now},
       '2026-01-08'
FROM {series}
"""
NO_LEASE, LEASE = "NULL, NULL, NULL, NULL", f"'{TOKEN}', 'w', {{now}}, {{now}}"


# The claim of jobs with a source.
TURNS = (
    "look",
    "lock_classes",
    "lock_sources",
    "gates",
    "find_turns",
    "claim_turns",
    "find_plain",
    "claim_picked",
    "spend",
)
TURNS += ("spend", "release_keys", "source_succeeded", "make_sources")
TURNS += ("complete_batches", "start_batches", "count_batches")
# Which statements keep their plans, and the settings under which each kind is planned. A pooler sets nothing.
KEPT = {"claim", "succeed", *TURNS}
PLANNING = {
    "hot": [
        {"plan_cache_mode": "force_custom_plan"},
        {**HOT, "plan_cache_mode": "force_custom_plan"},
        HOT,
    ],
    "other": [{"plan_cache_mode": "force_custom_plan"}],
}


# What may be read from end to end on SQLite: indexes of few rows, and what the statement itself has put together.
SMALL = (
    r"INDEX rowlock_(jobs_live_(running|due|expiry)|batches_open)"
    r"|SCAN (lane|depth|horizon|head|named|first|ahead|live|finished|made|members|f|CONSTANT ROW)$"
)


class Plan:
    """What matters of one plan, in words that both engines share."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.indexes: set[str] = set()  # names without the prefix
        self.walks: list[str] = []  # a table of jobs read from end to end
        self.sorts: list[str] = []  # a sort below the LIMIT of the claim's lanes
        self.loops: list[str] = []  # the whole batch read again for each job

    def __repr__(self) -> str:
        return self.text


class Database:
    """One loaded database and how to ask it for plans."""

    dialect: dict[str, str]

    def run(self, sql: str) -> None:
        raise NotImplementedError

    def plans(self, name: str, **params: Any) -> list[Plan]:
        raise NotImplementedError

    def fill(self, template: str, first: int, count: int, **columns: str) -> None:
        words = {**self.dialect, **columns}
        words = {key: word.replace("{now}", self.dialect["now"]) for key, word in words.items()}
        words["series"] = words["series"].format(first=first, last=first + count - 1)
        self.run(template.format(**words))

    def load_ready(self) -> None:
        self.fill(BULK, 1, ROWS, state="'queued'", ready="TRUE", priority="n % 3", run_after="{now}", lease=NO_LEASE)

    def load_running(self) -> None:
        self.fill(
            BULK, FIRST_RUNNING, 500, state="'running'", ready="FALSE", priority="0", run_after="{now}", lease=LEASE
        )

    def load_sourced(self) -> None:
        ready = {"state": "'queued'", "ready": "TRUE", "priority": "n % 3", "lease": NO_LEASE}
        self.fill(SOURCED, FIRST_SOURCED, ROWS, batch="NULL", **ready)
        running = {"state": "'running'", "ready": "FALSE", "priority": "0", "lease": LEASE}
        self.fill(SOURCED, FIRST_SOURCED + ROWS, 500, batch=f"'{BATCH_ID}'", **running)

    def load_finished_and_later(self) -> None:
        self.fill(FINISHED, FIRST_FINISHED, ROWS)
        later = {"run_after": self.dialect["later"], "priority": "-100", "lease": NO_LEASE}
        self.fill(BULK, FIRST_LATER, ROWS, state="'queued'", ready="FALSE", **later)
        self.fill(BULK, 1, 100, state="'queued'", ready="TRUE", priority="50", run_after="{now}", lease=NO_LEASE)

    def close(self) -> None:
        raise NotImplementedError


class Postgres(Database):
    dialect = {
        "t": "rowlock.",
        "id": "('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid",
        "now": "timestamptz '2026-01-01'",
        "later": "timestamptz '2027-01-01' + n * interval '1 second'",
        "series": "generate_series({first}, {last}) n",
    }

    def __init__(self, server: PostgresDatabases, template: str) -> None:
        self._server, self._name = server, f"rowlock_plans_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        url = server.create_database(self._name, template=template)
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        for table in ("jobs_live", "jobs_finished_default"):  # nobody but us takes statistics
            self.run(f"ALTER TABLE rowlock.{table} SET (autovacuum_enabled = false)")

    def run(self, sql: str) -> None:
        self._connection.execute(sql)  # type: ignore[call-overload]

    def plans(self, name: str, **params: Any) -> list[Plan]:
        found = []
        for settings in PLANNING["hot" if name in KEPT else "other"] if name in load("postgres") else ():
            self.prepare(name, settings)
            found.append(self.explain(name, settings, params))
            self.run("DEALLOCATE ALL")
        return found

    def prepare(self, name: str, settings: dict[str, str]) -> None:
        self.run("RESET ALL")
        for setting, value in settings.items():
            self.run(f"SET {setting} = {value}")
        self.run(f"PREPARE {name}_ AS {load('postgres')[name].sql}")

    def explain(self, name: str, settings: dict[str, str], params: dict[str, Any]) -> Plan:
        values = ", ".join(map(literal, bind(load("postgres")[name], params, FakeClock(NOW))))
        asked = f"EXPLAIN (FORMAT JSON) EXECUTE {name}_{f'({values})' if values else ''}"
        (answer,) = self._connection.execute(asked).fetchone() or ([],)  # type: ignore[call-overload]
        plan = Plan(f"{name} with {settings}:")
        self._read(answer[0]["Plan"], plan)
        return plan

    def _read(self, node: dict[str, Any], plan: Plan, depth: int = 1, under_lock: bool = False) -> None:
        kind, table, index = node["Node Type"], node.get("Relation Name", ""), node.get("Index Name", "")
        condition = node.get("Index Cond", "")
        plan.text += "\n" + "  " * depth + " ".join(filter(None, (kind, table, index, condition)))
        if index:
            plan.indexes.add(index)
        if table.startswith("jobs_") and kind in ("Seq Scan", "Index Scan", "Index Only Scan"):
            few = condition or index in ("jobs_live_running", "jobs_live_due", "jobs_live_expiry")
            if kind == "Seq Scan" or not few:
                plan.walks.append(f"{kind} of {table}")
        if kind in ("Sort", "Incremental Sort") and under_lock:
            plan.sorts.append(kind)
        for child in node.get("Plans", []):
            self._read(child, plan, depth + 1, under_lock or kind == "LockRows")

    def close(self) -> None:
        self._connection.close()
        self._server.drop_database(self._name)


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (list, tuple)):
        quoted = ["NULL" if item is None else json.dumps(str(item), ensure_ascii=False) for item in value]
        return literal("{" + ",".join(quoted) + "}")
    return "'" + str(value).replace("'", "''") + "'"


class Sqlite(Database):
    dialect = {
        "t": "rowlock_",
        "id": "printf('00000000-0000-7000-8000-%012x', n)",
        "now": str(NOW.timestamp()),
        "later": "1800000000.0 + n",
        "series": (
            "(WITH RECURSIVE s(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last}) SELECT n FROM s)"
        ),
    }

    def __init__(self, file: Path) -> None:
        self._connection = apsw.Connection(str(file))
        self._connection.convert_binding = lambda cursor, number, value: bindable(value)
        self.run("PRAGMA journal_mode = WAL")
        self.run(migrate.script(SQLITE))

    def run(self, sql: str) -> None:
        self._connection.execute(sql).fetchall()

    def plans(self, name: str, **params: Any) -> list[Plan]:
        query: Query | None = load("sqlite").get(name)
        if query is None:
            return []
        values = {key: json.dumps(value) if isinstance(value, list) else value for key, value in params.items()}
        bindings = [values.get(bind, NOW.timestamp()) for bind, _ in query.binds]
        rows = self._connection.execute(f"EXPLAIN QUERY PLAN {query.sql}", bindings).fetchall()
        plan = Plan("\n".join([f"{name}:", *(f"{row[0]:>5} under {row[1]:>5}: {row[3]}" for row in rows)]))
        # SQLite prints aliases, so that every scan that is not of the batch is a scan of jobs.
        for number, (_, parent, _, detail) in enumerate(rows):
            if match := re.search(r"INDEX (?:rowlock_|sqlite_autoindex_rowlock_)?(\w+)", detail):
                plan.indexes.add(match[1])
            if detail.startswith("SCAN"):
                if "VIRTUAL TABLE" in detail:
                    jobs_before = [row[3] for row in rows[:number] if row[1] == parent and "jobs_" in row[3]]
                    plan.loops += jobs_before
                elif not re.search(SMALL, detail):
                    plan.walks.append(detail)
            above = [row[3] for row in rows if row[0] == parent]
            if "TEMP B-TREE" in detail and above and above[0].startswith("CORRELATED"):
                plan.sorts.append(detail)
        return [plan]

    def close(self) -> None:
        self._connection.close()


def lanes(count: int) -> list[Range]:
    return [Range("default", f"task{n}") for n in range(count)]


def held_now(count: int = BATCH) -> list[tuple[str, str]]:
    return [(numbered(FIRST_RUNNING + n), TOKEN) for n in range(count)]


def ids(count: int = BATCH) -> list[tuple[str]]:
    return [(job_id,) for job_id, _ in held_now(count)]
