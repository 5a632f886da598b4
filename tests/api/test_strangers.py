"""Strangers see nothing: every route asks who it is, and a foreign job is answered like a missing one."""

import functools
import time
from collections.abc import AsyncIterator
from statistics import median

import pytest

from api.conftest import Api, Serve
from rowlock import Rowlock
from rowlock.api.access import tokens
from rowlock.api.access.gate import LOGIN, OPEN
from rowlock.api.app import build
from support.each import each

MISSING = "01a1e816-66e9-7021-9c64-716195c1e13d"
# The routes that concern one job. A new one must be added here, or the first test fails.
ONE_JOB = {
    ("GET", "/api/jobs/{jobId}"),
    ("POST", "/api/jobs/{jobId}/cancel"),
    ("POST", "/api/jobs/{jobId}/retry"),
    ("GET", "/api/jobs/{jobId}/explain"),
    ("GET", "/api/jobs/{jobId}/attempts"),
    ("GET", "/api/jobs/{jobId}/deliveries"),
    ("GET", "/api/jobs/{jobId}/events"),
    ("GET", "/api/jobs/{jobId}/result"),
}


@functools.cache
def routes() -> list[tuple[str, str]]:
    """Every route of the API, by method and path."""
    paths = build(Rowlock("sqlite:///unused.db")).openapi()["paths"]
    return sorted((method.upper(), path) for path, methods in paths.items() for method in methods)


def test_every_route_that_names_a_job_is_in_the_table_of_this_test() -> None:
    named = {one for one in routes() if "{jobId}" in one[1] and not one[1].startswith("/api/operator/")}
    assert named == ONE_JOB


@pytest.fixture
async def patient_api(serve: Serve) -> AsyncIterator[Api]:
    """A server on which strangers may ask as often as they like."""
    async with serve(stranger_requests_per_minute=1_000_000, address_requests_per_minute=1_000_000) as api:
        yield api


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_without_a_valid_token_every_operator_route_gives_the_same_401(patient_api: Api) -> None:
    api = patient_api
    expired, revoked = await api.token(None, "operator", ttl=0.0), await api.token(None, "operator")
    await (await api.app.store()).run(tokens.revoke(revoked))
    answers = []
    for method, path in (one for one in routes() if one[1].startswith("/api/operator/")):
        for token in (None, "nonsense", expired, revoked):
            asked = path.replace("{jobId}", MISSING)
            status, problem, headers = await api.ask(method, asked, token, b"{}" if method == "POST" else None)
            answers.append((status, problem, headers["www-authenticate"], headers["content-type"]))
    assert set(map(str, answers)) == {str(answers[0])}
    assert (answers[0][0], answers[0][1]["code"]) == (401, "UNAUTHORIZED")


@each(
    "method, path",
    [one for one in routes() if one[1] not in OPEN and one != LOGIN and not one[1].startswith("/api/operator/")],
)
async def test_without_a_valid_token_every_route_gives_the_same_401(patient_api: Api, method: str, path: str) -> None:
    api = patient_api
    ana = await api.token()
    mine = await api.create(ana, a=1)
    expired, revoked = await api.token(ttl=0.0), await api.token()
    await (await api.app.store()).run(tokens.revoke(revoked))
    body = b"{}" if method == "POST" else None
    browser, gone = await api.log_in(), await api.log_in()
    await (await api.app.store()).run(tokens.revoke(gone.secret))
    name = browser.cookie.partition("=")[0]
    bearers = (None, "nonsense", tokens.new_secret(), expired, revoked, "ey.ey.ey", ana + "x", "\xff", browser.secret)
    cookies = [gone.cookie, f"{name}=", f"{name}={ana}", f"{name}={tokens.new_secret()}", f"x{browser.cookie}"]
    cookies += [f"{browser.cookie}; {name}=x", f"{browser.cookie}x", f"{name}={'x' * 5000}"]
    asked: list[tuple[str | None, str, dict[str, str]]] = [
        (token, job_id, {})
        for token in bearers
        for job_id in ((mine, MISSING, "not-an-id") if token in (None, expired) else (mine,))
    ]
    asked += [(None, mine, {"Cookie": cookie}) for cookie in cookies]
    asked += [("nonsense", mine, {"Cookie": browser.cookie})]  # a wrong token is not passed over in favour of a cookie
    answers = []
    for token, job_id, sent in asked:
        status, problem, headers = await api.ask(method, path.replace("{jobId}", job_id), token, body, **sent)
        answers.append((status, problem, headers["www-authenticate"], headers["content-type"]))
    assert set(map(str, answers)) == {str(answers[0])}
    assert answers[0][0] == 401
    assert answers[0][1]["code"] == "UNAUTHORIZED"


