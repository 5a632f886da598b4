"""Webhooks: a signed message at a job's end, to an address that may be called, and never lost."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from standardwebhooks import WebhookVerificationError

from api.conftest import Api, Serve
from rowlock import JobDead, Permanent, Retry, Rowlock, SourceError
from rowlock.api.jobs import webhooks
from rowlock.api.jobs.delivery import deliver
from rowlock.core.job import NewJob
from rowlock.health.post import Transport
from rowlock.store.engine.ids import new_id
from rowlock.store.jobs import cancel, enqueue, leases, settle
from rowlock.store.upkeep import retention
from support.each import each
from support.rigs.stores import ENGINES
from support.servers.postgres import free_port
from support.servers.receiver import Receiver, receiving

QUICK = {"enabled": True, "allow_private": True, "retry_seconds": 0.05, "timeout_seconds": 5}


@pytest.fixture
def engine() -> str:
    """One engine is enough for addresses, secrets and HTTP; a test of what the store writes names both."""
    return "sqlite"


async def secret_of(api: Api, owner: str = "ana", overlap: float = 3600) -> str:
    """A new secret of the owner."""
    secret = webhooks.new_secret()
    await (await api.app.store()).run(webhooks.rotate(owner, secret, overlap))
    return secret


async def create(api: Api, token: str, url: str, task: str = "add", **args: Any) -> str:
    """A job with a webhook."""
    body = {"jobType": task, "args": args, "webhook": url}
    status, answer, _ = await api.ask("POST", "/api/jobs", token, body)
    assert status == 202, answer
    return str(answer["jobId"])


async def delivery_of(api: Api, job_id: str) -> str:
    """The one delivery of a job's webhook."""
    (found,) = await (await api.app.store()).run(webhooks.deliveries(job_id))
    return found


async def shown(api: Api, token: str, job_id: str) -> list[dict[str, Any]]:
    """The deliveries as their owner sees them."""
    status, found, _ = await api.ask("GET", f"/api/jobs/{job_id}/deliveries", token)
    assert status == 200
    return list(found)


async def until_done(api: Api, token: str, job_id: str) -> dict[str, Any]:
    """The last delivery of a job, when it has ended."""
    async with asyncio.timeout(60):
        while not (found := await shown(api, token, job_id)) or not found[-1]["done"]:
            await asyncio.sleep(0.02)
    return found[-1]


@pytest.mark.parametrize("engine", ENGINES)
@each(
    "task, args, kind, status, code",
    [
        ("add", {"a": 1}, "job.completed", "SUCCEEDED", None),
        ("fail", {}, "job.failed", "FAILED", "BROKEN"),
    ],
)
async def test_the_end_of_a_job_is_posted_and_signed(
    serve: Serve, task: str, args: dict[str, Any], kind: str, status: str, code: str | None
) -> None:
    async with serve(webhooks=QUICK) as api, receiving() as receiver:
        ana, secret = await api.token(), await secret_of(api)
        job_id = await create(api, ana, receiver.url("/hook?from=rowlock"), task, **args)
        async with api.app.worker():
            (got,) = await receiver.receive(1)
            delivery = await until_done(api, ana, job_id)
        message = got.verified(secret)
        assert message["type"] == kind
        assert {name: message["data"][name] for name in ("jobId", "jobType", "status", "done", "errorCode")} == {
            "jobId": job_id,
            "jobType": task,
            "status": status,
            "done": True,
            "errorCode": code,
        }
        assert message["timestamp"].endswith("+00:00")
        assert got.path == "/hook?from=rowlock"
        assert got.headers["webhook-id"] == delivery["deliveryId"]
        assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
        assert (delivery["status"], delivery["attempt"], delivery["attempts"]) == ("SUCCEEDED", 1, [])
        with pytest.raises(WebhookVerificationError):
            got.verified(webhooks.new_secret())


