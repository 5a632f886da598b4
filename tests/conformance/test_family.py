"""A job keeps the id of the job that made it, whoever writes its end, and each is found from the other."""

import json
from typing import Any

import pytest

from rowlock.core.job import NewJob
from rowlock.core.outcome import Failed, Succeeded
from rowlock.core.states import State
from rowlock.store import batches
from rowlock.store.engine.ids import new_id
from rowlock.store.jobs import cancel, enqueue, retry, settle
from rowlock.store.jobs.enqueue import NewRow
from rowlock.store.read import relatives, search
from rowlock.store.read.filter import JobFilter
from rowlock.store.read.relatives import Relative
from rowlock.store.read.search import Counted
from support.each import each
from support.rigs.app import sweep
from support.rigs.rig import Rig

AFTER = json.dumps({"task": "after"})  # a follow-up as a row carries it
DEAD = Failed("E", "no", permanent=True)


async def parent_of(rig: Rig, job_id: str) -> str | None:
    found = (await rig.store.run(relatives.of_job(job_id))).parent
    return None if found is None else found.id


@each("how", ["on_success", "on_dead"], afresh=True)
async def test_a_follow_up_is_a_child_of_the_job_that_ended(rig: Rig, how: str) -> None:
    job = await rig.running(**{how: AFTER})
    await rig.settle(job, Succeeded() if how == "on_success" else DEAD)
    (child,) = (await rig.store.run(relatives.of_job(job.id))).children
    state = "succeeded" if how == "on_success" else "dead"
    assert (child.task, child.state, child.parent_id) == ("after", "queued", job.id)
    assert (await rig.store.run(relatives.of_job(child.id))).parent == Relative(job.id, "t", state)


@each("made_by_a_job", [True, False], afresh=True)
async def test_the_job_of_a_batchs_end_is_found_from_the_batch(rig: Rig, made_by_a_job: bool) -> None:
    maker = await rig.enqueue() if made_by_a_job else None
    batch_id, member = new_id(), rig.new_id()
    await rig.store.run(batches.make(batch_id, "import", None, AFTER, maker))
    row = NewRow(member, "{}", None, None)
    await rig.store.run(enqueue.enqueue_rows([row], NewJob(task="member", batch_id=batch_id)))
    await rig.store.run(batches.seal(batch_id))
    (job,) = await rig.claim(1, task="member")
    await rig.settle(job, Succeeded())
    await sweep(rig)  # ends it, unless the function has done so
    batch = await rig.store.run(batches.get(batch_id))
    assert batch is not None
    assert batch.end_job is not None
    assert batch.parent_id == maker
    assert (await parent_of(rig, batch.end_job)) == maker
    nodes = await rig.store.run(relatives.of_batch(batch_id))
    assert nodes is not None
    assert ([node.id for node in nodes.members], nodes.children) == ([member], [])


@each("how", [Succeeded(), DEAD, "retry", "cancel"], afresh=True)
async def test_a_job_keeps_its_parent_wherever_its_row_goes(rig: Rig, how: Any) -> None:
    parent = await rig.enqueue("parent")
    job_id = await rig.enqueue(parent_id=parent)
    if how == "cancel":
        await rig.store.run(cancel.cancel([job_id], settle.Keep()))
    else:
        (job,) = await rig.claim(1)
        await rig.settle(job, DEAD if how == "retry" else how)
    if how == "retry":
        await rig.store.run(retry.retry([job_id], 1))
    (child,) = (await rig.store.run(relatives.of_job(parent))).children
    state = {"retry": "queued", "cancel": "cancelled"}.get(str(how)) or str(
        State.SUCCEEDED if isinstance(how, Succeeded) else State.DEAD
    )
    assert child == Relative(job_id, "t", state, parent)
    assert (await rig.store.run(relatives.of_job(job_id))).parent == Relative(parent, "parent", "queued")


async def test_a_parent_that_is_gone_is_named_by_its_id(rig: Rig) -> None:
    gone = new_id()
    job_id = await rig.enqueue(parent_id=gone)
    assert (await rig.store.run(relatives.of_job(job_id))).parent == Relative(gone, None, None)


async def test_the_first_children_are_listed_and_counted_up_to_a_bound(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await rig.enqueue("parent")
    ids = await rig.enqueue_many(60, parent_id=parent)
    for job in await rig.claim(30):
        await rig.settle(job, Succeeded())
    found = await rig.store.run(relatives.of_job(parent))
    assert [child.id for child in found.children] == ids[:50]
    assert found.number == Counted(60, True)
    monkeypatch.setattr(relatives, "MOST_COUNTED", 55)
    assert (await rig.store.run(relatives.of_job(parent))).number == Counted(55, False)
    page = await rig.store.run(search.page(JobFilter(parent=parent), 100))
    assert page.ids == ids[::-1]
    counts = await rig.store.run(search.count(JobFilter(parent=parent)))
    assert {state: one.count for state, one in counts.items() if one.count} == {"queued": 30, "succeeded": 30}
    assert await rig.store.run(relatives.of_job(ids[0])) == (Relative(parent, "parent", "queued"), [], Counted(0, True))


async def test_a_batch_with_too_many_jobs_has_no_picture(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_id = new_id()
    await rig.store.run(batches.make(batch_id, "import", None, None))
    members = [await rig.enqueue("member", batch_id=batch_id) for _ in range(3)]
    await rig.store.run(enqueue.enqueue([(new_id(), "{}")], NewJob(task="child", parent_id=members[0])))
    nodes = await rig.store.run(relatives.of_batch(batch_id))
    assert nodes is not None
    assert ([node.id for node in nodes.members], [node.parent_id for node in nodes.children]) == (members, members[:1])
    monkeypatch.setattr(relatives, "MOST_NODES", 4)  # the members fit, their children do not
    assert await rig.store.run(relatives.of_batch(batch_id)) is None
    monkeypatch.setattr(relatives, "MOST_NODES", 3)
    assert await rig.store.run(relatives.of_batch(batch_id)) is None
