"""Jobs as operators see and change them: lists and counts with any filter, one job with everything, previews."""

from typing import Any

import pytest

from api.conftest import Api
from rowlock import Rowlock
from support.each import each
from support.sql.refusals import refused


async def operator(api: Api, path: str, body: Any = None, method: str | None = None) -> Any:
    """What an operator's request answers; it must succeed."""
    token = await api.token(None, "operator")
    status, answer, _ = await api.ask(
        method or ("GET" if body is None else "POST"), f"/api/operator/{path}", token, body
    )
    assert status < 300, (status, answer)
    return answer


@pytest.fixture
async def jobs(api: Api) -> dict[str, str]:
    """A job of each kind of end, and one that waits."""
    app = api.app
    dead = await app.get_task("fail").using(owner="ana", tags=["import"]).enqueue()
    done = await app.get_task("add").enqueue(a=1, b=2)
    async with app.worker(pool_size=2):
        assert await done.wait(30) == 3
        with pytest.raises(Exception, match="BROKEN"):
            await dead.wait(30)
    later = await app.get_task("add").using(delay=600).enqueue(a=5)
    return {"dead": dead.id, "done": done.id, "later": later.id}


async def test_jobs_are_listed_and_counted_by_filter(api: Api, jobs: dict[str, str]) -> None:
    async def found(query: str) -> set[str]:
        return {job["jobId"] for job in (await operator(api, f"jobs?{query}"))["items"]}

    assert await found("") == set(jobs.values())
    for query in ("state=dead", "task=fail", "errorCode=BROKEN", "owner=ana", "tag=import", "state=dead,running"):
        assert await found(query) == {jobs["dead"]}
    assert await found("text=5&since=1h") == {jobs["later"]}
    assert await found("text=%25&since=1h") == await found("text=_&since=1h") == set()
    for ever in ("since=0001-01-01T00:00:00%2B14:00", "until=9999-12-31T23:59:59-14:00", "since=99999999999d"):
        assert await found(ever) == set(jobs.values())
    assert await found(f"id={jobs['done'][:18]}") >= {jobs["done"]}
    counts = await operator(api, "jobs/counts?state=dead")  # every state has its count, whatever the filter's is
    assert {state: one["count"] for state, one in counts["states"].items() if one["count"]} == {
        "queued": 1,
        "succeeded": 1,
        "dead": 1,
    }
    assert counts["total"] == {"count": 3, "exact": True}
    first = await operator(api, "jobs?limit=2")
    second = await operator(api, f"jobs?limit=2&cursor={first['nextCursor']}")
    assert [len(first["items"]), len(second["items"]), second["nextCursor"]] == [2, 1, None]


@pytest.mark.parametrize("engine", ["sqlite"])
@each(
    "query, field",
    [
        ("state=asleep", "state"),
        ("state=,", "state"),
        ("state=%20", "state"),
        ("text=a", "text"),
        ("text=a&since=30d", "text"),
        ("since=yesterday", "since"),
        ("id=xyz", "id"),
        ("batch=7", "batch"),
        ("colour=red", "colour"),
        ("limit=5000", "limit"),
        ("queue=%00", "queue"),
    ],
)
async def test_a_filter_that_cannot_be_meant_is_refused_by_name(api: Api, query: str, field: str) -> None:
    status, problem, _ = await api.ask("GET", f"/api/operator/jobs?{query}", await api.token(None, "operator:read"))
    assert (status, problem["code"], problem["errors"][0]["field"]) == (422, "INVALID_REQUEST", field)


async def test_a_job_is_found_by_its_id_its_beginning_and_a_line_of_a_log(api: Api, jobs: dict[str, str]) -> None:
    dead = jobs["dead"]
    for text in (
        dead,
        dead[:-4],
        f"12:00:01 ERROR job_id={dead} attempt=1 failed",
        dead.upper(),
        dead.replace("-", ""),
    ):
        assert (await operator(api, f"find?text={text}"))["jobId"] == dead
    assert await operator(api, "find?text=nothing of the kind") == {"jobId": None, "items": []}


