"""Ticks: which fire, what their jobs are like, and that each fires once whatever becomes of the job."""

from typing import Any

import pytest

from rowlock import InvalidArguments, Rowlock, fixed
from rowlock.core.outcome import Failed
from rowlock.core.policy import DAY
from rowlock.core.schedules import rule_text
from rowlock.core.schedules.schedule import Missed
from rowlock.store.schedules import fire as firing
from rowlock.store.schedules import schedules
from rowlock.store.upkeep import retention
from support.each import each
from support.rigs.rig import Rig
from support.rigs.schedules import at, break_rule, declare, fire, fired, schedule, set_to_new_year, shown, ticks


async def finish(rig: Rig, task: str = "t") -> None:
    for job in await rig.claim(100, task=task):
        await rig.succeed(job)


async def test_a_tick_is_written_with_its_job_which_carries_the_nominal_moment(rig: Rig) -> None:
    await declare(rig, schedule(rule="every 30s"))
    assert await rig.store.run(firing.next_due()) == 30
    assert await fire(rig) == (0, 0, 0)
    rig.clock.move(37.25)  # a dispatcher is never on the dot
    assert await rig.store.run(firing.next_due()) == -7.25
    assert await fire(rig) == (1, 1, 0)
    (job,) = (await rig.rows()).values()
    assert (job["schedule_id"], job["tick"], job["state"]) == ("s", at(30), "queued")
    assert job["created_at"] == at(37.25)
    assert await ticks(rig) == [(at(30), job["id"])]
    row = await shown(rig)
    assert (row.last_tick, row.last_job, row.last_state, row.next_tick) == (at(30), job["id"], "queued", at(60))
    assert await fire(rig) == (0, 0, 0)


async def test_the_job_has_every_field_of_its_definition(rig: Rig, database: str) -> None:
    """S2: handler name, handler params, max_retry, timeout_seconds."""
    async with Rowlock(database, clock=rig.clock) as app:
        options: dict[str, Any] = {"queue": "slow", "priority": -3, "owner": "ana", "source": "api:x"}
        await app.schedules.add(
            "s", "send_mail", every="1m", args={"to": "bo"}, max_retry=3, timeout_seconds=30, **options
        )
    rig.clock.move(60)
    await fire(rig)
    (job,) = (await rig.rows()).values()
    assert (job["task"], job["args"], job["max_attempts"], job["timeout_seconds"]) == ("send_mail", {"to": "bo"}, 4, 30)
    assert options == {key: job[key] for key in options}


@each("by", ["a tick", "hand"], afresh=True)
async def test_a_fired_job_is_like_one_that_is_enqueued_with_the_same_options(rig: Rig, database: str, by: str) -> None:
    """Every column but for the id, and for those that say which tick it is."""
    set_to_new_year(rig)
    async with Rowlock(database, clock=rig.clock) as app:

        @app.task("after")
        async def after(finished: dict[str, Any]) -> None: ...

        own: dict[str, Any] = {"queue": "slow", "priority": -3, "max_attempts": 2, "timeout": 30, "keep": 60}
        own |= {"backoff": fixed(seconds=9), "on_success": after, "on_dead": after, "on_lost": "dead"}

        @app.task("pay", **own)
        async def pay(to: str) -> None: ...

        await app.schedules.add("s", pay, every="1m", args={"to": "bo"}, owner="ana", source="api:x")
        rig.clock.move(60)
        if by == "hand":
            await app.schedules.run("s")
        else:
            await fire(rig)
        await pay.using(owner="ana", source="api:x").enqueue(to="bo")
    about = "SELECT * FROM pragma_table_info('rowlock_jobs_live')"
    if rig.store.engine == "postgres":
        about = "SELECT 0, column_name FROM information_schema.columns WHERE table_name = 'jobs_live'"
    columns = sorted({row[1] for row in await rig.fetch(about)} - {"id", "schedule_id", "tick"})
    fired_job, enqueued = await rig.fetch(
        f"SELECT {', '.join(columns)} FROM {{t}}jobs_live ORDER BY schedule_id IS NULL"
    )
    assert dict(zip(columns, fired_job, strict=True)) == dict(zip(columns, enqueued, strict=True))
    assert enqueued[columns.index("on_lost")] == "dead"


