"""What a handler may raise or return that is hard to end an attempt with. Each is made anew from a source of chance."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NoReturn

from pydantic import BaseModel, model_serializer

from rowlock import LeaseLost, Permanent, Retry, Snooze, SourceError, TaskNotFound

Chance = random.Random


class Endless(BaseException):
    """Not an Exception."""


RAISED = (ValueError, KeyError, AttributeError, RecursionError, MemoryError, StopIteration, OverflowError)
GRAVE = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit, Endless)
NUMBERS: tuple[Any, ...] = (
    *(float("nan"), float("inf"), float("-inf"), -1, 1e300, 10**400, 3.3e9, True, "soon", None, b"1", 1j),
    *(timedelta.max, timedelta.min, timedelta(seconds=-1), [], {}),
)
TEXTS: tuple[Any, ...] = (
    "",
    "\x00",
    "a\x00b",
    "\ud800",
    "💥" * 5000,
    "x" * 2_000_000,
    "\r\n\x1b[31m",
    None,
    7,
    b"\xff",
    [1],
)
RETRY_AFTER = (
    *("Wed, 21 Oct 2026 07:28:00 +999999999999", "Wed, 21 Oct 2026 07:28:00 -99999", "Wed, 21 Oct 2026 07:28:00 +2400"),
    *("Mon, 01 Jan 0001 00:00:00 +2359", "Fri, 31 Dec 9999 23:59:59 -2359", "Wed, 99 Xxx 99999999999 07:28:00 GMT"),
    *("9" * 5000, "1e999", "-5", "nan", "inf", "²", "", " ", "\x00", ",,,", "Wed", "0", "0.5", "٣"),
)


def grave_or_not(chance: Chance) -> BaseException:
    """An exception of a plain class, from a property or a method where nobody expects one."""
    return chance.choice(RAISED + GRAVE)("from inside")


def plain(chance: Chance) -> BaseException:
    """Plain classes with strange messages."""
    return chance.choice(RAISED + GRAVE)(chance.choice(TEXTS))


def broken_property(chance: Chance) -> BaseException:
    """Whatever is asked of it raises."""
    error, name = (
        grave_or_not(chance),
        chance.choice(["response", "status_code", "status", "code", "headers", "__notes__"]),
    )

    def raise_it(self: Any) -> NoReturn:
        raise error

    return type("BrokenProperty", (chance.choice([Exception, Permanent, Retry, SourceError, Snooze]),), {
        name: property(raise_it), "__init__": lambda self: None,
    })()  # fmt: skip


def broken_attributes(chance: Chance) -> BaseException:
    """Asks for what it does not have go wrong, or never end in a number."""
    error = grave_or_not(chance)

    def raise_it(self: Any, name: str) -> NoReturn:
        raise error

    found = chance.choice([raise_it, lambda self, name: self, lambda self, name: 503 if name == "status" else self])
    hook = chance.choice(["__getattr__", "__getattribute__"])
    return type("BrokenAttributes", (Exception,), {hook: found})("odd")


def broken_text(chance: Chance) -> BaseException:
    """Its text cannot be had."""
    error, odd = grave_or_not(chance), chance.choice([5, None, b"x"])

    def raise_it(self: Any) -> NoReturn:
        raise error

    text = chance.choice([raise_it, lambda self: odd, lambda self: OddText("text")])
    base = chance.choice([Exception, Permanent, Retry, SourceError, Endless])
    return type("BrokenText", (base,), {"__str__": text, "__repr__": text})("odd")


class OddText(str):
    """Text whose methods are somebody's."""

    def __getitem__(self, key: Any) -> Any:
        return 5

    def encode(self, *_: Any) -> Any:
        raise RuntimeError("no")

    replace = encode  # type: ignore[assignment]


def broken_class(chance: Chance) -> BaseException:
    """A class that lies or raises when it is asked what it is."""
    error = grave_or_not(chance)

    def raise_it(*_: Any) -> NoReturn:
        raise error

    name = chance.choice(["__name__", "__mro__", "__hash__", "__eq__", "__instancecheck__"])
    rule = property(raise_it) if name in ("__name__", "__mro__") else raise_it
    meta = type("Meta", (type,), {name: rule} | ({"__hash__": type.__hash__} if name == "__eq__" else {}))
    lie: Any = chance.choice([property(raise_it), property(lambda self: Permanent), property(lambda self: 5), None])
    return meta("BrokenClass", (Exception,), {} if lie is None else {"__class__": lie})("odd")  # type: ignore[no-any-return]


