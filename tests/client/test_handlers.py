"""S2's class form: `@handler`, `BaseHandler`, `get_handler`, `HandlerNotFoundError`."""

import asyncio
import inspect
from typing import Any

import pytest

import rowlock.client.tasks.registry
from rowlock import BaseHandler, HandlerNotFoundError, InvalidArguments, JobDead, Rowlock, fixed, get_handler, handler
from support.each import each
from support.tasks.contract import attempts_of, row_of, working


def make_sample(name: str) -> type[BaseHandler]:
    @handler(name)
    class SampleHandler(BaseHandler):
        async def execute(self, params: dict[str, Any]) -> Any:
            if params.get("should_fail"):
                raise RuntimeError("asked to fail")
            return {"status": "done", "params": params}

    return SampleHandler


@pytest.fixture(autouse=True)
def registry_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry is one per process, as S2 asks; an app of a later test must not find these handlers in it."""
    monkeypatch.setattr(rowlock.client.tasks.registry, "_registry", dict(rowlock.client.tasks.registry._registry))


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test registers."""
    return f"sample.{request.node.name}"


def test_the_decorator_registers_and_gives_the_class_back(name: str) -> None:
    made = make_sample(name)
    assert isinstance(made, type)
    assert issubclass(made, BaseHandler)
    assert isinstance(get_handler(name), made)


def test_get_handler_gives_a_new_instance_each_time(name: str) -> None:
    make_sample(name)
    assert get_handler(name) is not get_handler(name)


def test_an_unknown_handler_is_an_error_that_names_it() -> None:
    with pytest.raises(HandlerNotFoundError, match="no such handler here"):
        get_handler("no such handler here")


@each("option", [{"max_attempts": 0}, {"rules": {KeyError: "discard"}}, {"runs_in": "thread"}])
def test_a_bad_option_is_refused_where_it_is_given(name: str, option: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        handler(name, **option)


def test_base_handler_is_abstract() -> None:
    class Empty(BaseHandler):
        pass

    with pytest.raises(TypeError, match="execute"):
        BaseHandler()  # type: ignore[abstract]
    with pytest.raises(TypeError, match="execute"):
        Empty()  # type: ignore[abstract]
    assert list(inspect.signature(BaseHandler.execute).parameters) == ["self", "params"]
    assert inspect.iscoroutinefunction(BaseHandler.execute)


async def test_the_example_of_the_document_works() -> None:
    made = make_sample("sample.document")
    assert (await made().execute({}))["status"] == "done"


def test_a_second_handler_class_of_one_name_is_refused(name: str) -> None:
    first = make_sample(name)

    class Other(BaseHandler):
        async def execute(self, params: dict[str, Any]) -> None: ...

    with pytest.raises(InvalidArguments, match="sample"):
        handler(name)(Other)
    assert isinstance(get_handler(name), first)


@each("wrong", [int, lambda: 1, 7])
def test_the_handler_decorator_refuses_what_is_no_base_handler(name: str, wrong: Any) -> None:
    with pytest.raises((InvalidArguments, TypeError), match="BaseHandler"):
        handler(name)(wrong)
    with pytest.raises(HandlerNotFoundError):
        get_handler(name)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_worker_runs_a_handler_class_with_its_params(app: Rowlock, name: str) -> None:
    made = make_sample(name)
    async with working(app):
        job = await app.enqueue(name, city="Seoul", n=3)
        assert await job.wait(timeout=10) == {"status": "done", "params": {"city": "Seoul", "n": 3}}
    assert (await row_of(app, job.id))["task"] == name
    assert made


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_each_run_has_an_instance_of_its_own(app: Rowlock, name: str) -> None:
    made: list[int] = []

    @handler(name)
    class Counting(BaseHandler):
        def __init__(self) -> None:
            made.append(len(made))
            self.calls = 0

        async def execute(self, params: dict[str, Any]) -> int:
            self.calls += 1
            return self.calls

    async with working(app):
        assert [await (await app.enqueue(name)).wait(timeout=10) for _ in range(3)] == [1, 1, 1]
    assert len(made) == 3
    assert Counting


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_failing_handler_class_fails_its_job(app: Rowlock, name: str) -> None:
    make_sample(name)
    async with working(app):
        job = await app.get_task(name).using(max_attempts=1).enqueue({"should_fail": True})
        with pytest.raises(JobDead, match="asked to fail"):
            await job.wait(timeout=10)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_handler_that_cannot_be_built_fails_its_job(app: Rowlock, name: str) -> None:
    @handler(name)
    class Broken(BaseHandler):
        def __init__(self) -> None:
            raise RuntimeError("no instance today")

        async def execute(self, params: dict[str, Any]) -> None: ...

    async with working(app):
        job = await app.get_task(name).using(max_attempts=1).enqueue({})
        with pytest.raises(JobDead, match="no instance today"):
            await job.wait(timeout=10)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_handler_over_its_time_is_stopped_and_tried_again(app: Rowlock, name: str) -> None:
    """S2.20–S2.24 for the class form: success, failure and timeout, and 1 + max_retry attempts."""
    runs: list[str] = []

    @handler(name, timeout=0.05, max_attempts=1 + 2, backoff=fixed(seconds=0.01))
    class Slow(BaseHandler):
        async def execute(self, params: dict[str, Any]) -> None:
            runs.append("run")
            await asyncio.sleep(60)

    async with working(app):
        job = await app.enqueue(name)
        with pytest.raises(JobDead):
            await job.wait(timeout=10)
    row = await row_of(app, job.id)
    assert (row["state"], row["error_code"], row["attempt"]) == ("dead", "TIMEOUT", 3)
    assert [outcome for _, outcome, _ in await attempts_of(app, job.id)] == ["timed_out"] * 3
    assert len(runs) == 3
    assert Slow


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_handler_knows_its_attempt(app: Rowlock, name: str) -> None:
    @handler(name)
    class Counting(BaseHandler):
        async def execute(self, params: dict[str, Any]) -> Any:
            await self.context.progress(50)
            return {"job": self.context.job_id, "attempt": self.context.attempt}

    job = await app.enqueue(name, {})
    async with working(app):
        assert await job.wait(10) == {"job": job.id, "attempt": 1}
