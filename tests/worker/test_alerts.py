"""Alerts as processes evaluate and send them: once for all processes, signed, with retries, never lost."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.api.app import _alerting as alerting
from rowlock.core.config import AlertSettings, Settings
from rowlock.core.errors import ConfigError
from rowlock.core.times import FakeClock
from rowlock.health import alerts
from rowlock.health import sender as module
from rowlock.health.post import Transport, post
from rowlock.health.sender import Alerts
from rowlock.public_web import web_target
from rowlock.store import Store, workers
from rowlock.store.engine.outage import Outage
from rowlock.worker import loops
from support.each import each
from support.rigs.worker import on_one_engine
from support.servers.receiver import Receiver, receiving

SECRET = "whsec_" + "QUJD" * 8
NOBODY = {"nobody": {"when": "no_worker", "for": 0, "resolve_after": 0}}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


def settings(receiver: Receiver | None = None, rules: dict[str, Any] | None = None, **more: Any) -> AlertSettings:
    url = {} if receiver is None else {"webhook_url": receiver.url("/alerts?key=T0PSECRET"), "webhook_secret": SECRET}
    given = {"check_seconds": 15, "webhook_private": True, **url, **more}
    return AlertSettings(rules=rules or NOBODY, **given)


async def sent_by(process: Alerts) -> None:
    """Send what is due."""
    while await process.send() == 0:
        pass


async def test_an_alert_and_its_resolution_arrive_signed_and_in_the_log(
    store: Store, clock: FakeClock, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    process = Alerts(settings(receiver), store, "p1")
    with caplog.at_level(logging.WARNING, "rowlock.alerts"):
        assert await process.round() == 15
        await sent_by(process)
        clock.move(15)
        await store.run(workers.register("w", "h", 1, "1", ["default"], ["t"], 5, None, 60))
        await process.round()
        await sent_by(process)
    firing, resolved = [received.verified(SECRET) for received in receiver.got]
    assert (firing["type"], resolved["type"]) == ("alert.firing", "alert.resolved")
    assert firing["data"] | {"since": "", "firedAt": ""} == {
        "rule": "nobody",
        "when": "no_worker",
        "subject": "",
        "value": 0.0,
        "text": "no worker is alive; jobs wait until one is started",
        "since": "",
        "firedAt": "",
        "resolvedAt": None,
        "repeats": 0,
    }
    assert resolved["data"]["resolvedAt"] is not None
    assert [record.getMessage() for record in caplog.records] == [
        "alert firing: nobody: no worker is alive; jobs wait until one is started",
        "alert resolved: nobody: no worker is alive; jobs wait until one is started",
    ]
    assert await store.run(alerts.unsent(10)) == []


async def test_of_many_processes_one_evaluates_and_one_message_arrives(store: Store, receiver: Receiver) -> None:
    processes = [Alerts(settings(receiver), store, f"p{n}") for n in range(6)]
    waits = await asyncio.gather(*(process.round() for process in processes))
    await asyncio.gather(*(sent_by(process) for process in processes))
    assert sorted(waits)[0] == 15
    assert len([wait for wait in waits if wait > 15]) == 5  # they look again when the lease ends
    assert len(receiver.got) == 1


async def test_a_process_that_dies_before_it_sends_leaves_the_message_to_the_next(
    store: Store, clock: FakeClock, receiver: Receiver
) -> None:
    dies, lives = Alerts(settings(receiver), store, "p1"), Alerts(settings(receiver), store, "p2")
    await dies.round()
    (written,) = await store.run(alerts.unsent(10))
    assert await lives.round() > 15
    await sent_by(lives)
    assert receiver.got == []  # it has no right to send
    clock.move(46)
    assert await lives.round() == 15
    await sent_by(lives)
    (received,) = receiver.got
    assert received.headers["webhook-id"] == written.id


async def test_a_process_that_dies_after_it_sends_sends_again_with_the_same_id(
    store: Store, clock: FakeClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies, lives = Alerts(settings(receiver), store, "p1"), Alerts(settings(receiver), store, "p2")
    await dies.round()

    class Killed(Exception):
        pass

    def killed(message_id: str) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module.alerts, "arrived", killed)
        with pytest.raises(Killed):
            await dies.send()
    clock.move(46)
    await lives.round()
    await sent_by(lives)
    first, second = receiver.got
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


@on_one_engine
async def test_a_receiver_that_fails_is_tried_again_and_nothing_overtakes(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with receiving([503, 503, 204]) as receiver:
        process = Alerts(settings(receiver), store, "p1")
        await process.round()
        for tries in (1, 2):
            assert await process.send() == 0.0
            wait = await process.send()  # not before its time
            assert (1 < wait <= 4, len(receiver.got)) == (True, tries)
            clock.move(wait + 0.01)
        await sent_by(process)
        assert len(receiver.got) == 3
        assert len({received.headers["webhook-id"] for received in receiver.got}) == 1
    assert [record.getMessage() for record in caplog.records].count(
        "alert firing: nobody: no worker is alive; jobs wait until one is started"
    ) == 1
    assert "T0PSECRET" not in caplog.text
    assert "503" in caplog.text


@on_one_engine
async def test_an_alert_is_logged_at_once_although_an_earlier_one_cannot_be_sent(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    rules = {**NOBODY, "late": {"when": "no_worker", "only": "links", "for": 60}}
    async with receiving([500]) as receiver:
        process = Alerts(settings(receiver, rules), store, "p1")
        for number in range(6):
            await process.round()
            if number == 0:  # the sender is slower than the rounds
                await process.send()
            clock.move(15)
        heads = [record.getMessage().partition(":")[2].partition(":")[0].strip() for record in alerts_in(caplog)]
        assert heads == ["nobody", "late"]
        assert {received.verified(SECRET)["data"]["rule"] for received in receiver.got} == {"nobody"}
        next_ = Alerts(settings(receiver, rules), store, "p2")
        clock.move(46)
        await next_.round()
    assert len(alerts_in(caplog)) == 3, "the next process cannot know whether this one was logged: at least once"


async def test_a_message_that_is_never_taken_holds_up_no_other_alert_and_is_not_overtaken_by_its_own_end(
    store: Store, clock: FakeClock
) -> None:
    rules = {**NOBODY, "other": {"when": "no_worker", "only": "links", "for": 0}}
    async with receiving([500, 204] + [500] * 9) as receiver:
        process = Alerts(settings(receiver, rules), store, "p1")
        await process.round()
        for _ in range(2):
            await process.send()
        first, second = (received.verified(SECRET)["data"]["rule"] for received in receiver.got)
        assert {first, second} == {"nobody", "other"}
        kept = await store.run(alerts.unsent(10))
        assert [message.body["rule"] for message in kept] == [first]
        await store.run(workers.register("w1", "box", 1, "1.0", ["links"], ["add"], 4, None, 600))
        await process.round()
        assert [
            (one.type, one.body["rule"]) for one in await store.run(alerts.unsent(10)) if one.body["rule"] == first
        ] == [
            ("alert.firing", first),
            ("alert.resolved", first),
        ]
        for _ in range(5):
            clock.move(min(300.0, await process.send()))
        sent = [received.verified(SECRET) for received in receiver.got]
        assert ("alert.resolved", first) not in [(one["type"], one["data"]["rule"]) for one in sent]


def alerts_in(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage().startswith("alert firing")]


async def test_a_message_that_a_clock_ahead_has_put_off_is_sent_now(
    store: Store, clock: FakeClock, receiver: Receiver
) -> None:
    process = Alerts(settings(receiver), store, "p1")
    clock.move(3600)
    await process.round()
    clock.move(-3600)
    await sent_by(process)
    assert len(receiver.got) == 1


@on_one_engine
async def test_a_message_that_is_refused_is_given_up_after_five_tries(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    rules = {**NOBODY, "other": {"when": "no_worker", "only": "links", "for": 0}}
    async with receiving([400]) as receiver:
        process = Alerts(settings(receiver, rules), store, "p1")
        await process.round()
        assert len(await store.run(alerts.unsent(10))) == 2
        for _ in range(30):
            clock.move(max(0.0, min(100.0, await process.send())) + 0.01)
        kinds = [received.verified(SECRET)["data"]["rule"] for received in receiver.got]
        assert sorted(kinds) == ["nobody"] * 5 + ["other"] * 5
    assert caplog.text.count("after 5 attempts") == 2
    assert await store.run(alerts.unsent(10)) == []


@on_one_engine
async def test_without_a_webhook_alerts_are_log_lines(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    process = Alerts(settings(), store, "p1")
    await process.round()
    await sent_by(process)
    assert "alert firing: nobody" in caplog.text
    assert await store.run(alerts.unsent(10)) == []


@on_one_engine
async def test_a_private_address_is_refused_at_the_start_and_when_it_is_connected_to(
    store: Store, receiver: Receiver
) -> None:
    with pytest.raises(ConfigError, match=r"alerts.webhook_url: .*set alerts.webhook_private"):
        Alerts(settings(receiver, webhook_private=False), store, "p1")
    process = Alerts(settings(receiver), store, "p1")
    process._settings = settings(receiver, webhook_private=False)  # as if the DNS had begun to answer 127.0.0.1
    await process.round()
    assert (await process.send(), await process.send() > 1) == (0.0, True)
    (message,) = await store.run(alerts.unsent(10))
    assert "not a public address" in (message.last_error or "")
    assert receiver.got == []


@each("private", [False, True])
async def test_a_dns_that_does_not_answer_counts_for_the_time_of_a_request(private: bool) -> None:
    async def never(host: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    target = web_target("https://alerts.example/")
    async with asyncio.timeout(30):
        with pytest.raises(TimeoutError):
            await post(target, b"", {}, 0.05, private=private, transport=Transport(resolve=never))


async def test_a_server_notices_that_no_worker_lives_and_a_worker_that_one_does(
    app_url: str, receiver: Receiver
) -> None:
    """A server, a dispatcher and a worker take part; whoever has the lease tells."""
    quick = {"check_seconds": 0.05, "webhook_url": receiver.url(), "webhook_secret": SECRET, "webhook_private": True}
    alerts_on = Settings(database=app_url, alerts=AlertSettings(rules=NOBODY, **quick))
    async with Rowlock(settings=alerts_on) as app:

        @app.task("t")
        async def t() -> None: ...

        async with alerting(app), app.dispatcher():
            await receiver.receive(1)
            async with app.worker(pool_size=1):
                await receiver.receive(2)
    kinds = [received.verified(SECRET)["type"] for received in receiver.got]
    assert kinds[:2] == ["alert.firing", "alert.resolved"]


async def test_the_lease_is_left_when_a_process_stops(store: Store) -> None:
    leaves, waits = Alerts(settings(), store, "p1"), Alerts(settings(), store, "p2")
    await leaves.round()
    assert await waits.round() > 15
    await leaves.stop()
    assert await waits.round() == 15


@on_one_engine
async def test_an_unexpected_error_does_not_end_the_process(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loops, "GIVE_UP_AFTER", 1)
    process, running, rounds = Alerts(settings(), store, "p1"), loops.Loops(Outage()), list[str]()

    async def breaks() -> float:
        rounds.append("looked")
        raise RuntimeError("a fault of ours")

    async def breaks_too() -> float:
        rounds.append("sent")
        raise RuntimeError("another fault of ours")

    monkeypatch.setattr(process, "round", breaks)
    monkeypatch.setattr(process, "send", breaks_too)
    process.start(running.start)
    async with asyncio.timeout(30):
        while min(rounds.count("looked"), rounds.count("sent")) < 2:
            await asyncio.sleep(0.01)
    await running.stop_all()
    assert "a fault of ours" in caplog.text
    assert "another fault of ours" in caplog.text
