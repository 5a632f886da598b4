"""Arguments: typed, JSON only, at most 256 KiB; checked at enqueue and again when the job runs."""

import asyncio
import datetime
import json
import math
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from rowlock import InvalidArguments, JobDead, Rowlock
from support.tasks.contract import count_jobs, execute, row_of, working

LIMIT = 256 * 1024


class Size(BaseModel):
    width: int
    height: int = 10


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


WRONG = {
    "wrong type": ({"url": 7, "depth": 1}, "url"),
    "wrong type of a default": ({"url": "u", "depth": "deep"}, "depth"),
    "missing": ({"depth": 1}, "url"),
    "unexpected": ({"url": "u", "depht": 1}, "depht"),
    "none": ({"url": None}, "url"),
    "nothing": ({}, "url"),
}


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_wrong_arguments_are_a_clear_error_before_anything_is_written(app: Rowlock) -> None:
    @app.task("links.enrich")
    async def enrich(url: str, depth: int = 1) -> None: ...

    for kind, (args, says) in WRONG.items():
        for call in (
            lambda: enrich.enqueue(**args),  # noqa: B023
            lambda: enrich.using(delay=5).enqueue(**args),  # noqa: B023
            lambda: enrich.enqueue_many([{"url": "good"}, args]),  # noqa: B023
            lambda: app.enqueue("links.enrich", **args),  # noqa: B023
            lambda: asyncio.to_thread(enrich.enqueue_sync, **args),  # noqa: B023
        ):
            with pytest.raises(InvalidArguments) as error:
                await call()
            assert says in str(error.value), kind
            assert "links.enrich" in str(error.value), kind
    assert await count_jobs(app) == 0


POSTPONED = """
from __future__ import annotations
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from rowlock import Context
    from somewhere import Thing

def register(app):
    @app.task
    async def enrich(ctx: Context, url: str, thing: Thing | None = None) -> None: ...

    return enrich
"""


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_arguments_are_checked_although_another_annotation_is_known_to_type_checkers_only(app: Rowlock) -> None:
    space: dict[str, Any] = {"__name__": "postponed"}
    exec(POSTPONED, space)
    enrich = space["register"](app)
    await enrich.enqueue(url="u")
    with pytest.raises(InvalidArguments, match="url"):
        await enrich.enqueue(url=7)
    with pytest.raises(InvalidArguments, match="url"):
        await enrich.enqueue()


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_enqueue_many_refuses_items_that_are_no_mappings_of_names(app: Rowlock) -> None:
    @app.task
    async def enrich(url: str) -> None: ...

    wrong: list[Any] = ["u", 7, None, ["url"], {1: "u"}]
    for item in wrong:
        with pytest.raises(InvalidArguments, match="item 1"):
            await enrich.enqueue_many([{"url": "good"}, item])
    assert await count_jobs(app) == 0
    assert len(await enrich.enqueue_many({"url": str(n)} for n in range(3))) == 3


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_positional_arguments_have_the_names_of_the_function(app: Rowlock) -> None:
    @app.task
    async def enrich(url: str, depth: int = 1) -> list[Any]:
        return [url, depth]

    job = await enrich.enqueue("https://example.com/a", 3)
    assert (await row_of(app, job.id))["args"] == {"url": "https://example.com/a", "depth": 3}
    with pytest.raises(InvalidArguments):
        await enrich.enqueue("a", 3, 4)
    with pytest.raises(InvalidArguments, match="url"):
        await enrich.enqueue("a", url="b")
    assert await count_jobs(app) == 1


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_defaults_are_filled_when_the_job_runs(app: Rowlock) -> None:
    @app.task
    async def enrich(url: str, depth: int = 3, tags: list[str] | None = None) -> list[Any]:
        return [url, depth, tags]

    async with working(app):
        assert await (await enrich.enqueue(url="u")).wait(timeout=10) == ["u", 3, None]
        assert await (await enrich.enqueue(url="u", tags=["x"])).wait(timeout=10) == ["u", 3, ["x"]]


