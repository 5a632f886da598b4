"""Values of arguments are removed from a text in every form in which a message may quote them."""

import html
import json
import reprlib
import textwrap
from urllib.parse import quote, quote_plus, urlencode

from rowlock.core.argument_values import ArgumentValues
from rowlock.core.error_text import scrub
from support.each import each

NAME = 'Ana O\'Brien\n"Müller" / Söhne'
LONG = "9f31-secret-" + "abcdefgh12345678" * 40
PIECES = ("brien", "müller", "m\\xfc", "m%c3", "söhne", "s\\xf6", "9f31", "secret", "12345678")


@each(
    "text",
    [
        f"no {NAME}",
        f"no {NAME!r}",
        f"no {NAME!a}",
        f"no {json.dumps(NAME)}",
        f"no {json.dumps(json.dumps(NAME))!r}",
        f"no {NAME.encode()!r}",
        f"no {html.escape(NAME)}",
        f"no {NAME.upper()}",
        f"GET https://a.example/{quote(NAME, safe='')}/p",
        f"GET https://a.example/p?{urlencode({'name': NAME})}",
        f"GET https://a.example/{quote(quote_plus(NAME))}",
        f"no {LONG}",
        f"no {reprlib.repr(LONG)}",
        f"no {LONG[:20]}",
        f"no {LONG[:5]}... at all",
        f"no ****{LONG[-6:]}",
        f"no {textwrap.shorten(LONG, 30, placeholder='…')}",
        f"no {LONG[:10]}",
    ],
)
def test_a_value_is_removed_however_the_message_quotes_it(text: str) -> None:
    args = json.dumps({"name": NAME, "deep": [{"key": LONG}]})
    left = ArgumentValues(args).hide(text)
    assert left[:2] in ("no", "GE")
    assert "…" in left
    assert not [piece for piece in PIECES if piece in left.lower()], left


@each(
    "args, text, left",
    [
        ({"n": 7}, "7 of 17 rows", "… of 17 rows"),
        ({"n": 12345678}, "account 12,345,678 or 12345678", "account … or …"),
        ({"n": 1234.5}, "paid 1,234.50", "paid …"),
        ({"n": "Ana"}, "Ana in banana", "… in banana"),
        ({"n": "c4n4"}, "xc4n4y", "x…y"),
        ({"n": "!§$%&"}, "is !§$%& it", "is … it"),
        ({"n": {"private-header": 1}}, "no private-header", "no …"),
        ({"n": None, "m": True, "e": ""}, "None is True", "None is True"),
        ({"n": "x"}, "no such file", "no such file"),
    ],
)
def test_numbers_short_values_and_inner_keys_are_removed_and_other_words_stay(
    args: dict[str, object], text: str, left: str
) -> None:
    assert ArgumentValues(json.dumps(args)).hide(text) == left


@each(
    "value, text",
    [
        ("password", "password=hunter2 was refused"),
        ("the authorization", "the Authorization: Token hunter2 xyz"),
        ("https://ana", "https://ana:hunter2@a.example/"),
        ("https", "https://ana:hunter2@a.example/"),
        ("/path?q", "/path?q=hunter2"),
    ],
)
def test_a_value_that_covers_the_sign_of_a_secret_takes_the_secret_with_it(value: str, text: str) -> None:
    assert "hunter2" not in scrub(ArgumentValues(json.dumps({"v": value})).hide(text))


def test_arguments_that_cannot_be_read_hide_the_whole_text() -> None:
    assert ArgumentValues("{").hide("something") == "…"
    assert ArgumentValues("[" * 100_000).hide("something") == "…"
    assert ArgumentValues('{"n": ' + "9" * 5000 + "}").hide("it is " + "9" * 5000) == "it is …"
