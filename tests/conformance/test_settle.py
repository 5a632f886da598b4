"""What settle promises: one outcome, written whole, by the attempt that held the lease."""

import json
from datetime import timedelta
from typing import Any

import pytest

from rowlock.core.errors import StoreError
from rowlock.core.job import NewJob
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Lost, Released, Succeeded, TimedOut
from rowlock.core.policy import fixed
from rowlock.store import batches
from rowlock.store.jobs import enqueue, leases, settle
from rowlock.store.jobs.enqueue import NewRow
from rowlock.store.jobs.settle import Keep
from support.each import each
from support.rigs.rig import ENDS, KEEP, Rig, moment, numbered, settlement, token
from support.rigs.schedules import set_to_new_year
from support.sql.refusals import refused

NO_LEASE = {
    "lease_token": None,
    "locked_at": None,
    "heartbeat_at": None,
    "lease_expires_at": None,
}


async def test_a_success_is_a_whole_finished_row(rig: Rig) -> None:
    job = await rig.running(worker="w-1", owner="ana", tags=("x",), source="s", args='{"n": 1}', priority=3)
    before = await rig.row(job.id)
    await rig.store.run(leases.progress([(job.id, job.token, 40, "fetch", "reading")]))
    now = rig.clock.move(7)
    assert await rig.settle(job, Succeeded('{"title": "é"}')) == "applied"
    assert await rig.row(job.id) == before | NO_LEASE | {
        "state": "succeeded",
        "result": {"title": "é"},
        "progress": 100,
        "phase": "fetch",
        "message": "reading",
        "settled_token": job.token,
        "locked_by": "w-1",
        "finished_at": now,
        "updated_at": now,
    }
    assert await rig.fetch("SELECT count(*) FROM {t}jobs_live") == [(0,)]


async def test_succeed_writes_the_row_that_the_general_settle_writes(rig: Rig) -> None:
    """The short way of the hot path writes what the general way writes, and says when it did not."""
    one, two = await rig.running(), await rig.running()
    done = [(one.id, one.token, '{"a": 1}')]
    assert await rig.store.run(settle.succeed(done, KEEP)) is True
    await rig.settle(two, Succeeded('{"a": 1}'))
    assert await rig.store.run(settle.succeed(done, KEEP)) is False
    differ = {"id": None, "settled_token": None}
    assert await rig.row(one.id) | differ == await rig.row(two.id) | differ
    assert await rig.settle(one, Succeeded('{"a": 1}')) == "duplicate"


async def test_one_settle_of_all_kinds_of_ends_answers_for_each_and_ends_what_is_complete(rig: Rig) -> None:
    """Whichever way each one takes: plain, with something to tell, with a follow-up, failed, repeated, lost."""
    for batch_id in (numbered(901), numbered(902)):
        await rig.store.run(batches.make(batch_id, "b", None, None))
        row = NewRow(rig.new_id(), "{}", None, None)
        await rig.store.run(enqueue.enqueue_rows([row], NewJob(task="t", batch_id=batch_id)))
        await rig.store.run(batches.seal(batch_id))
    in_batch, dead_in_batch = await rig.claim(2)
    key = NewRow(rig.new_id(), "{}", "k", None)
    await rig.store.run(enqueue.enqueue_rows([key], NewJob(task="t", unique="until_done")))
    (keyed,) = await rig.claim()
    repeated, lost = await rig.running(), await rig.running()
    await rig.succeed(repeated)
    plain, followed = await rig.running(), await rig.running(on_success='{"task": "after"}')
    failed, sourced = await rig.running(), await rig.running(source="api:a")
    done = [plain, in_batch, keyed, sourced, followed]
    settled = [settlement(job, Succeeded(f'"{n}"')) for n, job in enumerate(done)]
    settled += [settlement(failed, Failed("E", "no")), settlement(dead_in_batch, Failed("E", "no", permanent=True))]
    stale = [settlement(repeated, Succeeded()), settlement(lost, Succeeded(), under=token())]
    for given, answers in ((settled, {s.job.id: "applied" for s in settled}), (settled[:1], {plain.id: "duplicate"})):
        assert await settle.settle(rig.store, given, KEEP) == answers
    mixed = {**{s.job.id: "duplicate" for s in settled}, repeated.id: "duplicate", lost.id: "lost"}
    before = await rig.everything()
    assert await settle.settle(rig.store, [*settled, *stale], KEEP) == mixed
    assert await rig.everything() == before, "written twice"
    rows = await rig.rows()
    assert [rows[job.id]["result"] for job in done] == ["0", "1", "2", "3", "4"]
    assert (rows[failed.id]["state"], rows[lost.id]["state"]) == ("retryable", "running")
    assert [row["task"] for row in rows.values()].count("after") == 1
    assert await rig.fetch("SELECT count(*) FROM {t}job_keys WHERE mode <> 'id'") == [(0,)]
    ends = [await rig.store.run(batches.get(batch_id)) for batch_id in (numbered(901), numbered(902))]
    assert [(end.state, end.processed) for end in ends if end] == [("succeeded", 1), ("failed", 1)]


