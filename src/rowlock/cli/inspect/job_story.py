"""`rowlock jobs show`: a job's options, attempts, lease and outcome, and why it is in its state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rowlock.cli.kit.output import record, words
from rowlock.core.errors import JobNotFound
from rowlock.core.job import Attempt, Job
from rowlock.core.states import State

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.read.explain import Explanation

LABEL = 12


@dataclass(frozen=True, slots=True)
class Story:
    job: Job
    attempts: list[Attempt]
    why: Explanation

    def as_json(self) -> dict[str, Any]:
        return record(self.job) | {"attempts": self.attempts, "explain": self.why}

    def lines(self) -> Iterator[str]:
        """One labelled line per fact."""
        for label, text in [*_what(self.job), *_attempts(self), *_end(self)]:
            yield f"{label:<{LABEL}}{text}"


async def read(app: Rowlock, job_id: str) -> Story:
    from rowlock.store.read import job_rows

    store = await app.store()
    job = await store.run(job_rows.get(job_id))
    if job is None:
        raise JobNotFound(job_id)
    attempts = await store.run(job_rows.attempts(job.id))
    if job.state is State.SUCCEEDED and job.finished_at is not None:  # successful attempts have no row
        attempts = [
            *attempts,
            Attempt(job.id, job.attempt, "succeeded", job.locked_by, job.started_at, job.finished_at, None, None),
        ]
    return Story(job, attempts, await app.explain(job.id))


def _what(job: Job) -> Iterator[tuple[str, str]]:
    yield "job", job.id
    yield "task", job.task
    yield "state", job.state
    yield "queue", f"{job.queue}, priority {job.priority}"
    for name in ("owner", "source", "tags", "timeout_seconds", "expires_at"):
        if value := getattr(job, name):
            yield name.removesuffix("_seconds"), words(value)
    yield "arguments", words(job.args)
    yield "created", words(job.created_at)
    if job.unreadable:
        yield (
            "unreadable",
            f"{', '.join(job.unreadable)}: shown as stored; a time out of range is shown as the nearest valid one",
        )
    if not job.final and job.run_after > job.created_at:
        yield "not before", words(job.run_after)


def _attempts(story: Story) -> Iterator[tuple[str, str]]:
    yield "attempts", f"{story.job.attempt} made, {story.job.max_attempts} allowed"
    for attempt in story.attempts:
        took = ""
        if attempt.started_at is not None:
            took = f" after {(attempt.finished_at - attempt.started_at).total_seconds():.1f} s"
        by = f" on {attempt.worker}" if attempt.worker else ""
        started = words(attempt.started_at)
        error = brief_error(attempt.error_code, attempt.error_message)
        yield f"  {attempt.attempt}", f"{started}  {attempt.outcome}{took}{by}{f': {error}' if error else ''}"
    job = story.job
    if job.state is State.RUNNING:
        yield f"  {job.attempt}", f"{words(job.locked_at)}  running on {job.locked_by or '-'}"
        yield "lease", f"until {words(job.lease_expires_at)}, last heartbeat {words(job.heartbeat_at)}"


def _end(story: Story) -> Iterator[tuple[str, str]]:
    job = story.job
    if job.progress is not None and not job.final:
        yield "progress", " ".join([f"{job.progress} %", *(line(text) for text in (job.phase, job.message) if text)])
    if job.finished_at is not None:
        yield "finished", words(job.finished_at)
    if job.state is State.SUCCEEDED:
        yield "result", json.dumps(job.result, ensure_ascii=False)
    elif job.error_message:
        yield "error", brief_error(job.error_code, job.error_message)
        stack = story.attempts[-1].traceback if story.attempts else None
        yield from (("", line) for line in (stack.splitlines() if stack else job.error_message.splitlines()[1:]))
    yield "why", line(story.why.text)


def brief_error(code: str | None, message: str | None) -> str:
    """An error in one line, without the code if the message begins with it: both often name the exception."""
    first = (message or "").partition("\n")[0]
    return first if first.startswith(code or "") else f"{code}: {first}".removesuffix(": ")


def line(text: str) -> str:
    """A text as one line, without the traceback below an error message's first line."""
    first, _, rest = text.partition("\n")
    # An explanation may quote an error with its traceback, and continue after a semicolon.
    after = rest.rpartition("; ")[2] if "; " in rest else ""
    return f"{first}; {after}" if after else first
