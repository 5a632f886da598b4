"""Routes of operators: what the command line can do, for those who have an operator's token and nobody else."""

import pytest

from api.conftest import Api
from api.test_strangers import routes
from support.each import each

OPERATOR = [one for one in routes() if one[1].startswith("/api/operator")]


def filled(path: str) -> str:
    """A path with something in its parameters."""
    missing = "01a1e816-66e9-7021-9c64-716195c1e13d"
    path = path.replace("{name}", "api").replace("{batchId}", missing).replace("{jobId}", missing)
    return f"{path}?text=abcd" if path.endswith("/find") else path


def test_there_are_routes_to_test() -> None:
    assert len(OPERATOR) > 10


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_owners_token_is_refused_on_every_operator_route(api: Api) -> None:
    token = await api.token()
    for method, path in OPERATOR:
        status, problem, _ = await api.ask(method, filled(path), token, {} if method == "POST" else None)
        assert (status, problem["code"]) == (403, "FORBIDDEN"), (method, path)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_owner_is_refused_whatever_the_body_is(api: Api) -> None:
    """What a body must look like is told to operators alone."""
    token = await api.token()
    for path in [path for method, path in OPERATOR if method == "POST"]:
        status, problem, _ = await api.ask("POST", filled(path), token, ["no such body"])
        assert (status, problem["code"]) == (403, "FORBIDDEN"), path


async def test_a_reading_operator_may_look_and_change_nothing(api: Api) -> None:
    token = await api.token(None, "operator:read")
    for method, path in OPERATOR:
        status, _, _ = await api.ask(method, filled(path), token, {} if method == "POST" else None)
        assert status == 403 if method == "POST" else status in (200, 404), (method, path, status)


async def test_an_operator_sees_queues_workers_and_numbers(api: Api) -> None:
    operator = await api.token(None, "operator:read")
    await api.create(await api.token(), a=1)
    _, queues, _ = await api.ask("GET", "/api/operator/queues", operator)
    assert [(queue["name"], queue["queued"]) for queue in queues["items"]] == [("default", 1)]
    _, stats, _ = await api.ask("GET", "/api/operator/stats", operator)
    assert stats["workers"] == 0
    assert stats["unknownTasks"] == [{"queue": "default", "task": "add", "waiting": 1}]
    async with api.app.worker(pool_size=3) as worker:
        _, found, _ = await api.ask("GET", "/api/operator/workers", operator)
    assert [(one["id"], one["poolSize"], one["alive"]) for one in found["items"]] == [(worker.id, 3, True)]


async def test_an_operator_pauses_and_resumes_a_queue(api: Api) -> None:
    operator = await api.token(None, "operator")
    assert (await api.ask("POST", "/api/operator/queues/default/pause", operator))[0] == 204
    _, queues, _ = await api.ask("GET", "/api/operator/queues", operator)
    assert queues["items"][0]["paused"]
    assert (await api.ask("POST", "/api/operator/queues/default/resume", operator))[0] == 204
    _, queues, _ = await api.ask("GET", "/api/operator/queues", operator)
    assert not any(queue["paused"] for queue in queues["items"])


async def test_an_operator_limits_pauses_and_resumes_a_source(api: Api) -> None:
    operator = await api.token(None, "operator")
    limits = {"concurrency": 2, "rate": "30/min", "burst": 5}
    status, source, _ = await api.ask("POST", "/api/operator/sources/api:shop", operator, limits)
    assert (status, source["name"], source["concurrency"]) == (200, "api:shop", 2)
    _, source, _ = await api.ask("POST", "/api/operator/sources/api:shop", operator, {"concurrency": None})
    assert source["concurrency"] is None
    assert (await api.ask("POST", "/api/operator/sources/api:shop/pause", operator, {"seconds": 60}))[0] == 200
    _, listed, _ = await api.ask("GET", "/api/operator/sources?after=api", operator)
    assert [one["name"] for one in listed["items"] if one["pausedUntil"]] == ["api:shop"]
    assert (await api.ask("POST", "/api/operator/sources/api:shop/resume", operator))[1]["pausedUntil"] is None


async def test_an_operator_fires_pauses_and_resumes_a_schedule(api: Api) -> None:
    operator = await api.token(None, "operator")
    await api.app.schedules.add("hourly", "add", rule="0 * * * *", args={"a": 1})
    status, fired, _ = await api.ask("POST", "/api/operator/schedules/hourly/run", operator)
    assert status == 202
    assert (await api.app.job(fired["jobId"])).task == "add"
    assert (await api.ask("POST", "/api/operator/schedules/hourly/pause", operator))[0] == 200
    assert (await api.ask("POST", "/api/operator/schedules/hourly/resume", operator))[0] == 200
    _, listed, _ = await api.ask("GET", "/api/operator/schedules", operator)
    assert [one["id"] for one in listed["items"]] == ["hourly"]


