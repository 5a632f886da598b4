"""What a worker says of itself: its id, its log lines and their fields, the summary of a minute."""

import asyncio
import logging
import os
import re
import socket
import time

import pytest

from rowlock import Context, Finished, InvalidArguments, Rowlock
from support.rigs.worker import on_one_engine
from support.tasks.contract import (
    row_of,
    until,
    working,
)

WORKER_ID = re.compile(rf"{re.escape(socket.gethostname())}-{os.getpid()}-(\d{{13}})-[0-9a-z]+")


@on_one_engine
async def test_the_worker_id_says_host_process_and_start(app: Rowlock) -> None:
    seen: list[str] = []

    @app.task
    async def work(ctx: Context) -> None:
        seen.append(str((await row_of(app, ctx.job_id))["locked_by"]))

    before = time.time() * 1000
    async with working(app):
        await (await work.enqueue()).wait(timeout=10)
    async with working(app):
        await (await work.enqueue()).wait(timeout=10)
    matches = [WORKER_ID.fullmatch(worker) for worker in seen]
    assert all(matches), seen
    assert all(before - 1 <= int(match[1]) <= time.time() * 1000 + 1 for match in matches if match)
    assert seen[0] != seen[1], "two workers started in one millisecond still differ"


@on_one_engine
async def test_log_lines_are_those_of_the_document(app: Rowlock, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def work() -> None: ...

    @app.task(max_attempts=1)
    async def fail() -> None:
        raise RuntimeError("the tap is closed")

    with caplog.at_level(logging.DEBUG):
        async with working(app):
            good, bad = await work.enqueue(), await fail.enqueue()
            await good.wait(timeout=10)
            await until(lambda: any("the tap is closed" in r.getMessage() for r in caplog.records))
    lines = [record.getMessage() for record in caplog.records]
    (started,) = [line for line in lines if line.startswith("Worker started: ")]
    worker = started.removeprefix("Worker started: ").split()[0]
    assert WORKER_ID.fullmatch(worker)
    assert f"Job {good.id} claimed by {worker}" in lines
    assert any(re.fullmatch(rf"Job {good.id} completed in \d+\.\d+s", line) for line in lines)
    assert any(bad.id in line and "the tap is closed" in line for line in lines), "S1.10: id and message"


@on_one_engine
async def test_log_records_carry_the_fields_of_the_document(app: Rowlock, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def work() -> None: ...

    @app.task(max_attempts=1, source=lambda domain: domain)
    async def fail(domain: str) -> None:
        raise RuntimeError("x")

    with caplog.at_level(logging.DEBUG):
        async with working(app):
            jobs = await work.enqueue_many([{}] * 3)
            jobs += await fail.enqueue_many([{"domain": "bad.example"}] * 2)
            await asyncio.gather(*[job.wait(timeout=10) for job in jobs], return_exceptions=True)
    records = [vars(record) for record in caplog.records if record.name.startswith("rowlock")]
    for name, value in (("batch_claimed_count", 5), ("success_count", 3), ("fail_count", 2)):
        assert sum(record[name] for record in records if name in record) == value, name
    durations = [r["job_duration_ms"] for r in records if r["msg"].startswith("Job ") and "job_duration_ms" in r]
    assert len(durations) == 5
    assert all(0 <= duration < 10_000 for duration in durations)
    (top,) = [record["top_failures"] for record in records if "top_failures" in record]
    assert "bad.example=2" in top, "the domains that fail most"


@on_one_engine
async def test_the_summary_leaves_out_tasks_that_are_not_counted(
    app: Rowlock, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(counted=False, max_attempts=1)
    async def keep_books(finished: Finished) -> None:
        if finished["state"] == "dead":
            raise RuntimeError("the books do not balance")

    @app.task(max_attempts=1, on_success=keep_books, on_dead=keep_books)
    async def work(n: int) -> None:
        if n == 0:
            raise RuntimeError("x")

    with caplog.at_level(logging.DEBUG):
        async with working(app):
            await work.enqueue_many([{"n": n} for n in range(4)])

            async def all_done() -> bool:
                return len(await app.jobs(state=["succeeded", "dead"])) == 8

            await until(all_done)
    records = [vars(record) for record in caplog.records if "batch_claimed_count" in vars(record)]
    for name, value in (("batch_claimed_count", 4), ("success_count", 3), ("fail_count", 1)):
        assert sum(record[name] for record in records) == value, name
    assert all("keep_books" not in record["top_failures"] for record in records)
    with pytest.raises(InvalidArguments, match="counted must be True or False, not 'no'"):
        app.task("other", counted="no")(print)  # type: ignore[call-overload]
