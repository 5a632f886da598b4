"""The plan of a worker's claims, without a database or a clock: the tests say what was found and what time it is.

Whose turn it is among the sources is tested in test_seen_sources.py; here no job has a source.
"""

from collections.abc import Callable

import pytest

from rowlock.core.claiming.actions import Claim, Fill, Look, Peek, Promote, SetIdle, Sleep
from rowlock.core.claiming.plan import FULL_SECONDS, PREFETCH_SECONDS, PROMOTE_SECONDS, Plan
from rowlock.core.claiming.ranges import FRONT_SECONDS, NO_ID
from support.each import each
from support.rigs.claiming import BATCH, POLL_SECONDS, WALL, Worker, new_plan, quick_worker

# --- how many are claimed


def test_a_new_worker_claims_at_once_for_all_of_its_free_slots_from_the_front_of_the_index() -> None:
    worker = Worker(new_plan(), Fill(free=7, waiting=0, unsettled=0), ready={"fast": 3})
    claim = worker.until(Claim)
    assert worker.now == 1000.0
    assert isinstance(claim, Claim)
    assert (claim.n, claim.front) == (7, True)
    assert [(lane.queue, lane.task, lane.low_id) for lane in claim.ranges] == [("default", "fast", NO_ID)]


def test_no_claim_is_for_more_than_a_batch() -> None:
    worker = Worker(new_plan(), Fill(free=BATCH * 3, waiting=0, unsettled=0))
    worker.until_sleep()
    assert {claim.n for claim in worker.claims} == {BATCH}


def test_jobs_that_wait_for_a_slot_are_subtracted_from_the_free_slots() -> None:
    worker = Worker(new_plan(), Fill(free=10, waiting=4, unsettled=0))
    worker.until_sleep()
    assert {claim.n for claim in worker.claims} == {6}


def test_a_claim_that_brought_all_it_asked_for_is_followed_by_another() -> None:
    worker = Worker(new_plan(), ready={"fast": 25})
    worker.until_sleep()
    before_idle = worker.done[: worker.done.index(SetIdle(True))]
    assert len([action for action in before_idle if isinstance(action, Claim)]) == 3, "10 and 10 and 5"


def test_nothing_is_claimed_while_four_batches_of_outcomes_are_unwritten() -> None:
    worker = Worker(new_plan(), Fill(free=10, waiting=0, unsettled=4 * BATCH + 1), ready={"fast": 100})
    worker.until_sleep()
    assert worker.claims == []
    worker.slots = Fill(free=10, waiting=0, unsettled=4 * BATCH)
    assert worker.plan.settled(), "the outcomes were what a claim waited for"
    assert isinstance(worker.do(), Claim)


# --- prefetch


def test_a_worker_with_short_attempts_claims_ahead_what_it_finished_in_the_last_100_ms() -> None:
    worker = quick_worker(returns=40)
    worker.slots = Fill(free=0, waiting=0, unsettled=0)
    action = worker.do()
    assert isinstance(action, Claim)
    assert action.n == 40


def test_a_worker_with_long_attempts_claims_for_free_slots_only() -> None:
    worker = quick_worker(returns=0)
    for _ in range(40):
        worker.plan.returned(PREFETCH_SECONDS * 2, 0)
    worker.slots = Fill(free=3, waiting=0, unsettled=0)
    action = worker.do()
    assert isinstance(action, Claim)
    assert action.n == 3


def test_a_new_worker_claims_nothing_ahead_before_it_knows_how_long_attempts_take() -> None:
    worker = quick_worker(returns=5)  # too few for their mean to be short
    worker.slots = Fill(free=3, waiting=0, unsettled=0)
    action = worker.do()
    assert isinstance(action, Claim)
    assert action.n == 3


def test_attempts_that_returned_longer_ago_are_not_counted() -> None:
    worker = quick_worker(returns=40)
    worker.slots = Fill(free=0, waiting=0, unsettled=0)
    assert isinstance(worker.do(), Claim), "ahead of its slots"
    for _ in range(2):
        worker.now += PREFETCH_SECONDS * 1.01
        action = worker.do()
    assert not isinstance(action, Claim)


