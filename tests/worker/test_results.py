"""Results and progress: what a task returns and reports, what of it can be stored, and who waits for it."""

import asyncio
import json
import os
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from rowlock import (
    Context,
    JobDead,
    Rowlock,
)
from support.rigs.worker import on_one_engine
from support.tasks.contract import (
    double_in_process,
    fail_in_process,
    importable_app,
    in_state,
    report_from_process,
    row_of,
    until,
    working,
)


class Page(BaseModel):
    title: str
    size: int = 0


VALUES = [None, True, 0, -1.5, "", "text 🚣", [], [1, [2]], {}, {"a": {"b": None}}]


async def test_results_come_back_as_they_were(app: Rowlock) -> None:
    @app.task
    async def give(n: int) -> Any:
        return VALUES[n]

    async with working(app):
        jobs = await give.enqueue_many([{"n": n} for n in range(len(VALUES))])
        assert [await job.wait(timeout=10) for job in jobs] == VALUES
    for job, value in zip(jobs, VALUES, strict=True):
        seen = await app.job(job.id)
        assert (seen.state, seen.result, seen.attempt, seen.error_message) == ("succeeded", value, 1, None)
        row = await row_of(app, job.id)
        assert row["created_at"] <= row["started_at"] <= row["finished_at"]
        assert (row["lease_token"], row["error_code"]) == (None, None)


@on_one_engine
async def test_a_typed_result_comes_back_typed(app: Rowlock) -> None:
    @app.task
    async def read(title: str) -> Page:
        return Page(title=title, size=len(title))

    async with working(app):
        job = await read.enqueue(title="abc")
        assert await job.wait(timeout=10) == Page(title="abc", size=3)
    assert (await row_of(app, job.id))["result"] == {"title": "abc", "size": 3}


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_results_of_composed_types_come_back_typed_too(app: Rowlock) -> None:
    """A type checker is told `list[Page]`, so `list[Page]` it must be."""

    @app.task
    async def pages() -> list[Page]:
        return [Page(title="a")]

    @app.task
    async def maybe() -> Page | None:
        return Page(title="b")

    @app.task
    async def named() -> dict[str, Page]:
        return {"c": Page(title="c")}

    @app.task
    async def moment() -> datetime:
        return datetime(2026, 8, 1, tzinfo=UTC)

    @app.task
    def pair() -> tuple[int, Page]:
        return (1, Page(title="d"))

    async with working(app):
        assert await (await pages.enqueue()).wait(timeout=10) == [Page(title="a")]
        assert await (await maybe.enqueue()).wait(timeout=10) == Page(title="b")
        assert await (await named.enqueue()).wait(timeout=10) == {"c": Page(title="c")}
        assert await (await moment.enqueue()).wait(timeout=10) == datetime(2026, 8, 1, tzinfo=UTC)
        assert await (await pair.enqueue()).wait(timeout=10) == (1, Page(title="d"))


async def test_progress_is_stored_while_the_job_runs(app: Rowlock) -> None:
    go = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.progress(40, phase="fetch", message="reading")
        await go.wait()

    async with working(app):
        job = await work.enqueue()

        async def stored() -> bool:
            seen = await app.job(job.id)
            return (seen.progress, seen.phase, seen.message) == (40, "fetch", "reading")

        await until(stored)
        assert (await app.job(job.id)).state == "running"
        go.set()
        await job.wait(timeout=10)


@on_one_engine
async def test_a_thread_reports_progress(app: Rowlock) -> None:
    go = threading.Event()

    @app.task
    def work(ctx: Context) -> None:
        ctx.progress(25, message="half of half")
        assert go.wait(10)

    async with working(app):
        job = await work.enqueue()

        async def stored() -> bool:
            return (await app.job(job.id)).progress == 25

        await until(stored)
        go.set()
        await job.wait(timeout=10)


