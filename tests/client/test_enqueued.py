"""A process counts the jobs that it enqueues."""

from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.client.tasks.task import MOST_COUNTED, Enqueued


def counted(app: Rowlock) -> dict[tuple[str, str], int]:
    return dict(app.enqueued.samples()["rowlock_jobs_enqueued_total"])


async def test_every_way_to_enqueue_is_counted_and_a_job_that_was_there_already_is_not(app: Rowlock) -> None:
    @app.task
    async def plain() -> None: ...

    @app.task(queue="keyed")
    async def keyed(n: int) -> None: ...

    once = keyed.using(key=lambda n: str(n))
    await plain.enqueue()
    await plain.enqueue_many([{}, {}])
    await once.enqueue(n=1)
    await once.enqueue(n=1)
    await once.enqueue_many([{"n": 1}, {"n": 2}, {"n": 3}])
    assert counted(app) == {("default", "plain"): 3, ("keyed", "keyed"): 3}


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_enqueue_that_fails_is_not_counted(app: Rowlock, monkeypatch: Any) -> None:
    @app.task
    async def plain() -> None: ...

    async def broken(*args: Any) -> None:
        raise RuntimeError("no database")

    monkeypatch.setattr(app, "place", broken)
    for enqueue in (plain.enqueue(), plain.enqueue_many([{}])):
        with pytest.raises(RuntimeError, match="no database"):
            await enqueue
    assert counted(app) == {}


def test_many_tasks_share_one_count() -> None:
    enqueued = Enqueued()
    for number in range(MOST_COUNTED + 10):
        enqueued.add("default", f"task{number}", 2)
    enqueued.add("default", "task0", 1)
    found = dict(enqueued.samples()["rowlock_jobs_enqueued_total"])
    assert len(found) == MOST_COUNTED + 1
    assert found["default", "task0"] == 3
    assert found["other", "other"] == 20
