"""Reading one job, statement by statement."""

from rowlock.store import reads
from rowlock.store.engines.dialects import POSTGRES
from rowlock.store.engines.operation import Call, drive
from rowlock.store.ids import new_id


def test_a_job_that_one_statement_missed_is_asked_for_once_more() -> None:
    """As when its partition was attached between the statement's plan and its snapshot."""
    asked: list[Call] = []

    def nothing(call: Call) -> list[tuple[()]]:
        asked.append(call)
        return []

    assert drive(reads.get(new_id()).start(), POSTGRES, nothing, lambda _: None) is None
    assert [call.name for call in asked] == ["read_job", "read_job"]


def test_reading_a_job_by_a_malformed_id_runs_no_statement() -> None:
    asked: list[Call] = []
    assert drive(reads.get("no id").start(), POSTGRES, lambda call: asked.append(call) or [], lambda _: None) is None
    assert asked == []
