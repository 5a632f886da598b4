"""`policy.decide` in Python and the settling functions in SQL are one rule: for any job and any end, the same row."""

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Lost, Released, Succeeded, TimedOut
from rowlock.core.policy import Backoff, Streaks, Transition, decide
from rowlock.core.states import FINAL, Outcome
from rowlock.store.jobs.settle import CANCELLED
from support.each import each
from support.rigs.rig import Claimed, Rig, settlement, token


@pytest.fixture
def engine() -> str:
    return "functions"


seconds = st.floats(0, 1e6, allow_nan=False)
backoffs = st.builds(
    Backoff, st.sampled_from(["fixed", "exponential"]), seconds, st.floats(0, 1e6), st.floats(1, 100)
).map(Backoff.to_json)
# What another program may have written into the row: the default backoff holds then.
odd = st.sampled_from(['{"kind": "linear", "base": 1}', "5", "null", '{"kind": "fixed"}', "[]", '{"base": 2}'])
short = st.sampled_from(
    [
        '{"kind": "fixed", "base": 5}',
        '{"kind": "exponential", "base": 2}',
        '{"kind": "exponential", "base": 2, "cap": 9}',
    ]
)
failures = st.builds(
    Failed,
    code=st.sampled_from(["E", "HTTP_500"]),
    message=st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1, max_size=20),
    after=st.none() | seconds,
    permanent=st.booleans(),
    backoff=st.none() | backoffs,
    fault=st.none() | st.sampled_from(["source", "refusal"]),
    retry_after=st.none() | seconds,
)
ends = (
    failures
    | st.builds(TimedOut, st.integers(1, 100))
    | st.builds(Released, seconds, st.sampled_from(["released", "shutdown"]))
    | st.just(Cancelled())
    | st.just(Lost(convicted=True))
    | st.just(Succeeded('{"a": 1}'))
)


@st.composite
def counts(draw: Any) -> dict[str, Any]:
    attempt = draw(st.integers(1, 30))
    releases = draw(st.integers(0, attempt - 1))
    losses = draw(st.integers(0, attempt - 1 - releases))
    return {
        "attempt": attempt,
        "releases": releases,
        "losses": losses,
        "convictions": draw(st.integers(0, min(losses, 2))),
        "losses_in_row": (in_row := draw(st.integers(0, min(losses, 12)))),
        "probation": draw(st.integers(1 if in_row else 0, 200)),
        "sigterms_in_row": draw(st.integers(0, releases)),
        "disconnects_in_row": draw(st.integers(0, releases)),
        "max_attempts": draw(st.integers(1, 30)),
        "on_lost": draw(st.none() | st.just("dead")),
        "backoff": draw(st.none() | backoffs | odd | short),
    }


# A job in its first attempt. The cases that are drawn seldom have a try left after a failure with a Retry-After.
FRESH: dict[str, Any] = {
    **dict.fromkeys(("releases", "losses", "convictions", "losses_in_row", "probation"), 0),
    **dict.fromkeys(("sigterms_in_row", "disconnects_in_row"), 0),
    **{"attempt": 1, "max_attempts": 5, "on_lost": None, "backoff": None},
}


def decided(job: Claimed, end: AttemptEnd, draw: float, cancel: bool) -> Transition:
    """What Python writes: its worker decides, and the store cancels what would go back to waiting."""
    transition = decide(job, end, draw)
    return CANCELLED if cancel and transition.state not in FINAL else transition


async def check(rig: Rig, job: dict[str, Any], end: AttemptEnd, draw: float, cancel: bool) -> None:
    for table in ("jobs_live", "jobs_finished", "attempts", "sources"):
        await rig.fetch(f"DELETE FROM {{t}}{table}")
    held = Claimed(rig.new_id(), "t", token=token(), worker="w", **job)
    names = ", ".join(job)
    values = ", ".join(f"${n}::{'text::json' if name == 'backoff' else 'text' if name == 'on_lost' else 'int'}"
                       for n, name in enumerate(job, 3))  # fmt: skip
    await rig.fetch(
        f"INSERT INTO {{t}}jobs_live (id, lease_token, {names}, task, queue, args, state, ready, run_after, locked_by,"
        " locked_at, lease_expires_at, cancel_requested_at, created_at, updated_at)"
        f" VALUES ($1::text::uuid, $2::text::uuid, {values}, 't', 'default', '{{}}', 'running', FALSE, now(), 'w',"
        f" now(), now(), {'now()' if cancel else 'NULL'}, now(), now())",
        held.id, held.token, *job.values(),
    )  # fmt: skip
    assert await rig.settle_all([settlement(held, end, draw=draw)]) == {held.id: "applied"}
    wanted = decided(held, end, draw, cancel)
    row = await rig.row(held.id)
    assert row["state"] == wanted.state
    assert (row["attempt"], row["max_attempts"]) == (held.attempt, held.max_attempts)
    assert row["releases"] == held.releases + wanted.released
    assert row["losses"] == held.losses + wanted.lost
    assert (row["error_code"], row["error_message"]) == (wanted.error_code, wanted.error_message)
    assert row["settled_token"] == held.token
    if wanted.state not in FINAL:
        due = rig.clock.now() + timedelta(seconds=wanted.delay)
        assert abs(row["run_after"] - due) < timedelta(milliseconds=1)
        streaks = await rig.fetch(f"SELECT {', '.join(Streaks._fields)} FROM {{t}}jobs_live")
        assert streaks == [wanted.streaks]
    recorded = [] if wanted.outcome is Outcome.SUCCEEDED else [(held.attempt, wanted.outcome, wanted.error_code, "w")]
    assert await rig.attempts(held.id) == recorded


