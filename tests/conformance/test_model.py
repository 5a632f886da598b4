"""Random sequences of operations against a model that is a dict, on SQLite, on PostgreSQL, on both at once, and on
the SQL functions of PostgreSQL.

The run on both is the differential test: every answer and every column of every row must be equal. The model is
written from the contract and shares no code with the store.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from rowlock.core.errors import StoreError
from rowlock.core.job import Claimed, NewJob
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Lost, Released, Succeeded, TimedOut
from rowlock.core.policy import fixed
from rowlock.core.times import FakeClock
from rowlock.store import Store, open_store
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import StoreOptions
from rowlock.store.jobs import cancel as cancels
from rowlock.store.jobs import claim, leases
from rowlock.store.jobs import enqueue as enqueue_jobs
from rowlock.store.jobs import retry as retries
from rowlock.store.jobs import settle as transitions
from rowlock.store.jobs.claim import Range
from support.files.functions import FunctionStore, fake_world
from support.races.interleave import rewrite
from support.rigs.rig import KEEP, TABLES, Rig, numbered, settlement
from support.servers.postgres import PostgresDatabases

LEASE, BACKOFF, DRAW = 60.0, 10.0, 0.5
FINAL = ("succeeded", "dead", "cancelled")
ENDS: dict[str, AttemptEnd] = {
    "succeed": Succeeded('{"done": true}'),
    "fail": Failed("E", "no"),
    "time out": TimedOut(3),
    "permanent": Failed("E", "never", permanent=True),
    "release": Released(0),
    "snooze": Released(20),
    "cancelled": Cancelled(),
    "convicted": Lost(convicted=True),
}


class World:
    """Stores that are told the same and must answer the same; one event loop and one clock for all of them."""

    def __init__(self, *urls: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        opened = [self.loop.run_until_complete(open_store(url, StoreOptions(clock=self.clock))) for url in urls]
        self.rigs = [Rig(store, self.clock) for store in opened]
        self.exits = AsyncExitStack()

    def use_functions(self, url: str) -> None:
        """Do by the SQL functions what there is one for."""
        self.loop.run_until_complete(self.exits.enter_async_context(fake_world(url)))
        self.rigs = [Rig(cast(Store, FunctionStore(rig.store, self.clock)), self.clock) for rig in self.rigs]

    def ask(self, question: Callable[[Rig], Any]) -> Any:
        answers = [self.loop.run_until_complete(question(rig)) for rig in self.rigs]
        for rig, answer in zip(self.rigs, answers, strict=True):
            assert answer == answers[0], f"{rig.store.engine} answers something else"
        return answers[0]

    def run(self, op: Operation[Any]) -> Any:
        return self.ask(lambda rig: rig.store.run(op))

    def reset(self) -> None:
        for table in TABLES:
            self.ask(lambda rig, table=table: rig.fetch(f"DELETE FROM {{t}}{table}"))

    def close(self) -> None:
        self.loop.run_until_complete(self.exits.aclose())
        for rig in self.rigs:
            self.loop.run_until_complete(rig.store.close())
        self.loop.close()


@dataclass
class Model:
    """One job, as the contract sees it."""

    priority: int
    max_attempts: int
    on_lost: str | None
    run_after: datetime
    ready: bool
    state: str = "queued"
    attempt: int = 0
    releases: int = 0
    losses: int = 0
    convictions: int = 0
    losses_in_row: int = 0
    probation: int = 0
    token: str | None = None
    lease_ends: datetime | None = None
    settled: str | None = None
    cancel: bool = False
    outcomes: int = 0  # final states written
    retries: int = 0
    claims: list[Claimed] = field(default_factory=list)

    def wait(self, state: str, now: datetime, delay: float) -> None:
        self.state, self.run_after, self.ready = state, now + timedelta(seconds=delay), delay <= 0
        self.token = self.lease_ends = None

    def finish(self, state: str) -> None:
        self.state, self.ready, self.token, self.lease_ends = state, False, None, None
        self.outcomes += 1

    def lose(self, now: datetime, convicted: bool) -> None:
        delay = DRAW * 2 ** min(self.losses_in_row, 6)
        if self.losses_in_row == 0:  # a loss during the probation after an earlier one doubles it
            self.probation = 200 if self.probation else 100
        self.losses, self.losses_in_row = self.losses + 1, self.losses_in_row + 1
        self.convictions += convicted
        if self.cancel:
            self.finish("cancelled")
        elif (convicted and self.convictions >= 2) or self.on_lost == "dead" or self.losses_in_row >= 10:
            self.finish("dead")
        else:
            self.wait("retryable", now, delay)

    def end(self, how: str, now: datetime) -> None:
        out_of_tries = self.attempt - self.releases - self.losses >= self.max_attempts
        if how == "succeed":
            self.finish("succeeded")
        elif how == "permanent" or (how in ("fail", "time out") and out_of_tries):
            self.finish("dead")
        elif how == "convicted" and (self.convictions == 1 or self.on_lost == "dead" or self.losses_in_row == 9):
            self.cancel = False  # the worker that says so had not heard of a cancel
            self.lose(now, True)
        elif how == "cancelled" or self.cancel:  # a job to be cancelled does not go back to waiting
            self.finish("cancelled")
        elif how in ("release", "snooze"):
            self.releases += 1
            self.come_back()
            self.wait("queued", now, 20 if how == "snooze" else 0)
        elif how == "convicted":
            self.lose(now, True)
        else:
            self.come_back()
            self.wait("retryable", now, BACKOFF * 1.1)

    def come_back(self) -> None:
        self.losses_in_row, self.probation = 0, max(self.probation - 1, 0)


class Machine(RuleBasedStateMachine):
    """The rules. `world` is set by the test that runs it."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.world.reset()
        self.jobs: dict[str, Model] = {}
        self.leases: list[Claimed] = []  # every lease there ever was
        self.last: tuple[Claimed, str, str] | None = None
        self.seen: dict[str, tuple[int, int, dict[str, Any]]] = {}
        self.tokens = 0

    @property
    def now(self) -> datetime:
        return self.world.clock.now()

    def token(self) -> str:
        self.tokens += 1
        return str(uuid.UUID(int=self.tokens, version=4))

    def in_state(self, *states: str) -> list[Model]:
        return [job for job in self.jobs.values() if job.state in states]

    @rule(
        priority=st.integers(-1, 1),
        delay=st.sampled_from([0, 0, 5]),
        tries=st.integers(1, 3),
        on_lost=st.sampled_from([None, None, "dead"]),
        count=st.integers(1, 2),
    )
    def enqueue(self, priority: int, delay: int, tries: int, on_lost: str | None, count: int) -> None:
        ids = [numbered(len(self.jobs) + n) for n in range(count)]
        backoff = fixed(seconds=BACKOFF).to_json()
        new = NewJob("t", priority=priority, delay=delay, max_attempts=tries, on_lost=on_lost, backoff=backoff)
        self.world.run(enqueue_jobs.enqueue([(job_id, "{}") for job_id in ids], new))
        due = self.now + timedelta(seconds=delay)
        self.jobs |= {job_id: Model(priority, tries, on_lost, due, delay == 0) for job_id in ids}

    @rule(n=st.integers(1, 3), worker=st.sampled_from(["w1", "w2"]))
    def claim(self, n: int, worker: str) -> None:
        token = self.token()
        claimed = self.world.run(claim.claim(worker, token, [Range("default", "t")], n, LEASE))
        ready = sorted((job.priority, job_id) for job_id, job in self.jobs.items() if job.ready)
        assert [(job.priority, job.id) for job in claimed] == ready[:n]
        for lease in claimed:
            job = self.jobs[lease.id]
            job.state, job.ready, job.token, job.attempt = "running", False, token, job.attempt + 1
            job.lease_ends = self.now + timedelta(seconds=LEASE)
            job.claims.append(lease)
            assert (lease.attempt, lease.losses, lease.releases) == (job.attempt, job.losses, job.releases)
            assert (lease.losses_in_row, lease.probation) == (job.losses_in_row, job.probation)
        self.leases += claimed

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), how=st.sampled_from(sorted(ENDS)), forged=st.sampled_from([False] * 5 + [True]))
    def settle(self, data: Any, how: str, forged: bool) -> None:
        lease = self.pick_lease(data)
        self.apply(lease, how, self.token() if forged else lease.token)

    @precondition(lambda self: self.last)
    @rule(how=st.none() | st.sampled_from(sorted(ENDS)))
    def settle_again(self, how: str | None) -> None:
        assert self.last
        lease, before, token = self.last
        self.apply(lease, how or before, token)

    def apply(self, lease: Claimed, how: str, token: str) -> None:
        job = self.jobs[lease.id]
        answers = self.world.run(transitions.apply([settlement(lease, ENDS[how], under=token, draw=DRAW)], KEEP))
        if job.token == token:
            assert answers == {lease.id: "applied"}
            job.settled = token
            job.end(how, self.now)
            self.last = lease, how, token
        else:
            assert answers == {lease.id: "duplicate" if job.settled == token else "lost"}

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), lease_seconds=st.sampled_from([60, 600]), forged=st.sampled_from([False] * 4 + [True]))
    def beat(self, data: Any, lease_seconds: int, forged: bool) -> None:
        lease = self.pick_lease(data)
        token = self.token() if forged else lease.token
        self.world.run(leases.beat([(lease.id, token)], lease_seconds))
        if self.jobs[lease.id].token == token:
            self.jobs[lease.id].lease_ends = self.now + timedelta(seconds=lease_seconds)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), percent=st.integers(0, 99))
    def progress(self, data: Any, percent: int) -> None:
        lease = self.pick_lease(data)
        told = self.world.run(leases.progress([(lease.id, lease.token, percent, "p", None)]))
        assert told == ({lease.id} if self.jobs[lease.id].token == lease.token else set())

    def pick_lease(self, data: Any) -> Claimed:
        """A lease that still holds, mostly; any that there ever was, sometimes."""
        held = [lease for lease in self.leases if self.jobs[lease.id].token == lease.token]
        pool = held if held and data.draw(st.integers(0, 3)) else self.leases
        lease: Claimed = data.draw(st.sampled_from(pool))
        return lease

    @rule(seconds=st.sampled_from([0.5, 5, 11, 61, 700]))
    def move_clock(self, seconds: float) -> None:
        self.world.clock.move(seconds)

    @rule(late=st.booleans())
    def reclaim(self, late: bool) -> None:
        if late:
            self.world.clock.move(LEASE + 1)
        lost = self.world.run(leases.reclaim([DRAW] * 100, 0, KEEP))
        ended = {job_id for job_id, job in self.jobs.items() if job.lease_ends and job.lease_ends < self.now}
        assert {reclaimed.job.id for reclaimed in lost} == ended
        for job_id in ended:
            self.jobs[job_id].lose(self.now, False)

    @rule()
    def promote(self) -> None:
        promoted, until_next = self.world.run(claim.promote(100))
        waiting = [job for job in self.in_state("queued", "retryable") if not job.ready]
        due = [job for job in waiting if job.run_after <= self.now]
        later = [(job.run_after - self.now).total_seconds() for job in waiting if job not in due]
        assert promoted == len(due)
        assert until_next == (pytest.approx(min(later)) if later else None)
        for job in due:
            job.ready = True

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)))
        job, answer = self.jobs[job_id], self.world.run(cancels.cancel([job_id], KEEP))[job_id]
        if job.state == "running":
            assert answer == "cancelling"
            job.cancel = True
        elif job.state in FINAL:
            assert answer == ("cancelled" if job.state == "cancelled" else "final")
        else:
            assert answer == "cancelled"
            job.finish("cancelled")

    @precondition(lambda self: self.in_state(*FINAL))
    @rule(data=st.data(), tries=st.integers(1, 2))
    def retry(self, data: Any, tries: int) -> None:
        over = [job_id for job_id, job in self.jobs.items() if job.state in ("dead", "cancelled")]
        job_id = data.draw(st.sampled_from(over if over and data.draw(st.integers(0, 3)) else list(self.jobs)))
        job = self.jobs[job_id]
        revived = self.world.run(retries.retry([job_id], tries))
        assert revived == ({job_id} if job.state in ("dead", "cancelled") else set())
        if revived:
            job.max_attempts = max(job.max_attempts, job.attempt - job.releases - job.losses + tries)
            job.state, job.ready, job.run_after, job.cancel = "queued", True, self.now, False
            # The operator has mended what took the worker down.
            job.convictions = job.losses_in_row = job.probation = 0
            job.retries += 1

    @invariant()
    def the_rows_are_those_of_the_model(self) -> None:
        rows = self.world.ask(lambda rig: rig.rows())
        assert set(rows) == set(self.jobs)
        for job_id, job in self.jobs.items():
            row = rows[job_id]
            counts = ("state", "attempt", "max_attempts", "releases", "losses", "priority")
            assert {name: row[name] for name in counts} == {name: getattr(job, name) for name in counts}, job_id
            assert (row["lease_token"], row["lease_expires_at"]) == (job.token, job.lease_ends), job_id
            assert (row["cancel_requested_at"] is not None) == job.cancel or job.state in FINAL, job_id
            if job.state in ("queued", "retryable"):
                assert abs(row["run_after"] - job.run_after) < timedelta(milliseconds=1), job_id
            # Laws that need no model of the operations.
            assert row["attempt"] == len(job.claims), "claims are not attempts"
            assert job.outcomes - job.retries == (job.state in FINAL), "not one outcome"
            attempt, retries, before = self.seen.get(job_id, (0, 0, {}))
            assert row["attempt"] >= attempt, "attempt went back"
            if before.get("state") in FINAL and retries == job.retries:
                assert row == before, "final was not final"
            self.seen[job_id] = row["attempt"], job.retries, row

    @invariant()
    def a_job_has_one_live_lease(self) -> None:
        every = [(lease.id, lease.token) for lease in self.leases]
        held = self.world.run(leases.held(every))
        assert held == {job_id: job.cancel for job_id, job in self.jobs.items() if job.state == "running"}

    def teardown(self) -> None:
        for job_id, job in self.jobs.items():
            ended = self.world.ask(lambda rig, job_id=job_id: rig.attempts(job_id))
            succeeded = job.state == "succeeded"
            assert [attempt[0] for attempt in ended] == list(
                range(1, job.attempt + 1 - (succeeded or job.state == "running"))
            )


