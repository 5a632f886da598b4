"""The options of jobs: one list, from which every way to create a job reads.

Each field of `JobOptions` is one option. Its metadata has the name that programs use for it, its check, the column that
stores it, and where it can be given: in `@app.task`, in `task.using`, in a schedule. Everything else that needs a list
of options derives it from here: the inserts in `store/jobs`, follow-ups, schedules, the stored options of tasks.

A new option needs a field here, a column of that name in `jobs_live`, in `jobs_finished` and, if a task can have it, in
`schedules`, and an argument of `Client.task` or `Task.using`: type checkers need to see those written out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from rowlock.core import option_checks as check
from rowlock.core.errors import InvalidArguments, seconds
from rowlock.core.policy import Backoff, checked_backoff
from rowlock.core.redis_request import Request, checked_request

Unique = Literal["until_done", "while_queued", "forever"]
RunsIn = Literal["async", "thread", "process"]
RunsOn = Literal["redis"]
FailureRule = Literal["dead"] | Backoff | float | timedelta
Place = Literal["task", "using", "schedule"]


class Packed(str):
    """A follow-up in its stored form: JSON text instead of the name of a task."""


# --- the list


class Option(NamedTuple):
    name: str  # the field of JobOptions
    given: str  # what programs call it
    column: str  # of `jobs_live`, or the parameter of the statements that insert jobs
    kind: str  # type of the column, as `{rows:…}` in SQL calls it
    default: Any
    check: Callable[[Any, str], Any]
    places: tuple[Place, ...]
    copied: bool  # the statements copy the value to its column; if false, they compute with it

    @property
    def scheduled(self) -> bool:
        """Whether `schedules` has a column for it: a tick's job gets what its task or schedule was given."""
        return "task" in self.places or "schedule" in self.places


EVERYWHERE: tuple[Place, ...] = ("task", "using", "schedule")


def _about(
    check: Callable[[Any, str], Any], kind: str, *places: Place, copied: bool = True, **names: str
) -> dict[str, Any]:
    """The metadata of a field; `names` are `given` and `column` where they differ from the field's name."""
    return {"check": check, "kind": kind, "places": places, "copied": copied, **names}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Everything that a job can be given apart from its task, arguments, id and key. Many jobs can share it."""

    queue: str = field(default="default", metadata=_about(check.name, "text", *EVERYWHERE))
    priority: int = field(default=0, metadata=_about(check.priority, "int", *EVERYWHERE))
    max_attempts: int = field(default=5, metadata=_about(check.attempts, "int", *EVERYWHERE))
    # A string is the stored form (JSON), which follow-ups and schedules carry.
    backoff: Backoff | str | None = field(default=None, metadata=_about(check.backoff, "json", "task"))
    timeout_seconds: float | None = field(
        default=None, metadata=_about(check.seconds_or_none, "float", *EVERYWHERE, given="timeout")
    )
    # A task may have a function that derives it. Not copied: jobs enqueued together may have different sources.
    source: Any = field(default=None, metadata=_about(check.source, "text", *EVERYWHERE, copied=False))
    # Given as a task or its name; stored with each job as JSON text.
    on_success: Any = field(default=None, metadata=_about(check.as_given, "json", "task"))
    on_dead: Any = field(default=None, metadata=_about(check.as_given, "json", "task"))
    on_lost: str | None = field(default=None, metadata=_about(check.on_lost, "text", "task"))
    keep_seconds: float | None = field(
        default=None, metadata=_about(check.seconds_or_none, "float", "task", given="keep")
    )
    owner: str | None = field(default=None, metadata=_about(check.name_or_none, "text", "using", "schedule"))
    tags: tuple[str, ...] = field(default=(), metadata=_about(check.tags, "json", "using"))
    batch_id: str | None = field(default=None, metadata=_about(check.batch, "uuid", "using", given="batch"))
    # How long a key holds; `window` is the number of seconds where `unique` is "window".
    unique: str | None = field(default=None, metadata=_about(check.unique, "text", "using", column="unique_mode"))
    window: float | None = field(default=None, metadata=_about(check.seconds_or_none, "float", copied=False))
    delay: float = field(default=0.0, metadata=_about(seconds, "float", "using", copied=False))
    run_after: datetime | None = field(default=None, metadata=_about(check.moment, "time", "using", copied=False))
    expires_at: datetime | None = field(default=None, metadata=_about(check.moment, "time", "using"))
    # The span that creates the job, in the format of W3C Trace Context.
    traceparent: str | None = field(default=None, metadata=_about(check.traceparent, "text", "using"))
    # The job whose handler or end created this one. Programs can't give it: the code that creates jobs sets it.
    parent_id: str | None = field(default=None, metadata=_about(check.as_given, "uuid"))


OPTIONS: dict[str, Option] = {
    each.name: Option(each.name, **{"given": each.name, "column": each.name, "default": each.default, **each.metadata})
    for each in dataclasses.fields(JobOptions)
}
FOLLOW_UPS = ("on_success", "on_dead")
# Options that a follow-up can't have; SQL has the list of the rest as rowlock._follow_up_options(). A batch would count
# the follow-up's job although it never joined; a follow-up has no key; and its parent is the job that it follows.
NOT_OF_FOLLOW_UPS = ("batch_id", "unique", "window", "parent_id")
FOLLOW_UP_OPTIONS = tuple(name for name in OPTIONS if name not in NOT_OF_FOLLOW_UPS)
RENEWED = ("max_attempts", "expires_at")  # an operator's retry keeps all options except these


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions(JobOptions):
    """The options of a task's jobs, each of which `using` may override, and how a worker runs them."""

    runs_in: RunsIn | None = None
    memory_mb: int | None = None
    counted: bool = True  # in the worker's summary line
    public: bool = False  # anyone with a token may create its jobs through the API
    keep_logs: bool = False  # the job keeps what its handler writes to ctx.log
    rules: Mapping[type[BaseException], FailureRule] = field(default_factory=dict)
    runs_on: RunsOn | None = None  # "redis": published to workers in other programs instead of being run here
    request: Request | None = None  # the fields of the published request; None: the default of core/redis_request.py

    def of_jobs(self) -> dict[str, Any]:
        return dict(zip(OPTIONS, _values(self), strict=True))


