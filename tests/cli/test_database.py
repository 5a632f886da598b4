"""The verbs about the database and everything in it: migrate, doctor, queues, stats."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from cli.command import Cli, Inside, wait_until
from rowlock import Rowlock
from support.each import each
from support.servers.databases import owner_url, take_a_table_away

__all__ = ["owner_url"]  # a fixture


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_migrate_checks_prints_and_applies(
    kind: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    url = f"sqlite:///{folder}/fresh.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    here = Inside.enter(folder, url, monkeypatch, capsys)
    assert here.run("migrate", "--check", code=1).stdout.startswith("pending 0001_schema\n")
    script = here.out("migrate", "--sql")
    assert "CREATE TABLE" in script
    assert script.endswith("COMMIT;")
    assert not (folder / "fresh.db").exists()
    here.run("migrate", "--check", code=1)
    assert Cli(folder, url).json("migrate")["applied"][0] == "0001_schema"
    assert here.out("migrate") == "the schema is up to date"
    assert here.json("migrate", "--check") == {"pending": []}
    assert here.out("migrate", "--sql").startswith("-- nothing to apply")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_migrate_applies_a_file_of_views_again_when_its_text_differs(
    kind: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    url = f"sqlite:///{folder}/fresh.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    here = Inside.enter(folder, url, monkeypatch, capsys)
    here.run("migrate")
    run_sql(url, "UPDATE {t}schema_files SET checksum = 'of another text' WHERE name = 'views.sql'")
    assert here.run("migrate", "--check", code=1).stdout == "pending views.sql\n"
    script = here.out("migrate", "--sql")
    assert "VIEW" in script
    assert "CREATE TABLE IF NOT EXISTS" in script
    assert "jobs_live (" not in script
    assert here.out("migrate") == "applied views.sql"
    assert here.out("migrate", "--check") == "the schema is up to date"
    run_sql(url, "UPDATE {t}schema_files SET checksum = 'of another text' WHERE name = 'views.sql'")
    run_sql(url, script)
    assert here.out("migrate", "--check") == "the schema is up to date"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_database_of_an_unreleased_version_is_refused_by_every_verb(
    kind: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    url = f"sqlite:///{folder}/old.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    if kind == "postgres":
        run_sql(url, "CREATE SCHEMA rowlock")
    run_sql(url, "CREATE TABLE {t}migrations (number integer PRIMARY KEY, name text, breaking boolean)")
    run_sql(url, "INSERT INTO {t}migrations VALUES (1, 'engine', FALSE)")
    here = Inside.enter(folder, url, monkeypatch, capsys)
    (folder / "few.py").write_text("from rowlock import Rowlock\n\napp = Rowlock()\n")
    printed = [
        Cli(folder, url).run("up", "--app", "few:app", code=2).stderr,
        *(here.run("migrate", *options, code=2).stderr for options in ([], ["--check"], ["--sql"])),
        here.run("jobs", "list", code=2).stderr,
    ]
    for text in printed:
        assert "was made by an unreleased version of Rowlock" in text
        assert "nothing was changed. Finish or export its jobs with that version" in text
    assert "unreleased version" in here.run("doctor", code=1).stdout


def run_sql(url: str, sql: str) -> None:
    """Run SQL as a database administrator would; {t} begins the name of a table."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute(sql.replace("{t}", "rowlock_"))
        connection.close()
    else:
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(sql.replace("{t}", "rowlock."))


