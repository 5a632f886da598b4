"""What decides whether a job may start holds for jobs that are published, too."""

from collections.abc import Callable
from typing import Any

from rowlock import Rowlock
from rowlock.store import queues
from rowlock.store.read.counts import read_stats
from support.web.remote import Remote, until, until_state, with_tasks


async def test_a_source_lets_only_its_limit_be_published(app: Rowlock, remote: Remote) -> None:
    await app.sources.set("gpu", concurrency=2)
    task = app.get_task("REPLAY_MP4").using(source="gpu")
    made = [await task.enqueue(replayId=n) for n in range(5)]
    async with app.bridge():
        for done in range(5):
            await until(lambda done=done: len(remote.requests()) == min(5, done + 2))
            request = remote.requests()[done]
            remote.succeed(request)
            await until_state(app, request["jobId"], "succeeded")
    assert sorted(request["jobId"] for request in remote.requests()) == sorted(job.id for job in made)


async def test_requests_are_published_by_priority_and_not_before_their_time(app: Rowlock, remote: Remote) -> None:
    task = app.get_task("REPLAY_MP4")
    last = await task.using(priority=5).enqueue(replayId=1)
    first = await task.using(priority=-5).enqueue(replayId=2)
    later = await task.using(delay=3600).enqueue(replayId=3)
    async with app.bridge():
        await until(lambda: len(remote.requests()) == 2)
        assert [request["jobId"] for request in remote.requests()] == [first.id, last.id]
        assert (await app.job(later.id)).attempt == 0


async def test_a_paused_queue_publishes_nothing(app: Rowlock, remote: Remote) -> None:
    store = await app.store()
    await store.run(queues.pause("default"))
    paused = await app.get_task("REPLAY_MP4").enqueue(replayId=1)
    open_one = await app.get_task("REPLAY_MP4").using(queue="other").enqueue(replayId=2)

    @app.task("elsewhere", queue="other", runs_on="redis")
    async def elsewhere() -> None: ...

    async with app.bridge():
        await remote.request(open_one.id)
        assert [request["jobId"] for request in remote.requests()] == [open_one.id]
        await store.run(queues.resume("default"))
        await remote.request(paused.id)


async def test_no_more_requests_wait_unread_than_the_setting_allows(
    settings: Callable[..., Any], remote: Remote
) -> None:
    async with with_tasks(Rowlock(settings=settings(redis__unread=3))) as app:
        made = await app.get_task("REPLAY_MP4").enqueue_many([{"replayId": n} for n in range(5)])
        async with app.bridge():
            await until(lambda: len(remote.requests()) == 3)
            remote.progress(made[0].id)  # it is read: there is room for one more
            await remote.request(made[3].id)
            assert len(remote.requests()) == 4


async def test_lists_counts_and_explanations_show_a_published_job_as_queued(app: Rowlock, remote: Remote) -> None:
    from rowlock.core.states import State
    from rowlock.store.read import search
    from rowlock.store.read.filter import JobFilter

    job = await app.get_task("REPLAY_MP4").using(owner="ana").enqueue(replayId=1)
    store = await app.store()
    async with app.bridge():
        await remote.request(job.id)
        for owner in (None, "ana"):
            for state, number in ((State.QUEUED, 1), (State.RUNNING, 0)):
                wanted = JobFilter(states=(state,), owner=owner)
                assert (await store.run(search.count(wanted)))[state].count == number
                assert len(await store.run(search.list_jobs(wanted, 10))) == number
        (queue,) = [queue for queue in (await store.run(read_stats())).queues if queue.name == "default"]
        assert (queue.queued, queue.running) == (1, 0)
        why = await app.explain(job.id)
        assert (why.reason, why.state) == ("published", "queued")
        assert "job.requests" in why.text


async def test_follow_ups_and_batches_of_remote_jobs_are_told(app: Rowlock, remote: Remote) -> None:
    @app.task("after")
    async def after(finished: dict[str, Any]) -> None: ...

    @app.task("export", runs_on="redis", on_success=after)
    async def export() -> None: ...

    async with app.bridge(), app.batch("two") as batch:
        job = await export.using(batch=batch).enqueue()
        request = await remote.request(job.id)
        assert (await app.find_batch(batch.id)).state == "running"
        remote.succeed(request)
        await until_state(app, job.id, "succeeded")
    found = await app.fetch(
        f"SELECT task FROM {'rowlock_' if app.database.startswith('sqlite') else 'rowlock.'}jobs WHERE task = 'after'"
    )
    assert len(found) == 1
    assert (await app.find_batch(batch.id)).succeeded == 1
