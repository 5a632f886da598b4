"""The engines of the suite: SQLite, PostgreSQL, and PostgreSQL through its SQL functions where there are functions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.rigs.stores import ENGINES, FUNCTIONS
from support.sql.worker import Sql

# Modules about operations that have a function.
WITH_FUNCTIONS = {
    "test_enqueue", "test_claim", "test_settle", "test_settle_again", "test_beat", "test_progress", "test_cancel",
    "test_keys", "test_key_work", "test_batches", "test_batch_counts", "test_batch_end", "test_batch_adding",
    "test_follow_ups", "test_sources", "test_sources_breaker", "test_transitions", "test_retry", "test_reclaim",
    "test_expire", "test_tallies", "test_family", "test_streaks",
}  # fmt: skip
EXCEPT = (
    "test_arguments_come_back_as_they_were_given",  # jsonb keeps no NUL and no -0.0
    "test_a_result_is_told_to_the_follow_up_as_it_is_stored",  # the number becomes a float on its way to the function
    "test_the_sweeper_ends_a_batch_whose_worker_died_after_its_last_settle",  # the function settles and ends it at once
)


@pytest.fixture(params=[*ENGINES, FUNCTIONS])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def empty(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a database without any tables."""
    return f"sqlite:///{tmp_path}/empty.db" if engine == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def sql(database: str) -> Iterator[Sql]:
    """A worker that speaks SQL alone; for tests whose `engine` is "postgres"."""
    opened = Sql(database)
    yield opened
    opened.connection.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where no function is in play, the third engine is the second one."""
    items[:] = [item for item in items if not _is_second_engine_again(item)]


def _is_second_engine_again(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    if call is None or call.params.get("engine") != FUNCTIONS:
        return False
    by_functions = {"rig", "store"} & set(getattr(item, "fixturenames", ()))
    return not by_functions or Path(str(item.path)).stem not in WITH_FUNCTIONS or item.name.startswith(EXCEPT)