async def test_a_stale_success_among_marked_ones_leaves_the_others_counted_once(rig: Rig) -> None:
    """The short way of marked successes is all or none; the general way then writes each that still holds."""
    await rig.store.run(batches.make(numbered(901), "b", None, None))
    rows = [NewRow(rig.new_id(), "{}", None, None) for _ in range(3)]
    await rig.store.run(enqueue.enqueue_rows(rows, NewJob(task="t", batch_id=numbered(901))))
    one, stale, two = await rig.claim(3)
    ends = [settlement(one, Succeeded()), settlement(stale, Succeeded(), under=token()), settlement(two, Succeeded())]
    assert await settle.settle(rig.store, ends, KEEP) == {one.id: "applied", stale.id: "lost", two.id: "applied"}
    batch = await rig.store.run(batches.get(numbered(901)))
    assert batch is not None
    assert (batch.total, batch.processed, batch.over) == (3, 2, False)


@each("result", ["null", "0", '""', '"\\u0000"', "[1, 2.5, null]", None], afresh=True)
async def test_a_result_is_read_back_as_it_was_written(rig: Rig, result: str | None) -> None:
    job = await rig.running()
    await rig.succeed(job, result)
    ((stored,),) = await rig.fetch("SELECT result FROM {t}jobs_finished")
    assert stored == result


async def test_a_failure_with_tries_left_waits_for_its_backoff(rig: Rig) -> None:
    job = await rig.running(max_attempts=2, backoff=fixed(minutes=5).to_json())
    before = await rig.row(job.id)
    await rig.store.run(leases.progress([(job.id, job.token, 40, "fetch", "reading")]))
    now = rig.clock.move(2)
    assert await rig.settle(job, Failed("HTTP_500", "it broke"), draw=0.25) == "applied"
    assert await rig.row(job.id) == before | NO_LEASE | {
        "state": "retryable",
        "locked_by": None,
        "settled_token": job.token,
        "run_after": now + timedelta(seconds=315),
        "error_code": "HTTP_500",
        "error_message": "it broke",
        "updated_at": now,
    }
    assert await rig.claim() == []


async def test_a_failure_without_tries_left_is_dead(rig: Rig) -> None:
    job = await rig.running(max_attempts=1)
    now = rig.clock.move(2)
    await rig.settle(job, Failed("HTTP_500", "it broke"))
    row = await rig.row(job.id)
    assert (
        row
        | {
            **NO_LEASE,
            "state": "dead",
            "error_code": "HTTP_500",
            "error_message": "it broke",
            "result": None,
            "finished_at": now,
            "locked_by": "worker-1",
        }
        == row
    )


async def test_a_permanent_failure_is_dead_whatever_tries_are_left(rig: Rig) -> None:
    job = await rig.running(max_attempts=100)
    await rig.settle(job, Failed("HTTP_403", "forbidden", permanent=True))
    assert await rig.state(job.id) == "dead"


async def test_a_timeout_uses_up_a_try(rig: Rig) -> None:
    job = await rig.running(max_attempts=2, backoff=fixed(seconds=1).to_json())
    await rig.settle(job, TimedOut(30))
    assert await rig.state(job.id) == "retryable"
    rig.clock.move(2)
    await rig.promote()
    (job,) = await rig.claim()
    await rig.settle(job, TimedOut(30))
    row = await rig.row(job.id)
    assert (row["state"], row["error_code"]) == ("dead", "TIMEOUT")
    assert [attempt[:2] for attempt in await rig.attempts(job.id)] == [(1, "timed_out"), (2, "timed_out")]


async def test_a_release_uses_up_no_try(rig: Rig) -> None:
    job_id = await rig.enqueue(max_attempts=2)
    for _ in range(25):
        (job,) = await rig.claim()
        await rig.settle(job, Released(0, "deploy"))
    row = await rig.row(job_id)
    assert (row["state"], row["attempt"], row["releases"]) == ("queued", 25, 25)
    (job,) = await rig.claim()
    await rig.settle(job, Failed("E", "the first try"))
    assert await rig.state(job_id) == "retryable"


async def test_a_release_with_a_delay_is_claimable_when_due(rig: Rig) -> None:
    job = await rig.running()
    await rig.settle(job, Released(30, "snoozed"))
    assert (await rig.row(job.id))["run_after"] == rig.clock.now() + timedelta(seconds=30)
    assert await rig.claim() == []
    rig.clock.move(30)
    await rig.promote()
    assert [again.id for again in await rig.claim()] == [job.id]


