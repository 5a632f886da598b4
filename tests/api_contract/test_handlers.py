"""S2's class form: `@handler`, `BaseHandler`, `get_handler`, `HandlerNotFoundError`."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from rowlock import BaseHandler, HandlerNotFoundError, InvalidArguments, JobDead, Rowlock, get_handler, handler
from support.contract_tasks import row_of, working


def make_sample(name: str) -> type[BaseHandler]:
    @handler(name)
    class SampleHandler(BaseHandler):
        async def execute(self, params: dict[str, Any]) -> Any:
            if params.get("should_fail"):
                raise RuntimeError("asked to fail")
            return {"status": "done", "params": params}

    return SampleHandler


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test registers: the registry is one per process, as S2 asks."""
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


def test_one_name_is_one_class(name: str) -> None:
    make_sample(name)
    with pytest.raises(InvalidArguments, match="sample"):
        make_sample(name)


@pytest.mark.parametrize("wrong", [int, lambda: 1, 7])
def test_only_handler_classes_are_taken(name: str, wrong: Any) -> None:
    with pytest.raises((InvalidArguments, TypeError), match="BaseHandler"):
        handler(name)(wrong)
    with pytest.raises(HandlerNotFoundError):
        get_handler(name)


async def test_a_worker_runs_a_handler_class_with_its_params(app: Rowlock, name: str) -> None:
    made = make_sample(name)
    async with working(app):
        job = await app.enqueue(name, city="Seoul", n=3)
        assert await job.wait(timeout=10) == {"status": "done", "params": {"city": "Seoul", "n": 3}}
    assert (await row_of(app, job.id))["task"] == name
    assert made


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


async def test_a_failing_handler_class_fails_its_job(app: Rowlock, name: str) -> None:
    make_sample(name)
    async with working(app):
        job = await app.get_task(name).using(max_attempts=1).enqueue({"should_fail": True})
        with pytest.raises(JobDead, match="asked to fail"):
            await job.wait(timeout=10)


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


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """Leave the process-wide registry as it was."""
    yield
