"""What readers are promised: one job, lists, ids and counts under any filter, and how everything stands."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Job
from rowlock.core.outcome import Failed, Released, Succeeded
from rowlock.core.policy import fixed
from rowlock.core.states import State
from rowlock.store import queues, workers
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.statements import bind, compile_query, load
from rowlock.store.read import job_rows, search
from rowlock.store.read.counts import read_stats
from rowlock.store.read.filter import LAST_ID, JobFilter, params
from support.each import each
from support.rigs.rig import COLUMNS, Rig, numbered, settlement

RESULTS = ["1", "0", '"text"', '"1"', "null", "false", "[]", '{"a": [1, {"b": null}]}']
HOSTILE = ["' OR '1'='1", '"', "%", "_", "\\", "'; DELETE FROM rowlock_jobs_live; --", "", "ana ", "ANA", "日本"]

FILL = """
INSERT INTO {t}jobs_finished (
    id, task, queue, state, priority, args, owner, attempt, max_attempts, releases, losses, convictions,
    run_after, created_at, started_at, finished_at, updated_at, drop_on)
SELECT made.id, 't', 'default', made.state, 0, '{}', made.owner, 1, 5, 0, 0, 0, {now}, {now}, {now}, {now}, {now},
       {drop_on(86400)}
FROM {rows:made(id uuid, state text, owner text)}
"""


@operation()
def fill(rows: list[tuple[str, str, str | None]]) -> Steps[None]:
    """Put finished jobs (id, state, owner) there as they are."""
    for n in range(0, len(rows), 10_000):
        yield Call("fill", made=rows[n : n + 10_000])


@pytest.fixture
def filling(rig: Rig) -> Iterator[Rig]:
    queries = load(rig.store.engine)
    queries["fill"] = compile_query("fill", FILL, rig.store.dialect)
    yield rig
    del queries["fill"]


async def everything(rig: Rig) -> list[Job]:
    found = [await rig.store.run(job_rows.get(job_id)) for job_id in await rig.rows()]
    return [job for job in found if job is not None]


async def zoo(rig: Rig) -> None:
    """Jobs in all states, of three owners and none, in two queues, over five minutes."""
    ends = [Succeeded("1"), Failed("E", "x"), Failed("E", "x", permanent=True), Released(0)]
    groups = itertools.product([None, "ana", "bo", "Ana"], [("default", None), ("links", "a"), ("links", "b")])
    for n, (owner, (queue, source)) in enumerate(groups):
        tags = [(), ("red",), ("red", "blue"), ('a"b',), ()][n % 5]
        options: dict[str, Any] = {"task": "tu"[n % 2], "owner": owner, "queue": queue, "source": source, "tags": tags}
        await rig.enqueue_many(7, **options)
        taken = await rig.claim(5, task=options["task"], queue=queue)
        await rig.settle_all([settlement(job, end) for job, end in zip(taken, ends, strict=False)])
        (cancelled, *_) = await rig.enqueue_many(2, delay=3600, **options)
        await rig.cancel(cancelled)
        rig.clock.move(25)


def fits(job: Job, wanted: JobFilter) -> bool:
    """The meaning of a filter, once more."""
    return (
        (not wanted.states or job.state in wanted.states)
        and wanted.task in (None, job.task)
        and wanted.queue in (None, job.queue)
        and wanted.owner in (None, job.owner)
        and wanted.source in (None, job.source)
        and (wanted.tag is None or wanted.tag in job.tags)
        and (wanted.since is None or job.created_at >= wanted.since)
        and (wanted.until is None or job.created_at < wanted.until)
    )


@each("state", ["live", "finished"], afresh=True)
async def test_a_job_is_read_whole(rig: Rig, state: str) -> None:
    job = await rig.running(
        args='{"url": "https://example.com/ü", "n": [1, null]}',
        tags=("red", 'a"b'),
        owner="ana",
        source="domain:a",
        priority=-3,
        backoff=fixed(minutes=5).to_json(),
        timeout_seconds=1.5,
        expires_at=rig.clock.now() + timedelta(days=1),
    )
    rig.clock.move(3)
    if state == "finished":
        await rig.settle(job, Succeeded('{"title": "…"}'))
    read = await rig.store.run(job_rows.get(job.id))
    row = await rig.row(job.id)
    assert read is not None
    assert {name: getattr(read, name) for name in COLUMNS} == row | {"tags": tuple(row["tags"])}
    assert (read.args["n"], read.tags, read.backoff["base"]) == ([1, None], ("red", 'a"b'), 300)
    assert read.state is State(row["state"])
    assert read.run_after.utcoffset() == timedelta(0)


async def test_a_result_comes_back_as_it_was_given(rig: Rig) -> None:
    for result in RESULTS:
        job = await rig.running()
        await rig.settle(job, Succeeded(result))
        read = await rig.store.run(job_rows.get(job.id))
        assert read is not None
        assert (read.result, type(read.result)) == (json.loads(result), type(json.loads(result)))


async def test_a_text_that_is_no_job_id_finds_no_job_and_raises_nothing(rig: Rig) -> None:
    await rig.enqueue()
    for bad in ("", "nonsense", "7", "' OR 1=1", "0" * 31, numbered(99) + "0", "\x00", numbered(99)):
        assert await rig.store.run(job_rows.get(bad)) is None
        assert await rig.store.run(job_rows.attempts(bad)) == []


async def test_an_id_is_known_in_any_spelling(rig: Rig) -> None:
    job_id = await rig.enqueue()
    for spelling in (job_id.upper(), "{" + job_id + "}", job_id.replace("-", "")):
        read = await rig.store.run(job_rows.get(spelling))
        assert read is not None
        assert read.id == job_id


async def test_attempts_are_told_in_order(rig: Rig) -> None:
    job_id = await rig.enqueue(max_attempts=9)
    ends = [Failed("E1", "one", after=0), Released(0), Failed("E3", "three", after=0)]
    for n, end in enumerate(ends):
        (job,) = await rig.claim(worker=f"w{n}")
        rig.clock.move(2)
        await rig.settle(job, end)
        await rig.promote()
    told = await rig.store.run(job_rows.attempts(job_id))
    assert [(a.attempt, a.outcome, a.worker, a.error_code, a.error_message) for a in told] == [
        (1, "failed", "w0", "E1", "one"),
        (2, "released", "w1", told[1].error_code, told[1].error_message),
        (3, "failed", "w2", "E3", "three"),
    ]
    assert [a.finished_at - (a.started_at or a.finished_at) for a in told] == [timedelta(seconds=2)] * 3


async def test_lists_ids_and_counts_mean_the_same_filter(rig: Rig) -> None:
    start = rig.clock.now()
    await zoo(rig)
    jobs = await everything(rig)
    assert {job.state for job in jobs} == set(State)
    few = [(), *[(state,) for state in State], (State.DEAD, State.CANCELLED), (State.RUNNING, State.SUCCEEDED)]
    others: list[dict[str, Any]] = [
        {},
        {"task": "u"},
        {"queue": "links", "source": "a"},
        {"tag": "red"},
        {"tag": 'a"b', "queue": "default"},
        {"since": start + timedelta(seconds=50), "until": start + timedelta(seconds=200)},
    ]
    for states, owner, other in itertools.product(few, [None, "ana", "Ana", "nobody"], others):
        wanted = JobFilter(states=tuple(states), owner=owner, **other)
        right = [job for job in reversed(jobs) if fits(job, wanted)]
        assert await rig.store.run(search.list_jobs(wanted, 1_000)) == right, wanted
        assert await rig.store.run(search.page(wanted, 1_000)) == ([job.id for job in right], None), wanted
        assert await counted(rig, wanted) == len(right), wanted


@pytest.fixture
async def animals(rig: Rig) -> list[Job]:
    """All jobs of a zoo."""
    await zoo(rig)
    return await everything(rig)


@each(
    "wanted",
    [
        JobFilter(),
        JobFilter(states=(State.QUEUED, State.DEAD, State.SUCCEEDED)),
        JobFilter(owner="ana"),
        JobFilter(owner="ana", states=(State.DEAD, State.CANCELLED)),
    ],
)
async def test_pages_show_every_job_once(rig: Rig, animals: list[Job], wanted: JobFilter) -> None:
    right = [job.id for job in animals if fits(job, wanted)]
    assert len(right) > 5
    pages: list[str] = []
    while page := await rig.store.run(search.list_jobs(wanted, 5, pages[-1] if pages else None)):
        assert len(page) <= 5
        pages += [job.id for job in page]
    assert pages == right[::-1]


async def counted(rig: Rig, wanted: JobFilter) -> int:
    found = await rig.store.run(search.count(wanted))
    assert all(one.exact for one in found.values())
    return sum(one.count for one in found.values())


async def test_a_list_is_full_however_many_looks_that_takes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await zoo(rig)
    jobs = await everything(rig)
    monkeypatch.setattr(search, "FIRST_LOOK", 1)
    monkeypatch.setattr(search, "LOOK", 2)
    for wanted in (JobFilter(), JobFilter(task="u"), JobFilter(owner="ana", task="u"), JobFilter(states=(State.DEAD,))):
        right = [job.id for job in reversed(jobs) if fits(job, wanted)]
        assert len(right) > 1
        for limit in (1, len(right) - 1, len(right), len(right) + 1):
            assert await rig.store.run(search.newest_ids(wanted, limit)) == right[:limit], (wanted, limit)
        assert await rig.store.run(search.newest_ids(wanted, 1_000, right[0])) == right[1:]


async def test_a_filters_values_are_values_and_nothing_else(rig: Rig) -> None:
    await zoo(rig)
    before = await rig.everything()
    for text, name in itertools.product(HOSTILE, ("task", "queue", "owner", "source", "tag")):
        wanted = replace(JobFilter(), **{name: text})
        assert await rig.store.run(search.list_jobs(wanted, 10)) == [], text
        assert await rig.store.run(search.page(replace(wanted, states=(State.DEAD,)), 10)) == ([], None), text
        assert await counted(rig, wanted) == 0, text
    assert await rig.everything() == before


async def test_a_count_is_exact_below_its_limit(rig: Rig) -> None:
    ids = await rig.enqueue_many(30, owner="ana")
    await rig.cancel(*ids[:20])
    for wanted in (JobFilter(), JobFilter(owner="ana"), JobFilter(states=tuple(State))):
        for limit in (1, 15, 20, 21):
            found = await rig.store.run(search.count(wanted, limit))
            assert found[State.CANCELLED] == search.Counted(min(20, limit), limit > 20)
            assert found[State.QUEUED] == search.Counted(min(10, limit), limit > 10)
    assert await rig.store.run(search.list_jobs(JobFilter(), 0)) == []


async def test_a_filter_without_a_time_zone_and_a_bad_cursor_are_refused(rig: Rig) -> None:
    with pytest.raises(InvalidArguments, match="time zone"):
        JobFilter(since=datetime(2026, 1, 1))
    with pytest.raises(InvalidArguments, match="not a job id"):
        await rig.store.run(search.list_jobs(JobFilter(), 5, "nonsense"))


# --- plans


async def plan(rig: Rig, statement: str, wanted: JobFilter) -> str:
    query = load(rig.store.engine)[statement]
    given = {"id": LAST_ID, "low": numbered(0), "n": 50, "skip": 999, "trouble": "dead", **params(wanted)}
    async with rig.store.transaction() as tx:
        words = {"postgres": "EXPLAIN", "sqlite": "EXPLAIN QUERY PLAN"}[rig.store.engine]
        return "\n".join(str(row[-1]) for row in await tx.fetch(f"{words} {query.sql}", *bind(query, given, None)))


async def test_lists_walk_an_index_past_50_000_finished_jobs(filling: Rig) -> None:
    """With statistics, and without."""
    rig, states = filling, ["succeeded"] * 18 + ["dead", "cancelled"]
    rows = [(numbered(n), states[n % 20], f"owner{n % 50}" if n % 3 else None) for n in range(50_000)]
    await rig.store.run(fill(rows))
    dead, ana = JobFilter(states=(State.DEAD,)), JobFilter(owner="owner7")
    indexes = {  # by the name in SQLite, and in PostgreSQL's default partition
        ("finished", JobFilter()): ("sqlite_autoindex_rowlock_jobs_finished_1", "jobs_finished_default_pkey"),
        ("finished_trouble", dead): ("rowlock_jobs_finished_trouble", "jobs_finished_default_state_id_idx"),
        ("finished_owner", ana): ("rowlock_jobs_finished_owner", "jobs_finished_default_owner_id_idx"),
        ("finished_owner_trouble", replace(dead, owner="owner7")): (
            "rowlock_jobs_finished_owner_trouble",
            "jobs_finished_default_owner_state_id_idx",
        ),
    }
    statements = [
        (statement, wanted, names)
        for (index, wanted), names in indexes.items()
        for statement in (f"edge_{index}", f"look_{index}")
    ]
    statements.append(("look_owner", ana, indexes["finished_owner", ana]))
    for analysed in (False, True):
        if analysed:
            await rig.fetch("ANALYZE")
        for statement, wanted, names in statements:
            text = await plan(rig, statement, wanted)
            assert any(f"{name} " in text for name in names), (statement, analysed, text)
            assert "Seq Scan on jobs_finished" not in text, (statement, analysed, text)
            assert "SCAN j\n" not in text, (statement, analysed, text)
    newest = [job_id for job_id, *_ in reversed(rows)]
    assert [job.id for job in await rig.store.run(search.list_jobs(JobFilter(), 50))] == newest[:50]
    assert (await rig.store.run(search.count(JobFilter())))[State.SUCCEEDED].count == 10_000
    assert await rig.store.run(search.count(dead)) == {State.DEAD: search.Counted(2_500, True)}


# --- numbers


async def register(
    rig: Rig, name: str, queues: list[str], tasks: list[str], slots: int = 10, lease: float = 60
) -> None:
    await rig.store.run(workers.register(name, "host", 1, "1.0", queues, tasks, slots, None, lease))


async def test_stats_count_each_queue_by_state(rig: Rig) -> None:
    await rig.enqueue_many(3)
    await rig.enqueue_many(2, task="u", delay=60)
    await rig.enqueue_many(4, queue="links", priority=5)
    failed = await rig.running(task="v")
    await rig.settle(failed, Failed("E", "x", after=300))
    back = await rig.running(task="v", queue="links")
    await rig.settle(back, Failed("E", "x", after=0))
    await rig.running(task="w")
    await rig.store.run(queues.pause("idle"))
    stats = await rig.store.run(read_stats())
    assert stats.exact
    assert {q.name: (q.queued, q.retryable, q.running, q.waiting, q.paused) for q in stats.queues} == {
        "default": (5, 1, 1, 3, False),
        "idle": (0, 0, 0, 0, True),
        "links": (4, 1, 0, 0, False),
    }


async def test_stats_tell_the_longest_wait_also_of_the_starved(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.store.read.counts.LOOKS", 200)
    await rig.enqueue(priority=50)
    rig.clock.move(100)
    await rig.enqueue_many(150, priority=-50)  # more than are looked at one by one
    await rig.enqueue(queue="later", delay=30)
    rig.clock.move(20)
    ages = {q.name: q.oldest_ready_seconds for q in (await rig.store.run(read_stats())).queues}
    assert ages == {"default": pytest.approx(120), "later": None}
    rig.clock.move(15)
    await rig.promote()
    ages = {q.name: q.oldest_ready_seconds for q in (await rig.store.run(read_stats())).queues}
    assert ages == {"default": pytest.approx(135), "later": pytest.approx(5)}, "a delayed job waits from its time on"


async def test_stats_of_a_long_line_say_that_they_are_not_exact(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.store.read.counts.LOOKS", 400)
    await rig.enqueue_many(150)
    stats = await rig.store.run(read_stats())
    assert (stats.exact, stats.queues[0].queued) == (True, 150)
    await rig.enqueue_many(60)
    stats = await rig.store.run(read_stats())
    assert (stats.exact, stats.queues[0].queued) == (False, 210)
    await rig.cancel(*await rig.store.run(search.newest_ids(JobFilter(), 210)))
    await rig.enqueue_many(401, delay=60)
    stats = await rig.store.run(read_stats())
    assert (stats.exact, stats.queues[0].waiting) == (False, 400)


async def test_stats_tell_what_finished_lately_and_how_long_it_ran(rig: Rig) -> None:
    old = await rig.running()
    await rig.succeed(old)
    rig.clock.move(400)
    first, second, third = [await rig.running() for _ in range(3)]
    rig.clock.move(10)
    await rig.succeed(first)
    rig.clock.move(20)
    await rig.succeed(second)
    await rig.settle(third, Failed("E", "x", permanent=True))
    await rig.cancel(await rig.enqueue())
    stats = await rig.store.run(read_stats())
    assert {state: (f.count, f.mean_run_seconds) for state, f in stats.finished.items()} == {
        State.SUCCEEDED: (2, pytest.approx(20)),
        State.DEAD: (1, pytest.approx(30)),
        State.CANCELLED: (1, None),
    }
    assert stats.finished_exact
    rig.clock.move(301)
    assert (await rig.store.run(read_stats())).finished == {}


async def test_stats_tell_the_run_time_of_each_task_apart(rig: Rig) -> None:
    draw, refund = await rig.running(task="draw"), await rig.running(task="refund")
    rig.clock.move(1)
    await rig.succeed(refund)
    rig.clock.move(49)
    await rig.succeed(draw)
    stats = await rig.store.run(read_stats())
    assert stats.finished[State.SUCCEEDED].mean_run_seconds == pytest.approx(25.5)
    assert {task: found[State.SUCCEEDED].mean_run_seconds for task, found in stats.finished_tasks.items()} == {
        "draw": pytest.approx(50), "refund": pytest.approx(1)
    }  # fmt: skip


async def test_stats_count_living_workers_and_their_slots(rig: Rig) -> None:
    await register(rig, "a", ["default"], ["t"], slots=10)
    await register(rig, "b", ["default", "links"], ["t"], slots=4, lease=200)
    stats = await rig.store.run(read_stats())
    assert (stats.workers, stats.slots, [q.name for q in stats.queues]) == (2, 14, ["default", "links"])
    rig.clock.move(61)
    stats = await rig.store.run(read_stats())
    assert (stats.workers, stats.slots) == (1, 4)