def odd_numbers(chance: Chance) -> BaseException:
    """A delay that no clock can add, set after the check of the constructor."""
    number = chance.choice(NUMBERS)
    error = chance.choice([Retry("r", after=1), Snooze(1), SourceError("s", retry_after=1)])
    setattr(error, "retry_after" if isinstance(error, SourceError) else "after", number)
    return error


def odd_numbers_given(chance: Chance) -> BaseException:
    """The same given to the constructor, which raises in the handler."""
    number = chance.choice(NUMBERS)
    return chance.choice(
        [lambda: Retry(after=number), lambda: Snooze(number), lambda: SourceError("s", retry_after=number)]
    )()


def odd_code(chance: Chance) -> BaseException:
    """A code that is no word."""
    return chance.choice([Permanent, Retry, SourceError])("why", code=chance.choice([*TEXTS, OddText("X"), BadRepr()]))


class BadRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no text either")


def told_by_a_server(chance: Chance) -> BaseException:
    """An HTTP error with a header that a stranger wrote."""
    error = type("HTTPStatusError", (Exception,), {})("429")
    headers = {"Retry-After": chance.choice(RETRY_AFTER), "Date": chance.choice([*RETRY_AFTER, None])}
    error.response = SimpleNamespace(status_code=chance.choice([429, 503, 500, 403]), headers=headers)  # type: ignore[attr-defined]
    return error


def in_a_circle(chance: Chance) -> BaseException:
    """Causes that lead back, or are far too many."""
    first, last = ValueError("first"), KeyError("last")
    first.__cause__, last.__cause__ = last, first
    first.__context__, last.__context__ = last, first
    if chance.random() < 0.5:
        return first
    for number in range(3000):
        after = ValueError(number)
        after.__cause__ = last
        last = after  # type: ignore[assignment]
    return last


def of_a_group(chance: Chance) -> BaseException:
    """Groups in groups, of everything else here."""
    members = [chance.choice(SINGLE)(chance) for _ in range(chance.randint(1, 4))]
    group: BaseException = BaseExceptionGroup("g", members)
    for _ in range(chance.choice([0, 1, 3, 500])):
        group = BaseExceptionGroup("g", [group])
    return group


def about_others(chance: Chance) -> BaseException:
    """Our own errors, about other jobs or about none."""
    return chance.choice(
        [
            lambda: TaskNotFound("no task named 'x'"),
            lambda: LeaseLost("job 7 is lost"),
            lambda: LeaseLost("l", "a", "b"),
        ]
    )()


SINGLE: list[Callable[[Chance], BaseException]] = [
    plain,
    broken_property,
    broken_attributes,
    broken_text,
    broken_class,
    odd_numbers,
    odd_numbers_given,
    odd_code,
    told_by_a_server,
    in_a_circle,
    about_others,
]
EXCEPTIONS = [*SINGLE, of_a_group]
IN_TASKS = [make for make in SINGLE if make not in (broken_class, broken_attributes)]  # asyncio does not survive those


class BrokenModel(BaseModel):
    """A result whose own serialiser raises."""

    @model_serializer
    def text(self) -> Any:
        raise KeyError("no JSON today")


class BrokenDict(dict[str, Any]):
    def items(self) -> Any:
        raise ZeroDivisionError("no items")


def nested() -> Any:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


RESULTS: list[Callable[[], Any]] = [
    *(
        BrokenModel,
        lambda: BrokenDict(a=1),
        nested,
        circle,
        object,
        lambda: float("nan"),
        lambda: "\ud800",
        lambda: {1, 2},
    ),
    *(
        lambda: OddText("odd"),
        lambda: 10**5000,
        lambda: "\x00",
        lambda: "x" * 70_000,
        lambda: (n for n in [1]),
        BadRepr,
    ),
]
