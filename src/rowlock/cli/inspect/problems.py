"""What is wrong, as `rowlock stats` and `rowlock top` print it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rowlock.cli.kit.output import printable

if TYPE_CHECKING:
    from rowlock.health.conditions import Condition

SHOWN = 20


def data(problems: Sequence[Condition]) -> list[dict[str, str]]:
    """For JSON."""
    return [{"kind": one.kind, "name": one.name, "text": one.text, "do": one.do} for one in problems]


def lines(problems: Sequence[Condition], most: int = SHOWN) -> list[str]:
    """One line for each; if they are too many, the last line says how many more there are."""
    shown = len(problems) if len(problems) <= most else most - 1
    more = [f"! and {len(problems) - shown} more: rowlock doctor"] if len(problems) > shown else []
    return [*(f"! {printable(one.text)}" for one in problems[:shown]), *more]