@on_one_engine
async def test_a_progress_that_is_no_percentage_is_a_clear_failure(app: Rowlock) -> None:
    wrong: list[Any] = [-1, 101, float("nan"), "half"]

    @app.task(max_attempts=1)
    async def work(ctx: Context, n: int) -> None:
        await ctx.progress(wrong[n])

    async with working(app):
        for n in range(len(wrong)):
            with pytest.raises(JobDead, match="progress"):
                await (await work.enqueue(n=n)).wait(timeout=10)


NOT_STORABLE = {
    "too large": "x" * (64 * 1024),
    "object": object(),
    "infinity": float("inf"),
    "nan": {"a": [float("nan")]},
    "bytes": b"\xff",
}


@on_one_engine
async def test_a_result_that_cannot_be_stored_is_a_clear_end(app: Rowlock) -> None:
    @app.task(max_attempts=1)
    async def give(kind: str) -> Any:
        return NOT_STORABLE[kind]

    @app.task
    async def fine() -> str:
        return "fine"

    async with working(app):
        for kind in NOT_STORABLE:
            job = await give.enqueue(kind=kind)
            with pytest.raises(JobDead, match="result"):
                await job.wait(timeout=10)
            row = await row_of(app, job.id)
            assert (row["state"], row["error_code"], row["result"]) == ("dead", "INVALID_RESULT", None), kind
            assert "give" in row["error_message"], kind
            if kind == "too large":
                assert "65,536" in row["error_message"], "says the limit"
        assert await (await fine.enqueue()).wait(timeout=10) == "fine"


async def test_a_result_with_control_characters_comes_back_and_one_with_half_a_character_is_refused(
    app: Rowlock,
) -> None:
    texts = ["nul \x00", "🚣\u2028\x1b", "lone \ud800"]

    @app.task(max_attempts=1)
    async def give(n: int) -> dict[str, str]:
        return {texts[n]: texts[n]}

    async with working(app):
        *kept, refused = await give.enqueue_many([{"n": n} for n in range(len(texts))])
        assert [await job.wait(timeout=10) for job in kept] == [{text: text} for text in texts[:2]]
        await in_state(app, refused.id, "dead")
    assert (await row_of(app, refused.id))["error_code"] == "INVALID_RESULT"


async def test_a_result_of_exactly_the_limit_is_kept(app: Rowlock) -> None:
    @app.task
    async def give() -> str:
        return "x" * (64 * 1024 - 2)

    async with working(app):
        job = await give.enqueue()
        assert len(json.dumps(await job.wait(timeout=10))) == 64 * 1024


@on_one_engine
async def test_wait_times_out_and_the_job_goes_on(app: Rowlock) -> None:
    @app.task
    async def work() -> int:
        return 1

    job = await work.enqueue()
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        await job.wait(timeout=0.2)
    assert 0.15 < time.monotonic() - started < 10
    async with working(app):
        assert await job.wait(timeout=10) == 1
        assert await job.wait(timeout=10) == 1, "waiting again gives the same"


@on_one_engine
async def test_many_may_wait_for_one_job(app: Rowlock) -> None:
    @app.task
    async def work() -> int:
        return 7

    job = await work.enqueue()
    waiting = [asyncio.create_task(job.wait(timeout=10)) for _ in range(20)]
    async with working(app):
        assert await asyncio.gather(*waiting) == [7] * 20


@on_one_engine
async def test_process_tasks_give_results_progress_and_errors(app_url: str, tmp_path: Path) -> None:
    async with importable_app(app_url) as app, working(app):
        double, child = await (await double_in_process.enqueue(n=4)).wait(timeout=30)
        assert double == 8
        assert child != os.getpid()
        reporting = await report_from_process.enqueue(until=f"{tmp_path}/go")

        async def stored() -> bool:
            seen = await app.job(reporting.id)
            return (seen.progress, seen.phase, seen.message) == (30, "child", "hello")

        await until(stored, 30)
        (tmp_path / "go").touch()
        assert await reporting.wait(timeout=30) == 1
        failing = await fail_in_process.enqueue()
        with pytest.raises(JobDead, match="from the child"):
            await failing.wait(timeout=30)
        assert (await row_of(app, failing.id))["error_code"] == "ValueError"