async def test_a_receiver_that_fails_gets_the_same_message_again(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api, receiving([500, 301, 404, 200], {"Location": "/elsewhere"}) as receiver:
        ana, secret = await api.token(), await secret_of(api)
        job_id = await create(api, ana, receiver.url(), a=1)
        async with api.app.worker():
            delivery = await until_done(api, ana, job_id)
        assert delivery["status"] == "SUCCEEDED"
        assert [attempt["errorCode"] for attempt in delivery["attempts"]] == ["STATUS_500", "STATUS_301", "STATUS_404"]
        assert len(receiver.got) == 4  # and none of them elsewhere: redirects are not followed
        assert {got.path for got in receiver.got} == {"/hook"}
        assert len({got.headers["webhook-id"] for got in receiver.got}) == 1
        assert len({json.dumps(got.verified(secret)) for got in receiver.got}) == 1


async def test_a_receiver_that_is_down_is_tried_until_it_is_back(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api:
        ana, secret = await api.token(), await secret_of(api)
        await api.app.sources.set("webhook", threshold=1000)
        port = free_port()
        job_id = await create(api, ana, f"http://127.0.0.1:{port}/hook", a=1)
        async with api.app.worker():
            async with asyncio.timeout(60):
                while not (found := await shown(api, ana, job_id)) or len(found[0]["attempts"]) < 2:
                    await asyncio.sleep(0.02)
            assert found[0]["attempts"][0]["errorCode"] == "CONNECTION"
            async with receiving(port=port) as back:
                (got,) = await back.receive(1)
                assert (await until_done(api, ana, job_id))["status"] == "SUCCEEDED"
        assert got.verified(secret)["data"]["jobId"] == job_id


async def test_an_address_that_is_gone_for_good_is_not_tried_again(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api, receiving([410]) as receiver:
        ana, _ = await api.token(), await secret_of(api)
        job_id = await create(api, ana, receiver.url(), a=1)
        async with api.app.worker():
            delivery = await until_done(api, ana, job_id)
        assert (delivery["status"], delivery["errorCode"], delivery["attempt"]) == ("FAILED", "STATUS_410", 1)


async def test_failures_in_a_row_open_the_breaker_of_the_host_and_of_no_other(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api, receiving([500]) as receiver:
        ana, _ = await api.token(), await secret_of(api)
        job_id = await create(api, ana, receiver.url(), a=1)
        async with api.app.worker():
            async with asyncio.timeout(60):
                while not any(one.name == "webhook:127.0.0.1" and one.opens for one in await api.app.sources.list()):
                    await asyncio.sleep(0.02)
        delivery = (await shown(api, ana, job_id))[0]
        assert (delivery["done"], delivery["attempt"], len(receiver.got)) == (False, 5, 5)


# --- never lost, whoever writes the end


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_job_that_is_cancelled_before_it_ran_tells_its_end(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api, receiving() as receiver:
        ana, secret = await api.token(), await secret_of(api)
        job_id = await create(api, ana, receiver.url(), a=1)
        await api.app.cancel(job_id)
        assert (await api.app.job(await delivery_of(api, job_id))).state == "queued"  # with the cancel, not later
        async with api.app.worker():
            (got,) = await receiver.receive(1)
        assert got.verified(secret)["type"] == "job.cancelled"


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_job_whose_worker_is_lost_for_good_tells_its_end_through_the_sweeper(serve: Serve) -> None:
    def once(app: Rowlock) -> None:
        @app.task("once", public=True, on_lost="dead")
        async def never() -> None: ...

    async with serve(once, webhooks=QUICK) as api, receiving() as receiver:
        ana, secret = await api.token(), await secret_of(api)
        job_id = await create(api, ana, receiver.url(), "once")
        lease = await api.app.claim(job_id, worker="gone", lease_seconds=0.05)
        assert lease is not None
        store = await api.app.store()
        async with asyncio.timeout(30):  # until the lease has run out by the database's clock
            while not (reclaimed := await store.run(leases.reclaim([0.0], 0.0, settle.Keep()))):
                await asyncio.sleep(0.02)
        assert [one.job.id for one in reclaimed] == [job_id]
        async with api.app.worker():
            (got,) = await receiver.receive(1)
        assert (got.verified(secret)["type"], got.verified(secret)["data"]["errorCode"]) == (
            "job.failed",
            "WORKER_LOST",
        )


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_job_that_is_retried_tells_each_of_its_ends(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api, receiving() as receiver:
        ana, secret = await api.token(), await secret_of(api)
        job_id = await create(api, ana, receiver.url(), a=1)
        await api.app.cancel(job_id)
        await api.app.retry(job_id)
        async with api.app.worker():
            got = await receiver.receive(2)
            await until_done(api, ana, job_id)
        assert {one.verified(secret)["type"] for one in got} == {"job.cancelled", "job.completed"}
        assert {one["deliveryId"] for one in await shown(api, ana, job_id)} == {
            one.headers["webhook-id"] for one in got
        }


@pytest.mark.parametrize("engine", ENGINES)
async def test_an_end_that_is_rolled_back_delivers_nothing(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api:
        ana, _ = await api.token(), await secret_of(api)
        job_id = await create(api, ana, "http://127.0.0.1:9/", a=1)
        with pytest.raises(ZeroDivisionError):
            async with api.app.transaction() as transaction:
                await transaction.run(cancel.cancel([job_id], settle.Keep()))  # type: ignore[attr-defined]
                raise ZeroDivisionError
        assert await shown(api, ana, job_id) == []
        assert [job.task for job in await api.app.jobs()] == ["add"]


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_request_that_is_refused_leaves_no_webhook(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api:
        ana, _ = await api.token(), await secret_of(api)
        body = {"jobType": "add", "args": {"a": "one"}, "webhook": "http://127.0.0.1:9/"}
        assert (await api.ask("POST", "/api/jobs", ana, body))[1]["code"] == "INVALID_ARGUMENTS"
        table = "rowlock.webhooks" if "postgres" in api.app.database else "rowlock_webhooks"
        assert await api.app.fetch(f"SELECT * FROM {table}") == []


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_delivery_is_no_job_of_the_owner(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api, receiving() as receiver:
        ana, operator = await api.token(), await api.token(None, "operator")
        await secret_of(api)
        async with api.socket(ana) as socket_:
            await socket_.next()
            job_id = await create(api, ana, receiver.url(), a=1)
            async with api.app.worker():
                delivery = (await until_done(api, ana, job_id))["deliveryId"]
            other = await create(api, ana, receiver.url(), a=1)
            await api.app.cancel(other)
            events = [*await socket_.until_done(), *await socket_.until_done()]
        assert {event["jobId"] for event in events} == {job_id, other}
        _, page, _ = await api.ask("GET", "/api/jobs", ana)
        assert {job["jobId"] for job in page["items"]} == {job_id, other}
        assert (await api.ask("GET", f"/api/jobs/{delivery}", ana))[0] == 404
        assert (await api.ask("GET", f"/api/jobs/{delivery}/attempts", operator))[0] == 200


@pytest.mark.parametrize("engine", ENGINES)
async def test_webhooks_are_forgotten_with_their_jobs(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api:
        ana, _ = await api.token(), await secret_of(api)
        ended, retried = [await create(api, ana, "http://127.0.0.1:9/", a=1) for _ in range(2)]
        for job_id in (ended, retried):
            await api.app.cancel(job_id)
        await api.app.retry(retried)
        dot = "rowlock." if "postgres" in api.app.database else "rowlock_"
        async with api.app.transaction() as transaction:
            await transaction.execute(f"UPDATE {dot}webhooks SET drop_on = '2001-01-01'")
        await retention.prune(await api.app.store())
        assert len(await api.app.fetch(f"SELECT job_id FROM {dot}webhooks")) == 2  # both have a delivery to make
        for delivery in await api.app.jobs(task=webhooks.TASK):
            await api.app.cancel(delivery.id)
        await retention.prune(await api.app.store())
        left = [str(row[0]) for row in await api.app.fetch(f"SELECT job_id FROM {dot}webhooks")]
        assert left == [retried]  # it is live again, and will end a second time
        assert [str(row[0]) for row in await api.app.fetch(f"SELECT job_id FROM {dot}webhook_deliveries")] == [retried]


# --- which addresses


REFUSED = {
    "not a URL": "nonsense",
    "another scheme": "file:///etc/passwd",
    "a password": "https://ana:secret@shop.example/",
    "loopback": "http://127.0.0.1/",
    "loopback by name": "http://localhost:8080/",
    "IPv6 loopback": "http://[::1]/",
    "mapped": "http://[::ffff:127.0.0.1]/",
    "private": "http://10.1.2.3/",
    "link-local": "http://169.254.169.254/latest/meta-data/",
    "a name of a network": "http://db.internal/",
    "a name without a dot": "http://intranet/",
}


@pytest.fixture
async def strict(serve: Serve) -> AsyncIterator[Api]:
    """A server with webhooks, and nothing else allowed than by default."""
    async with serve(webhooks={"enabled": True}) as api:
        yield api


@each("url", REFUSED.values(), ids=REFUSED.keys())
async def test_an_address_that_only_we_can_reach_is_refused_and_makes_no_job(strict: Api, url: str) -> None:
    ana, _, before = await strict.token(), await secret_of(strict), await strict.app.jobs()
    body = {"jobType": "add", "args": {"a": 1}, "webhook": url}
    status, problem, _ = await strict.ask("POST", "/api/jobs", ana, body)
    assert (status, problem["code"]) == (422, "WEBHOOK_REFUSED")
    assert "secret@" not in str(problem)
    assert len(await strict.app.jobs()) == len(before)


async def test_only_hosts_of_the_list_are_called(serve: Serve) -> None:
    async with serve(webhooks={"enabled": True, "hosts": ["shop.example", "*.Partner.example"]}) as api:
        ana, _ = await api.token(), await secret_of(api)
        codes = {}
        for host in ("shop.example", "a.partner.example", "partner.example", "xshop.example", "shop.example.evil.com"):
            body = {"jobType": "add", "args": {"a": 1}, "webhook": f"https://{host}/hook"}
            status, answer, _ = await api.ask("POST", "/api/jobs", ana, body)
            codes[host] = answer.get("code", status)
        refused = "WEBHOOK_REFUSED"
        assert list(codes.values()) == [202, 202, refused, refused, refused]


async def test_webhooks_are_off_unless_the_operator_enables_them(api: Api) -> None:
    ana, _ = await api.token(), await secret_of(api)
    body = {"jobType": "add", "args": {"a": 1}, "webhook": "https://shop.example/"}
    status, problem, _ = await api.ask("POST", "/api/jobs", ana, body)
    assert (status, problem["code"]) == (422, "WEBHOOKS_OFF")
    assert await api.app.jobs() == []


async def test_without_a_secret_nothing_is_sent_unsigned(serve: Serve) -> None:
    async with serve(webhooks={"enabled": True}) as api:
        await secret_of(api, "ana")
        body = {"jobType": "add", "args": {"a": 1}, "webhook": "https://shop.example/"}
        for token in (await api.token("bob"), await api.token(None, "operator")):
            status, problem, _ = await api.ask("POST", "/api/jobs", token, body)
            assert (status, problem["code"]) == (422, "NO_WEBHOOK_SECRET")


EVENT = {
    **{"job_id": "01a1e816-66e9-7021-9c64-716195c1e13d", "task": "add", "state": "succeeded", "attempt": 1},
    **dict.fromkeys(("progress", "phase", "message", "result_uri", "result_checksum", "error_code", "error_message")),
    "at": 1_790_000_000.0,
}


async def test_a_name_that_leads_to_the_loopback_is_refused_when_it_is_called(serve: Serve) -> None:
    async with serve(webhooks={"enabled": True}) as api, receiving() as receiver:
        await secret_of(api)

        async def resolve(host: str) -> list[str]:
            return ["127.0.0.1"]

        with pytest.raises(Permanent) as refused:
            await _send(api, f"http://shop.example:{receiver.port}/", Transport(resolve))
        assert refused.value.code == "ADDRESS_REFUSED"
        assert receiver.got == []


async def test_the_socket_itself_refuses_an_address_that_is_not_public(serve: Serve) -> None:
    """Even if all other checks had let the loopback pass."""
    async with serve(webhooks=QUICK) as api, receiving() as receiver:
        await secret_of(api)
        with pytest.raises(Permanent) as refused:
            await _send(api, receiver.url(), Transport())  # as in production: its socket checks
        assert refused.value.code == "ADDRESS_REFUSED"
        assert receiver.got == []


async def test_a_host_that_was_forbidden_after_the_job_was_created_is_not_called(serve: Serve) -> None:
    async with serve(webhooks={**QUICK, "hosts": ["shop.example"]}) as api, receiving() as receiver:
        await secret_of(api)
        with pytest.raises(Permanent) as refused:
            await _send(api, receiver.url())
        assert refused.value.code == "WEBHOOK_REFUSED"
        assert receiver.got == []


async def test_a_receiver_that_says_nothing_is_given_up(serve: Serve) -> None:
    async with serve(webhooks={**QUICK, "timeout_seconds": 0.2}) as api:
        await secret_of(api)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            with pytest.raises(SourceError) as failed:
                await _send(api, f"http://127.0.0.1:{silent.getsockname()[1]}/?key=canary")
        assert failed.value.code == "TIMEOUT"
        assert "canary" not in str(failed.value)


async def test_a_receiver_that_asks_for_a_pause_gets_it(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api, receiving([429], {"Retry-After": "120"}) as receiver:
        await secret_of(api)
        with pytest.raises(SourceError) as failed:
            await _send(api, receiver.url())
        assert (failed.value.code, failed.value.retry_after) == ("STATUS_429", 120)


async def test_a_long_pause_that_a_receiver_asks_for_is_not_one_of_other_owners_on_its_host(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api, receiving([503], {"Retry-After": "999999999"}) as receiver:
        await secret_of(api)
        with pytest.raises(Retry) as failed:
            await _send(api, receiver.url())
        assert (failed.value.code, failed.value.after) == ("STATUS_503", 86_400)


async def _send(api: Api, url: str, transport: Transport | None = None) -> None:
    await deliver(api.app, "01a1e816-66e9-7021-9c64-716195c1e13e", url, "ana", EVENT, transport)


# --- secrets


@pytest.mark.parametrize("engine", ENGINES)
async def test_during_a_rotation_both_secrets_have_signed_and_never_a_third(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api, receiving() as receiver:
        first, second = await secret_of(api), await secret_of(api)
        await _send(api, receiver.url())
        third = await secret_of(api)
        await _send(api, receiver.url())
        await secret_of(api, overlap=0)
        await _send(api, receiver.url())
        signed = [[_has_signed(receiver, n, secret) for secret in (first, second, third)] for n in range(3)]
        assert signed == [[True, True, False], [False, True, True], [False, False, False]]
        assert len(receiver.got[1].headers["webhook-signature"].split(" ")) == 2


def _has_signed(receiver: Receiver, number: int, secret: str) -> bool:
    try:
        receiver.got[number].verified(secret)
    except WebhookVerificationError:
        return False
    return True


async def test_a_secret_of_one_owner_signs_nothing_of_another(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api, receiving() as receiver:
        _, of_bob = await secret_of(api, "ana"), await secret_of(api, "bob")
        await _send(api, receiver.url())
        assert not _has_signed(receiver, 0, of_bob)


async def test_a_secret_is_in_no_log_and_in_no_answer(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve(webhooks=QUICK) as api, receiving([500, 200]) as receiver:
        ana, operator = await api.token(), await api.token(None, "operator")
        secret = await secret_of(api)
        job_id = await create(api, ana, receiver.url("/?key=canary"), a=1)
        async with api.app.worker():
            delivery = await until_done(api, ana, job_id)
        answers = [delivery]
        for path in ("", "/attempts", "/explain", "/deliveries"):
            answers += [await api.ask("GET", f"/api/jobs/{each}{path}", operator) for each in (job_id, _id(delivery))]
        answers.append(await (await api.app.store()).run(webhooks.secrets()))
        told = str(answers) + caplog.text
        assert secret not in told
        assert secret.removeprefix(webhooks.PREFIX)[:12] not in told
        assert "canary" not in told


def _id(delivery: dict[str, Any]) -> str:
    return str(delivery["deliveryId"])


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_job_that_no_end_of_a_job_made_delivers_nothing(serve: Serve) -> None:
    """Somebody who can insert rows must not have the server sign a message of theirs."""
    async with serve(webhooks=QUICK) as api, receiving() as receiver, api.app.worker():
        ana, _ = await api.token(), await secret_of(api)
        job_id = await create(api, ana, receiver.url(), a=1)
        await until_done(api, ana, job_id)
        for named in (job_id, new_id()):  # a job without this delivery, and no job
            forged = new_id()
            args = json.dumps({"url": receiver.url(), "owner": "ana", "event": EVENT | {"job_id": named}})
            await (await api.app.store()).run(enqueue.enqueue([(forged, args)], NewJob(webhooks.TASK)))
            with pytest.raises(JobDead):
                await (await api.app.job(forged)).wait(30)
            assert (await api.app.job(forged)).record.error_code == "NO_WEBHOOK"
        assert len(receiver.got) == 1


async def test_receivers_that_hang_under_many_names_leave_slots_to_jobs(serve: Serve) -> None:
    hosts, waiting = [f"127.0.0.{number}" for number in range(1, 13)], list[asyncio.StreamWriter]()
    hanging = await asyncio.start_server(lambda _, writer: waiting.append(writer), hosts)
    ports = {one.getsockname()[0]: one.getsockname()[1] for one in hanging.sockets}
    async with serve(webhooks={**QUICK, "timeout_seconds": 60}) as api:
        ana, _ = await api.token(), await secret_of(api)
        for host in hosts:
            await create(api, ana, f"http://{host}:{ports[host]}/", a=1)
        async with api.app.worker(pool_size=8):
            async with asyncio.timeout(30):
                while len(waiting) < 5:
                    await asyncio.sleep(0.01)
                job = await api.app.job(await api.create(ana, a=2))
                assert await job.wait(timeout=20) == 3
            assert len(waiting) == 5
            assert (await api.app.sources.get("webhook")).policy.total == 5
            hanging.close()
            for writer in waiting:
                writer.close()


async def test_the_total_that_an_operator_has_set_for_webhooks_stays(serve: Serve) -> None:
    async with serve(webhooks=QUICK) as api:
        for given, total in (({"concurrency": 1}, 5), ({"total": 50}, 50)):
            await api.app.sources.set("webhook", **given)
            async with api.app.worker():
                found = await api.app.sources.get("webhook")
            assert (found.policy.total, found.policy.concurrency, found.set_by) == (total, 1, "operator")
