"""Slots: what a worker holds, and how much room it says it has."""

from collections.abc import Sequence

from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Failed, Released, Succeeded
from rowlock.core.policy import Transition, decide
from rowlock.core.states import Outcome
from rowlock.signals.events import Watcher
from rowlock.store.engine.ids import new_token
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.slots import Slots
from support.rigs.worker import new_claimer, new_slots
from support.tasks.processes import LOST, claimed


async def test_a_job_that_finds_a_free_slot_counts_as_occupying_it_before_it_is_started() -> None:
    slots = new_slots(3)
    slots.add([claimed("pid").job for _ in range(2)], 0.0)
    assert slots.fill() == (1, 0, 0)
    slots.add([claimed("pid").job for _ in range(4)], 0.0)
    assert slots.fill() == (0, 3, 0)
    for _ in range(3):
        slots.unstarted.popleft()
        slots.occupied += 1
    assert slots.fill() == (0, 3, 0), "as before they were started"
    slots.occupied -= 1  # one has returned
    assert slots.fill().unsettled == 1


async def test_suspects_that_wait_for_quarantine_are_not_unsettled() -> None:
    slots = new_slots(1)
    slots.add([claimed("pid", **LOST).job], 0.0)
    slots.suspects.append(slots.unstarted.popleft())
    assert slots.fill() == (1, 0, 0)


async def test_an_attempt_cannot_make_a_worker_forget_a_later_attempt_of_its_job() -> None:
    slots = new_slots(1)
    job = claimed("pid").job
    slots.add([job], 0.0)
    earlier = LiveAttempt(job._replace(token=new_token()))
    assert not slots.holds(earlier)
    assert not slots.forget(earlier)
    assert slots.forget(slots.held[job.id])
    assert slots.held == {}


class Listener(Watcher):
    """Remembers what it was told, by job."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    def succeeded(self, done: Sequence[tuple[Claimed, float]]) -> None:
        self.told |= {job.id: "succeeded" for job, _ in done}

    def ended(self, job: Claimed, transition: Transition, seconds: float) -> None:
        self.told[job.id] = str(transition.state)

    def refused(self, job: Claimed, outcome: Outcome) -> None:
        self.told[job.id] = f"refused {outcome}"


def written(slots: Slots, ends: Sequence[AttemptEnd], lost: int | None = None) -> None:
    """The settler has written these ends, one for each held job; the one with number `lost` was refused."""
    batch = [(attempt, decide(attempt.job, end, 0.5)) for attempt, end in zip(slots.held.values(), ends, strict=True)]
    slots.settled(batch, {a.job.id: "lost" if n == lost else "applied" for n, (a, _) in enumerate(batch)})


async def test_a_job_whose_outcome_is_written_is_no_longer_held_and_the_listeners_are_told() -> None:
    listener = Listener()
    slots = new_slots(4, watcher=listener)
    jobs = [claimed("pid").job for _ in range(3)]
    slots.add(jobs, 0.0)
    written(slots, [Succeeded(None), Failed("E", "no", permanent=True), Succeeded(None)], lost=2)
    assert (slots.held, slots.stale_refused) == ({}, 1)
    assert [listener.told[job.id] for job in jobs] == ["succeeded", "dead", "refused succeeded"]


async def test_an_outcome_of_an_earlier_attempt_leaves_the_later_one_held() -> None:
    slots = new_slots()
    job = claimed("pid").job
    slots.add([job], 0.0)
    earlier = LiveAttempt(job._replace(token=new_token()))
    slots.settled([(earlier, decide(earlier.job, Succeeded(None), 0.5))], {job.id: "lost"})
    assert list(slots.held) == [job.id]


async def test_a_job_that_goes_back_to_the_queue_and_a_source_that_has_room_wake_the_claimer() -> None:
    claimer = new_claimer()
    slots = new_slots(2, claimer)
    claimer.plan.drained = True
    slots.add([claimed("pid").job], 0.0)
    written(slots, [Succeeded(None)])
    assert claimer.plan.drained, "there is nothing new to claim"
    slots.add([claimed("pid").job], 0.0)
    written(slots, [Released(0.0)])
    assert not claimer.plan.drained
    slots.add([claimed("pid").job._replace(source="api:x")], 0.0)
    written(slots, [Succeeded(None)])
    assert claimer._freed == {"api:x": 1}
