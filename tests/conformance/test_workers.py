"""Workers' signs of life, wake-ups, and pausing queues. Leases depend on none of these rows."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from rowlock.core.errors import NotAllowed, WorkerNotFound
from rowlock.store import queues, workers
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.sqlite.wakeups import send_wakeups
from rowlock.store.engine.store import Wakeups
from support.rigs.rig import Rig


def register(worker: str = "w", wake_address: str | None = None, lease: float = 60) -> Operation[None]:
    return workers.register(worker, "host-1", 42, "1.2.3", ["links", "default"], ["a", "b"], 10, wake_address, lease)


async def test_a_registered_worker_is_listed_with_what_it_said(rig: Rig) -> None:
    await rig.store.run(register())
    (worker,) = await rig.store.run(workers.workers())
    assert (worker.id, worker.hostname, worker.pid, worker.version) == ("w", "host-1", 42, "1.2.3")
    assert (worker.queues, worker.tasks, worker.pool_size) == (("links", "default"), ("a", "b"), 10)
    assert (worker.running, worker.idle, worker.alive) == (0, False, True)
    assert worker.started_at == worker.seen_at == rig.clock.now()


async def test_a_worker_is_alive_until_its_lease_without_a_sign_of_life_ends(rig: Rig) -> None:
    await rig.store.run(register(lease=60))
    rig.clock.move(59)
    assert (await rig.store.run(workers.seen("w", 3, 60))).there
    seen = rig.clock.now()
    rig.clock.move(59)
    (worker,) = await rig.store.run(workers.workers())
    assert (worker.alive, worker.running, worker.seen_at) == (True, 3, seen)
    rig.clock.move(2)
    (worker,) = await rig.store.run(workers.workers())
    assert not worker.alive


async def test_a_worker_whose_row_is_gone_is_told_to_register_again(rig: Rig) -> None:
    assert not (await rig.store.run(workers.seen("w", 0, 60))).there
    assert await rig.store.run(workers.set_idle("w", True, 60)) is False
    await rig.store.run(register())
    assert (await rig.store.run(workers.seen("w", 0, 60))).there


async def test_a_worker_that_is_asked_to_end_hears_it_with_its_sign_of_life(rig: Rig) -> None:
    await rig.store.run(register())
    assert (await rig.store.run(workers.seen("w", 0, 60))).stop is None
    asked = rig.clock.now()
    for how, heard in (("drain", "drain"), ("stop", "stop"), ("drain", "stop")):  # what is urgent stays so
        await rig.store.run(workers.ask_to_stop("w", how))  # type: ignore[arg-type]
        assert (await rig.store.run(workers.seen("w", 0, 60))).stop == heard
        rig.clock.move(1)
    (worker,) = await rig.store.run(workers.workers())
    assert (worker.stop_requested, worker.stop_requested_at) == ("stop", asked)


async def test_a_worker_that_cannot_hear_is_not_asked_to_end(rig: Rig) -> None:
    with pytest.raises(WorkerNotFound, match="'w'"):
        await rig.store.run(workers.ask_to_stop("w", "drain"))
    await rig.store.run(register(lease=60))
    rig.clock.move(61)
    with pytest.raises(NotAllowed, match="sent no heartbeat"):
        await rig.store.run(workers.ask_to_stop("w", "drain"))
    await rig.store.run(workers.seen("w", 0, 60))
    await rig.fetch("UPDATE {t}workers SET version = 'sql' RETURNING id")  # as rowlock.claim writes it
    with pytest.raises(NotAllowed, match="SQL functions"):
        await rig.store.run(workers.ask_to_stop("w", "drain"))


async def test_registering_twice_is_one_worker(rig: Rig) -> None:
    await rig.store.run(register())
    started = rig.clock.now()
    rig.clock.move(10)
    await rig.store.run(register())
    (worker,) = await rig.store.run(workers.workers())
    assert (worker.started_at, worker.seen_at) == (started, started + timedelta(seconds=10))


async def test_workers_that_have_been_silent_for_an_hour_are_forgotten_in_bounded_batches(rig: Rig) -> None:
    for name in ("first", "second", "third"):
        await rig.store.run(register(name))
        rig.clock.move(1)
    rig.clock.move(timedelta(minutes=50))
    await rig.store.run(register("silent"))
    assert await rig.store.run(workers.forget(10)) == 0
    rig.clock.move(timedelta(minutes=11))
    await rig.store.run(register("here"))
    assert await rig.store.run(workers.forget(2)) == 2
    assert [(w.id, w.alive) for w in await rig.store.run(workers.workers())] == [
        ("here", True), ("silent", False), ("third", False)
    ]  # fmt: skip
    assert await rig.store.run(workers.forget(2)) == 1
    assert await rig.store.run(workers.forget(2)) == 0


async def test_living_workers_come_first(rig: Rig) -> None:
    await rig.store.run(register("gone", lease=5))
    await rig.store.run(register("here", lease=500))
    rig.clock.move(10)
    assert [(w.id, w.alive) for w in await rig.store.run(workers.workers())] == [("here", True), ("gone", False)]


async def test_a_lease_does_not_depend_on_its_workers_row(rig: Rig) -> None:
    await rig.store.run(register("w"))
    job = await rig.running(worker="w")
    await rig.store.run(workers.remove("w"))
    assert await rig.reclaim() == []
    await rig.lose(job)
    assert await rig.state(job.id) == "retryable"


async def test_a_paused_queue_is_listed_since_when(rig: Rig) -> None:
    since = rig.clock.now()
    await rig.store.run(queues.pause("links"))
    rig.clock.move(10)
    await rig.store.run(queues.pause("links"))
    assert await rig.store.run(queues.paused()) == {"links": since}
    assert await rig.store.run(queues.resume("links")) is True
    assert await rig.store.run(queues.resume("links")) is False
    assert await rig.store.run(queues.resume("never paused")) is False
    assert await rig.store.run(queues.paused()) == {}


async def test_running_jobs_go_on_in_a_paused_queue(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.run(queues.pause("default"))
    await rig.succeed(job)
    lost = await rig.enqueue()
    assert await rig.claim() == []
    assert await rig.state(lost) == "queued"


class Ear:
    """Receives the wake-ups of a worker. They keep their order, so a mark of our own is the end of what was sent before
    it. A mark has a number: one that was sent twice must not end what is heard after it."""

    def __init__(self, rig: Rig) -> None:
        self._rig, self._marks = rig, 0
        self._messages: asyncio.Queue[str] = asyncio.Queue()

    async def listen(self) -> Wakeups:
        """Its first words are its own, when it begins to listen."""
        self._wakeups = await self._rig.store.listen(self._messages.put_nowait)
        return self._wakeups

    async def heard(self) -> list[str]:
        """Everything said since the last call."""
        found: list[str] = []
        self._marks += 1
        mark = f"mark {self._marks}"
        async with asyncio.timeout(60):
            while True:
                await self._say(mark)
                with suppress(TimeoutError):  # the first marks may be said before the socket is open
                    async with asyncio.timeout(0.5):
                        while (what := await self._messages.get()) != mark:
                            if not what.startswith("mark "):
                                found.append(what)
                        return found

    async def _say(self, mark: str) -> None:
        if self._wakeups.address is None:
            await self._rig.fetch(f"SELECT pg_notify('rowlock', '{mark}')")
        else:
            send_wakeups([self._wakeups.address], mark)


async def test_work_wakes_a_worker_that_sleeps_and_leaves_busy_ones_alone(rig: Rig) -> None:
    ear = Ear(rig)
    wakeups = await ear.listen()
    try:
        await rig.store.run(register("w", wakeups.address, lease=1000))
        await ear.heard()

        await rig.enqueue()
        assert await ear.heard() == []

        await rig.store.run(workers.set_idle("w", True, 1000))
        await rig.enqueue(queue="paused")
        assert await ear.heard() == ["work"]
        await rig.store.run(queues.pause("paused"))
        await rig.store.run(queues.resume("paused"))
        assert await ear.heard() == ["work"]

        dead = await rig.enqueue()
        await rig.cancel(dead)
        assert await ear.heard() == ["work"]
        await rig.retry(dead)
        assert await ear.heard() == ["work"]

        await rig.store.run(workers.set_idle("w", False, 1000))
        await rig.enqueue()
        assert await ear.heard() == []
    finally:
        await wakeups.close()


async def test_a_rolled_back_transaction_sends_no_wake_up(rig: Rig) -> None:
    ear = Ear(rig)
    wakeups = await ear.listen()
    try:
        await rig.store.run(register("w", wakeups.address, lease=1000))
        await rig.store.run(workers.set_idle("w", True, 1000))
        await ear.heard()
        await rig.enqueue()
        assert await ear.heard() == ["work"]
        with suppress(ZeroDivisionError):
            async with rig.store.transaction() as tx:
                await tx.run(queues.resume("default"))
                raise ZeroDivisionError
        assert await ear.heard() == []
    finally:
        await wakeups.close()
