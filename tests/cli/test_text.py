"""What is written: tables, JSON, log lines. Data must not be able to forge any of it."""

import json
import logging
from datetime import UTC, datetime, timedelta, timezone

import pytest

from rowlock.cli.kit.logs import JsonLines, TextLines
from rowlock.cli.kit.options import read_duration, read_moment
from rowlock.cli.kit.output import cell, show
from rowlock.core.errors import InvalidArguments
from support.each import each

ROWS = [{"id": "1", "name": "a\x1b[31m\nb", "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "tags": ("x", "y")}]


def test_a_table_is_aligned_and_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, ["id", "name", "at", "tags"], as_json=False, empty="")
    head, row = capsys.readouterr().out.splitlines()
    assert row == r"1   a\x1b[31m\nb  2026-01-02 03:04:05Z  x, y"
    assert [head.index(name) for name in ("id", "name", "at", "tags")] == [0, 4, 18, 40]


def test_json_has_every_key_and_iso_times(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, ["id"], as_json=True, empty="")
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {"id": "1", "name": "a\x1b[31m\nb", "at": "2026-01-02T03:04:05Z", "tags": ["x", "y"]}


def test_a_long_value_is_cut_in_a_table() -> None:
    assert cell("x" * 500) == "x" * 79 + "…"


def logged(message: str, *, error: BaseException | None = None, **extra: object) -> logging.LogRecord:
    record = logging.LogRecord("rowlock.worker", logging.INFO, __file__, 1, message, (), None)
    record.created = 0.0
    record.exc_info = (type(error), error, None) if error else None
    vars(record).update(extra)
    return record


def test_a_log_line_has_its_fields_and_cannot_be_forged() -> None:
    line = TextLines().format(logged("done\n1970 ERROR forged", job="a b", tries=2, note="x\ny"))
    assert line == r'1970-01-01T00:00:00.000Z INFO rowlock.worker done\n1970 ERROR forged job="a b" tries=2 note=x\ny'


def test_fields_that_a_message_has_are_not_said_twice() -> None:
    assert TextLines().format(logged("count=3 of all", count=3, rest=1)).endswith("worker count=3 of all rest=1")


def test_a_traceback_is_indented_below_its_line() -> None:
    lines = TextLines().format(logged("failed", error=ValueError("first\n1970 ERROR forged"))).splitlines()
    assert lines[1:] == ["    ValueError: first", "    1970 ERROR forged"]


def test_json_logs_are_one_object_a_line() -> None:
    line = JsonLines().format(logged("one\ntwo", error=ValueError("x"), tries=2, level="mine"))
    assert "\n" not in line
    found = json.loads(line)
    assert (found["message"], found["level"], found["tries"]) == ("one\ntwo", "info", 2)
    assert "ValueError: x" in found["exception"]


@each("text, seconds", [("90", 90), ("1.5s", 1.5), ("250ms", 0.25), ("5m", 300), ("2h", 7200)])
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert read_duration(text, "--delay") == seconds


def test_moments_have_a_time_zone() -> None:
    assert read_moment("2026-01-01T10:00+09:00", "--x") == datetime(2026, 1, 1, 10, tzinfo=timezone(timedelta(hours=9)))
    with pytest.raises(InvalidArguments, match="time zone"):
        read_moment("2026-01-01T10:00", "--x")
