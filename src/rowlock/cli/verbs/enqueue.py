"""`rowlock enqueue TASK key=value …`, and the options for new jobs that it shares with `schedules add`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli.kit.options import given, read_duration, read_moment
from rowlock.cli.kit.target import DataTarget, audited
from rowlock.core.errors import InvalidArguments, JobNotFound, RowlockError

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.kit.target import Target
    from rowlock.client.handles.job import JobHandle
    from rowlock.client.tasks.task import Task

UNIQUE = (None, "until_done", "while_queued", "forever")  # or a duration
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="The task's name")]
Pairs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Arguments of the task, as JSON or text", show_default=False),
]
DefaultsOption = Annotated[
    bool,
    typer.Option("--defaults", help="Without --app: allow a task that no worker has registered, with default options"),
]


@dataclasses.dataclass(frozen=True, slots=True)
class NewJobOptions:
    """Options of the new job, or of each job of the schedule."""

    queue: Annotated[str | None, typer.Option(help="Queue [default: the task's queue]")] = None
    priority: Annotated[int | None, typer.Option(help="-100 (starts first) to 100 (starts last)")] = None
    owner: Annotated[str | None, typer.Option(help="Who may see the job through the job API")] = None
    source: Annotated[str | None, typer.Option(help="The outside service that the job calls, e.g. api:ebay")] = None
    max_attempts: Annotated[int | None, typer.Option(help="How many tries may fail before the job is dead")] = None


async def task_named(
    app: Rowlock, target: Target, name: str, options: NewJobOptions, *, defaults: bool
) -> Task[..., Any, Any]:
    """The task with this name. Without the app's code, it takes any arguments and has the options that its worker
    stored; if there are none, `defaults` allows default options instead of an error."""
    if target.code:
        return app.get_task(name)
    from rowlock.client.tasks.registry import stored_task

    how = "; name your app with --app, or give --defaults to use default options"
    return await stored_task(app, name, options.source, defaults=defaults, how=how)


def enqueue(
    options: NewJobOptions,
    target: DataTarget,
    task: TaskName,
    pairs: Pairs = None,
    args: Annotated[str | None, typer.Option(metavar="JSON", help="Arguments as one JSON object")] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start no earlier than this long from now: 30s, 2h")
    ] = None,
    run_after: Annotated[
        str | None, typer.Option(metavar="ISO", help="Start no earlier than this moment: 2026-03-01T09:00:00Z")
    ] = None,
    expires_at: Annotated[
        str | None, typer.Option(metavar="ISO", help="Do not start the job after this moment")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: if another job holds it, only print that job's id")
    ] = None,
    unique: Annotated[
        str | None, typer.Option(help="How long the job holds its --key: until_done, while_queued, forever, or 1h")
    ] = None,
    batch: Annotated[str | None, typer.Option(metavar="ID", help="Add the job to this batch")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag of the job; may be repeated")] = None,
    job_id: Annotated[
        str | None, typer.Option(metavar="UUID", help="The job's id; a second enqueue with this id creates no job")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job has finished, and print its result")] = False,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="With --wait: wait no longer than this")] = None,
    defaults: DefaultsOption = False,
) -> None:
    """Enqueue one job. Without --app, the task has the options that its worker stored in the database."""
    chosen: dict[str, Any] = {
        **given(options),
        "delay": read_duration(delay, "--delay"),
        "run_after": read_moment(run_after, "--run-after"),
        "expires_at": read_moment(expires_at, "--expires-at"),
        "key": key,
        "unique": unique if unique in UNIQUE else timedelta(seconds=read_duration(unique, "--unique")),
        "batch": batch,
        "tags": tag,
        "job_id": job_id,
    }
    if timeout is not None and not wait:
        raise InvalidArguments("--timeout limits how long --wait waits: give --wait as well")
    limit = read_duration(timeout, "--timeout")
    texts, arguments = split_pairs(pairs or []), read_arguments(args)

    async def work(app: Rowlock) -> JobHandle[Any]:
        found = await task_named(app, target, task, options, defaults=defaults)
        new = found.using(**chosen).enqueue(**arguments | read_values(texts, found))
        job = await audited(app, new, "jobs.create", lambda job: job.id if job.created else "", task=task)
        try:
            if wait:
                await job.wait(limit)
        except TimeoutError:
            raise RowlockError(f"job {job.id} has not finished after {limit:g} s; it was not cancelled") from None
        return job

    job = target.run(work)
    if wait:
        text = job.result if isinstance(job.result, str) else json.dumps(job.result)
        target.report({"id": job.id, **_row(job), "result": job.result}, text)
    else:
        target.report({"id": job.id, **_row(job), "created": job.created}, job.id)


def split_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` words as a dictionary of texts."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InvalidArguments(f"{pair!r}: expected key=value, such as {key or 'name'}=VALUE")
        if key in found:
            raise InvalidArguments(f"{pair!r}: {key} was given twice")
        found[key] = text
    return found


def read_arguments(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise InvalidArguments(f"--args is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidArguments(f"--args must be a JSON object, not {text!r}")
    return found


def read_values(texts: Mapping[str, str], task: Task[..., Any, Any]) -> dict[str, Any]:
    """Parse each value as JSON. A value stays text if it isn't JSON, or if the task declares the argument as text."""
    known = task.arguments.schema().get("properties", {})
    return {key: _value(text, wants_text=known.get(key, {}).get("type") == "string") for key, text in texts.items()}


def _value(text: str, *, wants_text: bool) -> Any:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text
    return text if wants_text and not isinstance(value, str) else value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _row(job: JobHandle[Any]) -> dict[str, str | None]:
    try:
        return {"task": job.task, "queue": job.queue, "state": job.state}
    except JobNotFound:  # a job that was pruned still holds the key
        return {"task": None, "queue": None, "state": None}
