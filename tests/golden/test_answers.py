"""What a person or a program reads of one busy system: every route of the operator API that reads, and the JSON of the
verbs that show how things stand. The files have the names of all fields; values vary from run to run."""

import asyncio
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from rowlock.cli.main import execute
from support.files.golden import compare
from support.web.world import World, world

ROUTES = (
    *("now", "stats", "queues", "workers", "sources", "schedules", "tasks", "tasks/mail.send", "batches", "settings"),
    *("jobs", "jobs/counts", "names?field=task", "find?text=import", "failures", "audit"),
    *("charts/throughput", "charts/heat", "charts/slots"),
)
JOBS = ("dead", "retryable", "running", "queued", "cancelled", "succeeded", "retried")
VERBS = (
    "stats",
    "top",
    "doctor",
    "jobs list",
    "queues list",
    "sources list",
    "workers list",
    "batches list",
    "schedules list",
)
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NAMES = {"args", "result", "perMinute"}  # of objects whose keys are data


async def test_what_one_busy_system_shows(
    engine: str, database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")  # no config of this folder, and none of the developer's shell
    for name in [name for name in os.environ if name.startswith("ROWLOCK")]:
        monkeypatch.delenv(name)

    async def run(verb: str) -> Any:
        """The JSON that a verb prints."""
        code = await asyncio.to_thread(execute, [*verb.split(), "--json", "--database", database])
        shown = capsys.readouterr()
        assert shown.out or not code, shown.err
        return json.loads(shown.out) if shown.out else None

    async with world(database) as seeded:
        # What the first page of the dashboard, `stats` and `doctor` warn of.
        await seeded.app.sources.pause("domain:a0.example", 3600)
        await run("queues pause mail")
        answers = await read(seeded)
        answers |= {f"rowlock {verb}": await run(verb) for verb in VERBS}
    lines = {line for name, value in answers.items() for line in fields(name, value)}
    compare(f"answers_{engine}.txt", "\n".join(sorted(lines)))


async def read(seeded: World) -> dict[str, Any]:
    """Every answer of the operator API, as a logged in browser gets it."""
    link = await seeded.login()
    once = link.partition("#once=")[2]
    paths = [*ROUTES, *(f"jobs/{seeded.jobs[name]}" for name in JOBS), f"batches/{seeded.jobs['batch']}"]
    paths += [f"batches/{seeded.jobs['batch']}/tree", f"jobs/{seeded.jobs['running']}/logs"]
    found = {}
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        async with http.post(f"{seeded.url}/api/session", json={"once": once}) as answer:
            assert answer.status == 201
        for path in paths:
            async with http.get(f"{seeded.url}/api/operator/{path}") as answer:
                assert answer.status == 200, (path, await answer.text())
                found[ID.sub("ID", path)] = await answer.json()
    return found


def fields(path: str, value: Any) -> Iterator[str]:
    """Every field below this one, as a path."""
    if isinstance(value, dict) and path.rpartition(".")[2] not in NAMES:
        for name, inner in value.items():
            yield from fields(f"{path}.{name}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from fields(f"{path}[]", inner)
    else:
        yield path
