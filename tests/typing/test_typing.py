"""Users' type checkers see tasks as they are: the arguments of the function, without ctx, and its result."""

import subprocess
import sys
from pathlib import Path

import pytest

PREFACE = """
from rowlock import Context, Rowlock

app = Rowlock("sqlite:///unused.db")


@app.task("links.enrich", queue="links", max_attempts=2)
async def enrich(ctx: Context, url: str, depth: int = 1) -> dict[str, int]:
    return {}


@app.task
async def plain(url: str) -> int:
    return 1


@app.task
def threaded(ctx: Context, n: int) -> str:
    return ""


async def main() -> None:
"""

RIGHT = {
    "keyword": 'await enrich.enqueue(url="u")',
    "default given": 'await enrich.enqueue(url="u", depth=2)',
    "positional": 'await enrich.enqueue("u", 2)',
    "using": 'await enrich.using(queue="q", priority=3, delay=5, tags=["x"]).enqueue(url="u")',
    "bare": 'await plain.enqueue(url="u")',
    "thread": "await threaded.enqueue(n=1)",
    "sync": 'enrich.enqueue_sync(url="u")',
    "many": 'await enrich.enqueue_many([{"url": "u"}])',
    "plain call": 'n: int = await plain(url="u")',
    "plain call without ctx": 'd: dict[str, int] = await enrich(url="u")',
    "result": 'd: dict[str, int] = await (await enrich.enqueue(url="u")).wait(timeout=3)',
    "result of a thread": "s: str = await (await threaded.enqueue(n=1)).wait()",
    "result through using": 'n: int = await (await plain.using(delay=1).enqueue(url="u")).wait()',
}

WRONG = {
    "argument name": ('await enrich.enqueue(uri="u")', "uri"),
    "type": ("await enrich.enqueue(url=7)", "int"),
    "type of a default": ('await enrich.enqueue(url="u", depth="x")', "str"),
    "missing": ("await enrich.enqueue()", "url"),
    "missing in using": ("await enrich.using(delay=1).enqueue()", "url"),
    "ctx": ('await enrich.enqueue(ctx=None, url="u")', "ctx"),
    "too many": ('await plain.enqueue("u", "v")', "[Tt]oo many"),
    "sync": ("enrich.enqueue_sync(url=7)", "int"),
    "option": ('await enrich.using(colour="red").enqueue(url="u")', "colour"),
    "result": ('s: str = await (await plain.enqueue(url="u")).wait()', "str"),
    "result of a thread": ("n: int = await (await threaded.enqueue(n=1)).wait()", "int"),
}


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy says about each snippet; one run for all of them."""
    folder = tmp_path_factory.mktemp("snippets")
    names: dict[str, str] = {}
    for kind, snippets in (("right", RIGHT), ("wrong", {name: code for name, (code, _) in WRONG.items()})):
        for number, (name, code) in enumerate(snippets.items()):
            file = folder / f"{kind}_{number}.py"
            file.write_text(f"{PREFACE}    {code}\n")
            names[file.name] = f"{kind}: {name}"
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", "--no-incremental"]
    told = subprocess.run([*command, *map(str, sorted(folder.iterdir()))], capture_output=True, text=True, cwd=folder)
    assert told.returncode in (0, 1), told.stdout + told.stderr
    found: dict[str, list[str]] = {name: [] for name in names.values()}
    for line in told.stdout.splitlines():
        file, _, message = line.partition(":")
        assert Path(file).name in names, line
        if ": error:" in message:
            found[names[Path(file).name]].append(message)
    return found


@pytest.mark.parametrize("name", RIGHT)
def test_right_calls_pass(complaints: dict[str, list[str]], name: str) -> None:
    assert complaints[f"right: {name}"] == []


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_are_errors_that_say_what(complaints: dict[str, list[str]], name: str) -> None:
    import re

    told = complaints[f"wrong: {name}"]
    assert len(told) >= 1, "mypy let it pass"
    assert any(re.search(WRONG[name][1], line) for line in told), told