MISSED: list[tuple[Missed, int, list[int]]] = [  # what of `every 60s` fires when nobody looked for so many seconds
    (Missed("latest"), 3500, [3480]),
    (Missed("latest"), 3 * 3600, [3 * 3600]),
    (Missed("skip"), 269, [240]),  # not late yet
    (Missed("skip"), 271, []),
    (Missed("all"), 300, [60, 120, 180, 240, 300]),
    (Missed("all", most=2), 300, [240, 300]),
    (Missed("all", window=125), 300, [180, 240, 300]),
    (Missed("all"), 2 * 3600, [3600 + 60 * n for n in range(61)]),
    (Missed("all", window=7200), 2 * 3600, [1260 + 60 * n for n in range(100)]),
]


@each("missed, late, expected", MISSED, afresh=True)
async def test_of_missed_ticks_fire_the_latest_none_or_all_within_a_number_and_a_window(
    rig: Rig, missed: Missed, late: int, expected: list[int]
) -> None:
    set_to_new_year(rig)
    await declare(rig, schedule(rule="every 60s", missed=missed))
    rig.clock.move(late)
    await fire(rig)
    assert await fired(rig) == [at(second) for second in expected]
    assert (await shown(rig)).next_tick == at(late - late % 60 + 60)


async def test_latest_and_all_leave_out_what_is_older_than_their_window(rig: Rig) -> None:
    for kind in ("latest", "all"):
        await declare(rig, schedule(kind, "every 1h", missed=Missed(kind, window=600)))
    rig.clock.move(3600 + 601)
    assert await fire(rig) == (2, 0, 0)
    rig.clock.move(3600 - 1)
    assert await fire(rig) == (2, 2, 0)
    assert await fired(rig, "all") == await fired(rig, "latest") == [at(7200)]


async def test_overlap_skip_passes_a_tick_over_while_the_last_job_is_not_final(rig: Rig) -> None:
    await declare(rig, schedule(overlap="skip"))
    await declare(rig, schedule("free"))
    for expected in ((2, 2, 0), (2, 1, 1)):
        rig.clock.move(30)
        assert await fire(rig) == expected  # queued
    (job,) = [job for job in await rig.claim(10) if job.id == (await shown(rig)).last_job]
    rig.clock.move(30)
    assert await fire(rig) == (2, 1, 1)  # running
    await rig.succeed(job)
    rig.clock.move(30)
    assert await fire(rig) == (2, 2, 0)
    assert await fired(rig) == [at(30), at(120)]
    assert [(tick, job is None) for tick, job in await ticks(rig)] == [
        (at(30), False), (at(60), True), (at(90), True), (at(120), False)
    ]  # fmt: skip


async def test_overlap_skip_with_missed_all_fires_one_missed_tick(rig: Rig) -> None:
    await declare(rig, schedule(overlap="skip", missed=Missed("all")))
    rig.clock.move(300)
    assert (await fire(rig)).jobs == 1


async def test_a_job_that_was_run_by_hand_counts_for_overlap(rig: Rig) -> None:
    await declare(rig, schedule(overlap="skip"))
    await rig.store.run(schedules.run_now("s"))
    rig.clock.move(30)
    assert await fire(rig) == (1, 0, 1)
    await finish(rig)
    rig.clock.move(30)
    assert await fire(rig) == (1, 1, 0)


@each("state", ["on", "paused"], afresh=True)
async def test_run_now_makes_a_job_beside_the_ticks(rig: Rig, state: str) -> None:
    set_to_new_year(rig)
    await declare(rig, schedule(args='{"a": 1}', queue="slow"))
    if state == "paused":
        await rig.store.run(schedules.pause("s"))
    rig.clock.move(7)
    job_id = await rig.store.run(schedules.run_now("s"))
    job = await rig.row(job_id)
    assert (job["schedule_id"], job["tick"], job["args"], job["queue"]) == ("s", None, {"a": 1}, "slow")
    assert (await ticks(rig), (await shown(rig)).next_tick) == ([], at(30))


async def test_nothing_fires_before_the_start_or_after_the_end_and_both_are_part_of_the_time(rig: Rig) -> None:
    await declare(rig, schedule(missed=Missed("all"), starts_at=at(60), ends_at=at(120)))
    for _ in range(20):
        rig.clock.move(10)
        await fire(rig)
    assert await fired(rig) == [at(60), at(90), at(120)]
    assert (await shown(rig)).next_tick is None


async def test_ticks_before_the_end_are_still_caught_up_with_after_it(rig: Rig) -> None:
    await declare(rig, schedule(missed=Missed("all"), ends_at=at(70)))
    rig.clock.move(600)
    await fire(rig)
    assert (await fired(rig), (await shown(rig)).next_tick) == ([at(30), at(60)], None)


