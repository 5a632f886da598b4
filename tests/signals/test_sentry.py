"""Sentry: every failed attempt arrives, grouped, and with nothing of the job's data."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from rowlock import ConfigError, Permanent, Rowlock, fixed
from rowlock.core.config import load_settings
from support.servers.sentry import Receiver
from support.tasks.contract import WAIT, working

CANARY = "c4n4ry-9d1e"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    started = Receiver()
    yield started
    started.close()


@pytest.fixture
async def app(app_url: str, receiver: Receiver) -> AsyncIterator[Rowlock]:
    flags = {"database": app_url, "sentry.dsn": receiver.dsn, "sentry.environment": "test"}
    async with Rowlock(settings=load_settings(env={}, flags=flags)) as opened:
        yield opened


async def finished(*jobs: Any) -> None:
    await asyncio.gather(*[job.wait(timeout=WAIT) for job in jobs], return_exceptions=True)


async def test_every_failed_attempt_is_sent_and_grouped_by_task_and_code(app: Rowlock, receiver: Receiver) -> None:
    @app.task(max_attempts=2, backoff=fixed(0.01))
    async def fails() -> None:
        raise LookupError("no price")

    @app.task(max_attempts=1, timeout=0.05)
    async def hangs() -> None:
        await asyncio.Event().wait()

    @app.task
    async def refuses() -> None:
        raise Permanent("not here", code="HTTP_403")

    @app.task
    async def good() -> None: ...

    async with working(app):
        await finished(*[await task.enqueue() for task in (fails, hangs, refuses, good)])
    assert sorted(tuple(event["fingerprint"]) for event in receiver.events) == [
        ("rowlock", "fails", "LookupError"),
        ("rowlock", "fails", "LookupError"),
        ("rowlock", "hangs", "TIMEOUT"),
        ("rowlock", "refuses", "HTTP_403"),
    ]


async def test_an_attempt_that_is_tried_again_is_a_warning_and_the_last_one_an_error(
    app: Rowlock, receiver: Receiver
) -> None:
    @app.task(max_attempts=2, backoff=fixed(0.01))
    async def fails() -> None:
        raise LookupError("no price")

    async with working(app):
        job = await fails.enqueue()
        await finished(job)
    first, second = sorted(receiver.events, key=lambda event: event["contexts"]["job"]["attempt"])
    assert (first["level"], second["level"]) == ("warning", "error")
    tags = {"task": "fails", "queue": "default", "outcome": "failed", "state": "dead", "error_code": "LookupError"}
    assert second["tags"] == tags
    assert second["contexts"]["job"]["id"] == job.id
    assert second["environment"] == "test"


async def test_a_failure_is_sent_with_its_cause_and_frames_and_without_local_variables(
    app: Rowlock, receiver: Receiver
) -> None:
    def price_of(text: str) -> int:
        return int(text)

    @app.task(max_attempts=1)
    async def fails(text: str) -> None:
        try:
            price_of(text)
        except ValueError as error:
            raise LookupError("no price") from error

    async with working(app):
        await finished(await fails.enqueue(text="free"))
    (event,) = receiver.events
    cause, last = event["exception"]["values"]
    assert (cause["type"], last["type"], last["value"]) == ("ValueError", "LookupError", "no price")
    frame = cause["stacktrace"]["frames"][-1]
    assert (frame["function"], frame["context_line"], frame["in_app"]) == ("price_of", "return int(text)", True)
    assert not any("vars" in frame for one in (cause, last) for frame in one["stacktrace"]["frames"])


async def test_a_job_that_turns_dead_leaves_a_breadcrumb(app: Rowlock, receiver: Receiver) -> None:
    @app.task(max_attempts=2, backoff=fixed(0.01))
    async def fails() -> None:
        raise RuntimeError("x")

    async with working(app):
        job = await fails.enqueue()
        await finished(job)
    first, last = sorted(receiver.events, key=lambda event: event["contexts"]["job"]["attempt"])
    assert not first.get("breadcrumbs", {}).get("values"), "the first failure was not the end"
    (crumb,) = last["breadcrumbs"]["values"]
    assert crumb["message"] == f"Job {job.id} (fails) is dead: RuntimeError"
    assert (crumb["category"], crumb["data"]["code"]) == ("rowlock.job", "RuntimeError")


async def test_nothing_of_a_job_s_data_is_sent(
    app: Rowlock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["worker", f"--token={CANARY}"])

    @app.task(max_attempts=1)
    async def fails(secret: str, inner: dict[str, Any]) -> None:
        local = {"cookies": {"sid": secret}}
        try:
            raise KeyError(secret)
        except KeyError as error:
            error.add_note(f"with {inner}")
            text = (
                f"GET https://ana:{CANARY}@a.example/p?q={CANARY}#{CANARY} by {CANARY}@mail.example "
                f"and ana.b@post.example Cookie: sid={CANARY}"
            )
            failure = RuntimeError(text)
            failure.request = local  # type: ignore[attr-defined]
            raise failure from error

    @app.task(max_attempts=1)
    async def misfit(secret: int) -> None: ...

    async with working(app):
        jobs = [await fails.enqueue(secret=CANARY, inner={"deep": [f"x {CANARY}", 12345678]})]
        jobs.append(await app.get_task("misfit").using(tags=[CANARY], owner=CANARY).enqueue(secret=1))
        await finished(*jobs)
    assert "https://a.example/p" in receiver.text
    assert receiver.text.count(CANARY) == 0
    assert "12345678" not in receiver.text
    assert "post.example" not in receiver.text, "addresses of people"


async def test_a_value_is_removed_before_its_message_is_cut_and_scrubbed(app: Rowlock, receiver: Receiver) -> None:
    @app.task(max_attempts=1)
    async def quotes(url: str, name: str, page: str) -> None:
        raise LookupError(f"/path/{page} {'x ' * 4080}{name!r} and {url} and {name[:9]}...")

    @app.task(max_attempts=1)
    async def refuses(url: str, name: str, page: str) -> None:
        raise Permanent(f"no page {url} of {name.encode()!r}", code=f"GONE_{name[:12]}")

    given = {"url": "https://h.io/k7q?x=1", "page": "w3z?x=1", "name": f"Ä\n'{CANARY}' " + "zq4 " * 3000}
    async with working(app):
        await finished(await quotes.enqueue(**given), await refuses.enqueue(**given))
    assert len(receiver.events) == 2
    assert not [piece for piece in ("h.io", "k7q", "c4n4ry", "9d1e", "zq4", "w3z") if piece in receiver.text], (
        receiver.text
    )


class Kept(Transport):
    """A transport of the program's own client."""

    def __init__(self) -> None:
        super().__init__()
        self.envelopes: list[Envelope] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)


async def test_events_go_through_the_programs_own_sentry_client_without_its_user_and_tags(app_url: str) -> None:
    kept = Kept()
    settings = load_settings(env={}, flags={"database": app_url, "sentry.enabled": True})
    with pytest.raises(ConfigError, match="call sentry_sdk"):
        async with Rowlock(settings=settings) as early, early.worker():
            pass
    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=kept, release="shop@7")
    sentry_sdk.set_user({"email": f"{CANARY}@mail.example"})
    sentry_sdk.set_tag("canary", CANARY)
    try:
        async with Rowlock(settings=settings) as app:

            @app.task(max_attempts=1)
            async def fails(secret: str) -> None:
                raise RuntimeError("x")

            async with working(app):
                await finished(await fails.enqueue(secret=CANARY))
    finally:
        sentry_sdk.get_isolation_scope().clear()
        sentry_sdk.get_current_scope().clear()
        sentry_sdk.init()
    events = [event for each in kept.envelopes if (event := each.get_event()) is not None]
    assert [event["release"] for event in events] == ["shop@7"], "once: its log line is not sent as well"
    assert json.dumps([dict(event) for event in events]).count(CANARY) == 0