def test_returns_since_a_decision_long_ago_count_by_their_rate() -> None:
    worker = quick_worker(returns=100)
    worker.slots = Fill(free=0, waiting=0, unsettled=0)
    worker.now += PREFETCH_SECONDS * 10 - PREFETCH_SECONDS / 2
    action = worker.do()
    assert isinstance(action, Claim)
    assert action.n == 10, "100 in a second are 10 in 100 ms"


def test_no_claim_while_more_than_half_of_the_prefetch_still_waits() -> None:
    worker = quick_worker(returns=40)
    worker.slots = Fill(free=0, waiting=21, unsettled=0)
    assert not isinstance(worker.do(), Claim)
    worker.slots = Fill(free=0, waiting=20, unsettled=0)
    action = worker.do()
    assert isinstance(action, Claim)
    assert action.n == 20


@each("waiting, claims", [(20, True), (21, False)])
def test_a_returned_attempt_asks_for_a_claim_when_at_most_half_of_the_prefetch_waits(
    waiting: int, claims: bool
) -> None:
    worker = quick_worker(returns=40)
    worker.do()
    assert worker.plan.returned(0.001, waiting) is claims


# --- tasks that run in a process


def test_process_tasks_are_claimed_together_with_the_others_while_nothing_is_claimed_ahead() -> None:
    worker = Worker(new_plan(in_process=["render"]))
    worker.until_sleep()
    assert {claim.tasks for claim in worker.claims} == {"every"}
    assert {lane.task for lane in worker.claims[0].ranges} == {"fast", "render"}


def test_process_tasks_are_claimed_for_free_slots_only_and_the_others_ahead() -> None:
    worker = quick_worker(in_process=["render"], returns=40)
    worker.slots = Fill(free=2, waiting=0, unsettled=0)
    first, second = worker.do(), worker.do()
    assert isinstance(first, Claim)
    assert isinstance(second, Claim)
    assert ({lane.task for lane in first.ranges}, first.n) == ({"render"}, 2)
    assert ({lane.task for lane in second.ranges}, second.n) == ({"fast"}, 42)


def test_without_a_free_slot_no_process_task_is_claimed() -> None:
    worker = quick_worker(in_process=["render"], returns=40)
    worker.slots = Fill(free=0, waiting=0, unsettled=0)
    worker.ready = {"fast": 30}  # a short claim
    worker.until_sleep()
    assert {claim.tasks for claim in worker.claims} == {"prefetchable"}


def test_claiming_ahead_ends_when_process_tasks_were_not_asked_for_during_100_ms() -> None:
    worker = quick_worker(in_process=["render"], returns=40)
    worker.slots = Fill(free=0, waiting=0, unsettled=0)
    assert isinstance(worker.do(), Claim), "ahead of its slots"
    worker.fast_returns(40)
    worker.now += PREFETCH_SECONDS * 0.6  # process tasks were last asked for 110 ms ago
    assert not isinstance(worker.do(), Claim), "else fast tasks would fill every slot that becomes free"


def test_a_worker_that_passed_process_tasks_over_claims_when_an_attempt_returns_although_it_found_nothing() -> None:
    worker = Worker(new_plan(in_process=["render"]))
    worker.until_drained()
    worker.plan.woken(worker.now)
    worker.until(Claim)  # process tasks were asked for now
    worker.slots = Fill(free=0, waiting=0, unsettled=0)
    worker.fast_returns(40)
    worker.now += PREFETCH_SECONDS / 2
    worker.plan.woken(worker.now)
    worker.until_sleep()
    assert {lane.task for lane in worker.claims[-1].ranges} == {"fast"}
    assert worker.plan.settled(), "a free slot may go to a process task"
    worker.slots = Fill(free=1, waiting=0, unsettled=0)
    action = worker.do()
    assert isinstance(action, Claim)
    assert "render" in {lane.task for lane in action.ranges}


def test_jobs_that_wait_for_a_slot_leave_no_room_for_process_tasks() -> None:
    worker = quick_worker(in_process=["render"], returns=40)
    worker.slots = Fill(free=3, waiting=1, unsettled=0)
    action = worker.do()
    assert isinstance(action, Claim)
    assert (action.tasks, action.n) == ("in_process", 2)


# --- an empty queue


def test_an_empty_queue_is_announced_after_the_due_jobs_were_promoted() -> None:
    worker = Worker(new_plan())
    worker.until_sleep()
    kinds = [type(action) for action in worker.done]
    assert kinds.index(Claim) < kinds.index(Promote) < kinds.index(SetIdle)


