"""The options of jobs: one list, which every way to make a job reads.

Each field of `JobOptions` is one option. Its metadata has the name that programs use for it, its check, the column that
stores it, and where it can be given: in `@app.task`, in `task.using`, in a schedule. Everything else that needs a list
of options derives it from here: the inserts in `store/jobs`, follow-ups, schedules, the stored options of tasks.

A new option needs a field here, a column of its name in `jobs_live`, `jobs_finished` and (if a task can have it) in
`schedules`, and an argument of `Client.task` or `Task.using`, which type checkers must see written out.
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
    """A follow-up in its stored form: JSON text, and not the name of a task."""


# --- the list


class Option(NamedTuple):
    name: str  # the field of JobOptions
    given: str  # what programs call it
    column: str  # of `jobs_live`, or the parameter of the statements that insert jobs
    kind: str  # of the column, as `{rows:…}` in SQL has it
    default: Any
    check: Callable[[Any, str], Any]
    places: tuple[Place, ...]
    copied: bool  # the statements copy the value to its column; else they name the option and compute something

    @property
    def scheduled(self) -> bool:
        """Whether `schedules` has a column for it: what a task or a schedule can be given, a tick's job must have."""
        return "task" in self.places or "schedule" in self.places


EVERYWHERE: tuple[Place, ...] = ("task", "using", "schedule")


def _about(
    check: Callable[[Any, str], Any], kind: str, *places: Place, copied: bool = True, **names: str
) -> dict[str, Any]:
    """The metadata of a field; `names` are `given` and `column` where they differ from the field's name."""
    return {"check": check, "kind": kind, "places": places, "copied": copied, **names}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Everything that a job can be given, apart from its task, arguments, id and key. Many jobs can share it."""

    queue: str = field(default="default", metadata=_about(check.name, "text", *EVERYWHERE))
    priority: int = field(default=0, metadata=_about(check.priority, "int", *EVERYWHERE))
    max_attempts: int = field(default=5, metadata=_about(check.attempts, "int", *EVERYWHERE))
    # A text is the stored form (JSON), as follow-ups and schedules carry it.
    backoff: Backoff | str | None = field(default=None, metadata=_about(check.backoff, "json", "task"))
    timeout_seconds: float | None = field(
        default=None, metadata=_about(check.seconds_or_none, "float", *EVERYWHERE, given="timeout")
    )
    # A task may derive it by a function. Not copied: jobs that are enqueued together may have different sources.
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
    # The span that creates the job, as W3C Trace Context writes it.
    traceparent: str | None = field(default=None, metadata=_about(check.traceparent, "text", "using"))
    # The job that makes it, by its handler or by its end. Programs do not give it: it is set where jobs are made.
    parent_id: str | None = field(default=None, metadata=_about(check.as_given, "uuid"))


OPTIONS: dict[str, Option] = {
    each.name: Option(each.name, **{"given": each.name, "column": each.name, "default": each.default, **each.metadata})
    for each in dataclasses.fields(JobOptions)
}
FOLLOW_UPS = ("on_success", "on_dead")
# What a follow-up may be given; SQL has this list as rowlock._follow_up_options(). Not a batch, in which its job would
# be counted without having joined; nothing about keys, because it has none; and its parent is the job before it.
NOT_OF_FOLLOW_UPS = ("batch_id", "unique", "window", "parent_id")
FOLLOW_UP_OPTIONS = tuple(name for name in OPTIONS if name not in NOT_OF_FOLLOW_UPS)
RENEWED = ("max_attempts", "expires_at")  # an operator's retry does not keep these, but all other options


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions(JobOptions):
    """The options that a task's jobs have unless `using` gives others, and how a worker runs them."""

    runs_in: RunsIn | None = None
    memory_mb: int | None = None
    counted: bool = True  # in the worker's summary line
    public: bool = False  # everybody with a token may create its jobs through the API
    keep_logs: bool = False  # what handlers write to ctx.log is kept with the job
    rules: Mapping[type[BaseException], FailureRule] = field(default_factory=dict)
    runs_on: RunsOn | None = None  # "redis": published to workers in other processes, and not run here
    request: Request | None = None  # the fields of the published request; None: the default of core/redis_request.py

    def of_jobs(self) -> dict[str, Any]:
        return dict(zip(OPTIONS, _values(self), strict=True))