async def test_fail_and_release_decide_as_python_does(rig: Rig) -> None:
    cases: list[tuple[Any, ...]] = []

    @settings(max_examples=150, database=None, derandomize=True)
    @given(counts(), ends, st.floats(0, 1, exclude_max=True), st.sampled_from([False] * 4 + [True]))
    @example(FRESH, Failed("HTTP_429", "slow down", retry_after=600.0), 0.5, False)
    @example(FRESH, Failed("HTTP_429", "slow down", after=900.0, retry_after=600.0), 0.5, False)
    def collect(job: dict[str, Any], end: AttemptEnd, draw: float, cancel: bool) -> None:
        cases.append((job, end, draw, cancel))

    collect()
    for case in cases:
        try:
            await check(rig, *case)
        except AssertionError as error:
            raise AssertionError(f"{case}") from error
    states = {decided(Claimed("x", "t", **job), end, draw, cancel).state for job, end, draw, cancel in cases}
    assert states == {"queued", "retryable", "succeeded", "dead", "cancelled"}, "the cases miss a state"


@each("losses", range(12))
async def test_a_lease_that_ran_out_is_lost_as_python_decides(rig: Rig, database: str, losses: int) -> None:
    for on_lost, cancel in ((None, False), ("dead", False), (None, True)):
        job = await rig.running(on_lost=on_lost)
        set_all = "UPDATE {t}jobs_live SET losses = $1 + 20, losses_in_row = $1, probation = $2, attempt = $1 + 21"
        await rig.fetch(set_all, losses, 100 if losses else 0)
        if cancel:
            await rig.cancel(job.id)
        rig.clock.move(61)
        before = job._replace(
            losses=losses + 20, losses_in_row=losses, probation=100 if losses else 0, attempt=losses + 21,
            cancel_requested=cancel,
        )  # fmt: skip
        wanted = decide(before, Lost(worker="worker-1"), 0.5)
        store: Any = rig.store
        assert await store.call("SELECT reclaimed, expired FROM rowlock.sweep(100, 0)") == [(1, 0)]
        row = await rig.row(job.id)
        got = (row["state"], row["losses"], row["error_code"], row["error_message"], row["settled_token"])
        assert got == (wanted.state, losses + 21, wanted.error_code, wanted.error_message, None)
        if wanted.state == "retryable":
            streaks = await rig.fetch(f"SELECT {', '.join(Streaks._fields)} FROM {{t}}jobs_live")
            assert streaks == [wanted.streaks]
            assert abs(row["run_after"] - rig.clock.now() - timedelta(seconds=wanted.delay)) < timedelta(milliseconds=1)
        await rig.fetch("DELETE FROM {t}jobs_live")


async def test_the_backoff_of_the_hint_is_what_the_function_uses(database: str) -> None:
    """A plain call, without the test's clock: the delay lies within the jitter of the stored backoff."""
    stored = json.dumps({"backoff": {"kind": "fixed", "base": 100}})
    with psycopg.connect(database) as connection:
        connection.execute("SELECT rowlock.enqueue('t', '{}', %s)", [stored])
        ((job_id, held),) = connection.execute("SELECT job_id, token FROM rowlock.claim('w', '{t}')").fetchall()
        connection.execute("SELECT rowlock.fail(%s, %s, 'no')", [job_id, held])
        ((delay,),) = connection.execute(
            "SELECT extract(epoch FROM run_after - updated_at) FROM rowlock.jobs_live"
        ).fetchall()
    assert 100 <= delay <= 120
