"""Rows as records: each field by the type that the record declares, whatever the engine has stored it as."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pytest

from rowlock.core.states import State
from rowlock.store.engine.operation import row_maker
from rowlock.store.engine.records import LATEST, record
from support.each import each


@dataclass(frozen=True)
class Seen:
    at: datetime
    until: datetime | None
    alive: bool
    jobs: int
    seconds: float | None
    state: State
    queues: tuple[str, ...]
    how: Literal["drain", "stop"] | None
    args: Any


class Short(NamedTuple):
    jobs: int
    alive: bool = True


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = tuple(Seen.__annotations__)


def exactly(found: object) -> list[tuple[type, object]]:
    """The values with their types: 1 is not True here, and 2 not Decimal(2)."""
    return [(type(value), value) for value in vars(found).values()]


@each(
    "stored",
    [
        pytest.param((NOON, None, True, Decimal(2), Decimal("0.5"), "dead", '["a"]', "stop", "[1]"), id="postgres"),
        pytest.param(("2026-01-01T12:00:00Z", None, 1, 2, 0.5, "dead", '["a"]', "stop", "[1]"), id="sqlite"),
    ],
)
def test_both_engines_give_the_same_record(stored: tuple[Any, ...]) -> None:
    found = record(Seen, row_maker(COLUMNS)(stored))
    assert exactly(found) == exactly(Seen(NOON, None, True, 2, 0.5, State.DEAD, ("a",), "stop", "[1]"))


def test_a_field_that_is_given_is_not_read_from_the_row() -> None:
    row = row_maker(("jobs", "other"))((3, "x"))
    assert record(Short, row, alive=False) == Short(3, False)
    assert record(Short, row_maker(("jobs", "alive"))((3, 0)), jobs=7) == Short(7, False)


def test_text_where_a_number_or_a_time_belongs_does_not_fail_the_read() -> None:
    stored = ("soon", None, 0, "much", "long", "queued", "no list", None, None)
    assert record(Seen, row_maker(COLUMNS)(stored)) == Seen(
        LATEST,
        None,
        False,
        "much",
        "long",
        State.QUEUED,
        (),
        None,
        None,  # type: ignore[arg-type]
    )


def test_a_column_that_is_missing_is_an_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="alive"):
        record(Short, row_maker(("jobs",))((3,)))
