"""The table `tasks`: what a worker writes about its tasks when it starts."""

from typing import Any

from rowlock import Rowlock
from rowlock.store.jobs import tasks
from rowlock.store.jobs.tasks import StoredTask
from support.rigs.app import app, rig
from support.rigs.rig import Rig

__all__ = ["app", "rig"]  # fixtures


async def test_a_worker_that_starts_writes_the_options_of_its_tasks(app: Rowlock, rig: Rig) -> None:
    @app.task(queue="money", max_attempts=1, on_lost="dead")
    async def pay() -> None: ...

    @app.task(source=lambda url: f"domain:{url}")
    async def fetch(url: str) -> None: ...

    async with app.worker():
        found = await rig.store.run(tasks.find("pay"))
        assert found is not None
        assert found[:3] == ("pay", {"queue": "money", "max_attempts": 1, "on_lost": "dead"}, False)
        assert found.arguments == {"additionalProperties": False, "properties": {}, "title": "pay", "type": "object"}
        found = await rig.store.run(tasks.find("fetch"))
        assert found is not None
        assert found[:3] == ("fetch", {}, True)
        assert await rig.store.run(tasks.find("other")) is None
        assert await rig.store.run(tasks.names()) == ["fetch", "pay"]


async def test_the_last_worker_that_started_counts_and_equal_rows_are_not_written(rig: Rig) -> None:
    async def times() -> dict[str, Any]:
        return dict(await rig.fetch("SELECT name, updated_at FROM {t}tasks"))

    await rig.store.run(tasks.declare([StoredTask("a", {"priority": 1}, False), StoredTask("b", {}, False)]))
    before = await times()
    rig.clock.move(5)
    await rig.store.run(tasks.declare([StoredTask("b", {}, False), StoredTask("a", {"priority": 2}, False)]))
    after = await times()
    assert after["b"] == before["b"]
    assert after["a"] != before["a"]
    found = await rig.store.run(tasks.find("a"))
    assert found is not None
    assert found.options == {"priority": 2}
    await rig.store.run(tasks.declare([StoredTask("a", {"priority": 2}, True)]))
    found = await rig.store.run(tasks.find("a"))
    assert found is not None
    assert found.source_derived


async def test_a_worker_starts_although_the_follow_ups_of_a_task_are_wrong(app: Rowlock, rig: Rig) -> None:
    @app.task(on_dead="again")
    async def again(finished: dict[str, Any]) -> None: ...

    @app.task
    async def fine() -> None: ...

    async with app.worker():
        assert await rig.store.run(tasks.names()) == ["fine"]
