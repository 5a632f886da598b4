"""Sample replays, for the demo, tests and a first look."""

from __future__ import annotations

import math

from rowlock import Rowlock
from rowlock_apps.replays import service
from rowlock_apps.replays.replay import Frame, Player, Replay

EVERY_MS = 100
PLAYERS = [Player(name="red", color="#e5484d"), Player(name="blue", color="#3e63dd")]


def sample(duration_ms: int) -> Replay:
    """Two players who circle around each other."""
    frames = []
    for moment in range(0, duration_ms + 1, EVERY_MS):
        turn = moment / 1500 * math.pi
        x, y = 0.35 * math.cos(turn), 0.35 * math.sin(turn)
        frames.append(Frame(t=moment, positions=[(0.5 + x, 0.5 + y), (0.5 - x, 0.5 - y)]))
    return Replay(duration_ms=duration_ms, players=PLAYERS, frames=frames)


def broken_off(duration_ms: int) -> Replay:
    """A recording that was broken off before its first frame."""
    return Replay(duration_ms=duration_ms, players=PLAYERS, frames=[])


async def add_samples(app: Rowlock, owner: str) -> list[str]:
    """A match of a user with three replays: 2 seconds, 6 seconds, and one without frames. Answers the replays' ids."""
    match = await service.create_match(app, owner, "Final", None)
    found = []
    for title, replay in (
        ("Set 1", sample(2000)),
        ("Set 2", sample(6000)),
        ("Set 3, broken off", broken_off(3000)),
    ):
        found.append((await service.create_replay(app, owner, title, match.id, replay)).id)
    return found
