"""The pages of a dashboard: now, queues, failures, workers, schedules, sources, charts, with numbers that are right."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.conftest import Api
from api.test_operator_jobs import operator
from rowlock import Context, Rowlock
from rowlock.api.access import tokens
from rowlock.api.operator.settings import shown_address
from rowlock.store.read import counters
from support.each import each


def add_tasks(app: Rowlock) -> None:
    @app.task("call", queue="links", source=lambda host: f"domain:{host}", max_attempts=1)
    async def call(host: str) -> None:
        raise ValueError(f"HTTP 500 from {host!r} after {len(host)} tries")


async def test_now_queues_and_charts_agree_with_what_happened(serve: Any) -> None:
    async with serve(add_tasks) as api:
        app = api.app
        jobs = [await app.get_task("add").enqueue(a=n) for n in range(5)]
        broken = [await app.get_task("call").enqueue(host=host) for host in ("a.example", "b.example", "a.example")]
        async with app.worker(pool_size=4, queues=["default", "links"]):
            await asyncio.gather(*(job.wait(60) for job in jobs))
            await asyncio.gather(*(job.wait(60) for job in broken), return_exceptions=True)
        now = await operator(api, "now")
        assert {name: now["totals"][name] for name in ("succeeded", "dead", "failed")} == {
            "succeeded": 5,
            "dead": 3,
            "failed": 3,
        }
        assert sum(minute["succeeded"] for minute in now["minutes"]) == 5
        assert len(now["minutes"]) == 60
        assert [problem["kind"] for problem in now["problems"]] == ["no_workers", "dead"]
        assert now["problems"][1]["text"].startswith("3 jobs of task 'call' became dead in the last 10 min")
        assert now["sentence"].startswith("No worker is alive; 3 jobs of task 'call' became dead")

        points = (await operator(api, "charts/throughput?minutes=30"))["points"]
        assert len(points) == 30
        assert [sum(point[what] for point in points) for what in ("succeeded", "dead", "failed")] == [5, 3, 3]
        only = (await operator(api, "charts/throughput?minutes=30&queue=links"))["points"]
        assert [sum(point[what] for point in only) for what in ("succeeded", "dead")] == [0, 3]
        heat = await operator(api, "charts/heat?minutes=30")
        assert sum(sum(cell["counts"]) for cell in heat["cells"]) == 8
        assert len(heat["bounds"]) + 1 == len(heat["cells"][0]["counts"])
        hours = await operator(api, "charts/throughput?minutes=10080")
        assert (hours["stepSeconds"], len(hours["points"])) == (3600, 168)
        assert sum(point["succeeded"] for point in hours["points"]) == 5

        lanes = (await operator(api, "charts/slots?seconds=600"))["lanes"]
        bars = [bar for lane in lanes for bar in lane["bars"]]
        assert sorted(bar["outcome"] for bar in bars) == ["failed"] * 3 + ["succeeded"] * 5
        for lane in lanes:  # no two of a lane overlap
            ends = [bar["to"] for bar in lane["bars"]]
            assert all(bar["from"] >= end for bar, end in zip(lane["bars"][1:], ends, strict=False))

        (group,) = (await operator(api, "failures?since=1h"))["items"]
        assert (group["task"], group["count"], sum(group["trend"])) == ("call", 3, 3)
        assert group["message"] == "HTTP <n> from <…> after <n> tries"
        assert group["sources"] == [
            {"source": "domain:a.example", "count": 2},
            {"source": "domain:b.example", "count": 1},
        ]
        assert (await operator(api, "failures?since=1h&task=add"))["items"] == []

        sources = {one["name"]: one for one in (await operator(api, "sources"))["items"]}
        assert sum(minute["failed"] for minute in sources["domain:a.example"]["strip"]) == 2
        assert sources["domain"]["isClass"]
        names = await operator(api, "names")
        assert {"call", "add"} <= set(names["tasks"])
        assert names["errorCodes"] == [group["errorCode"]]


async def test_a_queue_has_its_slots_depth_and_times(api: Api) -> None:
    app = api.app
    job = await app.get_task("add").enqueue(a=1)
    await app.get_task("add").using(delay=600).enqueue(a=1)
    async with app.worker(pool_size=3):
        await job.wait(30)
        (queue,) = (await operator(api, "queues"))["items"]
        assert (queue["name"], queue["slots"], queue["workers"], queue["waiting"]) == ("default", 3, 1, 1)
        assert sum(minute["succeeded"] for minute in queue["minutes"]) == 1
        assert queue["runSeconds"]["p50"] > 0
        assert (await operator(api, "now"))["problems"] == []
    await counters.sample(await app.store())
    depth = await operator(api, "charts/depth?minutes=5")
    assert [(one["name"], one["points"][-1]["waiting"]) for one in depth["queues"]] == [("default", 1)]


async def test_a_queue_that_is_behind_names_the_source_that_its_jobs_wait_for(api: Api) -> None:
    app = api.app
    await app.get_task("add").using(source="api:x").enqueue(a=1)
    await app.sources.pause("api:x")
    await (await app.store()).execute(
        "UPDATE {t}jobs_live SET run_after = {past}".format(
            **(
                {"t": "rowlock.", "past": "now() - interval '2 hours'"}
                if (await app.store()).engine == "postgres"
                else {"t": "rowlock_", "past": "run_after - 7200"}
            )
        )
    )
    async with app.worker():
        problems = {one["kind"]: one["text"] for one in (await operator(api, "now"))["problems"]}
    assert problems["behind"].startswith("The oldest ready job of queue 'default' has waited for 2 h")
    assert "jobs wait for a source that is paused or failing (api:x)" in problems["behind"]
    assert problems["source_paused"] == "Source 'api:x' is disabled."


async def test_workers_say_what_runs_in_their_slots(api: Api) -> None:
    hanging = await api.app.get_task("hang").enqueue()
    async with api.app.worker(pool_size=2) as worker:
        async with asyncio.timeout(30):
            while not (found := await operator(api, "workers"))["items"][0]["slots"]:
                await asyncio.sleep(0.05)
        (one,) = found["items"]
        assert (one["id"], one["poolSize"], one["alive"]) == (worker.id, 2, True)
        assert (one["slots"][0]["jobId"], one["slots"][0]["task"]) == (hanging.id, "hang")
        assert one["heartbeatAgeSeconds"] < 60
        await api.app.cancel(hanging.id)


async def test_schedules_come_in_words_with_their_ticks(api: Api) -> None:
    await api.app.schedules.add("hourly", "add", rule="0 * * * *", args={"a": 1})
    prefix = "rowlock." if "postgres" in api.app.database else "rowlock_"
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    async with api.app.transaction() as tx:
        for ago, job_id in ((4, None), (2, "01a1e816-66e9-7021-9c64-716195c1e13d")):
            at = hour - timedelta(hours=ago)
            stored: Any = at if prefix.endswith(".") else at.timestamp()
            await tx.execute(
                f"INSERT INTO {prefix}ticks (schedule_id, tick, job_id, fired_at) VALUES ('hourly', $1, $2, $1)",
                stored,
                job_id,
            )
    (one,) = (await operator(api, "schedules"))["items"]
    assert "hour" in one["words"].lower()
    assert len(one["next"]) == 3
    whats = [tick["what"] for tick in one["ticks"]]
    assert whats[:3] == ["skipped", "missed", "fired"]
    assert set(whats[3:]) <= {"missed"}  # since then nobody has fired it


@each("path", ["queues/default/pause", "sources/api:shop/pause", "schedules/hourly/pause"])
async def test_what_an_operator_does_is_in_the_audit(api: Api, path: str) -> None:
    await api.app.schedules.add("hourly", "add", rule="0 * * * *", args={"a": 1})
    before = (await operator(api, "audit"))["items"]
    await operator(api, path, {})
    entry, *earlier = (await operator(api, "audit"))["items"]
    assert len(earlier) == len(before)
    kind, name, verb = path.split("/")
    assert (entry["action"], entry["target"], entry["count"]) == (f"{kind}.{verb}", name, 1)


async def test_a_read_that_takes_too_long_is_ended_and_says_so(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rowlock.api import context

    monkeypatch.setattr(context, "LOOK_SECONDS", 1.0)
    from rowlock.store.engine.dialects import DIALECTS
    from rowlock.store.engine.operation import Call, Steps, operation
    from rowlock.store.engine.statements import compile_query, load

    slow = {
        "postgres": "SELECT pg_sleep(60)",
        "sqlite": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    }

    @operation(read=True)
    def for_ever(*_: Any) -> Steps[Any]:
        return (yield Call("for_ever"))

    monkeypatch.setattr("rowlock.api.operator.now.read_stats", for_ever)
    async with serve() as api:
        engine = (await api.app.store()).engine
        query = compile_query("for_ever", slow[engine], DIALECTS[engine])
        monkeypatch.setitem(load(engine), "for_ever", query)
        async with asyncio.timeout(30):
            token = await api.token(None, "operator:read")
            status, problem, _ = await api.ask("GET", "/api/operator/stats", token)
        assert (status, problem["code"]) == (503, "TOO_SLOW")
        assert (await api.ask("GET", "/api/operator/workers", token))[0] == 200  # others are not held up


async def test_log_lines_of_a_job_are_kept_if_its_task_says_so(serve: Any) -> None:
    def configure(app: Rowlock) -> None:
        @app.task("talk", keep_logs=True)
        async def talk(ctx: Context, lines: int) -> None:
            for number in range(lines):
                ctx.log.info("line %d", number)

        @app.task("whisper")
        async def whisper(ctx: Context) -> None:
            ctx.log.warning("nobody keeps this")

    async with serve(configure) as api:
        loud, quiet = await api.app.get_task("talk").enqueue(lines=3), await api.app.get_task("whisper").enqueue()
        async with api.app.worker():
            await asyncio.gather(loud.wait(30), quiet.wait(30))
        logs = (await operator(api, f"jobs/{loud.id}"))["logs"]
        assert [(line["level"], line["message"], line["attempt"]) for line in logs["items"]] == [
            ("INFO", f"line {number}", 1) for number in range(3)
        ]
        later = await operator(api, f"jobs/{loud.id}/logs?after={logs['items'][0]['seq']}")
        assert [line["message"] for line in later["items"]] == ["line 1", "line 2"]
        assert (await operator(api, f"jobs/{quiet.id}"))["logs"] == {"items": [], "dropped": 0}


async def test_settings_are_shown_without_a_secret(serve: Any) -> None:
    hidden = {"redis.url": "redis://u:hunter2@127.0.0.1:1/0", "sentry.dsn": "https://hunter3@sentry.example/1"}
    async with serve(**hidden, **{"retention.succeeded_days": 3}) as api:
        secret = await api.token("ana", "jobs")
        status, raw, _ = await api.ask("GET", "/api/operator/settings", await api.token(None, "operator:read"))
        assert status == 200, raw
        assert (raw["retention"]["succeededDays"], raw["limits"]["argsBytes"]) == (3, 262_144)
        assert raw["schema"]["version"] == raw["schema"]["code"] >= 1
        assert raw["server"].startswith(("SQLite 3.", "PostgreSQL 1"))
        assert (raw["parts"]["redis"], raw["parts"]["alerts"]) == (True, False)
        assert [(token["owner"], token["scope"]) for token in raw["tokens"]] == [
            (None, "operator:read"),
            ("ana", "jobs"),
        ]
        text = json.dumps(raw)
        for word in (secret, secret[-10:], tokens.hash_of(secret), "hunter2", "hunter3"):
            assert word not in text


@each(
    "url, shown",
    [
        ("postgresql://app:hunter2@db:5432/jobs?sslmode=require", "postgresql://app@db:5432/jobs"),
        ("postgresql://db/jobs?user=app&password=hunter2", "postgresql://db/jobs"),
        ("postgresql://app:p@ss:w@db1,db2:6432/jobs", "postgresql://app@db1,db2:6432/jobs"),
        ("sqlite:////var/lib/jobs.db?key=hunter2", "sqlite:////var/lib/jobs.db"),
    ],
)
def test_a_databases_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_address(url) == shown
