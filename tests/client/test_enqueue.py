"""Enqueue: one, many, later, first, at latest; under a chosen id; from sync code; by name."""

import asyncio
import threading
import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rowlock import InvalidArguments, JobCancelled, Rowlock
from support.tasks.contract import count_jobs, execute, fetch, frozen, row_of, working

JOB_IDS = "SELECT id FROM {t}jobs"


async def test_a_returned_id_is_a_committed_row(app: Rowlock, app_url: str) -> None:
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    job = await add.enqueue(a=1, b=2)
    assert uuid.UUID(job.id).version == 7
    assert job.created is True
    async with Rowlock(app_url) as elsewhere:
        seen = await elsewhere.job(job.id)
    assert (seen.id, seen.state, seen.attempt, seen.progress) == (job.id, "queued", 0, None)
    assert (seen.result, seen.error_message) == (None, None)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_creating_and_reading_jobs_never_runs_them(app: Rowlock) -> None:
    """S0.3: the web tier creates, reads and cancels; processing is a worker's."""
    ran: list[int] = []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)

    made = await work.enqueue_many([{"n": n} for n in range(3)])
    for job in made:
        assert (await app.job(job.id)).state == "queued"
        with pytest.raises(TimeoutError):
            await job.wait(timeout=0.05)
    assert await app.cancel(made[0].id) == "cancelled"
    assert ran == []


async def test_jobs_of_enqueue_many_run_in_the_order_given(app: Rowlock) -> None:
    ran: list[int] = []

    @app.task
    async def note(n: int) -> None:
        ran.append(n)

    jobs = await note.enqueue_many([{"n": n} for n in range(100)])
    assert [job.id for job in jobs] == sorted({job.id for job in jobs})
    rows = await fetch(app, "SELECT id FROM {t}jobs ORDER BY id")
    assert [str(row[0]) for row in rows] == [job.id for job in jobs]
    async with working(app, pool_size=1):
        await asyncio.gather(*(job.wait(timeout=20) for job in jobs))
    assert ran == list(range(100))


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_enqueue_many_with_one_wrong_item_creates_no_job(app: Rowlock) -> None:
    @app.task
    async def note(n: int) -> None: ...

    with pytest.raises(InvalidArguments, match=r"\b2\b"):  # says which
        await note.enqueue_many([{"n": 0}, {"n": 1}, {"n": "two"}, {"n": 3}])
    assert await count_jobs(app) == 0
    assert await note.enqueue_many([]) == []


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_delay_and_a_run_after_are_waited_for(app: Rowlock, app_url: str) -> None:
    ran: list[str] = []

    @app.task
    async def note(name: str) -> None:
        ran.append(name)

    async with frozen(app, app_url) as helper:
        start = helper.clock.now()
        await note.using(delay=60).enqueue(name="delay")
        await note.using(delay=timedelta(minutes=3)).enqueue(name="timedelta")
        await note.using(run_after=start + timedelta(minutes=2)).enqueue(name="run_after")
        await note.using(run_after=start - timedelta(minutes=2)).enqueue(name="past")
        await note.enqueue(name="now")
        await helper.drain()
        assert sorted(ran) == ["now", "past"]
        for name in ("delay", "run_after", "timedelta"):
            await helper.travel(seconds=59)
            await helper.drain()
            assert name not in ran, f"{name} ran too early"
            await helper.travel(seconds=1)
            await helper.drain()
            assert ran[-1] == name


