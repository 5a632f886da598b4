"""Why a job is not running: every reason, and a place in line that the claims then keep to."""

import random
from datetime import timedelta

import pytest

from rowlock.core.outcome import Failed, Released, Succeeded
from rowlock.core.states import State
from rowlock.store import queues, workers
from rowlock.store.jobs import cancel, leases
from rowlock.store.jobs.claim import Range
from rowlock.store.read import search
from rowlock.store.read.counts import read_stats, unknown_tasks
from rowlock.store.read.explain import Explanation, explain
from rowlock.store.read.filter import JobFilter
from support.rigs.rig import KEEP, LEASE, Rig, numbered


async def register(
    rig: Rig, name: str = "w1", queues: tuple[str, ...] = ("default",), tasks: tuple[str, ...] = ("t",), slots: int = 10
) -> None:
    await rig.store.run(workers.register(name, "host", 1, "1.0", queues, tasks, slots, None, LEASE))


async def why(rig: Rig, job_id: str) -> Explanation:
    told = await rig.store.run(explain(job_id))
    assert told is not None
    assert told.job_id == job_id
    assert told.state == await rig.state(job_id)
    assert told.text.endswith(".")
    return told


async def test_explain_of_an_unknown_job_id_is_none(rig: Rig) -> None:
    for bad in ("nonsense", "", numbered(99)):
        assert await rig.store.run(explain(bad)) is None


async def test_explain_of_a_finished_job_has_its_state_and_error(rig: Rig) -> None:
    done, died, dropped = await rig.running(), await rig.running(), await rig.enqueue()
    await rig.settle(done, Succeeded("1"))
    await rig.settle(died, Failed("HTTP_403", "go away", permanent=True))
    await rig.cancel(dropped)
    told = await why(rig, done.id)
    assert (told.reason, told.state, told.error) == ("finished", State.SUCCEEDED, None)
    told = await why(rig, died.id)
    assert (told.reason, told.state, told.error) == ("finished", State.DEAD, "HTTP_403: go away")
    assert "HTTP_403: go away" in told.text
    told = await why(rig, dropped)
    assert (told.reason, told.state) == ("finished", State.CANCELLED)


async def test_explain_of_a_running_job_names_the_worker_and_its_lease(rig: Rig) -> None:
    since = rig.clock.now()
    job = await rig.running(worker="host-7", lease=60)
    rig.clock.move(30)
    await rig.store.run(leases.beat([(job.id, job.token)], 60))
    told = await why(rig, job.id)
    assert (told.reason, told.held_by, told.held_since) == ("running", "host-7", since)
    assert told.waits_until == since + timedelta(seconds=90)
    assert "host-7" in told.text
    assert "00:01:30" in told.text


async def test_explain_of_a_running_job_that_was_asked_to_stop_says_cancelling(rig: Rig) -> None:
    job = await rig.running(worker="host-7")
    await rig.cancel(job.id)
    told = await why(rig, job.id)
    assert (told.reason, told.held_by) == ("cancelling", "host-7")


async def test_explain_of_a_job_whose_lease_ran_out_says_lost_before_the_sweep(rig: Rig) -> None:
    job = await rig.running(worker="host-7", lease=60)
    rig.clock.move(61)
    told = await why(rig, job.id)
    assert (told.reason, told.held_by) == ("lost", "host-7")


async def test_a_job_of_the_future_waits_for_its_time(rig: Rig) -> None:
    await register(rig)
    job_id = await rig.enqueue(delay=3600)
    told = await why(rig, job_id)
    assert (told.reason, told.also, told.waits_until) == ("time", (), rig.clock.now() + timedelta(hours=1))
    assert "01:00:00 UTC" in told.text
    rig.clock.move(3600)
    await register(rig)
    assert (await why(rig, job_id)).reason == "next", "due, though nobody has promoted it yet"


