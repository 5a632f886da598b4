"""The proxy finds a statement's reply by words of the statement: they must stand in that statement, and in no other."""

from rowlock.store.engine.postgres.transactions import BEGIN
from rowlock.store.engine.statements import load
from support.each import each
from support.races.proxy import CLAIM, SUCCEED, stands_in


@each("words, name", [(CLAIM, "claim"), (SUCCEED, "succeed")])
def test_the_words_by_which_a_reply_is_dropped_stand_in_one_statement_only(words: bytes, name: str) -> None:
    assert [query.name for query in load("postgres").values() if stands_in(words, query.sql.encode())] == [name]


@each("sql, ends", [("COMMIT\0", True), ("COMMIT;\0", True), (f"{BEGIN}; SET LOCAL x = 1", False)])
def test_a_begin_that_names_its_isolation_level_is_not_taken_for_a_commit(sql: str, ends: bool) -> None:
    assert stands_in(b"COMMIT", sql.encode()) is ends
