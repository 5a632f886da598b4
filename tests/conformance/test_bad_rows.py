"""One bad row stops nobody: what other programs have put into the tables is refused, or it is set aside and shown."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from rowlock import Rowlock
from rowlock.core.config import Settings
from rowlock.core.job import Settlement
from rowlock.core.outcome import Succeeded
from rowlock.core.policy import fixed
from rowlock.core.states import State
from rowlock.signals.events import Watcher
from rowlock.store import batches, workers
from rowlock.store.jobs import claim, leases, settle
from rowlock.store.jobs.claim import Range
from rowlock.store.read import job_rows
from rowlock.store.read.counts import read_stats, unknown_tasks
from rowlock.store.read.explain import explain
from rowlock.store.upkeep import bad_rows as aside
from rowlock.store.upkeep import retention
from rowlock.worker.attempt.reports import ProgressBook
from rowlock.worker.loops import Loops
from rowlock.worker.settler import Settler
from rowlock.worker.upkeep.sweeper import Sweeper
from support.each import each
from support.rigs.rig import KEEP, Rig, prefix
from support.rigs.sources import claim_turns, sources
from support.rigs.worker import new_claimer, new_slots
from support.sql.bad_rows import BAD, TIMES, bad_id, bad_rows, insert_bad_rows

# --- ids


async def test_enqueueing_under_the_id_of_any_earlier_job_makes_no_second_job(database: str) -> None:
    async with Rowlock(database) as app:

        @app.task("t")
        async def t() -> None: ...

        waiting = await t.enqueue()
        keyed = await t.using(key="k", unique="forever").enqueue()
        done = await t.enqueue()
        store = await app.store()
        claimed = await store.run(claim.claim("w", bad_id("no JSON"), [Range("default", "t")], 10, 60))
        ended = [(job.id, job.token, None) for job in claimed if job.id in (done.id, keyed.id)]
        assert await store.run(settle.succeed(ended, KEEP))
        async with app.transaction() as tx:  # pruned: only its key remembers it
            await tx.execute(f"DELETE FROM {prefix(store)}jobs_finished WHERE id = $1", keyed.id)
        for known in (waiting, done, keyed):
            for _ in range(2):
                again = await t.using(job_id=known.id).enqueue()
                assert (again.id, again.created) == (known.id, False)
        async with app.transaction():
            assert (await t.using(job_id=done.id).enqueue()).created is False
        async with app.batch("b") as batch:
            assert (await t.using(job_id=done.id, batch=batch).enqueue()).created is False
        assert (await app.find_batch(batch.id)).total == 0
        rows = await app.fetch(f"SELECT count(*) FROM {prefix(store)}jobs_live")
        assert rows[0][0] == 1  # the one that still runs


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_a_known_job_id_on_a_callers_connection_makes_no_second_job(database: str) -> None:
    async with Rowlock(database) as app:

        @app.task("t")
        async def t() -> None: ...

        known = await t.enqueue()
        with psycopg.connect(database) as connection:
            assert t.using(job_id=known.id, connection=connection).enqueue_sync().created is False


# --- what the tables refuse

REFUSED = {
    "run_after": ["{infinity}", "{never}", "{far}", "{bc}"],
    "expires_at": ["{infinity}", "{far}", "{bc}"],
    "args": [f"'{BAD['a number of 5,000 digits'].columns['args'][1:-1]}'"],
    "state": ["'paused'", "'succeeded'"],
}


def _sql(rig: Rig, text: str) -> str:
    return TIMES[rig.store.engine].get(text.strip("{}"), text)


@each("column", REFUSED, afresh=True)
async def test_the_table_refuses_what_could_not_be_read(rig: Rig, column: str) -> None:
    await rig.enqueue()
    before = await rig.everything()
    for value in REFUSED[column]:
        insert = (
            "INSERT INTO {t}jobs_live (id, task, queue, state, ready, args, max_attempts, run_after, created_at,"
            f" updated_at, expires_at) SELECT '{rig.new_id()}', task, queue, "
            + ", ".join(_sql(rig, value) if name == column else name for name in ("state", "ready", "args"))
            + ", max_attempts, "
            + (_sql(rig, value) if column == "run_after" else "run_after")
            + ", created_at, updated_at, "
            + (_sql(rig, value) if column == "expires_at" else "expires_at")
            + " FROM {t}jobs_live"
        )
        for statement in (insert, f"UPDATE {{t}}jobs_live SET {column} = {_sql(rig, value)}"):
            if rig.store.engine == "sqlite" and statement is not insert and column == "args":
                continue  # digits are counted when a row is new
            with pytest.raises(Exception, match="constraint"):
                await rig.fetch(statement)
        assert await rig.everything() == before


async def test_long_texts_of_digits_and_numbers_that_python_reads_are_taken(rig: Rig) -> None:
    for args in ('{"n": "' + "7" * 6000 + '"}', '{"n": 1' + "0" * 4000 + ', "pad": "' + "x" * 2000 + '"}'):
        job_id = await rig.enqueue(args=args)
        job = await rig.store.run(job_rows.get(job_id))
        assert job is not None
        assert job.unreadable == ()


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@each(
    "call, message",
    [
        ("'{}', '{\"run_after\": \"infinity\"}'", "run_after must be a time .* from 1970 to 2199.*; not .*infinity"),
        ("'{}', '{\"run_after\": \"20000-01-01T00:00:00Z\"}'", "run_after must be a time .* from 1970 to 2199"),
        ("'{}', '{\"delay\": 9e9}'", "delay must be a number of seconds from 0 to 3200000000"),
        ("'{\"n\": 1e5000}'", "a number of more than 4300 digits"),
    ],
)
async def test_the_sql_function_refuses_what_could_not_be_read(database: str, call: str, message: str) -> None:
    with psycopg.connect(database) as connection, pytest.raises(psycopg.Error, match=message):
        connection.execute(f"SELECT rowlock.enqueue('t', {call})")


# --- what is there already


@pytest.fixture
async def app(database: str) -> AsyncIterator[Rowlock]:
    worker = {"sweep_seconds": 0.2, "lease_seconds": 1.5, "heartbeat_seconds": 0.5, "poll_interval_seconds": 0.2}
    async with Rowlock(settings=Settings(database=database, worker=worker)) as opened:  # type: ignore[arg-type]
        yield opened


async def test_every_reader_survives_rows_that_cannot_be_read(app: Rowlock, database: str, engine: str) -> None:
    insert_bad_rows(database)
    store = await app.store()
    listed = {job.id: job for job in await app.jobs(limit=1000)}
    assert set(listed) == {bad_id(name) for name in bad_rows(engine)}
    for name in bad_rows(engine):
        job = await app.job(bad_id(name))
        assert job.record == listed[job.id].record
        assert (await app.explain(job.id)).text
    assert await app.jobs(tag="a") == []
    assert [job.id for job in await app.jobs(tag="\ud800")] == [bad_id("half of a surrogate pair")]
    assert await app.stats()
    assert await store.run(unknown_tasks())
    assert await store.run(job_rows.never_due(10))
    marked = {name: listed[bad_id(name)].record.unreadable for name in bad_rows(engine)}
    assert marked["a state that there is not"] == ("state",)
    assert marked["due in the year 20000"] == marked["due at infinity"] == ("run_after",)
    assert marked["due before Christ"] == ("run_after",)
    assert marked["made in the year 20000"] == ("created_at", "updated_at")
    assert marked["a number of 5,000 digits"] == ("args",)
    assert marked["tags that are no list"] == marked["tags that are numbers"] == ("tags",)
    assert marked["kept for ever"] == ()
    if engine == "sqlite":
        assert marked["no JSON"] == ("args", "backoff", "tags")
        assert marked["bytes for arguments"] == ("args",)
        assert marked["text where numbers belong"] == ("progress", "run_after")


async def test_everything_else_runs_beside_rows_that_cannot_be_handled(
    app: Rowlock, database: str, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    failed = []

    @app.task("t")
    async def t(n: int = 0) -> int:
        return n

    @app.task("again", max_attempts=2, backoff=fixed(seconds=0.1))
    async def again() -> str:
        failed.append(1)
        if len(failed) < 2:
            raise ConnectionError("not yet")
        return "at last"

    insert_bad_rows(database)
    store = await app.store()
    expired = await t.using(queue="nobody", expires_at=datetime.now(UTC) + timedelta(seconds=1)).enqueue()
    lost = await t.using(queue="lost").enqueue()
    (held,) = await store.run(claim.claim("gone", bad_id("no JSON"), [Range("lost", "t")], 1, 0.1))
    assert held.id == lost.id
    finished = await t.enqueue()
    with caplog.at_level(logging.ERROR, "rowlock"):
        async with app.worker(queues=["default", "lost"], pool_size=5):
            assert await finished.wait(60) == 0
            assert await (await t.enqueue(n=1)).wait(60) == 1
            assert await (await t.using(delay=0.3).enqueue(n=2)).wait(60) == 2
            assert await (await again.enqueue()).wait(60) == "at last"
            assert await lost.wait(60) == 0
            await _until(expired, State.CANCELLED)
            await _settled(app)
    for name in ("a number of 5,000 digits", "a NUL in the arguments", "arguments that are a list"):
        job = await app.job(bad_id(name))
        assert (job.state, job.error_code) == (State.DEAD, "INVALID_ARGUMENTS"), name
    left = {one.id: one for one in await store.run(aside.listed(100))}
    stuck = {bad_id(name) for name in bad_rows(engine) if (await app.job(bad_id(name))).state not in _FINAL}
    assert len(stuck & set(left)) == 3
    for job_id in stuck & set(left):
        assert (await app.explain(job_id)).reason == "aside"
    told = [record.message for record in caplog.records if "is set aside" in record.message]
    assert len(told) == len(left)  # each once
    assert {one.id for one in (await app.stats()).set_aside} == set(left)
    assert await retention.prune(store, app.keep)


_FINAL = {State.SUCCEEDED, State.DEAD, State.CANCELLED}


async def _until(job: Any, state: State) -> None:
    async with asyncio.timeout(60):
        while (await job.refresh()).state is not state:
            await asyncio.sleep(0.05)


async def _settled(app: Rowlock) -> None:
    """Nothing that is due is left, but for what is set aside."""
    store = await app.store()
    async with asyncio.timeout(60):
        while left := await store.run(claim.work_left([Range("default", "t")])):
            await asyncio.sleep(0.05)
    assert not left


# --- set aside


@pytest.fixture
def sweeper(rig: Rig) -> Sweeper:
    never: Any = None
    return Sweeper(rig.store, Settings().worker, KEEP, never, new_claimer(), Watcher())


_COPIED = ("task", "queue", "state", "priority", "args", "attempt", "max_attempts", "releases", "losses", "convictions")


async def _twin(rig: Rig, job_id: str) -> None:
    """A finished job of the same id, as a client-chosen id that was a job's already once made it."""
    row = dict(zip(_COPIED, ("t", "default", "succeeded", 0, "{}", 1, 1, 0, 0, 0), strict=True))
    values = ", ".join(repr(value) for value in row.values())
    when = "(SELECT min(created_at) FROM {t}jobs_live)"
    # On PostgreSQL the day is a part of the key: one for each on which the job may end.
    days = {(rig.clock.now() + timedelta(seconds=kept, days=n)).date() for kept in KEEP for n in (1, 2)}
    for day in sorted(days)[: 1 if rig.store.engine == "sqlite" else None]:
        await rig.fetch(
            f"INSERT INTO {{t}}jobs_finished (id, {', '.join(row)}, run_after, created_at, finished_at, updated_at,"
            f" drop_on) SELECT '{job_id}', {values}, {when}, {when}, {when}, {when}, '{day}'"
        )


