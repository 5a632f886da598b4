"""Tokens of an identity provider: only what its key signed, for us, for now."""

import asyncio
import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from api.conftest import Serve, Socket
from rowlock.api.access import published_keys
from rowlock.api.access.jwt import JwtVerifier
from rowlock.api.access.own_jobs import EVERYONE
from rowlock.api.access.published_keys import PublishedKeys
from rowlock.api.live import sockets
from rowlock.core.config import JwtSettings, load_settings
from rowlock.core.errors import ConfigError
from support.each import each
from support.tasks.results import CONTENT, add_file_tasks

SECRET = "a shared secret of more than thirty-two bytes"
HS256 = JwtSettings(algorithm="HS256", secret=SECRET, issuer="https://id.example", audience="jobs")
GOOD: dict[str, Any] = {"sub": "ana", "iss": "https://id.example", "aud": "jobs"}


@pytest.fixture
def engine() -> str:
    """A provider's tokens are checked without the store: one engine is enough."""
    return "sqlite"


def token(claims: dict[str, Any] | None = None, key: Any = SECRET, algorithm: str = "HS256", **header: str) -> str:
    """A signed token that is good for a minute, with some claims changed; None takes one away."""
    values = {**GOOD, "exp": time.time() + 60, **(claims or {})}
    return jwt.encode({k: v for k, v in values.items() if v is not None}, key, algorithm, headers=header or None)


async def test_a_valid_jwt_gives_its_owner() -> None:
    assert (await JwtVerifier(HS256).asker_of(token())).owner == "ana"  # type: ignore[union-attr]


BAD = {
    "another secret": token(key="another secret of more than thirty-two bytes"),
    "expired": token({"exp": time.time() - 60}),
    "no expiry": token({"exp": None}),
    "not yet valid": token({"nbf": time.time() + 600}),
    "another issuer": token({"iss": "https://evil.example"}),
    "no issuer": token({"iss": None}),
    "another audience": token({"aud": "others"}),
    "no audience": token({"aud": None}),
    "no owner": token({"sub": None}),
    "an empty owner": token({"sub": ""}),
    "no signature": token(key="", algorithm="none"),
    "another algorithm": token(algorithm="HS512"),
    "a cut signature": token()[:-2],
    "nonsense": "ey.ey.ey",
    "empty": "",
}


@each("bad", BAD.values(), ids=BAD.keys())
async def test_a_bad_token_is_nobodys(bad: str) -> None:
    assert await JwtVerifier(HS256).asker_of(bad) is None


@pytest.fixture(scope="module")
def keys() -> tuple[rsa.RSAPrivateKey, bytes]:
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private, public


@pytest.fixture
def rs256(keys: tuple[rsa.RSAPrivateKey, bytes], tmp_path: Path) -> JwtVerifier:
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(keys[0].public_key())) | {"kid": "one", "use": "sig"}
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [key]}))
    return JwtVerifier(JwtSettings(algorithm="RS256", jwks=str(file), issuer="https://id.example", audience="jobs"))


async def test_published_keys_check_tokens(rs256: JwtVerifier, keys: tuple[rsa.RSAPrivateKey, bytes]) -> None:
    good = token(key=keys[0], algorithm="RS256", kid="one")
    assert (await rs256.asker_of(good)).owner == "ana"  # type: ignore[union-attr]
    assert await rs256.asker_of(token(key=keys[0], algorithm="RS256", kid="two")) is None


async def test_a_public_key_is_not_taken_for_a_shared_secret(
    rs256: JwtVerifier, keys: tuple[rsa.RSAPrivateKey, bytes]
) -> None:
    import hashlib
    import hmac

    claims = {**GOOD, "exp": int(time.time()) + 60}
    signed = part(json.dumps({"alg": "HS256", "kid": "one"}).encode()) + "." + part(json.dumps(claims).encode())
    forged = signed + "." + part(hmac.new(keys[1], signed.encode(), hashlib.sha256).digest())
    assert await rs256.asker_of(forged) is None


async def test_a_claim_can_make_an_operator() -> None:
    verifier = JwtVerifier(HS256.model_copy(update={"operator_claim": "admin"}))
    operator = await verifier.asker_of(token({"admin": True}))
    assert operator is not None
    assert (operator.owner, operator.key) == (EVERYONE, "operator:ana"), "the audit says who it was"
    for claim in (False, "true", 1, None):
        assert (await verifier.asker_of(token({"admin": claim}))).owner == "ana"  # type: ignore[union-attr]


