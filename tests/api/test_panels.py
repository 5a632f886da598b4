"""What operators watch: which pages have something new, read once for all of them; pages share what they read."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from api.conftest import Api, Serve, Socket
from api.test_live import read_stream
from cli.command import APP, Cli
from rowlock.api.live import events, panels
from rowlock.core.errors import StoreUnavailable
from rowlock.store.read import snapshot


@pytest.fixture
def cli(tmp_path: Path, app_url: str) -> Iterator[Cli]:
    """Workers in processes of their own."""
    (tmp_path / "shop.py").write_text(APP)
    cli = Cli(tmp_path, app_url)
    cli.env["ROWLOCK_APP"] = "shop"
    yield cli
    cli.close()


async def until(socket: Socket, *pages: str) -> set[str]:
    """The pages that messages name, up to the moment when all of these were named."""
    found: set[str] = set()
    while not set(pages) <= found:
        message = await socket.next(60)
        assert message["type"] == "panels.changed"
        found |= set(message["panels"])
    return found


async def shown(api: Api, token: str, path: str, fits: Callable[[Any], bool], socket: Socket) -> Any:
    """What a page shows that reads `path` whenever it is told to, once that fits."""
    etag, value = None, None
    while True:
        headers = {"Authorization": f"Bearer {token}"} | ({} if etag is None else {"If-None-Match": etag})
        async with api.http.get(api.url + path, headers=headers) as answer:
            assert answer.status in (200, 304)
            etag, value = answer.headers["ETag"], await answer.json() if answer.status == 200 else value
        if fits(value):
            return value
        await socket.next(60)


async def test_an_operator_sees_jobs_without_an_owner_run_in_another_process(api: Api, cli: Cli) -> None:
    operator = await api.token(None, "operator:read")
    async with api.socket(operator) as socket:
        assert (await socket.next())["type"] == "ready"
        job = await api.app.get_task("add").enqueue(a=1)
        await until(socket, "jobs", "queues", "now")
        cli.start("worker")
        path = f"/api/operator/jobs/{job.id}"
        done = await shown(api, operator, path, lambda page: page["job"]["state"] == "succeeded", socket)
        assert done["job"]["attempt"] == 1
    assert await (await api.app.store()).run(events.after(0, 10)) == []


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_event_stream_tells_an_operator_what_changes_as_well(api: Api) -> None:
    operator = await api.token(None, "operator")
    reading = asyncio.ensure_future(read_stream(api, "/api/events", operator, 2))
    while not reading.done():
        await api.app.get_task("add").enqueue(a=1)
        await asyncio.sleep(0.1)
    assert [one["event"] for one in await reading] == ["ready", "panels.changed"]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_operator_who_watches_one_job_is_told_of_that_job_alone(api: Api) -> None:
    operator = await api.token(None, "operator")
    job = await api.app.get_task("add").enqueue(a=1)
    await api.app.get_task("add").enqueue(a=2)
    reading = asyncio.ensure_future(read_stream(api, f"/api/jobs/{job.id}/events", operator, 1))
    assert [one["event"] for one in await reading] == ["ready"]


async def test_an_owner_is_not_told_of_jobs_without_an_owner(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "ROUND_SECONDS", 0.02)
    ana, operator = await api.token("ana"), await api.token(None, "operator")
    async with api.socket(ana) as mine, api.socket(operator) as all_:
        await mine.next()
        await all_.next()
        await api.app.get_task("add").enqueue(a=1)
        await until(all_, "jobs")
        await api.app.cancel(await api.create(ana, a=1))
        assert (await mine.next())["type"] == "job.cancelled"  # nothing came before it


async def test_an_operator_is_told_which_pages_to_read_anew(api: Api) -> None:
    operator = await api.token(None, "operator")
    async with api.socket(operator) as socket:
        assert (await socket.next())["type"] == "ready"
        await api.ask("POST", "/api/operator/sources/api:shop", operator, {"concurrency": 2})
        assert "schedules" not in await until(socket, "audit", "sources")


async def test_a_page_that_reads_anew_is_not_answered_from_before_the_change(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's snapshot, which pages share, ends with each change that they are sent."""
    monkeypatch.setattr(snapshot, "FRESH_SECONDS", 3600.0)
    operator = await api.token(None, "operator")
    async with api.socket(operator) as socket:
        assert (await socket.next())["type"] == "ready"
        assert (await api.ask("GET", "/api/operator/now", operator))[1]["waiting"]["count"] == 0
        await api.app.get_task("add").enqueue(a=1)
        await until(socket, "jobs", "now")
        assert (await api.ask("GET", "/api/operator/now", operator))[1]["waiting"]["count"] == 1


async def test_nobody_is_told_anything_while_nothing_happens(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "ROUND_SECONDS", 0.02)
    operator = await api.token(None, "operator")
    await api.app.get_task("add").enqueue(a=1)
    async with api.socket(operator) as socket:
        assert (await socket.next())["type"] == "ready"
        rounds, read = asyncio.Semaphore(0), panels.Panels._round

        async def counted(self: panels.Panels, store: Any) -> None:
            await read(self, store)
            rounds.release()

        monkeypatch.setattr(panels.Panels, "_round", counted)
        for _ in range(10):
            await asyncio.wait_for(rounds.acquire(), 30)
        job = await api.app.get_task("add").enqueue(a=1)
        assert (await socket.next(60))["type"] == "panels.changed"  # and nothing came before it
        assert job.id


