"""The handlers by themselves: the registry, the example of the document, and params that do not fit."""

import asyncio
from typing import Any

import pytest

from rowlock import InvalidArguments, NotAllowed, Permanent, Retry
from rowlock_apps.cronjobs.handler.base import BaseHandler, HandlerNotFoundError, check_params, get_handler, handler
from rowlock_apps.cronjobs.handler.sample import SampleFailed, SampleHandler
from support.each import each


async def test_the_example_of_the_document_works() -> None:
    """S2.16, S2.18, S2.19, S2.34: the decorator registers; the handler returns its result."""

    @handler("sample of a test")
    class Example(BaseHandler):
        async def execute(self, params: dict[str, Any]) -> Any:
            return {"status": "done"}

    made = get_handler("sample of a test")
    assert isinstance(made, Example)
    assert get_handler("sample of a test") is not made
    assert await made.execute({}) == {"status": "done"}


async def test_sample_is_registered_by_its_decorator_alone() -> None:
    """S2.16, S2.17, S2.19: no list of handlers anywhere; each `get_handler` is a new instance."""
    assert type(get_handler("sample")) is SampleHandler
    assert get_handler("sample") is not get_handler("sample")
    assert await get_handler("sample").execute({}) == {"status": "done"}
    with pytest.raises(HandlerNotFoundError, match="no handler named 'smaple'"):
        get_handler("smaple")


async def test_sample_does_as_its_params_say() -> None:
    """S2.26: sleep_seconds, should_fail and their friends."""
    sample = get_handler("sample")
    assert await sample.execute({"result": [1, 2]}) == [1, 2]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await sample.execute({"sleep_seconds": 60})
    with pytest.raises(SampleFailed, match="no luck"):
        await sample.execute({"should_fail": True, "message": "no luck"})
    with pytest.raises(SampleFailed):
        await sample.execute({"fail_times": 1})  # called directly it is the first attempt
    with pytest.raises(Permanent):
        await sample.execute({"should_fail": True, "permanent": True})
    with pytest.raises(Retry) as raised:
        await sample.execute({"should_fail": True, "retry_after_seconds": 3})
    assert raised.value.after == 3


async def test_a_stubborn_sample_sleeps_on_when_it_is_told_to_stop() -> None:
    working = asyncio.create_task(get_handler("sample").execute({"sleep_seconds": 0.1, "stubborn": True}))
    await asyncio.sleep(0)
    working.cancel()
    assert await working == {"status": "done"}


BAD = [
    ("sample", {"sleep_seconds": "soon"}, "sleep_seconds = 'soon': input should be a valid number"),
    ("sample", {"sleep_seconds": -1}, "sleep_seconds = -1: input should be greater than or equal to 0"),
    ("sample", {"should_fail": "yes"}, "should_fail = 'yes': input should be a valid boolean"),
    ("sample", {"sleep": 1}, "sleep = 1: no such parameter; there are sleep_seconds, stubborn, should_fail"),
    ("sample", ["sleep_seconds"], r"handler_params = \['sleep_seconds'\]: "),
    ("report", {"hours": 0}, "hours = 0: input should be greater than 0"),
    ("cleanup", {"keep_days": None}, "keep_days = None: input should be a valid number"),
    ("cleanup", {"keep_days": 1e7}, "keep_days = 10000000.0: input should be less than or equal to 36500"),
]


@each("name, params, words", BAD)
async def test_params_that_do_not_fit_are_a_clear_failure_that_no_retry_could_mend(
    name: str, params: Any, words: str
) -> None:
    """S2.26: the param, its value and what is wrong with it."""
    with pytest.raises(Permanent, match=words) as raised:
        await get_handler(name).execute(params)
    assert raised.value.code == "INVALID_PARAMS"
    with pytest.raises(InvalidArguments, match=f"handler {name!r}: params do not fit: {words}"):
        check_params(name, params)


async def test_a_handler_that_needs_its_attempt_says_so_outside_of_a_worker() -> None:
    with pytest.raises(NotAllowed, match="only while a worker runs the job"):
        await get_handler("report").execute({})
