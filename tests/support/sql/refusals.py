"""Inserts that fail: a trigger in the test's own database."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw
import psycopg

SQLITE = (
    "CREATE TRIGGER refuse_rows BEFORE INSERT ON rowlock_{table} WHEN NEW.{column} = '{value}'"
    " BEGIN SELECT RAISE(ABORT, 'a bad row'); END",
)
POSTGRES = (
    "CREATE FUNCTION public.refuse_rows() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'a bad row'; END $$",
    "CREATE TRIGGER refuse_rows BEFORE INSERT ON rowlock.{table}"
    " FOR EACH ROW WHEN (NEW.{column} = '{value}') EXECUTE FUNCTION public.refuse_rows()",
)


@contextmanager
def refused(database: str, table: str, column: str, value: str) -> Iterator[None]:
    """For the time of a block, a row with this value cannot be inserted into the table."""
    on_sqlite = database.startswith("sqlite")
    for text in SQLITE if on_sqlite else POSTGRES:
        _run(database, text.format(table=table, column=column, value=value))
    try:
        yield
    finally:
        _run(database, "DROP TRIGGER refuse_rows" if on_sqlite else "DROP FUNCTION public.refuse_rows CASCADE")


def _run(database: str, text: str) -> None:
    if database.startswith("sqlite"):
        connection = apsw.Connection(database.removeprefix("sqlite:///"))
        connection.set_busy_timeout(30_000)
        connection.execute(text)
        connection.close()
    else:
        with psycopg.connect(database, autocommit=True) as opened:
            opened.execute(text)