async def test_an_operator_sees_and_cancels_a_batch(api: Api) -> None:
    operator = await api.token(None, "operator")
    async with api.app.batch("import", owner="ana") as batch:
        await api.app.get_task("add").using(batch=batch).enqueue(a=1)
    _, listed, _ = await api.ask("GET", "/api/operator/batches?owner=ana", operator)
    assert [(one["id"], one["total"]) for one in listed["items"]] == [(batch.id, 1)]
    status, cancelled, _ = await api.ask("POST", f"/api/operator/batches/{batch.id}/cancel", operator)
    assert (status, cancelled["state"]) == (202, "cancelled")
    assert (await api.ask("POST", f"/api/operator/batches/{batch.id}/cancel", operator))[1]["code"] == "NOT_ALLOWED"


@each(
    "path, body, code",
    [
        ("/api/operator/schedules/nothing/run", None, "NOT_FOUND"),
        ("/api/operator/batches/nothing/cancel", None, "NOT_FOUND"),
        ("/api/operator/sources/api:shop", {"rate": "often"}, "INVALID_ARGUMENTS"),
        ("/api/operator/sources/api:shop", {"limit": 3}, "INVALID_REQUEST"),
        ("/api/operator/sources/api:shop", {"concurrency": -1}, "INVALID_REQUEST"),
        ("/api/operator/sources/api:shop/pause", {"seconds": -1}, "INVALID_REQUEST"),
        ("/api/operator/sources/api:shop/pause", {"seconds": 1e300}, "INVALID_ARGUMENTS"),
        ("/api/operator/sources/api:shop", {"concurrency": 10**30}, "INVALID_ARGUMENTS"),
        ("/api/operator/sources/api:shop", {"burst": 2**40}, "INVALID_ARGUMENTS"),
        ("/api/operator/sources/api:shop", {"cooldown": float("inf")}, "INVALID_ARGUMENTS"),
        ("/api/operator/queues/%00/pause", None, "INVALID_REQUEST"),
        ("/api/operator/queues/a%0Ab/pause", None, "INVALID_ARGUMENTS"),
        ("/api/operator/sources/%00/resume", None, "INVALID_REQUEST"),
        ("/api/operator/schedules/%00/run", None, "INVALID_REQUEST"),
    ],
)
async def test_what_cannot_be_done_is_a_documented_problem(
    api: Api, path: str, body: dict[str, object] | None, code: str
) -> None:
    status, problem, _ = await api.ask("POST", path, await api.token(None, "operator"), body)
    assert (problem["code"], status >= 400) == (code, True)


@pytest.fixture
async def audit_is_full(api: Api) -> tuple[Api, str, str]:
    """A server whose audit takes no more entries, an operator's token, and a batch with one job."""
    operator = await api.token(None, "operator")
    await api.app.sources.set("api:shop", concurrency=5)
    async with api.app.batch("nightly") as batch:
        await api.app.get_task("add").using(batch=batch).enqueue(a=1)
    async with api.app.transaction() as transaction:
        await transaction.execute(
            "CREATE TRIGGER full BEFORE INSERT ON rowlock_audit BEGIN SELECT RAISE(ABORT, 'the audit is full'); END"
        )
    return api, operator, batch.id


@pytest.mark.parametrize("engine", ["sqlite"])
@each(
    "path, body",
    [
        ("sources/api:shop", {"concurrency": 1}),
        ("sources/api:shop/pause", {"seconds": 60}),
        ("queues/default/pause", None),
        ("batches/{batch}/cancel", None),
        ("jobs", {"task": "add", "args": {"a": 1}}),
    ],
)
async def test_what_cannot_be_written_into_the_audit_is_not_done(
    audit_is_full: tuple[Api, str, str], path: str, body: object
) -> None:
    api, operator, batch_id = audit_is_full
    path = path.format(batch=batch_id)
    assert (await api.ask("POST", f"/api/operator/{path}", operator, body))[0] == 500
    assert [row[0] for row in await api.app.fetch("SELECT cancelled_at FROM rowlock_batches")] == [None]
    source = await api.app.sources.get("api:shop")
    assert (source.concurrency, source.paused_until) == (5, None)
    (queue,) = (await api.ask("GET", "/api/operator/queues", operator))[1]["items"]
    assert (queue["queued"], queue["paused"]) == (1, False)


@pytest.mark.parametrize("engine", ["sqlite"])
@each("path", ["sources?after=%00", "schedules?after=%00", "batches?owner=%00", "batches?before=%00"])
async def test_a_query_with_a_nul_is_a_documented_problem(api: Api, path: str) -> None:
    status, problem, _ = await api.ask("GET", f"/api/operator/{path}", await api.token(None, "operator:read"))
    assert (status, problem["code"]) == (422, "INVALID_REQUEST")
