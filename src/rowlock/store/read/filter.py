"""The job filter: one definition for the API, the command line, bulk changes, and SQL.

`read_filter` parses a filter from texts that a person typed, `params` makes the parameters for the statements of
search.sql, and `to_json` serializes it for a preview.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from rowlock.core.errors import InvalidArguments
from rowlock.core.states import State
from rowlock.core.times import parse_moment_or_ago
from rowlock.store.engine.ids import valid_id

FIRST_ID, LAST_ID = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
LEAST_PREFIX = 4  # characters of an id
SEARCHED = timedelta(days=7)  # how far back a search in the arguments may go, because they have no index


class Ids(NamedTuple):
    """A range of ids, with `low` but without `high`."""

    low: str = FIRST_ID
    high: str = LAST_ID


ALL_IDS = Ids()


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The jobs to find. A field that is not given matches all jobs. `since` <= `created_at` < `until`."""

    states: tuple[State, ...] = ()
    task: str | None = None
    queue: str | None = None
    owner: str | None = None
    source: str | None = None
    tag: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    batch: str | None = None
    parent: str | None = None
    schedule: str | None = None
    error_code: str | None = None
    attempt: int | None = None  # jobs with this attempt number or a higher one
    text: str | None = None  # found anywhere in the JSON text of the arguments
    unchanged_since: datetime | None = None
    ids: Ids = ALL_IDS

    def __post_init__(self) -> None:
        for name in _TIMES:
            moment = getattr(self, name)
            if moment is not None and moment.tzinfo is None:
                raise InvalidArguments(f"{name} must have a time zone: {moment!r}")


_TIMES = ("since", "until", "unchanged_since")
# Fields that are passed to statements unchanged.
_AS_GIVEN = tuple(field.name for field in fields(JobFilter) if field.name not in ("states", "tag", "text", "ids"))


# --- parsing what a person typed


class BadFilter(InvalidArguments):
    """A value that a filter field can't have."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field, self.problem = field, problem


def read_filter(given: Mapping[str, Any]) -> JobFilter:
    """A filter from texts, by the field names of the API and the command line. Ignores None. Raises BadFilter."""
    found: dict[str, Any] = {}
    for name, text in given.items():
        if text is None:
            continue
        field, read = _READ.get(name, (name, _as_it_is))
        try:
            found[field] = read(text)
        except InvalidArguments as error:
            raise BadFilter(name, str(error)) from None
    wanted = JobFilter(**found)
    # Searching for a text in all jobs would read all of them.
    lately = wanted.since is not None and wanted.since >= datetime.now(UTC) - SEARCHED
    if wanted.text is not None and not (
        wanted.batch or wanted.parent or wanted.schedule or wanted.ids != ALL_IDS or lately
    ):
        problem = "arguments have no index: give since (within the last 7 days), batch, parent, schedule or id as well"
        raise BadFilter("text", problem)
    return wanted


def read_states(text: str | Sequence[str]) -> tuple[State, ...]:
    """States such as `dead,cancelled`, in one text or several."""
    texts = [text] if isinstance(text, str) else text
    names = [name.strip().lower() for one in texts for name in one.split(",")]  # refuse '': no states mean all states
    for name in names:
        if name not in list(State):
            raise InvalidArguments(f"{name[:50]!r}: expected one of {', '.join(State)}")
    return tuple(dict.fromkeys(State(name) for name in names))


def ids_that_begin(prefix: str) -> Ids:
    """The range of ids that begin with these characters."""
    digits = prefix.strip().lower().replace("-", "")
    if not LEAST_PREFIX <= len(digits) <= 32 or not set(digits) <= set("0123456789abcdef"):
        raise InvalidArguments(f"{prefix!r} is not the beginning of an id (at least {LEAST_PREFIX} digits from 0 to f)")
    after = int(digits.ljust(32, "f"), 16) + 1
    return Ids(str(UUID(digits.ljust(32, "0"))), LAST_ID if after >= 1 << 128 else str(UUID(int=after)))


def checked_id(text: str, what: str = "a job id") -> str:
    """An id in its canonical form. InvalidArguments if the text isn't an id."""
    known = valid_id(text)
    if known is None:
        raise InvalidArguments(f"{text!r} is not {what} (a UUID)")
    return known


def _as_it_is(value: Any) -> Any:
    return value


_READ: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "state": ("states", read_states),
    "since": ("since", parse_moment_or_ago),
    "until": ("until", parse_moment_or_ago),
    "batch": ("batch", partial(checked_id, what="the id of a batch")),
    "parent": ("parent", checked_id),
    "id": ("ids", ids_that_begin),
}


# --- parameters of statements


def params(filter: JobFilter) -> dict[str, Any]:
    """The parameters of `{part:fits}`, and one for each state."""
    wanted: Iterable[State] = filter.states or State
    states = {str(state): state in wanted for state in State}
    return {name: getattr(filter, name) for name in _AS_GIVEN} | _tag(filter.tag) | _text(filter.text) | states


def _text(wanted: str | None) -> dict[str, str | None]:
    """A text as in JSON, without its quotes, in both stored spellings (see `_tag`)."""
    if wanted is None:
        return {"text": None, "text_ascii": None}
    return {"text": json.dumps(wanted, ensure_ascii=False)[1:-1], "text_ascii": json.dumps(wanted)[1:-1]}


def _tag(wanted: str | None) -> dict[str, str | None]:
    """A tag as JSON text in both stored spellings: escaped to ASCII by Python, unescaped by PostgreSQL."""
    if wanted is None:
        return {"tag": None, "tag_text": None}
    ascii_, text = json.dumps(wanted), json.dumps(wanted, ensure_ascii=False)
    return {"tag": ascii_, "tag_text": text if text.isprintable() else ascii_}


# --- storing with a preview


def to_json(filter: JobFilter) -> str:
    given: dict[str, Any] = {name: value for name, value in asdict(filter).items() if value is not None}
    if filter.ids == ALL_IDS:
        del given["ids"]
    return json.dumps(given, default=lambda value: value.isoformat())


def from_json(text: str) -> JobFilter:
    given = json.loads(text)
    given["states"] = tuple(State(state) for state in given["states"])
    if "ids" in given:
        given["ids"] = Ids(*given["ids"])
    for name in _TIMES:
        if name in given:
            given[name] = datetime.fromisoformat(given[name])
    return JobFilter(**given)
