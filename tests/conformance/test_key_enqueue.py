"""Enqueueing with keys: in bulk, under a chosen id, in a transaction; and keys that are refused."""

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest

from rowlock import InvalidArguments, Rowlock
from rowlock.core.outcome import Failed, Released
from support.each import each
from support.rigs.app import app, rig
from support.rigs.rig import Rig

__all__ = ["app", "rig"]  # fixtures


@pytest.fixture
def t(app: Rowlock) -> Any:
    @app.task("t")
    async def work(name: str = "a", n: int = 0) -> None: ...

    return work


def by_name(name: str) -> str:
    return f"name:{name}"


def rows(names: str) -> list[dict[str, Any]]:
    """One row for each letter."""
    return [{"name": name, "n": n} for n, name in enumerate(names)]


# --- a function as key


async def test_a_key_may_be_made_from_the_arguments(t: Any) -> None:
    asked = t.using(key=by_name)
    first = await asked.enqueue(name="a", n=1)
    assert (await asked.enqueue("a", n=2)).id == first.id
    assert (await asked.enqueue(n=3)).id == first.id, "a default is an argument too"
    assert (await asked.enqueue(name="b")).created
    assert (await t.using(key="name:b").enqueue()).created is False, "a function's key is a key like any other"


async def test_enqueue_sync_honours_keys(t: Any) -> None:
    asked = t.using(key="k")
    first = await asyncio.to_thread(asked.enqueue_sync, n=1)
    second = await asyncio.to_thread(asked.enqueue_sync, n=2)
    assert (first.created, second.created, second.id, second.args["n"]) == (True, False, first.id, 1)


# --- bulk


@each("kind", ["until_done", "while_queued", "forever", timedelta(hours=1)], afresh=True)
async def test_a_bulk_makes_one_job_for_each_key_and_answers_in_its_order(t: Any, rig: Rig, kind: Any) -> None:
    asked = t.using(key=by_name, unique=kind)
    older = await asked.enqueue(name="b", n=100)
    handles = await asked.enqueue_many(rows("cabacb"))
    c, a, b = handles[0].id, handles[1].id, older.id
    assert [job.id for job in handles] == [c, a, b, a, c, b]
    assert [job.created for job in handles] == [True, True, False, False, False, False]
    found = {job_id: row["args"] for job_id, row in (await rig.rows()).items()}
    assert found == {b: {"name": "b", "n": 100}, c: {"name": "c", "n": 0}, a: {"name": "a", "n": 1}}


async def test_a_duplicate_in_a_bulk_is_the_first_job_in_all_that_it_shows(t: Any, rig: Rig) -> None:
    asked = t.using(key=by_name)
    await asked.enqueue(name="b", n=100)
    await rig.claim()
    _, known, twin = await asked.enqueue_many(rows("aba"))
    assert (known.args, known.state) == ({"name": "b", "n": 100}, "running")
    assert twin.args == {"name": "a", "n": 0}


async def test_a_large_bulk_that_was_half_done_before_adds_the_other_half(t: Any, rig: Rig) -> None:
    asked = t.using(key=lambda n: f"row {n}", unique="forever")
    first = await asked.enqueue_many([{"n": n} for n in range(0, 3000, 2)])
    again = await asked.enqueue_many([{"n": n} for n in reversed(range(3000))])
    assert [job.created for job in again] == [n % 2 == 1 for n in reversed(range(3000))]
    known = {2 * n: job.id for n, job in enumerate(first)}
    assert all(job.id == known[n] for n, job in zip(reversed(range(3000)), again, strict=True) if n % 2 == 0)
    assert await rig.fetch("SELECT count(*) FROM {t}jobs_live") == [(3000,)]


async def test_a_bulk_that_fails_takes_no_key(t: Any, rig: Rig) -> None:
    before = await rig.everything()
    with pytest.raises(InvalidArguments, match="item 2"):
        await t.using(key=by_name).enqueue_many([{"name": "a"}, {"name": "b"}, {"name": 5}])
    assert await rig.everything() == before


