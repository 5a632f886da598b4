"""The SQL of the pages on views runs as it stands, and the pages name every column."""

import re
from pathlib import Path

import psycopg
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
VIEWS = ("recent_jobs", "source_health", "stuck_jobs", "backlog")


def blocks(page: str) -> list[str]:
    return re.findall(r"```sql\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("engine", ["postgres"])
def test_the_sql_of_the_pages_on_views_runs_and_every_column_is_named(database: str) -> None:
    reference = (DOCS / "reference/views.md").read_text()
    keda = re.findall(r'query: "(.*)"', (DOCS / "how-to/autoscale.md").read_text())
    assert keda
    with psycopg.connect(database, autocommit=True) as connection:
        for text in [*blocks("reference/views.md"), *blocks("how-to/autoscale.md"), *keda]:
            for statement in filter(str.strip, text.split(";")):
                connection.execute(statement)
        answers = [connection.execute(text).fetchall() for text in keda]
        assert answers == [[(0,)]] * len(keda)  # a scaler needs one number, also when there is nothing to do
        for view in VIEWS:
            columns = [column.name for column in connection.execute(f"SELECT * FROM rowlock.{view}").description or ()]
            assert [name for name in columns if f"`{name}`" not in reference] == []