@pytest.fixture(scope="module", params=["both engines", "functions"])
def world(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: PostgresDatabases,
    template: str,
) -> Iterator[World]:
    name = f"rowlock_model_{uuid.uuid4().hex[:12]}"
    urls = [postgres_server.create_database(name, template=template)]
    if request.param == "both engines":
        urls.append(f"sqlite:///{tmp_path_factory.mktemp('model') / 'jobs.db'}")
    world = World(*urls)
    if request.param == "functions":
        world.use_functions(urls[0])
    yield world
    world.close()
    postgres_server.drop_database(name)


def play(world: World, examples: int, steps: int, **how: Any) -> None:
    machine = type("StoreMachine", (Machine,), {"world": world})
    common = {"database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}
    how = {"max_examples": examples, "stateful_step_count": steps, **common, **how}
    run_state_machine_as_test(machine, settings=settings(**how))


def test_the_store_behaves_as_the_model(world: World) -> None:
    # The same games on every push; the soak plays new ones.
    play(world, examples=20, steps=30, derandomize=True)


MUTANTS = {
    "claim": (r"attempt = attempt \+ 1", "attempt = attempt + 0"),
    "expired": ("lease_expires_at <", "locked_at <"),
    "promote": ("run_after <=", "run_after >="),
    # Found too, but later.
    "lock_held": (r"j\.lease_token", "mine.token"),
    "requeue": (r"settled_token = .*,\n", "settled_token = lease_token,\n"),
    "revive": (r"attempt,\n", "0,\n"),
}
SOON = ("claim", "expired", "promote")


@pytest.mark.parametrize(
    "name", [name if name in SOON else pytest.param(name, marks=pytest.mark.soak) for name in MUTANTS]
)
def test_the_model_finds_a_store_without_a_guard(tmp_path: Path, name: str) -> None:
    world = World(f"sqlite:///{tmp_path}/jobs.db")
    try:
        rewrite(world.rigs[0].store, name, *MUTANTS[name])
        with pytest.raises((AssertionError, StoreError)):
            play(world, examples=100, steps=50, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
    finally:
        world.close()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_store_behaves_as_the_model_for_long(world: World) -> None:
    play(world, examples=2000, steps=60)
