"""What claim promises: the best ready jobs of known tasks, each to one worker, under a whole lease."""

import asyncio
import json
import random
from collections import Counter
from datetime import timedelta

from rowlock.core.job import NewJob
from rowlock.core.outcome import Failed
from rowlock.core.policy import fixed
from rowlock.store import queues
from rowlock.store.jobs import claim, enqueue
from rowlock.store.jobs.claim import Range
from support.each import each
from support.rigs import contract
from support.rigs.rig import Rig, numbered, token


async def test_claims_go_by_priority_then_id(rig: Rig) -> None:
    wanted = [(priority, n) for n, priority in enumerate([5, -3, 0, 5, -100, 100, 0, -3])]
    for priority, n in reversed(wanted):
        await rig.store.run(enqueue.enqueue([(numbered(n), "{}")], NewJob(task="t", priority=priority)))
    claimed = []
    for size in (1, 3, 2, 10):
        claimed += [(job.priority, job.id) for job in await rig.claim(size)]
    assert claimed == sorted((priority, numbered(n)) for priority, n in wanted)


@each("n", [1, 3, 7], afresh=True)
async def test_a_claim_takes_no_more_than_n(rig: Rig, n: int) -> None:
    ids = await rig.enqueue_many(4, task="a") + await rig.enqueue_many(4, task="b")
    claimed = await rig.claim(n, Range("default", "a"), Range("default", "b"))
    assert [job.id for job in claimed] == ids[:n]
    assert sum(row["state"] == "running" for row in (await rig.rows()).values()) == n


@each("seed", range(3))
async def test_a_claim_keeps_the_order_whatever_part_of_each_lane_it_reads(rig: Rig, seed: int) -> None:
    """Whatever each lane's `take` is, a claim brings the front of the common line, and says when there is more."""
    draw = random.Random(seed)
    tasks, line = [f"task{n}" for n in range(7)], []
    for _ in range(25):
        task, priority, count = draw.choice(tasks[:5]), draw.choice([-1, 0, 0, 3]), draw.randint(1, 9)
        line += [(priority, job_id) for job_id in await rig.enqueue_many(count, task=task, priority=priority)]
    line.sort()
    while line:
        n = draw.choice([1, 4, 16, 40])
        lanes = [Range("default", task, most=draw.choice([1, 2, 5, 60])) for task in tasks]
        claimed = await rig.claim(n, *lanes)
        assert [(job.priority, job.id) for job in claimed] == line[: len(claimed)]
        gave = Counter(job.task for job in claimed)
        more = len(claimed) == n or any(gave[lane.task] >= lane.most for lane in lanes)
        assert more or len(claimed) == len(line), "it came back short, and there was more"
        assert claimed
        line = line[len(claimed) :]


async def test_a_claim_of_none_or_without_lanes_takes_nothing(rig: Rig) -> None:
    await rig.enqueue()
    before = await rig.everything()
    assert await rig.claim(0) == []
    assert await rig.store.run(claim.claim("w", token(), [], 10, 60)) == []
    assert await rig.everything() == before


async def test_a_claim_gives_a_whole_lease_by_the_stores_clock(rig: Rig) -> None:
    job_id = await rig.enqueue()
    now, mine = rig.clock.move(5), token()
    await rig.claim(worker="w-7", lease=42, under=mine)
    row = await rig.row(job_id)
    assert (
        row
        | {
            "state": "running",
            "attempt": 1,
            "lease_token": mine,
            "locked_by": "w-7",
            "locked_at": now,
            "heartbeat_at": now,
            "lease_expires_at": now + timedelta(seconds=42),
            "started_at": now,
            "updated_at": now,
            "created_at": now - timedelta(seconds=5),
        }
        == row
    )


async def test_every_claim_counts_one_attempt(rig: Rig) -> None:
    await contract.every_claim_counts_one_attempt(rig)


async def test_a_claim_tells_the_worker_all_it_needs(rig: Rig) -> None:
    follow_up = '{"task": "after"}'
    backoff = fixed(seconds=3).to_json()
    job = await rig.running(
        worker="w",
        task="x",
        queue="q",
        priority=2,
        args='{"a": 1}',
        owner="ana",
        source="s",
        max_attempts=3,
        backoff=backoff,
        timeout_seconds=9.5,
        on_success=follow_up,
        on_dead=follow_up,
        on_lost="dead",
    )
    assert (job.task, job.queue, job.priority, job.args) == ("x", "q", 2, '{"a": 1}')
    assert (job.owner, job.source, job.worker, job.token) == ("ana", "s", "w", (await rig.row(job.id))["lease_token"])
    assert (job.attempt, job.max_attempts, job.releases, job.losses, job.convictions) == (1, 3, 0, 0, 0)
    assert (json.loads(job.backoff or ""), job.timeout_seconds) == (json.loads(backoff), 9.5)
    assert (job.on_success, job.on_dead, job.on_lost) == (follow_up, follow_up, "dead")
    assert not job.cancel_requested


async def test_a_running_job_is_not_claimed_again_even_when_its_lease_ran_out(rig: Rig) -> None:
    job = await rig.running()
    rig.clock.move(10_000)
    await rig.promote()
    assert await rig.claim(10) == []
    assert (await rig.row(job.id))["lease_token"] == job.token