async def test_rich_types_arrive_as_what_they_were(app: Rowlock) -> None:
    seen: list[Any] = []

    @app.task
    async def take(
        size: Size,
        at: datetime.datetime,
        day: datetime.date,
        wait: datetime.timedelta,
        price: Decimal,
        id: UUID,
        colour: Colour,
        pair: tuple[int, str],
        names: set[str],
        sizes: dict[str, Size],
    ) -> None:
        seen.append([size, at, day, wait, price, id, colour, pair, names, sizes])

    sent = {
        "size": Size(width=3),
        "at": datetime.datetime(2026, 8, 1, 12, 30, 15, 123456, tzinfo=datetime.UTC),
        "day": datetime.date(2026, 8, 1),
        "wait": datetime.timedelta(minutes=5, microseconds=1),
        "price": Decimal("12.30"),
        "id": UUID("00000000-0000-7000-8000-000000000001"),
        "colour": Colour.BLUE,
        "pair": (1, "a"),
        "names": {"x"},
        "sizes": {"big": Size(width=1, height=2)},
    }
    async with working(app):
        job = await take.enqueue(**sent)
        await job.wait(timeout=10)
    assert seen == [list(sent.values())]
    row = await row_of(app, job.id)
    assert row["args"]["size"] == {"width": 3, "height": 10}, "stored as plain JSON that people can query"
    assert row["args"]["colour"] == "blue"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_model_may_be_given_as_a_dict_and_is_checked(app: Rowlock) -> None:
    @app.task
    async def draw(size: Size) -> int:
        return size.width * size.height

    async with working(app):
        job = await app.enqueue("draw", size={"width": 4})
        assert await job.wait(timeout=10) == 40
    with pytest.raises(InvalidArguments, match="width"):
        await app.enqueue("draw", size={"height": 4})


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_variable_keywords_are_taken_as_they_are(app: Rowlock) -> None:
    @app.task
    async def anything(**values: Any) -> dict[str, Any]:
        return values

    async with working(app):
        assert await (await anything.enqueue(a=1, b=[None, True])).wait(timeout=10) == {"a": 1, "b": [None, True]}


NOT_JSON = {
    "object": object(),
    "set": {1, object()},
    "function": lambda: 1,
    "bytes": b"\xff\xfe",
    "nested": {"inner": [object()]},
    "complex": 1j,
    "tuple key": {(1, 2): 3},
    "nan": math.nan,
    "infinity": -math.inf,
    "nested infinity": {"a": [math.inf]},
}


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_what_is_not_json_is_refused_before_anything_is_written(app: Rowlock) -> None:
    @app.task
    async def take(value: Any) -> None: ...

    @app.task
    async def number(value: float) -> None: ...

    for kind, value in NOT_JSON.items():
        with pytest.raises(InvalidArguments, match="take"):
            await take.enqueue(value=value)
            pytest.fail(f"{kind} was taken")
        with pytest.raises(InvalidArguments):
            await take.enqueue_many([{"value": 1}, {"value": value}])
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(InvalidArguments):
            await number.enqueue(value=value)
            pytest.fail(f"{value} was taken")
    assert await count_jobs(app) == 0


