"""The routes of a job's owner: create, list, look at, cancel, retry, explain."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from api.conftest import Api, Serve
from rowlock.store.engine.ids import new_id
from support.each import each

ONE_ENGINE = pytest.mark.parametrize("engine", ["sqlite"])  # for what is decided before the store is asked


async def test_creating_answers_the_job_at_once_and_says_where_it_is(api: Api) -> None:
    ana = await api.token()
    status, body, headers = await api.ask("POST", "/api/jobs", ana, {"jobType": "add", "args": {"a": 2}})
    assert (status, list(body)) == (202, ["jobId"])
    assert headers["location"] == f"/api/jobs/{body['jobId']}"
    assert headers["retry-after"] == "1"
    job = await api.app.job(body["jobId"])
    assert (job.owner, job.task, job.record.args) == ("ana", "add", {"a": 2})


async def test_a_job_has_the_fields_of_the_contract(api: Api) -> None:
    ana = await api.token()
    job_id = await api.create(ana, a=1)
    async with api.app.worker():
        await (await api.app.job(job_id)).wait(timeout=20)
    status, body, _ = await api.ask("GET", f"/api/jobs/{job_id}", ana)
    moments = {name: datetime.fromisoformat(body.pop(name)) for name in ("createdAt", "startedAt", "endedAt")}
    assert status == 200
    assert body == {
        "jobId": job_id,
        "jobType": "add",
        "status": "SUCCEEDED",
        "done": True,
        "progress": 100,
        "phase": None,
        "message": None,
        "result": 2,
        "resultUri": None,
        "checksum": None,
        "errorCode": None,
        "errorMessage": None,
        "attempt": 1,
    }
    assert moments["createdAt"] <= moments["startedAt"] <= moments["endedAt"]
    assert all(moment.utcoffset() == UTC.utcoffset(None) for moment in moments.values())


@ONE_ENGINE
async def test_times_are_told_in_the_zone_of_the_settings(serve: Serve) -> None:
    async with serve(zone="Asia/Seoul") as api:
        ana = await api.token()
        _, body, _ = await api.ask("GET", f"/api/jobs/{await api.create(ana, a=1)}", ana)
        assert body["createdAt"].endswith("+09:00")


@ONE_ENGINE
@each("task, status, code", [("add", "SUCCEEDED", None), ("fail", "FAILED", "BROKEN")], ids=["success", "failure"])
async def test_prefer_wait_answers_when_the_job_has_ended(api: Api, task: str, status: str, code: str | None) -> None:
    ana = await api.token()
    args = {"a": 1} if task == "add" else {}
    async with api.app.worker():
        answer = await api.ask("POST", "/api/jobs", ana, {"jobType": task, "args": args}, Prefer="wait=20")
    assert answer[0] == 200
    assert (answer[1]["status"], answer[1]["errorCode"], answer[1]["done"]) == (status, code, True)
    assert answer[2]["preference-applied"] == "wait=20"


@ONE_ENGINE
async def test_prefer_wait_answers_202_when_the_time_is_up(api: Api) -> None:
    ana = await api.token()
    status, body, headers = await api.ask(
        "POST", "/api/jobs", ana, {"jobType": "add", "args": {"a": 1}}, Prefer="wait=1"
    )
    assert (status, headers["preference-applied"]) == (202, "wait=1")
    assert (await api.app.job(body["jobId"])).state == "queued"


@ONE_ENGINE
async def test_a_task_that_is_not_public_is_answered_like_one_that_does_not_exist(api: Api) -> None:
    ana = await api.token()
    answers = [await api.ask("POST", "/api/jobs", ana, {"jobType": task}) for task in ("secret", "nothing")]
    assert [(status, body["code"]) for status, body, _ in answers] == [(404, "TASK_NOT_FOUND")] * 2
    assert await api.app.jobs() == []


BAD_BODIES = {
    "not JSON": (b"{", 400, "INVALID_JSON", None),
    "no object": (b"[]", 422, "INVALID_REQUEST", None),
    "no task": (b"{}", 422, "INVALID_REQUEST", "jobType"),
    "unknown field": (b'{"jobType": "add", "args": {"a": 1}, "x": 1}', 422, "INVALID_REQUEST", "x"),
    "wrong type": (b'{"jobType": "add", "args": {"a": "one"}}', 422, "INVALID_ARGUMENTS", "args.a"),
    "missing argument": (b'{"jobType": "add", "args": {}}', 422, "INVALID_ARGUMENTS", "args.a"),
    "extra argument": (b'{"jobType": "add", "args": {"a": 1, "c": 1}}', 422, "INVALID_ARGUMENTS", "args.c"),
    "deep": (b'{"jobType": "add", "args": {"a": ' + b"[" * 100 + b"]" * 100 + b"}}", 422, "INVALID_ARGUMENTS", None),
    "very deep": (b"[" * 100_000, 400, "INVALID_JSON", None),
    "empty": (b"", 422, "INVALID_REQUEST", None),
    "not UTF-8": (b'{"jobType": "\xff"}', 400, "INVALID_JSON", None),
    "a number of 5,000 digits": (
        b'{"jobType": "add", "args": {"a": ' + b"9" * 5000 + b"}}",
        400,
        "INVALID_JSON",
        None,
    ),
    "not a number": (b'{"jobType": "echo", "args": {"value": NaN}}', 422, "INVALID_ARGUMENTS", None),
    "an infinite number": (b'{"jobType": "echo", "args": {"value": 1e999}}', 422, "INVALID_ARGUMENTS", None),
    "half a surrogate pair": (b'{"jobType": "echo", "args": {"value": "\\ud800"}}', 422, "INVALID_ARGUMENTS", None),
    "half a pair as a field": (b'{"jobType": "add", "\\ud800": 1}', 422, "INVALID_REQUEST", None),
    "half a pair as an argument": (b'{"jobType": "add", "args": {"\\ud800": 1}}', 422, "INVALID_ARGUMENTS", None),
    "a NUL in the type": (b'{"jobType": "a\\u0000"}', 404, "TASK_NOT_FOUND", None),
}


@ONE_ENGINE
@each("body, status, code, field", BAD_BODIES.values(), ids=BAD_BODIES.keys())
async def test_a_bad_body_is_a_problem_that_names_the_field_and_makes_no_job(
    api: Api, body: bytes, status: int, code: str, field: str | None
) -> None:
    ana, before = await api.token(), await api.app.jobs()
    answer, problem, headers = await api.ask("POST", "/api/jobs", ana, body)
    assert (answer, problem["code"]) == (status, code)
    assert headers["content-type"] == "application/problem+json"
    again, same, _ = await api.ask("POST", "/api/jobs", ana, body, Idempotency_Key=new_id())
    assert (again, same) == (answer, problem)
    if field is not None:
        assert field in [error["field"] for error in problem["errors"]]
    assert len(await api.app.jobs()) == len(before)


@pytest.fixture
async def working(api: Api) -> AsyncIterator[Api]:
    """A server whose jobs are run."""
    async with api.app.worker():
        yield api


@each("value", [2**80, -(2**63) - 1, 1e-300, "a\x00b", {"\x00": "\u202e"}, "💩"], ids=repr)
async def test_unusual_values_come_back_as_they_were_given(working: Api, value: object) -> None:
    asked = {"jobType": "echo", "args": {"value": value}}
    _, job, _ = await working.ask("POST", "/api/jobs", await working.token(), asked, Prefer="wait=20")
    assert (job["status"], job["result"]) == ("SUCCEEDED", value)


async def test_a_result_that_cannot_be_written_in_utf_8_hides_no_job(api: Api) -> None:
    ana = await api.token()
    async with api.app.worker():
        _, job, _ = await api.ask("POST", "/api/jobs", ana, {"jobType": "half_a_pair"}, Prefer="wait=20")
    assert job["result"] == {"half": "?"}
    assert (await api.ask("GET", "/api/jobs", ana))[1]["items"][0]["result"] == {"half": "?"}


@ONE_ENGINE
@each("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_body_that_a_form_can_send_is_not_taken_for_json(api: Api, content_type: str) -> None:
    body, before = b'{"jobType": "add", "args": {"a": 1}}', await api.app.jobs()
    status, _, _ = await api.ask("POST", "/api/jobs", await api.token(), body, Content_Type=content_type)
    assert status == 422
    assert len(await api.app.jobs()) == len(before)


# --- Idempotency-Key


async def test_the_same_key_and_body_answer_the_same_job(api: Api) -> None:
    ana, bob = await api.token("ana"), await api.token("bob")
    body = {"jobType": "add", "args": {"a": 1}}
    first, again, other = [
        (await api.ask("POST", "/api/jobs", token, body, Idempotency_Key="k"))[1]["jobId"] for token in (ana, ana, bob)
    ]
    assert first == again
    assert other != first
    assert len(await api.app.jobs()) == 2


@ONE_ENGINE
async def test_the_same_key_answers_the_same_job_also_when_that_has_ended(api: Api) -> None:
    ana = await api.token()
    body = {"jobType": "add", "args": {"a": 1}}
    async with api.app.worker():
        _, first, _ = await api.ask("POST", "/api/jobs", ana, body, Idempotency_Key="k", Prefer="wait=20")
    _, again, _ = await api.ask("POST", "/api/jobs", ana, body, Idempotency_Key="k")
    assert first["done"]
    assert again["jobId"] == first["jobId"]


@ONE_ENGINE
async def test_the_same_key_answers_also_when_retention_has_removed_the_job(api: Api) -> None:
    ana = await api.token()
    body = {"jobType": "add", "args": {"a": 1}}
    _, first, _ = await api.ask("POST", "/api/jobs", ana, body, Idempotency_Key="k")
    table = "rowlock.jobs_live" if "postgres" in api.app.database else "rowlock_jobs_live"
    async with api.app.transaction() as transaction:
        await transaction.execute(f"DELETE FROM {table}")
    for prefer in ("", "wait=1"):
        status, again, _ = await api.ask("POST", "/api/jobs", ana, body, Idempotency_Key="k", Prefer=prefer)
        assert (status, again["jobId"]) == (202, first["jobId"])
    assert await api.app.jobs() == []


@ONE_ENGINE
@each("other", [{"jobType": "add", "args": {"a": 2}}, {"jobType": "steps", "args": {"count": 1}}])
async def test_the_same_key_with_another_body_is_refused(api: Api, other: dict[str, object]) -> None:
    ana = await api.token()
    await api.ask("POST", "/api/jobs", ana, {"jobType": "add", "args": {"a": 1}}, Idempotency_Key="k")
    status, problem, _ = await api.ask("POST", "/api/jobs", ana, other, Idempotency_Key="k")
    assert (status, problem["code"]) == (422, "KEY_REUSED")
    assert len(await api.app.jobs()) == 1  # the rows share owner and key, and with them this job


async def test_many_requests_with_one_key_at_the_same_time_make_one_job(api: Api) -> None:
    ana = await api.token()
    body = {"jobType": "add", "args": {"a": 1}}
    answers = await asyncio.gather(*(api.ask("POST", "/api/jobs", ana, body, Idempotency_Key="k") for _ in range(10)))
    assert {status for status, _, _ in answers} <= {202, 409}
    assert all(problem["code"] == "IN_FLIGHT" for status, problem, _ in answers if status == 409)
    assert len(await api.app.jobs()) == 1


# --- lists


async def test_a_list_has_the_owners_jobs_newest_first_in_pages(api: Api) -> None:
    ana, bob = await api.token("ana"), await api.token("bob")
    mine = [await api.create(ana, a=n) for n in range(5)]
    await api.create(bob, a=9)
    _, first, _ = await api.ask("GET", "/api/jobs?size=2", ana)
    _, second, _ = await api.ask("GET", "/api/jobs?size=2&page=1", ana)
    _, last, _ = await api.ask("GET", "/api/jobs?size=2&page=2", ana)
    _, beyond, _ = await api.ask("GET", "/api/jobs?size=2&page=3", ana)
    pages = [first, second, last, beyond]
    assert [job["jobId"] for page in pages for job in page["items"]] == mine[::-1]
    assert [(page["page"], page["size"], page["hasMore"]) for page in pages] == [
        (0, 2, True),
        (1, 2, True),
        (2, 2, False),
        (3, 2, False),
    ]


async def test_a_cursor_goes_on_where_a_page_ended(api: Api) -> None:
    ana = await api.token()
    mine = [await api.create(ana, a=n) for n in range(5)]
    found, cursor = [], ""
    while cursor is not None:
        _, page, _ = await api.ask("GET", f"/api/jobs?size=2{cursor and '&cursor=' + cursor}", ana)
        found += [job["jobId"] for job in page["items"]]
        cursor = page["nextCursor"]
    assert found == mine[::-1]


async def test_a_list_can_be_filtered_by_type_and_status(api: Api) -> None:
    ana = await api.token()
    done, failed = await api.create(ana, a=1), await api.create(ana, "fail")
    async with api.app.worker():
        for job_id in (done, failed):
            await asyncio.wait_for(_ended(api, ana, job_id), 20)
    waiting = await api.create(ana, "hang")
    found = {}
    for query in ("status=SUCCEEDED", "status=FAILED", "status=QUEUED", "jobType=fail", "jobType=fail&status=QUEUED"):
        _, page, _ = await api.ask("GET", f"/api/jobs?{query}", ana)
        found[query] = [job["jobId"] for job in page["items"]]
    assert found == {
        "status=SUCCEEDED": [done],
        "status=FAILED": [failed],
        "status=QUEUED": [waiting],
        "jobType=fail": [failed],
        "jobType=fail&status=QUEUED": [],
    }


async def _ended(api: Api, token: str, job_id: str) -> None:
    while not (await api.ask("GET", f"/api/jobs/{job_id}", token))[1]["done"]:
        await asyncio.sleep(0.05)


@ONE_ENGINE
@each(
    "query, status, code",
    [
        ("page=-1", 422, "INVALID_REQUEST"),
        ("size=0", 422, "INVALID_REQUEST"),
        ("size=101", 422, "INVALID_REQUEST"),
        ("page=x", 422, "INVALID_REQUEST"),
        ("status=queued", 422, "INVALID_REQUEST"),
        ("page=200&size=100", 400, "PAGE_TOO_DEEP"),
        ("cursor=abc", 400, "INVALID_CURSOR"),
        ("cursor=%F0%9F%92%A9", 400, "INVALID_CURSOR"),
        ("cursor=' OR 1=1 --", 400, "INVALID_CURSOR"),
        ("cursor=" + "A" * 200, 400, "INVALID_CURSOR"),
        ("cursor=" + "A" * 201, 422, "INVALID_REQUEST"),
        ("cursor=am9iOg", 400, "INVALID_CURSOR"),  # job: and no id
        ("page=" + "9" * 30, 422, "INVALID_REQUEST"),
        ("jobType=%00", 422, "INVALID_REQUEST"),
    ],
)
async def test_a_bad_query_is_a_documented_problem(api: Api, query: str, status: int, code: str) -> None:
    answer, problem, _ = await api.ask("GET", f"/api/jobs?{query}", await api.token())
    assert (answer, problem["code"]) == (status, code)


# --- one job


@ONE_ENGINE
async def test_an_etag_spares_the_body_until_the_job_changes(api: Api) -> None:
    ana = await api.token()
    job_id = await api.create(ana, a=1)
    _, _, first = await api.ask("GET", f"/api/jobs/{job_id}", ana)
    status, body, _ = await api.ask("GET", f"/api/jobs/{job_id}", ana, If_None_Match=first["etag"])
    assert (status, body) == (304, b"")
    await api.app.cancel(job_id)
    status, body, changed = await api.ask("GET", f"/api/jobs/{job_id}", ana, If_None_Match=first["etag"])
    assert (status, body["status"]) == (200, "CANCELLED")
    assert changed["etag"] != first["etag"]


async def test_a_waiting_job_is_cancelled_at_once_and_can_be_retried(api: Api) -> None:
    ana = await api.token()
    job_id = await api.create(ana, a=1)
    status, body, _ = await api.ask("POST", f"/api/jobs/{job_id}/cancel", ana)
    assert (status, body) == (202, {"jobId": job_id, "status": "CANCELLED"})
    assert (await api.ask("GET", f"/api/jobs/{job_id}", ana))[1]["status"] == "CANCELLED"
    status, body, _ = await api.ask("POST", f"/api/jobs/{job_id.upper()}/retry", ana)
    assert (status, body["jobId"]) == (202, job_id)
    assert (await api.ask("GET", f"/api/jobs/{job_id}", ana))[1]["status"] == "QUEUED"
    status, problem, _ = await api.ask("POST", f"/api/jobs/{job_id}/retry", ana)
    assert (status, problem["code"]) == (409, "NOT_ALLOWED")


@ONE_ENGINE
async def test_a_running_job_is_asked_to_stop(api: Api) -> None:
    ana = await api.token()
    job_id = await api.create(ana, "hang")
    async with api.app.worker():
        async with asyncio.timeout(20):
            while (await api.ask("GET", f"/api/jobs/{job_id}", ana))[1]["status"] != "RUNNING":
                await asyncio.sleep(0.02)
        _, body, _ = await api.ask("POST", f"/api/jobs/{job_id}/cancel", ana)
        assert body["status"] == "CANCELLING"
        await asyncio.wait_for(_ended(api, ana, job_id), 20)
    assert (await api.ask("GET", f"/api/jobs/{job_id}", ana))[1]["status"] == "CANCELLED"
    assert (await api.ask("POST", f"/api/jobs/{job_id}/cancel", ana))[0] == 202  # it is what was asked for


@ONE_ENGINE
async def test_attempts_and_explain_tell_what_happened_without_naming_machines(api: Api) -> None:
    ana = await api.token()
    job_id = await api.create(ana, "fail")
    _, before, _ = await api.ask("GET", f"/api/jobs/{job_id}/explain", ana)
    assert before["status"] == "QUEUED"
    assert before["reason"] == "unserved"
    async with api.app.worker() as worker:
        await asyncio.wait_for(_ended(api, ana, job_id), 20)
        name = worker.id
    _, attempts, _ = await api.ask("GET", f"/api/jobs/{job_id}/attempts", ana)
    _, after, _ = await api.ask("GET", f"/api/jobs/{job_id}/explain", ana)
    assert [(one["attempt"], one["outcome"], one["errorCode"]) for one in attempts] == [(1, "failed", "BROKEN")]
    assert after["reason"] == "finished"
    assert name not in str(attempts) + str(after)


@ONE_ENGINE
async def test_the_explanation_of_a_running_job_names_no_machine(api: Api) -> None:
    ana, operator = await api.token(), await api.token(None, "operator:read")
    job_id = await api.create(ana, "hang")
    async with api.app.worker() as worker:
        async with asyncio.timeout(20):
            while (await api.ask("GET", f"/api/jobs/{job_id}", ana))[1]["status"] != "RUNNING":
                await asyncio.sleep(0.02)
        for token in (ana, operator):
            _, told, _ = await api.ask("GET", f"/api/jobs/{job_id}/explain", token)
            assert told["text"].startswith("A worker has been running attempt 1 since")
            assert worker.id not in str(told)
        await api.app.cancel(job_id)


@ONE_ENGINE
async def test_the_explanation_of_a_saturated_source_names_no_job_of_another_owner_and_no_machine(api: Api) -> None:
    ana, app = await api.token(), api.app
    await app.sources.set("domain:x", concurrency=1)
    hang = app.get_task("hang").using(source="domain:x")
    async with app.worker() as worker:
        running = await hang.using(owner="bob").enqueue()
        async with asyncio.timeout(20):
            while (await app.job(running.id)).state != "running":
                await asyncio.sleep(0.02)
        waiting = await hang.using(owner="ana").enqueue()
        _, shown, _ = await api.ask("GET", f"/api/jobs/{waiting.id}/explain", ana)
        assert (shown["reason"], shown["text"]) == ("saturated", "Its source 'domain:x' runs 1 of 1 allowed jobs.")
        assert f": {running.id} on {worker.id}." in (await app.explain(waiting.id)).text, "operators see both"
        for job in (waiting, running):
            await app.cancel(job.id)


@ONE_ENGINE
async def test_an_owner_gets_no_more_unfinished_jobs_than_jobs_per_owner(serve: Serve) -> None:
    async with serve(jobs_per_owner=2) as api:
        ana, bob = await api.token("ana"), await api.token("bob")
        mine = [await api.create(ana, a=n) for n in range(2)]
        status, problem, headers = await api.ask("POST", "/api/jobs", ana, {"jobType": "add", "args": {"a": 1}})
        assert (status, problem["code"], "retry-after" in headers) == (429, "TOO_MANY_JOBS", True)
        await api.create(bob, a=1)
        await api.ask("POST", f"/api/jobs/{mine[0]}/cancel", ana)
        await api.create(ana, a=3)


@ONE_ENGINE
async def test_a_watch_token_reads_its_one_job_and_nothing_else(api: Api) -> None:
    ana = await api.token()
    _, body, _ = await api.ask("POST", "/api/jobs", ana, {"jobType": "add", "args": {"a": 1}, "watch": True})
    watch, other = body["watchToken"], await api.create(ana, a=2)
    assert (await api.ask("GET", f"/api/jobs/{body['jobId']}", watch))[0] == 200
    assert (await api.ask("GET", f"/api/jobs/{other}", watch))[0] == 404
    assert (await api.ask("GET", "/api/jobs", watch))[0] == 403
    assert (await api.ask("POST", "/api/jobs", watch, {"jobType": "add", "args": {"a": 1}}))[0] == 403
    assert (await api.ask("POST", f"/api/jobs/{body['jobId']}/cancel", watch))[0] == 403
    assert (await api.app.job(body["jobId"])).state == "queued"
