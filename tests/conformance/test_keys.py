"""Unique keys: the second enqueue of the same work gets the first one's job, for as long as the key is held."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from rowlock import JobNotFound, NotAllowed, Rowlock, Task
from rowlock.core.outcome import Cancelled, Failed, Released, Succeeded
from rowlock.store.jobs import cancel as cancels
from rowlock.store.upkeep import retention
from support.each import each
from support.rigs.app import app, rig
from support.rigs.rig import KEEP, LEASE, Rig, numbered

__all__ = ["app", "rig"]  # fixtures

YEAR = timedelta(days=365)
KINDS: list[Any] = ["until_done", "while_queued", "forever", YEAR]
DAY = 86400


@pytest.fixture
def t(app: Rowlock) -> Task[..., Any, Any]:
    @app.task("t", max_attempts=2)
    async def work(n: int = 0) -> None: ...

    return work


# --- what becomes of a job, as a table: four jobs, one of each kind, are brought there together


async def stay_queued(rig: Rig, ids: list[str]) -> None: ...


async def run(rig: Rig, ids: list[str]) -> None:
    assert len(await rig.claim(9)) == len(ids)


def end_with(*ends: Any) -> Callable[[Rig, list[str]], Awaitable[None]]:
    """Claim and settle, once for each of these ends."""

    async def bring(rig: Rig, ids: list[str]) -> None:
        for end in ends:
            rig.clock.move(3600)
            await rig.promote()
            claimed = await rig.claim(9)
            assert len(claimed) == len(ids)
            for job in claimed:
                assert await rig.settle(job, end) == "applied"

    return bring


async def lose_the_worker(rig: Rig, ids: list[str]) -> None:
    await run(rig, ids)
    rig.clock.move(LEASE + 1)
    assert len(await rig.reclaim()) == len(ids)


async def cancel(rig: Rig, ids: list[str]) -> None:
    assert set((await rig.cancel(*ids)).values()) == {"cancelled"}


async def stop_the_handler(rig: Rig, ids: list[str]) -> None:
    claimed = await rig.claim(9)
    assert set((await rig.cancel(*ids)).values()) == {"cancelling"}
    for job in claimed:
        assert await rig.settle(job, Cancelled()) == "applied"


async def miss_the_latest_start(rig: Rig, ids: list[str]) -> None:
    rig.clock.move(2 * DAY)
    assert await rig.store.run(cancels.expire(100, KEEP)) == len(ids)


async def succeed_and_be_pruned(rig: Rig, ids: list[str]) -> None:
    await end_with(Succeeded())(rig, ids)
    rig.clock.move(60 * DAY)
    await retention.prune(rig.store, KEEP)
    assert await rig.rows() == {}


LOST = {"on_lost": "dead"}
NO = Failed("E", "no")
WHERE: list[tuple[str, Any, list[Any], dict[str, Any]]] = [
    ("queued", stay_queued, KINDS, {}),
    ("running", run, ["until_done", "forever", YEAR], {}),
    ("retryable", end_with(NO), ["until_done", "forever", YEAR], {}),
    ("released", end_with(Released(0)), ["until_done", "forever", YEAR], {}),
    ("lost", lose_the_worker, ["until_done", "forever", YEAR], {}),
    ("succeeded", end_with(Succeeded()), ["forever", YEAR], {}),
    ("succeeded and pruned", succeed_and_be_pruned, ["forever", YEAR], {}),
    ("dead at once", end_with(Failed("E", "no", permanent=True)), [YEAR], {}),
    ("dead after its tries", end_with(NO, NO), [YEAR], {}),
    ("dead by the sweeper", lose_the_worker, [YEAR], LOST),
    ("cancelled by an operator", cancel, [YEAR], {}),
    ("cancelled by its handler", stop_the_handler, [YEAR], {}),
    ("expired", miss_the_latest_start, [YEAR], {}),
]


@each("bring, held, options", [row[1:] for row in WHERE], ids=[row[0] for row in WHERE], afresh=True)
async def test_a_key_is_held_as_long_as_its_kind_says(
    rig: Rig, database: str, bring: Any, held: list[Any], options: dict[str, Any]
) -> None:
    app = Rowlock(database, clock=rig.clock)

    @app.task("t", max_attempts=2, **options)
    async def work(n: int) -> None: ...

    async with app:
        await check_key(rig, work, bring, held)


async def check_key(rig: Rig, work: Any, bring: Any, held: list[Any]) -> None:
    """Of four jobs, one of each kind of key, that are brought to one place, those `held` still have their key there."""
    latest = rig.clock.now() + timedelta(days=1)
    first = {kind: await work.using(key=str(kind), unique=kind, expires_at=latest).enqueue(n=1) for kind in KINDS}
    await bring(rig, [job.id for job in first.values()])
    for kind in KINDS:
        again = await work.using(key=str(kind), unique=kind).enqueue(n=2)
        assert (again.id == first[kind].id, again.created) == (kind in held, kind not in held), kind
        third = await work.using(key=str(kind), unique=kind).enqueue(n=3)
        assert (third.id, third.created) == (again.id, False), kind


async def test_the_handle_of_a_pruned_job_claims_no_state(app: Rowlock, t: Any, rig: Rig) -> None:
    keyed, chosen = t.using(key="k", unique="forever"), t.using(job_id=numbered(7))
    first = [(await keyed.enqueue()).id, (await chosen.enqueue()).id]
    await succeed_and_be_pruned(rig, first)
    by_many = await t.using(key=lambda n: "k", unique="forever").enqueue_many([{"n": 1}])
    for handle, job_id in zip(
        [await keyed.enqueue(), await chosen.enqueue(), *by_many], [*first, first[0]], strict=True
    ):
        assert (handle.id, handle.created, repr(handle)) == (job_id, False, f"<Job {job_id} pruned>")
        for column in ("state", "task"):
            with pytest.raises(JobNotFound, match=job_id):
                getattr(handle, column)
        with pytest.raises(JobNotFound, match=job_id):
            await handle.wait(timeout=10)


async def test_the_second_enqueue_returns_the_first_job(t: Any, rig: Rig) -> None:
    first = await t.using(key="k").enqueue(n=1)
    (claimed,) = await rig.claim()
    second = await t.using(key="k").enqueue(n=2)
    assert (first.created, second.created, second.id) == (True, False, first.id)
    assert (second.args, second.state) == ({"n": 1}, "running")
    await rig.succeed(claimed)
    assert (await t.using(key="k").enqueue(n=3)).created, "until_done is the default"
    assert len(await rig.rows()) == 2


async def test_a_key_is_a_tasks_and_an_owners(app: Rowlock, t: Any) -> None:
    @app.task
    async def other(n: int = 0) -> None: ...

    for kind in KINDS:
        asked = [t.using(key=str(kind), unique=kind, owner=owner) for owner in (None, "ana", "bob")]
        asked.append(other.using(key=str(kind), unique=kind, owner="ana"))
        made = [await bound.enqueue() for bound in asked]
        assert [job.created for job in made] == [True] * 4
        again = [await bound.enqueue() for bound in asked]
        assert [(job.id, job.created) for job in again] == [(job.id, False) for job in made]


@each("end", [Released(0), NO, None], ids=["released", "failed", "lost"], afresh=True)
async def test_a_job_that_waits_again_does_not_take_its_while_queued_key_again(t: Any, rig: Rig, end: Any) -> None:
    asked = t.using(key="k", unique="while_queued")
    first = await asked.enqueue()
    (claimed,) = await rig.claim()
    twin = await asked.enqueue()
    assert twin.created
    if end is None:
        await rig.lose(claimed)
    else:
        assert await rig.settle(claimed, end) == "applied"
    assert await rig.state(first.id) in ("queued", "retryable")
    assert (await asked.enqueue()).id == twin.id, "the twin's place is the twin's"
    rig.clock.move(3600)
    await rig.promote()
    assert {job.id for job in await rig.claim(9)} == {first.id, twin.id}, "a twin never stands in the way"
    third = await asked.enqueue()
    assert third.created
    await rig.cancel(first.id)
    assert (await asked.enqueue()).id == third.id


async def test_a_window_is_counted_from_the_enqueue_and_not_by_the_clock_on_the_wall(t: Any, rig: Rig) -> None:
    rig.clock.move(-30)  # half a minute to a new hour, day and year
    asked = t.using(key="k", unique=timedelta(hours=1))
    first = await asked.enqueue()
    for _ in range(3):
        rig.clock.move(timedelta(minutes=19))
        assert (await asked.enqueue()).id == first.id
    rig.clock.move(timedelta(minutes=3))
    second = await asked.enqueue()
    assert (second.created, second.id != first.id) == (True, True)
    rig.clock.move(timedelta(minutes=59))
    assert (await asked.enqueue()).id == second.id, "the window has moved on"


@each("first_kind", [timedelta(hours=1), "while_queued"], afresh=True)
async def test_an_older_job_that_ends_does_not_let_go_its_successors_key(t: Any, rig: Rig, first_kind: Any) -> None:
    asked = t.using(key="k", unique=first_kind)
    await asked.enqueue()
    (claimed,) = await rig.claim(lease=3 * 3600)
    rig.clock.move(timedelta(hours=1, seconds=1))
    second = await asked.enqueue()
    assert second.created
    assert await rig.settle(claimed, Failed("E", "no", permanent=True)) == "applied"
    await retention.prune(rig.store, KEEP)
    assert (await asked.enqueue()).id == second.id


# --- an operator's retry


@each("kind", ["until_done", "forever"], afresh=True)
@each("bring", [end_with(Failed("E", "no", permanent=True)), cancel], ids=["dead", "cancelled"], afresh=True)
async def test_a_retry_of_a_job_whose_key_is_a_newer_ones_is_refused(
    app: Rowlock, t: Any, rig: Rig, kind: Any, bring: Any
) -> None:
    asked = t.using(key="k", unique=kind)
    first = await asked.enqueue()
    await bring(rig, [first.id])
    newer = await asked.enqueue()
    before = await rig.everything()
    with pytest.raises(NotAllowed, match="key"):
        await app.retry(first.id)
    assert await rig.everything() == before
    await app.cancel(newer.id)
    assert (await app.retry(first.id)).state == "queued"
    assert (await asked.enqueue()).id == first.id, "the retried job holds its key again"


async def test_a_retry_does_not_take_a_while_queued_key_again(app: Rowlock, t: Any, rig: Rig) -> None:
    asked = t.using(key="k", unique="while_queued")
    first = await asked.enqueue()
    await end_with(Failed("E", "no", permanent=True))(rig, [first.id])
    twin = await asked.enqueue()
    assert (await app.retry(first.id)).state == "queued"
    assert (await asked.enqueue()).id == twin.id
