"""What the log says about an outage, however many parts of a process notice it and however often."""

import logging
import threading

import pytest

from rowlock.core.errors import StoreUnavailable
from rowlock.store.engines.outage import QUIET_SECONDS, Outage, outage_of

AWAY = StoreUnavailable("sweep: no server accepts connections")


class Log:
    """An outage on a clock of its own, and the lines that it wrote."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now, self._caplog = 1000.0, caplog
        self.outage = Outage(lambda: self.now)

    def fail_for(self, seconds: float, parts: tuple[str, ...] = ("heart", "sweep", "settler")) -> None:
        """Every part fails twice a second."""
        end = self.now + seconds
        while self.now < end:
            for part in parts:
                self.outage.failed(part, AWAY)
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
        log.fail_for(0.5)
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
    log.fail_for(1)
    assert [line.split(",")[0] for line in log.lines()] == [
        "database outage",
        "database outage over after 3.0 s",
        "database outage",
    ]


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
        reporting = threading.Thread(target=outage.failed, args=("a part", OSError("away")), daemon=True)
        reporting.start()
        reporting.join(10)
        assert not reporting.is_alive(), "it waits for itself"
    finally:
        logging.getLogger("rowlock.store").removeHandler(handler)
    assert len(seen) == 1
