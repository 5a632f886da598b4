"""Rules where clocks change: a fixed time fires once, every hour fires every hour, and no tick is lost or doubled."""

from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from rowlock.core.schedules.rule import Rule, parse_rule
from support.each import each

MOST = 100_000


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fired(rule: Rule, after: str, until: str) -> list[str]:
    """The ticks of a window, asked for in all the ways there are."""
    start, end = moment(after), moment(until)
    found, more = rule.ticks(start, end, MOST)
    assert not more
    assert one_by_one(rule, start, end) == found
    assert one_by_one_back(rule, start, end) == found
    return [f"{tick:%m-%d %H:%M}" + (f":{tick:%S}" if tick.second else "") for tick in found]


def one_by_one(rule: Rule, after: datetime, until: datetime) -> list[datetime]:
    found: list[datetime] = []
    while (tick := rule.next(found[-1] if found else after)) is not None and tick <= until:
        found.append(tick)
    return found


def one_by_one_back(rule: Rule, after: datetime, until: datetime) -> list[datetime]:
    found: list[datetime] = []
    while (tick := rule.latest(after, found[0] - timedelta(microseconds=1) if found else until)) is not None:
        found.insert(0, tick)
    return found


# Both changes of 2026 and 2027 in six zones

BERLIN, NEW_YORK, LONDON = "Europe/Berlin", "America/New_York", "Europe/London"
LORD_HOWE, SEOUL, CAIRO = "Australia/Lord_Howe", "Asia/Seoul", "Africa/Cairo"