async def test_a_lost_job_whose_end_cannot_be_stored_stops_no_other_reclaim(rig: Rig, sweeper: Sweeper) -> None:
    bad = await rig.running(on_lost="dead")
    good = [await rig.running(on_lost="dead") for _ in range(3)]
    await _twin(rig, bad.id)
    rig.clock.move(61)
    reclaimed = await _reclaim(rig, sweeper)
    assert sorted(lost.job.id for lost in reclaimed) == sorted(job.id for job in good)
    (one,) = await rig.store.run(aside.listed(10))
    assert (one.id, one.doing, one.times) == (bad.id, "reclaim", 1)
    assert (await rig.store.run(leases.to_sweep()))[:3] == (False, False, False)  # not tried each round
    told = await rig.store.run(explain(bad.id))
    assert told is not None
    rig.clock.move(3601)
    assert await _reclaim(rig, sweeper) == []
    (one,) = await rig.store.run(aside.listed(10))
    assert one.times == 2
    await rig.fetch("DELETE FROM {t}jobs_finished WHERE id = $1", bad.id)  # mended
    await rig.fetch("DELETE FROM {t}set_aside")
    assert [lost.job.id for lost in await _reclaim(rig, sweeper)] == [bad.id]


async def _reclaim(rig: Rig, sweeper: Sweeper) -> list[Settlement]:
    sweeper._settings = sweeper._settings.model_copy(update={"lease_seconds": 0.0})
    return await sweeper._reclaim()


