"""The filter of jobs, from what people type to what a preview keeps."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rowlock.core.states import State
from rowlock.store.read.filter import BadFilter, Ids, JobFilter, from_json, ids_that_begin, read_filter, to_json
from support.each import each

BATCH = "01a1e816-66e9-7021-9c64-716195c1e13d"


def test_texts_become_a_filter_whoever_typed_them() -> None:
    typed = {"state": "dead, Cancelled,dead", "batch": BATCH.upper(), "id": "01a1", "queue": "mail", "task": None}
    wanted = read_filter(typed)
    assert wanted == JobFilter((State.DEAD, State.CANCELLED), queue="mail", batch=BATCH, ids=ids_that_begin("01a1"))
    assert read_filter({"state": ["dead,cancelled", "dead"]}).states == wanted.states
    assert read_filter({"since": "2026-03-01T09:00Z"}).since == datetime(2026, 3, 1, 9, tzinfo=UTC)
    assert read_filter({}) == JobFilter()


@each(
    "field, value, problem",
    [
        ("state", "broken", "'broken': expected one of queued, running"),
        ("state", [""], "'': expected one of"),
        ("since", "yesterday", "expected a time ago such as 2h"),
        ("batch", "7", "'7' is not the id of a batch"),
        ("parent", "7", "'7' is not a job id"),
        ("id", "xyz", "beginning of an id"),
        ("text", "a", "arguments have no index"),
    ],
)
def test_a_text_that_cannot_be_meant_is_named_with_its_field(field: str, value: Any, problem: str) -> None:
    with pytest.raises(BadFilter) as caught:
        read_filter({field: value})
    assert caught.value.field == field
    assert problem in caught.value.problem
    assert str(caught.value) == f"{field} {caught.value.problem}"


@each("narrow", [{"since": "6d"}, {"batch": BATCH}, {"parent": BATCH}, {"schedule": "s"}, {"id": "01a1"}])
def test_a_text_may_be_searched_for_in_few_jobs(narrow: dict[str, str]) -> None:
    assert read_filter({"text": "a", **narrow}).text == "a"


def test_a_text_is_not_searched_for_in_more_than_a_week() -> None:
    with pytest.raises(BadFilter, match="arguments have no index"):
        read_filter({"text": "a", "since": "8d"})


def test_a_preview_gives_back_the_filter_that_it_keeps() -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    whole = JobFilter(
        states=(State.DEAD,),
        since=now - timedelta(hours=1),
        unchanged_since=now,
        attempt=2,
        text="ü",
        ids=Ids("0" * 8, "f" * 8),
    )
    for wanted in (JobFilter(), whole):
        assert from_json(to_json(wanted)) == wanted
    assert to_json(JobFilter(queue="mail")) == '{"states": [], "queue": "mail"}'
