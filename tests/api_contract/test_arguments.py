"""Arguments: typed, JSON only, at most 256 KiB; checked at enqueue and again when the job runs."""

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
from support.contract_tasks import count_jobs, execute, row_of, working

LIMIT = 256 * 1024


class Size(BaseModel):
    width: int
    height: int = 10


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"url": 7, "depth": 1}, "url"),
        ({"url": "u", "depth": "deep"}, "depth"),
        ({"depth": 1}, "url"),
        ({"url": "u", "depht": 1}, "depht"),
        ({"url": None}, "url"),
        ({}, "url"),
    ],
    ids=["wrong type", "wrong type of a default", "missing", "unexpected", "none", "nothing"],
)
async def test_wrong_arguments_are_a_clear_error_before_anything_is_written(
    app: Rowlock, args: dict[str, Any], says: str
) -> None:
    @app.task("links.enrich")
    async def enrich(url: str, depth: int = 1) -> None: ...

    for refused in (
        lambda: enrich.enqueue(**args),
        lambda: enrich.using(delay=5).enqueue(**args),
        lambda: enrich.enqueue_many([{"url": "good"}, args]),
        lambda: app.enqueue("links.enrich", **args),
    ):
        with pytest.raises(InvalidArguments) as error:
            await refused()
        assert says in str(error.value)
        assert "links.enrich" in str(error.value)
    with pytest.raises(InvalidArguments, match=says):
        enrich.enqueue_sync(**args)
    assert await count_jobs(app) == 0


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


async def test_a_model_may_be_given_as_a_dict_and_is_checked(app: Rowlock) -> None:
    @app.task
    async def draw(size: Size) -> int:
        return size.width * size.height

    async with working(app):
        job = await app.enqueue("draw", size={"width": 4})
        assert await job.wait(timeout=10) == 40
    with pytest.raises(InvalidArguments, match="width"):
        await app.enqueue("draw", size={"height": 4})


async def test_variable_keywords_are_taken_as_they_are(app: Rowlock) -> None:
    @app.task
    async def anything(**values: Any) -> dict[str, Any]:
        return values

    async with working(app):
        assert await (await anything.enqueue(a=1, b=[None, True])).wait(timeout=10) == {"a": 1, "b": [None, True]}


@pytest.mark.parametrize(
    "value",
    [object(), {1, object()}, lambda: 1, b"\xff\xfe", {"inner": [object()]}, 1j, {(1, 2): 3}],
    ids=["object", "set", "function", "bytes", "nested", "complex", "tuple key"],
)
async def test_what_is_not_json_is_refused(app: Rowlock, value: Any) -> None:
    @app.task
    async def take(value: Any) -> None: ...

    with pytest.raises(InvalidArguments, match="take"):
        await take.enqueue(value=value)
    with pytest.raises(InvalidArguments):
        await take.enqueue_many([{"value": 1}, {"value": value}])
    assert await count_jobs(app) == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_numbers_that_json_does_not_have_are_refused(app: Rowlock, value: float) -> None:
    @app.task
    async def take(value: Any) -> None: ...

    @app.task
    async def number(value: float) -> None: ...

    for task in (take, number):
        with pytest.raises(InvalidArguments):
            await task.enqueue(value=value)
        with pytest.raises(InvalidArguments):
            await task.enqueue(value=[value] if task is take else value)
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


async def fate(app: Rowlock, text: str) -> str:
    """What becomes of a text as a value and as a key: it arrives as it was, or it is refused clearly."""

    @app.task
    async def echo(values: dict[str, str]) -> list[str]:
        return [part.encode("utf-8", "surrogatepass").hex() for pair in values.items() for part in pair]

    fates = []
    async with working(app):
        for values in ({"key": text}, {text: "value"}):
            before = await count_jobs(app)
            try:
                job = await echo.enqueue(values=values)
            except InvalidArguments as error:
                fates.append("refused" if "echo" in str(error) else f"refused unclearly: {error}")
                assert await count_jobs(app) == before, "it was refused and written"
            else:
                sent = [part.encode("utf-8", "surrogatepass").hex() for pair in values.items() for part in pair]
                assert await job.wait(timeout=10) == sent, "it was changed on the way"
                fates.append("kept")
    return " ".join(fates)


@pytest.mark.parametrize("text", STRANGE, ids=ascii)
async def test_strange_text_survives_or_is_refused_and_the_same_on_both_engines(
    tmp_path: Path, migrated_postgres: str, text: str
) -> None:
    fates = {}
    for name, url in (("sqlite", f"sqlite:///{tmp_path}/jobs.db"), ("postgres", migrated_postgres)):
        async with Rowlock(url) as app:
            fates[name] = await fate(app, text)
    assert fates["sqlite"] == fates["postgres"]
    if "🚣" in text or "\x1b" in text:
        assert fates["sqlite"] == "kept kept", "ordinary text must pass"


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


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        ('{"n": "many"}', "n"),
        ("{}", "n"),
        ('{"n": 1, "old": 2}', "old"),
        ("[1]", "n"),
        ("7", "n"),
        ("null", "n"),
    ],
    ids=["wrong type", "missing", "no longer known", "a list", "a number", "null"],
)
async def test_stored_arguments_that_no_longer_fit_fail_the_job_and_never_hang(
    app: Rowlock, stored: str, says: str
) -> None:
    """A job of an old deploy: the row is older than the signature."""
    ran = []

    @app.task(max_attempts=1)
    async def take(n: int) -> None:
        ran.append(n)

    job = await take.using(delay=3600).enqueue(n=1)
    # As an old row would stand there: waiting, with arguments of another time.
    await execute(
        app, "UPDATE {t}jobs_live SET args = $1, ready = true, run_after = created_at WHERE id = $2", stored, job.id
    )
    async with working(app):
        with pytest.raises(JobDead, match=says):
            await job.wait(timeout=10)
        assert await (await take.enqueue(n=2)).wait(timeout=10) is None
    assert ran == [2]
    row = await row_of(app, job.id)
    assert row["error_code"] == "INVALID_ARGUMENTS"
    assert "take" in row["error_message"]
