"""Twenty troubles in one database: alerts, the first page, stats, top, doctor and metrics report each of them, in the
same words."""

import asyncio
import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api.conftest import Api
from api.test_operator_jobs import operator
from rowlock import FakeClock, Rowlock
from rowlock.cli.inspect.stats import SHOWN
from rowlock.cli.main import execute
from rowlock.core.outcome import Failed
from rowlock.core.schedules.rule import parse_rule
from rowlock.core.schedules.schedule import Schedule
from rowlock.health.conditions import CONDITIONS, Condition, conditions
from rowlock.signals import server_meter
from rowlock.store import queues, workers
from rowlock.store.read.snapshot import snapshot
from rowlock.store.schedules import schedules
from rowlock.store.upkeep import bad_rows
from signals.scraping import values
from support.rigs.rig import Rig, numbered
from support.rigs.sources import open_breaker, sources

# Everything happened so long ago that no duration in a sentence changes while the test reads.
AGO = timedelta(days=3, minutes=30)
TEN_DAYS = 864_000.0
ROW = numbered(999)
SERVED = ["halted", "empty", "slow", "links", "codes", "work", "many", "dying"]

# The kind and the name of each.
TROUBLES = {
    "a paused queue with jobs": ("paused", "halted"),
    "a paused queue without jobs": ("paused", "empty"),
    "a queue that no worker serves": ("unserved", "nowhere"),
    "a queue that no worker serves, with jobs for later": ("unserved", "later"),
    "a queue that is behind": ("behind", "slow"),
    "a queue that is behind because of a source": ("behind", "links"),
    "a task that no worker knows": ("unknown_task", "gone"),
    "a task that no worker knows, with jobs for later": ("unknown_task", "gone later"),
    "a worker that is silent": ("silent_worker", "silent"),
    "a breaker that is open": ("breaker", "api:broken"),
    "a breaker that is half open": ("breaker", "api:half"),
    "a source that is paused": ("source_paused", "api:paused"),
    "a source that is disabled": ("source_paused", "api:off"),
    "a class that is paused": ("source_paused", "domain"),
    "a tick that nobody fires": ("late", "nightly"),
    "a schedule that cannot fire": ("schedule", "hourly"),
    "jobs that died": ("dead", "bad"),
    "a job that nobody reclaims": ("stuck", ""),
    "a row that is set aside": ("set_aside", ROW),
    "no worker at all": ("no_workers", ""),
}
LIMITED = {"a job that runs too long": ("long_run", "work"), "too many ready jobs": ("long_queue", "many")}
RULES = """
alerts:
  rules:
    running: {when: running_seconds}
    queued: {when: queued}
    oldest: {when: oldest_seconds, above: 60}
    dead: {when: dead}
    nobody: {when: no_worker}
    nowhere: {when: no_worker, only: [nowhere, later]}
    breaker: {when: breaker_open}
    late: {when: missed_ticks}
"""


async def seed(api: Api) -> None:
    clock = FakeClock(datetime.now(UTC) - AGO)
    async with Rowlock(api.app.settings.database, clock=clock) as past:
        rig = Rig(await past.store(), clock)
        for queue in ("halted", "nowhere", "slow"):
            await rig.enqueue(queue=queue)
        for queue in ("halted", "empty"):
            await rig.store.run(queues.pause(queue))
        await rig.enqueue(queue="later", delay=TEN_DAYS)
        await rig.enqueue(queue="links", source="api:off")
        await rig.enqueue(queue="codes", task="gone")
        await rig.enqueue(queue="codes", task="gone later", delay=TEN_DAYS)
        await rig.enqueue_many(11, queue="many")
        await rig.running(queue="work", task="stuck", lease=60)
        await rig.running(queue="work", task="long", worker="alive", lease=TEN_DAYS)
        await rig.store.run(workers.register("silent", "host", 7, "1", ["slow"], ["t"], 5, None, 60))
        for source in ("api:broken", "api:half"):
            await open_breaker(rig, source)
        operator = sources(rig)
        for source in ("api:broken", "api:paused", "domain"):
            await operator.pause(source, TEN_DAYS)
        await operator.pause("api:off")
        made = [Schedule(name, "t", parse_rule("every 60s")) for name in ("nightly", "hourly")]
        await rig.store.run(schedules.declare(made, "runtime", clock.now()))
        await rig.fetch("UPDATE {t}schedules SET problem = 'no such zone', next_tick = NULL WHERE id = 'hourly'")
        await bad_rows.put(rig.store, ROW, "reclaim", ValueError("no lease_token"))
    now = Rig(await api.app.store(), FakeClock())
    await now.store.run(workers.register("alive", "host", 8, "1", SERVED, ["t", "bad"], 5, None, 3600))
    job = await api.app.get_task("bad").enqueue()
    (claimed,) = await now.claim(1, task="bad", queue="dying")
    assert claimed.id == job.id
    await now.settle(claimed, Failed("E", "broke"))


