"""`/metrics` of the server: who may read it, and what it says of the database."""

import asyncio
import json
from typing import Any

import pytest

from api.conftest import Api
from rowlock.signals.metrics import METRICS, MOST, OTHER
from rowlock.signals.server_meter import of_queues, of_sources
from rowlock.store.read.counts import QueueStats, Stats
from rowlock.store.sources.sources import SourceLevel
from signals.scraping import names, values


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_metrics_are_for_operators(api: Api) -> None:
    assert (await api.ask("GET", "/metrics"))[0] == 401
    assert (await api.ask("GET", "/metrics", await api.token("ana")))[0] == 403
    for scope in ("operator", "operator:read"):
        status, text, headers = await api.ask("GET", "/metrics", await api.token(None, scope))
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=")
    assert b"rowlock_workers " in text


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_metrics_can_be_opened_to_everybody(serve: Any) -> None:
    async with serve(**{"api.metrics_open": True}) as api:
        assert (await api.ask("GET", "/metrics"))[0] == 200


async def test_the_database_s_numbers_are_exported_under_their_documented_names(api: Api) -> None:
    ana = await api.token("ana")
    for n in range(3):
        await api.create(ana, "add", a=n, b=1)
    await api.create(ana, "fail")
    async with api.app.worker():
        for job in await api.app.jobs():
            await asyncio.gather((await api.app.job(job.id)).wait(timeout=20), return_exceptions=True)
    for n in range(3):
        await api.create(ana, "add", a=n, b=1)
    await api.app.sources.set("api:shop", rate="30/min", burst=5)
    await api.app.sources.set("api:closed")
    await api.app.sources.pause("api:closed", 600)
    _, raw, _ = await api.ask("GET", "/metrics", await api.token(None, "operator"))
    text = raw.decode()
    assert names(text) == {metric.name for metric in METRICS.values() if metric.counted_in in ("client", "server")}
    assert values(text, "rowlock_jobs_enqueued_total") == {("default", "add"): 6, ("default", "fail"): 1}
    ended = {("default", "add", "succeeded"): 3, ("default", "fail", "dead"): 1}
    assert values(text, "rowlock_jobs_finished_total") == ended
    assert values(text, "rowlock_attempts_unsuccessful_total") == {("default", "fail", "failed"): 1}
    assert values(text, "rowlock_queue_depth")["default", "queued"] == 3
    assert values(text, "rowlock_queue_ready") == {("default",): 3}
    assert values(text, "rowlock_queue_oldest_age_seconds")["default",] >= 0
    assert values(text, "rowlock_source_state") == {("api:closed", "paused"): 1, ("api:shop", "open"): 1}
    assert values(text, "rowlock_source_tokens") == {("api:shop",): 5}
    assert "ana" not in text


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_worker_in_the_process_of_the_server_shows_its_numbers_there(api: Api) -> None:
    async with api.app.worker():
        job = await api.create(await api.token("ana"), "add", a=1, b=2)
        await (await api.app.job(job)).wait(timeout=20)
        _, raw, _ = await api.ask("GET", "/metrics", await api.token(None, "operator"))
    assert values(raw.decode(), "rowlock_attempts_total") == {("default", "add", "succeeded"): 1}


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_many_scrapes_share_one_reading_of_the_database(api: Api) -> None:
    operator = await api.token(None, "operator")
    first = (await api.ask("GET", "/metrics", operator))[1]
    await api.create(await api.token("ana"), "add", a=1, b=1)
    again = (await api.ask("GET", "/metrics", operator))[1]
    assert again.endswith(first), "the numbers of the process itself come before those of the database"
    assert values(again.decode(), "rowlock_jobs_enqueued_total") == {("default", "add"): 1}


def test_the_labels_of_queues_and_sources_are_bounded() -> None:
    queues = tuple(
        QueueStats(
            name=f"q{n}",
            queued=n,
            retryable=0,
            running=1,
            waiting=0,
            oldest_ready_seconds=1.0,
            paused=False,
            longest_running_seconds=2.0,
        )
        for n in range(250)
    )
    stats = Stats(
        queues=queues,
        exact=True,
        workers=0,
        slots=0,
        finished={},
        finished_tasks={},
        finished_exact=True,
        set_aside=(),
    )
    depth = of_queues(stats)["rowlock_queue_depth"]
    assert len({sample.labels[0] for sample in depth}) == MOST + 1
    queued = [sample.value for sample in depth if sample.labels[1] == "queued"]
    assert sum(queued) == sum(range(250)), "the rest is summed up as `other`"  # type: ignore[arg-type]
    levels = [SourceLevel(f"domain:{n}", "open" if n % 2 else "paused", 1.0) for n in range(250)]
    found = of_sources(levels)
    assert len({sample.labels[0] for sample in found["rowlock_source_state"]}) == MOST + 1
    assert {sample.labels: sample.value for sample in found["rowlock_source_state"] if sample.labels[0] == OTHER} == {
        (OTHER, "open"): 75,
        (OTHER, "paused"): 75,
    }
    assert json.dumps([sample.labels[0] for sample in found["rowlock_source_tokens"]]).count(OTHER) == 1
