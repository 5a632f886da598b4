"""The documentation cannot rot: its snippets run, its names exist, its drawing is the code's."""

import ast
import asyncio
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import typer

from rowlock import Rowlock
from rowlock.cli import main
from rowlock.core.config import Settings, load_settings
from rowlock.core.schedules.rule import parse_rule
from rowlock.store.jobs import tasks
from rowlock.store.jobs.tasks import StoredTask
from support.each import each
from support.files.state_diagram import diagram

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.M | re.S)


def blocks(page: Path, language: str) -> list[tuple[str, str]]:
    return [(info.strip(), text) for kind, info, text in BLOCK.findall(page.read_text()) if kind == language]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROWLOCK_")}
    return kept | more


def run(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=60, check=False
    )


WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_snippet_runs(page: Path, tmp_path: Path) -> None:
    for number, (info, text) in enumerate(blocks(page, "python")):
        name = info.removeprefix("file=") or f"snippet_{number}.py"
        (tmp_path / name).write_text(text)
        done = run([sys.executable, name], tmp_path, PYTHONPATH=str(tmp_path))
        assert done.returncode == 0, f"{page.name}, snippet {number}:\n{done.stdout}{done.stderr}"


@pytest.mark.timeout(300)  # 15 commands, each a process that takes seconds on a busy machine
def test_the_tutorial_works_as_written(tmp_path: Path, postgres_url: str) -> None:
    tutorial = ROOT / "docs" / "tutorial.md"
    (tmp_path / "jobs.py").write_text(blocks(tutorial, "python")[0][1])
    variables: dict[str, str] = {}
    workers: list[subprocess.Popen[bytes]] = []
    dead = ""
    try:
        for _, text in blocks(tutorial, "sh"):
            for line in text.splitlines():
                words = shlex.split(line.replace("postgresql://user@host/db", postgres_url), comments=True)
                if words[0] == "export":
                    name, _, value = words[1].partition("=")
                    variables[name] = value
                    continue
                assert words[0] == "rowlock"
                command = [sys.executable, "-m", *words]
                if words[1] in ("worker", "up"):
                    command += ["--port", "0"] if words[1] == "up" else []  # the usual port may be in use
                    workers.append(subprocess.Popen(command, cwd=tmp_path, env=environment(**variables)))
                    continue
                if "ID" in words:
                    dead = dead or first("dead", f"sqlite:///{tmp_path}/jobs.db")
                    command[command.index("ID")] = dead
                done = run(command, tmp_path, **variables)
                refused = "refused" in line
                assert (done.returncode != 0) == refused, f"{line}\n{done.stdout}{done.stderr}"
                assert "Traceback" not in done.stderr
        assert first("succeeded", postgres_url)
    finally:
        for worker in workers:
            worker.terminate()
        codes = [worker.wait(timeout=40) for worker in workers]
    assert codes == [0] * len(codes)


def first(state: str, database: str) -> str:
    """The id of a job in this state, once there is one."""

    async def found() -> str:
        async with asyncio.timeout(60), Rowlock(database) as app:
            while not (jobs := await app.jobs(state=state, limit=1)):
                await asyncio.sleep(0.05)
            return jobs[0].id

    return asyncio.run(found())


WITH_COMMANDS = [page for page in PAGES if page.parent.name == "how-to" and blocks(page, "sh")]


async def register(names: set[str]) -> None:
    """Register tasks as their worker would."""
    async with Rowlock() as app:
        await app.perform(tasks.declare([StoredTask(name, {}, source_derived=False) for name in sorted(names)]))


@each("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_the_commands_of_a_how_to_work_one_after_the_other(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder := tmp_path / page.stem).mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", "sqlite:///how-to.db")
    capsys.readouterr()  # what another page's commands have printed
    lines = "".join(text for _, text in blocks(page, "sh")).splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    asyncio.run(register({words[4] for words in commands if words[1:3] == ["schedules", "add"]}))
    for line, words in zip(lines, commands, strict=True):
        assert words[0] == "rowlock"
        assert main.execute(words[1:]) == 0, f"{line}\n{capsys.readouterr().err}"


def test_the_settings_page_shows_the_defaults_and_files_that_are_taken() -> None:
    defaults, *others = [text for _, text in blocks(ROOT / "docs" / "reference" / "settings.md", "yaml")]
    assert load_settings(file_text=defaults, env={}, flags={}) == Settings()
    assert others
    for text in others:
        assert load_settings(file_text=text, env={}, flags={}) != Settings()