async def test_an_overdue_job_whose_end_cannot_be_stored_stops_no_other(rig: Rig, sweeper: Sweeper) -> None:
    over = rig.clock.now()
    ids = [await rig.enqueue(expires_at=over) for _ in range(3)]
    await _twin(rig, ids[1])
    rig.clock.move(10)
    assert await sweeper._expire() == 2
    assert [one.id for one in await rig.store.run(aside.listed(10))] == [ids[1]]
    assert await rig.fetch("SELECT id, state FROM {t}jobs_live") == [(ids[1], "queued")]
    assert not (await rig.store.run(leases.to_sweep())).overdue


async def test_a_job_that_cannot_be_promoted_stops_no_other(rig: Rig, database: str) -> None:
    ids = [await rig.enqueue(delay=5.0) for _ in range(3)]
    await _break_updates(rig, ids[1])
    rig.clock.move(10)
    due_ids = aside.next_ids("due_ids", n=10)
    done = await aside.change_next(rig.store, "promote", partial(claim.promote, 10), due_ids)
    assert done
    assert [job.id for job in await rig.claim(10)] == [ids[0], ids[2]]
    assert [(one.id, one.doing) for one in await rig.store.run(aside.listed(10))] == [(ids[1], "promote")]
    assert (await rig.promote())[0] == 0


