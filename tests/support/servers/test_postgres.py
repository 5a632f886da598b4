"""The tests' own PostgreSQL: it answers, it survives a restart, and it leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from support.servers import postgres as support_server
from support.servers.postgres import PostgresDatabases, PostgresServer


@pytest.fixture(scope="module")
def private_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def ask(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return row[0]


def wait_until(happened: Callable[[], bool], seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)
    return happened()


def test_each_test_has_a_database_of_its_own(postgres_url: str) -> None:
    assert ask(postgres_url, "SELECT count(*) FROM pg_stat_user_tables") == 0
    assert str(ask(postgres_url, "SELECT current_database()")).startswith("rowlock_test_")


def test_server_runs_with_the_settings_tests_rely_on(private_server: PostgresServer) -> None:
    assert ask(private_server.url, "SHOW fsync") == "on"
    assert ask(private_server.url, "SHOW max_connections") == "200"
    assert ask(private_server.url, "SHOW listen_addresses") == "127.0.0.1"


def test_template_is_copied_and_drop_ends_connections(private_server: PostgresServer) -> None:
    template = private_server.create_database("model")
    with psycopg.connect(template, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    copy = private_server.create_database("copy", template="model")
    with psycopg.connect(copy, autocommit=True) as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (7,)
        private_server.drop_database("copy")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    private_server.drop_database("model")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_restart_keeps_address_and_committed_rows(private_server: PostgresServer, mode: str) -> None:
    url, process = private_server.url, private_server.pid
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS survivors")
        connection.execute("CREATE TABLE survivors AS SELECT 1 AS id")
    private_server.restart(mode)
    assert private_server.url == url
    assert private_server.pid != process
    assert ask(url, "SELECT count(*) FROM survivors") == 1


def test_stopped_server_refuses_connections_until_started(private_server: PostgresServer) -> None:
    private_server.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(private_server.url, connect_timeout=2)
    private_server.start()
    assert ask(private_server.url, "SELECT 1") == 1


def test_close_removes_process_and_files() -> None:
    server = PostgresServer().start()
    folder, process = server.folder, server.pid
    assert process is not None
    server.close()
    assert not folder.exists()
    assert not psutil.pid_exists(process)


def test_server_does_not_outlive_a_killed_process() -> None:
    script = (
        "import time; from support.servers.postgres import PostgresServer; s = PostgresServer().start();"
        "print(s.pid, s.folder, flush=True); time.sleep(600)"
    )
    tests = Path(support_server.__file__).parents[2]
    starter = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tests)},
    )
    assert starter.stdout is not None
    with starter.stdout:
        process, folder = starter.stdout.readline().split()
    assert psutil.pid_exists(int(process))
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    assert wait_until(lambda: not psutil.pid_exists(int(process)))
    assert wait_until(lambda: not Path(folder).exists())


def test_missing_postgres_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there(_name: str) -> None:
        return None

    monkeypatch.setattr(support_server.importlib.util, "find_spec", not_there)
    monkeypatch.setattr(support_server.os, "access", lambda *_: False)
    with pytest.raises(RuntimeError, match="TEST_DATABASE_URL"):
        PostgresServer().start()


def test_given_url_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_DATABASE_URL", "postgresql://me:secret@db.example:6543/postgres?sslmode=require")
    with support_server.shared_server() as server:
        assert type(server) is PostgresDatabases
        assert server.database_url("mine") == "postgresql://me:secret@db.example:6543/mine?sslmode=require"