async def test_a_one_off_fires_once_and_not_again_after_a_restart(rig: Rig) -> None:
    once = schedule(rule="at 2026-01-01T00:01:00")
    await declare(rig, once)
    rig.clock.move(61)
    for _ in range(2):
        await fire(rig)
        await declare(rig, once)
    assert (await fired(rig), (await shown(rig)).next_tick) == ([at(60)], None)


async def test_jitter_puts_the_run_off_but_not_the_tick(rig: Rig) -> None:
    await declare(rig, *[schedule(f"s{n:02}", jitter=20) for n in range(30)])
    rig.clock.move(30)
    assert (await fire(rig)).jobs == 30
    jobs = list((await rig.rows()).values())
    assert {job["tick"] for job in jobs} == {at(30)}
    later = [(job["run_after"] - at(30)).total_seconds() for job in jobs]
    assert 0 <= min(later) < 10 < max(later) <= 20
    assert await rig.claim(30) == []
    rig.clock.move(20)
    await rig.promote()
    assert len(await rig.claim(30)) == 30


@each("how", ["pruned", "removed and added", "clock set back"], afresh=True)
async def test_a_finished_jobs_deletion_does_not_bring_its_tick_back(rig: Rig, how: str) -> None:
    set_to_new_year(rig)
    await declare(rig, schedule(missed=Missed("all")), origin="runtime")
    rig.clock.move(60)
    assert (await fire(rig)).jobs == 2
    await finish(rig)
    await rig.fetch("DELETE FROM {t}jobs_finished")
    assert (await shown(rig)).last_state is None
    if how != "pruned":
        await rig.store.run(schedules.remove("s"))
        rig.clock.move(-60 if how == "clock set back" else 0)
        await declare(rig, schedule(missed=Missed("all")), origin="runtime")
        rig.clock.move(60 if how == "clock set back" else 0)
    await fire(rig)
    assert (await fired(rig), len(await ticks(rig))) == ([], 2)
    last = (await shown(rig)).last_job
    assert last is None or last in [job for _, job in await ticks(rig)], "a job that never was"
    rig.clock.move(30)
    assert (await fire(rig)).jobs == 1


async def test_ticks_have_a_retention_of_their_own(rig: Rig) -> None:
    await declare(rig, schedule(rule="@daily", missed=Missed("all")))
    for _ in range(40):
        rig.clock.move(DAY)
        await fire(rig)
        await finish(rig)
    await retention.prune(rig.store)
    kept = [tick for tick, _ in await ticks(rig)]
    assert len(await fired(rig)) < len(kept) < 40, "ticks are kept longer than their jobs, but not for ever"
    assert kept == [at(DAY * n) for n in range(41 - len(kept), 41)]
    assert await rig.store.run(retention.forget("prune_ticks", 3, 0.0)) == 3
    assert (await fire(rig)).jobs == 0


async def test_a_rule_that_cannot_be_read_is_a_problem_of_its_own_and_the_others_go_on(rig: Rig) -> None:
    await declare(rig, schedule("bad"), schedule("nowhere"), schedule("good"))
    await break_rule(rig, "bad")
    await rig.fetch("UPDATE {t}schedules SET zone = 'Mars/Base' WHERE id = 'nowhere'")
    rig.clock.move(30)
    answer = await rig.store.run(firing.fire(100))
    assert (answer[:3], {schedule.id for schedule in answer.refused}) == ((3, 1, 0), {"bad", "nowhere"})
    assert "whenever 3 4" in str((await shown(rig, "bad")).problem)
    assert "Mars/Base" in str((await shown(rig, "nowhere")).problem)
    assert ((await shown(rig, "good")).problem, await fired(rig, "good")) == (None, [at(30)])
    assert await rig.store.run(firing.next_due(answer.refused)) == 30, "it would be looked at in each round"
    rig.clock.move(30)
    assert (await rig.store.run(firing.fire(100, answer.refused)))[:3] == (1, 1, 0)
    await declare(rig, schedule("bad"))
    assert (await shown(rig, "bad")).problem is None
    rig.clock.move(30)
    assert (await rig.store.run(firing.fire(100, answer.refused))).jobs == 2, "another rule may be a readable one"
    assert await fired(rig, "bad") == [at(90)]