async def test_a_job_that_cannot_be_claimed_stops_no_other(rig: Rig) -> None:
    ids = [await rig.enqueue() for _ in range(6)]
    await _break_updates(rig, ids[4], "attempt")
    with pytest.raises(Exception, match="broken"):
        await rig.claim(10)
    assert await aside.put_unclaimable(rig.store, [("default", "t")], page=2) == 1, "it is not on the first page"
    assert [job.id for job in await rig.claim(10)] == [*ids[:4], ids[5]]
    assert await rig.promote() == (0, None)


async def test_a_job_whose_outcome_could_not_be_stored_keeps_no_place_of_its_source(rig: Rig) -> None:
    """It stays `running` in its row, and nobody runs it."""
    await sources(rig).set("api:a", concurrency=1)
    first, second = await rig.enqueue_many(2, source="api:a")
    assert [job.id for job in await claim_turns(rig, 5)] == [first]
    assert await claim_turns(rig, 5) == []
    await aside.put(rig.store, first, "settle", ValueError("no"), again=None)
    assert [job.id for job in await claim_turns(rig, 5)] == [second]


async def test_a_text_of_many_digits_beside_an_escaped_nul_is_stored(rig: Rig) -> None:
    """Each alone is stored; together they were refused on PostgreSQL."""
    job_id = await rig.enqueue(args=json.dumps({"digits": "1" * 4400, "text": "a\0b"}))
    assert [job.id for job in await rig.claim(1)] == [job_id]


async def test_a_finished_job_that_cannot_be_deleted_stops_no_other(rig: Rig) -> None:
    done = [await rig.running() for _ in range(3)]
    for job in done:
        await rig.succeed(job)
    await _break_deletes(rig, done[1].id)
    rig.clock.move(86_400 * 40)
    pruned = await retention.prune(rig.store, KEEP)
    assert pruned.jobs == 2
    assert [(one.id, one.doing) for one in await rig.store.run(aside.listed(10))] == [(done[1].id, "prune")]


