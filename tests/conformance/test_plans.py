"""EXPLAIN: the hot statements use their indexes whatever the statistics say, with 100,000 rows in the way.

Statistics are fresh, missing (bulk load into a database that was never analysed) or stale (analysed when empty).
On PostgreSQL, operations marked `hot` keep their plans: both the plan for these values and the generic plan are
looked at, and also a generic plan that was made while the table was empty. All others are planned anew each time.
"""

import json
import os
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from rowlock.core.clock import FakeClock
from rowlock.store import claim, jobs, leases, migrate, reads, sourced_claim
from rowlock.store.claim import Lane
from rowlock.store.engines.postgres import HOT
from rowlock.store.engines.queries import Query, bind, load
from rowlock.store.engines.sqlite_runner import bindable
from support.rig import numbered
from support.server import PostgresDatabases

ROWS = 100_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "00000000-0000-4000-8000-000000000001"
BATCH = 200
FIRST_RUNNING, FIRST_FINISHED, FIRST_LATER, FIRST_SOURCED = 1_000_000, 2_000_000, 3_000_000, 4_000_000
BATCH_ID = "00000000-0000-7000-9000-000000000001"

BULK = """
INSERT INTO {t}jobs_live (
    id, task, queue, state, ready, priority, args, max_attempts, run_after, created_at, updated_at,
    attempt, lease_token, locked_by, locked_at, lease_expires_at)
SELECT {id}, 'task' || n % 7, 'default', {state}, {ready}, {priority}, '{{"n": 1}}', 5, {run_after}, {now}, {now},
       1, {lease}
FROM {series}
"""
SOURCED = """
INSERT INTO {t}jobs_live (
    id, task, queue, state, ready, priority, args, max_attempts, run_after, created_at, updated_at,
    attempt, source, batch_id, lease_token, locked_by, locked_at, lease_expires_at)
SELECT {id}, 'task' || n % 7, 'default', {state}, {ready}, {priority}, '{{"n": 1}}', 5, {now}, {now}, {now},
       1, 'domain:' || n % 500, {batch}, {lease}
FROM {series}
"""
FINISHED = """
INSERT INTO {t}jobs_finished (
    id, task, queue, state, priority, args, max_attempts, attempt, releases, losses, convictions,
    run_after, created_at, finished_at, updated_at, drop_on)
SELECT {id}, 'task' || n % 7, 'default', 'succeeded', -100, '{{"n": 1}}', 5, 1, 0, 0, 0, {now}, {now}, {now}, {now},
       '2026-01-08'
FROM {series}
"""
NO_LEASE, LEASE = "NULL, NULL, NULL, NULL", f"'{TOKEN}', 'w', {{now}}, {{now}}"


