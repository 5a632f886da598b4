"""Webhooks over TLS: the receiver's certificate must be of a known authority and for the name in the address."""

import asyncio
import ssl
from pathlib import Path

import aiohttp.connector
import pytest

from api.conftest import Serve
from api.test_webhooks import QUICK, create, secret_of, shown, until_done
from support.servers.certificates import Authority
from support.servers.receiver import Received, receiving


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the process had been started with SSL_CERT_FILE: aiohttp makes its context when it is imported."""
    context = ssl.create_default_context(cafile=str(authority.file))
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", context)


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.usefixtures("trusted")
async def test_a_webhook_is_delivered_over_tls_to_the_name_in_its_address(serve: Serve, authority: Authority) -> None:
    async with serve(webhooks=QUICK) as api, receiving(tls=authority.server("localhost")) as receiver:
        ana, secret = await api.token(), await secret_of(api)
        job_id = await create(api, ana, receiver.url(), a=1)
        async with api.app.worker():
            delivery = await until_done(api, ana, job_id)
        assert (delivery["status"], delivery["attempt"]) == ("SUCCEEDED", 1)
        (got,) = receiver.got
        assert got.verified(secret)["data"]["jobId"] == job_id
        assert got.headers["host"] == f"localhost:{receiver.port}"


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.usefixtures("trusted")
async def test_a_receiver_with_the_certificate_of_another_name_gets_nothing(serve: Serve, authority: Authority) -> None:
    assert await delivered(serve, authority.server("other.example")) == ("CONNECTION", [])


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_receiver_with_a_certificate_of_an_unknown_authority_gets_nothing(
    serve: Serve, authority: Authority
) -> None:
    assert await delivered(serve, authority.server("localhost")) == ("CONNECTION", [])


async def delivered(serve: Serve, tls: ssl.SSLContext) -> tuple[str | None, list[Received]]:
    """The error code of the first try of a delivery to this receiver, and the messages that have reached it."""
    async with serve(webhooks=QUICK) as api, receiving(tls=tls) as receiver:
        ana, _ = await api.token(), await secret_of(api)
        job_id = await create(api, ana, receiver.url(), a=1)
        async with api.app.worker():
            async with asyncio.timeout(60):
                while not (found := await shown(api, ana, job_id)) or not found[0]["attempts"]:
                    await asyncio.sleep(0.02)
        return found[0]["attempts"][0]["errorCode"], receiver.got
