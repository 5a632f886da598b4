"""What one request costs, as numbers that do not depend on the machine. `python -m bench --only api` has the times."""

import inspect
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIWebSocketRoute

from api.conftest import Api
from api.test_strangers import routes
from rowlock import Rowlock
from rowlock.api.app import ROUTERS, build
from rowlock.store.engine.operation import Call, Operation
from support.each import each


class Counter:
    """Counts the statements of all operations that a store runs."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def counted(self, steps: Any) -> Any:
        """The same steps, each statement noted."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Call):
                    self.names.append(step.name)
                step = steps.send((yield step))
        except StopIteration as stop:
            return stop.value


@pytest.fixture
async def statements(api: Api, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """The names of the statements that this server's database is asked for."""
    store, counter = await api.app.store(), Counter()
    run = type(store).run

    async def counting(self: Any, op: Operation[Any]) -> Any:
        start = op.start
        op.start = lambda: counter.counted(start())
        return await run(self, op)

    monkeypatch.setattr(type(store), "run", counting)
    return counter


@pytest.fixture
async def thirty_jobs(api: Api) -> list[str]:
    ana = await api.token()
    return [await api.create(ana, a=number) for number in range(30)]


@each(
    "path, most",
    [
        ("/api/jobs/{job}", 1),
        ("/api/jobs", 2),  # the ids, and the rows
        ("/api/jobs?jobType=add&status=SUCCEEDED", 2),
        ("/api/jobs?status=FAILED", 2),
        ("/api/jobs?page=3&size=5", 2),
    ],
)
async def test_a_question_about_jobs_takes_few_statements_whatever_the_number_of_jobs(
    api: Api, thirty_jobs: list[str], statements: Counter, path: str, most: int
) -> None:
    ana = await api.token()
    path = path.replace("{job}", thirty_jobs[0])
    await api.ask("GET", path, ana)  # the token is remembered from here on
    statements.names.clear()
    status, _, _ = await api.ask("GET", path, ana)
    asked = [name for name in statements.names if "token" not in name]  # should the two seconds be over
    assert status == 200
    assert 1 <= len(asked) <= most, asked


def dependants() -> Iterator[Dependant]:
    """What every route depends on, at every depth."""
    every = [route for router in ROUTERS for route in router.routes]
    waiting = [route.dependant for route in every if isinstance(route, (APIRoute, APIWebSocketRoute))]
    while waiting:
        one = waiting.pop()
        waiting += one.dependencies
        yield one


def test_no_request_is_handed_to_a_thread_for_what_it_depends_on() -> None:
    """FastAPI calls a plain function in a thread; two of these made a request for one job take twice as long."""
    found = [one.call for one in dependants() if one.call is not None]
    assert len(found) > len(routes())
    plain = {call for call in found if not (inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call))}
    assert plain == set()


def test_applications_share_their_routes() -> None:
    """A route of its own for each application would take 100 ms of processor time at the first request."""
    first, second = (
        {(*sorted(route.methods), route.path): route for route in build(client).routes if isinstance(route, APIRoute)}
        for client in (Rowlock("sqlite:///unused.db"), Rowlock("sqlite:///unused.db"))
    )
    assert len(first) >= len([one for one in routes() if one[1].startswith("/api")])
    assert all(second[key] is route for key, route in first.items())


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_answer_does_not_wait_for_the_clients_acknowledgement(api: Api) -> None:
    """With Nagle's algorithm each answer after the first ones of a connection would take at least 40 ms."""
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        await api.ask("GET", "/livez")
        seconds.append(time.perf_counter() - began)
    assert min(seconds[5:]) < 0.03, seconds
