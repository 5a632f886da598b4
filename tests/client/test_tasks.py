"""`@app.task`: its forms, its names, its options and what it refuses."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import BaseModel

from rowlock import Context, InvalidArguments, Rowlock, exponential, fixed
from support.each import each
from support.tasks.contract import count_jobs, row_of, rows_of, working


@pytest.fixture
def unopened() -> Rowlock:
    """An app whose database nobody opens: what it says about a task, it says at the decorator."""
    return Rowlock("sqlite:///unused.db")


def test_a_bare_decorator_names_the_task_after_the_function(unopened: Rowlock) -> None:
    @unopened.task
    async def enrich(url: str) -> None: ...

    assert enrich.name == "enrich"


def test_empty_parentheses_are_the_same_as_none(unopened: Rowlock) -> None:
    @unopened.task()
    async def enrich(url: str) -> None: ...

    assert enrich.name == "enrich"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_task_has_the_name_it_is_given(app: Rowlock) -> None:
    @app.task("links.enrich")
    async def enrich(url: str) -> None: ...

    job = await enrich.enqueue(url="https://example.com/a")
    assert enrich.name == "links.enrich"
    assert (await row_of(app, job.id))["task"] == "links.enrich"


async def test_options_are_stored_with_each_job(app: Rowlock) -> None:
    @app.task("links.enrich", queue="links", max_attempts=2, backoff=fixed(minutes=5), timeout=30, priority=-5)
    async def enrich(ctx: Context, url: str) -> dict[str, str]:
        return {"title": url}

    row = await row_of(app, (await enrich.enqueue(url="https://example.com/a")).id)
    assert (row["queue"], row["max_attempts"], row["timeout_seconds"], row["priority"]) == ("links", 2, 30, -5)
    assert row["backoff"]["base"] == 300
    assert row["args"] == {"url": "https://example.com/a"}


async def test_defaults_are_the_documented_ones(app: Rowlock) -> None:
    @app.task
    async def plain() -> None: ...

    row = await row_of(app, (await plain.enqueue()).id)
    assert (row["queue"], row["max_attempts"], row["timeout_seconds"], row["priority"]) == ("default", 5, None, 0)
    assert (row["state"], row["attempt"], row["owner"], row["source"]) == ("queued", 0, None, None)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_the_task_is_still_the_plain_function(app: Rowlock) -> None:
    @app.task
    async def enrich(url: str) -> dict[str, str]:
        return {"url": url}

    @app.task
    def double(n: int) -> int:
        return 2 * n

    assert await enrich(url="https://example.com/a") == {"url": "https://example.com/a"}
    assert double(4) == 8
    assert await count_jobs(app) == 0, "a plain call wrote a job"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_plain_call_may_leave_out_the_context(app: Rowlock) -> None:
    """DESIGN §5 calls `await enrich(url=u)` although `enrich` takes ctx first."""

    @app.task
    async def enrich(ctx: Context, url: str) -> str:
        await ctx.progress(40, phase="fetch", message="reading")
        return url

    assert await enrich(url="https://example.com/a") == "https://example.com/a"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_context_is_optional_and_first(app: Rowlock) -> None:
    @app.task
    async def with_context(ctx: Context, n: int) -> list[object]:
        return [ctx.job_id, ctx.attempt, n]

    @app.task
    async def without(n: int) -> int:
        return n

    async with working(app):
        job = await with_context.enqueue(n=1)
        assert await job.wait(timeout=10) == [job.id, 1, 1]
        assert await (await without.enqueue(n=2)).wait(timeout=10) == 2


def test_a_context_that_is_not_first_is_refused(unopened: Rowlock) -> None:
    with pytest.raises(InvalidArguments, match=r"(?s)late.*ctx|ctx.*late"):

        @unopened.task
        async def late(n: int, ctx: Context) -> None: ...


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_sync_functions_run_in_a_thread_and_do_not_block_the_loop(app: Rowlock) -> None:
    entered, go = threading.Event(), threading.Event()

    @app.task
    def slow(ctx: Context) -> str:
        entered.set()
        assert go.wait(10)
        return threading.current_thread().name

    async with working(app):
        job = await slow.enqueue()
        async with asyncio.timeout(10):
            while not entered.is_set():
                await asyncio.sleep(0.005)  # the loop turns while the task stands
        go.set()
        assert await job.wait(timeout=10) != threading.main_thread().name


def test_two_tasks_cannot_have_one_name(unopened: Rowlock) -> None:
    @unopened.task("same")
    async def one() -> None: ...

    with pytest.raises(InvalidArguments, match="same"):

        @unopened.task("same")
        async def two() -> None: ...


def test_functions_of_one_name_in_two_modules_cannot_both_be_tasks(unopened: Rowlock) -> None:
    """`@app.task async def sync()` in users.py and in orders.py: the second must not silently replace the first."""

    def module(name: str) -> Callable[..., object]:
        space: dict[str, object] = {"__name__": name}
        exec("async def sync() -> None: ...", space)
        return space["sync"]  # type: ignore[return-value]

    unopened.task(module("users"))
    with pytest.raises(InvalidArguments, match="sync"):
        unopened.task(module("orders"))


def test_an_unknown_option_is_named(unopened: Rowlock) -> None:
    with pytest.raises((InvalidArguments, TypeError), match="retries"):

        @unopened.task(retries=3)
        async def one() -> None: ...


@each(
    "option, value",
    [
        ("max_attempts", 0),
        ("max_attempts", "3"),
        ("priority", 101),
        ("priority", -101),
        ("timeout", -1),
        ("queue", ""),
        ("runs_in", "fiber"),
        ("backoff", 5),
        ("on_lost", "maybe"),
        ("on_dead", 7),
    ],
)
def test_a_bad_option_is_refused_with_its_name_and_value(unopened: Rowlock, option: str, value: object) -> None:
    with pytest.raises(InvalidArguments) as refused:

        @unopened.task(**{option: value})
        async def one() -> None: ...

    assert option in str(refused.value)
    assert repr(value) in str(refused.value)


@each("rule", ["discard", -1, float("nan"), float("inf"), 1e300, True, None, [5], timedelta.max])
def test_a_bad_rule_is_refused_with_its_exception_and_value(unopened: Rowlock, rule: Any) -> None:
    with pytest.raises(InvalidArguments, match="the rule for KeyError") as refused:

        @unopened.task(rules={ValueError: "dead", OSError: fixed(5), KeyError: rule})
        async def one() -> None: ...

    assert repr(rule) in str(refused.value)


@each("rules", [[KeyError], "dead", {"KeyError": "dead"}, {int: "dead"}, {KeyError("x"): "dead"}])
def test_rules_that_are_no_mapping_of_exception_classes_are_refused(unopened: Rowlock, rules: Any) -> None:
    with pytest.raises(InvalidArguments, match="rules"):

        @unopened.task(rules=rules)
        async def one() -> None: ...


def test_an_async_function_cannot_run_in_a_thread(unopened: Rowlock) -> None:
    with pytest.raises(InvalidArguments, match="runs_in"):

        @unopened.task(runs_in="thread")
        async def one() -> None: ...


def test_something_that_is_not_a_function_is_refused(unopened: Rowlock) -> None:
    for wrong in (42, "text", None):
        with pytest.raises((InvalidArguments, TypeError)):
            unopened.task("x")(wrong)  # type: ignore[call-overload]


@each(
    "make, arguments",
    [
        (fixed, {"minutes": -5}),
        (fixed, {}),
        (fixed, {"seconds": float("nan")}),
        (exponential, {"base": 0}),
        (exponential, {"base": 10, "cap": -1}),
        (exponential, {"base": float("inf")}),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_a_bad_backoff_is_refused(make: Callable[..., object], arguments: dict[str, float]) -> None:
    with pytest.raises(InvalidArguments):
        make(**arguments)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_the_source_is_derived_from_the_arguments(app: Rowlock) -> None:
    @app.task(source=lambda url: f"domain:{urlsplit(url).hostname}")
    async def enrich(ctx: Context, url: str) -> None: ...

    @app.task(source="prices")
    async def scrape(coin: str) -> None: ...

    one = await enrich.enqueue(url="https://example.com/a")
    positional = await enrich.enqueue("https://example.com/a")
    other = await enrich.using(source="mine").enqueue(url="https://example.com/a")
    many = await enrich.enqueue_many([{"url": f"https://{n}.example.com/"} for n in range(3)])
    assert (await row_of(app, one.id))["source"] == "domain:example.com"
    assert (await row_of(app, positional.id))["source"] == "domain:example.com"
    assert (await row_of(app, other.id))["source"] == "mine"
    assert (await row_of(app, (await scrape.enqueue(coin="x")).id))["source"] == "prices"
    assert [(await row_of(app, job.id))["source"] for job in many] == [f"domain:{n}.example.com" for n in range(3)]


class Place(BaseModel):
    host: str


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_source_function_is_called_like_the_task(app: Rowlock) -> None:
    """It sees the arguments that the task will see, defaults and models too, for one job as for many."""

    @app.task(source=lambda place, port: f"{place.host}:{port}")
    async def fetch(place: Place, port: int = 80) -> None: ...

    jobs = [await fetch.enqueue(place=Place(host="a")), *await fetch.enqueue_many([{"place": Place(host="a")}])]
    assert [(await row_of(app, job.id))["source"] for job in jobs] == ["a:80", "a:80"]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_source_function_may_name_only_the_arguments_that_it_needs(app: Rowlock) -> None:
    @app.task(source=lambda url: url)
    async def enrich(url: str, depth: int) -> None: ...

    job = await enrich.enqueue(url="u", depth=2)
    assert (await row_of(app, job.id))["source"] == "u"


async def test_jobs_of_many_sources_keep_the_order_they_were_given_in(app: Rowlock) -> None:
    @app.task(source=lambda n: "even" if n % 2 == 0 else "odd")
    async def note(n: int) -> None: ...

    jobs = await note.enqueue_many([{"n": n} for n in range(10)])
    assert [job.args["n"] for job in jobs] == list(range(10)), "the answer is not in the order of the question"
    assert [row["args"]["n"] for row in await rows_of(app)] == list(range(10))


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_source_that_cannot_be_derived_is_an_error_before_anything_is_written(app: Rowlock) -> None:
    @app.task(source=lambda url: url["host"])
    async def enrich(url: str) -> None: ...

    with pytest.raises(Exception, match="source"):
        await enrich.enqueue(url="https://example.com/a")
    assert await count_jobs(app) == 0
