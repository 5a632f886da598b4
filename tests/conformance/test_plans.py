"""EXPLAIN: the hot statements use their indexes whatever the statistics say, with 50,000 rows in the way.

Statistics are fresh, missing (bulk load into a database that was never analysed) or stale (analysed when empty).
On PostgreSQL, operations marked `hot` keep their plans: both the plan for these values and the generic plan are
looked at, and also a generic plan that was made while the table was empty. All others are planned anew each time.
"""

from typing import Any

import pytest

from rowlock.core.outcome import Failed, Succeeded
from rowlock.store.engine.statements import load
from rowlock.store.jobs import leases, settle
from rowlock.store.jobs.claim import Range
from rowlock.store.read.filter import LAST_ID, JobFilter, params
from support.each import each
from support.files.plans import (
    BATCH_ID,
    FIRST_FINISHED,
    KEPT,
    NOW,
    PLANNING,
    ROWS,
    TOKEN,
    TURNS,
    Database,
    Plan,
    Postgres,
    Sqlite,
    held_now,
    ids,
    lanes,
)
from support.rigs.rig import Rig, numbered

FEW = [(numbered(FIRST_FINISHED + n),) for n in range(10)]  # what an operator or a lost lease asks for

# All jobs that a job has made, page by page.
CHILDREN = {"id": LAST_ID, "low": numbered(0), "n": 50, "skip": 999} | params(JobFilter(parent=numbered(1)))


# name -> its parameters, and the index without which it would read what is not its business.
STATEMENTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "succeed": ({"done": [(*lease, "{}") for lease in held_now()], "keep": 7}, None),
    "lock_held": ({"mine": held_now()}, None),
    "settled_tokens": ({"asked": FEW}, None),
    "record_attempts": ({"ended": [(job_id, "failed", "E", "m", None) for job_id, _ in held_now()]}, None),
    "requeue": (
        {"back": [(job_id, "queued", 1, 0, 0, 0, 0, 0, 0, 0, None, None, 1) for job_id, _ in held_now()]},
        None,
    ),
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
    "peek": ({"lane": [("default", "task1"), ("default", "task2")]}, "jobs_live_due"),
    "to_sweep": ({}, "jobs_live_running"),
    "overdue": ({"n": 100}, "jobs_live_expiry"),
    "lock_jobs": ({"asked": ids()}, None),
    "request_cancel": ({"asked": ids()}, None),
    "final_states": ({"asked": FEW}, None),
    "lock_finished": ({"asked": FEW}, None),
    "revive": ({"asked": FEW, "tries": 1}, None),
    "delete_finished": ({"asked": FEW}, None),
    "ending": ({"asked": ids()}, None),
    "relative": ({"job_id": numbered(1)}, None),
    "children_of": ({"job_id": numbered(1), "n": 50}, "jobs_live_parent"),
    "children_of_many": ({"asked": ids(), "n": 200}, "jobs_live_parent"),
    "edge_live_parent": (CHILDREN, "jobs_live_parent"),
    "look_live_parent": (CHILDREN, "jobs_live_parent"),
    "look_finished_parent": (CHILDREN, None),
    "by_state_finished_parent": (CHILDREN, None),
    "batch_members": ({"batch_id": BATCH_ID, "n": 200}, "jobs_live_batch"),
    "batch_left": ({"batch_id": BATCH_ID, "n": 100}, "jobs_live_batch"),
    "source_running": ({"class_name": "domain", "source": "domain:1", "n": 10}, "jobs_live_slots"),
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
    "claim_turns": (
        {
            "turn": [("default", "task1", n % 3, f"domain:{n}", 2) for n in range(50)],
            **{"worker": "w", "token": TOKEN, "lease": 60, "at": NOW, "epoch": 0},
        },
        "jobs_live_turns",
    ),
    "front_turns": (
        {"turn": [("default", "task1", n % 3, f"domain:{n}", 2) for n in range(50)], "n": 2, "epoch": 0},
        "jobs_live_turns",
    ),
    "find_plain": ({"lane": lanes(7), "n": 20}, "jobs_live_claim"),
    "claim_picked": (
        {"picked": ids(), "worker": "w", "token": TOKEN, "lease": 60, "at": NOW, "epoch": 0},
        None,
    ),
    "spend": ({"spent": [(f"domain:{n}", 1.5) for n in range(50)], "at": NOW}, None),
    "release_keys": ({"gone": ids(), "state": "succeeded"}, None),
    "source_succeeded": ({"done": [(f"domain:{n}",) for n in range(50)], "epoch": 0}, None),
    "complete_batches": ({"asked": [(BATCH_ID,)]}, None),
    "start_batches": ({"asked": [(BATCH_ID,)]}, None),
    "schedules_at_work": ({"asked": [("s",)]}, None),
    "count_batches": ({"counted": [(BATCH_ID, 1, 0, 0, 0, 0, None)], "shard": 1}, None),
    "make_sources": ({"made": [("domain:1",)]}, None),
    "failures": ({"since": NOW, "width": 60, "n": 5_000}, None),
    "running_jobs": ({"n": 1_000}, "jobs_live_running"),
}
CLAIMS = [{"lane": lanes(count), "n": n} for count, n in ((1, 1), (3, 10), (7, 500), (40, 20))]
# A low-water mark in the middle of the range.
CLAIMS += [{"lane": [Range("default", "task1", 0, numbered(ROWS // 2), 2)], "n": 50}]

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


@each("scenario", SCENARIOS)
def test_a_claim_reads_its_index_and_nothing_else(plans: dict[str, dict[str, list[Plan]]], scenario: str) -> None:
    assert plans[scenario]["claim"]
    for plan in plans[scenario]["claim"]:
        assert "jobs_live_claim" in plan.indexes, plan
        assert plan.walks == [], plan
        assert plan.sorts == [], plan


@each("name", STATEMENTS)
@each("scenario", SCENARIOS)
def test_a_statement_reads_only_its_own_rows(plans: dict[str, dict[str, list[Plan]]], name: str, scenario: str) -> None:
    index = STATEMENTS[name][1]
    for plan in plans[scenario][name]:
        finished = [walk for walk in plan.walks if "finished" in walk and "crowded" not in scenario]  # empty there
        assert [walk for walk in plan.walks if walk not in finished] == [], plan
        assert index is None or index in plan.indexes, plan


@pytest.mark.parametrize("engine", ["postgres"])
async def test_postgresql_keeps_only_plans_of_tested_statements(rig: Rig) -> None:
    """A plan is kept on the connections of `hot` operations alone; an INSERT of values cannot have a bad one."""
    done = await rig.running()
    await rig.store.run(settle.succeed([(done.id, done.token, None)], settle.Keep()))
    await rig.settle(await rig.running(source="api:a"), Succeeded())
    failing = await rig.running()
    await rig.store.run(leases.beat([(failing.id, failing.token)], 60))
    await rig.settle(failing, Failed("E", "no"))
    names = {query.sql: name for name, query in load("postgres").items()}
    async with rig.store._connections["hot"].one() as connection:
        prepared = await connection.fetch("SELECT statement FROM pg_prepared_statements")
    kept = {names[sql] for (sql,) in prepared if sql in names}
    assert kept >= {"claim", "succeed", "look", "claim_turns"}
    assert kept - KEPT <= {"enqueue_one"}


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
