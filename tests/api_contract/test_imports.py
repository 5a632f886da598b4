"""`import rowlock`: what it brings, what it leaves out, and how long it takes."""

import json
import subprocess
import sys
import time

import pytest

import rowlock

HEAVY = ["fastapi", "aiohttp", "sentry_sdk", "asyncpg", "yaml", "typer", "rich"]
LIMIT_SECONDS = 0.4

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
    code = f"import json, sys, rowlock; print(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    assert json.loads(run(code)) == []


def test_the_import_is_quick() -> None:
    code = "import time; t = time.perf_counter(); import rowlock; print(time.perf_counter() - t)"
    best = min(float(run(code)) for _ in range(3))
    assert best < LIMIT_SECONDS, f"import rowlock took {best * 1000:.0f} ms"


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_exported(name: str) -> None:
    assert hasattr(rowlock, name)
    assert name in rowlock.__all__


def test_everything_in_all_exists() -> None:
    assert [name for name in rowlock.__all__ if not hasattr(rowlock, name)] == []


def test_no_default_database_is_touched_by_an_import(tmp_path) -> None:  # type: ignore[no-untyped-def]
    subprocess.run([sys.executable, "-c", "import rowlock; rowlock.Rowlock()"], check=True, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert time
