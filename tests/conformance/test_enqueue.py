"""What enqueue promises: accepted is durable, whole and once."""

import asyncio
import json
from datetime import timedelta

import pytest

from rowlock.core.errors import LeaseLost, StoreError
from rowlock.core.job import NewJob
from rowlock.core.outcome import Released
from rowlock.core.policy import fixed
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from rowlock.store.jobs import enqueue
from rowlock.store.jobs.enqueue import NewRow
from support.each import each
from support.rigs.rig import Rig, numbered, token


async def test_a_returned_enqueue_is_seen_by_everyone(rig: Rig, database: str) -> None:
    job_id = await rig.enqueue()
    other = await open_store(database, StoreOptions(clock=rig.clock))
    try:
        assert await Rig(other, rig.clock).state(job_id) == "queued"
    finally:
        await other.close()


async def test_a_job_has_the_options_it_was_given(rig: Rig) -> None:
    now = rig.clock.now()
    job_id = await rig.enqueue(
        task="links.enrich",
        args='{"url": "https://example.com/ä"}',
        queue="links",
        priority=-7,
        owner="ana",
        source="domain:example.com",
        tags=("one", "two"),
        max_attempts=2,
        backoff=fixed(minutes=5).to_json(),
        timeout_seconds=30.5,
        run_after=now - timedelta(seconds=5),
        expires_at=now + timedelta(hours=1),
    )
    row = await rig.row(job_id)
    assert (
        row
        | {
            "task": "links.enrich",
            "queue": "links",
            "state": "queued",
            "priority": -7,
            "args": {"url": "https://example.com/ä"},
            "owner": "ana",
            "source": "domain:example.com",
            "tags": ["one", "two"],
            "attempt": 0,
            "max_attempts": 2,
            "releases": 0,
            "losses": 0,
            "backoff": json.loads(fixed(minutes=5).to_json()),
            "timeout_seconds": 30.5,
            "run_after": now - timedelta(seconds=5),
            "expires_at": now + timedelta(hours=1),
            "created_at": now,
            "updated_at": now,
        }
        == row
    )


async def test_a_job_has_the_documented_defaults(rig: Rig) -> None:
    row = await rig.row(await rig.enqueue())
    assert row | {"queue": "default", "priority": 0, "max_attempts": 5, "timeout_seconds": None} == row
    assert row["run_after"] == rig.clock.now()
    unset = [name for name in row if name.startswith(("lease", "locked", "result", "error", "settled", "finished"))]
    assert len(unset) == 11
    assert {row[name] for name in unset} == {None}


async def test_jobs_of_one_bulk_share_options_and_keep_their_own_arguments(rig: Rig) -> None:
    bulk = [(numbered(n), json.dumps({"n": n})) for n in range(500)]
    await rig.store.run(enqueue.enqueue(bulk, NewJob(task="t", queue="links", priority=3)))
    rows = await rig.rows()
    assert [row["args"] for row in rows.values()] == [{"n": n} for n in range(500)]
    assert {(row["queue"], row["priority"]) for row in rows.values()} == {("links", 3)}


async def test_an_empty_bulk_stores_nothing(rig: Rig) -> None:
    await rig.store.run(enqueue.enqueue([], NewJob(task="t")))
    assert await rig.rows() == {}


async def test_a_bulk_of_several_sources_is_stored_together_or_not_at_all(rig: Rig) -> None:
    rows = [NewRow(numbered(n), "{}", None, f"api:{n % 2}") for n in range(4)]
    with pytest.raises(StoreError):
        await rig.store.run(enqueue.enqueue_rows(rows, NewJob(task="b", priority=1000)))
    assert await rig.rows() == {}
    await rig.store.run(enqueue.enqueue_rows(rows, NewJob(task="a")))
    assert [row["source"] for row in (await rig.rows()).values()] == ["api:0", "api:1"] * 2


@each(
    "args",
    [
        '{"text": "naïve \\u0000 \\ud83d\\ude00 \\" \\\\ \\n 日本"}',
        '{"deep": [[[{"a": [null, true, 1.5e300, -0.0]}]]]}',
        '{"big": 123456789012345678901234567890}',
        '{"sql": "\'); DROP TABLE rowlock_jobs_live; --", "$1": ":now ?1"}',
    ],
)
async def test_arguments_come_back_as_they_were_given(rig: Rig, args: str) -> None:
    job = await rig.running(args=args)
    assert json.loads(job.args) == json.loads(args)