RUNNING = tuple(each.name for each in dataclasses.fields(TaskOptions) if each.name not in OPTIONS)  # for workers only


# --- what programs give


def names_in(place: Place) -> dict[str, Option]:
    """The options that can be given in one place, by the name that programs use."""
    return {option.given: option for option in OPTIONS.values() if place in option.places}


def checked(place: Place, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options given in one place, by field and in stored form. Refuses options that cannot be given there."""
    known = names_in(place)
    found: dict[str, Any] = {}
    for key, value in given.items():
        option = known.get(key)
        if option is None:
            raise InvalidArguments(f"no option {key!r}; there are {', '.join(known)}")
        found[option.name] = option.check(value, key)
    if given.get("delay") is not None and given.get("run_after") is not None:
        raise InvalidArguments("give delay or run_after, not both")
    if found.get("unique") == "window":
        found["window"] = given["unique"].total_seconds()
    return found


def task_options(**given: Any) -> TaskOptions:
    own: dict[str, Any] = {name: given.pop(name) for name in RUNNING if name in given}
    if own.get("runs_on") is None and own.get("request") is not None:
        raise InvalidArguments("request= lists the fields of published jobs, so it needs runs_on='redis'")
    if own.get("runs_on") is not None:
        _check_remote(own, given)
        # Workers behind Redis retry by their own rules: if one reports a failure, the job has failed.
        given.setdefault("max_attempts", 1)
    if own.get("runs_in") not in (None, "async", "thread", "process"):
        raise InvalidArguments(f"runs_in must be 'async', 'thread' or 'process', not {own['runs_in']!r}")
    for flag in ("counted", "public", "keep_logs"):
        if not isinstance(own.get(flag, False), bool):
            raise InvalidArguments(f"{flag} must be True or False, not {own[flag]!r}")
    memory = own.get("memory_mb")
    if memory is not None and (not isinstance(memory, int) or memory < 16 or own.get("runs_in") != "process"):
        raise InvalidArguments(f"memory_mb={memory!r} must be a whole number from 16, on a task with runs_in='process'")
    if own.get("request") is not None:
        own["request"] = checked_request(own["request"])
    own["rules"] = _checked_rules({} if own.get("rules") is None else own["rules"])
    return TaskOptions(**own, **checked("task", given))


def _check_remote(own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse the options that a task with `runs_on` cannot have."""
    if own["runs_on"] != "redis":
        raise InvalidArguments(f"runs_on must be 'redis', not {own['runs_on']!r}")
    for what in ("runs_in", "memory_mb", "rules", "timeout"):
        if (value := own.get(what, given.get(what))) is not None:
            raise InvalidArguments(
                f"{what}={value!r:.100} is for tasks that a Rowlock worker runs; with runs_on='redis' leave it out"
            )


def _checked_rules(given: Any) -> dict[type[BaseException], FailureRule]:
    """The rule for each class of exceptions, with delays in seconds."""
    if not isinstance(given, Mapping):
        raise InvalidArguments(f"rules must map exception classes to rules, not be {given!r:.100}")
    rules: dict[type[BaseException], FailureRule] = {}
    for kind, rule in given.items():
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidArguments(f"rules must map exception classes, not {kind!r}")
        if isinstance(rule, str) and rule != "dead":
            known = "'dead', fixed(…), exponential(…), seconds or a timedelta"
            raise InvalidArguments(f"the rule for {kind.__name__} must be {known}, not {rule!r:.100}")
        stays = isinstance(rule, (str, Backoff))
        rules[kind] = rule if stays else seconds(rule, f"the rule for {kind.__name__}")
    return rules


# --- the stored form

_values = attrgetter(*OPTIONS)
_COLUMNS = tuple(option.column for option in OPTIONS.values())


def parameters(options: JobOptions) -> dict[str, Any]:
    """The options by column, for the statements that insert jobs."""
    found = dict(zip(_COLUMNS, _values(options), strict=True))
    found["tags"] = json.dumps(options.tags) if options.tags else None
    if isinstance(options.backoff, Backoff):
        found["backoff"] = options.backoff.to_json()
    return found


def scheduled(options: JobOptions) -> list[Any]:
    """The values for the columns of `schedules` that store options, in the order of OPTIONS."""
    found = parameters(options)
    return [found[option.column] for option in OPTIONS.values() if option.scheduled]


def columns(of: Literal["new job", "kept job", "schedule"]) -> Iterable[tuple[str, str]]:
    """The columns to which options are copied, with their kinds: for a job that is inserted, for one that ends or is
    retried, or for a schedule."""
    for option in OPTIONS.values():
        kept = option.copied and option.name not in RENEWED
        if {"new job": option.copied, "kept job": kept, "schedule": option.scheduled}[of]:
            yield option.column, option.kind


# --- the JSON form, which follow-ups and the table `tasks` store


def to_json(options: JobOptions) -> dict[str, Any]:
    """The options that differ from their defaults, by field, as JSON values."""
    found: dict[str, Any] = {}
    for option, value in zip(OPTIONS.values(), _values(options), strict=True):
        if value == option.default:
            continue
        if option.name in FOLLOW_UPS:
            value = json.loads(value)
        elif isinstance(value, Backoff):
            value = value.to_json()
        elif isinstance(value, datetime):
            value = value.isoformat()
        found[option.name] = value
    return found


def from_json(found: Mapping[str, Any], known: Collection[str] = OPTIONS.keys()) -> dict[str, Any]:
    """The options that `to_json` returned, by field. Any program may have written the JSON, so every value is checked,
    and an option that is not in `known` is refused by name. JSON null means "not given"."""
    given = {name: value for name, value in found.items() if value is not None}
    if unknown := sorted(set(given) - set(known)):
        raise InvalidArguments(f"no option {unknown[0]!r}; there are {', '.join(known)}")
    return {name: _stored(OPTIONS[name], value) for name, value in given.items()}


def of_follow_up(found: Any) -> dict[str, Any]:
    """The options of a follow-up, by field, from the JSON object that a job carries, which has the task's name and the
    options. Raises if anything is wrong: if the follow-up could not be inserted, the job before it could not end."""
    if not isinstance(found, dict):
        raise InvalidArguments(f"the stored form of a follow-up must be an object, not {found!r:.100}")
    check.task_name(found.get("task"), "the task of a follow-up")
    return from_json({name: value for name, value in found.items() if name not in ("task", "bare")}, FOLLOW_UP_OPTIONS)


def _stored(option: Option, value: Any) -> Any:
    """The value of an option from its JSON form, checked."""
    if option.name in FOLLOW_UPS:
        of_follow_up(value)
        return Packed(json.dumps(value))
    if option.name == "backoff":
        return checked_backoff(value).to_json()
    if option.kind == "time":
        if not isinstance(value, str):
            raise InvalidArguments(f"{option.name} must be an ISO time as text, not {value!r:.100}")
        return option.check(datetime.fromisoformat(value), option.name)
    if option.kind == "int" and isinstance(value, float) and value.is_integer():
        value = int(value)  # SQL and other languages write 3.0
    return option.check(value, option.name)
