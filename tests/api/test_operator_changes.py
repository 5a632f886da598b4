"""What operators change beside jobs: schedules that were added by hand, and workers that are asked to end."""

from typing import Any
from urllib.parse import quote

import pytest

from api.conftest import Api, Serve
from rowlock import Rowlock
from rowlock.store import workers
from rowlock.store.jobs import tasks
from rowlock.store.jobs.tasks import StoredTask

VERBS = {
    "queues": ("pause", "resume"),
    "sources": ("pause", "resume"),
    "schedules": ("run", "pause", "resume", "edit", "remove"),
    "workers": ("drain", "stop"),
}
DAILY = "at 03:00 in Asia/Seoul, every day"


async def ask(api: Api, path: str, body: Any = None, scope: str = "operator") -> tuple[int, Any]:
    """A change that an operator asks for; without a body, what is read."""
    token = await api.token(None, scope)
    status, answer, _ = await api.ask("GET" if body is None else "POST", f"/api/operator/{path}", token, body)
    return status, answer


async def audited(api: Api) -> list[tuple[str, str]]:
    _, found = await ask(api, "audit")
    return [(entry["action"], entry["target"]) for entry in reversed(found["items"])]


async def test_a_schedule_is_added_changed_paused_and_removed(api: Api) -> None:
    new = {"name": "nightly", "task": "add", "cron": "0 3 * * *", "zone": "Asia/Seoul", "args": {"a": 1}, "priority": 5}
    status, made = await ask(api, "schedules", new)
    assert status == 201, made
    assert (made["editable"], made["words"], made["zone"], made["args"]) == (True, DAILY, "Asia/Seoul", {"a": 1})
    status, changed = await ask(api, "schedules/nightly/edit", {"args": {"a": 2}, "missed": "all", "missedMost": 7})
    assert status == 200, changed
    assert (changed["rule"], changed["zone"], changed["priority"]) == ("0 3 * * *", "Asia/Seoul", 5)  # as it was
    assert (changed["args"], changed["missed"], changed["missedMost"]) == ({"a": 2}, "all", 7)
    status, changed = await ask(api, "schedules/nightly/edit", {"every": "10m", "zone": "UTC", "enabled": False})
    assert (changed["rule"], changed["next"]) == ("every 10m", [])
    assert changed["pausedAt"] is not None
    _, changed = await ask(api, "schedules/nightly/edit", {"enabled": True})
    assert (changed["pausedAt"], len(changed["next"])) == (None, 3)
    assert (await ask(api, "schedules/nightly/remove", {}))[0] == 204
    assert (await ask(api, "schedules"))[1]["items"] == []
    what = ["add", "edit", "edit", "pause", "resume", "remove"]
    assert await audited(api) == [(f"schedules.{one}", "nightly") for one in what]


# A change that cannot be made: path, body, status and what the answer says.
REFUSED: tuple[tuple[str, Any, int, str], ...] = (
    ("hourly/edit", {"cron": "99 * * * *"}, 422, "99"),
    ("hourly/edit", {"zone": "Mars/Olympus"}, 422, "Mars/Olympus"),
    ("hourly/edit", {"args": {"c": 1}}, 422, "task 'add': a: "),
    ("hourly/edit", {"at": "2020-01-01T00:00:00Z"}, 422, "never fire"),
    ("hourly/edit", {"cron": "0 * * * *", "every": "5m"}, 422, "one of cron, every and at"),
    ("hourly/edit", {"colour": "red"}, 422, "colour"),
    ("missing/edit", {"zone": "UTC"}, 404, "missing"),
    ("missing/remove", {}, 404, "missing"),
    ("fixed/edit", {"cron": "0 * * * *"}, 409, "comes from the code"),
    ("fixed/remove", {}, 409, "comes from the code"),
)


async def test_a_change_that_cannot_be_made_says_why_and_changes_nothing(api: Api) -> None:
    await api.app.schedules.add("hourly", "add", rule="0 * * * *", args={"a": 1})
    api.app.schedule("0 4 * * *", name="fixed", args={"a": 1})(api.app.get_task("add"))
    async with api.app.dispatcher():
        pass  # writes the schedules of the code
    before = (await ask(api, "schedules"))[1]["items"]
    for path, body, status, said in REFUSED:
        found, answer = await ask(api, f"schedules/{path}", body)
        assert found == status, answer
        assert said in str(answer)
    after = (await ask(api, "schedules"))[1]["items"]
    assert [{**one, "readAt": None} for one in after] == [{**one, "readAt": None} for one in before]
    assert await audited(api) == []


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_schedule_of_the_code_can_be_disabled_and_no_second_one_gets_its_name(api: Api) -> None:
    api.app.schedule("0 4 * * *", name="fixed", args={"a": 1})(api.app.get_task("add"))
    async with api.app.dispatcher():
        pass
    status, changed = await ask(api, "schedules/fixed/edit", {"enabled": False})
    assert (status, changed["editable"]) == (200, False)
    assert changed["pausedAt"] is not None
    status, refused = await ask(api, "schedules", {"name": "fixed", "task": "add", "every": "1h", "args": {"a": 1}})
    assert (status, refused["code"]) == (409, "NOT_ALLOWED")


