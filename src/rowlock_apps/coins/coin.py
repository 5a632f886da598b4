"""A coin as its owner describes it, and how well a listing's title fits it. Pure: no database, no network."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from rowlock_apps.coins.answer_cache import AnswerCache

# Neither engine stores a NUL, and no control character belongs in a name.
Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")]

YEAR, MINTMARK, DENOMINATION, SERIES, TITLE = 40, 25, 15, 20, 10  # the weight of each part of a description
_YEARS = re.compile(r"(?<!\d)(?:1\d{3}|20\d{2})(?!\d)")
_WORDS = re.compile(r"[^\W_]+")


class Coin(BaseModel):
    """A coin to search for. Equal descriptions are one intake, because they have one price."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    year: Annotated[int, Field(ge=1, le=2100)]
    mintmark: Annotated[Text, StringConstraints(pattern=r"^[A-Z]{0,2}$")] = ""  # none: struck in Philadelphia
    denomination: Annotated[Text, StringConstraints(min_length=1)]
    series: Text = ""
    title: Text = ""

    def __str__(self) -> str:
        struck = f"{self.year}-{self.mintmark}" if self.mintmark else str(self.year)
        return " ".join(filter(None, [struck, self.series, self.denomination, self.title]))

    def cache_key(self, source_id: str) -> str:
        """`source_id|year|mintmark|denomination|series|title`."""
        return AnswerCache.key(
            source_id=source_id,
            year=self.year,
            mintmark=self.mintmark,
            denomination=self.denomination,
            series=self.series,
            title=self.title,
        )


def match_strength(coin: Coin, title: str) -> int:
    """0 to 100: how much of the coin's description the title of a listing repeats; 0 if it names another year or mint.

    Parts that the description lacks are not counted, so that a short description can reach 100.
    """
    years = {int(year) for year in _YEARS.findall(title)}
    if years and coin.year not in years:
        return 0
    mint = _mint(coin.year, title)
    if mint and mint != (coin.mintmark or "P"):
        return 0
    words = _words(title)
    met: float = YEAR * (str(coin.year) in words or bool(years))
    met += MINTMARK * bool(mint or not coin.mintmark)  # a title without a mintmark is about Philadelphia
    possible = YEAR + MINTMARK
    for text, weight in ((coin.denomination, DENOMINATION), (coin.series, SERIES), (coin.title, TITLE)):
        if wanted := _words(text):
            met += weight * len(wanted & words) / len(wanted)
            possible += weight
    return round(100 * met / possible)


def _mint(year: int, title: str) -> str:
    """The mintmark beside the year, as in 1921-D, 1921 D and 1921D; nothing if there is none."""
    found = re.search(rf"(?<!\d){year}\s?[-/]?\s?(CC|[CDOPSW])(?![^\W_])", title, re.IGNORECASE)
    return found[1].upper() if found else ""


def _words(text: str) -> set[str]:
    return set(_WORDS.findall(text.casefold()))
