"""What a worker looks for now and then: a clock that was set back, and jobs that nobody can run."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.core.config import Settings
from rowlock.core.outcome import Released
from rowlock.core.policy import DAY
from rowlock.core.times import FakeClock
from rowlock.store import workers
from rowlock.store.sources import sources
from rowlock.worker.upkeep import checks
from rowlock.worker.upkeep.checks import Lookout
from support.rigs.rig import LEASE, Rig
from support.tasks.contract import until, working


@pytest.fixture
async def app(database: str) -> AsyncIterator[Rowlock]:
    async with Rowlock(database) as opened:
        yield opened


async def register(rig: Rig, *tasks: str) -> None:
    await rig.store.run(workers.register("w", "host", 1, "1", ["default"], tasks, 1, None, LEASE))


def unknown(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "knows the task" in record.getMessage()]


async def test_tasks_of_its_queues_that_no_live_worker_knows_are_told_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "rowlock.worker")
    await register(rig, "t")
    await rig.enqueue(task="t")
    await rig.enqueue_many(2, task="gone")
    await rig.enqueue(task="gone", queue="another")
    looks = Lookout(rig.store, ["default"])
    await looks.round()
    assert unknown(caplog) == [], "other workers may be starting, too"
    await looks.round()
    assert unknown(caplog) == [], "after an outage they may not have beaten yet"
    await looks.round()
    await looks.round()
    (told,) = unknown(caplog)
    for said in ("queue 'default'", "'gone'", "waiting jobs: 2", "rowlock jobs cancel --task gone"):
        assert said in told
    await register(rig, "t", "gone")
    await looks.round()
    await register(rig, "t")
    await looks.round()
    assert len(unknown(caplog)) == 1, "for one round alone"
    await looks.round()
    assert len(unknown(caplog)) == 2, "it was known in between"


async def test_a_running_worker_tells_of_a_task_that_nobody_knows(
    app: Rowlock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LOOK_SECONDS", 0.05)
    caplog.set_level(logging.WARNING, "rowlock.worker")

    @app.task("known")
    async def known() -> None: ...

    rig = Rig(await app.store(), FakeClock())
    await rig.enqueue(task="gone")
    async with working(app):
        await until(lambda: bool(unknown(caplog)))
    assert "'gone'" in unknown(caplog)[0]
    assert "'known'" not in unknown(caplog)[0]


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Any:
    class Boot:
        now = 1000.0

    monkeypatch.setattr(checks, "boottime", lambda: Boot.now)
    return Boot


async def test_a_clock_that_is_set_back_is_noticed_and_all_is_put_right(
    rig: Rig, boot: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checks, "FEW", 0)  # not by the look after a start
    await rig.store.run(sources.set_policy("api", {"rate": 60.0}))
    (job_id,) = await rig.enqueue_many(1, max_attempts=3)
    rig.clock.move(DAY)
    looks = Lookout(rig.store, ["default"])
    await looks.round()
    (job,) = await rig.claim()
    await rig.settle(job, Released(100))
    boot.now += 30
    rig.clock.move(30)
    await looks.round()
    assert "set back" not in caplog.text
    boot.now += 30
    rig.clock.move(30 - DAY)
    await looks.round()
    assert (
        "the database's clock was ahead and was set back; corrected times: sources 0, leases 0, retries 1"
        in caplog.text
    )
    assert ((await rig.row(job_id))["run_after"] - rig.clock.now()).total_seconds() == 100


async def test_a_worker_that_starts_after_the_clock_was_put_right_finds_what_it_wrote(rig: Rig) -> None:
    (job_id,) = await rig.enqueue_many(1, max_attempts=3)
    rig.clock.move(DAY)
    (job,) = await rig.claim()
    await rig.settle(job, Released(100))
    rig.clock.move(-DAY)
    await Lookout(rig.store, ["default"]).round()
    assert ((await rig.row(job_id))["run_after"] - rig.clock.now()).total_seconds() == 100


# --- limits of a config


async def started(database: str, caplog: pytest.LogCaptureFixture, **policies: Any) -> str:
    """What a worker with these sources in its config logs about limits when it starts."""
    caplog.clear()
    async with Rowlock(database, settings=Settings(database=database, sources=policies)) as app, working(app):
        pass
    return "\n".join(r.getMessage() for r in caplog.records if r.name == "rowlock.sources")


async def test_a_limit_that_was_taken_out_of_the_config_still_holds_and_is_told_at_each_start(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rowlock.sources")
    assert await started(database, caplog, **{"api:a": {"concurrency": 2}, "api:b": {"rate": "1/s"}}) == ""
    told = await started(database, caplog, **{"api:b": {"rate": "1/s"}})
    assert "limits of a config that this worker does not have still hold for api:a;" in told
    assert "rowlock sources set NAME --reset" in told
    assert "still hold for api:a, api:b;" in await started(database, caplog)
    async with Rowlock(database) as app:
        assert (await app.sources.get("api:a")).concurrency == 2
        await app.sources.reset("api:a")
        await app.sources.set("api:b", rate="2/s")
    assert await started(database, caplog) == "", "one was lifted, the other is an operator's"
