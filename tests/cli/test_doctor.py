"""`rowlock doctor`: what it finds around the database, and that every finding says what to do."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from cli.command import Cli, Inside
from rowlock import Rowlock
from rowlock.client.settings import VERSION
from rowlock.core.schedules.rule import parse_rule
from rowlock.core.schedules.schedule import Schedule
from rowlock.store import workers
from rowlock.store.schedules import schedules
from rowlock.store.sources import sources
from support.each import each
from support.races.disk import disk


def write(*operations: Any, sql: str | None = None) -> None:
    """Change the database of the command."""

    async def change() -> None:
        async with Rowlock() as app:
            for one in operations:
                await app.perform(one)
            if sql is not None:
                async with app.transaction() as tx:
                    await tx.execute(sql)

    asyncio.run(change())


def findings(inside: Inside, check: str, *words: str, code: int = 0) -> list[dict[str, str]]:
    found = json.loads(inside.run("doctor", "--json", *words, code=code).stdout)
    assert [one for one in found if one["level"] != "ok" and not one["do"]] == []  # each says what to do
    return [one for one in found if one["check"] == check]


def test_each_worker_has_a_line_and_a_silent_or_old_one_a_warning(here: Inside) -> None:
    write(
        workers.register("mine", "h1", 7, VERSION, ["default"], ["t"], 5, None, 60),
        workers.register("behind", "h2", 8, "0.0.1", ["default"], ["t"], 5, None, 60),
        workers.register("silent", "h3", 9, VERSION, ["default"], ["t"], 5, None, 0),
    )
    found = {one["text"].removeprefix("worker ").split()[0].strip(":'"): one for one in findings(here, "worker")}
    assert {name: one["level"] for name, one in found.items()} == {"mine": "ok", "behind": "warn", "silent": "warn"}
    assert "0 of 5 slots in use, queues default" in found["mine"]["text"]
    assert "0.0.1" in found["behind"]["text"]
    assert found["silent"]["do"] == "look for its process, pid 9 on h3"
    assert "→ look for its process, pid 9 on h3" in here.out("doctor")


def test_ticks_that_nobody_fires_and_open_breakers_are_found(inside: Inside) -> None:
    write(
        schedules.declare([Schedule("nightly", "t", parse_rule("every 60s"))], "runtime", _long_ago()),
        sources.set_policy("api:ebay", {"concurrency": 2}),
        sql="UPDATE rowlock_schedules SET next_tick = next_tick - 4000",
    )
    (late,) = findings(inside, "schedules", code=1)
    assert late["text"].startswith("a tick of schedule 'nightly' has been due for ")
    assert "rowlock dispatch" in late["do"]
    write(sql="DELETE FROM rowlock_schedules")
    write(sql="UPDATE rowlock_sources SET opened_at = created_at, last_error = 'no route' WHERE name = 'api:ebay'")
    (broken,) = findings(inside, "sources")
    assert (broken["level"], broken["do"]) == ("warn", "if it works again: rowlock sources resume api:ebay")
    assert broken["text"].startswith("the breaker of source 'api:ebay' has been open for ")
    assert broken["text"].endswith(": no route")
    write(sql="INSERT INTO rowlock_sources (name, opened_at) SELECT 'api:etsy', opened_at FROM rowlock_sources LIMIT 1")
    write(sql="UPDATE rowlock_sources SET opened_at = created_at WHERE name LIKE 'api:%'")
    assert [one["text"].split("'")[1] for one in findings(inside, "sources")] == ["api:ebay", "api:etsy"]


def _long_ago() -> Any:
    from datetime import UTC, datetime

    return datetime(2026, 1, 1, tzinfo=UTC)


def test_a_result_folder_that_cannot_be_written_to_is_found(inside: Inside, folder: Path) -> None:
    (ok,) = findings(inside, "results")
    assert ok["text"].endswith("it is made when the first file is written")
    assert list(folder.glob("rowlock-results*")) == []  # looking makes nothing
    (folder / "taken").write_text("a file")
    (folder / "rowlock.yaml").write_text("results: {path: taken}\n")
    (found,) = findings(inside, "results", code=1)
    assert (found["level"], "taken cannot be written to" in found["text"]) == ("fail", True)


def test_missing_time_zone_data_is_found() -> None:
    code = (
        "import sys; sys.modules['tzdata'] = None\n"
        "from rowlock.cli.inspect.checks import zones; from rowlock.core.config import Settings\n"
        "print(*zones(Settings()))"
    )
    with_data = code.partition("\n")[2]
    for text, env, wanted in ((code, {"PYTHONTZPATH": ""}, "fail zones"), (with_data, {}, "ok zones")):
        done = subprocess.run(
            [sys.executable, "-c", text], env=os.environ | env, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(wanted)
        assert ("pip install tzdata" in done.stdout) == wanted.startswith("fail")


def test_redis_that_cannot_be_reached_and_messages_that_nobody_sends_are_found(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings(inside, "redis") == findings(inside, "outbox") == []  # none is configured
    monkeypatch.setenv("ROWLOCK_REDIS__URL", "redis://ana:T0PSECRET@127.0.0.1:1/0")
    write(sql="INSERT INTO rowlock_outbox (kind, job_id, take_at) VALUES ('cancel', 'x', 0)")
    (found,) = findings(inside, "redis", code=1)
    assert (found["level"], "T0PSECRET" in str(found)) == ("fail", False)
    (waiting,) = findings(inside, "outbox", code=1)
    assert waiting["text"].startswith("1 message to Redis waiting")
    assert "rowlock bridge" in waiting["do"]


def test_alerts_that_do_not_arrive_are_found(inside: Inside, folder: Path) -> None:
    (folder / "rowlock.yaml").write_text("alerts: {rules: {nobody: {when: no_worker}}}\n")
    (ok,) = findings(inside, "alerts")
    assert ok["text"] == "1 rule, told by log"
    write(
        sql="INSERT INTO rowlock_alert_messages (id, type, body, created_at, attempts, send_after, last_error)"
        " VALUES ('x', 'alert.firing', '{}', 0, 3, 0, 'hooks.example answered 503')"
    )
    (found,) = findings(inside, "alerts", code=1)
    assert "answered 503" in found["text"]
    assert "rowlock alerts test" in found["do"]


def test_a_full_disk_is_found_although_reads_work(inside: Inside, folder: Path) -> None:
    full = folder / "full"
    with disk(full):
        (ok,) = findings(inside, "disk")
        assert ok["text"].startswith("a trial write worked, ")
        full.touch()
        (found,) = findings(inside, "disk", code=1)
        full.unlink()
    assert (found["level"], "the disk is full" in found["text"]) == ("fail", True)
    assert found["do"].startswith("make room")


def test_a_full_disk_is_found_by_a_write_that_reaches_it_before_a_commit_would(lite: Cli, lite_here: Inside) -> None:
    """With a write-ahead log, an open transaction stays in memory while it is small. A limit for files is the disk."""
    lite_here.run("migrate")
    limited = (
        "import resource, sys; from rowlock.cli.main import execute\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)); sys.exit(execute(['doctor', '--json']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited], cwd=lite.folder, env=lite.env, capture_output=True, text=True
    )
    (found,) = [one for one in json.loads(done.stdout) if one["check"] == "disk"]
    assert (done.returncode, found["level"]) == (1, "fail")
    assert "the disk did not take the write" in found["text"]


@each("free, level, code", [(0, "fail", 1), (100 << 20, "warn", 0), (1 << 30, "ok", 0)])
def test_little_room_is_found_where_a_write_still_fits_into_the_write_ahead_log(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, free: int, level: str, code: int
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    (found,) = findings(inside, "disk", code=code)
    assert (found["level"], f"{free >> 20:,} MiB are free" in found["text"]) == (level, True)


DISK_FULL = """
CREATE OR REPLACE FUNCTION public.no_space() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN RAISE 'could not extend file "base/5/1": No space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE EVENT TRIGGER no_space ON ddl_command_end WHEN TAG IN ('CREATE TABLE AS') EXECUTE FUNCTION public.no_space()
"""
READ_ONLY = """
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$
"""


def _rows(url: str, sql: str) -> list[Any]:
    async def ask() -> list[Any]:
        connection = await asyncpg.connect(url)
        try:
            if sql.startswith("SELECT"):
                return list(await connection.fetch(sql))
            await connection.execute(sql)
            return []
        finally:
            await connection.close()

    return asyncio.run(ask())


def test_a_server_that_takes_no_write_is_found(
    folder: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = Inside.enter(folder, postgres_url, monkeypatch, capsys)
    inside.run("migrate")
    assert [one["level"] for one in findings(inside, "disk")] == ["ok"]
    assert _rows(postgres_url, "SELECT 1 FROM pg_class WHERE relname = 'rowlock_trial'") == []
    _rows(postgres_url, DISK_FULL)
    (found,) = findings(inside, "disk", code=1)
    assert (found["level"], "the database's disk is full: could not extend" in found["text"]) == ("fail", True)
    _rows(postgres_url, "DROP EVENT TRIGGER no_space")
    _rows(postgres_url, DISK_FULL.replace("disk_full", "insufficient_privilege"))
    (found,) = findings(inside, "disk")
    assert (found["level"], found["text"].startswith("no write was tried: ")) == ("warn", True)
    _rows(postgres_url, "DROP EVENT TRIGGER no_space")
    _rows(postgres_url, READ_ONLY)  # as hosts of databases do before the disk is full
    (found,) = findings(inside, "disk", code=1)
    assert (found["level"], "is read-only" in found["text"]) == ("fail", True)
