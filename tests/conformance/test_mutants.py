"""Bite proof: each guard taken out of one store makes a named promise fail. A mutant that lives is a missing test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from rowlock.core.outcome import Released, Succeeded
from rowlock.core.times import FakeClock
from rowlock.store import Store, open_store
from rowlock.store.engine.operation import Steps
from rowlock.store.engine.store import StoreOptions
from rowlock.store.jobs import settle
from support.races.interleave import add_gate, rewrite, watching
from support.rigs import contract
from support.rigs.rig import Rig

postgres_only = pytest.mark.parametrize("engine", ["postgres"], indirect=True)

# What is taken out of which statement (a pattern, and what comes instead), and the promise that must break.
MUTANTS: dict[str, tuple[str, str, str, Callable[[Rig], Awaitable[None]]]] = {
    "settle without the token": (
        "lock_held",
        r"j\.lease_token",
        "mine.token",
        contract.old_tokens_change_nothing,
    ),
    "beat without the token": (
        "beat",
        r"j\.lease_token",
        "mine.token",
        contract.old_tokens_change_nothing,
    ),
    "progress without the token": (
        "progress",
        r"lease_token = reported\.token",
        "reported.token IS NOT NULL",
        contract.old_tokens_change_nothing,
    ),
    "a claim that counts no attempt": (
        "claim",
        r"attempt = attempt \+ 1",
        "attempt = attempt + 0",
        contract.every_claim_counts_one_attempt,
    ),
    "a requeue that counts an attempt": (
        "requeue",
        r"releases = releases \+",
        "attempt = attempt + 1, releases = releases +",
        contract.every_claim_counts_one_attempt,
    ),
    "a requeue without the settled token": (
        "requeue",
        r"settled_token = .*,\n",
        "settled_token = NULL,\n",
        contract.a_repeated_settle_is_a_duplicate,
    ),
    "a finish without the settled token": (
        "finish_copy",
        r"CASE WHEN final\.by_holder = 1 THEN lease_token ELSE settled_token END",
        "settled_token",
        contract.a_repeated_settle_is_a_duplicate,
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_statement_without_its_guard_is_caught(rig: Rig, mutant: str) -> None:
    name, old, new, promise = MUTANTS[mutant]
    rewrite(rig.store, name, old, new)
    with pytest.raises(AssertionError):
        await promise(rig)


async def test_the_promises_hold_without_a_mutant(rig: Rig) -> None:
    for promise in {promise for *_, promise in MUTANTS.values()}:
        await promise(rig)


@postgres_only
async def test_a_plain_success_without_the_token_is_caught(rig: Rig) -> None:
    rewrite(rig.store, "succeed", r"j\.lease_token = done\.token", "done.token IS NOT NULL")
    with pytest.raises(AssertionError):
        await contract.old_tokens_change_nothing(rig)


async def test_a_settle_that_forgets_the_follow_ups_is_caught(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await contract.follow_ups_come_with_the_final_state(rig)

    def none(*_: Any) -> Steps[list[Any]]:
        yield from ()
        return []

    monkeypatch.setattr(settle, "follow_ups", none)
    with pytest.raises(AssertionError):
        await contract.follow_ups_come_with_the_final_state(rig)


async def test_a_promoter_that_is_too_early_is_caught(rig: Rig) -> None:
    await contract.nothing_starts_before_its_time(rig)
    rewrite(rig.store, "promote", "run_after <=", "run_after >=")
    with pytest.raises(AssertionError):
        await contract.nothing_starts_before_its_time(rig)


async def test_a_sweeper_that_goes_by_age_is_caught(rig: Rig) -> None:
    await contract.a_beating_job_is_never_reclaimed(rig)
    rewrite(rig.store, "expired", "lease_expires_at <", "locked_at <")
    with pytest.raises(AssertionError):
        await contract.a_beating_job_is_never_reclaimed(rig)


# The outage guard: only a server can have been away.


@pytest.fixture
async def restarted(rig: Rig, database: str) -> AsyncIterator[Rig]:
    """A store whose clock stands at the start of the server."""
    ((started,),) = await rig.fetch("SELECT pg_postmaster_start_time()")
    clock = FakeClock(started + timedelta(milliseconds=1))
    store = await open_store(database, StoreOptions(clock=clock))
    yield Rig(store, clock)
    await store.close()


@postgres_only
async def test_a_sweeper_without_the_outage_guard_is_caught(restarted: Rig) -> None:
    await contract.an_outage_is_not_the_death_of_every_worker(restarted, guard=60)
    rewrite(restarted.store, "expired", "<= 0 OR", ">= 0 OR")
    restarted.clock.move(-10_000)
    with pytest.raises(AssertionError):
        await contract.an_outage_is_not_the_death_of_every_worker(restarted, guard=60)


# The claim has two guards against a job with two owners: the row lock inside and the state check outside. Either is
# enough for a snapshot that is older than another claim; without both, one job gets two owners.

LOCK, CHECK = ("FOR UPDATE SKIP LOCKED", ""), (r" AND j\.ready\s+RETURNING", " RETURNING")


@pytest.fixture
async def late(database: str, clock: FakeClock) -> AsyncIterator[Store]:
    """A second store, whose claims wait at the gate after they took their snapshot."""
    store = await open_store(database, StoreOptions(clock=clock))
    add_gate(store)
    yield store
    await store.close()


@pytest.fixture
async def watcher(database: str) -> AsyncIterator[Any]:
    async with watching(database) as connection:
        yield connection


@postgres_only
@pytest.mark.parametrize("taken_out", [(), (LOCK,), (CHECK,)], ids=["nothing", "the lock", "the check"])
async def test_a_claim_with_one_of_its_guards_has_one_claimer(
    rig: Rig, late: Store, clock: FakeClock, watcher: Any, taken_out: tuple[tuple[str, str], ...]
) -> None:
    for old, new in taken_out:
        rewrite(late, "claim", old, new)
    await contract.a_job_has_one_claimer(rig, Rig(late, clock), watcher)


@postgres_only
async def test_a_claim_without_lock_and_outer_state_check_is_caught(
    rig: Rig, late: Store, clock: FakeClock, watcher: Any
) -> None:
    for old, new in (LOCK, CHECK):
        rewrite(late, "claim", old, new)
    with pytest.raises(AssertionError):
        await contract.a_job_has_one_claimer(rig, Rig(late, clock), watcher)


async def test_a_mutant_of_one_store_leaves_others_alone(rig: Rig, database: str) -> None:
    rewrite(rig.store, "claim", r"attempt = attempt \+ 1", "attempt = attempt + 5")
    other = await open_store(database, StoreOptions(clock=rig.clock))
    try:
        whole = Rig(other, rig.clock)
        job = await whole.running()
        assert job.attempt == 1
        assert await whole.settle(job, Released(0)) == "applied"
        (job,) = await rig.claim()
        assert (await rig.row(job.id))["attempt"] == 6
        assert await whole.settle(job, Succeeded()) == "applied"
    finally:
        await other.close()
