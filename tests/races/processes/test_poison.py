"""A job that takes its worker down is found, and harms no other."""

from itertools import pairwise

from support.races.rig import LEASE, Race
from support.rigs.worker import on_one_engine

ONE_TRY = {"max_attempts": 1}


async def test_a_job_that_kills_its_worker_ends_dead_and_500_good_ones_lose_no_try(race: Race) -> None:
    crew = [race.start(), race.start()]
    await race.started()
    await race.enqueue("work", 250, ms=20, options=ONE_TRY)
    (poison,) = await race.enqueue("kill_worker", options=ONE_TRY)
    await race.enqueue("work", 250, ms=20, options=ONE_TRY)
    deaths = 0

    def restart() -> None:
        nonlocal deaths
        for place, worker in enumerate(crew):
            if not worker.alive:
                deaths += 1
                crew[place] = race.start()

    await race.until_done(100, keep_alive=restart)
    rows = race.rows()
    bad = rows[poison]
    assert (bad.state, bad.error_code) == ("dead", "POISON"), race.story()
    assert {rows[job].state for job in race.accepted if job != poison} == {"succeeded"}
    race.judge(state=None)
    assert deaths == 1, f"{deaths} workers died: after the first loss only quarantine children may"
    assert len(race.noted("start", poison)) == 3, "one loss, then two convictions"
    assert race.query("SELECT convictions FROM {t}jobs_finished WHERE id = %s", poison) == [(2,)]
    assert len({entry.worker for entry in race.noted("start", poison)}) == 3


@on_one_engine
async def test_suspects_that_no_child_can_import_run_one_by_one_in_the_worker(race: Race) -> None:
    first = race.start()
    await race.started()
    ids = await race.enqueue("hidden", 8, ms=200, options=ONE_TRY)
    await race.until_noted("start", 8)
    first.kill()
    race.start()
    await race.until_done(LEASE + 15)
    race.judge()
    assert {(race.row(job).attempt, race.row(job).losses) for job in ids} == {(2, 1)}
    again = sorted(entry.at for entry in race.noted("start") if entry.attempt == 2)
    assert min(after - before for before, after in pairwise(again)) > 0.15, "two at once"
