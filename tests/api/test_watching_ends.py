"""Who may watch, and for how long: tickets, tokens that end, and clients that do not read."""

import asyncio
import contextlib
import gc
import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import psutil
import pytest

from api.conftest import Api, Serve, Socket
from api.test_live import read_stream
from rowlock.api.access import tokens
from rowlock.api.context import Service
from support.each import each

LARGE = 20_000  # characters of an event's text: few of them fill the buffers between server and client


@each("how", ["revoked", "expired", "too late"])
async def test_a_ticket_opens_nothing_when_it_or_its_token_is_no_longer_good(api: Api, how: str) -> None:
    ana = await api.token()
    _, body, _ = await api.ask("POST", "/api/tickets", ana)
    prefix = "rowlock." if "postgres" in api.app.database else "rowlock_"
    past = "now() - interval '1 s'" if "postgres" in api.app.database else "1.0"
    kind = "ticket" if how == "too late" else "token"
    if how == "revoked":
        await (await api.app.store()).run(tokens.revoke(ana))
    else:
        async with api.app.transaction() as transaction:
            await transaction.execute(f"UPDATE {prefix}tokens SET expires_at = {past} WHERE kind = '{kind}'")
    async with api.http.ws_connect(f"{api.url.replace('http', 'ws')}/api/ws?ticket={body['ticket']}") as socket:
        assert json.loads((await socket.receive()).data)["code"] == "UNAUTHORIZED"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_ticket_of_a_token_for_one_job_opens_that_job_alone(api: Api) -> None:
    ana = await api.token()
    _, body, _ = await api.ask("POST", "/api/jobs", ana, {"jobType": "add", "args": {"a": 1}, "watch": True})
    other = await api.create(ana, a=2)
    _, ticket, _ = await api.ask("POST", "/api/tickets", body["watchToken"])
    async with api.http.ws_connect(f"{api.url.replace('http', 'ws')}/api/ws?ticket={ticket['ticket']}") as raw:
        socket = Socket(raw)
        await socket.next()
        for job_id in (other, body["jobId"]):
            await api.app.cancel(job_id)
        assert (await socket.next())["jobId"] == body["jobId"]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_token_for_one_job_opens_no_stream_of_another_job_or_of_all(api: Api) -> None:
    ana = await api.token()
    _, body, _ = await api.ask("POST", "/api/jobs", ana, {"jobType": "add", "args": {"a": 1}, "watch": True})
    other = await api.create(ana, a=2)
    for path, status in ((f"/api/jobs/{other}/events", 404), ("/api/events", 403)):
        assert (await api.ask("GET", path, body["watchToken"]))[0] == status
    async with api.socket(body["watchToken"]) as socket:
        await socket.next()
        for job_id in (other, body["jobId"]):
            await api.app.cancel(job_id)
        assert (await socket.next())["jobId"] == body["jobId"]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_the_stream_of_a_job_that_ended_tells_what_was_missed_and_ends(api: Api) -> None:
    ana = await api.token()
    job_id = await api.create(ana, "steps", count=2)
    (ready,) = await read_stream(api, f"/api/jobs/{job_id}/events", ana, 1)
    async with api.app.worker():
        await (await api.app.job(job_id)).wait(timeout=20)
    found = await read_stream(api, f"/api/jobs/{job_id}/events", ana, 100, Last_Event_ID=ready["id"])
    assert (found[0]["event"], found[-1]["event"]) == ("ready", "job.completed")
    assert "job.progress" in [one["event"] for one in found]
    again = await read_stream(api, f"/api/jobs/{job_id}/events", ana, 100, Last_Event_ID=found[-1]["id"])
    assert [one["event"] for one in again] == ["ready", "job.completed"]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_revoking_a_token_ends_also_a_client_that_does_not_read(api: Api) -> None:
    ana = await api.token()
    service = api.service
    async with never_closed() as left, api.socket(ana) as socket:
        await socket.next()
        with stalled(socket):
            await send_events(api, service, 500, LARGE)  # more than the buffers between server and client hold
            assert len(service.feed._watchers) == 1
            await (await api.app.store()).run(tokens.revoke(ana))
            async with asyncio.timeout(15):
                while service.feed._watchers:
                    await asyncio.sleep(0.05)
            await collect_garbage()
            assert "messages" not in left


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("of", ["all jobs", "one job"])
async def test_a_stream_whose_client_does_not_read_is_cut_off(serve: Serve, of: str) -> None:
    async with serve(idle_seconds=1) as api, never_closed() as left:
        ana = await api.token()
        job_id = await api.create(ana, a=1)
        path = "/api/events" if of == "all jobs" else f"/api/jobs/{job_id}/events"
        async with stream_of(api, ana, path) as (answer, service):
            (watcher,) = service.feed._watchers
            async with asyncio.timeout(90):
                while service._connections:
                    await send_events(api, service, 150, LARGE, job_id)
                    while service._connections and watcher._pending:
                        await asyncio.sleep(0.02)
            assert service.feed._watchers == set(), "what it held was not closed with it"
            with pytest.raises(aiohttp.ClientError):  # the stream has no end
                await answer.read()
            await collect_garbage()
            assert "messages" not in left


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_stream_whose_client_reads_slowly_stays_open(serve: Serve) -> None:
    async with serve(idle_seconds=3) as api, stream_of(api, await api.token()) as (answer, service):
        await write_events(api, 1, 24_000_000)  # more than the client takes and the buffers hold: the server waits
        for _ in range(20):  # twice as long as a client may take nothing: the server measures real time on its socket
            await answer.content.readexactly(500_000)
            await asyncio.sleep(0.3)
        assert service._connections