def test_migrate_makes_roles_or_prints_what_an_administrator_runs(
    folder: Path, postgres_url: str, owner_url: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    here = Inside.enter(folder, postgres_url, monkeypatch, capsys)
    assert here.out("migrate", "--roles").endswith("rowlock_enqueue, rowlock_worker, rowlock_read, rowlock_admin")
    assert "GRANT USAGE ON SCHEMA rowlock TO rowlock_enqueue" in here.out("migrate", "--sql", "--roles")
    assert "give --check or --roles" in here.run("migrate", "--check", "--roles", code=2).stderr

    limited = Inside.enter(folder, owner_url, monkeypatch, capsys)
    limited.run("migrate")
    take_a_table_away(owner_url)
    printed = limited.out("migrate", "--roles")
    assert printed.startswith("the schema is up to date\n-- the roles were not created")
    assert "GRANT EXECUTE ON FUNCTION rowlock.enqueue" in printed


def test_sqlite_has_no_roles(inside: Inside) -> None:
    assert "--roles is for PostgreSQL" in inside.run("migrate", "--roles", code=2).stderr


def test_the_printed_script_makes_a_database_that_works(inside: Inside, folder: Path) -> None:
    script = inside.out("migrate", "--sql")
    connection = apsw.Connection(str(folder / "inside.db"))
    connection.execute(script)
    connection.close()
    inside.run("migrate", "--check")
    assert inside.json("jobs", "list") == []


def test_doctor_is_content_with_a_healthy_database(here: Inside) -> None:
    findings = here.json("doctor")
    assert {(finding["level"], finding["check"]) for finding in findings if finding["level"] != "ok"} == {
        ("warn", "workers")  # none is started yet
    }
    checks = [finding["check"] for finding in findings]
    assert checks == [
        "database",
        "schema",
        "disk",
        "pooler",
        "wake-ups",
        "clock",
        "workers",
        "rows",
        "leases",
        "zones",
        "results",
    ]
    assert "ok    wake-ups  received after" in here.out("doctor")


def test_doctor_finds_work_that_nobody_does(cli: Cli, here: Inside) -> None:
    here.out("enqueue", "mystery", "x=1", "--defaults")
    here.out("enqueue", "elsewhere", "--queue", "nowhere", "--defaults")
    here.out("queues", "pause", "default")
    worker = cli.start("worker", "--app", "shop")
    worker.wait_for("Worker started: ")
    told = here.run("doctor", code=1).stdout
    assert "fail  tasks     no live worker of queue 'default' has the task 'mystery'; jobs waiting: 1" in told
    assert "warn  queues    no live worker serves queue 'nowhere'; its jobs wait until one is started" in told
    assert "warn  queues    queue 'default' has been paused since" in told
    assert worker.stop() == 0


def test_doctor_finds_leases_that_nobody_ends(inside: Inside, folder: Path) -> None:
    inside.out("enqueue", "add", "a=1", "--defaults")
    connection = apsw.Connection(str(folder / "inside.db"))
    connection.execute(
        "UPDATE rowlock_jobs_live SET state = 'running', ready = FALSE, lease_token = 't', locked_by = 'gone',"
        " locked_at = ?1, lease_expires_at = ?1",
        (time.time() - 100,),
    )
    connection.close()
    assert "fail  leases    1 lease expired" in inside.run("doctor", code=1).stdout


def test_doctor_says_what_is_wrong_when_it_cannot_look(inside: Inside, postgres_url: str) -> None:
    for url, said in ((postgres_url, "fail  schema"), ("postgresql://nobody@127.0.0.1:9/none", "fail  database")):
        assert inside.run("doctor", "--database", url, code=1).stdout.startswith(said)


READING = ["jobs list", "jobs show 1", "jobs explain 1", "queues list", "batches list", "batches show 1", "stats"]
READING += ["sources list", "schedules list", "schedules next x", "workers list", "tokens list", "alerts list"]
READING += ["top --once", "webhooks secret list", "doctor", "deadletters list"]
READING += ["deadletters show 1-1", "alerts test", "jobs retry 1 --dry-run", "jobs cancel --queue a --dry-run"]


@each("words", READING)
def test_a_verb_that_only_reads_says_that_the_file_is_missing_and_creates_none(
    inside: Inside, folder: Path, words: str
) -> None:
    (folder / "typo.db").unlink(missing_ok=True)  # an earlier row has created it by mistake
    line = inside.error(*words.split(), "--database", "sqlite:///typo.db", code=2)
    assert line.endswith("typo.db: this file does not exist; check the URL, or create it with rowlock migrate")
    assert not (folder / "typo.db").exists()


def test_a_queue_that_nobody_knows_is_paused_with_a_warning(inside: Inside) -> None:
    told = inside.run("queues", "pause", "dafault")
    assert told.stdout == "dafault is paused\n"
    assert told.stderr.startswith("rowlock: no job, task or worker uses a queue 'dafault'")
    assert [(queue["name"], queue["paused"]) for queue in inside.json("queues", "list")] == [("dafault", True)]


def test_a_queue_of_a_task_or_of_a_job_is_paused_without_a_warning(inside: Inside) -> None:
    assert inside.run("queues", "pause", "other", "--app", "shop").stderr == "", "the code has a task in it"
    inside.out("enqueue", "add", "a=1", "--queue", "mail", "--defaults")
    assert inside.run("queues", "pause", "mail").stderr == "", "a job waits in it"


def test_a_paused_queue_is_listed_until_it_goes_on(here: Inside) -> None:
    here.out("enqueue", "elsewhere", "--app", "shop")
    assert here.json("queues", "pause", "other") == {"name": "other", "paused": True}
    (queue,) = here.json("queues", "list")
    assert (queue["name"], queue["queued"], queue["paused"]) == ("other", 1, True)
    assert here.out("queues", "resume", "other") == "other is resumed"
    assert here.out("queues", "resume", "other") == "other was not paused"
    stats = here.json("stats")
    assert (stats["workers"], stats["queues"][0]["queued"], stats["queues"][0]["paused"]) == (0, 1, False)
    assert here.out("stats").startswith("workers    0 alive, 0 slots")


def test_a_purge_cancels_what_waits_in_a_queue_and_can_be_undone(here: Inside) -> None:
    other, kept = here.out("enqueue", "elsewhere", "--app", "shop"), here.out("enqueue", "add", "a=1", "--app", "shop")
    assert here.out("queues", "purge", "other", "--dry-run") == "would cancel 1 job; nothing was changed"
    assert "add --yes" in here.run("queues", "purge", "other", code=2).stderr
    assert here.out("queues", "purge", "other", "--yes") == "cancelled 1 job"
    states = {job["id"]: job["state"] for job in here.json("jobs", "list")}
    assert states == {other: "cancelled", kept: "queued"}
    assert here.out("jobs", "retry", "--state", "cancelled", "--queue", "other", "--yes") == "retried 1 job"


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_worker_that_is_not_there_cannot_be_asked_to_end(here: Inside) -> None:
    assert "no worker with id 'box-1'" in here.run("workers", "drain", "box-1", code=3).stderr
    assert "no worker with id 'box-1'" in here.run("workers", "stop", "box-1", code=3).stderr


def test_migrate_knows_the_apps_own_tables(cli: Cli, here: Inside) -> None:
    for engine in ("sqlite", "postgres"):
        folder = cli.folder / "tables" / engine
        folder.mkdir(parents=True)
        (folder / "0001_carts.sql").write_text("CREATE TABLE carts (id integer)")
    (cli.folder / "own.py").write_text(
        "from rowlock import Migrations, Rowlock\napp = Rowlock(migrations=Migrations('own', 'tables'))\n"
    )
    here.run("migrate")
    assert here.run("migrate", "--check", "--app", "own", code=1).stdout == "pending own/0001_carts\n"
    assert "CREATE TABLE carts" in here.out("migrate", "--sql", "--app", "own")
    assert here.out("migrate", "--app", "own") == "applied own/0001_carts"
    here.run("migrate", "--check", "--app", "own")


@pytest.mark.parametrize("engine", ["sqlite"])
def test_stats_alert_when_too_many_jobs_wait(here: Inside) -> None:
    """S1.16, S1.20: the length of the queue, and an alert above 10."""
    for number in range(11):
        here.run("enqueue", "greet", f"name={number}", "--app", "shop")
    assert here.json("stats")["queues"][0]["queued"] == 11
    here.run("stats", "--max-queued", "11")
    told = here.run("stats", "--max-queued", "10", code=1)
    assert "alert: 11 jobs are ready in queue 'default', more than 10; more workers are needed" in told.stderr
    here.run("queues", "pause", "default")
    told = here.run("stats", "--max-queued", "10", code=1)
    assert "more than 10; the queue is paused; to resume: rowlock queues resume default" in told.stderr


@pytest.mark.parametrize("engine", ["sqlite"])
def test_stats_do_not_advise_more_workers_for_jobs_of_a_source_that_is_paused(here: Inside) -> None:
    here.run("enqueue", "greet", "name=ana", "--source", "api:x", "--app", "shop")
    here.run("sources", "pause", "api:x")
    told = here.run("stats", "--max-queued", "0", code=1)
    assert "1 job is ready in queue 'default', more than 0; jobs wait for a source that is paused" in told.stderr
    assert "more workers are needed" not in told.stderr


@pytest.mark.parametrize("engine", ["sqlite"])
def test_stats_alert_when_a_job_runs_for_too_long(cli: Cli, here: Inside, folder: Path) -> None:
    """S1.17, S1.19: what is in processing, and an alert when it takes too long."""
    worker = cli.start("worker", "--app", "shop")
    here.run("enqueue", "linger", f"file={folder}/running", "--app", "shop")
    worker.wait_for("claimed")
    here.run("stats", "--max-running", "5m")
    (queue,) = here.json("stats")["queues"]
    assert (queue["running"], queue["longest_running_seconds"] > 0) == (1, True)
    told = here.run("stats", "--max-running", "0s", code=1)
    assert "alert: 1 job of queue 'default' has been running for longer than 0 s: " in told.stderr
    assert here.error("stats", "--max-running", "soon", code=2)


@pytest.mark.parametrize("engine", ["postgres"])
def test_stats_names_tasks_that_no_live_worker_knows(cli: Cli, here: Inside) -> None:
    worker = cli.start("worker", "--app", "shop")
    wait_until(lambda: here.json("stats")["workers"] == 1, "it is registered")
    assert here.json("stats")["unknown_tasks"] == []
    for _ in range(2):
        here.run("enqueue", "gone", "n=1", "--defaults")
    wait_until(lambda: here.json("stats")["unknown_tasks"] != [], "they are there")
    assert here.json("stats")["unknown_tasks"] == [{"queue": "default", "task": "gone", "waiting": 2}]
    text = here.out("stats")
    assert "! no live worker of queue 'default' has the task 'gone'; jobs waiting: 2" in text.splitlines()
    (job, _) = here.json("jobs", "list")
    explained = here.json("jobs", "explain", job["id"])
    assert (explained["reason"], "knows its task 'gone'" in explained["text"]) == ("unknown", True)
    assert worker.stop() == 0


def test_doctor_names_limits_of_a_config_that_it_was_not_given(here: Inside, folder: Path) -> None:
    async def declare() -> None:
        async with Rowlock(os.environ["ROWLOCK_DATABASE_URL"]) as app:
            await app.sources.declare({"api:ebay": {"concurrency": 2}})

    asyncio.run(declare())
    (finding,) = [found for found in here.json("doctor") if found["check"] == "sources"]
    assert (finding["level"], "api:ebay" in finding["text"], "--reset" in finding["do"]) == ("warn", True, True)
    (row,) = [row for row in here.json("sources", "list") if row["name"] == "api:ebay"]
    assert row["set_by"] == "config"
    assert "set_by" in here.out("sources", "list").splitlines()[0]
    config = folder / "limits.yaml"
    config.write_text("sources: {'api:ebay': {concurrency: 3}}\n")
    assert "sources" not in [found["check"] for found in here.json("doctor", "--config", str(config))]