async def test_an_unknown_task_is_never_taken_and_never_in_the_way(rig: Rig) -> None:
    unknown = await rig.enqueue_many(300, task="unknown", priority=-100)
    known = await rig.enqueue_many(5, task="known", priority=50)
    assert [job.id for job in await rig.claim(5, Range("default", "known"))] == known
    rows = await rig.rows()
    assert {rows[job_id]["state"] for job_id in unknown} == {"queued"}


async def test_only_the_given_queues_are_served(rig: Rig) -> None:
    await rig.enqueue(queue="other")
    mine = await rig.enqueue(queue="mine")
    assert [job.id for job in await rig.claim(10, Range("mine", "t"))] == [mine]


async def test_lanes_are_merged_by_priority_and_id(rig: Rig) -> None:
    lanes = [Range(queue, task) for queue in ("q1", "q2") for task in ("a", "b")]
    wanted = []
    for n in range(24):
        lane, priority = lanes[n % 4], (n * 7) % 3
        wanted.append((priority, await rig.enqueue(task=lane.task, queue=lane.queue, priority=priority)))
    claimed = [(job.priority, job.id) for job in await rig.claim(10, *lanes) + await rig.claim(100, *lanes)]
    assert claimed == sorted(wanted)


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(rig: Rig) -> None:
    paused = await rig.enqueue(queue="paused", priority=-5)
    other = await rig.enqueue(queue="open")
    lanes = (Range("paused", "t"), Range("open", "t"))
    await rig.store.run(queues.pause("paused"))
    assert [job.id for job in await rig.claim(10, *lanes)] == [other]
    assert await rig.state(paused) == "queued"
    assert await rig.store.run(queues.resume("paused")) is True
    assert [job.id for job in await rig.claim(10, *lanes)] == [paused]


async def test_a_job_that_waits_for_its_time_is_not_claimed(rig: Rig) -> None:
    await rig.enqueue_many(50, delay=10, priority=-100)
    ready = await rig.enqueue(priority=100)
    assert [job.id for job in await rig.claim(1)] == [ready]
    assert await rig.claim(10) == []


async def test_a_job_is_not_started_at_or_after_its_latest_start(rig: Rig) -> None:
    now = rig.clock.now()
    before = await rig.enqueue(expires_at=now + timedelta(seconds=11), priority=3)
    at = await rig.enqueue(expires_at=now + timedelta(seconds=10), priority=1)
    after = await rig.enqueue(expires_at=now + timedelta(seconds=9), priority=2)
    rig.clock.move(10)
    assert [job.id for job in await rig.claim(10)] == [before]
    assert {await rig.state(at), await rig.state(after)} == {"queued"}


async def test_a_retryable_job_is_claimed_when_due_with_its_next_attempt(rig: Rig) -> None:
    job = await rig.running(backoff=fixed(seconds=100).to_json())
    await rig.settle(job, Failed("E", "no"), draw=0)
    rig.clock.move(99)
    await rig.promote()
    assert await rig.claim() == []
    rig.clock.move(1)
    await rig.promote()
    (again,) = await rig.claim()
    assert (again.id, again.attempt) == (job.id, 2)


async def test_a_lane_starts_above_its_low_water_mark(rig: Rig) -> None:
    ids = await rig.enqueue_many(3, priority=0) + await rig.enqueue_many(3, priority=1)
    lane = Range("default", "t", low_priority=0, low_id=ids[1])
    assert [job.id for job in await rig.claim(10, lane)] == ids[2:]
    assert [job.id for job in await rig.claim(10)] == ids[:2]


async def test_a_low_water_mark_hides_every_better_priority(rig: Rig) -> None:
    first, last = await rig.enqueue(priority=-1), await rig.enqueue(priority=7)
    assert [job.id for job in await rig.claim(10, Range("default", "t", 0, numbered(0)))] == [last]
    assert await rig.state(first) == "queued"


async def test_a_lane_ends_below_its_high_priority(rig: Rig) -> None:
    ids = [await rig.enqueue(priority=priority) for priority in (-1, 0, 4, 5, 6)]
    assert [job.id for job in await rig.claim(10, Range("default", "t", high_priority=5))] == ids[:3]


async def test_each_lane_has_its_own_low_water_mark(rig: Rig) -> None:
    a, b = await rig.enqueue_many(3, task="a"), await rig.enqueue_many(3, task="b")
    lanes = (Range("default", "a", 0, a[0]), Range("default", "b", 0, b[1]))
    assert [job.id for job in await rig.claim(10, *lanes)] == [a[1], a[2], b[2]]


async def test_a_claim_whose_reply_was_lost_is_adopted_by_its_token(rig: Rig) -> None:
    await rig.enqueue_many(5)
    mine = token()
    claimed = await rig.claim(3, worker="w", under=mine)
    await rig.claim(1, worker="w")
    assert await rig.store.run(claim.adopt("w", mine)) == claimed
    assert await rig.store.run(claim.adopt("w", token())) == []
    assert await rig.store.run(claim.adopt("somebody else", mine)) == []


async def test_concurrent_claims_give_each_job_to_one_worker(rig: Rig) -> None:
    ids = await rig.enqueue_many(100)
    taken: list[list[str]] = []

    async def work(name: str) -> None:
        while claimed := await rig.claim(7, worker=name):
            taken.append([job.id for job in claimed])

    await asyncio.gather(*(work(f"w{n}") for n in range(6)))
    rest = [job.id for job in await rig.claim(100)]  # rows another claim had locked are passed over, not lost
    assert sorted(sum(taken, rest)) == ids
    assert {row["attempt"] for row in (await rig.rows()).values()} == {1}
