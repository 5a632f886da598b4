"""Login links and sessions: a link works once, a cookie counts only in requests of this server's own pages."""

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from api.conftest import Api, Browser, Serve, Socket
from api.test_live import read_stream
from rowlock import InvalidArguments
from rowlock.api.access import tokens
from rowlock.store.upkeep.retention import prune

NEW_JOB = {"jobType": "add", "args": {"a": 1}}


async def exchange(api: Api, link: str, **headers: str) -> int:
    """What the exchange of a login link is answered with."""
    return (await api.ask("POST", "/api/session", None, {"once": link.partition("#once=")[2]}, **headers))[0]


async def expire(api: Api, seconds: float = 1.0) -> None:
    """Let all tokens, links and sessions have expired so many seconds ago."""
    table, past = "rowlock_tokens", f"unixepoch() - {seconds}"
    if "postgres" in api.app.database:
        table, past = "rowlock.tokens", f"now() - interval '{seconds} s'"
    async with api.app.transaction() as transaction:
        await transaction.execute(f"UPDATE {table} SET expires_at = {past}")


async def test_a_login_link_opens_one_session_of_its_owner(api: Api) -> None:
    link = await api.app.login_link("ana", base_url=api.url)
    assert link.startswith(f"{api.url}/#once={tokens.PREFIX}")
    answers = await asyncio.gather(*(exchange(api, link) for _ in range(5)))
    assert sorted(answers) == [201, 401, 401, 401, 401]
    page = await api.log_in("ana")
    status, session, headers = await page.ask("GET", "/api/session")
    assert (status, session) == (200, page.session)
    assert (session["owner"], session["scope"], session["mayChange"], session["zone"]) == ("ana", "jobs", True, "UTC")
    lasts = datetime.fromisoformat(session["expiresAt"]) - datetime.now(UTC)
    assert timedelta(hours=11, minutes=58) < lasts < timedelta(hours=12, minutes=2)
    assert headers["cache-control"] == "no-store"


async def test_a_login_link_that_expired_or_was_never_made_opens_nothing(api: Api) -> None:
    link = await api.app.login_link("ana", base_url=api.url)
    await expire(api)
    for wrong in (link, f"{link}x", "#once=nonsense", f"#once={await api.token()}"):
        assert await exchange(api, wrong) == 401
    assert await exchange(api, "#once=") == 422