TABLE = [
    # 02:00 → 03:00 on 29 March 2026 and 28 March 2027, 01:00 UTC
    (BERLIN, "30 2 * * *", "2026-03-28", "2026-03-31", ["03-28 01:30", "03-29 01:00", "03-30 00:30"]),
    (BERLIN, "30 1-3 * * *", "2026-03-29", "2026-03-29 12:00", ["03-29 00:30", "03-29 01:00", "03-29 01:30"]),
    (BERLIN, "0 2,3 * * *", "2026-03-29", "2026-03-29 12:00", ["03-29 01:00"]),
    (BERLIN, "*/30 2 * * *", "2026-03-29", "2026-03-29 12:00", ["03-29 01:00"]),
    (BERLIN, "0 30 2 * * *", "2026-03-29", "2026-03-29 12:00", ["03-29 01:00"]),
    (BERLIN, "*/30 * * * *", "2026-03-29 00:15", "2026-03-29 01:45", ["03-29 00:30", "03-29 01:00", "03-29 01:30"]),
    (BERLIN, "0 */2 * * *", "2026-03-28 22:30", "2026-03-29 03:30", ["03-28 23:00", "03-29 02:00"]),
    (BERLIN, "30 2 * * *", "2027-03-27", "2027-03-30", ["03-27 01:30", "03-28 01:00", "03-29 00:30"]),
    (BERLIN, "0 * * * *", "2027-03-27 23:30", "2027-03-28 02:30", ["03-28 00:00", "03-28 01:00", "03-28 02:00"]),
    # 03:00 → 02:00 on 25 October 2026 and 31 October 2027, 01:00 UTC
    (BERLIN, "30 2 * * *", "2026-10-24", "2026-10-27", ["10-24 00:30", "10-25 00:30", "10-26 01:30"]),
    (BERLIN, "30 1-3 * * *", "2026-10-24 22:00", "2026-10-25 12:00", ["10-24 23:30", "10-25 00:30", "10-25 02:30"]),
    (BERLIN, "*/30 2 * * *", "2026-10-24 22:00", "2026-10-25 12:00", ["10-25 00:00", "10-25 00:30"]),
    (BERLIN, "0 30 2 * * *", "2026-10-24 22:00", "2026-10-25 12:00", ["10-25 00:30"]),
    (BERLIN, "0 * * * *", "2026-10-24 23:30", "2026-10-25 02:30", ["10-25 00:00", "10-25 01:00", "10-25 02:00"]),
    (BERLIN, "0 0-23 * * *", "2026-10-24 23:30", "2026-10-25 02:30", ["10-25 00:00", "10-25 01:00", "10-25 02:00"]),
    (BERLIN, "0 */2 * * *", "2026-10-24 23:30", "2026-10-25 03:30", ["10-25 00:00", "10-25 01:00", "10-25 03:00"]),
    (BERLIN, "30 2 * * *", "2027-10-30", "2027-11-02", ["10-30 00:30", "10-31 00:30", "11-01 01:30"]),
    (BERLIN, "0 * * * *", "2027-10-30 23:30", "2027-10-31 02:30", ["10-31 00:00", "10-31 01:00", "10-31 02:00"]),
    # 02:00 → 03:00 on 8 March 2026 and 14 March 2027, 07:00 UTC
    (NEW_YORK, "30 2 * * *", "2026-03-07", "2026-03-10", ["03-07 07:30", "03-08 07:00", "03-09 06:30"]),
    (NEW_YORK, "30 * * * *", "2026-03-08 06:00", "2026-03-08 09:00", ["03-08 06:30", "03-08 07:30", "03-08 08:30"]),
    (NEW_YORK, "30 2 * * *", "2027-03-13", "2027-03-16", ["03-13 07:30", "03-14 07:00", "03-15 06:30"]),
    (NEW_YORK, "30 * * * *", "2027-03-14 06:00", "2027-03-14 09:00", ["03-14 06:30", "03-14 07:30", "03-14 08:30"]),
    # 02:00 → 01:00 on 1 November 2026 and 7 November 2027, 06:00 UTC
    (NEW_YORK, "30 1 * * *", "2026-10-31", "2026-11-03", ["10-31 05:30", "11-01 05:30", "11-02 06:30"]),
    (NEW_YORK, "0 2 * * *", "2026-10-31", "2026-11-03", ["10-31 06:00", "11-01 07:00", "11-02 07:00"]),
    (NEW_YORK, "30 * * * *", "2026-11-01 05:00", "2026-11-01 08:00", ["11-01 05:30", "11-01 06:30", "11-01 07:30"]),
    (NEW_YORK, "30 1 * * *", "2027-11-06", "2027-11-09", ["11-06 05:30", "11-07 05:30", "11-08 06:30"]),
    (NEW_YORK, "30 * * * *", "2027-11-07 05:00", "2027-11-07 08:00", ["11-07 05:30", "11-07 06:30", "11-07 07:30"]),
    # 01:00 → 02:00 on 29 March 2026 and 28 March 2027, 01:00 UTC
    (LONDON, "30 1 * * *", "2026-03-28", "2026-03-31", ["03-28 01:30", "03-29 01:00", "03-30 00:30"]),
    (LONDON, "0 1,2 * * *", "2026-03-29", "2026-03-29 12:00", ["03-29 01:00"]),
    (LONDON, "*/30 * * * *", "2026-03-29 00:15", "2026-03-29 01:45", ["03-29 00:30", "03-29 01:00", "03-29 01:30"]),
    (LONDON, "30 1 * * *", "2027-03-27", "2027-03-30", ["03-27 01:30", "03-28 01:00", "03-29 00:30"]),
    # 02:00 → 01:00 on 25 October 2026 and 31 October 2027, 01:00 UTC
    (LONDON, "30 1 * * *", "2026-10-24", "2026-10-27", ["10-24 00:30", "10-25 00:30", "10-26 01:30"]),
    (LONDON, "*/30 * * * *", "2026-10-25 00:15", "2026-10-25 01:45", ["10-25 00:30", "10-25 01:00", "10-25 01:30"]),
    (LONDON, "30 1 * * *", "2027-10-30", "2027-11-02", ["10-30 00:30", "10-31 00:30", "11-01 01:30"]),
    # 02:00 → 02:30 on 4 October 2026 and 3 October 2027, 15:30 UTC of the day before
    (LORD_HOWE, "15 2 * * *", "2026-10-02", "2026-10-05", ["10-02 15:45", "10-03 15:30", "10-04 15:15"]),
    (LORD_HOWE, "40 * * * *", "2026-10-03 15:00", "2026-10-03 17:00", ["10-03 15:10", "10-03 15:40", "10-03 16:40"]),
    (LORD_HOWE, "0 * * * *", "2026-10-03 14:00", "2026-10-03 17:30", ["10-03 14:30", "10-03 16:00", "10-03 17:00"]),
    (LORD_HOWE, "0 */3 * * *", "2026-10-03 13:00", "2026-10-03 19:30", ["10-03 13:30", "10-03 16:00", "10-03 19:00"]),
    (LORD_HOWE, "*/30 * * * *", "2026-10-03 14:45", "2026-10-03 16:15", ["10-03 15:00", "10-03 15:30", "10-03 16:00"]),
    (LORD_HOWE, "15 2 * * *", "2027-10-01", "2027-10-04", ["10-01 15:45", "10-02 15:30", "10-03 15:15"]),
    # 02:00 → 01:30 on 5 April 2026 and 4 April 2027, 15:00 UTC of the day before
    (LORD_HOWE, "45 1 * * *", "2026-04-03", "2026-04-06", ["04-03 14:45", "04-04 14:45", "04-05 15:15"]),
    (LORD_HOWE, "40 * * * *", "2026-04-04 14:00", "2026-04-04 17:00", ["04-04 14:40", "04-04 15:10", "04-04 16:10"]),
    (LORD_HOWE, "0 */2 * * *", "2026-04-04 12:30", "2026-04-04 18:00", ["04-04 13:00", "04-04 15:30", "04-04 17:30"]),
    (LORD_HOWE, "0 */3 * * *", "2026-04-04 12:30", "2026-04-04 20:00", ["04-04 13:00", "04-04 16:30", "04-04 19:30"]),
    (LORD_HOWE, "*/30 * * * *", "2026-04-04 14:15", "2026-04-04 15:45", ["04-04 14:30", "04-04 15:00", "04-04 15:30"]),
    (LORD_HOWE, "45 1 * * *", "2027-04-02", "2027-04-05", ["04-02 14:45", "04-03 14:45", "04-04 15:15"]),
    # No change
    (SEOUL, "30 2 * * *", "2026-03-28", "2026-03-31", ["03-28 17:30", "03-29 17:30", "03-30 17:30"]),
    (SEOUL, "30 2 * * *", "2026-10-24", "2026-10-27", ["10-24 17:30", "10-25 17:30", "10-26 17:30"]),
    (SEOUL, "0 */2 * * *", "2027-03-27 14:30", "2027-03-27 19:30", ["03-27 15:00", "03-27 17:00", "03-27 19:00"]),
    (SEOUL, "0 0 * * *", "2027-10-30", "2027-11-02", ["10-30 15:00", "10-31 15:00", "11-01 15:00"]),
    # 00:00 → 01:00 on 24 April 2026 and 30 April 2027, 22:00 UTC of the day before
    (CAIRO, "0 0 * * *", "2026-04-22", "2026-04-25", ["04-22 22:00", "04-23 22:00", "04-24 21:00"]),
    (CAIRO, "30 0 * * *", "2026-04-22", "2026-04-25", ["04-22 22:30", "04-23 22:00", "04-24 21:30"]),
    (CAIRO, "0 0 24 4 *", "2026-01-01", "2026-12-31", ["04-23 22:00"]),
    (CAIRO, "*/30 * * * *", "2026-04-23 21:15", "2026-04-23 22:45", ["04-23 21:30", "04-23 22:00", "04-23 22:30"]),
    (CAIRO, "30 0 * * *", "2027-04-28", "2027-05-01", ["04-28 22:30", "04-29 22:00", "04-30 21:30"]),
    # 24:00 → 23:00 on 29 October 2026 and 28 October 2027, 21:00 UTC
    (CAIRO, "30 23 * * *", "2026-10-28", "2026-10-31", ["10-28 20:30", "10-29 20:30", "10-30 21:30"]),
    (CAIRO, "0 0 * * *", "2026-10-28", "2026-10-31", ["10-28 21:00", "10-29 22:00", "10-30 22:00"]),
    (CAIRO, "30 * * * *", "2026-10-29 20:00", "2026-10-29 23:00", ["10-29 20:30", "10-29 21:30", "10-29 22:30"]),
    (CAIRO, "30 23 * * *", "2027-10-27", "2027-10-30", ["10-27 20:30", "10-28 20:30", "10-29 21:30"]),
]