@each(
    "given, message",
    [
        ({"algorithm": "HS256"}, "needs secret"),
        ({"algorithm": "RS256"}, "needs jwks"),
        ({"algorithm": "HS256", "secret": "short"}, "32 bytes"),
        ({"algorithm": "none"}, "HS256"),
        ({"algorithm": "RS256", "jwks": "x", "secret": SECRET}, "no secret"),
    ],
)
def test_settings_that_would_let_everybody_in_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(env={}, flags={"api.jwt": given})


def test_a_key_file_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jwks"):
        JwtVerifier(JwtSettings(algorithm="RS256", jwks=str(tmp_path / "none.json")))


def part(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


@each("bad", ["[" * 5000, "{}", "null", '{"alg": ["HS256"]}', '{"alg": "HS256", "kid": 7}', "\xff"])
async def test_a_header_that_makes_no_sense_is_refused(bad: str) -> None:
    assert await JwtVerifier(HS256).asker_of(f"{part(bad.encode())}.{part(b'{}')}.{part(b'x')}") is None


@each("owner", ["a\x00b", "\ud800", "x" * 201, 7, ["ana"], {"name": "ana"}, True])
async def test_an_owner_that_cannot_be_stored_is_nobody(owner: Any) -> None:
    lenient = HS256.model_copy(update={"owner_claim": "user"})  # PyJWT itself checks that `sub` is text
    assert await JwtVerifier(lenient).asker_of(token({"user": owner})) is None


async def test_a_key_of_another_kind_is_refused_and_breaks_nothing(
    keys: tuple[rsa.RSAPrivateKey, bytes], tmp_path: Path
) -> None:
    other = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key()))
    shared = {"kty": "oct", "k": part(SECRET.encode()), "alg": "HS256"}
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [other | {"kid": "one"}, shared | {"kid": "two"}]}))
    verifier = JwtVerifier(JwtSettings(algorithm="RS256", jwks=str(file), issuer="https://id.example", audience="jobs"))
    for kid in ("one", "two"):
        assert await verifier.asker_of(token(key=keys[0], algorithm="RS256", kid=kid)) is None
    assert await verifier.asker_of(token(kid="two")) is None  # HS256, with a key that is published for it


class Provider:
    """An identity provider that publishes keys by HTTP. While it is held up, it takes requests and answers none."""

    def __init__(self, *keys: rsa.RSAPrivateKey) -> None:
        self.asked, self.at_once, self.most_at_once = 0, 0, 0
        self.answers = threading.Event()
        self.answers.set()
        self._lock = threading.Lock()
        self.publish(**{name: key for name, key in zip(("one", "two"), keys, strict=False)})
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with provider._lock:
                    provider.asked += 1
                    provider.at_once += 1
                    provider.most_at_once = max(provider.most_at_once, provider.at_once)
                provider.answers.wait(60)
                with provider._lock:
                    provider.at_once -= 1
                with contextlib.suppress(OSError):  # who asked has given up
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(json.dumps({"keys": provider.keys}).encode())

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.settings = {"algorithm": "RS256", "jwks": f"http://127.0.0.1:{self._server.server_port}/keys"}

    def publish(self, **keys: rsa.RSAPrivateKey) -> None:
        """The keys that it answers with from now on."""
        self.keys = [
            json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) | {"kid": name, "use": "sig"}
            for name, key in keys.items()
        ]

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def provider(keys: tuple[rsa.RSAPrivateKey, bytes]) -> Iterator[Provider]:
    started = Provider(keys[0])
    yield started
    started.close()


def named(kid: str, key: rsa.RSAPrivateKey) -> str:
    """A good token, signed with the key of this name."""
    return token({"iss": None, "aud": None}, key=key, algorithm="RS256", kid=kid)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.01)


async def test_keys_are_fetched_beside_other_requests_and_not_for_each_unknown_name(
    serve: Serve, keys: tuple[rsa.RSAPrivateKey, bytes], provider: Provider
) -> None:
    provider.answers.clear()
    async with serve(jwt=provider.settings) as api:
        waiting = asyncio.ensure_future(api.ask("GET", "/api/jobs", named("one", keys[0])))
        await until(lambda: provider.asked > 0)
        assert (await api.ask("GET", "/livez"))[0] == 200
        assert not waiting.done()  # the provider keeps it waiting, and nobody else
        provider.answers.set()
        assert (await waiting)[0] == 200
        for number in range(20):
            assert (await api.ask("GET", "/api/jobs", named(f"unknown {number}", keys[0])))[0] == 401
        assert provider.asked <= 3


