"""Loops: a round returns the delay before the next, which a wake-up or the end of the loop cuts short."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest

from rowlock.core.errors import StoreUnavailable
from rowlock.store.engine.outage import Outage
from rowlock.worker import loops as loops_module
from rowlock.worker.loops import Loops, Round

LONG = 600.0


class Rounds:
    def __init__(self) -> None:
        self.count = 0
        self.done = asyncio.Event()

    async def round(self) -> float:
        self.count += 1
        self.done.set()
        return LONG

    async def next(self) -> int:
        await asyncio.wait_for(self.done.wait(), 10)
        self.done.clear()
        return self.count


async def test_a_wake_up_ends_the_delay_between_two_rounds() -> None:
    rounds, wake, loops = Rounds(), asyncio.Event(), Loops(Outage())
    loops.start("one", rounds.round, wake)
    assert await rounds.next() == 1
    wake.set()
    assert await rounds.next() == 2
    assert not wake.is_set(), "it would end every delay from now on"
    await loops.stop_all()


async def test_a_loop_that_is_finished_does_not_wait_for_its_delay_and_begins_no_other_round() -> None:
    rounds, loops = Rounds(), Loops(Outage())
    loops.start("one", rounds.round)
    await rounds.next()
    await asyncio.wait_for(loops.finish("one", timeout=LONG), 10)
    assert rounds.count == 1


async def test_a_wake_up_that_comes_during_a_round_is_not_lost() -> None:
    rounds, wake, loops = Rounds(), asyncio.Event(), Loops(Outage())

    async def woken_inside() -> float:
        if rounds.count == 0:
            wake.set()
        return await rounds.round()

    loops.start("one", woken_inside, wake)
    async with asyncio.timeout(10):
        while rounds.count < 2:
            await asyncio.sleep(0)
    assert not wake.is_set(), "it was used up by the second round"
    await loops.stop_all()
    assert rounds.count == 2


async def test_a_loop_whose_round_swallows_its_cancel_ends_after_that_round() -> None:
    begun, loops, rounds = asyncio.Event(), Loops(Outage()), list[int]()

    async def round_() -> float:
        rounds.append(1)
        begun.set()
        with suppress(asyncio.CancelledError):  # as a library did that took the cancel for its own time limit
            await asyncio.sleep(LONG)
        return LONG

    loops.start("one", round_)
    await begun.wait()
    async with asyncio.timeout(10):
        await loops.stop_all()
    assert rounds == [1]


async def test_only_a_vital_loop_ends_the_process_after_too_many_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops_module, "GIVE_UP_AFTER", 3)
    rounds = {"vital": 0, "other": 0}

    def failing(name: str, wake: asyncio.Event) -> Round:
        async def round_() -> float:
            rounds[name] += 1
            wake.set()  # no delay before the next
            await asyncio.sleep(0)  # the other loop and the test have their turns
            raise ZeroDivisionError(name)

        return round_

    loops = Loops(Outage())
    for name in rounds:
        wake = asyncio.Event()
        loops.start(name, failing(name, wake), wake, vital=name == "vital")
    with pytest.raises(ZeroDivisionError, match="vital"):
        await asyncio.wait_for(loops.join(), 10)
    async with asyncio.timeout(10):
        while rounds["other"] < 20:
            await asyncio.sleep(0)
    await loops.stop_all()
    assert rounds["vital"] == 3


async def test_the_first_success_of_anybody_in_the_process_ends_the_delay_of_a_loop_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loops_module, "random", SimpleNamespace(uniform=lambda *_: LONG))  # no delay ends by itself
    outage, rounds = Outage(), Rounds()

    async def away() -> float:
        await rounds.round()
        raise StoreUnavailable("no server accepts connections")

    loops = Loops(outage)
    loops.start("one", away)
    assert await rounds.next() == 1
    async with asyncio.timeout(10):
        while outage.began is None:
            await asyncio.sleep(0)
    await asyncio.to_thread(outage.worked)  # a heartbeat has a thread of its own
    assert await rounds.next() == 2
    await loops.stop_all()
