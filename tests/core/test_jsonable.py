"""Records as JSON."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rowlock.core.jsonable import fields_of, jsonable
from rowlock.core.states import State


class Place(NamedTuple):
    the_name: str
    at: datetime


@dataclass(frozen=True)
class Thing:
    some_state: State
    where: Place
    more: Any = None


AT = datetime(2026, 3, 1, 9, tzinfo=UTC)
THING = Thing(State.DEAD, Place("here", AT), {"a_key": (1, 2.5, None, True), 3: {"x"}, "other": object})


def test_a_record_is_written_with_the_names_of_its_fields_and_times_in_utc() -> None:
    assert jsonable(THING) == {
        "some_state": "dead",
        "where": {"the_name": "here", "at": "2026-03-01T09:00:00Z"},
        "more": {"a_key": [1, 2.5, None, True], "3": ["x"], "other": str(object)},
    }


def test_names_and_times_are_spelt_as_asked_for_and_keys_stay() -> None:
    found = jsonable(THING, lambda at: f"{at:%H}", str.upper)
    assert (found["WHERE"], set(found["MORE"])) == ({"THE_NAME": "here", "AT": "09"}, {"a_key", "3", "other"})


def test_the_fields_of_a_record_keep_their_values() -> None:
    assert fields_of(THING)["where"] is THING.where
    assert fields_of(THING.where) == {"the_name": "here", "at": AT}
    assert fields_of({"a": 1}) == {"a": 1}
