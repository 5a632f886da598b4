"""Workers that speak SQL beside workers in Python, on one queue."""

import json
import subprocess
import sys

from support.races.rig import CALM, PATIENCE, Race, until

JOBS = 3000


def start(race: Race, name: str) -> subprocess.Popen[str]:
    """A worker process that calls the SQL functions until its standard input is closed."""
    command = [sys.executable, "-m", "support.races.sql_worker", race.url, name]
    return subprocess.Popen(command, env=race.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def test_two_sql_workers_and_two_python_workers_run_each_job_once(postgres_race: Race) -> None:
    race = postgres_race
    for _ in range(2):
        race.start(**CALM)
    await race.started()
    strangers = [start(race, name) for name in ("sql-1", "sql-2")]
    try:
        seen = "SELECT count(*) FROM {t}workers WHERE version = 'sql'"
        await until(lambda: race.query(seen) == [(2,)], PATIENCE, race.story)
        await race.enqueue("work", JOBS)
        await race.until_done(PATIENCE)
        said = [json.loads(stranger.communicate(timeout=PATIENCE)[0]) for stranger in strangers]
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait(10)
    assert [set(answers) for answers in said] == [{"applied"}, {"applied"}]
    assert race.states() == {"succeeded": JOBS}
    assert race.attempts() == []
    assert race.query("SELECT DISTINCT attempt FROM {t}jobs") == [(1,)]
    by_sql = dict(
        race.query(
            "SELECT last_worker, count(*) FROM {t}jobs_finished WHERE last_worker IN ('sql-1', 'sql-2') GROUP BY 1"
        )
    )
    assert by_sql == {"sql-1": said[0]["applied"], "sql-2": said[1]["applied"]}
    # What Python ran is what its handlers wrote down, and no job is among both.
    ran = [entry.job for entry in race.noted("start")]
    assert len(ran) == len(set(ran)) == JOBS - sum(by_sql.values())
    assert ran, "there was no race: the SQL workers did everything"
