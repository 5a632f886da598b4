"""Results in object storage: what holds for a local folder holds there, on a real S3 server and in obstore's memory."""

import asyncio
import base64
import hashlib
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import boto3
import obstore
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import MemoryStore

from api.conftest import Serve
from api.test_results import RANGES, run
from rowlock import Context, Rowlock
from rowlock.client.results import objects
from rowlock.client.results.objects import ResultObjects
from rowlock.client.results.results import THREADS, OutsideOfFolder, Results
from rowlock.core.config import load_settings
from rowlock.core.errors import ConfigError, Permanent
from rowlock.worker.upkeep import result_files
from rowlock.worker.upkeep.result_files import ResultTidy
from support.each import each
from support.rigs.stores import ENGINES
from support.tasks.results import CONTENT, add_file_tasks

JOB, OTHER = "01a1e816-66e9-7021-9c64-716195c1e13d", "01a1e816-66e9-7021-9c64-716195c1e13e"


@pytest.fixture
def engine() -> str:
    """One engine is enough for objects and HTTP; a test of what the store knows names both."""
    return "sqlite"


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """A server that speaks S3's protocol, on the loopback."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


class Bucket:
    """A bucket of its own for one test."""

    def __init__(self, endpoint: str) -> None:
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        self._client = boto3.client("s3", endpoint_url=endpoint, **keys)
        self.name = f"results-{uuid.uuid4().hex[:12]}"
        self._client.create_bucket(Bucket=self.name)
        self.settings = {"results.url": f"s3://{self.name}/films", "results.endpoint": endpoint}

    def keys(self) -> list[str]:
        """What lies in it."""
        found = self._client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return sorted(one["Key"] for one in found)

    def put(self, key: str) -> None:
        self._client.put_object(Bucket=self.name, Key=key, Body=b"late")

    def remove(self, key: str) -> None:
        self._client.delete_object(Bucket=self.name, Key=key)


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return Bucket(s3_server)


def add_tasks(app: Rowlock) -> None:
    """Tasks that make a file, and one that loses its lease while it does."""
    add_file_tasks(app)
    table = "rowlock.jobs_live" if "postgres" in app.database else "rowlock_jobs_live"

    @app.task("loses_its_lease", public=True)
    async def loses_its_lease(ctx: Context) -> None:
        ctx.result_file("film.mp4").write_bytes(CONTENT)
        async with app.transaction() as transaction:
            other = "00000000-0000-4000-8000-00000000000f"
            await transaction.execute(f"UPDATE {table} SET lease_token = '{other}' WHERE id = '{ctx.job_id}'")


# --- through the API, on a real server


async def test_a_file_is_uploaded_with_its_checksum_and_downloaded_by_its_owner_alone(
    serve: Serve, bucket: Bucket
) -> None:
    async with serve(add_tasks, **bucket.settings) as api:
        ana, bob = await api.token("ana"), await api.token("bob")
        job = await run(api, ana, "draw")
        digest = hashlib.sha256(CONTENT)
        assert (job["status"], job["checksum"]) == ("SUCCEEDED", f"sha256:{digest.hexdigest()}")
        assert bucket.keys() == [f"films/{job['jobId']}/1/film.mp4"]
        path = f"/api/jobs/{job['jobId']}/result"
        status, body, headers = await api.ask("GET", path, ana)
        assert (status, body) == (200, CONTENT)
        assert headers["content-type"] == "video/mp4"
        assert headers["content-disposition"] == "attachment; filename*=UTF-8''film.mp4"
        assert headers["repr-digest"] == f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"
        assert (await api.ask("GET", path, bob))[1]["code"] == "JOB_NOT_FOUND"
        for wanted, expected, content in RANGES.values():
            status, body, _ = await api.ask("GET", path, ana, Range=wanted)
            assert (status, body) == (expected, content), wanted
        assert (await api.ask("GET", path, ana, Range="bytes=900000000-"))[0] == 416
        assert not any((api.app.results.path / ".partial").iterdir())


@each("task, code", [("fails_after_writing", "RuntimeError"), ("links_elsewhere", "INVALID_OUTPUT_PATH")])
async def test_a_job_without_a_good_file_uploads_none(serve: Serve, bucket: Bucket, task: str, code: str) -> None:
    async with serve(add_tasks, **bucket.settings) as api:
        job = await run(api, await api.token(), task)
        assert (job["status"], job["errorCode"]) == ("FAILED", code)
        assert bucket.keys() == []


@pytest.mark.parametrize("storage", ["folder", "bucket"])
async def test_the_file_of_an_attempt_that_lost_its_lease_is_removed_at_once(
    serve: Serve, bucket: Bucket, storage: str
) -> None:
    async with serve(add_tasks, **(bucket.settings if storage == "bucket" else {})) as api:
        ana = await api.token()
        job_id = await api.create(ana, "loses_its_lease")
        publish, published = type(api.app.results).publish, asyncio.Event()
        loop = asyncio.get_running_loop()

        def telling(self: Any, *args: Any) -> Any:
            found = publish(self, *args)
            loop.call_soon_threadsafe(published.set)
            return found

        type(api.app.results).publish = telling  # type: ignore[method-assign]
        try:
            async with api.app.worker():
                await asyncio.wait_for(published.wait(), 30)
                async with asyncio.timeout(30):
                    while bucket.keys() or [path for path in api.app.results.path.rglob("*") if path.is_file()]:
                        await asyncio.sleep(0.05)
        finally:
            type(api.app.results).publish = publish  # type: ignore[method-assign]
        assert (await api.app.job(job_id)).result_uri is None


async def test_an_object_that_vanished_and_a_storage_that_is_away_are_told(serve: Serve, bucket: Bucket) -> None:
    async with serve(add_tasks, **bucket.settings) as api:
        ana = await api.token()
        job = await run(api, ana, "draw")
        path = f"/api/jobs/{job['jobId']}/result"
        bucket.remove(bucket.keys()[0])
        assert (await api.ask("GET", path, ana))[1]["code"] == "RESULT_GONE"
    away = {**bucket.settings, "results.endpoint": "http://127.0.0.1:9"}
    async with serve(add_tasks, **away) as api:
        status, problem, headers = await api.ask("GET", path, ana)
        assert (status, problem["code"]) == (503, "RESULTS_UNAVAILABLE")
        assert int(headers["retry-after"]) > 0


async def test_a_signed_address_opens_one_file_for_a_short_time_without_a_token(serve: Serve, bucket: Bucket) -> None:
    signed = {"results.signed_urls": True, "results.signed_seconds": 60}
    async with serve(add_tasks, **bucket.settings, **signed) as api:
        ana, bob = await api.token("ana"), await api.token("bob")
        job = await run(api, ana, "draw")
        url = f"{api.url}/api/jobs/{job['jobId']}/result"
        headers = {"Authorization": f"Bearer {ana}"}
        async with api.http.get(url, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 307
            assert answer.headers["Cache-Control"] == "no-store"
            address = answer.headers["Location"]
        assert parse_qs(urlsplit(address).query)["X-Amz-Expires"] == ["60"]
        async with aiohttp.ClientSession() as nobody, nobody.get(address) as answer:
            assert await answer.read() == CONTENT
            assert answer.headers["Content-Type"] == "video/mp4"
            assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''film.mp4"
        async with api.http.get(url, headers={"Authorization": f"Bearer {bob}"}, allow_redirects=False) as answer:
            assert answer.status == 404


async def test_while_the_storage_hangs_downloads_keep_no_other_work_from_its_threads(
    serve: Serve, bucket: Bucket
) -> None:
    async with serve(add_tasks, **bucket.settings) as api:
        ana = await api.token()
        path = f"/api/jobs/{(await run(api, ana, 'draw'))['jobId']}/result"
    waiting = list[asyncio.StreamWriter]()
    hanging = await asyncio.start_server(lambda _, writer: waiting.append(writer), "127.0.0.1")
    port = hanging.sockets[0].getsockname()[1]
    async with serve(add_tasks, **{**bucket.settings, "results.endpoint": f"http://127.0.0.1:{port}"}) as api:
        downloads = [asyncio.ensure_future(api.ask("GET", path, ana)) for _ in range(50)]
        async with asyncio.timeout(20):
            while len(waiting) < THREADS:
                await asyncio.sleep(0.01)
            assert await asyncio.to_thread(int) == 0  # as host names are resolved
            assert (await api.ask("GET", "/api/jobs", ana))[0] == 200
        hanging.close()
        for writer in waiting:
            writer.close()
        async with asyncio.timeout(60):
            assert {answer[0] for answer in await asyncio.gather(*downloads)} == {503}


@pytest.mark.parametrize("engine", ENGINES)
async def test_objects_go_with_their_jobs_and_never_one_that_a_job_names(
    serve: Serve, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(add_tasks, **bucket.settings) as api:
        ana = await api.token()
        kept, gone = await run(api, ana, "draw"), await run(api, ana, "draw")
        waiting = await api.create(ana, "hang")
        for stray in (f"{kept['jobId']}/7/film.mp4", f"{waiting}/1/film.mp4", "notes/1/film.mp4"):
            bucket.put(f"films/{stray}")
        table = "rowlock.jobs_finished" if "postgres" in api.app.database else "rowlock_jobs_finished"
        async with api.app.transaction() as transaction:
            await transaction.execute(f"DELETE FROM {table} WHERE id = '{gone['jobId']}'")
        before = bucket.keys()
        tidy = ResultTidy(await api.app.store(), api.app.results, abandoned_seconds=3600)
        await tidy.round()
        assert bucket.keys() == before  # too young
        monkeypatch.setattr(result_files, "YOUNG_SECONDS", -60.0)
        await tidy.round()
        stays = [f"films/{kept['jobId']}/1/film.mp4", f"films/{waiting}/1/film.mp4", "films/notes/1/film.mp4"]
        assert bucket.keys() == sorted(stays)


# --- the storage alone


@pytest.fixture
def memory(tmp_path: Path) -> ResultObjects:
    return ResultObjects(MemoryStore(), tmp_path, 1000)


def written(results: Results, token: str, text: str, attempt: int = 1) -> tuple[str, int, str, str]:
    results.partial(JOB, attempt, token, "a.txt").write_text(text)
    return JOB, attempt, token, "a.txt"


@pytest.mark.parametrize("whole_bytes", [1000, 0], ids=["in one request", "in parts"])
def test_an_object_is_never_overwritten(
    memory: ResultObjects, monkeypatch: pytest.MonkeyPatch, whole_bytes: int
) -> None:
    monkeypatch.setattr(objects, "WHOLE_BYTES", whole_bytes)
    first = memory.publish(*written(memory, "first", "one"))
    with pytest.raises(Permanent, match="not overwritten"):
        memory.publish(*written(memory, "second", "two"))
    with memory.content(first.uri) as content:
        assert content.read(0, 100) == b"one"


def test_an_upload_that_is_repeated_because_its_answer_was_lost_is_one_upload(memory: ResultObjects) -> None:
    first = memory.publish(*written(memory, "first", "one"))
    assert memory.publish(*written(memory, "first", "one")) == first


def test_an_object_that_is_too_large_is_refused(memory: ResultObjects) -> None:
    with pytest.raises(Permanent, match="1,001 bytes"):
        memory.publish(*written(memory, "first", "x" * 1001))


@each("uri", ["", "/", "../x", "a//b", "a/../b", ".partial/x", "/etc/passwd", "a\\b", "a/\x00"])
def test_a_stored_path_that_leads_elsewhere_is_refused(memory: ResultObjects, uri: str) -> None:
    with pytest.raises(OutsideOfFolder), memory.content(uri):
        pass
    with pytest.raises(FileNotFoundError), memory.content("a/1/b"):
        pass


def test_removing_listed_results_keeps_every_other_object(memory: ResultObjects) -> None:
    for attempt in (1, 2, 12):
        memory.publish(*written(memory, "t", f"{attempt}", attempt))
    obstore.put(memory._store, f"{OTHER}/1/b", b"another job's")
    assert list(memory.jobs(older_than=-60)) == [JOB, OTHER]
    assert list(memory.jobs(older_than=60)) == []
    listed = memory.published(JOB)
    assert sorted(listed) == [f"{JOB}/{attempt}/a.txt" for attempt in (1, 12, 2)]
    memory.publish(*written(memory, "t", "3", 3))
    memory.remove(listed)
    memory.remove(listed)  # another worker was quicker
    assert stored(memory) == [f"{JOB}/3/a.txt", f"{OTHER}/1/b"]
    memory.remove(memory.published(JOB))
    assert stored(memory) == [f"{OTHER}/1/b"]
    memory.remove([f"{OTHER}/1/b"])
    assert stored(memory) == []


def stored(results: ResultObjects) -> list[str]:
    return sorted(one["path"] for part in obstore.list(results._store) for one in part)


def test_a_job_with_one_young_object_is_left_alone(memory: ResultObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    listing = [
        {"path": f"{JOB}/1/a", "last_modified": now - timedelta(hours=9)},
        {"path": f"{JOB}/2/a", "last_modified": now},
        {"path": f"{OTHER}/1/a", "last_modified": now - timedelta(hours=9)},
    ]
    monkeypatch.setattr(objects.obstore, "list", lambda *_, **__: iter([listing]))
    assert list(memory.jobs(older_than=3600)) == [OTHER]


# --- settings


@each(
    "flags, said",
    [
        ({"results.url": "bucket/films"}, "must be s3://bucket"),
        ({"results.url": "s3://"}, "must be s3://bucket"),
        ({"results.url": "s3://films/x?key=x"}, "must be s3://bucket"),
        ({"results.url": "gs://films"}, "must be s3://bucket"),
        ({"results.signed_urls": True}, "needs results.url"),
        ({"results.url": "s3://films", "results.endpoint": "127.0.0.1:9000"}, "must be such as https://"),
        ({"results.url": "s3://films", "results.signed_seconds": 0}, "greater than or equal to 1"),
    ],
)
def test_a_wrong_setting_is_named(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        load_settings(env={}, flags=flags)
    assert str(error.value).startswith(list(flags)[-1])


def test_a_missing_library_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rowlock.client.results.objects")
    monkeypatch.setitem(sys.modules, "obstore", None)
    app = Rowlock(settings=load_settings(env={}, flags={"results.url": "s3://films"}))
    with pytest.raises(ConfigError, match=r"rowlock\[s3\]"):
        _ = app.results


def test_programs_that_need_a_folder_are_told_that_there_is_none(bucket: Bucket, tmp_path: Path) -> None:
    flags = {"database": f"sqlite:///{tmp_path}/jobs.db"}
    app = Rowlock(settings=load_settings(env={}, flags={**flags, **bucket.settings}))
    with pytest.raises(ConfigError, match="results in a folder"):
        _ = app.result_folder
    assert Rowlock(settings=load_settings(env={}, flags=flags)).result_folder.path
