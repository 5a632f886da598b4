"""Rules: what can be written, what each means, and what is said to the rest."""

import re
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from rowlock.core.errors import InvalidArguments
from rowlock.core.schedules.rule import Rule, parse_rule
from rowlock.core.schedules.rule_text import FIELDS, MACROS
from support.each import each

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)  # a Tuesday


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def next_three(text: str, zone: str = "UTC", seconds: bool = False) -> list[str]:
    found, more = parse_rule(text, zone, seconds=seconds).ticks(NOON, moment("2099-12-31"), 3)
    assert more
    return [f"{tick:%Y-%m-%d %H:%M:%S}".removesuffix(":00") for tick in found]


# What can be written


@each(
    "text, expected",
    [
        ("0 3 * * *", ["2026-05-06 03:00", "2026-05-07 03:00", "2026-05-08 03:00"]),
        ("*/20 12 * * *", ["2026-05-05 12:20", "2026-05-05 12:40", "2026-05-06 12:00"]),
        ("0 9 * * mon", ["2026-05-11 09:00", "2026-05-18 09:00", "2026-05-25 09:00"]),
        ("0 9 * JAN,jul MON-FRI", ["2026-07-01 09:00", "2026-07-02 09:00", "2026-07-03 09:00"]),
        ("0 0 * * 0", ["2026-05-10 00:00", "2026-05-17 00:00", "2026-05-24 00:00"]),
        ("0 0 * * 7", ["2026-05-10 00:00", "2026-05-17 00:00", "2026-05-24 00:00"]),
        ("0 0 L * *", ["2026-05-31 00:00", "2026-06-30 00:00", "2026-07-31 00:00"]),
        ("0 0 LW * *", ["2026-05-29 00:00", "2026-06-30 00:00", "2026-07-31 00:00"]),
        ("0 0 * * 5L", ["2026-05-29 00:00", "2026-06-26 00:00", "2026-07-31 00:00"]),
        ("0 0 * * MON#2", ["2026-05-11 00:00", "2026-06-08 00:00", "2026-07-13 00:00"]),
        ("0 0 13 * FRI", ["2026-05-08 00:00", "2026-05-13 00:00", "2026-05-15 00:00"]),  # either, as in every cron
        ("0 0 */2 * FRI", ["2026-05-15 00:00", "2026-05-29 00:00", "2026-06-05 00:00"]),  # both, as in Debian's
        ("0 0 31 * *", ["2026-05-31 00:00", "2026-07-31 00:00", "2026-08-31 00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
        ("@hourly", ["2026-05-05 13:00", "2026-05-05 14:00", "2026-05-05 15:00"]),
        ("@daily", ["2026-05-06 00:00", "2026-05-07 00:00", "2026-05-08 00:00"]),
        ("@midnight", ["2026-05-06 00:00", "2026-05-07 00:00", "2026-05-08 00:00"]),
        ("@weekly", ["2026-05-10 00:00", "2026-05-17 00:00", "2026-05-24 00:00"]),
        ("@Monthly", ["2026-06-01 00:00", "2026-07-01 00:00", "2026-08-01 00:00"]),
        ("@yearly", ["2027-01-01 00:00", "2028-01-01 00:00", "2029-01-01 00:00"]),
        ("@annually", ["2027-01-01 00:00", "2028-01-01 00:00", "2029-01-01 00:00"]),
        ("every 30s", ["2026-05-05 12:00:30", "2026-05-05 12:01", "2026-05-05 12:01:30"]),
        ("every 5m", ["2026-05-05 12:05", "2026-05-05 12:10", "2026-05-05 12:15"]),
        ("EVERY 2 h", ["2026-05-05 14:00", "2026-05-05 16:00", "2026-05-05 18:00"]),
        ("every 1.5h", ["2026-05-05 13:30", "2026-05-05 15:00", "2026-05-05 16:30"]),
        ("every 1d", ["2026-05-06 00:00", "2026-05-07 00:00", "2026-05-08 00:00"]),
        ("every 1w", ["2026-05-07 00:00", "2026-05-14 00:00", "2026-05-21 00:00"]),  # Thursdays, as 1970-01-01 was
    ],
)
def test_the_next_three_ticks_of_a_rule_are_computed(text: str, expected: list[str]) -> None:
    assert next_three(text) == expected


def test_seconds_come_first_when_asked_for() -> None:
    assert next_three("*/25 30 12 * * *", seconds=True) == [
        "2026-05-05 12:30",
        "2026-05-05 12:30:25",
        "2026-05-05 12:30:50",
    ]
    assert next_three("30 12 * * *", seconds=True)[0] == "2026-05-05 12:30"  # five fields are still five


@each(
    "text, zone, at",
    [
        ("at 2026-03-01T09:00:00+00:00", "UTC", "2026-03-01 09:00:00"),
        ("2026-03-01T09:00Z", "Asia/Seoul", "2026-03-01 09:00:00"),
        ("at 2026-03-01 09:00", "Asia/Seoul", "2026-03-01 00:00:00"),
        ("AT 2026-03-01t09:00:01.25", "UTC", "2026-03-01 09:00:02"),  # not before it
        ("2026-03-01T09:00-0530", "UTC", "2026-03-01 14:30:00"),
        ("at 2026-3-1 9:00 +09:00", "UTC", "2026-03-01 00:00:00"),
        ("at 2026-03-29T02:30", "Europe/Berlin", "2026-03-29 01:00:00"),  # in the gap: at its end
        ("at 2026-10-25T02:30", "Europe/Berlin", "2026-10-25 00:30:00"),  # twice: the first
        ("at 1970-01-01T00:00Z", "UTC", "1970-01-01 00:00:00"),
        ("at 2199-12-31T23:59:59Z", "UTC", "2199-12-31 23:59:59"),
    ],
)
def test_a_single_moment_is_one_tick(text: str, zone: str, at: str) -> None:
    rule, tick = parse_rule(text, zone), moment(at)
    assert rule == Rule("once", f"at {tick.isoformat()}", zone)
    assert rule.next(tick - timedelta(microseconds=1)) == tick
    assert rule.next(tick) is None
    assert rule.ticks(moment("1960-01-01"), moment("2300-01-01"), 9) == ([tick], False)
    assert rule.latest(tick - timedelta(seconds=1), tick) == tick
    assert rule.latest(tick, tick + timedelta(days=1)) is None
    assert rule.latest(tick - timedelta(seconds=1), tick - timedelta(microseconds=1)) is None


@each(
    "text, canonical",
    [
        (" 0  3\t* * mon ", "0 3 * * MON"),
        ("@daily", "0 0 * * *"),
        ("every 90s", "every 90s"),
        ("every 120s", "every 2m"),
        ("every 1.5h", "every 90m"),
        ("every 48h", "every 2d"),
        ("every 14d", "every 2w"),
        ("2026-03-01 18:00+09:00", "at 2026-03-01T09:00:00+00:00"),
    ],
)
def test_spellings_of_one_rule_have_one_canonical_text(text: str, canonical: str) -> None:
    rule = parse_rule(text)
    assert (rule.text, rule.zone) == (canonical, "UTC")
    assert parse_rule(canonical) == rule


@each(
    "text, zone, words",
    [
        ("0 3 * * *", "Asia/Seoul", "at 03:00 in Asia/Seoul, every day"),
        ("0 9,18 * * 1-5", "UTC", "at 09:00 and 18:00 in UTC, on Monday through Friday"),
        ("0,30 9,18 1 * *", "UTC", "at 09:00, 09:30, 18:00, and 18:30 in UTC, on the first day of every month"),
        ("15 30 4 * * *", "UTC", "at 04:30:15 in UTC, every day"),
        ("* * * * *", "UTC", "every minute, in UTC"),
        ("@hourly", "Europe/Berlin", "at the start of every hour, in Europe/Berlin"),
        ("every 30s", "UTC", "every 30 seconds"),
        ("every 1h", "Europe/Berlin", "every hour"),
        ("every 1w", "Europe/Berlin", "every week, counted from Thursday 1970-01-01 00:00 UTC"),
        ("at 2026-03-01T09:00:00Z", "Asia/Seoul", "once, at 2026-03-01 18:00 in Asia/Seoul"),
        ("at 2026-03-01T09:00:05Z", "UTC", "once, at 2026-03-01 09:00:05 in UTC"),
    ],
)
def test_a_rule_is_described_in_words(text: str, zone: str, words: str) -> None:
    assert parse_rule(text, zone, seconds=True).words() == words


# Windows


def test_a_window_begins_after_its_first_moment_and_ends_with_its_last() -> None:
    rule = parse_rule("*/10 * * * *")
    ten, twenty = NOON + timedelta(minutes=10), NOON + timedelta(minutes=20)
    assert rule.ticks(NOON, twenty, 5) == ([ten, twenty], False)
    assert rule.ticks(NOON, twenty - timedelta(microseconds=1), 5) == ([ten], False)
    assert rule.ticks(NOON - timedelta(microseconds=1), ten, 5) == ([NOON, ten], False)
    assert rule.latest(NOON, twenty) == twenty
    assert rule.latest(twenty, twenty) is None
    assert rule.latest(twenty, NOON) is None
    assert rule.ticks(twenty, NOON, 5) == ([], False)


@each("text", ["*/10 * * * *", "*/10 12,13 * * *", "every 10m"])
def test_ticks_says_whether_there_are_more(text: str) -> None:
    rule = parse_rule(text, "Europe/Berlin" if text.startswith("every") else "UTC")
    hour = NOON + timedelta(hours=1)
    assert [len(rule.ticks(NOON, hour, most)[0]) for most in (0, 1, 5, 6, 7)] == [0, 1, 5, 6, 6]
    assert [rule.ticks(NOON, hour, most)[1] for most in (-1, 0, 1, 5, 6, 7)] == [True, True, True, True, False, False]


def test_moments_may_be_in_any_zone_and_ticks_are_in_utc() -> None:
    seoul = NOON.astimezone(timezone(timedelta(hours=9)))
    tick = parse_rule("0 3 * * *", "Asia/Seoul").next(seoul)
    assert tick == moment("2026-05-05 18:00")
    assert tick.tzinfo is UTC


@each("text", ["* * * * * *", "* * 2,3 * * *", "every 1s", "* * * * *"])
def test_the_latest_of_a_week_of_missed_ticks_costs_no_walk(text: str) -> None:
    rule = parse_rule(text, "Europe/Berlin", seconds=True)
    began = time.process_time()
    for _ in range(20):
        assert rule.latest(NOON - timedelta(days=7), NOON) is not None
        assert rule.ticks(NOON - timedelta(days=7), NOON, 10)[1]
    assert time.process_time() - began < 2  # a walk through them takes minutes


@each("text", ["0 3 * * *", "0 * * * *", "every 1d", "* * * * * *", "0 0 29 2 *", "5 * 29 2 */7"])
@each("zone", ["UTC", "Europe/Berlin", "Pacific/Kiritimati"])
def test_ticks_are_from_1970_to_2199(text: str, zone: str) -> None:
    rule = parse_rule(text, zone, seconds=True)
    end = moment("2200-01-01")
    utmost = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))]
    assert rule.next(end) is None
    assert rule.next(utmost[1]) is None
    assert rule.next(utmost[0]) == rule.next(moment("1960-01-01")) >= moment("1970-01-01")  # type: ignore[operator]
    latest = rule.latest(*utmost)
    assert latest is not None
    assert moment("2180-01-01") < latest < end
    assert rule.next(latest) is None
    assert rule.latest(utmost[0], moment("1960-01-01")) is None