def test_after_the_announcement_the_worker_polls_again_at_once_and_after_50_and_500_ms() -> None:
    worker = Worker(new_plan())
    while worker.do() != SetIdle(True):
        pass
    at = worker.now
    for seconds, kind in ((0.0, Claim), (0.05, Claim), (0.5, Claim), (POLL_SECONDS, Peek)):
        worker.until(kind)
        at += seconds
        assert worker.now == pytest.approx(at)


@each("jitter, seconds", [(0.0, POLL_SECONDS * 0.9), (1.0, POLL_SECONDS)])
def test_an_idle_worker_sleeps_for_the_poll_interval_less_up_to_a_tenth(jitter: float, seconds: float) -> None:
    worker = Worker(new_plan(jitter=lambda: jitter))
    worker.until_drained()
    before = worker.now
    for nth in (1, 2, 3):
        worker.until(Peek)
        assert worker.now == pytest.approx(before + nth * seconds)


def test_a_poll_of_an_idle_worker_is_one_statement_while_there_is_nothing_to_do() -> None:
    worker = Worker(new_plan())
    worker.until_drained()
    for _ in range(10):
        worker.now = worker.until_sleep().until
    assert {type(action) for action in worker.done} == {Peek, Sleep}


def test_a_poll_that_shows_a_ready_job_is_followed_by_its_claim_at_once() -> None:
    worker = Worker(new_plan())
    worker.until_drained()
    before, worker.ready = worker.now, {"fast": 1}
    worker.until(Claim)
    assert worker.now == pytest.approx(before + POLL_SECONDS)
    assert worker.ready == {"fast": 0}
    assert isinstance(worker.until(Look), Look), "it may have had a source"
    assert worker.now == pytest.approx(before + POLL_SECONDS)


def test_an_idle_worker_is_announced_once() -> None:
    worker = Worker(new_plan())
    for _ in range(20):
        worker.now = worker.until_sleep().until
    assert [action for action in worker.done if isinstance(action, SetIdle)] == [SetIdle(True)]


def test_a_worker_whose_announcement_was_lost_announces_again() -> None:
    worker = Worker(new_plan())
    worker.until_drained()
    worker.plan.idle = False
    worker.until_sleep()
    assert SetIdle(True) in worker.done


def test_a_wake_up_ends_the_sleep_with_a_claim() -> None:
    worker = Worker(new_plan())
    worker.until_drained()
    worker.now += 1.0
    woken = worker.now
    worker.plan.woken(woken)
    worker.until(Claim)
    assert worker.now == woken


def test_an_attempt_that_returns_makes_a_drained_worker_claim_only_after_a_wake_up() -> None:
    worker = Worker(new_plan())
    worker.until_drained()
    assert (worker.plan.returned(0.001, 0), worker.plan.settled()) == (False, False)
    worker.plan.woken(worker.now)
    assert (worker.plan.returned(0.001, 0), worker.plan.settled()) == (True, True)


def test_a_worker_that_nobody_wakes_up_claims_after_each_attempt() -> None:
    worker = Worker(new_plan(can_be_woken=False))
    worker.until_drained()
    assert (worker.plan.returned(0.001, 0), worker.plan.settled()) == (True, True)


@each("told", [Plan.settled, lambda plan: plan.returned(0.001, 0)], ids=["settled", "returned"])
def test_a_worker_between_its_polls_claims_as_soon_as_an_attempt_has_ended(told: Callable[[Plan], bool]) -> None:
    worker = Worker(new_plan())
    while worker.do() != SetIdle(True):
        pass
    worker.until_sleep()  # for the poll after 50 ms
    worker.now += 0.01
    assert told(worker.plan)
    assert isinstance(worker.do(), Claim)


# --- low-water marks


def test_a_claim_after_a_full_one_starts_at_its_last_id() -> None:
    worker = Worker(new_plan(), ready={"fast": 30})
    while len(worker.claims) < 2:
        worker.do()
        worker.now += 0.000_1
    # A claim that took no time may be made from the front again at once; give it a length.
    second = worker.claims[1]
    plan = worker.plan
    plan.claimed(second._replace(front=True, began=worker.now - 0.01), worker.take(second), worker.now, WALL)
    third = worker.do()
    assert isinstance(third, Claim)
    assert not third.front
    assert third.ranges[-1].low_id == "01900000-0000-7000-8000-000000000009"