async def test_one_key_for_many_jobs_is_refused(t: Any, rig: Rig) -> None:
    before = await rig.everything()
    with pytest.raises(InvalidArguments, match="key"):
        await t.using(key="k").enqueue_many(rows("ab"))
    assert await rig.everything() == before


async def test_a_bulk_enqueue_with_derived_sources_honours_keys(app: Rowlock, rig: Rig) -> None:
    @app.task("t", source=lambda name: f"domain:{name}.example")
    async def fetch(name: str, n: int) -> None: ...

    handles = await fetch.using(key=by_name).enqueue_many(rows("aba"))
    assert [job.created for job in handles] == [True, True, False]
    assert sorted(row["source"] for row in (await rig.rows()).values()) == ["domain:a.example", "domain:b.example"]


# --- a chosen id and a key


async def test_a_job_may_have_a_chosen_id_and_a_key(t: Any, rig: Rig) -> None:
    mine, other = str(uuid.uuid4()), str(uuid.uuid4())
    first = await t.using(job_id=mine, key="k").enqueue()
    assert (first.id, first.created) == (mine, True)
    again = await t.using(job_id=mine, key="k").enqueue()
    assert (again.id, again.created) == (mine, False)
    by_key = await t.using(job_id=other, key="k").enqueue()
    assert (by_key.id, by_key.created) == (mine, False)
    assert list(await rig.rows()) == [mine]
    unused = await t.using(job_id=other).enqueue()
    assert (unused.id, unused.created) == (other, True), "the id of a job that was not made is still free"


async def test_a_known_id_takes_no_key(t: Any) -> None:
    mine = str(uuid.uuid4())
    await t.using(job_id=mine).enqueue()
    again = await t.using(job_id=mine, key="k").enqueue()
    assert (again.id, again.created) == (mine, False)
    assert (await t.using(key="k").enqueue()).created


@each("kind", ["until_done", "while_queued", "forever", timedelta(hours=1)], afresh=True)
async def test_a_chosen_id_stays_taken_when_its_jobs_key_is_let_go(t: Any, rig: Rig, kind: Any) -> None:
    mine = str(uuid.uuid4())
    await t.using(job_id=mine, key="k", unique=kind).enqueue()
    for end in (Released(0), Failed("E", "no", permanent=True)):
        (job,) = await rig.claim()
        assert await rig.settle(job, end) == "applied"
        again = await t.using(job_id=mine, key="another").enqueue()
        assert (again.id, again.created) == (mine, False)


async def test_a_task_of_any_name_has_keys_of_its_own(app: Rowlock, t: Any) -> None:
    """Ids that clients chose lie in the same table."""

    @app.task("id")
    async def named_id() -> None: ...

    chosen = str(uuid.uuid4())
    await t.using(job_id=chosen).enqueue()
    second = await named_id.using(key=chosen).enqueue()
    assert (second.created, second.task) == (True, "id")


# --- transactions


async def test_a_key_is_taken_with_the_transaction_around_it(app: Rowlock, t: Any, rig: Rig) -> None:
    async with app.transaction():
        first = await t.using(key="k").enqueue()
        second = await t.using(key="k").enqueue()
        third, fourth = await t.using(key=lambda n: f"k{n or ''}").enqueue_many([{"n": 0}, {"n": 1}])
    assert [second.id, third.id] == [first.id] * 2
    assert [job.created for job in (first, second, third, fourth)] == [True, False, False, True]
    assert set(await rig.rows()) == {first.id, fourth.id}
    assert (await t.using(key="k").enqueue()).id == first.id


