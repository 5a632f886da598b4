"""Jobs and batches that a handler makes are children of its job, whichever way it makes them."""

import asyncio
from pathlib import Path
from typing import Any

from rowlock import Context, Rowlock
from rowlock.store import batches
from rowlock.store.read import relatives
from support.rigs.worker import on_one_engine
from support.tasks.contract import working


async def children_of(app: Rowlock, job_id: str) -> list[str]:
    found = await (await app.store()).run(relatives.of_job(job_id))
    return [f"{child.task} {'(child)' if child.parent_id == job_id else child.parent_id}" for child in found.children]


async def test_every_way_of_enqueueing_in_a_handler_makes_children(app: Rowlock) -> None:
    @app.task("child")
    async def child(n: int = 0) -> None: ...

    @app.task
    async def by_context(ctx: Context) -> None:
        await ctx.enqueue("child")
        async with ctx.transaction():
            await ctx.enqueue(child)

    @app.task
    async def plainly() -> None:  # without a context
        await child.enqueue()
        await child.enqueue_many([{"n": 1}, {"n": 2}])
        await child.using(key="k").enqueue()

    @app.task
    async def beside() -> None:
        await asyncio.gather(child.enqueue(), asyncio.create_task(child.enqueue()))

    @app.task
    def in_a_thread() -> None:
        child.enqueue_sync()

    made = {by_context: 2, plainly: 4, beside: 2, in_a_thread: 1}
    async with working(app):
        for task, number in made.items():
            job = await task.enqueue()
            await job.wait(timeout=30)
            assert await children_of(app, job.id) == ["child (child)"] * number, task
    outside = await child.enqueue()
    assert (await (await app.store()).run(relatives.of_job(outside.id))).parent is None


async def test_a_batch_made_in_a_handler_names_its_job_and_so_does_its_end(app: Rowlock) -> None:
    @app.task("child")
    async def child() -> None: ...

    @app.task("report")
    async def report(batch: dict[str, Any]) -> None: ...

    @app.task
    async def importing() -> str:
        async with app.batch("import", on_end=report) as batch:
            await child.using(batch=batch).enqueue()
        return batch.id

    async with working(app):
        job = await importing.enqueue()
        batch_id = await job.wait(timeout=30)
        await (await app.find_batch(batch_id)).wait(30)
    batch = await (await app.store()).run(batches.get(batch_id))
    assert batch is not None
    assert batch.parent_id == job.id
    assert await children_of(app, job.id) == ["child (child)", "report (child)"]
    assert (await (await app.store()).run(relatives.link(str(batch.end_job)))).task == "report"


@on_one_engine
async def test_jobs_that_a_handler_makes_in_another_app_are_not_its_children(app: Rowlock, tmp_path: Path) -> None:
    async with Rowlock(f"sqlite:///{tmp_path}/other.db") as other:

        @other.task("there")
        async def there() -> None: ...

        @app.task
        async def sends() -> str:
            return (await there.enqueue()).id

        async with working(app):
            made = await (await sends.enqueue()).wait(timeout=30)
        assert (await (await other.store()).run(relatives.of_job(made))).parent is None