def add_task(app: Rowlock) -> None:
    @app.task("bad", queue="dying", max_attempts=1)
    async def bad() -> None: ...


class Verbs:
    """`rowlock …` in a thread: fourteen processes would take most of a minute."""

    def __init__(self, database: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._database, self._capsys = database, capsys

    async def run(self, verb: str) -> Any:
        """The JSON, or the lines, that a verb prints."""
        self._capsys.readouterr()
        await asyncio.to_thread(execute, [*verb.split(), "--database", self._database])
        out, err = self._capsys.readouterr()
        assert out, err
        return json.loads(out) if "--json" in verb else out.splitlines()


async def surfaces(api: Api, verbs: Verbs) -> dict[str, set[str]]:
    """The sentences of everything that reports what is wrong."""
    api.service.snapshots.changed()
    page = (await operator(api, "now"))["problems"]
    found = {verb: await verbs.run(verb) for verb in VERBS}
    return {
        "now": {(text[:1].lower() + text[1:]).rstrip(".") for text in (one["text"] for one in page)},
        "stats --json": {one["text"] for one in found["stats --json"]["problems"]},
        "top --json": {one["text"] for one in found["top --json"]["problems"]},
        "doctor --json": {one["text"] for one in found["doctor --json"]},
        "stats": {line.removeprefix("! ") for line in found["stats"]},
        "top": {line.removeprefix("! ") for line in found["top --once"]},
        "alerts": {one["text"] for one in found["alerts test --json"]["seen"]},
        "limits": {alert.removeprefix("alert: ") for alert in found[LIMITS]["alerts"]},
    }


LIMITS = "stats --max-queued 10 --max-running 5m --json"
VERBS = ("stats --json", "top --json", "doctor --json", "stats", "top --once", "alerts test --json", LIMITS)
PAGES = ("now", "stats --json", "top --json", "doctor --json", "stats", "top")


def missing(sentence: str, kind: str, told: dict[str, set[str]], place: int) -> list[str]:
    """The surfaces that should report a condition and do not, or in other words. Texts have the first ones."""
    known = CONDITIONS[kind]
    should = ["alerts"] if known.rule else []
    should += ["limits"] if known.needs_limit else [page for page in PAGES if place < SHOWN - 1 or "--json" in page]
    return [f"{surface}: {kind}: {sentence}" for surface in should if sentence not in told[surface]]


async def test_every_trouble_is_reported_everywhere_in_the_same_words(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("ROWLOCK")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)  # the verbs find rowlock.yaml there
    monkeypatch.setattr(server_meter, "READ_AGAIN_SECONDS", 0.0)  # metrics are read after each change
    (tmp_path / "rowlock.yaml").write_text(RULES)
    wrong: list[str] = []
    async with serve(add_task) as api:
        await seed(api)
        for workers_live in (True, False):
            if not workers_live:
                await Rig(await api.app.store(), FakeClock()).fetch("DELETE FROM {t}workers")
            found = conditions(await (await api.app.store()).run(snapshot()))
            told = await surfaces(api, Verbs(api.app.settings.database, capsys))
            for name, trouble in TROUBLES.items():
                if (name == "no worker at all") == workers_live:
                    continue
                of_it = [one for one in found if (one.kind, one.name) == trouble]
                # Without workers, the queue or the worker itself is the trouble.
                if not of_it and (workers_live or trouble[0] not in ("behind", "unknown_task", "silent_worker")):
                    wrong.append(f"{name}: no condition")
            for place, one in enumerate(found):
                rule = one.kind != "unserved" or one.name in ("nowhere", "later")
                heard = told if rule else told | {"alerts": {one.text}}
                wrong += missing(one.text, one.kind, heard, place)
            for name, (_, subject) in LIMITED.items():
                texts = {
                    text
                    for text in told["alerts"]
                    if f"of queue {subject!r}" in text or f"in queue {subject!r}" in text
                }
                if workers_live and not texts & told["limits"]:
                    wrong.append(f"{name}: {texts} {told['limits']}")
            wrong += await uncounted(api, found)
    assert wrong == []


async def uncounted(api: Api, found: list[Condition]) -> list[str]:
    """Kinds of which the metrics have another number."""
    _, raw, _ = await api.ask("GET", "/metrics", await api.token(None, "operator"))
    shown = values(raw.decode(), "rowlock_problems")
    real = Counter(one.kind for one in found)
    kinds = [kind for kind, known in CONDITIONS.items() if not known.needs_limit]
    return [f"metrics: {kind}: {shown.get((kind,))}" for kind in kinds if shown.get((kind,)) != real[kind]]
