"""One list of options: what type checkers see equals it, and an option that is added to it reaches every way in."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_overloads

import rowlock
from rowlock.client.client import Client
from rowlock.client.tasks.task import Task
from rowlock.core.options import OPTIONS, JobOptions, TaskOptions, names_in

NOT_STORED = {"job_id", "key", "connection"}  # of one enqueue, beside the options of its job


def test_using_takes_exactly_the_options_that_can_be_given_there() -> None:
    given = set(inspect.signature(Task.using).parameters) - {"self"}
    assert given - NOT_STORED == set(names_in("using"))


def test_task_takes_exactly_the_options_that_can_be_given_there() -> None:
    (spelt_out,) = [each for each in get_overloads(Client.task) if "queue" in inspect.signature(each).parameters]
    given = set(inspect.signature(spelt_out).parameters) - {"self", "name"}
    of_tasks_alone = {field.name for field in fields(TaskOptions)} - {field.name for field in fields(JobOptions)}
    assert given == set(names_in("task")) | of_tasks_alone


# --- an option that nobody has: in a copy of the package it is added to the record, the tables, and the columns that
# statements list (tests/store/test_queries.py names the lists that lack one), and to nothing else

FIELD = (
    '    colour: str | None = field(default=None, metadata=_about(check.name_or_none, "text", "task", "schedule"))\n'
)
TABLES = ("jobs_live", "jobs_finished", "schedules")
LISTS = ("jobs/enqueue.sql", "jobs/settle.sql", "schedules/schedules.sql", "schedules/fire.sql")
LISTED = (  # after `owner`, in each form in which the columns are listed
    (r"(?<!\.)keep_seconds, owner\b", ", colour"),
    (r":keep_seconds, :owner\b", ", :colour"),
    (r"s\.keep_seconds, s\.owner\b", ", s.colour"),
    (r"keep_seconds float, owner text", ", colour text"),
    (r"owner = excluded\.owner", ", colour = excluded.colour"),
    (r"CAST\(excluded\.owner AS text\)", ", CAST(excluded.colour AS text)"),
    (r"CAST\(\{t\}schedules\.owner AS text\)", ", CAST({t}schedules.colour AS text)"),
)
SCRIPT = """
import asyncio
from rowlock import InvalidArguments, Rowlock

app = Rowlock("sqlite:///options.db")


@app.task("plain", colour="red")
async def plain() -> None: ...


@app.task("first", on_success="plain")
async def first() -> None: ...


@app.task("calls", colour="blue", on_success="plain")
async def calls() -> None: ...


@app.schedule("every 1d", name="daily")
@app.task("nightly", colour="green")
async def nightly() -> None: ...


async def made(name: str, table: str = "rowlock_jobs_live") -> list[str | None]:
    sql = f"SELECT colour FROM {table} WHERE task = '{name}' ORDER BY id"
    return [row[0] for row in await app.fetch(sql)]


async def main() -> None:
    async with app:
        await plain.enqueue()
        await plain.enqueue_many([{}, {}])
        print("enqueue", await made("plain"))
        async with app.dispatcher():
            await app.schedules.run("daily")
        print("schedule", await made("nightly"))
        await app.schedules.add("by hand", "plain", every="1d", colour="black")
        await app.schedules.run("by hand")
        print("schedule by hand", (await made("plain"))[-1:])
        async with app.worker(queues=["elsewhere"]):
            pass  # it registers its tasks, and runs none of these jobs
        async with app.batch("empty", on_end=plain):
            pass
        print("end of a batch", (await made("plain"))[-1:])
        await first.using(queue="elsewhere").enqueue()
        async with app.worker(queues=["elsewhere"]) as worker:
            while not await app.fetch("SELECT 1 FROM rowlock_jobs_finished WHERE task = 'first'"):
                await asyncio.sleep(0.01)
        print("follow-up", (await made("plain"))[-1:])
        job = await calls.enqueue()
        await app.cancel(job.id)
        print("ended", await made("calls", "rowlock_jobs_finished"))
        await app.retry(job.id)
        print("retried", await made("calls"))
        try:
            plain.using(colour="white")
        except TypeError as error:
            print("using", "colour" in str(error))
        try:
            app.task("wrong", shade="red")(lambda: None)
        except InvalidArguments as error:
            print("an unknown one", "shade" in str(error))


asyncio.run(main())
"""


def test_an_option_that_is_added_to_the_record_is_carried_or_refused_by_name_everywhere(tmp_path: Path) -> None:
    package = tmp_path / "rowlock"
    shutil.copytree(Path(rowlock.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    options = package / "core" / "options.py"
    last = "    expires_at: datetime | None = field("
    assert options.read_text().count(last) == 1
    options.write_text(options.read_text().replace(last, FIELD + last))
    migration = "".join(f"ALTER TABLE rowlock_{table} ADD COLUMN colour TEXT;\n" for table in TABLES)
    (package / "store" / "schema" / "sqlite" / "9999_colour.sql").write_text(migration)
    for name in LISTS:
        file = package / "store" / name
        for form, added in LISTED:
            file.write_text(re.sub(form, lambda found, added=added: found[0] + added, file.read_text()))
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    by_name = [sys.executable, "-m", "rowlock", "enqueue", "plain", "--database", "sqlite:///options.db", "--json"]
    told = subprocess.run(by_name, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    refused = subprocess.run(
        [*by_name, "--colour", "red"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert refused.returncode == 2
    assert "--colour" in refused.stderr
    import apsw

    stored = apsw.Connection(str(tmp_path / "options.db")).execute(
        "SELECT colour FROM rowlock_jobs_live WHERE task = 'plain' ORDER BY id DESC LIMIT 1"
    )
    assert list(stored) == [("red",)]  # of the task's stored options, without its code
    assert done.stdout.splitlines() == [
        "enqueue ['red', 'red', 'red']",
        "schedule ['green']",
        "schedule by hand ['black']",
        "end of a batch ['red']",
        "follow-up ['red']",
        "ended ['blue']",
        "retried ['blue']",
        "using True",
        "an unknown one True",
    ]


def test_every_option_has_a_place_where_it_is_given() -> None:
    assert all(option.places or option.name in ("window", "parent_id") for option in OPTIONS.values())
