import subprocess
import sys

import pytest

import rowlock
from rowlock.cli.main import execute

VERBS = ["demo", "up", "worker", "dispatch", "enqueue", "migrate", "stats", "top", "doctor", "bench"]
VERBS += ["bridge", "deadletters", "jobs", "queues", "batches", "sources", "schedules", "serve", "tokens"]
VERBS += ["webhooks", "workers", "alerts", "login-link"]
BELOW = {
    "jobs": ["list", "show", "retry", "cancel", "explain", "prune"],
    "queues": ["list", "pause", "resume"],
    "batches": ["list", "show", "cancel"],
    "sources": ["list", "set", "pause", "resume"],
    "tokens": ["create", "list", "revoke"],
    "alerts": ["list", "test"],
    "deadletters": ["list", "show", "republish", "drop"],
    "schedules": ["list", "next", "add", "remove", "run", "pause", "resume"],
    "webhooks": ["secret"],
    "workers": ["list"],
}
LEAVES = [[verb] for verb in VERBS if verb not in BELOW] + [[group, verb] for group in BELOW for verb in BELOW[group]]
LEAVES.remove(["webhooks", "secret"])
LEAVES += [["webhooks", "secret", verb] for verb in ("rotate", "list")]


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--help"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.partition("Commands:")[2].splitlines() if line]
    assert sorted(listed) == sorted(VERBS)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--version"]) == 0
    assert capsys.readouterr().out == f"rowlock {rowlock.__version__}\n"


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_verb_has_help_and_takes_the_database(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Usage: rowlock " + " ".join(words))
    assert "--database" in text
    assert "--config" in text


@pytest.mark.parametrize("group", BELOW)
def test_a_group_without_its_verb_is_answered_with_help(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([group]) == 2
    told = capsys.readouterr()
    assert all(verb in told.err for verb in BELOW[group])


def test_the_command_starts_without_what_only_some_verbs_need() -> None:
    late = {"apsw", "asyncpg", "asyncio", "uvloop", "pydantic", "rich", "secrets", "yaml", "rowlock.core.job"}
    code = f"import sys, rowlock.cli.main; print(*sorted({late} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_verb_but_demo_and_bench_names_the_app(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([*words, "--help"]) == 0
    assert ("--app" in capsys.readouterr().out) == (words not in (["demo"], ["bench"]))
