"""`Idempotency-Key` between servers: while one carries a request out, another answers 409, and a job is made once."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from api.conftest import Api, Serve
from rowlock import Rowlock
from rowlock.api.access import idempotency
from rowlock.store.engine.ids import new_id

BODY = {"jobType": "add", "args": {"a": 1}}


async def post(api: Api, token: str, key: str = "k", task: str = "add") -> tuple[int, str]:
    """Ask for a job: the status, and the job or the code of the problem."""
    status, answer, _ = await api.ask("POST", "/api/jobs", token, {**BODY, "jobType": task}, Idempotency_Key=key)
    return status, answer.get("jobId") or answer["code"]


@asynccontextmanager
async def another_server(serve: Serve, configure: Callable[[Rowlock], None]) -> AsyncIterator[Api]:
    """A second server on the same database, in a thread with an event loop of its own."""
    loop, ready, stop = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    started: list[Api] = []

    async def run() -> None:
        theirs = asyncio.get_running_loop()
        async with serve(configure) as api:
            started.append(api)
            loop.call_soon_threadsafe(ready.set)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(stop.wait(), loop), loop=theirs)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        async with asyncio.timeout(60):
            await ready.wait()
        yield started[0]
    finally:
        stop.set()
        await asyncio.to_thread(thread.join, 60)


async def test_a_request_that_another_server_carries_out_is_409_and_then_its_job(serve: Serve) -> None:
    reached, go = threading.Event(), threading.Event()

    def blocking(app: Rowlock) -> None:
        def source(a: int) -> str:
            reached.set()
            assert go.wait(60)
            return "api:slow"

        @app.task("slow", public=True, source=source)
        async def slow(a: int) -> None: ...

    def plain(app: Rowlock) -> None:
        @app.task("slow", public=True)
        async def slow(a: int) -> None: ...

    async with serve(plain) as api, another_server(serve, blocking) as other:
        ana = await api.token()
        theirs = Api(other.app, other.url, api.http)
        first = asyncio.ensure_future(post(theirs, ana, task="slow"))
        try:
            assert await asyncio.to_thread(reached.wait, 60)  # inside of its transaction
            assert await post(api, ana, task="slow") == (409, "IN_FLIGHT")
            assert await post(api, ana, task="add") == (422, "KEY_REUSED")
        finally:
            go.set()
        status, job_id = await first
        assert status == 202
        assert await post(api, ana, task="slow") == (202, job_id)
        assert len(await api.app.jobs()) == 1


async def test_the_key_of_a_server_that_died_is_free_again_after_a_while(api: Api) -> None:
    ana, store = await api.token(), await api.app.store()
    dead = idempotency.Begun("ana", "k", new_id())
    assert await store.run(idempotency.begin(dead, "hash", 86_400.0, 0.0)) is None
    status, job_id = await post(api, ana)
    assert status == 202
    # Should it have been paused only, it may not name another job, nor forget the one that is there.
    assert not await store.run(idempotency.end(dead, new_id()))
    await store.run(idempotency.forget(dead))
    assert await post(api, ana) == (202, job_id)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_request_that_is_refused_lets_its_key_go(api: Api) -> None:
    ana = await api.token()
    wrong = {"jobType": "add", "args": {"a": "one"}}
    assert (await api.ask("POST", "/api/jobs", ana, wrong, Idempotency_Key="k"))[1]["code"] == "INVALID_ARGUMENTS"
    assert (await post(api, ana))[0] == 202


async def test_a_request_whose_job_is_there_is_not_forgotten(api: Api) -> None:
    ana, store = await api.token(), await api.app.store()
    request = idempotency.Begun("ana", "k", new_id())
    assert await store.run(idempotency.begin(request, "hash", 86_400.0, 30.0)) is None
    assert await store.run(idempotency.end(request, new_id()))
    await store.run(idempotency.forget(request))  # as after a COMMIT whose answer was lost
    assert await post(api, ana) == (422, "KEY_REUSED")