async def test_a_schedule_that_one_dispatcher_cannot_read_stays_due_and_fires_from_one_that_can(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zones of an older system: what they do not know is not lost to those with newer ones."""
    await declare(rig, schedule(rule="0 * * * *", zone="America/Ciudad_Juarez", missed=Missed("all", window=DAY)))
    rig.clock.move(3600)
    with monkeypatch.context() as older:
        older.setattr(rule_text, "_zones", lambda: frozenset({"Asia/Seoul"}))
        answer = await rig.store.run(firing.fire(100))
        assert [schedule.zone for schedule in answer.refused] == ["America/Ciudad_Juarez"]
    row = await shown(rig)
    assert ("unknown zone" in str(row.problem), row.next_tick) == (True, at(3600))
    rig.clock.move(3600)
    assert (await fire(rig)).jobs == 2
    assert ((await shown(rig)).problem, await fired(rig)) == (None, [at(3600), at(7200)])


async def test_a_round_stops_at_a_number_of_jobs_and_the_rest_stays_due(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "MOST_JOBS", 20)
    await declare(rig, *[schedule(f"s{n}", missed=Missed("all")) for n in range(5)])
    rig.clock.move(300)
    rounds = [(await fire(rig))[:2] for _ in range(4)]
    assert rounds == [(2, 20), (2, 20), (1, 10), (0, 0)]
    assert [len(await fired(rig, f"s{n}")) for n in range(5)] == [10] * 5


async def test_a_run_by_hand_leaves_how_the_last_tick_ended(rig: Rig) -> None:
    await declare(rig, schedule())
    by_hand = await rig.store.run(schedules.run_now("s"))
    assert ((await shown(rig)).last_job, (await shown(rig)).last_state) == (by_hand, "queued")
    rig.clock.move(30)
    await fire(rig)
    await finish(rig)
    of_tick = (await shown(rig)).last_job
    assert of_tick == (await ticks(rig))[0][1]
    await rig.store.run(schedules.run_now("s"))
    row = await shown(rig)
    assert (row.last_tick, row.last_job, row.last_state) == (at(30), of_tick, "succeeded")


@each("kind", ["latest", "skip"], afresh=True)
async def test_ticks_that_are_less_than_30_seconds_late_all_fire(rig: Rig, kind: str) -> None:
    set_to_new_year(rig)
    await declare(rig, schedule(rule="every 5s", missed=Missed(kind)))
    rig.clock.move(22)
    await fire(rig)
    assert await fired(rig) == [at(5), at(10), at(15), at(20)]
    rig.clock.move(600)
    await fire(rig)
    assert (await fired(rig))[4:] == [at(second) for second in (595, 600, 605, 610, 615, 620)], "older ones were missed"


async def test_all_fires_every_tick_that_is_on_time_however_few_missed_ones_it_wants(rig: Rig) -> None:
    await declare(rig, schedule(rule="every 5s", missed=Missed("all", most=1)))
    rig.clock.move(22)
    await fire(rig)
    assert await fired(rig) == [at(5), at(10), at(15), at(20)]


async def test_overlap_skip_looks_at_every_live_job_of_the_schedule(rig: Rig) -> None:
    await declare(rig, schedule(overlap="skip"))
    rig.clock.move(30)
    assert await fire(rig) == (1, 1, 0)
    (of_tick,) = await rig.claim()
    await rig.store.run(schedules.run_now("s"))
    (by_hand,) = await rig.claim()
    await rig.succeed(by_hand)
    rig.clock.move(30)
    assert await fire(rig) == (1, 0, 1), "the job of the tick before is still at work"
    await rig.settle(of_tick, Failed("E", "no", permanent=True))
    rig.clock.move(30)
    assert await fire(rig) == (1, 1, 0)
    (last,) = await rig.claim()
    await rig.succeed(last)
    await rig.retry(of_tick.id)
    rig.clock.move(30)
    assert await fire(rig) == (1, 0, 1), "an operator has retried an older one"


async def test_a_schedule_by_hand_that_would_never_fire_is_refused(rig: Rig) -> None:
    rig.clock.move(3600)
    past, ended = schedule("past", "at 2026-01-01T00:30"), schedule("ended", ends_at=at(1800))
    for wrong in (past, ended):
        with pytest.raises(InvalidArguments, match=f"{wrong.id}.*no tick after now .2026-01-01T01:00:00Z.*never fire"):
            await declare(rig, wrong, origin="runtime")
    await declare(rig, past, origin="code")  # it may have fired before a restart
    once = schedule("once", "at 2026-01-01T01:00:30")
    await declare(rig, once, origin="runtime")
    rig.clock.move(30)
    await fire(rig)
    await declare(rig, once, origin="runtime")  # again, by a script that runs again
    assert len(await fired(rig, "once")) == 1
