"""Log lines about jobs: their fields, the traceback, and what never stands in them."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import pytest

from rowlock import Context, JobDead, JobFields, Permanent, Rowlock
from rowlock.cli.kit.logs import JsonLines, TextLines
from support.rigs.stores import ENGINES
from support.tasks.contract import WAIT, until, working

CANARY = "canary-7f3a"
FIELDS = ("job_id", "task", "attempt", "worker")
shop = logging.getLogger("shop.prices")


@contextmanager
def lines(formatter: logging.Formatter) -> Iterator[io.StringIO]:
    """What the command line would write."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.addFilter(JobFields())
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


async def test_every_line_about_a_job_and_every_line_of_its_handler_carries_its_fields(app: Rowlock) -> None:
    @app.task
    async def in_loop() -> None:
        shop.info("looking")
        await asyncio.gather(asyncio.to_thread(shop.info, "beside"))

    @app.task
    def in_thread(ctx: Context) -> None:
        shop.info("blocking")
        ctx.log.info("by ctx")

    @app.task(max_attempts=1)
    async def fails() -> None:
        raise RuntimeError("closed")

    with lines(JsonLines()) as stream:
        async with working(app):
            jobs = [await task.enqueue() for task in (in_loop, in_thread, fails)]
            await asyncio.gather(*[job.wait(timeout=WAIT) for job in jobs], return_exceptions=True)
        shop.info("outside")
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    ids = {job.id for job in jobs}
    about = [one for one in records if one["message"].startswith("Job ") or one["logger"] == "shop.prices"]
    told = [one for one in about if one["message"] != "outside"]
    assert {one["message"] for one in told} >= {"looking", "beside", "blocking"}
    assert len(told) >= 9
    for one in told:
        assert all(one.get(name) for name in FIELDS), one
        assert one["job_id"] in ids
    (by_ctx,) = [one for one in records if one["message"] == "by ctx"]
    assert all(by_ctx[name] for name in FIELDS)
    (outside,) = [one for one in about if one["message"] == "outside"]
    assert not set(FIELDS) & set(outside), "a line that is logged beside all jobs has no job"


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_failure_has_its_whole_traceback_in_one_field_and_on_its_attempt(app: Rowlock) -> None:
    def price_of(text: str) -> int:
        return int(text)

    @app.task(max_attempts=1)
    async def fails(text: str) -> None:
        try:
            price_of(text)
        except ValueError as error:
            error.add_note("read from the shop's page")
            raise LookupError("no price") from error

    with lines(JsonLines()) as stream:
        async with working(app):
            job = await fails.enqueue(text="free")
            await asyncio.gather(job.wait(timeout=WAIT), return_exceptions=True)
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    (failed,) = [one for one in records if "no price" in one["message"]]
    (attempt,) = await app.attempts(job.id)
    for text in (failed["exception"], attempt.traceback):
        assert text is not None
        for part in (
            "ValueError: invalid literal",
            "read from the shop's page",
            "in price_of",
            "LookupError: no price",
        ):
            assert part in text
        assert "/src/rowlock/" not in text, "frames of Rowlock itself lead to nothing"
    assert failed["level"] == "error"
    assert (failed["outcome"], failed["error_code"]) == ("failed", "LookupError")


@pytest.mark.parametrize("engine", ENGINES)
async def test_no_argument_query_credential_or_local_is_logged_or_stored(app: Rowlock) -> None:
    @app.task(max_attempts=1)
    async def fails(secret: str) -> None:
        headers = {"Authorization": f"Bearer {secret}"}
        error = RuntimeError(f"GET https://ana:{CANARY}@a.example/x?key={CANARY}#{CANARY} gave 500; Cookie: s={CANARY}")
        error.request = headers  # type: ignore[attr-defined]
        error.add_note(f"token={CANARY}")
        raise error

    @app.task(max_attempts=1)
    async def refuses(secret: str) -> None:
        raise Permanent(f"refused by https://a.example/?sid={CANARY}", code="HTTP_403")

    with lines(TextLines()) as stream:
        async with working(app):
            for task in (fails, refuses):
                job = await task.enqueue(secret=CANARY)
                with pytest.raises(JobDead) as dead:
                    await job.wait(timeout=WAIT)
                assert CANARY not in str(dead.value)
                for attempt in await app.attempts(job.id):
                    assert CANARY not in f"{attempt.error_message}{attempt.traceback}"
                assert CANARY not in str((await app.job(job.id)).error_message)
    assert "https://a.example/x" in stream.getvalue()
    assert CANARY not in stream.getvalue()


async def test_text_of_a_job_cannot_forge_a_log_line(app: Rowlock) -> None:
    forged = "x\n1970-01-01T00:00:00.000Z ERROR rowlock.worker forged \x1b[31m\u2028\r"

    @app.task(max_attempts=1)
    async def fails() -> None:
        shop.warning("the user's own %s", forged)
        raise ValueError(forged)

    for formatter in (TextLines(), JsonLines()):
        with lines(formatter) as stream:
            async with working(app):
                job = await fails.enqueue()
                await asyncio.gather(job.wait(timeout=WAIT), return_exceptions=True)
        written = stream.getvalue().splitlines()
        assert "\x1b" not in stream.getvalue()
        assert not [line for line in written if line.startswith("1970")]
        assert any("forged" in line for line in written)
        if isinstance(formatter, JsonLines):
            assert all(json.loads(line) for line in written)


async def test_a_failing_job_s_record_holds_no_frame_for_error_trackers_to_read(app: Rowlock) -> None:
    """A frame has the handler's local variables, and with them its arguments."""
    seen: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    @app.task(max_attempts=1)
    async def fails() -> None:
        raise ValueError("x")

    keep = Keep()
    logging.getLogger("rowlock.worker").addHandler(keep)
    try:
        async with working(app):
            await asyncio.gather((await fails.enqueue()).wait(timeout=WAIT), return_exceptions=True)
    finally:
        logging.getLogger("rowlock.worker").removeHandler(keep)
    (record,) = [one for one in seen if one.exc_text]
    assert record.exc_info is None
    assert "ValueError: x" in logging.Formatter().format(record), "a plain formatter shows the traceback, too"


color: ContextVar[str] = ContextVar("color", default="none")


async def test_an_attempt_does_not_see_the_context_variables_of_the_one_before_it(app: Rowlock) -> None:
    seen: list[str] = []

    @app.task
    async def paint() -> None:
        seen.append(color.get())
        color.set("red")

    await paint.enqueue_many([{}] * 400)  # so many that jobs are claimed ahead: they start when another one returns
    async with working(app, pool_size=2):
        await until(lambda: len(seen) == 400)
    assert seen == ["none"] * 400