@contextlib.asynccontextmanager
async def never_closed() -> AsyncIterator[list[str]]:
    """The names of async generators that were begun in this block and left to Python's garbage collection."""
    hooks, found = sys.get_asyncgen_hooks(), list[str]()

    def collected(generator: Any) -> None:
        found.append(generator.__name__)
        assert hooks.finalizer is not None
        hooks.finalizer(generator)

    sys.set_asyncgen_hooks(finalizer=collected)
    try:
        yield found
    finally:
        sys.set_asyncgen_hooks(finalizer=hooks.finalizer)


async def collect_garbage() -> None:
    """Until no async generator is left: closing one takes turns of the event loop, and it may have held another."""
    for _ in range(10):
        gc.collect()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def stream_of(
    api: Api, token: str, path: str = "/api/events"
) -> AsyncIterator[tuple[aiohttp.ClientResponse, Service]]:
    """A stream of events, of which the client reads its beginning and then only what the test reads."""
    headers = {"Authorization": f"Bearer {token}"}
    async with api.http.get(f"{api.url}{path}", headers=headers, read_bufsize=1000) as answer:
        await answer.content.readline()
        yield answer, api.service


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("number", [4_000, pytest.param(20_000, marks=pytest.mark.soak)])
async def test_a_client_that_does_not_read_costs_little_memory_and_holds_nobody_up(serve: Serve, number: int) -> None:
    async with serve() as api:
        ana, bob = await api.token("ana"), await api.token("bob")
        async with api.socket(ana) as stands, api.socket(bob) as reads:
            await stands.next()
            await reads.next()
            with stalled(stands):
                await send_events(api, api.service, number)  # what is needed once: buffers, statements
                gc.collect()
                before = psutil.Process().memory_info().rss
                for _ in range(5):
                    await write_events(api, number)
                job_id = await api.create(bob, a=1)
                await api.app.cancel(job_id)
                assert (await reads.next())["jobId"] == job_id
                gc.collect()
                assert psutil.Process().memory_info().rss - before < 10_000_000


async def send_events(api: Api, service: Service, number: int, size: int = 1000, job_id: str | None = None) -> None:
    """Write events, and wait until the server has read them."""
    reader = service.feed._reader
    assert reader is not None
    wanted = reader.newest + number
    await write_events(api, number, size, job_id)
    async with asyncio.timeout(60):
        while service.feed._watchers and reader.newest < wanted:
            await asyncio.sleep(0.02)


@contextlib.contextmanager
def stalled(socket: Socket) -> Iterator[None]:
    """Let a client read no more from its socket. At the end it hangs up: it would wait for a goodbye."""
    connection = socket.raw._response.connection
    assert connection is not None
    transport: Any = connection.transport
    transport.pause_reading()
    yield
    transport.abort()


async def write_events(api: Api, number: int, size: int = 1000, job_id: str | None = None) -> None:
    """Events of ana's jobs, or of one of them, as many transactions would have written them."""
    columns = "job_id, owner, type, task, state, attempt, error_message, at"
    text, state = "x" * size, "dead" if job_id is None else "retryable"  # the end of the job would end its stream
    if "postgres" in api.app.database:
        job = "gen_random_uuid()" if job_id is None else f"'{job_id}'::uuid"
        rows = f"SELECT {job}, 'ana', 'job.failed', 'add', '{state}', 1, '{text}', now()"
        statement = f"INSERT INTO rowlock.events ({columns}) {rows} FROM generate_series(1, {number})"
    else:
        numbers = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {number})"
        job = "'job-' || i" if job_id is None else f"'{job_id}'"
        rows = f"SELECT {job}, 'ana', 'job.failed', 'add', '{state}', 1, '{text}', 1.0 FROM n"
        statement = f"INSERT INTO rowlock_events ({columns}) {numbers} {rows}"
    async with api.app.transaction() as transaction:
        await transaction.execute(statement)
