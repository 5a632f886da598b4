"""Users' type checkers see tasks as they are: the arguments of the function, without ctx, and its result."""

import re
import subprocess
import sys

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
    "bare: name": ('await plain.enqueue(uri="u")', "uri"),
    "bare: missing": ("await threaded.enqueue()", "n"),
    "plain call": ("await plain(url=7)", "int"),
    "result of a thread": ("n: int = await (await threaded.enqueue(n=1)).wait()", "int"),
}


Told = dict[tuple[str, str], list[str]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What mypy says about each snippet, by "right" or "wrong" and its name; one run for all of them."""
    folder = tmp_path_factory.mktemp("snippets")
    snippets = {("right", name): code for name, code in RIGHT.items()}
    snippets |= {("wrong", name): code for name, (code, _) in WRONG.items()}
    names = {}
    for number, (name, code) in enumerate(snippets.items()):
        file = folder / f"snippet_{number}.py"
        file.write_text(f"{PREFACE}    {code}\n")
        names[file.name] = name
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", "--no-incremental"]
    done = subprocess.run([*command, *names], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 1, done.stdout + done.stderr  # the wrong ones
    found: Told = {name: [] for name in snippets}
    for line in done.stdout.splitlines():
        file_name, _, message = line.partition(":")
        if ": error:" in line:
            found[names[file_name]].append(message)
    return found


@pytest.mark.timeout(300)  # mypy reads the whole package
def test_mypy_accepts_every_correct_call(told: Told) -> None:
    assert {name: told["right", name] for name in RIGHT if told["right", name]} == {}


@pytest.mark.timeout(300)
def test_mypy_names_what_is_wrong_with_each_wrong_call(told: Told) -> None:
    let_pass = [name for name in WRONG if not told["wrong", name]]
    assert let_pass == []
    unclear = [name for name, (_, say) in WRONG.items() if not re.search(say, "\n".join(told["wrong", name]))]
    assert unclear == []
