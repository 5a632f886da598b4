"""`rowlock enqueue TASK key=value …`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli import times
from rowlock.cli.options import grouped_options
from rowlock.cli.output import show_json, words
from rowlock.cli.target import DataTarget
from rowlock.cli.tasks import DefaultsOption, task_named
from rowlock.core.errors import InvalidArguments, JobNotFound, RowlockError

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.client.handle import JobHandle
    from rowlock.client.tasks import Task


@grouped_options
def enqueue(
    target: DataTarget,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name")],
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Arguments, as JSON or text", show_default=False),
    ] = None,
    args: Annotated[str | None, typer.Option("--args", metavar="JSON", help="Arguments as one JSON object")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Queue")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="-100 (first) to 100 (last)")] = None,
    delay: Annotated[str | None, typer.Option("--delay", metavar="TIME", help="Not before, e.g. 30s, 2h")] = None,
    run_after: Annotated[str | None, typer.Option("--run-after", metavar="ISO", help="Not before")] = None,
    expires_at: Annotated[str | None, typer.Option("--expires-at", metavar="ISO", help="Not later")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Whom the job belongs to")] = None,
    source: Annotated[str | None, typer.Option("--source", help="The outside service it calls, e.g. api:ebay")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Unique key: an older job that has it is the answer")] = None,
    unique: Annotated[
        str | None, typer.Option("--unique", help="until_done, while_queued, forever, or a time such as 1h")
    ] = None,
    batch: Annotated[str | None, typer.Option("--batch", metavar="ID", help="The batch it belongs to")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="May be given many times")] = None,
    job_id: Annotated[str | None, typer.Option("--job-id", metavar="UUID", help="The id; used once only")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", help="Tries")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print the result")] = False,
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="TIME", help="Wait no longer than this")] = None,
    defaults: DefaultsOption = False,
) -> None:
    """Enqueue one job. Without --app it has the options that the task's worker registered in the database."""
    given: dict[str, Any] = {
        "queue": queue,
        "priority": priority,
        "delay": None if delay is None else times.duration(delay, "--delay"),
        "run_after": None if run_after is None else times.moment(run_after, "--run-after"),
        "expires_at": None if expires_at is None else times.moment(expires_at, "--expires-at"),
        "owner": owner,
        "source": source,
        "key": key,
        "unique": None if unique is None else _uniqueness(unique),
        "batch": batch,
        "tags": tag,
        "job_id": job_id,
        "max_attempts": max_attempts,
    }
    if timeout is not None and not wait:
        raise InvalidArguments("--timeout is how long --wait waits: give --wait too")
    limit = None if timeout is None else times.duration(timeout, "--timeout")
    texts = split_pairs(pairs or [])
    arguments = read_arguments(args)

    async def work(app: Rowlock) -> JobHandle[Any]:
        found = await task_named(app, target, task, source=source, defaults=defaults)
        job = await found.using(**given).enqueue(**arguments | read_values(texts, found))
        return await _ended(job, limit) if wait else job

    job = target.run(work)
    if wait:
        _show_result(job, target.as_json)
    else:
        _show_enqueued(job, target.as_json)


def _uniqueness(text: str) -> str | timedelta:
    if text in ("until_done", "while_queued", "forever"):
        return text
    return timedelta(seconds=times.duration(text, "--unique"))


async def _ended(job: JobHandle[Any], limit: float | None) -> JobHandle[Any]:
    """The job once it has succeeded; the command fails if it has not within the limit."""
    try:
        await job.wait(limit)
    except TimeoutError:
        raise RowlockError(f"job {job.id} has not finished after {limit:g} s; it goes on without us") from None
    return job


def split_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` words as a dictionary of texts."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InvalidArguments(f"{pair!r}: expected key=value")
        if key in found:
            raise InvalidArguments(f"{pair!r}: {key} was given before")
        found[key] = text
    return found


def read_arguments(text: str | None) -> dict[str, Any]:
    """`--args`: one JSON object."""
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise InvalidArguments(f"--args is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidArguments(f"--args must be a JSON object, not {text!r}")
    return found


def read_values(texts: Mapping[str, str], task: Task[..., Any, Any]) -> dict[str, Any]:
    """JSON where a text is JSON and the task does not want text; else the text."""
    known = task.arguments.schema().get("properties", {})
    return {key: _value(text, wants_text=known.get(key, {}).get("type") == "string") for key, text in texts.items()}


def _value(text: str, *, wants_text: bool) -> Any:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text
    return text if wants_text and not isinstance(value, str) else value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _show_enqueued(job: JobHandle[Any], as_json: bool) -> None:
    if as_json:
        try:
            row = {"task": job.task, "queue": job.queue, "state": job.state}
        except JobNotFound:  # pruned, but its key is still taken
            row = {"task": None, "queue": None, "state": None}
        show_json({"id": job.id, **row, "created": job.created})
    else:
        print(job.id)


def _show_result(job: JobHandle[Any], as_json: bool) -> None:
    if as_json:
        show_json({"id": job.id, "task": job.task, "queue": job.queue, "state": job.state, "result": job.result})
    else:
        print(words(job.result) if isinstance(job.result, str) else json.dumps(job.result))