async def _break_updates(rig: Rig, job_id: str, column: str = "ready") -> None:
    """A trigger, as a user's own would, refuses to change this row."""
    if rig.store.engine == "sqlite":
        await rig.fetch(
            f"CREATE TRIGGER broken BEFORE UPDATE OF {column} ON rowlock_jobs_live WHEN NEW.id = '{job_id}'"
            " BEGIN SELECT RAISE(ABORT, 'broken'); END"
        )
        return
    await rig.fetch(_BROKEN)
    await rig.fetch(
        f"CREATE TRIGGER broken BEFORE UPDATE OF {column} ON rowlock.jobs_live FOR EACH ROW"
        f" WHEN (NEW.id = '{job_id}') EXECUTE FUNCTION broken()"
    )


_BROKEN = "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$"


async def _break_deletes(rig: Rig, job_id: str) -> None:
    if rig.store.engine == "sqlite":
        await rig.fetch(
            f"CREATE TRIGGER broken BEFORE DELETE ON rowlock_jobs_finished WHEN OLD.id = '{job_id}'"
            " BEGIN SELECT RAISE(ABORT, 'broken'); END"
        )
        return
    await rig.fetch(_BROKEN)
    await rig.fetch(
        "CREATE TRIGGER broken BEFORE DELETE ON rowlock.jobs_finished FOR EACH ROW"
        f" WHEN (OLD.id = '{job_id}') EXECUTE FUNCTION broken()"
    )


async def test_a_batch_whose_on_end_cannot_be_understood_ends_and_stops_no_other(rig: Rig, sweeper: Sweeper) -> None:
    ids = [rig.new_id() for _ in range(3)]
    for batch_id, on_end in zip(ids, (None, "[1]", None), strict=True):
        await rig.store.run(batches.make(batch_id, "b", None, on_end))
    await rig.fetch("UPDATE {t}batches SET sealed_at = created_at")
    await sweeper._end_batches()
    assert {row[0] for row in await rig.fetch("SELECT state FROM {t}batches")} == {"succeeded"}


async def test_a_worker_row_whose_lists_are_not_lists_is_read_as_having_none(rig: Rig) -> None:
    await rig.store.run(workers.register("w", "h", 1, "1", ["default"], ["t"], 5, None, 60))
    await rig.fetch("""UPDATE {t}workers SET queues = '{"a": 1}', tasks = '[1]'""")
    (worker,) = await rig.store.run(workers.workers())
    assert (worker.queues, worker.tasks) == ((), ())
    assert (await rig.store.run(read_stats())).workers == 1
    assert await rig.store.run(explain(await rig.enqueue()))


async def test_a_job_whose_outcome_can_never_be_stored_is_set_aside_and_not_run_again(rig: Rig) -> None:
    bad, good = await rig.running(), await rig.running()
    await _twin(rig, bad.id)
    slots = new_slots(2)
    slots.add([bad, good], 0.0)
    settler = Settler(rig.store, KEEP, slots, new_claimer(), ProgressBook(rig.store), Watcher())
    for attempt in slots.held.values():
        settler.settle(attempt, Succeeded())
    loops = Loops(rig.store.outage)
    loops.start("settle", settler.round)
    try:
        assert await settler.drain(30)
    finally:
        await loops.stop_all()
    assert (slots.held, slots.stale_refused) == ({}, 1)
    assert await rig.fetch("SELECT state FROM {t}jobs_finished WHERE id = $1", good.id) == [("succeeded",)]
    (one,) = await rig.store.run(aside.listed(10))
    assert (one.id, one.doing, one.again_at) == (bad.id, "settle", None)
    rig.clock.move(100_000)
    assert await rig.reclaim() == []
    assert (await rig.fetch("SELECT state FROM {t}jobs_live")) == [("running",)]


async def test_a_job_that_is_over_is_no_longer_listed_as_set_aside(rig: Rig) -> None:
    left, gone = await rig.enqueue(), await rig.enqueue()
    for job_id in (left, gone):
        await aside.put(rig.store, job_id, "expire", ValueError("no"))
    await rig.cancel(gone)
    await rig.store.run(aside.forget())
    assert [one.id for one in await rig.store.run(aside.listed(10))] == [left]
    rig.clock.move(2 * aside.AGAIN_SECONDS + 1)
    await rig.store.run(aside.forget())
    assert await rig.store.run(aside.listed(10)) == []
