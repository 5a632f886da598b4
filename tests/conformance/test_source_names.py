"""The name of a source has up to 200 characters wherever it is given; a longer one is refused in the same words."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from rowlock import Rowlock
from rowlock.core.config.sections import Settings

LONGEST = "api:" + "x" * 196
Give = Callable[[Rowlock, str], Awaitable[object]]


async def to_a_job(app: Rowlock, name: str) -> object:
    task = app.registry.get("work")
    return (await app.job((await task.using(source=name).enqueue()).id)).source


async def to_a_task(app: Rowlock, name: str) -> object:
    @app.task("sourced", source=name)
    async def sourced() -> None: ...

    return (await app.job((await sourced.enqueue()).id)).source


async def to_a_derived_source(app: Rowlock, name: str) -> object:
    @app.task(f"derived {len(name)}", source=lambda to: to)
    async def derived(to: str) -> None: ...

    return (await app.job((await derived.enqueue(name)).id)).source


async def to_settings(app: Rowlock, name: str) -> object:
    return (await app.sources.set(name, concurrency=1)).name


async def to_a_pause(app: Rowlock, name: str) -> object:
    return (await app.sources.pause(name)).name


async def to_a_config(app: Rowlock, name: str) -> object:
    (found,) = Settings(sources={name: {"concurrency": 1}}).sources
    return found


async def to_sql(app: Rowlock, name: str) -> object:
    return _source(app, "rowlock.enqueue('work', '{}', %s)", {"source": name})


async def to_many_in_sql(app: Rowlock, name: str) -> object:
    return _source(app, "job_id FROM rowlock.enqueue_many('work', %s)", [{"args": {}, "source": name}])


async def to_a_follow_up_in_sql(app: Rowlock, name: str) -> object:
    _source(app, "rowlock.enqueue('work', '{}', %s)", {"on_success": {"task": "work", "source": name}})
    return name


def _source(app: Rowlock, call: str, given: Any) -> object:
    with psycopg.connect(str(app.database)) as connection:
        (made,) = connection.execute(f"SELECT {call}", [json.dumps(given)]).fetchone() or [None]
        row = connection.execute("SELECT source FROM rowlock.jobs_live WHERE id = %s", [made]).fetchone()
    return row and row[0]


IN_PYTHON: list[Give] = [to_a_job, to_a_task, to_a_derived_source, to_settings, to_a_pause, to_a_config]
IN_SQL: list[Give] = [to_sql, to_many_in_sql, to_a_follow_up_in_sql]


async def test_a_name_of_200_characters_is_taken_and_one_of_201_refused_everywhere(database: str, engine: str) -> None:
    async with Rowlock(database) as app:

        @app.task("work")
        async def work() -> None: ...

        for give in [*IN_PYTHON, *(IN_SQL if engine == "postgres" else [])]:
            assert await give(app, LONGEST) == LONGEST, give.__name__
            with pytest.raises(Exception, match=r"named like api:ebay or domain:example\.com") as refused:
                await give(app, LONGEST + "x")
            assert "api:xxx" in str(refused.value), give.__name__
