"""Results are written by the shortest way that fits; what they answer does not depend on the way."""

import uuid

from rowlock import Rowlock
from rowlock.bridge import outbox
from rowlock.bridge import reports as stored
from rowlock.core.job import Claimed, Settlement
from rowlock.core.outcome import Succeeded
from rowlock.core.policy import decide
from support.web.remote import Remote


async def held(app: Rowlock, there: Remote, number: int) -> list[Settlement]:
    """Successes of new jobs that are published, not yet written."""
    made = await app.get_task("REPLAY_MP4").enqueue_many([{"replayId": n} for n in range(number)])
    async with app.bridge():
        for job in made:
            await there.request(job.id)
    known = await (await app.store()).run(stored.known_jobs([job.id for job in made]))
    return [Settlement(job, decide(job, Succeeded(), 0.0)) for job in known.values() if isinstance(job, Claimed)]


async def test_a_job_that_is_cancelled_meanwhile_stays_cancelled_and_the_rest_of_its_batch_succeeds(
    app: Rowlock, remote: Remote
) -> None:
    done = await held(app, remote, 3)
    await app.cancel(done[1].job.id)
    answers = await stored.settle(await app.store(), done, [], app.keep)
    assert [answers[s.job.id] for s in done] == ["applied", "lost", "applied"]
    assert [(await app.job(s.job.id)).state for s in done] == ["succeeded", "cancelled", "succeeded"]


async def test_results_that_are_written_twice_are_answered_as_duplicates(app: Rowlock, remote: Remote) -> None:
    done = await held(app, remote, 2)
    assert set((await stored.settle(await app.store(), done, [], app.keep)).values()) == {"applied"}
    assert set((await stored.settle(await app.store(), done, [], app.keep)).values()) == {"duplicate"}


async def test_an_answered_request_is_no_longer_counted_as_unread(app: Rowlock, remote: Remote) -> None:
    done, store = await held(app, remote, 2), await app.store()
    assert await store.run(outbox.unread()) == 2
    await stored.settle(store, done, [], app.keep)
    assert await store.run(outbox.unread()) == 0


async def test_a_claimed_job_is_not_published_after_its_cancel_or_under_another_lease(
    app: Rowlock, remote: Remote
) -> None:
    claimed = [s.job for s in await held(app, remote, 3)]
    await app.cancel(claimed[0].id)
    other = claimed[1]._replace(token=str(uuid.uuid4()))
    wanted = await (await app.store()).run(outbox.still_wanted([claimed[0], other, claimed[2]]))
    assert [out.job for out in wanted] == [claimed[2]]
    assert wanted[0].created_at == (await app.job(claimed[2].id)).created_at
