"""How a coin is described, and how well a listing fits it."""

from typing import Any

import pytest
from pydantic import ValidationError

from apps.coins.helpers import MORGAN, PEACE
from rowlock_apps.coins.coin import Coin, match_strength
from support.each import each

CENT = Coin(year=1909, mintmark="S", denomination="Cent", series="Lincoln", title="VDB")
BARE = Coin(year=1921, mintmark="D", denomination="Dollar")
DENARIUS = Coin(year=79, denomination="Denarius")


@each(
    "coin, title, strength",
    [
        (MORGAN, "1921-D Morgan Dollar", 100),
        (MORGAN, "MORGAN DOLLAR 1921 D, almost uncirculated", 100),
        (MORGAN, "1921D morgan silver dollar", 100),
        (MORGAN, "1921 Morgan Dollar", 75),  # which mint it does not say
        (MORGAN, "1921-D Dollar", 80),  # nor which series
        (MORGAN, "Morgan Dollar", 35),
        (MORGAN, "1921-S Morgan Dollar", 0),  # another mint
        (MORGAN, "1922-D Morgan Dollar", 0),  # another year
        (MORGAN, "1881-1921-D Morgan Dollar set", 100),  # more years, ours among them
        (MORGAN, "a lot of old silver", 0),
        (MORGAN, "", 0),
        (PEACE, "1922 Peace Dollar", 100),  # Philadelphia had no mintmark, …
        (PEACE, "1922-P Peace Dollar", 100),  # … but some write one
        (PEACE, "1922 S Peace Dollar", 0),
        (PEACE, "1922 Silver Peace Dollar", 100),  # that S is a word's, not a mint's
        (BARE, "1921-D Dollar", 100),  # a short description can be met in full
        (CENT, "1909-S VDB Lincoln Cent", 100),
        (CENT, "1909-S Lincoln Cent", 91),
        (DENARIUS, "Denarius of 79, Rome", 100),
        (DENARIUS, "1979 copy of a denarius", 0),
    ],
)
def test_a_title_matches_a_coin_by_the_number_of_its_marks(coin: Coin, title: str, strength: int) -> None:
    assert match_strength(coin, title) == strength


def test_the_cache_key_has_the_documents_parts_in_its_order() -> None:
    """S4.28: `source_id|year|mintmark|denomination|series|title`."""
    assert CENT.cache_key("ebay") == "ebay|1909|S|Cent|Lincoln|VDB"
    assert PEACE.cache_key("ebay") == "ebay|1922||Dollar|Peace|"


@each(
    "wrong",
    [
        {"year": 0},
        {"year": 2101},
        {"year": "soon"},
        {"mintmark": "d"},
        {"mintmark": "DDD"},
        {"denomination": "  "},
        {"series": "x" * 101},
        {"title": "a\x00b"},
        {"title": "\ud800"},
        {"grade": "MS65"},
    ],
)
def test_an_invalid_description_of_a_coin_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Coin(**(MORGAN.model_dump() | wrong))
