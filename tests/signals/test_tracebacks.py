"""What an attempt raised, as data and as text: whole, bounded, without secrets and control characters."""

import json

from rowlock.core.error_text import scrub
from rowlock.core.tracebacks import STORED_BYTES, exceptions_of, trace_of, traceback_text
from support.each import each


def raised(function) -> BaseException:  # type: ignore[no-untyped-def]
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def text_of(error: BaseException, limit: int = 64 * 1024) -> str:
    trace = trace_of(error)
    assert trace is not None
    return traceback_text(json.loads(json.dumps(trace)), limit)  # as it comes from a child process


def fail_in_json() -> None:
    json.loads("{")


def test_causes_contexts_groups_and_notes_are_all_told_in_pythons_order() -> None:
    def work() -> None:
        try:
            try:
                fail_in_json()
            except ValueError as error:
                error.add_note("while reading the answer")
                raise LookupError("no price") from error
        except LookupError:
            raise ExceptionGroup("two shops", [RuntimeError("shop one"), KeyError("shop two")])  # noqa: B904

    text = text_of(raised(work))
    told = [
        "json.decoder.JSONDecodeError: Expecting property name",
        "while reading the answer",
        "The above exception was the direct cause of the following exception:",
        "LookupError: no price",
        "During handling of the above exception, another exception occurred:",
        "ExceptionGroup: two shops (2 sub-exceptions)",
        "RuntimeError: shop one",
        "KeyError: 'shop two'",
    ]
    places = [text.index(each) for each in told]
    assert places == sorted(places)
    assert "in fail_in_json" in text
    assert 'json.loads("{")' in text, "the line of source"


def test_a_suppressed_context_is_not_told() -> None:
    def work() -> None:
        try:
            fail_in_json()
        except ValueError:
            raise LookupError("no price") from None

    trace = trace_of(raised(work))
    assert trace is not None
    assert [one.kind for one in exceptions_of(trace)] == ["LookupError"]


def test_a_text_that_is_too_long_loses_frames_of_libraries_and_keeps_the_users_own() -> None:
    def deep(n: int) -> None:
        json.JSONEncoder(default=lambda _: deep(n - 1) if n else fail_in_json()).encode(object())

    error = raised(lambda: deep(12))
    whole = text_of(error)
    short = text_of(error, 6_000)
    assert len(short.encode()) <= 6_000 < len(whole.encode())
    assert "frames of libraries" in short
    assert short.count("in test_a_text_that_is_too_long") + short.count(", in deep") >= 12 or short.count("deep") >= 13
    assert "in fail_in_json" in short
    assert "JSONDecodeError: Expecting property name" in short


def test_a_recursion_is_told_in_a_few_lines() -> None:
    def again(n: int) -> None:
        again(n + 1)

    text = text_of(raised(lambda: again(0)))
    assert len(text.splitlines()) < 40
    assert "more times" in text
    assert "RecursionError: maximum recursion depth exceeded" in text


def test_a_huge_message_is_cut_to_the_limit() -> None:
    error = raised(lambda: (_ for _ in ()).throw(ExceptionGroup("many", [ValueError("ü" * 9000)] * 20)))
    assert len(text_of(error, STORED_BYTES).encode()) <= STORED_BYTES


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert text_of(first).count("ValueError: ") == 2


def test_a_message_cannot_forge_a_line() -> None:
    text = text_of(ValueError("first\n2026-01-01 ERROR forged\r\x1b[31mred\u2028more"))
    assert all(line.startswith("  ") for line in text.splitlines() if line)
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\u2028" not in text


def test_a_hostile_class_of_exceptions_gives_a_trace_or_none_and_never_raises() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not telling")

        @property
        def __cause__(self) -> BaseException:  # type: ignore[override]
            raise RuntimeError("no cause for you")

        @property
        def __notes__(self) -> list[str]:  # type: ignore[override]
            raise RuntimeError("no notes")

    assert "Hostile: <its message cannot be shown: RuntimeError>" in text_of(Hostile())


SECRET = "canary"


@each(
    "text, left",
    [
        ("GET https://a.example:8443/p/1?id=canary#canary: 404", "GET https://a.example:8443/p/1?…: 404"),
        ("postgresql://ana:canary@db.example/shop refused", "postgresql://db.example/shop refused"),
        ("https://canary@a.example/x", "https://a.example/x"),
        ("bad path /search?q=canary&n=1 here", "bad path /search?… here"),
        ("Authorization: Bearer canary-canary", "Authorization: …"),
        ("header Cookie: sid=canary; b=canary", "header Cookie: …"),
        ("sent Bearer canarycanary1 to it", "sent Bearer … to it"),
        ("api_key=canary and password: 'canary' end", "api_key=… and password: … end"),
        ('{"access_token": "canary", "n": 1}', '{"access_token": …, "n": 1}'),
        ("no user 42 in table users", "no user 42 in table users"),
        ("token expired at 12:00; really?", "token expired at 12:00; really?"),
    ],
)
def test_secrets_are_taken_out_of_texts_and_the_rest_stays(text: str, left: str) -> None:
    assert scrub(text) == left
    assert SECRET not in text_of(ValueError(text))


def test_addresses_of_people_are_taken_out_where_it_is_asked_for() -> None:
    assert scrub("no mailbox for ana.b+x@mail.example today", people=True) == "no mailbox for … today"