async def test_arguments_up_to_the_limit_are_taken_and_one_byte_more_is_not(app: Rowlock) -> None:
    @app.task
    async def take(text: str) -> int:
        return len(text)

    fits = LIMIT - len(json.dumps({"text": ""}, separators=(",", ":")))
    async with working(app):
        assert await (await take.enqueue(text="x" * fits)).wait(timeout=10) == fits
    with pytest.raises(InvalidArguments, match="take"):
        await take.enqueue(text="x" * (fits + 1))
    with pytest.raises(InvalidArguments, match="limit"):
        await take.enqueue_many([{"text": "small"}, {"text": "x" * (fits + 1)}])
    with pytest.raises(InvalidArguments, match="limit"):
        await take.enqueue(text="é" * (fits // 2 + 1))  # bytes count, not characters
    assert await count_jobs(app) == 1


STRANGE = ["nul \x00 inside", "\x00", "lone \ud800 surrogate", "\udfff", "emoji 🚣", "\x7f\x1b[31m", "\ufeff\u2028"]


async def fate(app: Rowlock, echo: Any, values: dict[str, str]) -> str:
    """What becomes of a text: it arrives as it was, or it is refused clearly."""
    before = await count_jobs(app)
    try:
        job = await echo.enqueue(values=values)
    except InvalidArguments as error:
        assert await count_jobs(app) == before, "it was refused and written"
        return "refused" if "echo" in str(error) else f"refused unclearly: {error}"
    sent = [part.encode("utf-8", "surrogatepass").hex() for pair in values.items() for part in pair]
    return "kept" if await job.wait(timeout=10) == sent else "changed"


async def fates(url: str) -> dict[str, tuple[str, str]]:
    """Of each strange text, as a value and as a key."""
    async with Rowlock(url) as app:

        @app.task(max_attempts=1)
        async def echo(values: dict[str, str]) -> list[str]:
            return [part.encode("utf-8", "surrogatepass").hex() for pair in values.items() for part in pair]

        async with working(app):
            return {
                text: (await fate(app, echo, {"key": text}), await fate(app, echo, {text: "value"})) for text in STRANGE
            }


@pytest.mark.parametrize("engine", ["postgres"])
async def test_strange_text_survives_or_is_refused_and_the_same_on_both_engines(app_url: str, tmp_path: Path) -> None:
    sqlite, postgres = await fates(f"sqlite:///{tmp_path}/jobs.db"), await fates(app_url)
    assert sqlite == postgres
    assert set(sqlite.values()) <= {("kept", "kept"), ("refused", "refused")}
    assert sqlite["emoji 🚣"] == sqlite["\x7f\x1b[31m"] == ("kept", "kept")


async def test_deep_nesting_is_refused_or_survives_but_nothing_breaks(app: Rowlock) -> None:
    @app.task
    async def depth(value: Any) -> int:
        levels = 0
        while value:
            value, levels = value[0], levels + 1
        return levels

    def nested(levels: int) -> list[Any]:
        value: list[Any] = []
        for _ in range(levels):
            value = [value]
        return value

    async with working(app):
        assert await (await depth.enqueue(value=nested(100))).wait(timeout=10) == 100
        with pytest.raises(InvalidArguments):
            await depth.enqueue(value=nested(100_000))
        assert await (await depth.enqueue(value=nested(1))).wait(timeout=10) == 1
    assert await count_jobs(app) == 2


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_value_that_contains_itself_is_refused(app: Rowlock) -> None:
    @app.task
    async def take(value: Any) -> None: ...

    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(InvalidArguments):
        await take.enqueue(value=ring)
    assert await count_jobs(app) == 0


async def test_big_integers_keep_every_digit(app: Rowlock) -> None:
    @app.task
    async def echo(n: int) -> str:
        return str(n)

    async with working(app):
        for n in (2**53 + 1, -(2**63), 10**30):
            assert await (await echo.enqueue(n=n)).wait(timeout=10) == str(n)


STORED = {
    "wrong type": ('{"n": "many"}', "n"),
    "missing": ("{}", "n"),
    "no longer known": ('{"n": 1, "old": 2}', "old"),
    "a list": ("[1]", "take"),
    "a number": ("7", "take"),
    "null": ("null", "take"),
}


async def test_stored_arguments_that_no_longer_fit_fail_the_job_and_never_hang(app: Rowlock) -> None:
    """A job of an old deploy: the row is older than the signature."""
    ran = []

    @app.task(max_attempts=1)
    async def take(n: int) -> None:
        ran.append(n)

    old = {kind: await take.using(delay=3600).enqueue(n=1) for kind in STORED}
    waiting = "UPDATE {t}jobs_live SET args = $1, ready = true, run_after = created_at WHERE id = $2"
    for kind, job in old.items():
        await execute(app, waiting, STORED[kind][0], job.id)
    async with working(app):
        for kind, job in old.items():
            with pytest.raises(JobDead) as dead:
                await job.wait(timeout=10)
            assert STORED[kind][1] in str(dead.value), kind
            row = await row_of(app, job.id)
            assert (row["error_code"], row["attempt"]) == ("INVALID_ARGUMENTS", 1), kind
            assert "take" in row["error_message"], kind
        assert await (await take.enqueue(n=2)).wait(timeout=10) is None
    assert ran == [2]