async def test_while_the_provider_hangs_unknown_keys_hold_up_neither_users_nor_downloads(
    serve: Serve, keys: tuple[rsa.RSAPrivateKey, bytes], provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_keys, "COOLDOWN_SECONDS", 0.0)
    monkeypatch.setattr(published_keys, "FETCH_SECONDS", 60.0)
    async with serve(add_file_tasks, jwt=provider.settings, stranger_requests_per_minute=100_000) as api:
        ana = named("one", keys[0])
        job_id = await api.create(ana, "draw")
        async with api.app.worker():
            await (await api.app.job(job_id)).wait(timeout=30)
        provider.answers.clear()
        strangers = [
            asyncio.ensure_future(api.ask("GET", "/api/jobs", named(f"unknown {number}", keys[0])))
            for number in range(published_keys.MOST_WAITING + 10)
        ]
        await until(lambda: provider.asked == 2 and sum(one.done() for one in strangers) >= 10)
        async with asyncio.timeout(20):
            assert (await api.ask("GET", "/api/jobs", ana))[0] == 200
            assert (await api.ask("GET", f"/api/jobs/{job_id}/result", ana))[:2] == (200, CONTENT)
        assert sum(one.done() for one in strangers) == 10, "more than the pool holds are refused at once"
        assert provider.most_at_once == 1
        provider.answers.set()
        assert {status for status, _, _ in await asyncio.gather(*strangers)} == {401}
        assert provider.asked == 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed, to be changed, by the clock of the published keys."""
    passed = [0.0]
    monkeypatch.setattr(published_keys, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0]))
    return passed


async def test_known_keys_outlast_a_provider_that_is_away_for_an_hour_and_no_longer(
    keys: tuple[rsa.RSAPrivateKey, bytes], provider: Provider, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_keys, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(published_keys, "FETCH_SECONDS", 0.1)
    published = PublishedKeys(provider.settings["jwks"])
    assert await published.has("one")
    provider.answers.clear()
    for clock[0] in (250.0, 310.0, 3590.0):
        assert await published.has("one"), clock
    clock[0] = 3700.0
    assert not await published.has("one")
    provider.answers.set()
    async with asyncio.timeout(30):
        while not await published.has("one"):
            await asyncio.sleep(0.05)


async def test_a_withdrawn_key_stops_working_and_a_new_one_works_after_the_cooldown(
    keys: tuple[rsa.RSAPrivateKey, bytes], provider: Provider, clock: list[float]
) -> None:
    published = PublishedKeys(provider.settings["jwks"])
    assert await published.has("one")
    provider.publish(two=keys[0])
    assert not await published.has("two")
    clock[0] = 31.0
    assert await published.has("two")
    assert not await published.has("one")
    provider.publish(three=keys[0])
    clock[0] += 301.0  # nobody asked for a while
    assert not await published.has("two")


async def test_a_fetch_that_is_stuck_gives_way_to_another(
    keys: tuple[rsa.RSAPrivateKey, bytes], provider: Provider, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.answers.clear()
    published = PublishedKeys(provider.settings["jwks"])
    monkeypatch.setattr(published_keys, "FETCH_SECONDS", 0.1)
    assert not await published.has("one")
    assert not await published.has("one")
    await until(lambda: provider.asked == 1)
    clock[0] = 31.0
    assert not await published.has("one")
    await until(lambda: provider.asked == 2)


async def test_a_socket_is_closed_when_its_token_expires(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.api.access.jwt.LEEWAY_SECONDS", 0)
    async with serve(jwt={"algorithm": "HS256", "secret": SECRET}) as api:
        short = token({"iss": None, "aud": None, "exp": time.time() + 3})
        address, headers = api.url.replace("http", "ws") + "/api/ws", {"Authorization": f"Bearer {short}"}
        _, body, _ = await api.ask("POST", "/api/tickets", short)
        by_header = api.http.ws_connect(address, headers=headers)
        by_ticket = api.http.ws_connect(f"{address}?ticket={body['ticket']}")
        async with by_header as first, by_ticket as second:
            opened = [Socket(first), Socket(second)]
            assert [(await socket.next())["type"] for socket in opened] == ["ready", "ready"]
            assert [await socket.closed(15) for socket in opened] == [sockets.REFUSED, sockets.REFUSED]


async def test_a_request_with_such_a_token_is_its_owners(serve: Serve) -> None:
    async with serve(
        jwt={"algorithm": "HS256", "secret": SECRET, "issuer": "https://id.example", "audience": "jobs"}
    ) as api:
        job_id = await api.create(token(), a=1)
        assert (await api.app.job(job_id)).owner == "ana"
        assert (await api.ask("GET", f"/api/jobs/{job_id}", token({"sub": "bob"})))[0] == 404
        assert (await api.ask("GET", f"/api/jobs/{job_id}", BAD["expired"]))[0] == 401
        assert (await api.ask("GET", f"/api/jobs/{job_id}", await api.token("ana")))[0] == 200