RUNNING = tuple(each.name for each in dataclasses.fields(TaskOptions) if each.name not in OPTIONS)  # how a worker runs


# --- what is given


def names_in(place: Place) -> dict[str, Option]:
    """The options that can be given in one place, by the name that programs use."""
    return {option.given: option for option in OPTIONS.values() if place in option.places}


def checked(place: Place, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given in one place, by field and as it is stored. An option that cannot be given there is refused."""
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
        raise InvalidArguments("request= names the fields that are published of a job; it needs runs_on='redis'")
    if own.get("runs_on") is not None:
        _check_remote(own, given)
        # Workers behind Redis have their own rules for another try: what they report as failed has failed.
        given.setdefault("max_attempts", 1)
    if own.get("runs_in") not in (None, "async", "thread", "process"):
        raise InvalidArguments(f"runs_in must be 'async', 'thread' or 'process', not {own['runs_in']!r}")
    for flag in ("counted", "public", "keep_logs"):
        if not isinstance(own.get(flag, False), bool):
            raise InvalidArguments(f"{flag} must be True or False, not {own[flag]!r}")
    memory = own.get("memory_mb")
    if memory is not None and (not isinstance(memory, int) or memory < 16 or own.get("runs_in") != "process"):
        raise InvalidArguments("memory_mb must be a whole number from 16, on a task with runs_in='process'")
    if own.get("request") is not None:
        own["request"] = checked_request(own["request"])
    own["rules"] = _checked_rules({} if own.get("rules") is None else own["rules"])
    return TaskOptions(**own, **checked("task", given))


def _check_remote(own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse options that a task with `runs_on` cannot have."""
    if own["runs_on"] != "redis":
        raise InvalidArguments(f"runs_on must be 'redis', not {own['runs_on']!r}")
    for what in ("runs_in", "memory_mb", "rules", "timeout"):
        if (value := own.get(what, given.get(what))) is not None:
            raise InvalidArguments(
                f"{what}={value!r:.100} is for tasks that a Rowlock worker runs; with runs_on='redis' leave it out"
            )


def _checked_rules(given: Any) -> dict[type[BaseException], FailureRule]:
    """What follows each class of exceptions; a delay as seconds."""
    if not isinstance(given, Mapping):
        raise InvalidArguments(f"rules must be a mapping of exception classes, not {given!r:.100}")
    rules: dict[type[BaseException], FailureRule] = {}
    for kind, rule in given.items():
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidArguments(f"rules maps exception classes, not {kind!r}")
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
    """The values of the columns that `schedules` has for options, in the order of the list."""
    found = parameters(options)
    return [found[option.column] for option in OPTIONS.values() if option.scheduled]


def columns(of: Literal["new job", "kept job", "schedule"]) -> Iterable[tuple[str, str]]:
    """The columns that are filled with options as they are, with their kinds: of a job that is inserted, of one that
    ends or is retried, or of a schedule."""
    for option in OPTIONS.values():
        kept = option.copied and option.name not in RENEWED
        if {"new job": option.copied, "kept job": kept, "schedule": option.scheduled}[of]:
            yield option.column, option.kind


# --- the JSON form: follow-ups carry it, and the table `tasks`


def to_json(options: JobOptions) -> dict[str, Any]:
    """The options that differ from the defaults, by field, as JSON has them."""
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
    """What `to_json` gave, by field. Any program may have written it, so every value is checked, and an option that is
    not in `known` is refused by name. JSON null means "not given"."""
    given = {name: value for name, value in found.items() if value is not None}
    if unknown := sorted(set(given) - set(known)):
        raise InvalidArguments(f"no option {unknown[0]!r}; there are {', '.join(known)}")
    return {name: _stored(OPTIONS[name], value) for name, value in given.items()}


def of_follow_up(found: Any) -> dict[str, Any]:
    """The options of a follow-up, by field, from the JSON form that a job carries: the name of its task, and options.
    Raises if it has another form: an insert that fails would keep the job before it from ending."""
    if not isinstance(found, dict):
        raise InvalidArguments(f"a follow-up is stored as an object, not as {found!r:.100}")
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
            raise InvalidArguments(f"{option.name} must be a time as text, not {value!r:.100}")
        return option.check(datetime.fromisoformat(value), option.name)
    if option.kind == "int" and isinstance(value, float) and value.is_integer():
        value = int(value)  # SQL and other languages write 3.0
    return option.check(value, option.name)