async def test_a_worker_is_asked_to_drain_and_to_stop(api: Api) -> None:
    store = await api.app.store()
    await store.run(workers.register("box-1", "box", 1, "1.0", ["default"], ["add"], 4, None, 600))
    assert await ask(api, "workers/box-1/drain", {}) == (202, {"id": "box-1", "stopRequested": "drain"})
    (worker,) = (await ask(api, "workers"))[1]["items"]
    assert (worker["stopRequested"], worker["stopRequestedAt"] is None) == ("drain", False)
    assert (await ask(api, "workers/box-1/stop", {}))[0] == 202
    assert await audited(api) == [("workers.drain", "box-1"), ("workers.stop", "box-1")]
    await store.run(workers.register("silent", "box", 2, "1.0", [], [], 4, None, -1))
    for name, status, code in (("silent", 409, "NOT_ALLOWED"), ("nobody", 404, "NOT_FOUND")):
        found, answer = await ask(api, f"workers/{name}/drain", {})
        assert (found, answer["code"]) == (status, code)


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("base_path", ["", "/work"])
async def test_every_route_reaches_names_with_slashes(serve: Serve, base_path: str) -> None:
    async with serve(base_path=base_path) as api:
        api.url += base_path
        store, done = await api.app.store(), []
        for name in ("a/b", "a/pause", "/", "50%2Fb/ü?"):
            await api.app.schedules.add(name, "add", rule="0 * * * *", args={"a": 1})
            await store.run(workers.register(name, "box", 1, "1.0", ["default"], ["add"], 4, None, 600))
            await store.run(tasks.declare([StoredTask(name, {}, source_derived=False)]))
            sent = quote(name, safe="")
            assert (await ask(api, f"tasks/{sent}"))[1]["name"] == name
            assert (await ask(api, f"sources/{sent}", {"concurrency": 3}))[0] == 200
            done.append(("sources.set", name))
            for kind, verbs in VERBS.items():
                for verb in verbs:
                    status, answer = await ask(api, f"{kind}/{sent}/{verb}", {})
                    assert status < 300, (kind, verb, name, answer)
                    done += [] if verb == "edit" else [(f"{kind}.{verb}", name)]  # which was given nothing to change
        assert await audited(api) == done


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_behind_a_proxy_that_decodes_paths_a_verb_at_the_end_is_the_verb(api: Api) -> None:
    for path in ("sources/a/b", "sources/a/b/pause", "sources/a/b/resume"):
        assert (await ask(api, path, {"concurrency": 3} if path == "sources/a/b" else {}))[0] == 200
    assert await audited(api) == [("sources.set", "a/b"), ("sources.pause", "a/b"), ("sources.resume", "a/b")]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_token_that_may_only_read_changes_nothing(api: Api) -> None:
    await api.app.schedules.add("hourly", "add", rule="0 * * * *", args={"a": 1})
    new = {"name": "other", "task": "add", "every": "1h", "args": {"a": 1}}
    posts = {"schedules": new, "schedules/hourly/edit": {"enabled": False}, "schedules/hourly/remove": {}}
    for path, body in (posts | {"workers/box-1/drain": {}, "workers/box-1/stop": {}}).items():
        status, answer = await ask(api, path, body, "operator:read")
        assert (status, answer["code"]) == (403, "FORBIDDEN")
    (one,) = (await ask(api, "schedules"))[1]["items"]
    assert (one["id"], one["pausedAt"]) == ("hourly", None)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_schedule_of_a_task_whose_code_is_elsewhere_keeps_the_tasks_options(api: Api, app_url: str) -> None:
    async with Rowlock(app_url) as elsewhere:

        @elsewhere.task("far", queue="far", max_attempts=9)
        async def far(n: int) -> None: ...

        async with elsewhere.worker():
            pass  # registers the task
        status, made = await ask(api, "schedules", {"name": "s", "task": "far", "every": "1h", "args": {"n": 1}})
        assert (status, made["queue"], made["maxAttempts"]) == (201, "far", 9)
        assert (await ask(api, "schedules/s/edit", {"args": {}}))[1]["detail"].endswith("n is missing")


async def test_what_an_operator_does_through_the_owners_routes_is_in_the_audit(api: Api) -> None:
    boss = await api.token(None, "operator")
    status, body, _ = await api.ask("POST", "/api/jobs", boss, {"jobType": "add", "args": {"a": 2}})
    job = body["jobId"]
    assert status == 202
    for what in ("cancel", "retry"):
        status, _, _ = await api.ask("POST", f"/api/jobs/{job}/{what}", boss)
        assert status == 202
    assert (await api.ask("POST", f"/api/jobs/{job}/retry", boss))[0] == 409, "it is queued: nothing is changed"
    assert await audited(api) == [("jobs.create", job), ("jobs.cancel", job), ("jobs.retry", job)]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_what_owners_do_with_their_own_jobs_is_not_in_the_audit(api: Api) -> None:
    ana = await api.token()
    job = await api.create(ana, a=1)
    for what in ("cancel", "retry"):
        assert (await api.ask("POST", f"/api/jobs/{job}/{what}", ana))[0] == 202
    page = await api.log_in("ana")
    assert (await page.ask("DELETE", "/api/session"))[0] == 204
    assert await audited(api) == []


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_session_that_an_operator_opens_and_ends_is_in_the_audit(api: Api) -> None:
    boss = await api.token(None, "operator")
    status, _, _ = await api.ask("POST", "/api/session", None, {"token": boss})
    assert status == 201
    page = await api.log_in(None)
    assert (await page.ask("DELETE", "/api/session"))[0] == 204
    typed, linked, ended = await audited(api)
    assert [typed[0], linked[0], ended[0]] == ["sessions.open", "sessions.open", "sessions.end"]
    assert ended[1] == linked[1] != typed[1]


async def test_a_job_that_its_key_had_already_is_in_the_audit_once(api: Api) -> None:
    async with api.app.worker():  # it registers the task
        pass
    new = {"task": "add", "args": {"a": 1}, "key": "k", "delaySeconds": 60}
    answers = [(await ask(api, "jobs", new))[1] for _ in range(2)]
    assert [answer["created"] for answer in answers] == [True, False]
    assert await audited(api) == [("jobs.create", answers[0]["jobId"])]