async def test_the_operators_page_of_a_job_has_its_attempts_timeline_and_actions(
    api: Api, jobs: dict[str, str]
) -> None:
    found = await operator(api, f"jobs/{jobs['dead']}")
    assert found["job"]["errorCode"] == "BROKEN"
    (attempt,) = found["attempts"]
    assert (attempt["outcome"], attempt["errorCode"], attempt["errorMessage"]) == ("failed", "BROKEN", "it is broken")
    assert [(part["kind"], part["outcome"]) for part in found["timeline"]] == [("wait", None), ("run", "failed")]
    assert found["explain"]["reason"] == "finished"
    assert found["can"] == ["retry", "delete", "again"]
    done = await operator(api, f"jobs/{jobs['done']}")
    assert (done["args"], done["result"], done["can"]) == ({"a": 1, "b": 2}, 3, ["delete", "again"])
    assert done["timeline"][-1]["outcome"] == "succeeded"
    later = await operator(api, f"jobs/{jobs['later']}")
    assert [part["kind"] for part in later["timeline"]] == ["delay", "wait"]
    assert later["can"] == ["cancel", "runNow"]
    nobodys = "00000000-0000-7000-8000-000000000000"
    status, _, _ = await api.ask("GET", f"/api/operator/jobs/{nobodys}", await api.token(None, "operator"))
    assert status == 404


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_reader_is_offered_no_action(api: Api, jobs: dict[str, str]) -> None:
    reader = await api.token(None, "operator:read")
    _, found, _ = await api.ask("GET", f"/api/operator/jobs/{jobs['dead']}", reader)
    assert found["can"] == []


async def test_follow_ups_and_their_parent_are_linked(serve: Any) -> None:
    def configure(app: Rowlock) -> None:
        @app.task("after")
        async def after(finished: dict[str, Any]) -> None: ...

        @app.task("before", on_success="after")
        async def before() -> int:
            return 1

    async with serve(configure) as api:
        job = await api.app.get_task("before").enqueue()
        async with api.app.worker():
            await job.wait(30)
        (child,) = (await operator(api, f"jobs/{job.id}"))["links"]["children"]
        assert child["task"] == "after"
        parent = (await operator(api, f"jobs/{child['jobId']}"))["links"]["parent"]
        assert parent == {"jobId": job.id, "task": "before", "state": "succeeded"}
        listed = await operator(api, f"jobs?parent={job.id}")
        assert [one["jobId"] for one in listed["items"]] == [child["jobId"]]
        await operator(api, f"jobs/{job.id}/delete", {})
        parent = (await operator(api, f"jobs/{child['jobId']}"))["links"]["parent"]
        assert parent == {"jobId": job.id, "task": None, "state": None}  # it is still told which job it was


async def test_a_batch_shows_the_job_that_made_it_its_jobs_their_children_and_the_job_of_its_end(serve: Any) -> None:
    def configure(app: Rowlock) -> None:
        @app.task("report")
        async def report(batch: dict[str, Any]) -> None: ...

        @app.task("after")
        async def after() -> None: ...

        @app.task("work")
        async def work(n: int) -> None:
            if n == 1:
                await after.enqueue()

        @app.task("importing")
        async def importing() -> str:
            async with app.batch("import 7", on_end=report) as batch:
                await work.using(batch=batch).enqueue_many([{"n": 1}, {"n": 2}])
            return batch.id

    async with serve(configure) as api:
        async with api.app.worker():
            job = await api.app.get_task("importing").enqueue()
            batch = await api.app.find_batch(await job.wait(30))
            await batch.wait(30)
        tree = await operator(api, f"batches/{batch.id}/tree")
        assert tree["parent"] == {"jobId": job.id, "task": "importing", "state": "succeeded"}
        links = (await operator(api, f"jobs/{tree['onEnd']['jobId']}"))["links"]
        assert links["endedBatch"] == {"id": batch.id, "name": "import 7", "state": "succeeded"}
        assert {state: one["count"] for state, one in tree["states"].items() if one["count"]} == {"succeeded": 2}
        kinds = {node["jobId"]: (node["kind"], node["task"]) for node in tree["nodes"]}
        names = [("child", "after"), ("job", "work"), ("job", "work"), ("onEnd", "report"), ("parent", "importing")]
        assert sorted(kinds.values()) == names
        parents = {kinds[node["jobId"]][1]: node["parentId"] for node in tree["nodes"]}
        assert (parents["work"], parents["report"], parents["importing"]) == (job.id, job.id, None)
        assert kinds[parents["after"]] == ("job", "work")


async def test_everything_that_fits_is_previewed_and_changed_once(api: Api, jobs: dict[str, str]) -> None:
    preview = await operator(api, "jobs/preview", {"action": "retry", "filter": {"task": "fail"}})
    assert (preview["count"], preview["states"]) == ({"count": 1, "exact": True}, {"dead": 1})
    assert [job["jobId"] for job in preview["sample"]] == [jobs["dead"]]
    done = await operator(api, "jobs/act", {"token": preview["token"]})
    assert done == {"action": "retry", "looked": 1, "changed": 1, "done": True}
    assert (await api.app.job(jobs["dead"])).state == "queued"
    token = await api.token(None, "operator")
    status, _, _ = await api.ask("POST", "/api/operator/jobs/act", token, {"token": preview["token"]})
    assert status == 404
    (entry,) = (await operator(api, "audit"))["items"]
    assert (entry["action"], entry["count"], entry["via"], entry["address"]) == ("jobs.retry", 1, "api", "127.0.0.1")
    assert entry["who"].startswith("token ")