async def test_a_used_id_is_refused_and_nothing_of_its_bulk_is_stored(rig: Rig) -> None:
    await rig.store.run(enqueue.enqueue([(numbered(5), "{}")], NewJob(task="first")))
    bulk = [(numbered(n), "{}") for n in range(10)]
    with pytest.raises(StoreError):
        await rig.store.run(enqueue.enqueue(bulk, NewJob(task="second")))
    assert {job_id: row["task"] for job_id, row in (await rig.rows()).items()} == {numbered(5): "first"}


async def test_one_refused_enqueue_takes_no_other_down(rig: Rig) -> None:
    await rig.store.run(enqueue.enqueue([(numbered(1), "{}")], NewJob(task="t")))
    wanted = [enqueue.enqueue([(numbered(n), "{}")], NewJob(task="t")) for n in range(40)]
    answers = await asyncio.gather(*map(rig.store.run, wanted), return_exceptions=True)
    assert [type(answer) for answer in answers if answer is not None] == [StoreError]
    assert isinstance(answers[1], StoreError)
    assert set(await rig.rows()) == {numbered(n) for n in range(40)}


@each("priority, taken", [(-101, False), (-100, True), (100, True), (101, False)], afresh=True)
async def test_priority_is_between_minus_100_and_100(rig: Rig, priority: int, taken: bool) -> None:
    if taken:
        await rig.enqueue(priority=priority)
    else:
        with pytest.raises(StoreError):
            await rig.enqueue(priority=priority)
    assert len(await rig.rows()) == taken


async def test_a_delayed_job_waits_for_its_time(rig: Rig) -> None:
    delayed = await rig.enqueue(delay=30)
    later = await rig.enqueue(run_after=rig.clock.now() + timedelta(seconds=30))
    past = await rig.enqueue(run_after=rig.clock.now() - timedelta(days=1))
    assert [job.id for job in await rig.claim(10)] == [past]
    rows = await rig.rows()
    assert rows[delayed]["run_after"] == rows[later]["run_after"] == rig.clock.now() + timedelta(seconds=30)
    assert rows[past]["run_after"] == rig.clock.now() - timedelta(days=1)


async def test_a_chosen_id_is_taken_once(rig: Rig) -> None:
    chosen = numbered(1)
    assert await rig.store.run(enqueue.enqueue_once(chosen, '{"first": 1}', NewJob(task="t"))) == [(chosen, True)]
    before = await rig.everything()
    assert await rig.store.run(enqueue.enqueue_once(chosen, '{"second": 2}', NewJob(task="t"))) == [(chosen, False)]
    assert await rig.everything() == before


async def test_a_chosen_id_stays_taken_after_the_job_is_finished(rig: Rig) -> None:
    await rig.store.run(enqueue.enqueue_once(numbered(1), "{}", NewJob(task="t")))
    (job,) = await rig.claim()
    await rig.succeed(job)
    assert await rig.store.run(enqueue.enqueue_once(numbered(1), "{}", NewJob(task="t"))) == [(numbered(1), False)]
    assert await rig.state(numbered(1)) == "succeeded"


async def test_concurrent_enqueues_of_one_chosen_id_make_one_job(rig: Rig) -> None:
    twins = [enqueue.enqueue_once(numbered(1), json.dumps({"n": n}), NewJob(task="t")) for n in range(20)]
    created = [created for ((_, created),) in await asyncio.gather(*map(rig.store.run, twins))]
    assert sorted(created) == [False] * 19 + [True]
    assert (await rig.row(numbered(1)))["args"] == {"n": created.index(True)}


async def test_a_chosen_id_is_free_again_when_its_enqueue_fails(rig: Rig) -> None:
    with pytest.raises(StoreError):
        await rig.store.run(enqueue.enqueue_once(numbered(1), "{}", NewJob(task="t", priority=1000)))
    assert await rig.store.run(enqueue.enqueue_once(numbered(1), "{}", NewJob(task="t"))) == [(numbered(1), True)]


async def test_a_running_attempt_may_enqueue_children(rig: Rig) -> None:
    job = await rig.running()
    child = rig.new_id()
    row, lease = NewRow(child, "{}", None, None), (job.id, job.token)
    await rig.store.run(enqueue.enqueue_rows([row], NewJob(task="child"), lease, must_hold=True))
    assert await rig.state(child) == "queued"


async def test_the_child_of_a_zombie_is_refused(rig: Rig) -> None:
    zombie = await rig.running()
    await rig.settle(zombie, Released(0))
    (job,) = await rig.claim()
    before = await rig.everything()
    for lease in ((zombie.id, zombie.token), (job.id, token()), (rig.new_id(), job.token)):
        with pytest.raises(LeaseLost):
            child = NewRow(rig.new_id(), "{}", None, None)
            await rig.store.run(enqueue.enqueue_rows([child], NewJob(task="child"), lease, must_hold=True))
    assert await rig.everything() == before
