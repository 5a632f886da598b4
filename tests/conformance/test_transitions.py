"""Every (state × event) pair of the state machine, on both engines: allowed ones move, the others change nothing."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from rowlock.core.errors import NotAllowed
from rowlock.core.job import Claimed, Settlement
from rowlock.core.outcome import Failed
from rowlock.core.policy import Transition
from rowlock.core.states import FINAL, Outcome, State, allowed
from rowlock.store.jobs import cancel as cancels
from rowlock.store.jobs import leases
from support.each import each
from support.files.state_diagram import EVENTS
from support.rigs.rig import KEEP, Rig, token

PAIRS = [(state, event) for state in State for event in EVENTS]
MOVES = [(state, event, after) for state, event in PAIRS for after in sorted(allowed(state, event))]
REFUSED = [(state, event) for state, event in PAIRS if not allowed(state, event)]


async def bring_to(rig: Rig, state: State, **options: Any) -> Claimed:
    """A job in `state`, ready where it waits, past its latest start if it has one; its last lease."""
    options = {"expires_at": rig.clock.now() + timedelta(seconds=30)} | options
    job = await rig.running(**options)
    if state is State.QUEUED:  # released, so that there is an old token to try
        await end(rig, job, Outcome.RELEASED, State.QUEUED)
    elif state is State.RETRYABLE:
        await end(rig, job, Outcome.FAILED, State.RETRYABLE)
    elif state in FINAL:
        how = {State.SUCCEEDED: Outcome.SUCCEEDED, State.DEAD: Outcome.FAILED, State.CANCELLED: Outcome.CANCELLED}
        await end(rig, job, how[state], state)
    assert await rig.state(job.id) == state
    return job


async def end(rig: Rig, job: Claimed, outcome: Outcome, state: State, under: str | None = None) -> str:
    error = None if outcome is Outcome.SUCCEEDED else "E"
    transition = Transition(state, outcome, error_code=error)
    settled = await rig.settle_all([Settlement(job._replace(token=under or job.token), transition)])
    return settled[job.id]


async def claim(rig: Rig, job: Claimed) -> bool:
    return job.id in {taken.id for taken in await rig.claim(1000)}


async def lose(rig: Rig, job: Claimed) -> bool:
    rig.clock.move(10_000)
    return job.id in {lost.job.id for lost in await rig.reclaim()}


async def cancel(rig: Rig, job: Claimed) -> bool:
    before = await rig.state(job.id)
    return (await rig.cancel(job.id))[job.id] == "cancelled" and before != "cancelled"


async def expire(rig: Rig, job: Claimed) -> bool:
    rig.clock.move(10_000)
    return await rig.store.run(cancels.expire(100, KEEP)) == 1


async def retry(rig: Rig, job: Claimed) -> bool:
    return await rig.retry(job.id) == {job.id}


HAPPENINGS: dict[str, Callable[[Rig, Claimed], Awaitable[bool]]] = {
    "claim": claim,
    "lost": lose,
    "cancel": cancel,
    "expire": expire,
    "retry": retry,
}


def test_the_cases_cover_every_event_of_the_table_of_states() -> None:
    assert set(HAPPENINGS) | set(Outcome) == set(EVENTS)
    assert len(MOVES) >= 19
    assert len(REFUSED) == len(PAIRS) - 14


@each("state, event, after", MOVES, afresh=True)
async def test_an_allowed_transition_moves_the_job(rig: Rig, state: State, event: str, after: State) -> None:
    options = {"on_lost": "dead"} if (event, after) == ("lost", State.DEAD) else {}
    job = await bring_to(rig, state, **options)
    attempt = (await rig.row(job.id))["attempt"]
    if event in ("lost", "failed", "timed_out") and after is State.CANCELLED:
        await rig.cancel(job.id)
    if event in HAPPENINGS:
        assert await HAPPENINGS[event](rig, job)
    else:
        assert await end(rig, job, Outcome(event), after) == "applied"
    row = await rig.row(job.id)
    assert row["state"] == after
    assert row["attempt"] == attempt + (event == "claim")
    assert (row["lease_token"] is not None) == (after is State.RUNNING)
    assert (row["finished_at"] is not None) == (after in FINAL)


@each("state, event", REFUSED, afresh=True)
async def test_a_refused_transition_changes_nothing(rig: Rig, state: State, event: str) -> None:
    job = await bring_to(rig, state)
    before = await rig.everything()
    if event in HAPPENINGS:
        assert not await HAPPENINGS[event](rig, job)
    if event in set(Outcome):
        for under in (job.token, token()):
            for after in State:
                if after in allowed(State.RUNNING, event):
                    assert await end(rig, job, Outcome(event), after, under) in ("duplicate", "lost")
                else:  # refused before it reaches the store
                    with pytest.raises(NotAllowed):
                        await end(rig, job, Outcome(event), after, under)
    if (state, event) == (State.RUNNING, "cancel"):  # told to stop, and still running
        assert (await rig.row(job.id))["cancel_requested_at"] == rig.clock.now()
        assert await rig.state(job.id) == state
        await rig.succeed(job)
    else:
        assert await rig.everything() == before


@each("state", sorted(FINAL), afresh=True)
async def test_final_is_final_until_an_operator_retries(rig: Rig, state: State) -> None:
    job = await bring_to(rig, state)
    before = await rig.everything()
    for event, happens in HAPPENINGS.items():
        if event != "retry":
            assert not await happens(rig, job)
    await rig.promote()
    await rig.store.run(leases.beat([(job.id, job.token)], 1000))
    await rig.store.run(leases.progress([(job.id, job.token, 1, "x", "y")]))
    assert await rig.settle(job, Failed("E", "late")) == "duplicate"
    assert await rig.everything() == before