def test_a_short_claim_from_the_marks_is_followed_by_one_from_the_front_within_a_second() -> None:
    worker = Worker(new_plan())
    worker.until_drained()
    ranges = worker.plan.ranges["every"]
    ranges.front_at = ranges.front_due = worker.now + FRONT_SECONDS  # one was made now
    worker.plan.woken(worker.now)
    began = worker.now
    worker.until(Claim)
    worker.until(Claim)
    assert [(claim.front, claim.began) for claim in worker.claims] == [
        (False, began),
        (True, pytest.approx(began + FRONT_SECONDS)),
    ]
    worker.until(Peek)
    assert worker.now == pytest.approx(began + FRONT_SECONDS + POLL_SECONDS), "none is due before the next poll"


# --- delayed jobs


def test_an_idle_worker_wakes_when_the_next_delayed_job_is_due() -> None:
    worker = Worker(new_plan(), due=1.7)
    worker.until_drained()
    promoted = worker.now
    worker.plan.promoted(0, 1.7, promoted)
    worker.until(Promote)
    assert worker.now == pytest.approx(promoted + 1.7)


def test_promoted_jobs_are_claimed_at_once_and_from_the_front() -> None:
    worker = Worker(new_plan())
    worker.until_drained()
    ranges = worker.plan.ranges["every"]
    ranges.front_at = ranges.front_due = worker.now + FRONT_SECONDS
    worker.plan.promoted(3, None, worker.now)
    worker.until_sleep()
    assert worker.claims[0].front, "a delayed job has an old id"
    assert worker.claims[0].began == worker.now


def test_a_busy_worker_promotes_five_times_a_second() -> None:
    worker = Worker(new_plan(), Fill(free=0, waiting=0, unsettled=0))
    for nth in range(5):
        worker.until(Promote)
        assert worker.now == pytest.approx(1000.0 + nth * PROMOTE_SECONDS)


def test_an_idle_worker_without_delayed_jobs_promotes_one_that_a_poll_shows_to_be_due() -> None:
    worker = Worker(new_plan())
    worker.until_drained()
    before, worker.due = worker.now, 0.0
    worker.until(Promote)
    assert worker.now == pytest.approx(before + POLL_SECONDS)


def test_an_idle_worker_promotes_a_delayed_job_on_time_that_only_a_poll_has_shown() -> None:
    worker = Worker(new_plan())
    worker.until_drained()
    before, worker.due = worker.now, 1.7
    worker.until(Promote)
    assert worker.now == pytest.approx(before + POLL_SECONDS + 1.7)


def test_a_job_that_an_idle_worker_claimed_may_be_due_again_soon() -> None:
    worker = Worker(new_plan())
    while worker.do() != SetIdle(True):
        pass
    worker.now = worker.until_sleep().until  # the poll after 50 ms
    worker.done.clear()
    worker.ready = {"fast": 1}
    worker.until(Promote)
    assert worker.now == pytest.approx(1000.0 + PROMOTE_SECONDS), "its attempt may have failed, with a short backoff"


# --- a full worker


def test_a_worker_that_is_full_for_a_second_no_longer_asks_to_be_woken() -> None:
    worker = Worker(new_plan())
    worker.until_drained()
    worker.slots = Fill(free=0, waiting=0, unsettled=0)
    began = worker.now
    while SetIdle(False) not in worker.done:
        action = worker.do()
        if isinstance(action, Sleep):
            assert action.until - worker.now <= PROMOTE_SECONDS + 1e-6
            worker.now = action.until
    assert FULL_SECONDS < worker.now - began <= FULL_SECONDS + 2 * PROMOTE_SECONDS


def test_a_worker_that_is_full_again_and_again_for_less_than_a_second_stays_announced() -> None:
    worker = Worker(new_plan())
    worker.until_drained()
    for _ in range(10):
        worker.slots = Fill(free=0, waiting=0, unsettled=0)
        for _ in range(4):
            worker.now = worker.until_sleep().until
        worker.slots = Fill(free=1, waiting=0, unsettled=0)
        worker.plan.woken(worker.now)
        worker.until_sleep()
    assert worker.now > 1000.0 + 5 * FULL_SECONDS
    assert SetIdle(False) not in worker.done