async def test_a_retry_says_what_went_wrong_and_when_it_is_tried_again(rig: Rig) -> None:
    await register(rig)
    job = await rig.running()
    await rig.settle(job, Failed("E", "broken", after=120))
    told = await why(rig, job.id)
    assert (told.reason, told.state, told.error) == ("time", State.RETRYABLE, "E: broken")
    assert told.waits_until == (await rig.row(job.id))["run_after"] > rig.clock.now()
    assert "E: broken" in told.text


async def test_a_snoozed_job_waits_for_its_time(rig: Rig) -> None:
    await register(rig)
    job = await rig.running()
    await rig.settle(job, Released(45))
    told = await why(rig, job.id)
    assert (told.reason, told.waits_until) == ("time", rig.clock.now() + timedelta(seconds=45))


async def test_explain_of_a_job_in_a_paused_queue_says_paused(rig: Rig) -> None:
    await register(rig)
    job_id = await rig.enqueue()
    await rig.store.run(queues.pause("default"))
    told = await why(rig, job_id)
    assert (told.reason, told.also) == ("paused", ())
    await rig.store.run(queues.resume("default"))
    assert (await why(rig, job_id)).reason == "next"


async def test_explain_says_unserved_while_no_live_worker_serves_the_queue(rig: Rig) -> None:
    await register(rig, queues=("other",))
    job_id = await rig.enqueue()
    assert (await why(rig, job_id)).reason == "unserved"
    await register(rig, "w2")
    assert (await why(rig, job_id)).reason == "next"
    rig.clock.move(LEASE + 1)
    assert (await why(rig, job_id)).reason == "unserved", "a silent worker serves nothing"


async def test_explain_says_unknown_while_no_live_worker_of_the_queue_knows_the_task(rig: Rig) -> None:
    await register(rig, tasks=("u",))
    await register(rig, "w2", queues=("other",), tasks=("t",))
    job_id = await rig.enqueue()
    told = await why(rig, job_id)
    assert told.reason == "unknown"
    assert "'t'" in told.text


async def test_explain_of_a_job_past_its_expires_at_says_expired(rig: Rig) -> None:
    await register(rig)
    job_id = await rig.enqueue(expires_at=rig.clock.now() + timedelta(seconds=10))
    assert (await why(rig, job_id)).reason == "next"
    rig.clock.move(10)
    assert (await why(rig, job_id)).reason == "expired"
    assert await rig.claim() == []


async def test_the_nearest_reason_comes_first_and_the_others_are_named(rig: Rig) -> None:
    job_id = await rig.enqueue(delay=60)
    await rig.store.run(queues.pause("default"))
    told = await why(rig, job_id)
    assert (told.reason, told.also) == ("time", ("paused", "unserved"))


async def test_explain_of_the_first_job_in_line_says_next_and_counts_the_slots(rig: Rig) -> None:
    await register(rig, slots=10)
    await register(rig, "w2", slots=4)
    await register(rig, "w3", tasks=("u",), slots=7)
    told = await why(rig, await rig.enqueue())
    assert (told.reason, told.place, told.place_exact) == ("next", 0, True)
    assert "14 slots" in told.text
    assert "2 live workers" in told.text


async def test_the_place_in_line_is_the_order_of_the_claims(rig: Rig) -> None:
    await register(rig, tasks=("t", "u", "v"))
    await register(rig, "w2", tasks=("v",))
    await register(rig, "w3", tasks=("unknown",))
    draw = random.Random(7)
    for _ in range(30):
        await rig.enqueue(task=draw.choice("tuv"), priority=draw.choice([-5, 0, 5]))
    await rig.enqueue_many(3, task="unknown", priority=-100)  # to the workers of the others
    await rig.enqueue_many(3, queue="other", priority=-100)
    await rig.enqueue_many(3, delay=60, priority=-100)
    await rig.enqueue(priority=-100, expires_at=rig.clock.now())
    ready = [job for job in await rig.store.run(search.list_jobs(JobFilter(queue="default"), 100))]
    places = {}
    for job in ready:
        told = await why(rig, job.id)
        if job.task != "unknown" and told.place is not None:
            places[told.place] = job.id
    assert sorted(places) == list(range(30))
    claimed = [job.id for job in await rig.claim(100, *(Range("default", task) for task in "tuv"))]
    assert [places[n] for n in range(30)] == claimed


