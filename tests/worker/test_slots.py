"""Slots: what a worker holds, and how much room it says it has."""

from rowlock.signals.logs import JobLog
from rowlock.store.ids import new_token
from rowlock.worker.running import Running
from rowlock.worker.slots import Slots
from support.process_tasks import claimed


def made(size: int) -> Slots:
    return Slots("w", size, JobLog("w"))


async def test_a_job_that_finds_a_free_slot_counts_as_occupying_it_before_it_is_started() -> None:
    slots = made(3)
    slots.take([claimed("pid").job for _ in range(2)], 0.0)
    assert (slots.free, slots.waiting, slots.unsettled) == (1, 0, 0)
    slots.take([claimed("pid").job for _ in range(4)], 0.0)
    assert (slots.free, slots.waiting, slots.unsettled) == (0, 3, 0)
    for _ in range(3):
        slots.unstarted.popleft()
        slots.occupied += 1
    assert (slots.free, slots.waiting, slots.unsettled) == (0, 3, 0), "as before they were started"
    slots.occupied -= 1  # one has returned
    assert slots.unsettled == 1


async def test_suspects_that_wait_for_quarantine_are_not_unsettled() -> None:
    slots = made(1)
    slots.take([claimed("pid", losses=1).job], 0.0)
    slots.suspects.append(slots.unstarted.popleft())
    assert (slots.free, slots.waiting, slots.unsettled) == (1, 0, 0)


async def test_an_attempt_cannot_make_a_worker_forget_a_later_attempt_of_its_job() -> None:
    slots = made(1)
    job = claimed("pid").job
    slots.take([job], 0.0)
    earlier = Running(job._replace(token=new_token()))
    assert not slots.holds(earlier)
    assert not slots.forget(earlier)
    assert slots.forget(slots.held[job.id])
    assert slots.held == {}