# The claim of jobs with a source.
TURNS = ("look", "lock_classes", "lock_sources", "gates", "find_turns", "take_turns", "find_plain", "take", "spend")
TURNS += ("let_go", "keys_done", "source_succeeded", "make_sources")
TURNS += ("complete_batches", "start_batches", "count_batches")
# Which statements keep their plans, and the settings under which each kind is planned. A pooler sets nothing.
KEPT = {"claim", "succeed", *TURNS}
PLANNING = {
    "hot": [
        {"plan_cache_mode": "force_custom_plan"},
        {"plan_cache_mode": "force_custom_plan", **HOT},
        {"plan_cache_mode": "force_generic_plan", **HOT},
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
        for settings in PLANNING["hot" if name in KEPT else "other"]:
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
        self.run(migrate.script("sqlite"))

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


def lanes(count: int) -> list[Lane]:
    return [Lane("default", f"task{n}") for n in range(count)]


def held_now(count: int = BATCH) -> list[tuple[str, str]]:
    return [(numbered(FIRST_RUNNING + n), TOKEN) for n in range(count)]


def ids(count: int = BATCH) -> list[tuple[str]]:
    return [(job_id,) for job_id, _ in held_now(count)]


FEW = [(numbered(FIRST_FINISHED + n),) for n in range(10)]  # what an operator or a lost lease asks for

# All jobs that a job has made, page by page.
CHILDREN = {"id": reads.LAST_ID, "low": numbered(0), "n": 50, "skip": 999} | reads.params(
    reads.JobFilter(parent=numbered(1))
)


# name -> its parameters, and the index without which it would read what is not its business.
STATEMENTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "succeed": ({"done": [(*lease, "{}") for lease in held_now()], "keep": 7}, None),
    "lock_held": ({"mine": held_now()}, None),
    "settled_tokens": ({"asked": FEW}, None),
    "record_attempts": ({"ended": [(job_id, "failed", "E", "m", None) for job_id, _ in held_now()]}, None),
    "requeue": ({"back": [(job_id, "queued", 1, 0, 0, 0, None, None, 1) for job_id, _ in held_now()]}, None),
    "finish_copy": (
        {"final": [(job_id, "dead", None, "E", "m", 0, 0, 0, 7, 1) for job_id, _ in held_now()]},
        None,
    ),
    "finish_remove": ({"gone": ids()}, None),
    "beat": ({"mine": held_now(), "lease": 60}, None),
    "held": ({"mine": held_now()}, None),
    "progress": ({"told": [(*lease, 50, "p", "m") for lease in held_now()]}, None),
    "expired": ({"n": 100, "guard": 60}, "jobs_live_running"),
    "promote": ({"n": 100}, "jobs_live_due"),
    "to_sweep": ({}, "jobs_live_running"),
    "overdue": ({"n": 100}, "jobs_live_expiry"),
    "lock_jobs": ({"asked": ids()}, None),
    "request_cancel": ({"asked": ids()}, None),
    "final_states": ({"asked": FEW}, None),
    "lock_finished": ({"asked": FEW}, None),
    "revive": ({"asked": FEW, "tries": 1}, None),
    "revive_remove": ({"gone": FEW}, None),
    "ending": ({"asked": ids()}, None),
    "keys_given_up": ({"gone": ids()}, None),
    "parent_of": ({"job_id": numbered(1)}, None),
    "relative": ({"job_id": numbered(1)}, None),
    "children_of": ({"job_id": numbered(1), "n": 50}, "jobs_live_parent"),
    "count_children": ({"job_id": numbered(1), "n": 1000}, "jobs_live_parent"),
    "children_of_many": ({"asked": ids(), "n": 200}, "jobs_live_parent"),
    "edge_live_parent": (CHILDREN, "jobs_live_parent"),
    "look_live_parent": (CHILDREN, "jobs_live_parent"),
    "look_finished_parent": (CHILDREN, None),
    "by_state_finished_parent": (CHILDREN, None),
    "batch_members": ({"batch_id": BATCH_ID, "n": 200}, "jobs_live_batch"),
    "batch_left": ({"batch_id": BATCH_ID, "n": 100}, "jobs_live_batch"),
    "source_running": ({"source": "domain:1", "n": 10}, "jobs_live_slots"),
    "class_running": ({"group": "domain", "n": 10}, "jobs_live_slots"),
    "line": (
        {"lane": [lane[:2] for lane in lanes(7)], "priority": 0, "id": numbered(5_000_000), "n": 10},
        "jobs_live_turns",
    ),
    "line_of_source": (
        {
            "lane": [lane[:2] for lane in lanes(7)],
            "priority": 0,
            "source": "domain:1",
            "id": numbered(5_000_000),
            "n": 10,
        },
        "jobs_live_turns",
    ),
    "look": (
        {"span": [("default", f"task{n}", n - 4, "domain:2", 101, 50) for n in range(7)]},
        "jobs_live_turns",
    ),
    "lock_classes": ({"asked": [("domain",), ("api",)]}, None),
    "lock_sources": ({"asked": [(f"domain:{n}",) for n in range(50)]}, None),
    "gates": ({"named": [(f"domain:{n}",) for n in range(50)]}, "jobs_live_slots"),
    "find_turns": (
        {"turn": [("default", "task1", n % 3, f"domain:{n}", 2) for n in range(50)], "n": 2},
        "jobs_live_turns",
    ),
    "take_turns": (
        {
            "turn": [("default", "task1", n % 3, f"domain:{n}", 2) for n in range(50)],
            **{"worker": "w", "token": TOKEN, "lease": 60, "at": NOW, "epoch": 0},
        },
        "jobs_live_turns",
    ),
    "find_plain": ({"lane": lanes(7), "n": 20}, "jobs_live_claim"),
    "take": (
        {"picked": ids(), "worker": "w", "token": TOKEN, "lease": 60, "at": NOW, "epoch": 0},
        None,
    ),
    "spend": ({"spent": [(f"domain:{n}", 1.5) for n in range(50)], "at": NOW}, None),
    "let_go": ({"gone": ids()}, None),
    "keys_done": ({"gone": ids()}, None),
    "source_succeeded": ({"done": [(f"domain:{n}",) for n in range(50)], "epoch": 0}, None),
    "complete_batches": ({"asked": [(BATCH_ID,)]}, None),
    "start_batches": ({"asked": [(BATCH_ID,)]}, None),
    "schedules_at_work": ({"asked": [("s",)]}, None),
    "count_batches": ({"counted": [(BATCH_ID, 1, 0, 0, 0, 0, None)], "shard": 1}, None),
    "make_sources": ({"made": [("domain:1",)]}, None),
    "failures": ({"since": NOW, "width": 60, "n": 5_000}, None),
}
CLAIMS = [{"lane": lanes(count), "n": n} for count, n in ((1, 1), (3, 10), (7, 500), (40, 20))]
# A low-water mark in the middle of the range.
CLAIMS += [{"lane": [Lane("default", "task1", 0, numbered(ROWS // 2), 2)], "n": 50}]

SCENARIOS = ["missing", "fresh", "stale", "crowded", "crowded and fresh"]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def fresh_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes empty databases of one engine."""

    def make() -> Database:
        if request.param == "sqlite":
            return Sqlite(tmp_path_factory.mktemp("plans") / "jobs.db")
        server = request.getfixturevalue("postgres_server")
        return Postgres(server, request.getfixturevalue("template"))

    return make


@pytest.fixture(scope="module")
def plans(fresh_database: Any) -> dict[str, dict[str, list[Plan]]]:
    """Every plan in every scenario: scenario -> statement -> plans. Loaded once, because loading is the cost."""
    found = {}
    for steps in (
        {"missing": ["load_ready", "load_running", "load_sourced"], "fresh": ["ANALYZE"]},
        {"stale": ["ANALYZE", "load_ready", "load_running", "load_sourced"]},
        {"crowded": ["load_finished_and_later", "load_running"], "crowded and fresh": ["ANALYZE"]},
    ):
        database: Database = fresh_database()
        try:
            for scenario, doings in steps.items():
                for doing in doings:
                    if doing == "ANALYZE":
                        database.run("ANALYZE")
                    else:
                        getattr(database, doing)()
                claims = [plan for params in CLAIMS for plan in claim_plans(database, params)]
                others = {name: database.plans(name, **params) for name, (params, _) in STATEMENTS.items()}
                found[scenario] = {"claim": claims, **others}
        finally:
            database.close()
    return found


def claim_plans(database: Database, params: dict[str, Any]) -> list[Plan]:
    """Where a claim finds its jobs: on SQLite, in a statement before it."""
    names = ("claim",) if isinstance(database, Postgres) else ("front", "front_merged")
    return [plan for name in names for plan in database.plans(name, worker="w", token=TOKEN, lease=60, **params)]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_claim_reads_its_index_and_nothing_else(plans: dict[str, dict[str, list[Plan]]], scenario: str) -> None:
    assert plans[scenario]["claim"]
    for plan in plans[scenario]["claim"]:
        assert "jobs_live_claim" in plan.indexes, plan
        assert plan.walks == [], plan
        assert plan.sorts == [], plan


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_reads_only_its_own_rows(plans: dict[str, dict[str, list[Plan]]], name: str, scenario: str) -> None:
    index = STATEMENTS[name][1]
    for plan in plans[scenario][name]:
        finished = [walk for walk in plan.walks if "finished" in walk and "crowded" not in scenario]  # empty there
        assert [walk for walk in plan.walks if walk not in finished] == [], plan
        assert index is None or index in plan.indexes, plan


def test_only_operations_with_these_plans_keep_them() -> None:
    assert claim.claim("w", TOKEN, lanes(1), 1, 60).hot
    assert jobs.succeed([], jobs.Keep()).hot
    assert sourced_claim.look([]).hot
    assert sourced_claim.claim_sourced("w", TOKEN, [], [], [], 1, 60).hot
    assert not jobs.apply([], jobs.Keep()).hot
    assert not leases.beat([], 60).hot


def test_a_plan_that_was_made_for_an_empty_table_is_still_good(template: str, postgres_server: Any) -> None:
    """A worker polls an empty queue, its plan is kept, and then the jobs arrive."""
    database, settings = Postgres(postgres_server, template), PLANNING["hot"][-1]
    asked = {
        "claim": {"worker": "w", "token": TOKEN, "lease": 60, "lane": lanes(7), "n": 500},
        "succeed": STATEMENTS["succeed"][0],
        **{name: STATEMENTS[name][0] for name in TURNS},
    }
    try:
        database.run("ANALYZE")
        for name, params in asked.items():
            database.prepare(name, settings)
            database.explain(name, settings, params)
        database.load_ready()
        database.load_running()
        database.load_sourced()
        for name, params in asked.items():
            plan = database.explain(name, settings, params)
            assert plan.walks == [], plan
            assert plan.sorts == [], plan
            assert name != "claim" or "jobs_live_claim" in plan.indexes, plan
    finally:
        database.close()


def test_no_batch_is_read_again_for_each_job(fresh_database: Any) -> None:
    """Statistics taken while nothing ran say that no row will ever be running: no reason for a loop in a loop."""
    database: Database = fresh_database()
    try:
        database.load_ready()
        database.run("ANALYZE")
        every = [plan for name, (params, _) in STATEMENTS.items() for plan in database.plans(name, **params)]
        assert [plan for plan in every if plan.loops] == []
    finally:
        database.close()


def test_a_plan_that_walks_is_seen(fresh_database: Any) -> None:
    """The reading of plans itself: without its indexes, every engine must be caught walking and sorting."""
    database: Database = fresh_database()
    try:
        prefix = "rowlock." if isinstance(database, Postgres) else "rowlock_"
        database.load_ready()
        for index in ("claim", "running", "due", "expiry"):
            database.run(f"DROP INDEX {prefix}jobs_live_{index}")
        for plan in claim_plans(database, CLAIMS[1]):
            assert plan.walks, plan
            assert plan.sorts, plan
        for name in ("expired", "promote", "to_sweep", "overdue"):
            assert all(plan.walks for plan in database.plans(name, **STATEMENTS[name][0])), name
    finally:
        database.close()
