"""`rowlock bench` measures beside the user's database and leaves nothing there."""

import json
from pathlib import Path

import psycopg
import pytest

from rowlock.cli.main import execute
from support.each import each

MEASURES = ("single", "bulk", "drain")


def bench(capsys: pytest.CaptureFixture[str], url: str, *more: str) -> dict:
    assert execute(["bench", "--database", url, "--jobs", "400", "--rounds", "1", "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def check(found: dict) -> None:
    for name in MEASURES:
        assert found[name]["rowlock"] > 0
        assert found[name]["raw"] > 0
        assert found[name]["ratio"] == pytest.approx(found[name]["rowlock"] / found[name]["raw"])
    assert 0 < found["pickup_ms"]["p50"] <= found["pickup_ms"]["p99"]


def test_a_file_is_measured_in_its_folder_and_nothing_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(bench(capsys, f"sqlite:///{tmp_path}/jobs.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_server_is_measured_in_a_database_of_its_own(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(bench(capsys, postgres_url))
    with psycopg.connect(postgres_url) as connection:
        left = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'rowlock_bench_%'").fetchall()
        assert left == []
        assert connection.execute("SELECT to_regclass('raw_jobs')").fetchone() == (None,)


def test_bench_without_json_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["bench", "--database", f"sqlite:///{tmp_path}/jobs.db", "--jobs", "100", "--rounds", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("jobs/s")
    for words in ("one at a time", "in bulk", "claim, run, settle", "p50"):
        assert words in shown


@each(
    "url, says",
    [
        ("sqlite:////nowhere/at/all/jobs.db", "does not exist"),
        ("postgresql://nobody@127.0.0.1:1/none", "cannot open"),
    ],
)
def test_a_database_that_is_not_there_is_an_error(url: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["bench", "--database", url, "--jobs", "100", "--rounds", "1"]) != 0
    assert says in capsys.readouterr().err


def test_a_role_without_the_right_is_told_what_to_do(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    role = "bench_no_createdb"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {role}")
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    try:
        url = postgres_url.replace("//postgres@", f"//{role}:x@")
        assert execute(["bench", "--database", url, "--rounds", "1"]) != 0
        assert "CREATEDB" in capsys.readouterr().err
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"DROP ROLE {role}")
