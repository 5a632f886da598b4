"""The page about operator routes names every route, and no other; its SQL runs."""

import re

import psycopg
import pytest

from api.test_strangers import routes
from docs.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "reference" / "operator-api.md"


def test_the_page_names_every_operator_route() -> None:
    named = re.findall(r"^\| `(GET|POST) (/\S*)` \|", PAGE.read_text(), re.MULTILINE)
    prefix = "/api/operator"
    there = [(method, path.removeprefix(prefix)) for method, path in routes() if path.startswith(prefix)]
    assert sorted(named) == sorted(there)


@pytest.mark.parametrize("engine", ["postgres"])
def test_the_sql_of_the_operator_page_runs(database: str, engine: str) -> None:
    ((_, text),) = blocks(PAGE, "sql")
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO rowlock.tallies VALUES (now(), 'q', 't', 'succeeded', 1, 1, 3, 0, 0)")
        assert connection.execute(text).fetchall() == [("succeeded", 3)]
