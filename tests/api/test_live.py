"""Live events: a WebSocket and event streams that miss nothing, or say so."""

import asyncio
import json
import resource
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import aiohttp
import psycopg
import pytest

from api.conftest import Api, Serve, event_of
from rowlock import State
from rowlock.api import context
from rowlock.api.access import tokens
from rowlock.api.live import events, reader, sockets
from rowlock.api.live.reader import EventPosition
from rowlock.store.upkeep.retention import forget
from support.each import each


async def test_a_socket_tells_progress_and_end_of_the_owners_jobs_and_of_no_others(api: Api) -> None:
    ana, bob = await api.token("ana"), await api.token("bob")
    async with api.socket(ana) as mine, api.socket(bob) as theirs:
        assert (await mine.next())["type"] == (await theirs.next())["type"] == "ready"
        job_id = await api.create(ana, "steps", count=3)
        failing = await api.create(bob, "fail")
        async with api.app.worker():
            seen, other = await asyncio.gather(mine.until_done(), theirs.until_done())
    assert {message["jobId"] for message in seen} == {job_id}
    assert seen[-1]["type"] == "job.completed"
    assert (seen[-1]["status"], seen[-1]["progress"]) == ("SUCCEEDED", 100)
    progress = [message["progress"] for message in seen]
    assert progress == sorted(progress)
    assert {message["jobId"] for message in other} == {failing}
    assert (other[-1]["type"], other[-1]["errorCode"]) == ("job.failed", "BROKEN")


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_socket_tells_its_owner_that_a_job_was_cancelled(api: Api) -> None:
    ana = await api.token()
    async with api.socket(ana) as socket:
        await socket.next()
        job_id = await api.create(ana, "hang")
        await api.ask("POST", f"/api/jobs/{job_id}/cancel", ana)
        message = await socket.next()
    assert (message["type"], message["jobId"], message["status"]) == ("job.cancelled", job_id, "CANCELLED")


async def test_a_job_without_an_owner_writes_no_event_and_an_operator_sees_all_that_there_are(api: Api) -> None:
    ana, operator = await api.token(), await api.token(None, "operator")
    async with api.socket(operator) as socket:
        await socket.next()
        await api.app.get_task("add").enqueue(a=1)
        owned = await api.create(ana, a=1)
        async with api.app.worker():
            seen = await socket.until_done()
    assert {message["jobId"] for message in seen if message["type"].startswith("job.")} == {owned}
    found = await (await api.app.store()).run(events.after(0, 100))
    assert {event.owner for event in found} == {"ana"}


async def test_a_client_that_comes_back_gets_what_it_missed(api: Api) -> None:
    ana = await api.token()
    async with api.socket(ana) as socket:
        position = (await socket.next())["eventId"]
    jobs = [await api.create(ana, a=n) for n in range(5)]
    async with api.app.worker():
        for job_id in jobs:
            await (await api.app.job(job_id)).wait(timeout=20)
    async with api.socket(ana, position) as socket:
        assert (await socket.next())["type"] == "ready"
        seen = [await socket.next() for _ in jobs]
        assert {message["jobId"] for message in seen} == set(jobs)
        last = seen[-1]["eventId"]
        await api.create(ana, a=9)
        async with api.app.worker():
            assert (await socket.next())["done"]
    async with api.socket(ana, last) as socket:
        assert (await socket.next())["type"] == "ready"
        assert (await socket.next())["jobId"] not in jobs


@each("position", ["nonsense", "-1.0", "999999999.999999999", "1", "1.2.3", ""])
async def test_a_position_that_nobody_gave_is_answered_with_resync(api: Api, position: str) -> None:
    async with api.socket(await api.token(), position) as socket:
        assert (await socket.next())["type"] == "resync"
        assert await socket.closed() == sockets.RESYNC


async def test_a_client_that_was_away_for_too_long_must_start_again(api: Api) -> None:
    ana = await api.token()
    async with api.socket(ana) as socket:
        position = (await socket.next())["eventId"]
    for _ in range(2):
        await api.app.cancel(await api.create(ana, a=1))
    store = await api.app.store()
    assert await store.run(forget("prune_events", 100, -60.0)) == 1  # the newest one always stays
    async with api.socket(ana, position) as socket:
        assert (await socket.next())["type"] == "resync"


async def test_a_ticket_opens_one_socket_once(api: Api) -> None:
    ana = await api.token()
    _, body, _ = await api.ask("POST", "/api/tickets", ana)
    address = f"{api.url.replace('http', 'ws')}/api/ws?ticket={body['ticket']}"
    async with api.http.ws_connect(address) as first:
        assert json.loads((await first.receive()).data)["type"] == "ready"
        async with api.http.ws_connect(address) as second:
            assert json.loads((await second.receive()).data)["code"] == "UNAUTHORIZED"
            assert (await second.receive()).type is aiohttp.WSMsgType.CLOSE
            assert second.close_code == sockets.REFUSED


