"""How far events were read: by the one reader of a server, and by each of its clients. Without I/O.

On PostgreSQL a transaction may commit an event whose id is smaller than one that was already read. The reader therefore
remembers each missing id, and gives it up only when every transaction that was running when the gap was noticed has
ended. The *mark* is the id up to which no more events can appear.

A client's position is the text `mark.id`. A client that reconnects with it gets every event after that mark again,
except the event `id`. It may get an event twice, but never misses one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rowlock.store.events import Event, News

POSITION = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")
MOST_MISSING = 100_000  # missing ids that a reader remembers; after a wider gap all clients must reload


class Position(NamedTuple):
    """How far a client has read the events."""

    mark: int
    last: int

    def __str__(self) -> str:
        return f"{self.mark}.{self.last}"

    @classmethod
    def read(cls, text: str | None) -> Position | None:
        """Parse the position that a client sends; None if it is not valid."""
        found = POSITION.fullmatch(text or "")
        return None if found is None else cls(int(found[1]), int(found[2]))


class Reader:
    """Tracks which ids were read, which are missing, and the mark: up to it no more events can appear. Without I/O."""

    def __init__(self, newest: int) -> None:
        self.mark = self.newest = newest
        self.missing: dict[int, int] = {}  # id -> every transaction that could bring it has a number below this one
        self.jumped = False  # a gap was too wide to remember: events may have been lost in it

    def learn(self, news: News, asked: Sequence[int] = ()) -> list[Event]:
        """The events that were not known before, oldest first. `asked` are the missing ids that were looked for, beside
        everything after the newest id: no other missing id can be given up."""
        fresh = [event for event in news.events if event.id > self.newest or event.id in self.missing]
        looked_for, newest = set(asked), self.newest
        for event in fresh:
            self.missing.pop(event.id, None)
            first = max(self.newest + 1, event.id - MOST_MISSING)
            self.jumped |= first > self.newest + 1
            self.missing |= dict.fromkeys(range(first, event.id), news.running_to)
            self.newest = max(self.newest, event.id)
        self.missing = {
            gap: until
            for gap, until in self.missing.items()
            if until > news.running_from or not (gap in looked_for or gap > newest)
        }
        self.mark = min(self.missing) - 1 if self.missing else self.newest
        return fresh
