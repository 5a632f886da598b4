"""A database that is away: nothing is read, acknowledged or put down as a dead letter, and nothing is lost."""

from collections.abc import Callable
from typing import Any

import pytest

from rowlock import Rowlock
from support.servers.postgres import PostgresServer
from support.web.remote import Remote, until, until_state, with_tasks


@pytest.mark.parametrize("engine", ["postgres"])
async def test_results_that_come_while_the_database_is_away_are_written_when_it_is_back(
    settings: Callable[..., Any], remote: Remote
) -> None:
    with PostgresServer() as server:
        app = with_tasks(Rowlock(settings=settings(database=server.create_database("jobs"))))
        await app.migrate()
        async with app, app.bridge():
            made = [await app.get_task("REPLAY_MP4").enqueue(replayId=n) for n in range(3)]
            requests = [await remote.request(job.id) for job in made]
            server.stop()
            for request in requests:
                remote.succeed(request)
            results = remote.key("job.results")
            await until(lambda: remote.redis.xinfo_groups(results)[0]["pending"] > 0)
            assert remote.letters() == []
            assert remote.count("accepted") == 0
            server.start()
            for job in made:
                await until_state(app, job.id, "succeeded")
            await remote.all_read()
            assert remote.letters() == []
