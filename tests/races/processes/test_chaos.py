"""Every fault at once, in an order that a seed decides. The seed is printed; RACE_SEED=… replays it."""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from support.races.proxy import CLAIM, SUCCEED, Proxy
from support.races.rig import LEASE, Race, Worker, until
from support.servers.postgres import PostgresServer

MIX = [("work", 5)] * 12 + [("work", 300)] * 4 + [("flaky", None)] * 2 + [("thread", 20), ("effect", 5)]


class Chaos:
    """Workers on one database, and everything that happens to them."""

    def __init__(self, race: Race, seed: int, proxy: Proxy | None, server: PostgresServer | None) -> None:
        self.race, self.proxy, self.server = race, proxy, server
        self.chance, self.mix = random.Random(seed), random.Random(seed + 1)
        self.crew: list[Worker] = []
        self.done: list[str] = []
        self.faults: list[Callable[[], Awaitable[None]]] = [self.kill, self.kill, self.freeze, self.deploy]
        if proxy and server:
            self.faults += [self.end_sessions, self.cut, self.blackhole, self.lose_reply, self.restart]

    async def start(self) -> None:
        """One more worker; a start may fail when the database does, and is then tried again, as supervisors do."""
        for _ in range(5):
            worker = self.race.start(self.proxy.url if self.proxy else None)
            await until(lambda w=worker: w.started or not w.alive, 30, worker.log)  # type: ignore[misc]
            if worker.alive:
                self.crew.append(worker)
                return
        raise AssertionError(self.race.story())

    def _take(self) -> Worker:
        return self.crew.pop(self.chance.randrange(len(self.crew)))

    async def kill(self) -> None:
        self._take().kill()
        await self.start()

    async def freeze(self) -> None:
        with self.race.frozen(self.chance.choice(self.crew)):
            await asyncio.sleep(self.chance.choice([0.3, 0.8, 1.5, 2.5]) * LEASE)

    async def deploy(self) -> None:
        await self.start()
        assert await self._take().stop() == 0

    async def end_sessions(self) -> None:
        self.race.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'rowlock%%' AND random() < 0.4 AND pid <> pg_backend_pid()"
        )

    async def cut(self) -> None:
        assert self.proxy
        self.proxy.cut()

    async def blackhole(self) -> None:
        assert self.proxy
        self.proxy.blackhole()
        await asyncio.sleep(self.chance.choice([0.5, 1.0, 2.0]) * LEASE)
        self.proxy.mend()

    async def lose_reply(self) -> None:
        assert self.proxy
        self.proxy.drop_reply(self.chance.choice([b"COMMIT", CLAIM, SUCCEED]))

    async def restart(self) -> None:
        assert self.server
        await asyncio.to_thread(self.server.restart, "immediate")

    async def run(self, seconds: float) -> None:
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            fault = self.chance.choice(self.faults)
            self.done.append(fault.__name__)
            await fault()
            await asyncio.sleep(self.chance.uniform(0.2, 2.0))

    async def produce(self, seconds: float) -> None:
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            task, ms = self.mix.choice(MIX)
            try:
                await self.race.enqueue(task, 5, **({} if ms is None else {"ms": ms}))
            except Exception as error:  # not accepted: it may be there or not, and the ledger does not count it
                self.done.append(f"enqueue: {type(error).__name__}")
            await asyncio.sleep(0.05)


@pytest.fixture
async def chaos(engine: str, url: str, tmp_path: Path) -> AsyncIterator[Chaos]:
    seed = int(os.environ.get("RACE_SEED") or random.SystemRandom().randrange(10**6))
    print(f"RACE_SEED={seed}")
    async with AsyncExitStack() as exits:
        server = proxy = None
        if engine == "postgres":
            server = exits.enter_context(PostgresServer(fsync="off"))
            url = server.create_database("chaos")
            await (await open_store(url, StoreOptions(migrate=True))).close()
            proxy = await exits.enter_async_context(Proxy(url))
        race = Race(url, tmp_path)
        await race.open()
        exits.push_async_callback(race.close)
        race.query("CREATE TABLE effects (job text, attempt int)")
        yield Chaos(race, seed, proxy, server)


@pytest.mark.soak
async def test_under_every_fault_at_once_nothing_is_lost_and_every_job_has_one_outcome(chaos: Chaos) -> None:
    race, seconds = chaos.race, float(os.environ.get("RACE_SECONDS") or 60)
    for _ in range(3):
        await chaos.start()
    await asyncio.gather(chaos.run(seconds), chaos.produce(seconds))
    chaos.done.append("drain")
    await until(lambda: all(worker.alive for worker in chaos.crew), 1, race.story)
    await race.until_done(60)
    # A failed reply may hide an enqueue that did happen: such jobs were never accepted, and may have run.
    ours = set(race.accepted)
    strangers = [job for job in race.rows() if job not in ours]
    race.accepted += strangers
    race.judge(state=None)
    rows = race.rows()
    dead = {job: row for job, row in rows.items() if row.state != "succeeded"}
    why = race.query("SELECT task, state, attempt, error_code, error_message FROM {t}jobs WHERE state <> 'succeeded'")
    assert not dead, f"{len(dead)} jobs: {why[:3]}\n{chaos.done}\n{race.story()}"
    effects = sorted(job for (job,) in race.query("SELECT job FROM effects"))
    expected = sorted(str(job) for (job,) in race.query("SELECT id FROM {t}jobs WHERE task = 'effect'"))
    assert effects == expected
    race.check_numbers()
    print(
        f"{len(rows)} jobs, {len(strangers)} not accepted, {sum(r.losses for r in rows.values())} losses; {chaos.done}"
    )
