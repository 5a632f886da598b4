"""What progress promises: the holder's latest word is shown, a zombie's is not."""

from rowlock.core.outcome import Failed, Released
from rowlock.store.jobs import leases
from support.rigs.rig import Rig, token


async def test_progress_is_shown_and_says_that_the_lease_holds(rig: Rig) -> None:
    job = await rig.running()
    before = await rig.row(job.id)
    now = rig.clock.move(3)
    assert await rig.store.run(leases.progress([(job.id, job.token, 40, "fetch", "reading")])) == {job.id}
    told = {"progress": 40, "phase": "fetch", "message": "reading", "updated_at": now}
    assert await rig.row(job.id) == before | told


async def test_progress_renews_no_lease(rig: Rig) -> None:
    job = await rig.running()
    rig.clock.move(61)
    await rig.store.run(leases.progress([(job.id, job.token, 40, None, None)]))
    assert [lost.job.id for lost in await rig.reclaim()] == [job.id]


async def test_progress_of_many_jobs_is_told_at_once(rig: Rig) -> None:
    held = [await rig.running() for _ in range(4)]
    told = [(job.id, job.token, n * 10, f"p{n}", f"m{n}") for n, job in enumerate(held)]
    assert await rig.store.run(leases.progress([*told, (held[0].id, token(), 99, "x", "y")])) == {j.id for j in held}
    rows = await rig.rows()
    assert [rows[job.id]["progress"] for job in held] == [0, 10, 20, 30]
    assert [rows[job.id]["phase"] for job in held] == ["p0", "p1", "p2", "p3"]


async def test_a_zombies_progress_is_not_shown(rig: Rig) -> None:
    zombie = await rig.running()
    await rig.settle(zombie, Released(0))
    waiting = await rig.everything()
    assert await rig.store.run(leases.progress([(zombie.id, zombie.token, 99, "x", "y")])) == set()
    assert await rig.everything() == waiting
    (holder,) = await rig.claim()
    before = await rig.everything()
    assert await rig.store.run(leases.progress([(zombie.id, zombie.token, 99, "x", "y")])) == set()
    assert await rig.everything() == before
    await rig.succeed(holder)
    finished = await rig.everything()
    assert await rig.store.run(leases.progress([(holder.id, holder.token, 99, "x", "y")])) == set()
    assert await rig.everything() == finished


async def test_a_new_attempt_starts_without_the_progress_of_the_last(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.run(leases.progress([(job.id, job.token, 40, "fetch", "reading")]))
    await rig.settle(job, Released(0))
    row = await rig.row(job.id)
    assert (row["progress"], row["phase"], row["message"]) == (None, None, None)


async def test_a_dead_job_shows_how_far_it_came(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.run(leases.progress([(job.id, job.token, 40, "fetch", "reading")]))
    await rig.settle(job, Failed("E", "no", permanent=True))
    row = await rig.row(job.id)
    assert (row["progress"], row["phase"], row["message"]) == (40, "fetch", "reading")


async def test_no_progress_at_all_changes_nothing(rig: Rig) -> None:
    await rig.running()
    before = await rig.everything()
    assert await rig.store.run(leases.progress([])) == set()
    assert await rig.everything() == before


async def test_progress_never_goes_back_within_an_attempt(rig: Rig) -> None:
    job = await rig.running()
    shown = []
    for percent, phase in [(40, "a"), (10, "b"), (None, "c"), (41, "d"), (0, "e")]:
        assert await rig.store.run(leases.progress([(job.id, job.token, percent, phase, None)])) == {job.id}
        row = await rig.row(job.id)
        shown.append((row["progress"], row["phase"]))
    assert shown == [(40, "a"), (40, "b"), (40, "c"), (41, "d"), (41, "e")]


async def test_a_report_without_a_number_leaves_progress_unset(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.run(leases.progress([(job.id, job.token, None, "a", None)]))
    assert (await rig.row(job.id))["progress"] is None
    await rig.store.run(leases.progress([(job.id, job.token, 0, "a", None)]))
    assert (await rig.row(job.id))["progress"] == 0
