"""Settles that come late, twice or under another token: each attempt is settled once."""

from rowlock.core.outcome import Failed, Released, Succeeded
from rowlock.store.jobs import leases
from support.each import each
from support.rigs import contract
from support.rigs.rig import ENDS, Rig, settlement, token


async def test_old_tokens_change_nothing(rig: Rig) -> None:
    await contract.old_tokens_change_nothing(rig)


async def test_settle_after_reclaim_changes_nothing(rig: Rig) -> None:
    for end in ENDS:
        zombie = await rig.running()
        await rig.lose(zombie)
        before = await rig.everything()
        answer = await rig.settle(zombie, end)
        assert await rig.everything() == before
        assert answer == "lost"  # not "duplicate": its outcome was never written


async def test_settle_after_reclaim_and_a_new_claim_changes_nothing(rig: Rig) -> None:
    zombie = await rig.running()
    await rig.lose(zombie)
    rig.clock.move(2)
    await rig.promote()
    (holder,) = await rig.claim(worker="worker-2")
    before = await rig.everything()
    answer = await rig.settle(zombie, Succeeded('"stolen"'))
    assert await rig.everything() == before
    assert answer == "lost"
    await rig.succeed(holder)


async def test_settle_after_a_loss_that_ended_the_job_changes_nothing(rig: Rig) -> None:
    zombie = await rig.running(on_lost="dead")
    await rig.lose(zombie)
    before = await rig.everything()
    answer = await rig.settle(zombie, Succeeded('"stolen"'))
    assert await rig.everything() == before
    assert answer == "lost"


async def test_a_lease_that_was_reclaimed_did_not_settle(rig: Rig) -> None:
    """`settled_by` tells what became of a COMMIT whose reply was lost: a sweep must not look like that COMMIT."""
    zombie, other = await rig.running(lease=5), await rig.running(lease=1000)
    assert not await rig.store.run(leases.settled_by(zombie.id, zombie.token))
    rig.clock.move(6)
    assert len(await rig.reclaim()) == 1
    assert not await rig.store.run(leases.settled_by(zombie.id, zombie.token))
    await rig.succeed(other)
    assert await rig.store.run(leases.settled_by(other.id, other.token))
    assert not await rig.store.run(leases.settled_by(other.id, token()))


async def test_a_settle_for_a_job_that_is_not_there_is_lost(rig: Rig) -> None:
    job = await rig.running()
    ghost = job._replace(id=rig.new_id())
    before = await rig.everything()
    assert await rig.settle(ghost, Succeeded()) == "lost"
    assert await rig.everything() == before


async def test_another_jobs_token_does_not_settle_this_one(rig: Rig) -> None:
    one, two = await rig.running(), await rig.running()
    before = await rig.everything()
    assert await rig.settle(one, Succeeded(), under=two.token) == "lost"
    assert await rig.everything() == before


async def test_a_repeated_settle_is_a_duplicate(rig: Rig) -> None:
    await contract.a_repeated_settle_is_a_duplicate(rig)


async def test_a_repeat_that_says_something_else_is_still_a_duplicate(rig: Rig) -> None:
    job = await rig.running()
    await rig.succeed(job, '"first"')
    assert await rig.settle(job, Failed("E", "second", permanent=True)) == "duplicate"
    row = await rig.row(job.id)
    assert (row["state"], row["result"]) == ("succeeded", "first")
    assert await rig.attempts(job.id) == []


async def test_a_repeated_settle_is_a_duplicate_while_the_next_attempt_runs(rig: Rig) -> None:
    first = await rig.running()
    await rig.settle(first, Released(0))
    (second,) = await rig.claim()
    before = await rig.everything()
    assert await rig.settle(first, Released(0)) == "duplicate"
    assert await rig.everything() == before
    await rig.succeed(second)


async def test_a_repeated_settle_is_a_duplicate_after_the_job_was_cancelled_or_retried(rig: Rig) -> None:
    job = await rig.running()
    await rig.settle(job, Failed("E", "no"))
    await rig.cancel(job.id)
    assert await rig.settle(job, Failed("E", "no")) == "duplicate"
    assert await rig.retry(job.id) == {job.id}
    assert await rig.settle(job, Failed("E", "no")) == "duplicate"
    assert await rig.state(job.id) == "queued"


async def test_a_holder_whose_lease_ran_out_may_settle_until_it_is_reclaimed(rig: Rig) -> None:
    job = await rig.running()
    rig.clock.move(100_000)
    assert await rig.settle(job, Succeeded()) == "applied"
    assert await rig.reclaim() == []


async def test_each_job_of_a_batch_has_its_own_answer(rig: Rig) -> None:
    done, lost, ok, fails, gone = [await rig.running() for _ in range(5)]
    await rig.succeed(done)
    answers = await rig.settle_all(
        [
            settlement(ok, Succeeded('"ok"')),
            settlement(lost, Succeeded(), under=token()),
            settlement(done, Succeeded()),
            settlement(gone._replace(id=rig.new_id()), Succeeded()),
            settlement(fails, Failed("E", "no", permanent=True)),
        ]
    )
    assert sorted(answers.values()) == ["applied", "applied", "duplicate", "lost", "lost"]
    assert {answers[ok.id], answers[fails.id]} == {"applied"}
    states = [await rig.state(job.id) for job in (done, lost, ok, fails, gone)]
    assert states == ["succeeded", "running", "succeeded", "dead", "running"]


@each("stale_first", [True, False], afresh=True)
async def test_an_old_token_changes_nothing_when_the_new_one_is_in_the_same_batch(rig: Rig, stale_first: bool) -> None:
    zombie = await rig.running()
    await rig.settle(zombie, Released(0))
    (holder,) = await rig.claim()
    batch = [
        settlement(zombie, Failed("E", "stolen", permanent=True), on_dead='{"task": "x"}'),
        settlement(holder, Succeeded('"mine"')),
    ]
    await rig.settle_all(batch if stale_first else batch[::-1])
    row = await rig.row(holder.id)
    assert (row["state"], row["result"], row["error_code"]) == ("succeeded", "mine", None)
    assert await rig.attempts(holder.id) == [(1, "released", None, "worker-1")]
    assert len(await rig.rows()) == 1


async def test_the_same_settle_twice_in_one_batch_is_applied_once(rig: Rig) -> None:
    job = await rig.running()
    twice = [settlement(job, Failed("E", "no"))] * 2 + [settlement(job, Succeeded('"late"'))]
    await rig.settle_all(twice)
    row = await rig.row(job.id)
    assert (row["state"], row["attempt"], row["losses"], row["releases"]) == ("retryable", 1, 0, 0)
    assert await rig.attempts(job.id) == [(1, "failed", "E", "worker-1")]


async def test_an_empty_batch_changes_nothing(rig: Rig) -> None:
    await rig.running()
    before = await rig.everything()
    assert await rig.settle_all([]) == {}
    assert await rig.everything() == before