def test_leap_days_over_eight_years() -> None:
    rule = parse_rule("0 0 29 2 *", "Asia/Seoul")
    assert [rule.next(moment(f"{year}-06-01")) for year in (2092, 2096, 2100)] == [
        moment("2096-02-28 15:00"),
        moment("2104-02-28 15:00"),
        moment("2104-02-28 15:00"),
    ]
    assert rule.latest(moment("2090-01-01"), moment("2103-12-31")) == moment("2096-02-28 15:00")


@each("wrong", [datetime(2026, 1, 1), None, "2026-01-01", 5])
def test_a_moment_needs_a_zone(wrong: datetime) -> None:
    rule = parse_rule("@daily")
    for ask in (lambda: rule.next(wrong), lambda: rule.ticks(NOON, wrong, 1), lambda: rule.latest(wrong, NOON)):
        with pytest.raises(InvalidArguments, match="is not a datetime with a time zone"):
            ask()


# What cannot be written


@each(
    "text, said",
    [
        ("", "is empty; write cron as in '0 3 * * *', 'every 30s', or 'at 2026-03-01T09:00:00'"),
        (" \n", "is empty"),
        ("0 " * 101, "has 202 characters, more than 200"),
        ("0 3 * * *\x00", "has '\\x00' at position 9; only plain ASCII"),
        ("０ 3 * * *", "has '０' at position 0; only plain ASCII"),
        ("nightly", "has 1 field; write cron as in"),
        ("daily", "nearest: '@daily'"),
        ("0 3 * *", "has 4 fields; cron has 5: minute, hour, day-of-month, month, day-of-week; nearest: '0 3 * * *'"),
        ("0 0 3 * * * 2026", "has 7 fields; cron has 5"),
        (
            "0 0 3 * * *",
            "has 6 fields: seconds come first, but only when the option seconds asks for them; nearest: '0 3 * * *'",
        ),
        ("0 0 12 ? * MON", "the option seconds asks for them; nearest: '0 12 * * MON'"),
        (
            "0 0 0 31 2 *",
            "has 6 fields: seconds come first, but only when the option seconds asks for them; nearest: '0 0 L 2 *'",
        ),
        ("0 0 32 2 *", "has a wrong day-of-month '32': only 1–31 are allowed; nearest: '0 0 L 2 *'"),
        ("0 0 31 2 *", "never fires: none of its months has that day; nearest: '0 0 L 2 *'"),
        ("0 0 31 4,6,9,11 *", "never fires: none of its months has that day; nearest: '0 0 L 4,6,9,11 *'"),
        (
            "0 0 */9 * MON#5",
            "never fires: no day fits both its day-of-month and its day-of-week; nearest: '0 0 * * MON#5'",
        ),
        ("61 * * * *", "has a wrong minute '61': only 0–59 are allowed; nearest: '59 * * * *'"),
        ("0 24 * * *", "has a wrong hour '24': only 0–23 are allowed; nearest: '0 23 * * *'"),
        ("0 0 0 * *", "has a wrong day-of-month '0': only 1–31 are allowed; nearest: '0 0 1 * *'"),
        ("5-1 * * * *", "has a wrong minute '5-1': the range runs backwards; nearest: '5-59,0-1 * * * *'"),
        ("0 22-2 * * *", "has a wrong hour '22-2': the range runs backwards; nearest: '0 22-23,0-2 * * *'"),
        ("0 0 * * FRI-MON", "nearest: '0 0 * * 5-6,0-1'"),
        ("0 0 * * MON-SUN", "nearest: '0 0 * * 1-7'"),
        ("0 0 * FOO *", "has a wrong month 'FOO': only 1–12 or JAN–DEC are allowed"),
        ("0 0 * SEPT *", "nearest: '0 0 * SEP *'"),
        ("0 0 * * MOM", "has a wrong day-of-week 'MOM': only 0–7 or SUN–SAT are allowed; nearest: '0 0 * * MON'"),
        ("0 0 * * thursday", "nearest: '0 0 * * THU'"),
        ("0 0 * * FRIL", "the last Friday of a month is 5L, the second is FRI#2, and there are at most five"),
        ("0 0 * * MON#6", "nearest: '0 0 * * 1#5'"),
        ("0 0 L/2 * *", "has a wrong day-of-month 'L/2': the last day takes no step; nearest: '0 0 L * *'"),
        (
            "*/90 * * * *",
            "has a wrong minute '*/90': a step over 59 never gets to a second value; nearest: '0 * * * *'",
        ),
        ("*/99999999999999999999 * * * *", "a step over 59"),
        ("5-5/10 * * * *", "a range of one value takes no step; nearest: '5 * * * *'"),
        ("*/0 * * * *", "a step is a number from 1 on; nearest: '* * * * *'"),
        ("*/-5 * * * *", "a step is a number from 1 on"),
        ("0-4000000000 * * * *", "only 0–59 are allowed; nearest: '0-59 * * * *'"),
        ("99-98 * * * *", "nearest: '59-59 * * * *'"),
        ("1,,2 * * * *", "an item is missing; nearest: '1,2 * * * *'"),
        ("61 25 * * MOM", "has a wrong minute '61': only 0–59 are allowed; nearest: '59 23 * * MON'"),
        ("@dayly", "isn't a macro; did you mean @daily?"),
        ("@reboot", "isn't a macro; known: @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually"),
        ("@every 5m", "isn't a macro; did you mean 'every 5m'?"),
        ("every 0s", "is not between 1 second and 366 days; the nearest are 'every 1s' and 'every 366d'"),
        ("every 0.5s", "is not between 1 second and 366 days"),
        ("every 367d", "is not between 1 second and 366 days"),
        ("every 999999999999w", "is not between 1 second and 366 days"),
        ("every 1.5s", "is not in whole seconds; nearest: 'every 2s'"),
        ("every 30", "has no unit; did you mean 'every 30s' or 'every 30m'?"),
        ("every 5 minutes", "isn't an interval of one number and one unit; did you mean 'every 5m'?"),
        ("every hour", "did you mean 'every 1h'?"),
        ("every 3 months", "isn't an interval of one number and one unit; write 'every 30s', or 5m, 2h, 1d, 1w"),
        ("every 1h30m", "isn't an interval of one number and one unit"),
        ("every -5s", "isn't an interval of one number and one unit"),
        ("every", "isn't an interval of one number and one unit"),
        ("at 03:00", "isn't a date and time; write it as 'at 2026-03-01T09:00:00' or with an offset, +09:00 or Z"),
        ("2026-03-01", "isn't a date and time"),
        ("at 2026-03-01T09:00:00+09:99", "isn't a date and time"),
        ("at 2026-02-30T09:00", "does not exist (day is out of range for month); nearest: 'at 2026-02-28T09:00'"),
        ("at 2026-13-01T09:00", "does not exist (month must be in 1..12)"),
        ("at 2026-03-01T24:00", "does not exist (hour must be in 0..23)"),
        ("at 2026-03-01T09:00+24:00", "does not exist"),
        ("at 0000-01-01T09:00", "does not exist"),
        ("at 1969-12-31T23:59:59", "is not in the years from 1970 to 2199"),
        ("at 9999-12-31T23:59:59-23:59", "is not in the years from 1970 to 2199"),
        ("at 0001-01-01T00:00+23:59", "is not in the years from 1970 to 2199"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_would_be_right(text: str, said: str) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(said)) as caught:
        parse_rule(text, "Asia/Seoul" if text.startswith("at 1969") else "UTC")
    assert len(str(caught.value)) < 300


@each(
    "zone, said",
    [
        ("Europe/Berln", "unknown zone 'Europe/Berln'; did you mean Europe/Berlin"),
        ("europe/berlin", "did you mean Europe/Berlin"),
        ("Seoul", "did you mean Asia/Seoul"),
        ("GMT+9", "did you mean GMT"),  # Etc/GMT+9 lies on the other side of the world
        ("../../etc/passwd", "unknown zone '../../etc/passwd'"),
        ("localtime", "unknown zone 'localtime'"),
        ("Europe", "unknown zone 'Europe'"),
        ("", "unknown zone ''; give an IANA name like Asia/Seoul"),
        ("\x00", "unknown zone '\\x00'"),
        ("x" * 10_000, "unknown zone"),
        (None, "a zone must be an IANA name such as 'Asia/Seoul', not NoneType"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest_names(zone: str, said: str) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(said)) as caught:
        parse_rule("@daily", zone)
    assert "GMT+" not in str(caught.value).partition(";")[2]


@each("wrong", [None, 5, b"@daily"])
def test_a_rule_is_text(wrong: str) -> None:
    with pytest.raises(InvalidArguments, match="a rule must be text, not"):
        parse_rule(wrong)


@each(
    "rule",
    [
        Rule("cron", "61 * * * *", "UTC"),
        Rule("cron", "² * * * *", "UTC"),
        Rule("cron", "0 3 * * *", "Nowhere"),
        Rule("every", "0 3 * * *", "UTC"),
        Rule("once", "soon", "UTC"),
    ],
)
def test_a_rule_made_by_hand_is_checked_when_used(rule: Rule) -> None:
    with pytest.raises(InvalidArguments):
        rule.next(NOON)


PIECES = [
    *MACROS,
    *"0123456789*/-,#LW? :.TZ+@",
    "every",
    "at ",
    "MON",
    "JAN",
    "2026-03-01",
    "30s",
    " * * *",
    "0 0 ",
    "99",
]
NEARLY = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
VALUES = st.sampled_from(["*", "0", "5", "7", "12", "29", "31", "60", "MON", "FEB", "L", "LW", "5L", "2#2", "?", ""])
ITEMS = st.builds("".join, st.tuples(VALUES, st.sampled_from(["", "-", "/", ","]), VALUES)) | VALUES
FIVE = st.lists(ITEMS, min_size=5, max_size=6).map(" ".join)


@given(st.text(max_size=300) | NEARLY | FIVE, st.booleans())
@example("9" * 200, False)
@example("*/" + "9" * 190 + " * * * *", False)
@example("every " + "9" * 190 + "s", False)
@settings(deadline=20_000, max_examples=100)  # a text that makes it count without end must not pass
def test_any_text_is_a_rule_or_refused(text: str, seconds: bool) -> None:
    try:
        rule = parse_rule(text, "Europe/Berlin", seconds=seconds)
    except InvalidArguments as refusal:
        nearest = re.search(r"nearest: '(.*)'$", str(refusal))
        if nearest and "never fires" not in str(refusal):
            try:
                parse_rule(nearest[1], seconds=seconds)
            except InvalidArguments as again:  # all fields mended: only a day that no month has is left
                assert "never fires" in str(again)  # noqa: PT017
        return
    assert parse_rule(rule.text, rule.zone, seconds=True) == rule
    assert rule.words()
    assert rule.kind == "once" or rule.next(NOON) is not None


@given(st.text(max_size=80))
@settings(deadline=20_000)
def test_any_zone_is_known_or_refused(zone: str) -> None:
    assume(zone != "UTC")
    with pytest.raises(InvalidArguments, match="unknown zone"):
        parse_rule("@daily", f"{zone}?")


@given(st.integers(1, 366 * 86_400), st.datetimes(datetime(1970, 1, 1), datetime(2190, 1, 1), timezones=st.just(UTC)))
def test_intervals_are_multiples_since_1970(seconds: int, after: datetime) -> None:
    rule = parse_rule(f"every {seconds}s")
    tick = rule.next(after)
    assert tick is not None
    assert tick.timestamp() % seconds == 0
    assert timedelta(0) < tick - after <= timedelta(seconds=seconds)
    assert rule.latest(tick - timedelta(seconds=seconds), tick) == tick


def test_the_fields_are_those_of_the_messages() -> None:
    assert [field.name for field in FIELDS] == ["second", "minute", "hour", "day-of-month", "month", "day-of-week"]
