"""What operators watch: all queues and jobs, also those without an owner, read once for all of them."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from api.conftest import Api, Serve, Socket
from api.test_live import read_stream
from cli.command import APP, Cli
from rowlock import State
from rowlock.api.live import events, snapshots
from rowlock.api.live.snapshots import Reading, View
from rowlock.store.read.live import Change, QueueCounts

ZONE = ZoneInfo("UTC")


@pytest.fixture
def cli(tmp_path: Path, app_url: str) -> Iterator[Cli]:
    """Workers in processes of their own."""
    (tmp_path / "shop.py").write_text(APP)
    cli = Cli(tmp_path, app_url)
    cli.env["ROWLOCK_APP"] = "shop"
    yield cli
    cli.close()


async def until(socket: Socket, fits: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """Messages up to the first that fits."""
    found = [await socket.next(60)]
    while not fits(found[-1]):
        found.append(await socket.next(60))
    return found


def tells(job_id: str, status: str) -> Callable[[dict[str, Any]], bool]:
    """Whether a message says that this job has got to this status."""
    return lambda message: any((job["jobId"], job["status"]) == (job_id, status) for job in message.get("jobs", ()))


async def test_an_operator_sees_jobs_without_an_owner_run_in_another_process(api: Api, cli: Cli) -> None:
    operator = await api.token(None, "operator:read")
    async with api.socket(operator) as socket:
        assert (await socket.next())["type"] == "ready"
        first = [await socket.next(), await socket.next()]
        assert [(message["type"], message["full"]) for message in first] == [
            ("queues.changed", True),
            ("jobs.changed", True),
        ]
        job = await api.app.get_task("add").enqueue(a=1)
        seen = await until(socket, tells(job.id, "QUEUED"))
        assert seen[-1]["jobs"][0]["owner"] is None
        ready = [one for message in [*first, *seen] for one in message.get("queues", ()) if one["ready"]]
        assert [(queue["name"], queue["ready"], queue["exact"]) for queue in ready[-1:]] == [("default", 1, True)]
        cli.start("worker")
        (done,) = (await until(socket, tells(job.id, "SUCCEEDED")))[-1]["jobs"]
        assert (done["jobType"], done["done"], done["progress"], done["attempt"]) == ("add", True, 100, 1)
    assert await (await api.app.store()).run(events.after(0, 10)) == []


async def test_a_queue_that_has_become_empty_is_told_with_zeros(api: Api) -> None:
    operator = await api.token(None, "operator")
    job = await api.app.get_task("add").enqueue(a=1)
    async with api.socket(operator) as socket:
        await until(socket, lambda message: message["type"] == "queues.changed" and message["queues"][0]["ready"] == 1)
        await api.app.cancel(job.id)
        seen = await until(socket, lambda message: message["type"] == "queues.changed")
        assert seen[-1]["queues"] == [
            {"name": "default", "ready": 0, "waiting": 0, "running": 0, "paused": False, "exact": True}
        ]


async def test_after_a_reconnect_the_whole_state_comes_first(api: Api) -> None:
    operator = await api.token(None, "operator")
    async with api.socket(operator) as socket:
        position = (await until(socket, lambda message: message["type"] == "jobs.changed"))[-1]["eventId"]
    job = await api.app.get_task("add").enqueue(a=1)
    await api.ask("POST", "/api/operator/queues/default/pause", operator)
    async with api.socket(operator, position) as socket:
        ready, queues, jobs = [await socket.next() for _ in range(3)]
    assert ready["type"] == "ready"
    assert (queues["full"], queues["queues"][0]["paused"], queues["queues"][0]["ready"]) == (True, True, 1)
    assert (jobs["full"], [one["jobId"] for one in jobs["jobs"]]) == (True, [job.id])


async def test_an_event_stream_tells_an_operator_what_changes_too(api: Api) -> None:
    operator = await api.token(None, "operator")
    found = await read_stream(api, "/api/events", operator, 3)
    assert [one["event"] for one in found] == ["ready", "queues.changed", "jobs.changed"]


async def test_an_operator_who_watches_one_job_is_told_of_that_job_alone(api: Api) -> None:
    operator = await api.token(None, "operator")
    job = await api.app.get_task("add").enqueue(a=1)
    await api.app.get_task("add").enqueue(a=2)
    reading = asyncio.ensure_future(read_stream(api, f"/api/jobs/{job.id}/events", operator, 1))
    assert [one["event"] for one in await reading] == ["ready"]


async def test_an_owner_is_not_told_of_queues_and_of_jobs_without_an_owner(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "ROUND_SECONDS", 0.02)
    ana, operator = await api.token("ana"), await api.token(None, "operator")
    async with api.socket(ana) as mine, api.socket(operator) as all_:
        await mine.next()
        job = await api.app.get_task("add").enqueue(a=1)
        await until(all_, tells(job.id, "QUEUED"))
        await api.app.cancel(await api.create(ana, a=1))
        assert (await mine.next())["type"] == "job.cancelled"  # nothing came before it


# --- one reader, whatever the number of operators


async def test_one_reader_serves_all_operators_and_rests_while_there_is_none(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 0.1
    monkeypatch.setattr(snapshots, "ROUND_SECONDS", seconds)
    async with serve(connections_per_owner=100) as api:
        operator = await api.token(None, "operator")
        store = await api.app.store()
        asked: list[str] = []
        run = type(store).run

        async def counting(self, op):  # type: ignore[no-untyped-def]
            asked.append(op.name)
            return await run(self, op)

        monkeypatch.setattr(type(store), "run", counting)
        async with AsyncExitStack() as open_:
            for _ in range(40):
                socket = await open_.enter_async_context(api.socket(operator))
                await until(socket, lambda message: message["type"] == "jobs.changed")
            asked.clear()
            began = time.monotonic()
            async with asyncio.timeout(30):
                while asked.count("recent") < 5:
                    await asyncio.sleep(seconds)
            most = (time.monotonic() - began) / seconds + 2
            assert asked.count("queues") <= most
            assert asked.count("recent") <= most
            reader = api.service.changes._task
            assert reader is not None
        async with asyncio.timeout(30):  # the sockets leave one after the other
            while not reader.done():
                await asyncio.sleep(0.02)
        assert (api.service.changes._views, api.service.changes._task) == (set(), None), "nobody reads any more"


async def test_the_reader_goes_on_after_an_outage_of_the_database(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from rowlock.core.errors import StoreUnavailable

    monkeypatch.setattr(snapshots, "ROUND_SECONDS", 0.05)
    operator = await api.token(None, "operator")
    async with api.socket(operator) as socket:
        await until(socket, lambda message: message["type"] == "jobs.changed")
        failed, reads = asyncio.Event(), snapshots.changes.queues

        def broken(*_: object) -> None:
            failed.set()
            raise StoreUnavailable("the server is away")

        monkeypatch.setattr(snapshots.changes, "queues", broken)
        await asyncio.wait_for(failed.wait(), 20)
        job = await api.app.get_task("add").enqueue(a=1)
        monkeypatch.setattr(snapshots.changes, "queues", reads)
        seen = await until(socket, tells(job.id, "QUEUED"))
    assert [one["jobId"] for one in seen[-1]["jobs"]] == [job.id]
    assert {message["type"] for message in seen} <= {"queues.changed", "jobs.changed", "panels.changed"}


# --- a slow client


def change(number: int, state: State = State.QUEUED) -> Change:
    at = datetime.fromtimestamp(number, UTC)
    return Change(f"job-{number}", "add", "default", state, None, 1, None, None, at)


def test_a_view_keeps_the_latest_state_of_few_jobs_however_slowly_its_client_reads() -> None:
    woken: list[int] = []
    view = View(lambda: woken.append(1))
    for number in range(10_000):
        view.put([QueueCounts("default", ready=number)], [change(number)])
    view.put([], [change(9_999, State.SUCCEEDED)])
    queues, jobs = view.take(ZONE)
    assert (queues["full"], [queue["ready"] for queue in queues["queues"]]) == (False, [9_999])
    assert (jobs["more"], len(jobs["jobs"])) == (True, snapshots.MOST_JOBS)
    assert (jobs["jobs"][-1]["jobId"], jobs["jobs"][-1]["status"]) == ("job-9999", "SUCCEEDED")
    assert view.take(ZONE) == []
    assert woken


def test_a_view_that_begins_anew_forgets_what_was_waiting() -> None:
    view = View(lambda: None)
    view.put([QueueCounts("gone", ready=1)], [change(1)])
    view.begin(Reading({"default": QueueCounts("default")}, {"job-2": change(2)}))
    queues, jobs = view.take(ZONE)
    assert (queues["full"], [queue["name"] for queue in queues["queues"]]) == (True, ["default"])
    assert (jobs["full"], jobs["more"], [job["jobId"] for job in jobs["jobs"]]) == (True, False, ["job-2"])


async def test_an_operator_is_told_which_pages_to_read_anew(api: Api) -> None:
    operator = await api.token(None, "operator")
    async with api.socket(operator) as socket:
        while (await socket.next())["type"] != "jobs.changed":
            pass
        await api.ask("POST", "/api/operator/sources/api:shop", operator, {"concurrency": 2})
        panels: set[str] = set()
        async with asyncio.timeout(30):
            while not {"audit", "sources"} <= panels:
                message = await socket.next()
                panels |= set(message["panels"]) if message["type"] == "panels.changed" else set()
        assert "schedules" not in panels