@pytest.mark.parametrize("engine", ["sqlite"])
@each("hello", ["", "{", "[]", '{"token": 1}', '{"token": "rowlock_nobodys"}', "{}", "x" * 20_000])
async def test_a_socket_that_does_not_say_who_it_is_gets_nothing(api: Api, hello: str) -> None:
    async with api.socket() as socket:
        await socket.raw.send_str(hello)
        assert (await socket.next())["code"] == "UNAUTHORIZED"
        assert await socket.closed() == sockets.REFUSED


@pytest.mark.parametrize("engine", ["sqlite"])
@each("origin", ["http://evil.example", "null", "https://127.0.0.1.evil.example", "file://", ""])
async def test_a_page_of_another_origin_cannot_open_a_socket(api: Api, origin: str) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await api.http.ws_connect(api.url.replace("http", "ws") + "/api/ws", headers={"Origin": origin})
    assert refused.value.status == 403


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_page_of_this_server_or_of_a_named_origin_can(serve: Serve) -> None:
    async with serve(cors_origins=["https://shop.example"]) as api:
        for origin in (api.url, "https://shop.example"):
            async with api.http.ws_connect(
                api.url.replace("http", "ws") + "/api/ws", headers={"Origin": origin}
            ) as socket:
                await socket.send_json({"token": await api.token()})
                assert json.loads((await socket.receive()).data)["type"] == "ready"


async def test_revoking_a_token_closes_its_socket_within_five_seconds(api: Api) -> None:
    ana, other = await api.token(), await api.token()
    async with api.socket(ana) as socket, api.socket(other) as stays:
        await socket.next()
        await stays.next()
        await (await api.app.store()).run(tokens.revoke(ana))
        assert await socket.closed(5) == sockets.REFUSED
        await api.app.cancel(await api.create(other, a=1))
        assert (await stays.next())["type"] == "job.cancelled"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_owner_gets_no_more_connections_than_connections_per_owner(serve: Serve) -> None:
    async with serve(connections_per_owner=2) as api:
        ana, bob = await api.token("ana"), await api.token("bob")
        async with AsyncExitStack() as open_:
            for token in (ana, ana, bob):  # one after the other: which hello comes first is not for the client to say
                socket = await open_.enter_async_context(api.socket(token))
                assert (await socket.next())["type"] == "ready"
            third = await open_.enter_async_context(api.socket(ana))
            assert (await third.next())["code"] == "TOO_MANY_CONNECTIONS"
            assert (await api.ask("GET", "/api/events", ana))[0] == 429


@pytest.mark.parametrize("engine", ["sqlite"])
@each("way", ["ticket", "hello"])
async def test_a_socket_that_is_refused_gets_an_error_with_the_position_it_came_with(api: Api, way: str) -> None:
    address = f"{api.url.replace('http', 'ws')}/api/ws"
    async with api.http.ws_connect(address + ("?ticket=used&lastEventId=3.7" if way == "ticket" else "")) as raw:
        if way == "hello":
            await raw.send_json({"token": "rowlock_nobodys", "lastEventId": "3.7"})
        message = json.loads((await raw.receive()).data)
    assert (message["type"], message["code"], message["eventId"]) == ("error", "UNAUTHORIZED", "3.7")


# --- server-sent events