async def test_a_key_goes_with_a_transaction_that_is_rolled_back(app: Rowlock, t: Any, rig: Rig) -> None:
    before = await rig.everything()
    with pytest.raises(ZeroDivisionError):
        async with app.transaction():
            await t.using(key="k").enqueue()
            await t.using(key=by_name).enqueue_many(rows("ab"))
            raise ZeroDivisionError
    assert await rig.everything() == before
    assert (await t.using(key="k").enqueue()).created


async def test_a_duplicate_in_a_transaction_that_is_rolled_back_leaves_the_first_job(
    app: Rowlock, t: Any, rig: Rig
) -> None:
    first = await t.using(key="k").enqueue()
    before = await rig.everything()
    with pytest.raises(ZeroDivisionError):
        async with app.transaction():
            assert (await t.using(key="k").enqueue()).id == first.id
            raise ZeroDivisionError
    assert await rig.everything() == before


# --- bad input


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, n: int) -> str:
        return str(n)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("513 bytes", {"key": "x" * 513}, "512"),
    ("257 letters of two bytes", {"key": "é" * 257}, "512"),
    ("empty", {"key": ""}, "key"),
    ("a number", {"key": 5}, "key"),
    ("bytes", {"key": b"k"}, "key"),
    ("a zero byte", {"key": "a\x00b"}, "key"),
    ("half a character", {"key": "\ud800"}, "key"),
    ("a function that gives none", {"key": lambda n: None}, "key"),
    ("a function that gives a number", {"key": lambda n: n}, "key"),
    ("a function that gives too much", {"key": lambda n: "x" * 513}, "512"),
    ("a function that raises", {"key": lambda n: 1 // 0}, "key"),
    ("a function without a signature", {"key": str}, "its key must be a function"),
    ("a function that cannot be hashed", {"key": Unhashable()}, "its key must be a function"),
    ("unique without key", {"unique": "forever"}, "key"),
    ("a window without key", {"unique": timedelta(hours=1)}, "key"),
    ("an unknown kind", {"key": "k", "unique": "always"}, "until_done"),
    ("a number as window", {"key": "k", "unique": 3600}, "unique"),
    ("a window of nothing", {"key": "k", "unique": timedelta(0)}, "unique"),
    ("a window back in time", {"key": "k", "unique": timedelta(seconds=-1)}, "unique"),
]


@each("options, named", [row[1:] for row in BAD], ids=[row[0] for row in BAD])
async def test_a_bad_key_is_refused_with_a_clear_error_and_changes_nothing(
    t: Any, rig: Rig, options: dict[str, Any], named: str
) -> None:
    before = await rig.everything()
    with pytest.raises(InvalidArguments, match=named):
        await t.using(**options).enqueue(n=0)
    with pytest.raises(InvalidArguments, match=r"key|unique|512"):
        await t.using(**options).enqueue_many([{"n": 0}, {"n": 1}])
    with pytest.raises(InvalidArguments, match=named):
        await t.using(job_id=str(uuid.uuid4()), **options).enqueue(n=0)
    assert await rig.everything() == before


@each("key", ["x" * 512, "é" * 256, " ", "a\nb", "'; --", "\x1f\x1f"])
async def test_a_key_may_be_any_text_of_up_to_512_bytes(t: Any, key: str) -> None:
    first = await t.using(key=key).enqueue()
    assert (await t.using(key=key).enqueue()).id == first.id
    assert (await t.using(key=f"{key[:-1]}y").enqueue()).created


@each("name, source", [("text", str), ("unhashable", Unhashable())])
async def test_a_source_from_what_is_no_function_of_named_arguments_is_refused(
    app: Rowlock, name: str, source: Any
) -> None:
    @app.task(name, source=source)
    async def fetch(n: int) -> None: ...

    with pytest.raises(InvalidArguments, match=f"task '{name}': its source must be a function"):
        await fetch.enqueue(n=1)
    with pytest.raises(InvalidArguments, match=f"item 0: task '{name}': its source must be a function"):
        await fetch.enqueue_many([{"n": 1}])