# --- one reader, whatever the number of operators


async def test_one_reader_serves_all_operators_and_rests_while_there_is_none(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 0.1
    monkeypatch.setattr(panels, "ROUND_SECONDS", seconds)
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
                assert (await socket.next())["type"] == "ready"
            asked.clear()
            began = time.monotonic()
            async with asyncio.timeout(30):
                while asked.count("marks") < 5:
                    await asyncio.sleep(seconds)
            assert asked.count("marks") <= (time.monotonic() - began) / seconds + 2
            reader = api.service.panels._task
            assert reader is not None
        async with asyncio.timeout(30):  # the sockets leave one after the other
            while not reader.done():
                await asyncio.sleep(0.02)
        assert (api.service.panels._watchers, api.service.panels._task) == (set(), None), "nobody reads any more"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_the_reader_goes_on_after_an_outage_of_the_database(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "ROUND_SECONDS", 0.05)
    operator = await api.token(None, "operator")
    async with api.socket(operator) as socket:
        assert (await socket.next())["type"] == "ready"
        failed, marks = asyncio.Event(), panels.marks

        def broken() -> None:
            failed.set()
            raise StoreUnavailable("the server is away")

        monkeypatch.setattr(panels, "marks", broken)
        await asyncio.wait_for(failed.wait(), 20)
        await api.app.get_task("add").enqueue(a=1)
        monkeypatch.setattr(panels, "marks", marks)
        await until(socket, "jobs")


# --- answers that pages share


JOBS = "/api/operator/jobs"


async def read(api: Api, token: str, etag: str | None = None, path: str = JOBS) -> tuple[int, Any, str | None, bool]:
    """Status, value and ETag of an answer, and whether another request had read it."""
    headers = {"Authorization": f"Bearer {token}"} | ({} if etag is None else {"If-None-Match": etag})
    async with api.http.get(api.url + path, headers=headers) as answer:
        value = await answer.json() if answer.status == 200 else None
        return answer.status, value, answer.headers.get("ETag"), "Age" in answer.headers


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_page_that_has_the_newest_answer_is_told_so(api: Api) -> None:
    operator = await api.token(None, "operator")
    _, first, etag, _ = await read(api, operator)
    assert first["items"] == []
    assert await read(api, operator, etag) == (304, None, etag, True)
    await api.app.get_task("add").enqueue(a=1)
    status, value, newer, shared = await read(api, operator)
    assert (status, len(value["items"]), newer != etag, shared) == (200, 1, True, False), (
        "without an ETag it reads anew"
    )


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_what_one_page_has_read_is_shared_for_a_second_until_something_changes(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panels, "SHARED_SECONDS", 60.0)
    operator = await api.token(None, "operator")
    _, _, etag, _ = await read(api, operator)
    job = await api.app.get_task("add").enqueue(a=1)
    assert await read(api, operator, etag) == (304, None, etag, True), "read before that job, by another page"
    await api.ask("POST", f"/api/operator/jobs/{job.id}/cancel", operator)
    status, value, etag, shared = await read(api, operator, etag)
    assert (status, value["items"][0]["state"], shared) == (200, "cancelled", False)
    async with api.socket(operator) as socket:
        assert (await socket.next())["type"] == "ready"
        await api.app.get_task("add").enqueue(a=2)
        await until(socket, "jobs")
        status, value, _, shared = await read(api, operator, etag)
        assert (status, len(value["items"]), shared) == (200, 2, False)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_pages_that_ask_at_once_are_answered_by_one_read(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = await api.token(None, "operator")
    asked: list[str] = []
    look = type(api.service).look

    async def counting(self, op):  # type: ignore[no-untyped-def]
        asked.append(op.name)
        return await look(self, op)

    monkeypatch.setattr(type(api.service), "look", counting)
    answers = await asyncio.gather(*(read(api, operator, '"old"', "/api/operator/now") for _ in range(20)))
    once = len(asked)
    assert {status for status, *_ in answers} == {200}
    assert sum(not shared for *_, shared in answers) == 1
    await read(api, operator, None, "/api/operator/now")
    assert len(asked) == 2 * once


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_what_an_operator_may_do_is_not_shared_with_one_who_may_only_read(api: Api) -> None:
    operator, reader = await api.token(None, "operator"), await api.token(None, "operator:read")
    job = await api.app.get_task("add").enqueue(a=1)
    path = f"{JOBS}/{job.id}"
    _, mine, etag, _ = await read(api, operator, None, path)
    status, theirs, *_ = await read(api, reader, etag, path)
    assert (status, mine["can"], theirs["can"]) == (200, ["cancel"], [])
    assert (await read(api, await api.token("ana"), etag, path))[0] == 403


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_answer_that_failed_is_not_shared(api: Api) -> None:
    operator = await api.token(None, "operator")
    path = f"{JOBS}/00000000-0000-7000-8000-000000000001"
    assert [(await read(api, operator, '"x"', path))[0] for _ in range(2)] == [404, 404]
