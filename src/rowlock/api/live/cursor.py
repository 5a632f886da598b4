"""How far events were read: by the one reader of a server, and by each of its clients. Without I/O.

On PostgreSQL a transaction may commit an event whose id is smaller than one that was already read. The reader therefore
remembers each gap, and gives it up only when every transaction that had begun when the gap was noticed, and may have
written events, has ended. The *mark* is the id up to which no more events can appear.

A client's position is the text `mark.id`. A client that reconnects with it gets every event after that mark again,
except the event `id`. It may get an event twice, but never misses one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from rowlock.api.live.events import Event, Gap, News

POSITION = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")
MOST_GAPS = 10_000  # that a reader remembers; what more there are is told as one `resync` when all of it has ended


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

    def __init__(self, newest: int, gaps: Sequence[Gap] = (), deleted: int = 0) -> None:
        self.newest, self.gaps = newest, list(gaps)  # the gaps are in the order of their ids
        self.deleted = deleted  # the largest id of an event that was deleted, as far as this reader knows
        self.forgotten: Gap | None = None  # from the first to the last of the gaps that were too many to remember
        # Events may have come in forgotten gaps, and no more can; or they were deleted before they were read, because
        # the database was out of reach for long: all clients must reload.
        self.lost = False
        self._forget()
        self.mark = self._mark()

    @property
    def until(self) -> int | None:
        """The largest number that a gap waits for; None if none waits for one."""
        gaps = self.gaps if self.forgotten is None else [*self.gaps, self.forgotten]
        return max((gap.until for gap in gaps if gap.until is not None), default=None)

    def learn(self, news: News, limit: int) -> list[Event]:
        """The events that were not known before, oldest first. `news` was read for all gaps, at most `limit` events:
        if it has that many, some gaps were not looked into, and none is given up."""
        late = sum(event.id <= self.newest for event in news.events)
        self.lost = self.lost or news.deleted > self.newest
        fresh = [event for event in news.events if self._is_new(event.id, news.running_to)]
        self.gaps = [_bounded(gap, news) for gap in self.gaps]
        if late < limit:
            ended = [gap for gap in self.gaps if _has_ended(gap, news)]
            self.lost = self.lost or any(self.deleted < gap.last and gap.first <= news.deleted for gap in ended)
            self.gaps, self.deleted = [gap for gap in self.gaps if not _has_ended(gap, news)], news.deleted
        if self.forgotten is not None:
            self.forgotten = _bounded(self.forgotten, news)
            if _has_ended(self.forgotten, news):
                self.forgotten, self.lost = None, True
        self._forget()
        self.mark = self._mark()
        return fresh

    def _is_new(self, event_id: int, running_to: int | None) -> bool:
        """Note that this event was read: the gap before it, or the gap that it was in."""
        if event_id > self.newest:
            if event_id > self.newest + 1:
                self.gaps.append(Gap(self.newest + 1, event_id - 1, running_to))
            self.newest = event_id
            return True
        at = bisect_right(self.gaps, event_id, key=attrgetter("first")) - 1
        if at < 0 or self.gaps[at].last < event_id:
            return False
        first, last, until = self.gaps[at]
        rest = [Gap(first, event_id - 1, until), Gap(event_id + 1, last, until)]
        self.gaps[at : at + 1] = [gap for gap in rest if gap.first <= gap.last]
        return True

    def _forget(self) -> None:
        """Keep the newest gaps. The mark stays below the others until no more events can appear in them."""
        if len(self.gaps) <= MOST_GAPS:
            return
        old, self.gaps = self.gaps[:-MOST_GAPS], self.gaps[-MOST_GAPS:]
        old += [] if self.forgotten is None else [self.forgotten]
        untils = [gap.until for gap in old if gap.until is not None]
        until = max(untils) if len(untils) == len(old) else None
        self.forgotten = Gap(min(gap.first for gap in old), max(gap.last for gap in old), until)

    def _mark(self) -> int:
        firsts = [gap.first for gap in self.gaps[:1] + ([] if self.forgotten is None else [self.forgotten])]
        return min(firsts) - 1 if firsts else self.newest


def _bounded(gap: Gap, news: News) -> Gap:
    """The gap, with a number of a transaction if it had none."""
    return gap._replace(until=news.running_to) if gap.until is None else gap


def _has_ended(gap: Gap, news: News) -> bool:
    """Whether every transaction that could bring an event of the gap has ended."""
    return gap.until is not None and gap.until <= news.running_from
