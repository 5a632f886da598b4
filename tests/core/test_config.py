"""Settings: what wins over what, what is refused, and that each refusal is one line that says where."""

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from rowlock.core.config import WorkerSettings, change_worker
from rowlock.core.errors import ConfigError
from support.each import each
from support.rigs.config import load, mistake

S2_FILE = """\
worker:
  pool_size: 5                  # as the cron service had it
  poll_interval_seconds: 5
  claim_batch_size: 10
  shutdown_timeout_seconds: 30
"""


# --- values


def test_defaults_are_those_of_the_design() -> None:
    assert load().model_dump() == {
        "database": "sqlite:///rowlock.db",
        "pooler": "session",
        "direct_url": None,
        "sources": {},
        "schedules": {},
        "app": None,
        "worker": {
            "pool_size": 10,
            "poll_interval_seconds": 5,
            "claim_batch_size": 500,
            "shutdown_timeout_seconds": 30,
            "heartbeat_seconds": 15,
            "lease_seconds": 60,
            "sweep_seconds": 10,
            "processes": 1,
            "queues": ("default",),
            "wakeups": True,
            "metrics_port": None,
            "metrics_host": "127.0.0.1",
        },
        "transactions": {"connections": None, "wait_seconds": 30, "idle_seconds": 60, "statement_seconds": 30},
        "retention": {"succeeded_days": 7, "dead_days": 30},
        "api": {
            "host": "127.0.0.1",
            "port": 8321,
            "base_path": "",
            "zone": "UTC",
            "cors_origins": (),
            "allowed_hosts": (),
            "trusted_proxies": (),
            "jwt": None,
            "body_bytes": 524_288,
            "body_seconds": 10,
            "idle_seconds": 30,
            "argument_depth": 32,
            "jobs_per_owner": 10_000,
            "requests_per_minute": 6_000,
            "address_requests_per_minute": 60_000,
            "stranger_requests_per_minute": 600,
            "metrics_open": False,
            "connections_per_owner": 20,
            "session_seconds": 43_200.0,
            "webhooks": {
                "enabled": False,
                "hosts": (),
                "allow_private": False,
                "queue": "default",
                "max_attempts": 12,
                "retry_seconds": 5,
                "timeout_seconds": 15,
            },
        },
        "results": {
            "path": "rowlock-results",
            "file_bytes": 10_000_000_000,
            "url": None,
            "endpoint": None,
            "region": None,
            "signed_urls": False,
            "signed_seconds": 300,
        },
        "redis": {"url": None, "prefix": "", "lease_seconds": 60, "takeover_seconds": 30, "unread": 1_000},
        "sentry": {"dsn": None, "environment": None, "enabled": False},
        "traces": {"enabled": False, "claims": False},
        "alerts": {
            "rules": {},
            "check_seconds": 15,
            "repeat_seconds": 3600,
            "webhook_url": None,
            "webhook_secret": None,
            "webhook_private": False,
            "webhook_timeout_seconds": 10,
        },
    }


def test_a_file_with_only_a_worker_block_is_enough() -> None:
    worker = load(S2_FILE).worker
    assert (worker.pool_size, worker.claim_batch_size, worker.lease_seconds) == (5, 10, 60)


@each("text", ["", "# nothing\n", "worker:\n", "worker: {}\n"])
def test_an_empty_file_or_section_means_defaults(text: str) -> None:
    assert load(text) == load()


def test_flags_win_over_environment_over_file_over_defaults() -> None:
    file = "worker: {pool_size: 1, sweep_seconds: 1, processes: 1, claim_batch_size: 7}"
    env = {"ROWLOCK_WORKER__POOL_SIZE": "2", "ROWLOCK_WORKER__SWEEP_SECONDS": "2"}
    worker = load(file, env, worker__pool_size=3).worker
    assert (worker.pool_size, worker.sweep_seconds, worker.claim_batch_size) == (3, 2, 7)
    assert worker.poll_interval_seconds == 5


def test_a_flag_with_the_value_none_counts_as_not_given() -> None:
    assert load("database: sqlite:///a.db", database=None).database == "sqlite:///a.db"


def test_every_key_has_a_variable() -> None:
    env = {
        "ROWLOCK_DATABASE_URL": "postgresql://localhost/app",
        "ROWLOCK_POOLER": "transaction",
        "ROWLOCK_DIRECT_URL": "postgresql://localhost:5432/app",
        "ROWLOCK_APP": "shop.jobs:app",
        "ROWLOCK_WORKER__QUEUES": "links, mail",
        "ROWLOCK_WORKER__WAKEUPS": "false",
        "ROWLOCK_TRANSACTIONS__CONNECTIONS": "40",
        "ROWLOCK_TRANSACTIONS__IDLE_SECONDS": "5m",
        "ROWLOCK_RETENTION__DEAD_DAYS": "0.5",
    }
    settings = load(env=env)
    assert settings.database == "postgresql://localhost/app"
    assert (settings.pooler, settings.app) == ("transaction", "shop.jobs:app")
    assert settings.direct_url == "postgresql://localhost:5432/app"
    assert settings.worker.queues == ("links", "mail")
    assert settings.worker.wakeups is False
    assert (settings.transactions.connections, settings.transactions.idle_seconds) == (40, 300)
    assert settings.retention.dead_days == 0.5


