"""Alerts in the database: one process evaluates, what it writes is fenced, and no message is lost."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rowlock.core.config.alert_rules import KINDS, AlertRule, parse_rules
from rowlock.core.outcome import Failed
from rowlock.core.schedules.rule import parse_rule
from rowlock.core.schedules.schedule import Schedule
from rowlock.health import alerts
from rowlock.health.alerts import Alert
from rowlock.store import workers
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.read.snapshot import ClosedSource, Snapshot, TroubledSchedule
from rowlock.store.schedules import schedules
from support.rigs.rig import Rig, token
from support.rigs.snapshots import snapshot
from support.rigs.sources import open_breaker, sources

BACKLOG = AlertRule("backlog", "queued", above=10, hold=0, resolve_after=60, repeat=600)
FULL, EMPTY = snapshot({"default": 11}), snapshot()


async def take(rig: Rig, holder: str, mine: str, lease: float = 30.0) -> float:
    return await rig.store.run(alerts.take(holder, mine, lease))


async def evaluate(rig: Rig, mine: str, facts: Snapshot, *rules: AlertRule) -> bool:
    return await rig.store.run(alerts.evaluate(mine, rules or (BACKLOG,), facts))


async def unsent(rig: Rig) -> list[str]:
    return [message.type.removeprefix("alert.") for message in await rig.store.run(alerts.unsent(100))]


async def known(rig: Rig) -> list[Alert]:
    return await rig.store.run(alerts.alerts())


async def test_one_process_has_the_lease_and_another_takes_it_once_it_has_run_out(rig: Rig) -> None:
    ana, bob = token(), token()
    assert await take(rig, "ana", ana) == 0
    assert await take(rig, "bob", bob) == pytest.approx(30.0)
    rig.clock.move(20)
    assert await take(rig, "ana", ana) == 0  # renewed
    rig.clock.move(20)
    assert await take(rig, "bob", bob) == pytest.approx(10.0)
    rig.clock.move(11)
    assert await take(rig, "bob", bob) == 0
    assert await take(rig, "ana", ana) > 0
    await rig.store.run(alerts.leave(ana))  # not ana's any more: nothing happens
    assert await take(rig, "ana", ana) > 0
    await rig.store.run(alerts.leave(bob))
    assert await take(rig, "ana", ana) == 0


async def test_two_processes_that_find_the_alert_lease_free_do_not_both_take_it(rig: Rig) -> None:
    """As in `take` after both have looked: the statement that writes looks again."""

    @operation()
    def taken_after_a_look(holder: str, mine: str) -> Steps[bool]:
        return bool((yield Call("take_alert_lease", holder=holder, token=mine, lease=30.0)))

    ana, bob = token(), token()
    assert await rig.store.run(taken_after_a_look("ana", ana)) is True
    assert await rig.store.run(taken_after_a_look("bob", bob)) is False
    assert await rig.store.run(taken_after_a_look("ana", ana)) is True


async def test_a_lease_that_a_clock_ahead_has_written_is_taken(rig: Rig) -> None:
    ana, bob = token(), token()
    rig.clock.move(timedelta(days=2))
    assert await take(rig, "ana", ana) == 0
    rig.clock.move(-timedelta(days=2))
    assert await take(rig, "bob", bob) == 0


async def test_a_process_that_lost_the_lease_changes_nothing(rig: Rig) -> None:
    """The fence: it was frozen after its facts were read."""
    ana, bob = token(), token()
    await take(rig, "ana", ana)
    rig.clock.move(31)
    assert await evaluate(rig, ana, FULL) is False  # also before another has taken it
    await take(rig, "bob", bob)
    assert await evaluate(rig, bob, EMPTY) is True
    assert await evaluate(rig, ana, FULL) is False
    assert await known(rig) == []
    assert await unsent(rig) == []


async def test_an_alert_survives_the_process_that_noticed_it(rig: Rig) -> None:
    ana, bob = token(), token()
    await take(rig, "ana", ana)
    assert await evaluate(rig, ana, FULL)
    (first,) = await rig.store.run(alerts.unsent(10))  # ana dies before it is sent
    rig.clock.move(31)
    await take(rig, "bob", bob)
    assert await evaluate(rig, bob, FULL)
    (again,) = await rig.store.run(alerts.unsent(10))  # told once, and still to be sent, under its id
    assert again == replace(first, wait=pytest.approx(-31), age=pytest.approx(31))
    assert (first.type, first.body["rule"], first.body["subject"]) == ("alert.firing", "backlog", "default")
    ((alert),) = await known(rig)
    assert alert.state == "firing"
    assert alert.fired_at == rig.clock.now() - timedelta(seconds=31)


async def test_the_whole_course_of_an_alert_is_told_in_order(rig: Rig) -> None:
    mine = token()
    told: list[str] = []
    for seconds, facts in ((0, FULL), (15, FULL), (600, FULL), (15, EMPTY), (60, EMPTY), (15, EMPTY)):
        rig.clock.move(seconds)
        await take(rig, "ana", mine)
        assert await evaluate(rig, mine, facts)
        told.append(" ".join(await unsent(rig)))
    assert told == [
        "firing",
        "firing",
        "firing repeated",
        "firing repeated",
        "firing repeated resolved",
        "firing repeated resolved",
    ]
    assert await known(rig) == []
    last = (await rig.store.run(alerts.unsent(10)))[-1]
    assert last.body["resolvedAt"] is not None
    assert last.body["text"].startswith("11 jobs are ready")


async def test_an_alert_of_a_rule_that_left_the_config_is_resolved(rig: Rig) -> None:
    mine = token()
    await take(rig, "ana", mine)
    await evaluate(rig, mine, FULL)
    await evaluate(rig, mine, FULL, AlertRule("other", "no_worker", hold=60))
    assert await unsent(rig) == ["firing", "resolved"]
    assert [alert.rule for alert in await known(rig)] == ["other"]  # pending


async def test_messages_are_sent_in_order_and_wait_after_a_failure(rig: Rig) -> None:
    mine = token()
    await take(rig, "ana", mine)
    await evaluate(rig, mine, FULL)
    rig.clock.move(1)
    await evaluate(rig, mine, FULL, AlertRule("other", "no_worker"))
    (first,) = await rig.store.run(alerts.unsent(1))
    assert (first.body["rule"], first.wait <= 0, first.attempts) == ("backlog", True, 0)
    await rig.store.run(alerts.failed(first.id, 20.0, "no route to host"))
    (blocked,) = await rig.store.run(alerts.unsent(1))
    assert (blocked.id, blocked.wait, blocked.attempts) == (first.id, pytest.approx(20.0), 1)
    assert (await rig.store.run(alerts.unsent(1)))[0].last_error == "no route to host"
    await rig.store.run(alerts.arrived(first.id))
    (following,) = await rig.store.run(alerts.unsent(1))
    assert following.id != first.id


async def looked(rig: Rig) -> Snapshot:
    """The facts that rules of every kind need."""
    return await rig.store.run(alerts.look(parse_rules({kind: {"when": kind} for kind in KINDS})))


async def test_an_alert_is_decided_from_how_long_each_job_has_been_running(rig: Rig) -> None:
    slow = await rig.running(task="slow", worker="w-1", lease=10_000)
    rig.clock.move(400)
    ((job),) = (await looked(rig)).running
    assert (job.job_id, job.task, job.worker, job.seconds) == (slow.id, "slow", "w-1", pytest.approx(400))


async def test_an_alert_is_decided_from_the_ready_jobs_of_each_queue_and_the_age_of_the_oldest(rig: Rig) -> None:
    await rig.enqueue_many(12, queue="links")
    rig.clock.move(400)
    (links,) = [queue for queue in (await looked(rig)).queues if queue.name == "links"]
    assert (links.ready, links.oldest_ready_seconds) == (12, pytest.approx(400))


async def test_an_alert_is_decided_from_the_jobs_that_died_in_the_last_ten_minutes(rig: Rig) -> None:
    dead = await rig.running(task="bad", max_attempts=1)
    await rig.settle(dead, Failed("E", "broke"))
    rig.clock.move(599)
    assert (await looked(rig)).dead == {600.0: {"bad": 1}}
    rig.clock.move(2)
    assert (await looked(rig)).dead == {600.0: {}}


async def test_an_alert_is_decided_from_the_workers_whose_lease_has_not_run_out(rig: Rig) -> None:
    await rig.store.run(workers.register("w-2", "h", 1, "1", ["links"], ["t"], 5, None, 60))
    found = await looked(rig)
    assert (found.workers, found.served) == (1, {"links"})
    rig.clock.move(61)
    assert (await looked(rig)).workers == 0


async def test_an_alert_is_decided_from_the_sources_that_are_closed_and_why(rig: Rig) -> None:
    await rig.enqueue()
    await rig.fetch(
        "INSERT INTO {t}sources (name, opened_at, last_error) SELECT 'api:x', created_at, 'no route' FROM {t}jobs_live"
        " LIMIT 1"
    )
    rig.clock.move(400)
    assert (await looked(rig)).sources == (ClosedSource("api:x", "half-open", pytest.approx(400), "no route"),)


async def test_an_alert_is_decided_from_the_schedules_whose_tick_is_overdue(rig: Rig) -> None:
    await rig.store.run(schedules.declare([Schedule("nightly", "t", parse_rule("every 60s"))], "code", rig.clock.now()))
    rig.clock.move(400)
    assert (await looked(rig)).schedules == (TroubledSchedule("nightly", pytest.approx(340)),)


async def test_queues_with_ready_jobs_of_sources_that_are_closed_are_known_with_these_sources(rig: Rig) -> None:
    for source in ("api:broken", "api:paused", "api:off", "api:fine"):
        await rig.enqueue(queue="links", source=source)
    await rig.enqueue(queue="files", source="api:fine")
    await rig.enqueue(queue="late", source="api:broken", delay=600)
    await open_breaker(rig, "api:broken")
    await sources(rig).pause("api:paused", timedelta(minutes=5))
    await sources(rig).pause("api:off")
    found = await rig.store.run(alerts.look(parse_rules({"mine": {"when": "queued"}})))
    assert found.held == {"links": ("api:broken", "api:off", "api:paused")}
    await sources(rig).pause("api")  # the whole class
    held = (await rig.store.run(alerts.look(()))).held
    assert held["files"] == ("api",)
