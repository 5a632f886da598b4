"""The database as a job in a child process uses it, and the outcome that the worker writes."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from rowlock.core.outcome import Cancelled, Succeeded
from rowlock.core.states import State
from rowlock.store.read import job_logs, relatives
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.reports import JobLines
from rowlock.worker.processes.children import Children
from support.rigs.worker import ExecutorRig
from support.tasks import processes as tasks
from support.tasks.child_runs import failed
from support.tasks.processes import app, claim, claimed, read_pids, until_gone

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_transaction_in_the_child_commits_with_the_success(rig: ExecutorRig) -> None:
    job = await tasks.in_transaction.enqueue()
    running = await claim("in_transaction")
    assert await rig.execute(running) is None
    assert rig.settled[-1] is running
    row = await app.job(job.id)
    assert (row.state, row.result) == (State.SUCCEEDED, "kept")
    assert await rows_of(job.id) == 1


async def test_a_failure_after_the_transaction_block_undoes_it(children: Children) -> None:
    job = await tasks.in_transaction.enqueue(fail=True)
    running = await claim("in_transaction")
    failed(await children.run(running, tasks.in_transaction, lambda *_: None), "ValueError")
    with closing(apsw.Connection(app.settings.database.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN IMMEDIATE")  # fails if the child still held the lock
    assert (await app.job(job.id)).state == State.RUNNING
    assert await rows_of(job.id) == 0


async def test_a_transaction_under_a_lost_lease_is_undone(rig: ExecutorRig) -> None:
    job = await tasks.in_transaction.enqueue()
    running = await claim("in_transaction")
    stale = LiveAttempt(running.job._replace(token="00000000-0000-4000-8000-000000000000"))
    assert await rig.execute(stale) is None
    assert (rig.settled[-1], stale.reason) == (stale, "lost")
    assert await rows_of(job.id) == 0


async def test_a_job_can_enqueue_another_from_the_child(children: Children) -> None:
    job = await tasks.enqueues.enqueue()
    end = await children.run(await claim("enqueues"), tasks.enqueues, lambda *_: None)
    assert isinstance(end, Succeeded)
    made = json.loads(end.result or "")
    assert (await app.job(made)).state == State.QUEUED
    parent = (await (await app.store()).run(relatives.of_job(made))).parent
    assert parent is not None
    assert parent.id == job.id


@pytest.mark.usefixtures("children")  # they choose the database
async def test_log_lines_of_a_child_are_kept_with_the_job_that_wrote_them() -> None:
    store = await app.store()
    lines = JobLines(store)
    children = Children(app, 1, lines.keeper)
    try:
        written = []
        for last in ("short", "x" * 5000):
            job = await tasks.keeps_lines.enqueue(last=last)
            assert isinstance(
                await children.run(await claim("keeps_lines"), tasks.keeps_lines, lambda *_: None), Succeeded
            )
            await lines.flush()
            written.append((job.id, last))
    finally:
        await children.close()
    for job_id, last in written:
        kept = (await store.run(job_logs.read(job_id))).items
        assert [(line.level, line.attempt) for line in kept] == [("WARNING", 1), ("INFO", 1)]
        assert kept[0].message == f"{job_id} comes first"
        assert kept[1].message[:5] == last[:5]
        assert len(kept[1].message) <= 2_100


async def rows_of(job_id: str) -> int:
    async with app.transaction() as tx:
        await tx.execute("CREATE TABLE IF NOT EXISTS done (job TEXT)")
        return len(await tx.fetch("SELECT 1 FROM done WHERE job = $1", job_id))


async def test_an_attempt_that_is_cancelled_is_classified_by_its_reason(rig: ExecutorRig, tmp_path: Path) -> None:
    running = claimed("hangs", json.dumps({"file": str(tmp_path / "pids")}))
    attempt = rig.start(running)
    pids = await asyncio.to_thread(read_pids, tmp_path / "pids")
    running.stop("cancel")
    assert await attempt == Cancelled()
    await until_gone(pids)
