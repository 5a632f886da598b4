"""Reading one job, statement by statement."""

from typing import Any

from rowlock.store.engine.dialects import POSTGRES
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Call, drive
from rowlock.store.read import job_rows


class Nothing:
    """Answers every statement with no rows, and remembers its name."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def execute(self, call: Call) -> list[Any]:
        self.asked.append(call.name)
        return []


def test_a_job_that_one_statement_missed_is_asked_for_once_more() -> None:
    """As when its partition was attached between the statement's plan and its snapshot."""
    nothing = Nothing()
    assert drive(job_rows.get(new_id()), POSTGRES, nothing, []) is None
    assert nothing.asked == ["read_job", "read_job"]


def test_reading_a_job_by_a_malformed_id_runs_no_statement() -> None:
    nothing = Nothing()
    assert drive(job_rows.get("no id"), POSTGRES, nothing, []) is None
    assert nothing.asked == []