BAD_OPTIONS = [
    ("delay", -1),
    ("delay", "soon"),
    ("delay", float("nan")),
    ("run_after", datetime(2026, 8, 1)),  # no zone
    ("run_after", datetime(1, 1, 1, tzinfo=UTC)),  # asyncpg would give it back without its zone
    ("expires_at", datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))),  # in UTC there is no such day
    ("expires_at", datetime(2026, 8, 1)),
    ("priority", 101),
    ("priority", 1.5),
    ("tags", "not a list"),
    ("tags", [1]),
    ("queue", ""),
    ("job_id", "not a uuid"),
    ("colour", "red"),
]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_bad_option_is_refused_and_named(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    for option, value in BAD_OPTIONS:
        with pytest.raises((InvalidArguments, TypeError), match=option):
            await note.using(**{option: value}).enqueue()
    assert await count_jobs(app) == 0


async def test_smaller_priorities_go_first_and_then_the_older(app: Rowlock) -> None:
    ran: list[str] = []

    @app.task
    async def note(name: str) -> None:
        ran.append(name)

    @app.task(priority=-10)
    async def urgent(name: str) -> None:
        ran.append(name)

    for name, priority in (("a", 0), ("b", 100), ("c", -100), ("d", 0), ("e", 5)):
        await note.using(priority=priority).enqueue(name=name)
    await urgent.enqueue(name="f")
    await urgent.using(priority=50).enqueue(name="g")
    async with working(app, pool_size=1):
        await asyncio.gather(*[(await app.job(str(r[0]))).wait(timeout=10) for r in await fetch(app, JOB_IDS)])
    assert ran == ["c", "f", "a", "d", "e", "g", "b"]


async def test_tags_owner_and_queue_are_stored(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    job = await note.using(tags=["red", "blå"], owner="ana", queue="links", priority=7).enqueue()
    row = await row_of(app, job.id)
    assert (row["tags"], row["owner"], row["queue"], row["priority"]) == (["red", "blå"], "ana", "links", 7)
    many = await note.using(tags=["x"], owner="bo").enqueue_many([{}, {}])
    assert {(tuple(row["tags"]), row["owner"]) for row in [await row_of(app, job.id) for job in many]} == {
        (("x",), "bo")
    }


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_using_leaves_the_task_itself_as_it_was(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    later = note.using(delay=3600, owner="ana")
    plain = await row_of(app, (await note.enqueue()).id)
    chosen = await row_of(app, (await later.enqueue()).id)
    again = await row_of(app, (await later.enqueue()).id)
    assert plain["owner"] is None
    assert (chosen["owner"], again["owner"]) == ("ana", "ana")
    assert chosen["run_after"] > chosen["created_at"] + timedelta(minutes=59)


async def test_a_job_that_did_not_start_in_time_is_cancelled_as_expired(app: Rowlock, app_url: str) -> None:
    ran: list[str] = []

    @app.task
    async def note(name: str) -> None:
        ran.append(name)

    async with frozen(app, app_url) as helper:
        now = helper.clock.now()
        in_time = await note.using(expires_at=now + timedelta(minutes=5)).enqueue(name="in time")
        late = await note.using(delay=300, expires_at=now + timedelta(minutes=10)).enqueue(name="late")
        await helper.drain()
        await helper.travel(minutes=11)
        await helper.drain()
        row = await row_of(app, late.id)
        assert (row["state"], row["error_code"], row["attempt"]) == ("cancelled", "EXPIRED", 0)
        with pytest.raises(JobCancelled):
            await late.wait(timeout=20)
        assert (await app.job(in_time.id)).state == "succeeded"
    assert ran == ["in time"]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_running_worker_expires_jobs_that_it_could_not_start(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    late = await note.using(expires_at=datetime.now(UTC) - timedelta(seconds=1)).enqueue()
    async with working(app):
        with pytest.raises(JobCancelled):
            await late.wait(timeout=15)
    assert (await row_of(app, late.id))["error_code"] == "EXPIRED"


async def test_a_chosen_id_makes_a_repeated_enqueue_harmless(app: Rowlock) -> None:
    ran: list[int] = []

    @app.task
    async def note(n: int) -> int:
        ran.append(n)
        return n

    chosen = "018f0000-0000-7000-8000-00000000abcd"
    first = await note.using(job_id=chosen).enqueue(n=1)
    again = await note.using(job_id=chosen).enqueue(n=2)
    assert (first.id, first.created) == (chosen, True)
    assert (again.id, again.created) == (chosen, False)
    assert (await row_of(app, chosen))["args"] == {"n": 1}, "the repetition changed the job"
    async with working(app):
        assert await again.wait(timeout=10) == 1
        finished = await note.using(job_id=chosen).enqueue(n=3)
        assert (finished.id, finished.created, finished.state) == (chosen, False, "succeeded")
        assert await finished.wait(timeout=10) == 1
    assert ran == [1]
    assert await count_jobs(app) == 1


async def test_a_chosen_id_outlives_the_job_row(app: Rowlock) -> None:
    """`job_keys` holds client-chosen ids, so they outlive pruning (DESIGN §4)."""

    @app.task
    async def note() -> None: ...

    chosen = str(uuid.uuid4())
    await note.using(job_id=chosen).enqueue()
    async with working(app):
        await (await app.job(chosen)).wait(timeout=10)
    await execute(app, "DELETE FROM {t}jobs_finished WHERE id = $1", chosen)
    again = await note.using(job_id=chosen).enqueue()
    assert again.created is False
    assert await count_jobs(app) == 0


async def test_the_same_id_from_many_callers_makes_one_job(app: Rowlock, app_url: str) -> None:
    def register(owner: Rowlock) -> Any:
        @owner.task("note")
        async def note(n: int) -> None: ...

        return note

    chosen = [str(uuid.uuid4()) for _ in range(5)]
    async with Rowlock(app_url) as other:
        tasks = [register(app), register(other)]
        calls = [tasks[n % 2].using(job_id=job_id).enqueue(n=n) for n in range(8) for job_id in chosen]
        made = await asyncio.gather(*calls)
    assert sorted(job.id for job in made if job.created) == sorted(chosen)
    assert await count_jobs(app) == len(chosen)


def test_sync_code_enqueues_without_a_running_loop(app_url: str) -> None:
    app = Rowlock(app_url)

    @app.task
    async def note(n: int) -> int:
        return n

    first = note.enqueue_sync(n=1)
    second = note.using(priority=3, owner="ana").enqueue_sync(n=2)
    assert (first.created, second.created) == (True, True)

    async def look() -> None:
        async with app:
            row = await row_of(app, second.id)
            assert (row["priority"], row["owner"], row["args"]) == (3, "ana", {"n": 2})
            async with working(app):
                assert await (await app.job(first.id)).wait(timeout=10) == 1

    asyncio.run(look())


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_sync_code_enqueues_under_a_running_loop_and_from_threads(app: Rowlock) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    here = note.enqueue_sync(n=1)
    from_thread = await asyncio.to_thread(note.enqueue_sync, n=2)
    async with working(app):
        assert await (await app.job(here.id)).wait(timeout=10) == 1
        assert await (await app.job(from_thread.id)).wait(timeout=10) == 2


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_thread_task_enqueues(app: Rowlock) -> None:
    threads: list[threading.Thread] = []

    @app.task
    async def child(n: int) -> int:
        return n + 1

    @app.task
    def parent(n: int) -> str:
        threads.append(threading.current_thread())
        return child.enqueue_sync(n=n).id

    async with working(app):
        made = await (await parent.enqueue(n=1)).wait(timeout=10)
        assert await (await app.job(made)).wait(timeout=10) == 2
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_enqueue_by_the_tasks_name_runs_that_task(app: Rowlock) -> None:
    @app.task("links.enrich")
    async def enrich(url: str) -> str:
        return url

    async with working(app):
        assert await (await app.enqueue("links.enrich", url="u")).wait(timeout=10) == "u"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_misspelt_name_is_refused_with_a_suggestion(app: Rowlock) -> None:
    @app.task("links.enrich")
    async def enrich(url: str) -> None: ...

    with pytest.raises(Exception, match=r"links\.enirch(.|\n)*links\.enrich"):
        await app.enqueue("links.enirch", url="u")
    assert await count_jobs(app) == 0


async def test_an_unknown_job_is_a_clear_error(app: Rowlock) -> None:
    unknown = str(uuid.uuid4())
    with pytest.raises(LookupError, match=unknown):
        await app.job(unknown)
    with pytest.raises((LookupError, InvalidArguments), match="nonsense"):
        await app.job("nonsense")
