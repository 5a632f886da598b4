"""The data of a replay: who played, and where each player was at which moment. No I/O but `load`."""

from __future__ import annotations

import json
from bisect import bisect_right
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

LONGEST_MS = 10 * 60 * 1000  # of an export: ten minutes
MOST_PLAYERS, MOST_FRAMES = 16, 20_000
LATEST_MS = 2**53 - 1  # what every JSON parser reads exactly

Place = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]  # from the left or top edge of the arena to the other
Text = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Milliseconds = Annotated[int, Field(ge=0, le=LATEST_MS)]


class ExportFailed(Exception):
    """An export that cannot be made. `code` is for programs, the text for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Shape(BaseModel):
    """camelCase in JSON, and no unknown fields."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class Player(Shape):
    """One player, drawn as a disc."""

    name: Text = Field(examples=["red"])
    color: str = Field(pattern=r"^#[0-9a-fA-F]{6}$", examples=["#e5484d"])


class Frame(Shape):
    """Where the players are at one moment, in the order of `players`."""

    t: Milliseconds
    positions: list[tuple[Place, Place]] = Field(max_length=MOST_PLAYERS)


class Replay(Shape):
    """What is drawn. It may lack frames, as a recording that was broken off does; then it cannot be exported."""

    duration_ms: Milliseconds = Field(examples=[4000])
    players: list[Player] = Field(max_length=MOST_PLAYERS)
    frames: list[Frame] = Field(max_length=MOST_FRAMES)

    @model_validator(mode="after")
    def _fits_together(self) -> Replay:
        latest = -1
        for number, frame in enumerate(self.frames):
            if len(frame.positions) != len(self.players):
                raise ValueError(f"frame {number} has {len(frame.positions)} positions for {len(self.players)} players")
            if frame.t <= latest:
                raise ValueError(f"frame {number} has t={frame.t}, which is not after the frame before it")
            latest = frame.t
        return self

    def positions_at(self, moment: float) -> list[tuple[float, float]]:
        """Where the players are at a moment in milliseconds: on the straight line between two frames."""
        after = bisect_right(self.frames, moment, key=lambda frame: frame.t)
        if after == 0 or after == len(self.frames):
            return list(self.frames[max(0, after - 1)].positions)
        before, then = self.frames[after - 1], self.frames[after]
        part = (moment - before.t) / (then.t - before.t)
        return [
            (x + (later_x - x) * part, y + (later_y - y) * part)
            for (x, y), (later_x, later_y) in zip(before.positions, then.positions, strict=True)
        ]


def check(frames: int, duration_ms: int) -> None:
    """Whether a replay can be exported; raises ExportFailed. The routes ask before they create a job, and the export
    asks again: a job may have been created by something else."""
    if frames == 0:
        raise ExportFailed("NO_FRAMES", "the replay has no frames: there is nothing to draw")
    if not 0 < duration_ms <= LONGEST_MS:
        raise ExportFailed(
            "INVALID_DURATION", f"the replay lasts {duration_ms:,} ms; an export has 1 to {LONGEST_MS:,} ms"
        )


def load(path: Path) -> Replay:
    """The replay in a file; raises ExportFailed. Its text is shown to users, who must not learn the server's paths."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ExportFailed("INPUT_NOT_FOUND", f"cannot read the file of the replay: {error.strerror}") from None
    try:
        return Replay.model_validate(json.loads(text))
    except (ValidationError, ValueError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise ExportFailed("INVALID_REPLAY", f"the file of the replay is damaged: {first}") from None
