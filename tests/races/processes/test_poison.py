"""A job that takes its worker down is found, and harms no other."""

from support.race_rig import Race

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

    await race.until_done(60, keep_alive=restart)
    rows = race.rows()
    bad = rows[poison]
    assert (bad.state, bad.error_code) == ("dead", "POISON"), race.story()
    assert {rows[job].state for job in race.accepted if job != poison} == {"succeeded"}
    race.judge(state=None)
    assert deaths == 1, f"{deaths} workers died: after the first loss only quarantine children may"
    assert len(race.noted("start", poison)) == 3, "one loss, then two convictions"
    assert race.query("SELECT convictions FROM {t}jobs_finished WHERE id = %s", poison) == [(2,)]
    assert len({entry.worker for entry in race.noted("start", poison)}) == 3
