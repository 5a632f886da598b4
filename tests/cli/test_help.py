import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

import rowlock
from rowlock.cli import main
from rowlock.cli.main import execute
from support.each import each

VERBS = ["demo", "up", "worker", "dispatch", "enqueue", "migrate", "stats", "top", "doctor", "bench"]
VERBS += ["bridge", "deadletters", "jobs", "queues", "batches", "sources", "schedules", "serve", "tokens"]
VERBS += ["webhooks", "workers", "alerts", "login-link"]
BELOW = {
    "jobs": ["list", "show", "retry", "cancel", "explain", "prune"],
    "queues": ["list", "pause", "resume", "purge"],
    "batches": ["list", "show", "cancel"],
    "sources": ["list", "set", "pause", "resume"],
    "tokens": ["create", "list", "revoke"],
    "alerts": ["list", "test"],
    "deadletters": ["list", "show", "republish", "drop"],
    "schedules": ["list", "next", "add", "remove", "run", "pause", "resume"],
    "webhooks": ["secret"],
    "workers": ["list", "drain", "stop"],
}
LEAVES = [[verb] for verb in VERBS if verb not in BELOW] + [[group, verb] for group in BELOW for verb in BELOW[group]]
LEAVES.remove(["webhooks", "secret"])
LEAVES += [["webhooks", "secret", verb] for verb in ("rotate", "list")]


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands:")[2].partition("Examples:")[0]
    listed = [line.split()[0] for line in commands.splitlines() if line.strip()]
    assert sorted(listed) == sorted(VERBS)


def test_the_option_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--version"]) == 0
    assert capsys.readouterr().out == f"rowlock {rowlock.__version__}\n"


@each("words", LEAVES, ids=" ".join)
def test_every_verb_has_help_and_takes_the_database_and_the_app_unless_it_has_its_own(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Usage: rowlock " + " ".join(words))
    assert "--database" in text
    assert "--config" in text
    assert ("--app" in text) == (words not in (["demo"], ["bench"]))


@each("group", BELOW)
def test_a_group_without_its_verb_is_answered_with_help(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([group]) == 2
    told = capsys.readouterr()
    assert all(verb in told.err for verb in BELOW[group])


def test_the_command_starts_without_what_only_some_verbs_need() -> None:
    late = {"apsw", "asyncpg", "asyncio", "uvloop", "pydantic", "rich", "secrets", "yaml", "rowlock.core.job"}
    code = f"import sys, rowlock.cli.main; print(*sorted({late} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def verbs_with_examples() -> list[tuple[str, str]]:
    """Each example below a verb's help, with the verb."""

    def walk(command: Any, path: str) -> Iterator[tuple[str, str]]:
        for line in (command.epilog or "").splitlines():
            if line.startswith("  rowlock"):
                yield path, line
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{path} {name}")

    return list(walk(typer.main.get_command(main.app), "rowlock"))


@each("verb, line", verbs_with_examples())
def test_an_example_in_the_help_is_a_command_line_that_the_parser_takes(verb: str, line: str) -> None:
    command: Any = typer.main.get_command(main.app)
    name, *words = shlex.split(line, comments=True)
    assert line.strip().startswith(verb)
    while getattr(command, "commands", None):
        name, *words = words
        command = command.commands[name]
    with command.make_context(name, words):  # parses the options, and does not run the verb
        pass


def test_the_first_sentence_of_each_help_fits_into_the_list_of_verbs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert execute(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].partition("Examples:")[0]
    assert listed.strip()
    assert "..." not in listed, listed
