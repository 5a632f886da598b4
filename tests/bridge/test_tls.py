"""TLS to Redis, with Debian's redis-server: the wheel of Valkey has none."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from rowlock import Rowlock
from support.servers.parts import PARTS
from support.servers.redis import RedisServer
from support.web.remote import Remote, until_state, with_tasks


def own_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of this machine's loopback address, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


@pytest.mark.needs("redis-server")
@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_job_goes_through_redis_over_tls(settings: Callable[..., Any], remote: Remote, tmp_path: Path) -> None:
    certificate, key = own_certificate(tmp_path)
    server = RedisServer(tmp_path, PARTS["redis-server"].find())
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate)]
    server._options = ["--port", "0", "--tls-port", str(server.port), "--tls-auth-clients", "no", *files]
    url = server.url.replace("redis://", "rediss://") + f"?ssl_ca_certs={certificate}"
    server.start(check=False)
    there = Remote(server, remote.prefix, remote.results)
    there.redis = redis.Redis.from_url(url, decode_responses=True)
    try:
        server.wait_for(there.redis)
        async with with_tasks(Rowlock(settings=settings(redis__url=url))) as app, app.bridge():
            job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
            there.succeed(await there.request(job.id))
            done = await until_state(app, job.id, "succeeded")
        assert (done.attempt, [request["jobId"] for request in there.requests()]) == (1, [job.id])
        with pytest.raises(redis.ConnectionError):  # the server speaks nothing but TLS
            redis.Redis.from_url(server.url).ping()
    finally:
        server.stop()