async def test_a_login_link_is_good_for_ten_minutes(api: Api) -> None:
    await api.app.login_link("ana", base_url=api.url)
    postgres = "postgres" in api.app.database
    left = "extract(epoch FROM expires_at - now())" if postgres else "expires_at - unixepoch('subsec')"
    (row,) = await api.app.fetch(f"SELECT {left} FROM {'rowlock.' if postgres else 'rowlock_'}tokens")
    assert 570 < float(row[0]) <= 600


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_the_cookie_is_kept_from_scripts_and_from_other_sites(serve: Serve) -> None:
    async with serve(base_path="/site") as api:
        for origin, secure in ((None, False), (api.url, False), (api.url.replace("http:", "https:"), True)):
            link = await api.app.login_link("ana", base_url=api.url)
            body, sent = {"once": link.partition("#once=")[2]}, {"Origin": origin} if origin else {}
            _, _, headers = await api.ask("POST", "/site/api/session", None, body, **sent)
            flags = {part.strip().lower() for part in headers["set-cookie"].split(";")[1:]}
            assert {"httponly", "samesite=strict", "path=/site", "max-age=43200"} <= flags
            assert ("secure" in flags) is secure


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_over_tls_the_cookie_cannot_be_planted_by_a_server_of_another_name(api: Api) -> None:
    """Browsers take a cookie that begins with __Host- from its very host alone."""
    tls, planted = api.url.replace("http:", "https:"), await api.log_in("bob")
    link = await api.app.login_link("ana", base_url=api.url)
    body = {"once": link.partition("#once=")[2]}
    _, session, headers = await api.ask("POST", "/api/session", None, body, Origin=tls)
    name, flags = headers["set-cookie"].partition("=")[0], headers["set-cookie"].lower()
    assert (name[:7], "; path=/;" in flags, "; secure" in flags, "domain" in flags) == ("__Host-", True, True, False)
    page = Browser(api, headers["set-cookie"].partition(";")[0], session)
    assert (await page.ask("GET", "/api/session"))[1]["owner"] == "ana"
    both = f"{planted.cookie}; {page.cookie}; {planted.cookie}"
    assert (await page.ask("GET", "/api/session", Cookie=both))[1]["owner"] == "ana"
    status, _, headers = await page.ask("DELETE", "/api/session", Origin=tls)
    assert (status, headers["set-cookie"].startswith(f'{name}=""; ')) == (204, True)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_planted_cookie_counts_for_nothing_where_tls_is_known(serve: Serve) -> None:
    async with serve(trusted_proxies=["127.0.0.1"]) as api:
        planted, proxy = await api.log_in("bob"), {"X_Forwarded_Proto": "https"}
        assert (await planted.ask("GET", "/api/session"))[0] == 200
        assert (await planted.ask("GET", "/api/session", **proxy))[0] == 401
        _, secret = planted.cookie.split("=")
        own = f"__Host-{planted.cookie.partition('=')[0]}={secret}"
        assert (await planted.ask("GET", "/api/session", Cookie=own, **proxy))[0] == 200


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_the_database_and_the_log_hold_no_usable_link_session_or_value(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    unused = await api.app.login_link("bob", base_url=api.url)
    page = await api.log_in()
    await page.ask("POST", "/api/jobs", NEW_JOB)
    prefix = "rowlock." if "postgres" in api.app.database else "rowlock_"
    rows = await api.app.fetch(f"SELECT * FROM {prefix}tokens")
    everything = " ".join(str(value) for row in rows for value in row) + caplog.text
    for secret in (unused.partition("#once=")[2], page.secret, page.session["csrf"]):
        assert secret not in everything


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_page_with_a_session_does_what_a_token_does(api: Api) -> None:
    page = await api.log_in("ana")
    status, created, _ = await page.ask("POST", "/api/jobs", NEW_JOB)
    assert status == 202
    assert (await api.app.job(created["jobId"])).owner == "ana"
    assert (await page.ask("GET", f"/api/jobs/{created['jobId']}"))[0] == 200
    async with page.socket() as raw:
        socket = Socket(raw)
        assert (await socket.next())["type"] == "ready"
        assert (await page.ask("POST", f"/api/jobs/{created['jobId']}/cancel"))[0] == 202
        assert (await socket.next())["type"] == "job.cancelled"
    found = await read_stream(api, f"/api/jobs/{created['jobId']}/events", None, 2, Cookie=page.cookie)
    assert found[-1]["event"] == "job.cancelled"


FOREIGN = [
    ({"X-Rowlock-CSRF": ""}, "INVALID_CSRF"),
    ({"X-Rowlock-CSRF": "x" * 43}, "INVALID_CSRF"),
    ({"X-Rowlock-CSRF": "\xe9"}, "INVALID_CSRF"),
    ({"Origin": ""}, "INVALID_ORIGIN"),  # a form, or an old browser
    ({"Origin": "null"}, "INVALID_ORIGIN"),
    ({"Origin": "http://evil.example"}, "INVALID_ORIGIN"),
    ({"Origin": "http://127.0.0.1:1"}, "INVALID_ORIGIN"),
    ({"Origin": "https://shop.example"}, "INVALID_ORIGIN"),  # named in cors_origins: for tokens, not for cookies
    ({"Sec-Fetch-Site": "same-site"}, "UNAUTHORIZED"),
    ({"Sec-Fetch-Site": "cross-site"}, "UNAUTHORIZED"),
]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_page_of_another_origin_changes_nothing_with_a_session(serve: Serve) -> None:
    async with serve(cors_origins=["https://shop.example"]) as api:
        page = await api.log_in()
        job_id = (await page.ask("POST", "/api/jobs", NEW_JOB))[1]["jobId"]
        asked = [("POST", "/api/jobs", NEW_JOB), ("POST", f"/api/jobs/{job_id}/cancel", None)]
        asked += [("POST", "/api/tickets", None), ("DELETE", "/api/session", None)]
        for headers, code in FOREIGN:
            for method, path, body in asked:
                assert (await page.ask(method, path, body, **headers))[1]["code"] == code, (headers, path)
        assert [job.state for job in await api.app.jobs()] == ["queued"]
        assert (await page.ask("GET", "/api/session"))[0] == 200


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_the_value_of_another_session_does_not_count(api: Api) -> None:
    page, other = await api.log_in(), await api.log_in()
    sent = {"X-Rowlock-CSRF": other.session["csrf"]}
    assert (await page.ask("POST", "/api/jobs", NEW_JOB, **sent))[1]["code"] == "INVALID_CSRF"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_page_of_another_origin_reads_nothing_with_a_session(api: Api) -> None:
    page = await api.log_in()
    for site in ("same-site", "cross-site"):
        assert (await page.ask("GET", "/api/jobs", **{"Sec-Fetch-Site": site}))[0] == 401
    assert (await page.ask("GET", "/api/jobs", **{"Sec-Fetch-Site": "none"}))[0] == 200  # the address bar


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_page_of_another_origin_logs_nobody_in(serve: Serve) -> None:
    async with serve(cors_origins=["https://shop.example"]) as api:
        link = await api.app.login_link("mallory", base_url=api.url)
        for origin in ("https://shop.example", "http://evil.example", "null"):
            assert await exchange(api, link, Origin=origin) == 403
        assert await exchange(api, link, Content_Type="text/plain") == 422  # what a form can send
        assert await exchange(api, link, Origin=api.url) == 201


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_socket_with_a_session_needs_this_servers_own_origin(serve: Serve) -> None:
    async with serve(cors_origins=["https://shop.example"]) as api:
        page, refused = await api.log_in(), 0
        for origin in ("", "null", "http://evil.example", "http://127.0.0.1:1", "https://shop.example"):
            try:
                async with page.socket(origin) as raw:
                    await raw.send_json({})
                    assert (await Socket(raw).next())["code"] == "UNAUTHORIZED", origin
            except aiohttp.WSServerHandshakeError:
                refused += 1  # before it was open
        assert refused == 3


async def test_an_ended_session_is_refused_and_its_socket_closed_within_seconds(api: Api) -> None:
    revoked, logged_out, expired = pages = [await api.log_in() for _ in range(3)]
    async with AsyncExitStack() as stack:
        sockets = {page.secret: Socket(await stack.enter_async_context(page.socket())) for page in pages}
        for socket in sockets.values():
            assert (await socket.next())["type"] == "ready"
        await (await api.app.store()).run(tokens.revoke(revoked.secret))
        status, _, headers = await logged_out.ask("DELETE", "/api/session")
        assert status == 204
        assert "max-age=0" in headers["set-cookie"].lower()
        assert (await logged_out.ask("GET", "/api/jobs"))[0] == 401  # at once
        for page in (revoked, logged_out):
            assert await sockets[page.secret].closed(8) == 4401  # within 5 seconds; the rest is for a busy machine
        assert (await expired.ask("GET", "/api/jobs"))[0] == 200
        await expire(api)
        assert await sockets[expired.secret].closed(8) == 4401
    for page in pages:
        deadline = time.monotonic() + 5
        while (await page.ask("GET", "/api/jobs"))[0] == 200:
            assert time.monotonic() < deadline


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_token_cannot_be_ended_by_logging_out(api: Api) -> None:
    ana = await api.token()
    assert (await api.ask("DELETE", "/api/session", ana))[1]["code"] == "FORBIDDEN"
    _, session, _ = await api.ask("GET", "/api/session", ana)
    assert (session["owner"], session["expiresAt"], session["csrf"]) == ("ana", None, None)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_operators_session_sees_all_jobs_and_a_reading_one_changes_none(api: Api) -> None:
    ana = await api.token()
    job_id = await api.create(ana, a=1)
    operator, reader = await api.log_in(None), await api.log_in(None, "operator:read")
    assert (operator.session["scope"], operator.session["mayChange"]) == ("operator", True)
    assert (reader.session["scope"], reader.session["mayChange"]) == ("operator:read", False)
    for page in (operator, reader):
        assert (await page.ask("GET", "/api/operator/stats"))[0] == 200
        assert [job["jobId"] for job in (await page.ask("GET", "/api/jobs"))[1]["items"]] == [job_id]
    assert (await reader.ask("POST", f"/api/jobs/{job_id}/cancel"))[1]["code"] == "FORBIDDEN"
    assert (await (await api.log_in("ana")).ask("GET", "/api/operator/stats"))[1]["code"] == "FORBIDDEN"
    assert (await operator.ask("POST", f"/api/jobs/{job_id}/cancel"))[0] == 202


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_servers_on_two_ports_do_not_share_the_name_of_their_cookie(serve: Serve) -> None:
    async with serve() as first, serve() as second:
        assert (await first.log_in()).cookie.partition("=")[0] != (await second.log_in()).cookie.partition("=")[0]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_wrong_login_link_is_a_clear_error(api: Api) -> None:
    for wrong, said in (
        ({"owner": "ana", "scope": "operator"}, "takes no owner"),
        ({"scope": "jobs"}, "needs an owner"),
        ({"owner": "ana", "scope": "root"}, "operator:read"),
        ({"owner": "ana", "base_url": "ftp://x"}, "ftp://x"),
        ({"owner": "ana", "base_url": "http://u:p@x"}, "base_url"),
        ({"owner": ""}, "owner"),
        ({"owner": "ana"}, "api.port is 0"),
    ):
        with pytest.raises(InvalidArguments, match=said):
            await api.app.login_link(**wrong)  # type: ignore[arg-type]


async def test_a_token_that_is_typed_in_opens_a_session_that_ends_with_it(api: Api) -> None:
    _, job, _ = await api.ask("POST", "/api/jobs", await api.token(), {**NEW_JOB, "watch": True})
    page = await api.log_in()
    for wrong in ("nonsense", tokens.new_secret(), await api.token(ttl=0.0), job["watchToken"], page.secret):
        assert (await api.ask("POST", "/api/session", None, {"token": wrong}))[0] == 401
    for unclear in ({}, {"token": "a", "once": "b"}, {"token": ""}):
        assert (await api.ask("POST", "/api/session", None, unclear))[0] == 422
    token = await api.token(None, "operator:read", ttl=300)
    status, session, headers = await api.ask("POST", "/api/session", None, {"token": token})
    assert (status, session["scope"], session["mayChange"]) == (201, "operator:read", False)
    assert datetime.fromisoformat(session["expiresAt"]) - datetime.now(UTC) < timedelta(seconds=301)
    typed = Browser(api, headers["set-cookie"].partition(";")[0], session)
    assert (await typed.ask("GET", "/api/operator/queues"))[0] == 200
    assert len(await (await api.app.store()).run(tokens.revoke(token))) == 2
    deadline = time.monotonic() + 5
    while (await typed.ask("GET", "/api/jobs"))[0] == 200:
        assert time.monotonic() < deadline
    assert (await page.ask("GET", "/api/jobs"))[0] == 200


@pytest.mark.parametrize("engine", ["postgres"])
async def test_a_session_that_is_opened_while_its_token_is_revoked_is_refused(api: Api) -> None:
    """The revoke does not see the session, and the session does not see the revoke."""
    token, secret, store = await api.token(), tokens.new_secret(), await api.app.store()
    async with api.app.transaction() as transaction:
        session = await transaction.run(tokens.open_session("token", token, secret, 3600))
        assert session is not None
        assert len(await store.run(tokens.revoke(token))) == 1
    assert await store.run(tokens.find(secret, "session")) is None
    assert await store.run(tokens.still_good([session.id])) == set()


async def test_retention_deletes_expired_links_at_once_and_tokens_and_sessions_after_a_day(api: Api) -> None:
    store, prefix = await api.app.store(), "rowlock." if "postgres" in api.app.database else "rowlock_"
    await api.app.login_link("ana", base_url=api.url)
    await api.log_in("ana")  # a link that is used up, and a session
    await api.token()

    async def kinds() -> list[str]:
        await prune(store)
        return sorted(row[0] for row in await api.app.fetch(f"SELECT kind FROM {prefix}tokens"))

    assert await kinds() == ["link", "link", "session", "token"]
    await expire(api, seconds=60)
    assert await kinds() == ["session", "token"]
    await expire(api, seconds=90_000)
    assert await kinds() == []
