"""`rowlock jobs show`: a job's options, its attempts, its lease, its end, and why it is in its state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rowlock.cli.kit.output import printable, record, words
from rowlock.core.errors import JobNotFound
from rowlock.core.job import Attempt, Job
from rowlock.core.states import State

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.read.explain import Explanation

LABEL = 12


@dataclass(frozen=True, slots=True)
class Story:
    """A job, its attempts and the explanation of its state."""

    job: Job
    attempts: list[Attempt]
    why: Explanation

    def as_json(self) -> dict[str, Any]:
        """The job's columns, with its attempts and the explanation."""
        return record(self.job) | {
            "attempts": [record(attempt) for attempt in self.attempts],
            "explain": record(self.why),
        }


async def read(app: Rowlock, job_id: str) -> Story:
    """Read the job, its attempts and the explanation from the database."""
    from rowlock.store.read import job_rows

    store = await app.store()
    job = await store.run(job_rows.get(job_id))
    if job is None:
        raise JobNotFound(job_id)
    told = await store.run(job_rows.attempts(job.id))
    return Story(job, [*told, *_last(job)], await app.explain(job.id))


def _last(job: Job) -> Iterator[Attempt]:
    """The attempt that succeeded. Only attempts that did not succeed have rows of their own."""
    if job.state is State.SUCCEEDED and job.finished_at is not None:
        yield Attempt(job.id, job.attempt, "succeeded", job.locked_by, job.started_at, job.finished_at, None, None)


def show(story: Story) -> None:
    """Print the story as text, one labelled line per fact."""
    for label, text in [*_what(story.job), *_attempts(story), *_end(story)]:
        print(f"{label:<{LABEL}}{text}")


def _what(job: Job) -> Iterator[tuple[str, str]]:
    yield "job", job.id
    yield "task", printable(job.task)
    yield "state", job.state
    yield "queue", f"{printable(job.queue)}, priority {job.priority}"
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
        by = f" on {printable(attempt.worker)}" if attempt.worker else ""
        started = words(attempt.started_at)
        said = brief_error(attempt.error_code, attempt.error_message)
        yield f"  {attempt.attempt}", f"{started}  {attempt.outcome}{took}{by}{f': {said}' if said else ''}"
    job = story.job
    if job.state is State.RUNNING:
        yield f"  {job.attempt}", f"{words(job.locked_at)}  running on {printable(job.locked_by or '-')}"
        yield "lease", f"until {words(job.lease_expires_at)}, last heartbeat {words(job.heartbeat_at)}"


def _end(story: Story) -> Iterator[tuple[str, str]]:
    job = story.job
    if job.progress is not None and not job.final:
        yield "progress", " ".join([f"{job.progress} %", *(line(text) for text in (job.phase, job.message) if text)])
    if job.finished_at is not None:
        yield "finished", words(job.finished_at)
    if job.state is State.SUCCEEDED:
        yield "result", printable(json.dumps(job.result, ensure_ascii=False))
    elif job.error_message:
        yield "error", brief_error(job.error_code, job.error_message)
        told = story.attempts[-1].traceback if story.attempts else None
        more = told.splitlines() if told else job.error_message.splitlines()[1:]
        yield from (("", printable(line)) for line in more)
    yield "why", line(story.why.text)


def brief_error(code: str | None, message: str | None) -> str:
    """An error in one line. The code is left out if the message begins with it: both often name the exception."""
    first = (message or "").partition("\n")[0]
    return printable(first if first.startswith(code or "") else f"{code}: {first}".removesuffix(": "))


def line(text: str) -> str:
    """A text as one line, without the stack that an error message carries below its first line."""
    first, _, rest = text.partition("\n")
    # An explanation may quote an error with its stack, and continue after a semicolon.
    after = rest.rpartition("; ")[2] if "; " in rest else ""
    return printable(f"{first}; {after}" if after else first)
