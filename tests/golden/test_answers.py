"""What a person or a program reads of one busy system: every route of the operator API that reads, and the JSON of the
verbs that show how things stand. The files have the names of all fields; values vary from run to run."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import aiohttp

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


async def test_what_one_busy_system_shows(engine: str, database: str) -> None:
    async with world(database) as seeded:
        await trouble(seeded)
        answers = await read(seeded)
        answers |= {f"rowlock {verb}": await run(seeded, verb) for verb in VERBS}
    lines = {line for name, value in answers.items() for line in fields(name, value)}
    compare(f"answers_{engine}.txt", "\n".join(sorted(lines)))


async def trouble(seeded: World) -> None:
    """What the first page of the dashboard, `stats` and `doctor` warn of."""
    await seeded.app.sources.pause("domain:a0.example", 3600)
    await run(seeded, "queues pause mail")


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


async def run(seeded: World, verb: str) -> Any:
    """The JSON that a verb prints."""
    words = [sys.executable, "-m", "rowlock", *verb.split(), "--json", "--database", seeded.app.settings.database]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROWLOCK")}
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment, cwd="/"
    )
    out, err = await process.communicate()
    assert out or not process.returncode, err
    return json.loads(out) if out else None


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