async def test_places_are_exact_to_a_thousand(rig: Rig) -> None:
    await register(rig, tasks=("t", "u"))
    ids = await rig.enqueue_many(600) + await rig.enqueue_many(402, task="u")
    told = [await why(rig, ids[n]) for n in (1, 1_000, 1_001)]
    assert [(one.reason, one.place, one.place_exact) for one in told] == [
        ("line", 1, True),
        ("line", 1_000, True),
        ("line", 1_000, False),
    ]
    assert told[0].text.startswith("1 ready job comes first")
    assert told[1].text.startswith("1,000 ready jobs come first")
    assert told[2].text.startswith("1,000+ ready jobs come first")


async def test_the_line_is_that_of_all_queues_that_its_workers_serve(rig: Rig) -> None:
    await register(rig, queues=("default", "other", "paused"))
    await rig.enqueue_many(50, queue="other", priority=-10)
    await rig.enqueue_many(9, queue="paused", priority=-10)
    await rig.store.run(queues.pause("paused"))
    told = await why(rig, await rig.enqueue())
    assert (told.reason, told.place, told.place_exact) == ("line", 50, True)


async def test_jobs_of_sources_make_the_place_of_one_without_inexact(rig: Rig) -> None:
    await register(rig, queues=("default", "other"))
    job_id = await rig.enqueue()
    await rig.enqueue_many(5, source="api:s")
    told = await why(rig, job_id)
    assert (told.reason, told.place, told.place_exact) == ("line", 0, False)
    assert told.text.startswith("Others of its priority take turns with it in line for 10 slots")
    await rig.enqueue_many(5, source="api:s", priority=-10, queue="other")
    later = await rig.enqueue()
    told = await why(rig, later)
    assert (told.reason, told.place, told.place_exact) == ("line", 6, False)
    assert told.text.startswith("Up to 6 ready jobs come first, and others take turns with it, in line for 10 slots")


async def test_explaining_changes_nothing(rig: Rig) -> None:
    await register(rig)
    ids = [await rig.enqueue(), await rig.enqueue(delay=60), (await rig.running(queue="other")).id]
    before = await rig.everything()
    for job_id in ids:
        await rig.store.run(explain(job_id))
    await rig.store.run(unknown_tasks())
    await rig.store.run(read_stats())
    assert await rig.everything() == before


async def test_waiting_jobs_that_no_live_worker_can_take_are_found(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await register(rig, tasks=("t",))
    await register(rig, "w2", queues=("links",), tasks=("u",))
    await rig.enqueue_many(3)
    await rig.enqueue_many(2, task="u", priority=3)
    await rig.enqueue_many(2, task="u", priority=-3)
    await rig.enqueue(task="u", queue="links")
    await rig.enqueue(task="later", delay=60)
    failed = await rig.running(task="gone")
    await rig.settle(failed, Failed("E", "x"))
    await rig.running(task="now")
    await rig.store.run(cancel.cancel([await rig.enqueue(task="cancelled")], KEEP))
    assert list(await rig.store.run(unknown_tasks())) == [
        ("default", "gone", 1),
        ("default", "later", 1),
        ("default", "u", 4),
    ]
    monkeypatch.setattr("rowlock.store.read.counts.COUNT_LIMIT", 3)
    assert ("default", "u", 3) in await rig.store.run(unknown_tasks())
    rig.clock.move(LEASE + 1)
    assert [row[:2] for row in await rig.store.run(unknown_tasks())] == [
        ("default", "gone"),
        ("default", "later"),
        ("default", "t"),
        ("default", "u"),
        ("links", "u"),
    ]
