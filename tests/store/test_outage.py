"""What the log says about an outage, however many parts of a process notice it and however often."""

import logging
import threading

import pytest

from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.store.engine.outage import MINUTE, QUIET_SECONDS, SILENT_SECONDS, WAKE_SECONDS, Outage, outage_of

AWAY = StoreUnavailable("sweep: no server accepts connections")
FULL = StorageFull("settle: the database's disk is full")


class Log:
    """An outage on a clock of its own, and the lines that it wrote."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now, self._caplog = 1000.0, caplog
        self.outage = Outage(lambda: self.now)

    def fail_for(
        self, seconds: float, parts: tuple[str, ...] = ("heart", "sweep", "settler"), error: Exception = AWAY
    ) -> None:
        """Every part fails twice a second."""
        end = self.now + seconds
        while self.now < end:
            for part in parts:
                self.outage.failed(part, error)
            self.now += 0.5

    def work_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.outage.worked()
            self.now += 0.1

    def lines(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


def test_an_outage_that_many_parts_notice_is_one_line_when_it_begins_and_one_when_it_is_over(log: Log) -> None:
    log.fail_for(16)
    log.work_for(QUIET_SECONDS + 1)
    assert log.lines() == [
        "database outage, noticed by heart: sweep: no server accepts connections; trying again until it works",
        "database outage over after 16.0 s",
    ]


def test_an_outage_that_lasts_is_told_once_a_minute(log: Log) -> None:
    log.fail_for(190)
    during = log.lines()
    assert len(during) == 4
    assert [line.split(",")[0] for line in during[1:]] == [f"database outage for {n} s" for n in (60, 120, 180)]


def test_requests_that_succeed_beside_others_that_fail_do_not_end_an_outage(log: Log) -> None:
    for _ in range(20):
        log.fail_for(0.5, error=FULL)
        log.work_for(QUIET_SECONDS - 1)
    assert len([line for line in log.lines() if "noticed" in line]) == 1
    assert not [line for line in log.lines() if "over" in line]


def test_a_second_outage_is_told_like_the_first(log: Log) -> None:
    for _ in range(2):
        log.fail_for(3)
        log.work_for(QUIET_SECONDS + 1)
        log.now += 3600
    assert [line.split(",")[0] for line in log.lines()] == ["database outage", "database outage over after 3.0 s"] * 2


def test_an_outage_after_a_long_time_without_any_request_is_a_new_one(log: Log) -> None:
    log.fail_for(3)
    log.work_for(1)
    log.now += 3600
    log.fail_for(SILENT_SECONDS + 1)
    assert [line.split(",")[0] for line in log.lines()] == [
        "database outage",
        "database outage over after 3.0 s",
        "database outage",
    ]


def test_single_connections_that_break_while_others_work_are_no_outage(log: Log) -> None:
    for _ in range(20):
        log.fail_for(0.5)
        log.work_for(0.5)
    assert log.lines() == []


def test_requests_that_fail_for_a_minute_beside_others_that_work_are_a_line_a_minute(log: Log) -> None:
    for _ in range(int(2.5 * MINUTE)):
        log.fail_for(0.5)
        log.work_for(0.5)
    assert [line[:25] for line in log.lines()] == ["some requests fail for 60", "some requests fail for 12"]


class Waits:
    woken = 0

    def database_is_back(self) -> None:
        self.woken += 1


def test_the_first_success_wakes_those_who_wait_and_later_ones_do_not(log: Log) -> None:
    waits = Waits()
    log.outage.wake_when_back(waits)
    log.fail_for(16)
    assert waits.woken == 0
    log.work_for(QUIET_SECONDS + 1)
    assert waits.woken == 1


def test_reads_that_succeed_on_a_full_disk_wake_those_who_wait_once_a_second_at_most(log: Log) -> None:
    waits = Waits()
    log.outage.wake_when_back(waits)
    for _ in range(100):
        log.outage.failed("settler", FULL)
        log.outage.worked()
        log.now += 0.1
    assert 1 <= waits.woken <= 10 / WAKE_SECONDS + 1


def test_every_store_of_a_process_on_one_database_has_the_same_record() -> None:
    assert outage_of("postgresql://db/a") is outage_of("postgresql://db/a")
    assert outage_of("postgresql://db/a") is not outage_of("postgresql://db/b")


def test_a_handler_of_the_log_may_report_itself(caplog: pytest.LogCaptureFixture) -> None:
    """It is somebody's code, and may use the database whose outage it is told of."""
    outage, seen = Outage(), list[str]()

    class Reports(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not seen:
                seen.append(record.getMessage())
                outage.worked()
                outage.failed("the log", OSError("away, too"))

    handler = Reports()
    logging.getLogger("rowlock.store").addHandler(handler)
    try:
        reporting = threading.Thread(target=outage.failed, args=("a part", FULL), daemon=True)
        reporting.start()
        reporting.join(10)
        assert not reporting.is_alive(), "it waits for itself"
    finally:
        logging.getLogger("rowlock.store").removeHandler(handler)
    assert len(seen) == 1
