"""The port of a worker: metrics that say what it did, probes that say how it is."""

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rowlock import ConfigError, Rowlock, Snooze, exponential
from rowlock.core.config import load_settings
from rowlock.core.job import Claimed
from rowlock.core.outcome import Failed
from rowlock.core.policy import decide
from rowlock.core.states import Outcome
from rowlock.signals.meters import WorkerMeter
from rowlock.signals.metrics import METRICS, MOST, OTHER
from rowlock.worker.upkeep import heartbeat
from signals.scraping import ask, get, names, values
from support.rigs.stores import ENGINES
from support.servers.postgres import free_port
from support.tasks.contract import WAIT, until, working

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_port_of_a_worker_tells_what_it_did(app: Rowlock) -> None:
    port = free_port()

    @app.task(queue="default")
    async def good() -> None: ...

    @app.task(max_attempts=2, backoff=exponential(base=0.01, cap=0.01))
    async def bad() -> None:
        raise RuntimeError("x")

    snoozed: list[int] = []

    @app.task
    async def sleepy() -> None:
        if not snoozed:
            snoozed.append(1)
            raise Snooze(0.01)

    async with working(app, metrics_port=port), app.dispatcher():
        jobs = [*await good.enqueue_many([{}] * 3), await bad.enqueue(), await sleepy.enqueue()]
        await asyncio.gather(*[job.wait(timeout=WAIT) for job in jobs], return_exceptions=True)
        status, text = await ask(port)
    assert status == 200
    own = {metric.name for metric in METRICS.values() if metric.counted_in in ("client", "worker", "dispatcher")}
    assert names(text) == own, "what is exported and what is documented"
    assert values(text, "rowlock_jobs_enqueued_total") == {
        ("default", "bad"): 1,
        ("default", "good"): 3,
        ("default", "sleepy"): 1,
    }
    assert values(text, "rowlock_attempts_total") == {
        ("default", "bad", "failed"): 2,
        ("default", "good", "succeeded"): 3,
        ("default", "sleepy", "released"): 1,
        ("default", "sleepy", "succeeded"): 1,
    }
    assert values(text, "rowlock_job_run_seconds_count")["default", "good"] == 3
    waited = values(text, "rowlock_job_wait_seconds_count")
    assert waited == {("default", "good"): 3, ("default", "bad"): 2, ("default", "sleepy"): 2}
    assert values(text, "rowlock_slots") == {("busy",): 0, ("free",): 10}
    assert values(text, "rowlock_db_query_seconds_count")["claim",] >= 1
    assert values(text, "rowlock_leases_lost_total") == {(): 0}
    with pytest.raises(OSError, match="refused"):
        get(port)  # the port is closed with the worker


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_wait_of_a_job_begins_when_it_could_start(app: Rowlock) -> None:
    meter = WorkerMeter()

    @app.task
    async def work() -> None: ...

    await work.using(delay=0.3).enqueue()
    async with working(app) as pool:
        pool.slots.watcher.claimed = meter.claimed  # type: ignore[method-assign]
        await until(lambda: meter.samples()["rowlock_job_wait_seconds"])
    (sample,) = meter.samples()["rowlock_job_wait_seconds"]
    assert 0 <= sample.value.sum < 5, "not the delay, nor the age of the row"  # type: ignore[union-attr]


async def test_the_probes_follow_the_worker_through_its_life(app: Rowlock) -> None:
    port, go = free_port(), asyncio.Event()

    @app.task
    async def linger() -> None:
        await go.wait()

    async with working(app, metrics_port=port) as pool:
        assert [(await ask(port, path)) for path in ("/livez", "/readyz")] == [(200, "ok\n")] * 2
        assert (await ask(port, "/"))[0] == 404
        await linger.enqueue()
        await until(lambda: pool.slots.occupied == 1)
        stopping = asyncio.ensure_future(pool.stop())
        await asyncio.sleep(0)
        assert await ask(port, "/readyz") == (503, "stopping\n")
        assert (await ask(port, "/livez"))[0] == 200
        go.set()
        await stopping