@each("zone, text, after, until, expected", TABLE)
def test_rules_fire_as_expected_at_the_clock_changes_of_two_years_in_six_zones(
    zone: str, text: str, after: str, until: str, expected: list[str]
) -> None:
    assert fired(parse_rule(text, zone, seconds=True), after, until) == expected


HAVANA, BEIRUT, SAO_PAULO, TROLL = "America/Havana", "Asia/Beirut", "America/Sao_Paulo", "Antarctica/Troll"
APIA, MONROVIA, PYONGYANG, CASABLANCA = "Pacific/Apia", "Africa/Monrovia", "Asia/Pyongyang", "Africa/Casablanca"

ODD = [
    # At midnight, forward and back over it
    (HAVANA, "0 0 * * *", "2026-03-07", "2026-03-10", ["03-07 05:00", "03-08 05:00", "03-09 04:00"]),
    (HAVANA, "30 0 * * *", "2026-10-31", "2026-11-03", ["10-31 04:30", "11-01 04:30", "11-02 05:30"]),
    (BEIRUT, "0 0 * * *", "2026-03-27", "2026-03-30", ["03-27 22:00", "03-28 22:00", "03-29 21:00"]),
    (BEIRUT, "0 0 * * *", "2026-10-23", "2026-10-26", ["10-23 21:00", "10-24 22:00", "10-25 22:00"]),
    (SAO_PAULO, "0 0 * * *", "2018-11-03", "2018-11-06", ["11-03 03:00", "11-04 03:00", "11-05 02:00"]),
    # By two hours
    (TROLL, "30 2 * * *", "2026-03-28", "2026-03-31", ["03-28 02:30", "03-29 01:00", "03-30 00:30"]),
    (TROLL, "0 1,2 * * *", "2026-10-24 12:00", "2026-10-25 12:00", ["10-24 23:00", "10-25 00:00"]),
    # By a whole day, which Apia does not have: 30 December 2011
    (APIA, "0 9 * * *", "2011-12-29", "2012-01-01", ["12-29 19:00", "12-30 10:00", "12-30 19:00", "12-31 19:00"]),
    (APIA, "0 9 30 12 *", "2011-01-01", "2013-01-01", ["12-30 10:00", "12-29 19:00"]),
    (APIA, "0 */12 * * *", "2011-12-29 21:00", "2011-12-31", ["12-29 22:00", "12-30 10:00", "12-30 22:00"]),
    # By 44 minutes and 30 seconds, with ticks between the minutes of UTC before it
    (MONROVIA, "0 * * * *", "1972-01-06 23:00", "1972-01-07 02:30", ["01-06 23:44:30", "01-07 01:00", "01-07 02:00"]),
    (MONROVIA, "15 0 * * *", "1972-01-06", "1972-01-08 12:00", ["01-06 00:59:30", "01-07 00:44:30", "01-08 00:15"]),
    # For good, and not by an hour
    (PYONGYANG, "45 23 * * *", "2015-08-13", "2015-08-16", ["08-13 14:45", "08-14 14:45", "08-15 15:15"]),
    (PYONGYANG, "45 23 * * *", "2018-05-03", "2018-05-06", ["05-03 15:15", "05-04 15:00", "05-05 14:45"]),
    # Twice a year more, for Ramadan
    (CASABLANCA, "30 2 * * *", "2026-02-14", "2026-02-17", ["02-14 01:30", "02-15 01:30", "02-16 02:30"]),
    (CASABLANCA, "30 2 * * *", "2026-03-21", "2026-03-24", ["03-21 02:30", "03-22 02:00", "03-23 01:30"]),
]