@each("method, path", sorted(ONE_JOB))
async def test_a_job_of_another_owner_is_answered_like_a_missing_one(api: Api, method: str, path: str) -> None:
    ana, bob = await api.token("ana"), await api.token("bob")
    page = await api.log_in("bob")
    mine = await api.create(ana, a=1)
    nobodys = (await api.app.get_task("add").enqueue(a=1)).id
    answers = []
    for job_id in (mine, nobodys, MISSING, "not-an-id", "' OR 1=1 --", "%00"):
        where = path.replace("{jobId}", job_id)
        for answer in (api.ask(method, where, bob), page.ask(method, where)):
            status, problem, headers = await answer
            assert job_id not in str(problem)
            answers.append((status, str(problem), headers["content-type"], headers["content-length"]))
    assert set(answers) == {answers[0]}
    assert answers[0][0] == 404
    assert "JOB_NOT_FOUND" in answers[0][1]
    assert (await api.app.job(mine)).state == "queued"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_foreign_job_takes_about_as_long_as_a_missing_one(api: Api) -> None:
    ana, bob = await api.token("ana"), await api.token("bob")
    mine = await api.create(ana, a=1)
    times: dict[str, list[float]] = {mine: [], MISSING: []}
    for _ in range(60):
        for job_id, taken in times.items():
            started = time.perf_counter()
            await api.ask("GET", f"/api/jobs/{job_id}", bob)
            taken.append(time.perf_counter() - started)
    foreign, missing = (median(taken) for taken in times.values())
    assert 0.2 < foreign / missing < 5


async def test_lists_and_filters_show_only_the_owners_jobs(api: Api) -> None:
    ana, bob = await api.token("ana"), await api.token("bob")
    await api.create(ana, a=1)
    for query in ("", "?jobType=add", "?status=QUEUED", "?page=0&size=100"):
        assert (await api.ask("GET", f"/api/jobs{query}", bob))[1]["items"] == []


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_headers_that_name_somebody_change_nothing(api: Api) -> None:
    ana, bob = await api.token("ana"), await api.token("bob")
    mine = await api.create(ana, a=1)
    for header in ("X-User-Id", "X-Owner", "X-Forwarded-User", "X-Rowlock-Owner", "Remote-User"):
        assert (await api.ask("GET", f"/api/jobs/{mine}", bob, **{header: "ana"}))[0] == 404


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_operator_sees_every_job_and_a_reading_one_changes_none(api: Api) -> None:
    ana, operator, reader = await api.token(), await api.token(None, "operator"), await api.token(None, "operator:read")
    mine, nobodys = await api.create(ana, a=1), (await api.app.get_task("add").enqueue(a=1)).id
    for token in (operator, reader):
        _, page, _ = await api.ask("GET", "/api/jobs", token)
        assert {job["jobId"] for job in page["items"]} == {mine, nobodys}
    for path in (f"/api/jobs/{mine}/cancel", f"/api/jobs/{mine}/retry", "/api/jobs"):
        body = {"jobType": "add", "args": {"a": 1}} if path == "/api/jobs" else None
        assert (await api.ask("POST", path, reader, body))[1]["code"] == "FORBIDDEN"
    assert (await api.app.job(mine)).state == "queued"
    assert (await api.ask("POST", f"/api/jobs/{mine}/cancel", operator))[0] == 202


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_revoked_token_is_refused_within_seconds(api: Api) -> None:
    ana = await api.token()
    assert (await api.ask("GET", "/api/jobs", ana))[0] == 200
    await (await api.app.store()).run(tokens.revoke(ana))
    deadline = time.monotonic() + 5
    while (await api.ask("GET", "/api/jobs", ana))[0] == 200:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_the_database_holds_no_usable_token(api: Api) -> None:
    ana = await api.token()
    rows = await api.app.fetch(
        f"SELECT * FROM {'rowlock.tokens' if 'postgres' in api.app.database else 'rowlock_tokens'}"
    )
    stored = " ".join(str(value) for row in rows for value in row)
    assert ana not in stored
    assert ana.removeprefix(tokens.PREFIX) not in stored
    hint = next(str(value) for row in rows for value in row if str(value).startswith(tokens.PREFIX))
    assert len(ana) - len(hint) > 30  # what the hint leaves open cannot be guessed