async def test_a_worker_whose_event_loop_is_blocked_says_so_while_it_is(
    app: Rowlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BLOCKED_SECONDS", 0.2)
    port, seen = free_port(), list[tuple[int, str]]()

    @app.task
    async def blocks() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not any(status == 503 for status, _ in seen):
            seen.append(get(port, "/livez"))  # in the loop's own thread: it does not turn meanwhile
            time.sleep(0.05)  # noqa: ASYNC251  # what this test is about

    async with working(app, metrics_port=port):
        await (await blocks.enqueue()).wait(timeout=30)
        _, text = await ask(port)
    assert "the event loop has not turned" in seen[-1][1]
    assert values(text, "rowlock_loop_lag_seconds")[()] > 0.2, "the lag is remembered until somebody asks"


async def test_a_port_that_is_in_use_is_taken_as_soon_as_it_is_free(
    app: Rowlock, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with working(app, metrics_port=port) as pool:
            assert "is in use; trying again" in caplog.text
            taken.close()
            await until(lambda: pool.endpoint is not None and pool.endpoint.address is not None)
            await until(lambda: get(port, "/livez")[0] == 200)


async def test_an_address_that_this_machine_does_not_have_is_an_error_at_the_start(app: Rowlock) -> None:
    with pytest.raises(ConfigError, match="cannot listen on 203"):
        async with working(app, metrics_port=free_port(), metrics_host="203.0.113.7"):
            pass


async def test_a_page_in_a_browser_cannot_read_the_loopback_under_another_name(app: Rowlock) -> None:
    port = free_port()
    async with working(app, metrics_port=port):
        assert (await asyncio.to_thread(get, port, "/metrics", "evil.example"))[0] == 421
        assert (await asyncio.to_thread(get, port, "/metrics", "localhost"))[0] == 200


def test_the_labels_of_a_worker_are_bounded() -> None:
    meter = WorkerMeter()
    for n in range(3 * MOST):
        job = Claimed(id=str(n), task=f"t{n}", queue="q")
        meter.claimed([job], 0.0)
        meter.succeeded([(job, 0.1)])
        meter.ended(job, decide(job, Failed("X", "x"), 0.0), 0.1)
    samples = meter.samples()
    tasks = {sample.labels[1] for sample in samples["rowlock_attempts_total"]}
    assert len(tasks) == MOST + 1
    assert OTHER in tasks
    counted = [sample.value for sample in samples["rowlock_attempts_total"]]
    assert sum(counted) == 6 * MOST, "nothing is left out of the sums"  # type: ignore[arg-type]
    assert len(list(samples["rowlock_job_run_seconds"])) == MOST + 1


def test_late_writes_lost_and_reclaimed_leases_are_counted() -> None:
    meter, job = WorkerMeter(), Claimed(id="1", task="t")
    meter.refused(job, Outcome.SUCCEEDED)
    meter.lost(job)
    meter.reclaimed([(job, decide(job, Failed("X", "x"), 0.0))] * 3)
    samples = meter.samples()
    for name, count in (("stale_writes_refused", 1), ("leases_lost", 1), ("reclaims", 3)):
        assert [sample.value for sample in samples[f"rowlock_{name}_total"]] == [count]


def test_the_last_of_several_processes_has_a_port_too() -> None:
    with pytest.raises(ConfigError, match="metrics_port"):
        load_settings(env={}, flags={"worker.metrics_port": 65_530, "worker.processes": 10})


def test_the_reference_page_lists_every_metric_with_its_kind_labels_and_place() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `rowlock_")]
    wanted = [
        f"| `{m.name}` | {m.kind} | {', '.join(f'`{one}`' for one in m.labels) or '–'} | {m.counted_in} | {m.help} |"
        for m in METRICS.values()
    ]
    assert rows == wanted


def test_each_of_several_processes_has_a_port_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from rowlock import Rowlock\n\napp = Rowlock('sqlite:///shop.db')\n")
    port = next(port for port in iter(free_port, None) if port < 65_000 and _is_free(port + 1))
    command = [
        sys.executable,
        "-m",
        "rowlock",
        "worker",
        "--app",
        "shop",
        "--processes",
        "2",
        "--metrics-port",
        str(port),
    ]
    log = tmp_path / "log"
    with log.open("w") as stream, subprocess.Popen(command, cwd=tmp_path, stdout=stream, stderr=stream) as supervisor:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and log.read_text().count("Metrics at http://127.0.0.1:") < 2:
                time.sleep(0.05)
            assert [get(each, "/livez") for each in (port, port + 1)] == [(200, "ok\n")] * 2, log.read_text()
        finally:
            supervisor.terminate()
            assert supervisor.wait(timeout=60) == 0, log.read_text()


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) != 0
