"""robots.txt as RFC 9309 has it: the longest rule that fits decides, and `*` and `$` mean what people think."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

MOST_BYTES = 500 << 10
MOST_RULES = 2000
MOST_PATTERN = 1000
KEPT_SECONDS = 24 * 3600.0
MOST_HOSTS = 2000


class Pattern(NamedTuple):
    """A path as a rule has it, taken apart before it is decoded: `%2A` is a star and no wildcard."""

    length: int
    parts: tuple[str, ...]  # the texts between wildcards
    anchored: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """What one robot may fetch at one server."""

    rules: tuple[tuple[Pattern, bool], ...] = ()  # (pattern, allowed), the longest first

    def allows(self, path: str) -> bool:
        """Whether a path with its query may be fetched; /robots.txt always may."""
        wanted = unquote(path)
        return path == "/robots.txt" or next((allowed for rule, allowed in self.rules if _fits(rule, wanted)), True)


EVERYTHING = Rules()


def parse(text: str, robot: str) -> Rules:
    """The rules of the groups that name this robot, else those of `*`."""
    groups: dict[str, list[tuple[Pattern, bool]]] = {}
    agents: list[str] = []
    in_rules = False
    for line in text[:MOST_BYTES].removeprefix("\ufeff").splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not colon:
            continue
        if key == "user-agent":
            agents = [] if in_rules else agents
            in_rules = False
            agents.append(re.split(r"[/\s]", value.lower(), maxsplit=1)[0])  # with or without a version
            groups.setdefault(agents[-1], [])
        elif key in ("allow", "disallow"):
            in_rules = True
            for agent in agents:
                if value and len(value) <= MOST_PATTERN and len(groups[agent]) < MOST_RULES:
                    groups[agent].append((_pattern(value), key == "allow"))
    found = groups.get(robot.lower(), groups.get("*", []))
    return Rules(tuple(sorted(found, key=lambda rule: (rule[0].length, rule[1]), reverse=True)))


def _pattern(value: str) -> Pattern:
    parts = value.removesuffix("$").split("*")
    return Pattern(len(unquote(value)), tuple(map(unquote, parts)), value.endswith("$"))


def _fits(pattern: Pattern, path: str) -> bool:
    """Matches without a regular expression: a robots.txt could contain the worst case of one."""
    _, (first, *rest), anchored = pattern
    if not path.startswith(first):
        return False
    at = len(first)
    if not rest:
        return not anchored or at == len(path)
    for part in rest[:-1]:
        at = path.find(part, at)
        if at < 0:
            return False
        at += len(part)
    if anchored:
        return path.endswith(rest[-1]) and len(path) - len(rest[-1]) >= at
    return path.find(rest[-1], at) >= 0


class Robots:
    """The rules of the servers that were asked of late. Bounded, and in this process only. `ask` raises when a server
    does not answer: then nothing of it is fetched, and it is asked again the next time."""

    def __init__(self, ask: Callable[[str], Awaitable[Rules]]) -> None:
        self._ask = ask
        self._known: OrderedDict[str, tuple[float, Rules]] = OrderedDict()

    async def of(self, origin: str) -> Rules:
        """The rules of `https://example.com`."""
        until, rules = self._known.get(origin, (0.0, EVERYTHING))
        if until > time.monotonic():
            self._known.move_to_end(origin)
            return rules
        rules = await self._ask(origin)
        self._known[origin] = (time.monotonic() + KEPT_SECONDS, rules)
        self._known.move_to_end(origin)
        while len(self._known) > MOST_HOSTS:
            self._known.popitem(last=False)
        return rules