WITH_CONFIG = [page for page in PAGES if page.parent.name == "how-to" and blocks(page, "yaml")]


@each("page", WITH_CONFIG, ids=lambda page: page.name)
def test_the_config_of_a_how_to_is_taken(page: Path) -> None:
    for _, text in blocks(page, "yaml"):
        assert load_settings(file_text=text, env={}, flags={}) != Settings()


async def test_the_schedules_of_the_settings_page_can_be_declared(tmp_path: Path) -> None:
    for _, text in blocks(ROOT / "docs" / "reference" / "settings.md", "yaml"):
        settings = load_settings(file_text=text, env={}, flags={"database": f"sqlite:///{tmp_path}/declared.db"})
        async with Rowlock(settings=settings) as app, app.dispatcher():
            assert {row.id for row in await app.schedules.list()} >= set(settings.schedules)


def test_the_table_of_clock_changes_matches_the_code() -> None:
    page = (ROOT / "docs" / "explanation" / "ticks.md").read_text()
    rows = re.findall(r"^\| (\w+/\w+) \| `(.*)` \| (.*) \| (.*) \|$", page, re.M)
    assert len(rows) == 11
    day = datetime.min
    for zone, rule, change, fires in rows:
        if change != "the same":
            day = datetime.strptime(" ".join(change.partition(",")[0].split()), "%d %B %Y")
        # A day by the zone's own clock has all that may fire; the page shows what is near the change.
        start = day.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) - timedelta(seconds=1)
        end = (day + timedelta(days=1)).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) - timedelta(seconds=1)
        ticks, _ = parse_rule(rule, zone).ticks(start, end, 100)
        told = re.findall(r"\b\d\d:\d\d\b", re.sub(r"\(.*?\)|: no clock.*", "", fires))
        times = [f"{tick:%H:%M}" for tick in ticks]
        assert (
            times == told if "once" in fires else any(times[at : at + len(told)] == told for at in range(len(times)))
        ), f"{zone} {rule}: {times}"


def test_the_drawing_of_the_states_matches_the_code() -> None:
    page = (ROOT / "docs" / "explanation" / "states.md").read_text()
    assert f"```mermaid\n{diagram()}```" in page


CODE_NAMES = re.compile(r"`((?:[a-z_]+/)*[a-z_]+)\.(py|sql)(?:: ([\w.]+))?`")


@each("page", ["README.md", "docs/explanation/architecture.md", "docs/explanation/path.md"])
def test_every_file_and_name_of_the_code_that_a_page_names_exists(page: str) -> None:
    names = CODE_NAMES.findall((ROOT / page).read_text())
    assert len(names) >= 8
    for path, ending, name in names:
        file = ROOT / "src" / "rowlock" / f"{path}.{ending}"
        if not name and not file.exists():
            assert "/" not in path, f"{page}: there is no {file}"  # `jobs.py` is a file of the reader's
            continue
        text = file.read_text()
        found = f"-- name: {name}" in text if ending == "sql" else name in defined(text)
        assert not name or found, f"{path}.{ending} has no {name}"


def defined(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef))
            }
    return names


@each("page", ["README.md", "docs/explanation/guarantees.md"])
def test_every_promise_on_a_page_names_tests_that_exist(page: str) -> None:
    rows = re.findall(r"^\| (P\d+) \|.*\| (.*) \|$", (ROOT / page).read_text(), re.M)
    assert [number for number, _ in rows] == [f"P{number}" for number in range(1, 14)]
    for number, cell in rows:
        tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", cell)
        assert tests, f"{number} names no test"
        for path, name in tests:
            assert name in defined((ROOT / path).read_text()), f"{number}: {path} has no {name}"


def test_the_index_of_the_documentation_lists_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", index.read_text())}
    missing = {page for page in (ROOT / "docs").rglob("*.md") if page != index} - linked
    assert not missing, f"docs/README.md does not link to {', '.join(sorted(page.name for page in missing))}"