async def test_a_selection_and_single_jobs_are_changed(api: Api, jobs: dict[str, str]) -> None:
    preview = await operator(api, "jobs/preview", {"action": "delete", "ids": [*jobs.values(), "no-id"]})
    assert preview["states"] == {"dead": 1, "succeeded": 1}
    assert (await operator(api, "jobs/act", {"token": preview["token"]}))["changed"] == 2
    assert (await operator(api, f"jobs/{jobs['later']}/runNow", {}))["answer"] == "ready"
    assert (await operator(api, f"jobs/{jobs['later']}/cancel", {}))["answer"] == "cancelled"
    assert (await operator(api, f"jobs/{jobs['later']}/retry", {}))["answer"] == "retried"
    token = await api.token(None, "operator")
    status, problem, _ = await api.ask("POST", f"/api/operator/jobs/{jobs['later']}/delete", token, {})
    assert (status, problem["code"]) == (409, "NOT_ALLOWED")
    actions = [entry["action"] for entry in (await operator(api, "audit"))["items"]]
    assert actions == ["jobs.retry", "jobs.cancel", "jobs.runNow", "jobs.delete"]


@pytest.mark.parametrize("engine", ["sqlite"])
@each("body", [{"action": "retry"}, {"action": "retry", "ids": ["a"], "filter": {}}, {"action": "x"}])
async def test_a_preview_of_nothing_is_refused(api: Api, body: dict[str, Any]) -> None:
    token = await api.token(None, "operator")
    status, problem, _ = await api.ask("POST", "/api/operator/jobs/preview", token, body)
    assert (status, problem["code"]) == (422, "INVALID_REQUEST")


async def test_a_job_is_created_from_a_tasks_shape_and_run_again(api: Api, jobs: dict[str, str]) -> None:
    tasks = {task["name"]: task for task in (await operator(api, "tasks"))["items"]}
    assert set(tasks["add"]["schema"]["properties"]) == {"a", "b"}
    assert (await operator(api, "tasks/add"))["name"] == "add"
    made = await operator(api, "jobs", {"task": "add", "args": {"a": 7}, "queue": "slow", "tags": ["t"]})
    job = await api.app.job(made["jobId"])
    assert (job.queue, made["created"]) == ("slow", True)
    again = await operator(api, f"jobs/{jobs['done']}/again", {"args": {"a": 9}})
    other = await operator(api, f"jobs/{jobs['done']}/again", method="POST")
    shown = [(await operator(api, f"jobs/{one['jobId']}"))["args"] for one in (again, other)]
    assert shown == [{"a": 9}, {"a": 1, "b": 2}]
    token = await api.token(None, "operator")
    for path, body, code in (
        ("jobs", {"task": "add", "args": {"a": "x"}}, "INVALID_ARGUMENTS"),
        ("jobs", {"task": "nothing", "args": {}}, "INVALID_ARGUMENTS"),
        (f"jobs/{jobs['later']}/again", {}, "NOT_ALLOWED"),
    ):
        _, problem, _ = await api.ask("POST", f"/api/operator/{path}", token, body)
        assert problem["code"] == code


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_task_whose_code_is_elsewhere_is_known_by_its_shape(api: Api, serve: Any, app_url: str) -> None:
    async with api.app.worker():
        pass
    other = Rowlock(app_url)

    from rowlock.client.tasks.registry import any_task
    from rowlock.core.errors import InvalidArguments

    async with other:
        for wrong in ({}, {"a": 1, "c": 2}):
            with pytest.raises(InvalidArguments, match=r"is missing|not one of its arguments"):
                await any_task(other, "add", None, wrong)
        task = await any_task(other, "add", None, {"a": 1})
        assert (await task.enqueue(a=1)).task == "add"


async def test_a_bad_row_is_named_and_the_other_jobs_are_changed(api: Api, database: str) -> None:
    ids = [(await api.app.get_task("add").using(delay=600).enqueue(a=n)).id for n in range(3)]
    with refused(database, "jobs_finished", "id", ids[1]):
        preview = await operator(api, "jobs/preview", {"action": "cancel", "ids": ids})
        done = await operator(api, "jobs/act", {"token": preview["token"]})
        token = await api.token(None, "operator")
        status, problem, _ = await api.ask("POST", f"/api/operator/jobs/{ids[1]}/cancel", token, {})
    assert (done["changed"], done["done"]) == (2, True)
    (failed,) = done["failed"]
    assert failed["jobId"] == ids[1]
    assert "a bad row" in failed["error"]
    assert (status, problem["code"]) == (409, "NOT_ALLOWED")
    assert [(await api.app.job(job_id)).state for job_id in ids] == ["cancelled", "queued", "cancelled"]