async def read_stream(api: Api, path: str, token: str | None, count: int, **headers: str) -> list[dict[str, str]]:
    """The first events of a stream, as their fields."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    found: list[dict[str, str]] = []
    async with asyncio.timeout(20), api.http.get(api.url + path, headers=headers) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in answer.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif fields.get("data"):
                found.append(fields)
                fields = {}
                if len(found) == count:
                    break
    return found


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_stream_tells_one_job_and_ends_with_it(api: Api) -> None:
    ana = await api.token()
    job_id = await api.create(ana, "steps", count=2)
    await api.create(ana, a=1)
    reading = asyncio.ensure_future(read_stream(api, f"/api/jobs/{job_id}/events", ana, 100))
    async with api.app.worker():
        found = await reading
    assert found[0]["event"] == "ready"
    assert found[-1]["event"] == "job.completed"
    assert {json.loads(one["data"])["jobId"] for one in found[1:]} == {job_id}


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_stream_goes_on_after_the_last_event_id(api: Api) -> None:
    ana = await api.token()
    (ready,) = await read_stream(api, "/api/events", ana, 1)
    jobs = [await api.create(ana, a=n) for n in range(3)]
    for job_id in jobs:
        await api.app.cancel(job_id)
    _, first = await read_stream(api, "/api/events", ana, 2, Last_Event_ID=ready["id"])
    rest = await read_stream(api, "/api/events", ana, 3, Last_Event_ID=first["id"])
    assert [json.loads(one["data"])["jobId"] for one in (first, *rest[1:])] == jobs


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_the_stream_of_a_job_that_has_ended_tells_its_end_and_ends(api: Api) -> None:
    ana = await api.token()
    job_id = await api.create(ana, a=1)
    await api.app.cancel(job_id)
    found = await read_stream(api, f"/api/jobs/{job_id}/events", ana, 100)
    assert [one["event"] for one in found] == ["ready", "job.cancelled"]
    assert json.loads(found[1]["data"])["jobId"] == job_id


@pytest.mark.parametrize("engine", ["sqlite"])
@each("position", ["nonsense", "999999999.999999999"])
async def test_a_stream_goes_on_after_resync_because_a_browser_would_come_back_with_its_position(
    api: Api, position: str
) -> None:
    ana = await api.token()
    async with asyncio.timeout(20):
        while api.service.feed._watchers:  # of the row before: the server notices a little later that it has left
            await asyncio.sleep(0.01)
    reading = asyncio.ensure_future(read_stream(api, "/api/events", ana, 3, Last_Event_ID=position))
    job_id = await api.create(ana, a=1)
    async with asyncio.timeout(20):
        while not api.service.feed._watchers:
            await asyncio.sleep(0.01)
        await api.service.feed._ready.wait()
    await api.app.cancel(job_id)
    found = await reading
    assert [one["event"] for one in found] == ["resync", "ready", "job.cancelled"]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_the_stream_of_a_job_that_has_ended_tells_its_end_also_after_resync(api: Api) -> None:
    ana = await api.token()
    job_id = await api.create(ana, a=1)
    await api.app.cancel(job_id)
    found = await read_stream(api, f"/api/jobs/{job_id}/events", ana, 100, Last_Event_ID="nonsense")
    assert [one["event"] for one in found] == ["resync", "ready", "job.cancelled"]


@pytest.mark.parametrize("engine", ["postgres"])
async def test_a_client_that_leaves_in_the_middle_of_an_event_stream_is_no_error_in_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture, engine: str
) -> None:
    async with serve() as api:
        ana = await api.token()
        for _ in range(3):
            async with api.http.get(f"{api.url}/api/events", headers={"Authorization": f"Bearer {ana}"}) as answer:
                await answer.content.readuntil(b"ready")
                with psycopg.connect(api.app.database) as other:
                    other.execute(
                        "INSERT INTO rowlock.events (job_id, owner, type, task, state, attempt, message, at)"
                        " SELECT gen_random_uuid(), 'ana', 'job.cancelled', 'add', 'cancelled', 1, %s, now()"
                        " FROM generate_series(1, 500)",
                        ("x" * 50_000,),
                    )
                await answer.content.readexactly(500_000)
                answer.close()
        async with asyncio.timeout(20):
            while api.service.feed._watchers:
                await asyncio.sleep(0.01)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


# --- many and slow clients


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for many sockets with both of their ends in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_two_hundred_idle_sockets_ask_the_database_no_more_often_than_one(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, many_files: None
) -> None:
    """The bound has no number of sockets in it: one reader's rounds, and one question about all tokens in two seconds.
    With a question of each socket in two seconds it would be passed many times over."""
    async with serve(connections_per_owner=1000) as api:
        ana = await api.token()
        store = await api.app.store()
        asked: list[str] = []
        run = type(store).run

        async def counting(self, op):  # type: ignore[no-untyped-def]
            asked.append(op.name)
            return await run(self, op)

        async def idle() -> None:
            socket = await open_.enter_async_context(unlimited.socket(ana))
            assert (await socket.next(60))["type"] == "ready"

        async with AsyncExitStack() as open_:
            connector = aiohttp.TCPConnector(limit=0)
            unlimited = replace(api, http=await open_.enter_async_context(aiohttp.ClientSession(connector=connector)))
            for _ in range(4):
                await asyncio.gather(*(idle() for _ in range(50)))
            monkeypatch.setattr(type(store), "run", counting)
            began = time.monotonic()
            async with asyncio.timeout(60):
                while asked.count("still_good") < 2:  # real seconds: what is counted is statements in a time
                    await asyncio.sleep(0.02)
            seconds = time.monotonic() - began
            monkeypatch.setattr(type(store), "run", run)
        rounds = seconds / (reader.CHECK_SECONDS if store.engine == "postgres" else reader.POLL_SECONDS)
        assert len(asked) <= rounds + seconds / context.TOKEN_SECONDS + 5


async def test_a_client_that_does_not_read_is_cut_off_and_the_memory_it_costs_is_bounded() -> None:
    watcher = reader.EventWatcher("ana", None)
    for number in range(1, 100_001):
        watcher.put(event_of(number, "job.completed", State.SUCCEEDED), EventPosition(number, number))
    assert watcher.overrun
    assert await watcher.take(20.0) == []


async def test_progress_that_waits_is_replaced_by_newer_progress_of_the_same_job() -> None:
    watcher = reader.EventWatcher("ana", None)
    for number in range(1, 10_001):
        watcher.put(event_of(number, job_id=f"job-{number % 3}"), EventPosition(number, number))
    taken = await watcher.take(20.0)
    assert not watcher.overrun
    assert [event.id for event, _ in taken] == [9_998, 9_999, 10_000]