def medians(title: str) -> dict[str, list[float]]:
    """The rows of a table of the benchmarks: the name of a system, and the medians in its columns."""
    page = (ROOT / "docs" / "benchmarks" / "README.md").read_text()
    table = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+) +\|(.*)\|$", table, re.M)
    return {name: [float(cell.split()[0].replace(",", "")) for cell in cells.split("|")] for name, cells in rows}


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| (.+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) ms \|$", readme, re.M)
    assert len(rows) == 7
    for system, *cells in rows:
        sqlite = "SQLite" in system
        drain = medians("Drain of no-op jobs, " + ("SQLite" if sqlite else "PostgreSQL"))
        pickup = medians(
            "Pickup on an idle queue, " + ("SQLite, from one process to another" if sqlite else "PostgreSQL")
        )
        name = re.findall(r"\w+", system)[0].lower()
        for cell, measured in zip(cells, [*drain[name], pickup[name][0]], strict=True):
            assert float(cell.replace(",", "")) == pytest.approx(measured, rel=0.15), (
                f"{system}: write about {measured}"
            )


def test_the_reference_lists_every_verb_with_its_help() -> None:
    command = typer.main.get_command(main.app)
    verbs: dict[str, str] = {}
    for name, verb in command.commands.items():  # type: ignore[attr-defined]
        if getattr(verb, "invoke_without_command", False):  # a verb of its own, with others below it
            verbs[name] = verb.help.splitlines()[0]
        for below, inner in getattr(verb, "commands", {"": verb}).items():
            verbs[f"{name} {below}".strip()] = inner.help.splitlines()[0]
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert dict(re.findall(r"^\| `([\w -]+)` \| (.*) \|$", page, re.M)) == verbs


GLOSSARY = {
    "jobs": "job, task, queue, priority, attempt, try, outcome, state, transition, backoff, key, owner, batch, parent",
    "access": "token, login link, session",
    "time": "follow-up, retention, prune, schedule, tick, dispatcher, missed tick, promote",
    "leases": "worker, slot, lease, claim, heartbeat, fence, settle, release, reclaim, sweep, idle worker, wake-up",
    "crashes": "zombie, suspect, probation, quarantine, conviction, set aside",
    "sources": "source, source class, gate, token bucket, breaker, probe, epoch, refusal, turn, plain job",
    "operation": "behind, alert, bridge, dead letter",
    "inside": "plan, range, low-water mark, prefetch, position, look, survey, engine, store, operation, capability",
}
COINED = r"\b(source|tick|settle|lease|breaker|suspect|quarantine|conviction|convicted|set aside|follow-up|batch)e?s?\b"


def test_the_glossary_has_a_paragraph_for_every_word() -> None:
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text()
    words = [word for words in GLOSSARY.values() for word in words.split(", ")]
    headings = [word for heading in re.findall(r"^### (.+)\n\w", page, re.M) for word in heading.lower().split(", ")]
    assert sorted(headings) == sorted(words)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


WITH_COINED_WORDS = [
    page
    for page in PAGES
    if page.name not in ("glossary.md", "requirements.md")
    and "benchmarks" not in page.parts
    and re.search(COINED, BLOCK.sub("", page.read_text()))
]


@each("page", WITH_COINED_WORDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_that_uses_coined_words_links_to_the_glossary(page: Path) -> None:
    assert "glossary.md" in page.read_text()


def test_contributing_names_every_folder_of_tests_and_no_other() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = re.search(r"`tests/` has the rooms of `src/rowlock` \((.*?)\)", page, re.S)
    assert rooms is not None
    named = {*re.findall(r"`(\w+)`", rooms[1]), *re.findall(r"^\| `tests/(\w+)`", page, re.M)}
    assert named == {folder.name for folder in (ROOT / "tests").iterdir() if any(folder.glob("**/*.py"))}


RULE = re.compile(r"\b((?:core|store)/[a-z_/]+)\.(py|sql)\b(?:: ((?:\w+(?:, )?(?![a-z]+/))+))?")


@each("name", ["claim", "enqueue", "settle", "sweep"])
def test_every_python_rule_that_a_sql_function_repeats_exists(name: str) -> None:
    text = (ROOT / "src" / "rowlock" / "store" / "schema" / "postgres" / "functions" / f"{name}.sql").read_text()
    rules = RULE.findall(re.sub(r"\n *-- ", " ", text))
    assert len(rules) >= 4
    for path, ending, names in rules:
        known = defined((ROOT / "src" / "rowlock" / f"{path}.{ending}").read_text()) if ending == "py" else set()
        assert set(filter(None, names.split(", "))) <= known, f"{name}.sql names {path}.{ending}: {names}"