@each("zone, text, after, until, expected", ODD)
def test_changes_at_odd_times_and_by_odd_amounts(
    zone: str, text: str, after: str, until: str, expected: list[str]
) -> None:
    assert fired(parse_rule(text, zone), after, until) == expected


@each("minute", [0, 15, 29, 30, 31, 59])
def test_within_the_second_pass_the_next_tick_is_not_one_of_the_first(minute: int) -> None:
    after = moment("2026-10-25 01:00") + timedelta(minutes=minute)  # in Berlin for the second time past two
    assert parse_rule("30 2 * * *", BERLIN).next(after) == moment("2026-10-26 01:30")
    assert parse_rule("30 2,3 * * *", BERLIN).next(after) == moment("2026-10-25 02:30")


def test_a_tick_at_the_end_of_the_gap_is_found_from_within_it() -> None:
    rule, end = parse_rule("15,45 2 * * *", BERLIN), moment("2026-03-29 01:00")
    assert rule.next(end - timedelta(microseconds=1)) == end
    assert rule.next(end) == moment("2026-03-30 00:15")
    assert rule.latest(end - timedelta(seconds=1), end) == end
    assert rule.latest(end, end + timedelta(minutes=50)) is None


def test_cronsim_still_has_the_faults_for_which_ticks_are_computed_here() -> None:
    """If one of these fails, cronsim has changed, and the head of `core/schedules/rule.py` has to say so."""

    def theirs(text: str, zone: str, after: str, until: str) -> list[str]:
        found = []
        for tick in CronSim(text, moment(after).astimezone(ZoneInfo(zone))):
            if tick > moment(until):
                return found
            found.append(f"{tick.astimezone(UTC):%m-%d %H:%M}")
        return found

    assert theirs("30 2 * * *", BERLIN, "2026-10-25 01:15", "2026-10-25 12:00") == ["10-25 00:30"]
    assert theirs("*/30 2 * * *", BERLIN, "2026-03-29", "2026-03-29 12:00") == []
    assert len(theirs("*/30 2 * * *", BERLIN, "2026-10-24 22:00", "2026-10-25 12:00")) == 4
    assert theirs("0 30 2 * * *", BERLIN, "2026-03-29", "2026-03-29 12:00") == []
    assert len(theirs("0 0-23 * * *", BERLIN, "2026-10-24 23:30", "2026-10-25 02:30")) == 2
    assert theirs("0 */3 * * *", LORD_HOWE, "2026-04-04 12:30", "2026-04-04 20:00") == ["04-04 13:00", "04-04 19:30"]
    assert theirs("40 * * * *", LORD_HOWE, "2026-04-04 14:00", "2026-04-04 17:00") == ["04-04 14:40", "04-04 16:10"]


