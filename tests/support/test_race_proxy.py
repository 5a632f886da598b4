"""The proxy finds a statement's reply by words of the statement: they must stand in that statement, and in no other."""

import pytest

from rowlock.store.engines.queries import load
from support.race_proxy import CLAIM, SUCCEED


@pytest.mark.parametrize(("words", "name"), [(CLAIM, "claim"), (SUCCEED, "succeed")])
def test_the_words_by_which_a_reply_is_dropped_stand_in_one_statement_only(words: bytes, name: str) -> None:
    assert [query.name for query in load("postgres").values() if words.decode() in query.sql] == [name]