async def test_a_cancelled_attempt_ends_cancelled(rig: Rig) -> None:
    job = await rig.running()
    await rig.cancel(job.id)
    await rig.settle(job, Cancelled())
    row = await rig.row(job.id)
    assert (row["state"], row["result"], row["lease_token"]) == ("cancelled", None, None)
    assert await rig.attempts(job.id) == [(1, "cancelled", "CANCELLED", "worker-1")]


async def test_two_convictions_are_poison(rig: Rig) -> None:
    job = await rig.running(max_attempts=5)
    await rig.settle(job, Lost(convicted=True, detail="signal 9"), draw=0)
    await rig.promote()
    (job,) = await rig.claim()
    assert (job.losses, job.convictions) == (1, 1)
    await rig.settle(job, Lost(convicted=True, detail="signal 9"))
    row = await rig.row(job.id)
    assert (row["state"], row["error_code"], row["losses"]) == ("dead", "POISON", 2)


async def test_each_attempt_that_did_not_succeed_has_a_row(rig: Rig) -> None:
    columns = "attempt, outcome, worker, started_at, finished_at, error_code, error_message"
    for end in ENDS:
        started = rig.clock.move(100)
        job = await rig.running(worker="w-9")
        ended = rig.clock.move(5)
        await rig.settle(job, end)
        transition = settlement(job, end).transition
        found = await rig.fetch(f"SELECT {columns} FROM {{t}}attempts WHERE job_id = $1", job.id)
        if isinstance(end, Succeeded):
            assert found == []
            continue
        (attempt,) = found
        assert attempt[:3] == (1, transition.outcome, "w-9")
        assert attempt[5:] == (transition.error_code, transition.error_message)
        assert [moment(time) for time in attempt[3:5]] == [started, ended]


async def test_follow_ups_are_written_with_the_final_state(rig: Rig) -> None:
    job = await rig.running(on_success='{"task": "after", "priority": 9}')
    await rig.succeed(job, "7")
    (row,) = [row for row in (await rig.rows()).values() if row["id"] != job.id]
    assert (row["task"], row["priority"], row["state"]) == ("after", 9, "queued")
    assert (row["args"]["finished"]["job_id"], row["args"]["finished"]["result"]) == (job.id, 7)


async def test_a_follow_up_that_cannot_be_stored_undoes_the_settle(rig: Rig, database: str) -> None:
    job, other = await rig.running(), await rig.running()
    before = await rig.everything()
    followed = settlement(job, Succeeded(), on_success='{"task": "x"}')
    with refused(database, "jobs_live", "task", "x"), pytest.raises(StoreError):
        await rig.settle_all([settlement(other, Succeeded()), followed])
    assert await rig.everything() == before
    await rig.succeed(job)


@each("stale", [True, False], afresh=True)
async def test_lost_and_repeated_settles_write_no_follow_ups(rig: Rig, stale: bool) -> None:
    job = await rig.running()
    if not stale:
        await rig.succeed(job)
    before = await rig.everything()
    late = settlement(job, Succeeded(), under=token() if stale else None, on_success='{"task": "after"}')
    assert await rig.settle_all([late]) == {job.id: "lost" if stale else "duplicate"}
    assert await rig.everything() == before


@each(
    "end, options, days",
    [
        (Succeeded(), {}, 2),
        (Failed("E", "no", permanent=True), {}, 5),
        (Cancelled(), {}, 5),
        (Succeeded(), {"keep_seconds": 9.5 * 86_400}, 9),
        (Failed("E", "no", permanent=True), {"keep_seconds": 86_400.0}, 1),
    ],
    afresh=True,
)
async def test_a_finished_row_is_kept_as_long_as_its_state_or_task_says(
    rig: Rig, end: AttemptEnd, options: dict[str, Any], days: int
) -> None:
    set_to_new_year(rig)
    rig.clock.move(timedelta(hours=3))
    job = await rig.running(**options)
    await rig.settle(job, end, keep=Keep(succeeded=2 * 86_400, failed=5 * 86_400))
    ((drop_on,),) = await rig.fetch("SELECT drop_on FROM {t}jobs_finished")
    # Kept for whole days: it may be dropped on the day after its time is up.
    assert str(drop_on) == str((rig.clock.now() + timedelta(days=days + 1)).date())


async def test_hostile_error_texts_are_stored_as_they_are(rig: Rig) -> None:
    job = await rig.running()
    message = "'; DROP TABLE x; -- $1 :now ? \\ \" \n\t 日本 " + "x" * 8000
    await rig.settle(job, Failed("E'", message, permanent=True))
    row = await rig.row(job.id)
    assert (row["error_code"], row["error_message"]) == ("E'", message)


async def test_a_follow_up_stored_in_the_row_comes_back_with_the_claim(rig: Rig) -> None:
    stored = json.dumps({"task": "after", "queue": "q"})
    job = await rig.running(on_success=stored, on_dead=stored)
    await rig.settle(job, Released(0))
    (again,) = await rig.claim()
    assert (again.on_success, again.on_dead) == (stored, stored)
