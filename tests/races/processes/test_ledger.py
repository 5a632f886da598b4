"""The checker of the race tests finds what it is there to find: each forged ledger must fail."""

import dataclasses
from pathlib import Path

from support.each import each
from support.races.ledger import Entry, Ledger, Row, problems, read, unfaulted

LEASE = 2.0
GOOD = [
    Entry("start", "a", 1, "t1", "1", 10.0),
    Entry("end", "a", 1, "t1", "1", 10.5),
    Entry("start", "b", 1, "t1", "1", 10.0),
    Entry("start", "b", 2, "t2", "2", 13.0),
    Entry("end", "b", 2, "t2", "2", 13.1),
]
ROWS = {"a": Row("succeeded", 1, token="t1"), "b": Row("succeeded", 2, losses=1, max_attempts=1, token="t2")}


def found(entries: list[Entry] = GOOD, rows: dict[str, Row] = ROWS, accepted: tuple[str, ...] = ("a", "b")) -> str:
    return "; ".join(problems(accepted, entries, rows, LEASE))


def with_row(job: str, **changes: object) -> dict[str, Row]:
    return ROWS | {job: dataclasses.replace(ROWS[job], **changes)}  # type: ignore[arg-type]


def test_an_honest_ledger_passes() -> None:
    assert found() == ""


@each(
    "entries, rows, accepted, complaint",
    [
        (GOOD, ROWS, ("a", "b", "c"), "c is lost"),
        (GOOD, ROWS, ("a",), "b ran and was never accepted"),
        (GOOD, with_row("a", state="running"), ("a", "b"), "a is stuck"),
        (GOOD, with_row("b", losses=0), ("a", "b"), "b used 2 tries of 1"),
        ([*GOOD, Entry("start", "a", 1, "t1", "2", 14.0)], ROWS, ("a", "b"), "a started an attempt twice"),
        (
            [*GOOD, Entry("start", "a", 2, "t1", "2", 14.0)],
            with_row("a", attempt=2),
            ("a", "b"),
            "a ran two attempts under one token",
        ),
        ([*GOOD, Entry("start", "a", 2, "t9", "2", 14.0)], ROWS, ("a", "b"), "a started attempt 2, but only 1"),
        (GOOD, with_row("a", token="t9"), ("a", "b"), "a succeeded under a token with which no handler returned"),
        (
            [*GOOD, Entry("end", "b", 1, "t1", "1", 14.0)],
            with_row("b", token="t1"),
            ("a", "b"),
            "b succeeded as attempt 1, but attempt 2 held the lease",
        ),
        (
            [*GOOD[:3], Entry("start", "b", 2, "t2", "2", 11.0), GOOD[4]],
            ROWS,
            ("a", "b"),
            "b attempt 2 began while attempt 1 had its lease",
        ),
    ],
    ids=[
        "an accepted job without a row",
        "a job that nobody accepted",
        "a job that still runs",
        "a loss that is not counted",
        "two starts of one attempt",
        "two attempts under one token",
        "an attempt that nobody claimed",
        "a success under a token of nobody",
        "a success under an older token",
        "two attempts at the same time",
    ],
)
def test_a_forged_ledger_fails(
    entries: list[Entry], rows: dict[str, Row], accepted: tuple[str, ...], complaint: str
) -> None:
    assert complaint in found(entries, rows, accepted)


def test_a_lease_runs_from_its_claim_not_from_the_first_line_of_a_handler_that_started_late() -> None:
    late = [*GOOD[:2], Entry("start", "b", 1, "t1", "1", 12.5), *GOOD[3:]]
    assert problems(["a", "b"], late, ROWS, LEASE, {("b", 1): 10.9}) == []
    assert problems(["a", "b"], late, ROWS, LEASE, {("b", 1): 11.1}, {("b", 1): 11.2}) == [], "given up by its holder"
    assert problems(["a", "b"], late, ROWS, LEASE, {("b", 1): 11.1}) == [
        "b attempt 2 began while attempt 1 had its lease"
    ]


def test_a_second_start_or_a_loss_fails_where_nothing_went_wrong() -> None:
    assert unfaulted(["a"], GOOD, ROWS) == []
    assert unfaulted(["b"], GOOD, ROWS) == ["b started 2 times in 2 attempts, 1 of them lost"]
    assert unfaulted(["a"], [], ROWS) == ["a started 0 times in 1 attempts, 0 of them lost"]


def test_a_ledger_reads_back_what_was_written_and_leaves_a_torn_line_out(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.write("start", "a", 1, "t1")
    ledger.write("end", "a", 1, "t1")
    ledger.close()
    with open(tmp_path / "ledger", "a") as file:
        file.write("start b 1")
    assert [(entry.kind, entry.job, entry.attempt, entry.token) for entry in read(tmp_path / "ledger")] == [
        ("start", "a", 1, "t1"),
        ("end", "a", 1, "t1"),
    ]
