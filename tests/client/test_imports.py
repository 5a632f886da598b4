"""`import rowlock`: what it brings, what it leaves out, and how long it takes."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import rowlock
from support.each import each

HEAVY = [
    "fastapi",
    "aiohttp",
    "sentry_sdk",
    "prometheus_client",
    "opentelemetry",
    "asyncpg",
    "yaml",
    "typer",
    "rich",
]

# DESIGN §5, what this version has. Schedule comes with the dispatcher.
PUBLIC = [
    "BaseHandler",
    "Context",
    "HandlerNotFoundError",
    "InvalidArguments",
    "JobCancelled",
    "JobDead",
    "Permanent",
    "Retry",
    "Rowlock",
    "Snooze",
    "WorkerPool",
    "exponential",
    "fixed",
    "get_handler",
    "handler",
]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_optional_and_heavy_packages_are_not_imported() -> None:
    """Not by the package, nor by any of its names, nor by an app that has a task."""
    code = """
import json, sys, rowlock
for name in rowlock.__all__:
    getattr(rowlock, name)
rowlock.Rowlock("sqlite:///unused.db").task("t")(lambda: None)
print(json.dumps([name for name in %r if name in sys.modules]))
"""
    assert json.loads(run(code % HEAVY)) == []


@cache
def processor_time(line: str) -> float:
    """Of the processor, not of the clock, which says nothing on a machine that does other things."""
    code = f"import time; t = time.process_time(); {line}; print(time.process_time() - t)"
    return min(float(run(code)) for _ in range(2))


@each("line, most", [("import rowlock", 0.3), ("from rowlock import Rowlock", 6)])
def test_importing_rowlock_takes_little_more_time_than_importing_pydantic(line: str, most: float) -> None:
    """Against that of pydantic, which checks arguments."""
    took = {each: processor_time(each) for each in (line, "from pydantic import TypeAdapter; TypeAdapter(int)")}
    ours, theirs = took.values()
    assert ours < most * theirs, took


def test_public_names_are_exported() -> None:
    assert [name for name in PUBLIC if not hasattr(rowlock, name) or name not in rowlock.__all__] == []


def test_every_name_in_rowlocks_all_exists() -> None:
    assert [name for name in rowlock.__all__ if not hasattr(rowlock, name)] == []


def test_making_an_app_touches_no_database(tmp_path: Path) -> None:
    code = "import rowlock; app = rowlock.Rowlock(); app.task('t')(lambda: None); app.settings"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
