"""Options of tasks and jobs, and the checks that turn bad ones into clear errors."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from rowlock.core.errors import InvalidArguments, seconds
from rowlock.core.job import MAX_PRIORITY, MIN_PRIORITY
from rowlock.core.policy import Backoff
from rowlock.core.schedule import END, FIRST
from rowlock.core.source import check_name
from rowlock.store.ids import valid_id

Unique = Literal["until_done", "while_queued", "forever"]
RunsIn = Literal["async", "thread", "process"]
Rule = Literal["dead"] | Backoff | float | timedelta
NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")  # half of a surrogate pair cannot be stored


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a task's jobs run, and how they are enqueued unless `using` says otherwise."""

    queue: str = "default"
    max_attempts: int = 5
    backoff: Backoff | None = None
    timeout: float | None = None
    priority: int = 0
    source: str | Callable[..., str | None] | None = None
    on_success: Any = None
    on_dead: Any = None
    on_lost: Literal["retry", "dead"] = "retry"
    runs_in: RunsIn | None = None
    memory_mb: int | None = None
    keep: float | None = None
    counted: bool = True  # in the worker's summary line
    rules: Mapping[type[BaseException], Rule] = dataclasses.field(default_factory=dict)


def task_options(
    *,
    queue: str = "default",
    max_attempts: int = 5,
    backoff: Backoff | None = None,
    timeout: float | timedelta | None = None,
    priority_: int = 0,
    keep: float | timedelta | None = None,
    rules: Mapping[type[BaseException], Rule] | None = None,
    **rest: Any,
) -> TaskOptions:
    """Checked options of a task."""
    if backoff is not None and not isinstance(backoff, Backoff):
        raise InvalidArguments(f"backoff must be fixed(…) or exponential(…), not {backoff!r}")
    if rest.get("runs_in") not in (None, "async", "thread", "process"):
        raise InvalidArguments(f"runs_in must be 'async', 'thread' or 'process', not {rest['runs_in']!r}")
    if rest.get("on_lost", "retry") not in ("retry", "dead"):
        raise InvalidArguments(f"on_lost must be 'retry' or 'dead', not {rest['on_lost']!r}")
    if not isinstance(rest.get("counted", True), bool):
        raise InvalidArguments(f"counted must be True or False, not {rest['counted']!r}")
    memory = rest.get("memory_mb")
    if memory is not None and (not isinstance(memory, int) or memory < 16 or rest.get("runs_in") != "process"):
        raise InvalidArguments("memory_mb must be a whole number from 16, on a task with runs_in='process'")
    return TaskOptions(
        queue=name(queue, "queue"),
        max_attempts=attempts(max_attempts),
        backoff=backoff,
        timeout=None if timeout is None else seconds(timeout, "timeout"),
        priority=priority(rest.pop("priority", priority_)),
        keep=None if keep is None else seconds(keep, "keep"),
        rules=checked_rules({} if rules is None else rules),
        **rest,
    )


def checked_rules(given: Any) -> dict[type[BaseException], Rule]:
    """What follows which exception; a delay as seconds."""
    if not isinstance(given, Mapping):
        raise InvalidArguments(f"rules must be a mapping of exception classes, not {given!r:.100}")
    rules: dict[type[BaseException], Rule] = {}
    for kind, rule in given.items():
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidArguments(f"rules maps exception classes, not {kind!r}")
        if isinstance(rule, str) and rule != "dead":
            known = "'dead', fixed(…), exponential(…), seconds or a timedelta"
            raise InvalidArguments(f"the rule for {kind.__name__} must be {known}, not {rule!r:.100}")
        plain = isinstance(rule, (str, Backoff))
        rules[kind] = rule if plain else seconds(rule, f"the rule for {kind.__name__}")
    return rules


def name(value: Any, what: str) -> str:
    """A name that can be stored and shown: 1–200 characters of UTF-8, none of them control characters."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidArguments(
            f"{what} must be a string of 1–200 characters of UTF-8 without control characters, not {value!r:.250}"
        )
    return value


def priority(value: Any) -> int:
    """-100 (first) to 100 (last)."""
    if isinstance(value, bool) or not isinstance(value, int) or not MIN_PRIORITY <= value <= MAX_PRIORITY:
        raise InvalidArguments(
            f"priority must be a whole number from {MIN_PRIORITY} (first) to {MAX_PRIORITY}, not {value!r}"
        )
    return value


def attempts(value: Any) -> int:
    """How many tries a job has."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise InvalidArguments(f"max_attempts must be a whole number from 1, not {value!r}")
    return value


def text_or_none(value: Any, what: str) -> str | None:
    return None if value is None else name(value, what)


def tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(tag, str) for tag in value):
        raise InvalidArguments(f"tags must be a list of strings, not {value!r}")
    return tuple(name(tag, "a tag") for tag in value)


def moment(value: Any, what: str) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidArguments(f"{what} must be a datetime with a time zone, not {value!r}")
    if not FIRST <= value < END:
        raise InvalidArguments(f"{what} must be in the years from 1970 to 2199, not {value.isoformat()}")
    return value.astimezone(UTC)


MAX_KEY_BYTES = 512


def key_text(value: Any) -> str:
    """A unique key."""
    if not isinstance(value, str) or not value or "\x00" in value:
        raise InvalidArguments(f"key must be a string that is not empty, not {value!r:.100}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidArguments(f"key must be text that UTF-8 can encode, not {value!r:.100}") from None
    if size > MAX_KEY_BYTES:
        raise InvalidArguments(f"key has {size} bytes; at most {MAX_KEY_BYTES} are stored (hash a longer one)")
    return value


def uniqueness(key: Any, unique: Any) -> tuple[str | None, float | None]:
    """How a key holds, and for how long if for a time."""
    if key is None:
        if unique is not None:
            raise InvalidArguments("unique says how a key holds; give key= too")
        return None, None
    if isinstance(unique, timedelta):
        window = seconds(unique, "unique")
        if window <= 0:
            raise InvalidArguments(f"unique must be a time greater than zero, not {unique!r}")
        return "window", window
    if unique not in (None, "until_done", "while_queued", "forever"):
        raise InvalidArguments(f"unique must be 'until_done', 'while_queued', 'forever' or a timedelta, not {unique!r}")
    return unique or "until_done", None


def source_name(value: Any) -> str | None:
    """The source of a job."""
    return None if value is None else check_name(value)


def batch_id(value: Any) -> str | None:
    """A batch, by itself or by its id."""
    if value is None:
        return None
    found = valid_id(str(getattr(value, "id", value)))
    if found is None:
        raise InvalidArguments(f"batch must be a batch or its id, not {value!r:.100}")
    return found
