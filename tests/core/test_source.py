"""Sources without a database: how many jobs their limits and token buckets admit."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rowlock.core.sources.admission import UNLIMITED, Gate, admit
from support.each import each
from support.rigs.gates import OPEN


@each("limit, running, room", [(2, 0, 2), (2, 1, 1), (2, 2, 0), (1, 4, 0), (0, 0, 0)])
def test_a_source_lets_in_what_its_limit_leaves(limit: int, running: int, room: int) -> None:
    assert admit(OPEN._replace(concurrency=limit, running=running)).room == room
    of_class = admit(OPEN._replace(total=limit, class_running=running))
    assert min(of_class.room, of_class.class_room) == room


@each(
    "why, gate",
    [
        ("disabled", OPEN._replace(enabled=False)),
        ("paused", OPEN._replace(paused_for=0.5)),
        ("breaker", OPEN._replace(opened=True, paused_for=0.5)),
        ("probe", OPEN._replace(opened=True, probing=True)),
        ("saturated", OPEN._replace(concurrency=1, running=1)),
        ("class", OPEN._replace(total=1, class_running=1)),
        ("rate", OPEN._replace(rate=60.0, tokens=0.5, elapsed=0.25)),
    ],
)
def test_a_closed_source_says_why(why: str, gate: Gate) -> None:
    admission = admit(gate)
    assert (admission.room, admission.why) == (0, why)
    assert admission.wait == {"paused": 0.5, "breaker": 0.5, "rate": 0.25}.get(why)


def test_a_half_open_source_lets_in_one_however_much_room_it_has() -> None:
    assert admit(OPEN._replace(opened=True, paused_for=-1.0, concurrency=50)) == (1, None, None, True, UNLIMITED)


RATES = st.sampled_from([0.5, 7.0, 30.0, 60.0, 1000.0, 90_000.0])
STEPS = st.lists(
    st.tuples(st.floats(-5, 200) | st.sampled_from([0.0, 1e-6, 1.0, 60.0]), st.integers(1, 12)), max_size=40
)


@settings(deadline=None)  # a busy machine is not a failure
@given(rate=RATES, burst=st.integers(1, 20), steps=STEPS)
def test_no_window_sees_more_than_its_burst_and_what_the_rate_brings(
    rate: float, burst: int, steps: list[tuple[float, int]]
) -> None:
    now = filled_at = 0.0
    tokens: float | None = None
    taken: list[float] = []
    for moved, wanted in steps:
        now += moved
        gate = OPEN._replace(rate=rate, burst=burst, tokens=tokens, elapsed=now - filled_at)
        count = min(wanted, admit(gate).room)
        if count:
            assert gate.level is not None
            tokens, filled_at = gate.level - count, max(filled_at, now)
            taken += [now] * count
    for start in taken:
        for end in taken:
            inside = sum(start <= at <= end for at in taken)
            assert inside <= burst + rate / 60 * max(0.0, end - start) + 1e-6


@settings(deadline=None)  # a busy machine is not a failure
@given(rate=RATES, burst=st.integers(1, 20), tokens=st.floats(0, 0.999))
def test_the_next_token_comes_when_it_was_promised_and_not_before(rate: float, burst: int, tokens: float) -> None:
    gate = OPEN._replace(rate=rate, burst=burst, tokens=tokens, elapsed=0.0)
    wait = admit(gate).wait
    assert wait is not None
    assert admit(gate._replace(elapsed=wait)).room == 1
    assert admit(gate._replace(elapsed=wait * 0.99)).room == 0