# Any rule, any zone, any window

CHANGES = {
    "UTC": "2026-01-01",
    SEOUL: "1988-05-07 17:00",
    BERLIN: "2026-10-25 01:00",
    NEW_YORK: "2027-03-14 07:00",
    LONDON: "2026-03-29 01:00",
    LORD_HOWE: "2026-04-04 15:00",
    CAIRO: "2026-10-29 21:00",
    HAVANA: "2026-11-01 05:00",
    SAO_PAULO: "2018-02-18 02:00",
    "America/St_Johns": "1988-10-30 01:31",
    "Antarctica/Casey": "2020-10-03 16:01",
    TROLL: "2026-10-25 01:00",
    BEIRUT: "2026-10-24 21:00",
    "Asia/Gaza": "2040-10-20 00:00",
    "Asia/Kathmandu": "1985-12-31 18:30",
    APIA: "2011-12-30 10:00",
    "Pacific/Kwajalein": "1993-08-21 12:00",
}


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ends = st.tuples(number, number).filter(lambda pair: pair[0] < pair[1]).map(lambda pair: f"{pair[0]}-{pair[1]}")
    base = number.map(str) | ends
    step = st.tuples(st.just("*") | ends, st.integers(1, high - low)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    return st.just("*") | st.lists(base | step, min_size=1, max_size=3).map(",".join)


DAYS = st.sampled_from(
    ["* * *", "* * *", "* * *", "*/2 * *", "1,15,25,29,L * *", "* * SUN,MON", "13 * FRI", "* 3-10 *"]
)
RULES = st.builds("{} {} {}".format, field(0, 59), field(0, 23), DAYS)
SECOND_RULES = st.builds("{} {}".format, field(0, 59), RULES)
PLACES = st.sampled_from(sorted(CHANGES))
SHIFTS = st.integers(-3 * 86_400_000_000, 2 * 86_400_000_000) | st.integers(-72, 48).map(
    lambda hour: hour * 3_600_000_000
)


def by_hand(text: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    """The same ticks from each time on the wall clock: slow, and without a thought of when clocks change."""
    info, most = ZoneInfo(zone), timedelta(hours=26 if zone.startswith("Pacific") else 4)
    real_time = text.split()[1].startswith("*") or len(CronSim(text, datetime(2000, 1, 1)).hours) == 24

    def local(tick: datetime) -> datetime:
        return tick.astimezone(info).replace(tzinfo=None)

    found, shown_next = set(), datetime(1970, 1, 1)
    for wall in CronSim(text, local(after) - most):
        if wall > local(until) + most:
            break
        passes = [wall.replace(tzinfo=info, fold=fold).astimezone(UTC) for fold in (0, 1)]
        shown = [tick for tick in passes if local(tick) == wall]
        if real_time:
            found.update(shown)
        elif shown:
            found.add(min(shown))
        else:
            shown_next = max(shown_next, wall)
            while local(tick := shown_next.replace(tzinfo=info).astimezone(UTC)) != shown_next:
                shown_next += timedelta(minutes=1)
            found.add(tick)
    return sorted(tick for tick in found if after < tick <= until)


def check_window(rule: Rule, after: datetime, until: datetime, cuts: list[int], most: int) -> list[datetime]:
    """All ways to ask for the ticks of a window agree."""
    found, more = rule.ticks(after, until, MOST)
    assert not more
    assert all(earlier < later for earlier, later in pairwise(found))
    assert all(after < tick <= until for tick in found)
    assert rule.latest(after, until) == (found[-1] if found else None)
    assert rule.ticks(after, until, most) == (found[:most], len(found) > most)
    edges = sorted({after, until, *(after + (until - after) * cut / 1000 for cut in cuts)})
    pieces = [rule.ticks(start, end, MOST)[0] for start, end in pairwise(edges)]
    assert list(chain(*pieces)) == found
    for (start, end), piece in zip(pairwise(edges), pieces, strict=True):
        assert rule.latest(start, end) == (piece[-1] if piece else None)
        assert rule.next(start) == (piece[0] if piece else rule.next(end))
    return found


CUTS = st.lists(st.integers(0, 1000), max_size=5)


@given(RULES, PLACES, SHIFTS, st.integers(0, 60), CUTS, st.integers(0, 30))
@settings(deadline=None, max_examples=50)
def test_no_tick_is_lost_and_none_doubles(
    text: str, zone: str, shift: int, hours: int, cuts: list[int], most: int
) -> None:
    after = moment(CHANGES[zone]) + timedelta(microseconds=shift)
    until = after + timedelta(hours=hours)
    assert check_window(parse_rule(text, zone), after, until, cuts, most) == by_hand(text, zone, after, until)


@given(SECOND_RULES, PLACES, st.integers(-7200, 7200), st.integers(0, 1800), CUTS, st.integers(0, 30))
@settings(deadline=None, max_examples=50)
def test_no_tick_is_lost_among_seconds(
    text: str, zone: str, shift: int, length: int, cuts: list[int], most: int
) -> None:
    after = moment(CHANGES[zone]) + timedelta(seconds=shift)
    check_window(parse_rule(text, zone, seconds=True), after, after + timedelta(seconds=length), cuts, most)


@given(
    RULES | st.builds("every {}{}".format, st.integers(1, 7), st.sampled_from("hdw")),
    PLACES,
    st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    st.integers(0, 20),
    CUTS,
    st.integers(0, 30),
)
@settings(deadline=None, max_examples=60)
def test_no_tick_is_lost_at_any_time(
    text: str, zone: str, after: datetime, days: int, cuts: list[int], most: int
) -> None:
    check_window(parse_rule(text, zone), after, after + timedelta(days=days), cuts, most)


def test_six_field_rules_agree_with_five_field_ones() -> None:
    for zone, change in CHANGES.items():
        start, end = moment(change) - timedelta(days=2), moment(change) + timedelta(days=2)
        for text in ("30 2 * * *", "*/20 0-4 * * *", "15 * * * *", "0 */2 * * *"):
            six = parse_rule(f"0 {text}", zone, seconds=True)
            assert six.ticks(start, end, MOST) == parse_rule(text, zone).ticks(start, end, MOST)
