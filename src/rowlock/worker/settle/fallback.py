"""Replacements for outcomes that the database refuses or that `decide` cannot handle, so that no job stays running."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextlib import suppress

from rowlock.core.job import Claimed
from rowlock.core.outcome import Failed
from rowlock.core.policy import Transition, decide
from rowlock.core.states import Outcome, State
from rowlock.signals.job_fields import job_fields
from rowlock.store.engine.store import Store
from rowlock.store.jobs import settle
from rowlock.store.upkeep import bad_rows
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.classify import internal

log = logging.getLogger("rowlock.worker")

UNSTORABLE = "UNSTORABLE"


async def write_alone(
    store: Store,
    attempt: LiveAttempt,
    transition: Transition,
    keep: settle.Keep,
    tell: Callable[[dict[str, settle.Answer]], None],
) -> Transition | None:
    """Write one outcome; returns what is to be written in a later round, if anything. That is the outcome itself if the
    database cannot be reached; if it is refused, first the failure UNSTORABLE with a fixed text, then that without the
    follow-up. If even that is refused, the job is set aside, and not run again."""
    job = attempt.job
    try:
        await settle.settle(store, [(job, transition)], keep, tell)
        return None
    except bad_rows.OUTAGE:
        return transition
    except Exception as error:
        refused = error
    with suppress(Exception):
        log.error("the outcome of job %s cannot be stored: %s", job.id, refused, extra=job_fields(job))
    if (instead := unstorable(job, transition)) is not None:
        return instead
    if job.on_dead is not None:
        log.error("job %s ends without its follow-up", job.id, extra=job_fields(job))
        attempt.job = job._replace(on_success=None, on_dead=None)
        return transition
    try:
        await bad_rows.put(store, job.id, "settle", refused, again=None)
    except bad_rows.OUTAGE:
        return transition
    tell({job.id: "lost"})
    return None


def unstorable(job: Claimed, refused: Transition) -> Transition | None:
    """The transition to write instead of a refused one; None if that was refused already, or cannot be decided."""
    if refused.error_code == UNSTORABLE:
        return None
    permanent = refused.outcome is Outcome.SUCCEEDED
    end = Failed(UNSTORABLE, "the outcome of this attempt could not be stored", permanent=permanent)
    try:
        return decide(job, end, random.random())
    except Exception:  # its row holds values that `decide` cannot handle
        return None


def undecided(job: Claimed, broken: Exception) -> Transition:
    """The transition after `decide` has raised: an internal failure without the job's own backoff; dead if `decide`
    raises again."""
    failed = internal(job, "what follows the attempt could not be decided", broken)
    try:
        return decide(job._replace(backoff=None), failed, random.random())
    except Exception:
        return Transition(State.DEAD, Outcome.FAILED, error_code=failed.code, error_message=failed.message)