@each("value", ['["a", "b"]', "a,b", " a , b "])
def test_lists_in_variables_are_json_or_have_commas(value: str) -> None:
    assert load(env={"ROWLOCK_WORKER__QUEUES": value}).worker.queues == ("a", "b")


@each(
    "value, seconds",
    [(30, 30), (0.5, 0.5), ("30", 30), ("30s", 30), ("5m", 300), ("2h", 7200), ("250ms", 0.25), ("1.5 m", 90)],
)
def test_durations_are_numbers_or_have_a_unit(value: object, seconds: float) -> None:
    assert load(worker__poll_interval_seconds=value).worker.poll_interval_seconds == seconds


def test_a_file_takes_values_from_environment_variables() -> None:
    file = """
    database: ${DATABASE_URL}
    worker: {lease_seconds: "${LEASE:-300}", queues: ["${QUEUE:-mail}", slow]}
    sources: {api: {rate: "${RATE:-30/min}"}}
    """
    set_ = load(file, {"DATABASE_URL": "postgresql://u@h/d", "LEASE": "5m", "RATE": "7/s"})
    assert (set_.database, set_.worker.lease_seconds) == ("postgresql://u@h/d", 300)
    assert (set_.worker.queues, set_.sources["api"]["rate"]) == (("mail", "slow"), "7/s")
    assert load(file, {"DATABASE_URL": "sqlite:///a.db", "LEASE": "40"}).worker.lease_seconds == 40


def test_a_variable_that_is_a_whole_value_is_read_as_the_file_would_read_it() -> None:
    file = """
    sources: {api: {concurrency: "${N:-2}"}}
    schedules: {s: {task: t, every: 5s, max_attempts: "${TRIES}", args: {cmd: "echo $${FOO}", name: "${NAME}"}}}
    """
    found = load(file, {"TRIES": "3", "NAME": "ana: b"})
    assert found.sources["api"]["concurrency"] == 2
    assert found.schedules["s"]["max_attempts"] == 3
    assert found.schedules["s"]["args"] == {"cmd": "echo ${FOO}", "name": "ana: b"}


def test_a_variable_of_a_file_that_is_not_set_is_named_and_adds_no_keys() -> None:
    file = "app: a\ndatabase: ${DATABASE_URL}"
    for env in ({}, {"DATABASE_URL": ""}):
        assert mistake(file, env) == (
            "database = '${DATABASE_URL}' (rowlock.yaml:2): the environment variable DATABASE_URL is not set or empty;"
            " set it, or write a default: ${DATABASE_URL:-…}"
        )
    injected = "sqlite:///x.db\nworker:\n  pool_size: 99"
    assert load("database: ${NAME}", {"NAME": injected}).worker.pool_size == 10


def test_settings_cannot_be_changed() -> None:
    settings = load()
    with pytest.raises(ValidationError):
        settings.worker.pool_size = 3  # type: ignore[misc]
    assert settings == load()


# --- secrets


def test_passwords_are_not_shown() -> None:
    for given in ("mysql://ana:hunter2@db/a", "mysql://ana:hun:ter2@x@db/a", "mysql://db/a?password=hunter2&x=1"):
        message = mistake(database=given)
        assert "hunter2" not in message
        assert "ter2" not in message
        assert "***" in message
    assert "hunter2" not in mistake("databse: postgresql://ana:hunter2@db/a")
    assert "hunter2" not in mistake(env={"ROWLOCK_DB_PASSWORD": "hunter2"})
    assert "hunter2" not in mistake("redis: {password: hunter2}")


def test_long_values_are_cut_in_config_errors() -> None:
    assert len(mistake(app="x y" * 10_000)) < 250


# --- arguments of a call


def test_a_workers_settings_can_be_changed_by_arguments() -> None:
    base = load("worker: {pool_size: 5}").worker
    changed = change_worker(base, {"queues": ["links"], "lease_seconds": "30s"})
    assert changed == WorkerSettings(pool_size=5, queues=("links",), lease_seconds=30)
    assert base.queues == ("default",)


@each(
    "changes, message",
    [
        ({"pool_size": 0}, "worker.pool_size = 0 (argument): must be greater than or equal to 1"),
        ({"pool": 1}, "worker.pool = 1 (argument): no such setting; did you mean worker.pool_size?"),
        (
            {"heartbeat_seconds": 40},
            "worker.heartbeat_seconds = 40 (argument): must be at most half of lease_seconds (60)",
        ),
    ],
)
def test_wrong_arguments_of_a_call_are_refused_like_wrong_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as failure:
        change_worker(WorkerSettings(), changes)
    assert str(failure.value) == message


def test_importing_the_settings_imports_pydantic_and_no_yaml() -> None:
    code = "import sys, rowlock.core.config as c; c.load_settings(env={}, flags={}); print(*sys.modules)"
    # Past the package's own imports, which are another file's concern.
    stub = "import sys, types; sys.modules['rowlock'] = types.ModuleType('rowlock'); import importlib.util as u;"
    stub += f"sys.modules['rowlock'].__path__ = [{str(package_folder())!r}];"
    done = subprocess.run([sys.executable, "-c", stub + code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "pydantic" in loaded
    assert not {"yaml", "pydantic_settings", "difflib", "asyncpg", "apsw"} & loaded


def package_folder() -> str:
    import rowlock

    return rowlock.__path__[0]
