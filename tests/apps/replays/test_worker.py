"""The worker behind Redis: a program of its own that knows the messages and a folder, and no database."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from api.conftest import Api
from apps.engines import ONE_ENGINE
from apps.replays.media import fake_ffmpeg, is_mp4, is_png, sleeping_ffmpeg, wait_until_gone
from apps.replays.replays import ask_export, create, ended, replay
from rowlock.cli.main import execute
from rowlock_apps.replays import encoder
from rowlock_apps.replays.app import Replays
from rowlock_apps.replays.worker import settings_of, written_once
from support.servers.redis import RedisServer
from support.web.remote import Remote, until, until_state

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(remote: Remote) -> Iterator[Start]:
    """Start workers, which end with the test; each is at work when this returns."""
    started: list[subprocess.Popen[str]] = []

    def one(**changes: str) -> "subprocess.Popen[str]":
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ROWLOCK_")}
        environment |= {"REDIS_URL": remote.server.url, "REDIS_PREFIX": remote.prefix, "BEAT_MS": "200"}
        environment |= {"JOBS_EXPORT_PATH": str(remote.results), **changes}
        command = [sys.executable, "-m", "rowlock_apps.replays.worker"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert "reads" in process.stdout.readline()
        return process

    yield one
    for process in started:
        process.kill()
        process.wait(10)


def test_the_settings_choose_whether_exports_run_here_or_behind_redis(tmp_path: Path) -> None:
    """Also settings that come later, as those of a command with --config do."""
    (tmp_path / "far.yaml").write_text("redis: {url: 'redis://127.0.0.1:1/0'}")
    far, near = Replays(config=tmp_path / "far.yaml"), Replays()
    assert sorted(far.registry.elsewhere()) == ["REPLAY_MP4", "REPLAY_THUMBNAIL"]
    assert near.registry.elsewhere() == {}
    here, there = near.settings, far.settings
    near.configure(there)
    far.configure(here)
    assert sorted(near.registry.elsewhere()) == ["REPLAY_MP4", "REPLAY_THUMBNAIL"]
    assert far.registry.elsewhere() == {}


def test_the_worker_imports_neither_rowlock_nor_a_database_driver() -> None:
    """It stands for a worker in another language."""
    look = "import sys, rowlock_apps.replays.worker; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert {"rowlock", "apsw", "asyncpg", "sqlite3", "fastapi"} & set(done.stdout.split()) == set()


def test_the_worker_keeps_the_contract_of_the_test_vectors(
    redis_server: RedisServer, remote: Remote, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """S3.36: the Node worker of examples/ passes these vectors, too."""
    remote.results.mkdir()
    data = {key: value for key, value in replay().items() if key != "title"}
    (remote.results / "input.json").write_text(json.dumps(data))
    monkeypatch.setenv("ROWLOCK_REDIS__URL", redis_server.url)
    monkeypatch.setenv("ROWLOCK_RESULTS__PATH", str(remote.results))
    start()
    flags = ["--input", str(remote.results / "input.json"), "--job-type", "REPLAY_MP4", "--timeout", "60", "--json"]
    code = execute(["bridge", "verify", "--prefix", remote.prefix, *flags])
    said = capsys.readouterr().out
    assert code == 0, said
    assert len(json.loads(said)) == 6


async def test_an_mp4_and_a_thumbnail_are_made_behind_redis_by_the_body_that_our_own_worker_runs(
    far_api: Api, remote: Remote, start: Start
) -> None:
    """S3.1, S3.20: from the route over the streams to the download."""
    start()
    token = await far_api.token("ana")
    replay_id = await create(far_api, token)
    for kind, looks_right in (("mp4", is_mp4), ("thumbnail", is_png)):
        job_id = await ask_export(far_api, token, replay_id, kind)
        job = await ended(far_api, token, job_id)
        assert (job["status"], job["progress"], job["errorCode"]) == ("SUCCEEDED", 100, None)
        status, content, _ = await far_api.ask("GET", f"/api/jobs/{job_id}/result", token)
        assert status == 200
        assert looks_right(content)
    assert remote.letters() == []
    options = json.loads(remote.requests()[0]["options"])
    assert sorted(options) == ["createdAt", "durationMs", "inputPath", "outputPath", "ownerId"]
    assert options["ownerId"] == "ana"


@ONE_ENGINE
async def test_a_cancel_behind_redis_kills_the_encoder_and_a_retry_of_the_job_runs(
    far_api: Api, remote: Remote, start: Start, tmp_path: Path
) -> None:
    pids = sleeping_ffmpeg(tmp_path)
    start(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    token = await far_api.token("ana")
    job_id = await ask_export(far_api, token, await create(far_api, token))
    await until(lambda: len(pids()) == 2)
    assert (await far_api.ask("POST", f"/api/jobs/{job_id}/cancel", token))[0] in (200, 202)
    await until_state(far_api.app, job_id, "cancelled")
    await wait_until_gone(pids())
    (tmp_path / "bin/ffmpeg").unlink()
    assert (await far_api.ask("POST", f"/api/jobs/{job_id}/retry", token))[0] in (200, 202)
    assert (await ended(far_api, token, job_id))["status"] == "SUCCEEDED", "the old cancel is not for the new request"


@ONE_ENGINE
async def test_a_request_that_names_a_path_outside_of_the_folder_is_refused_by_the_worker(
    far_api: Api, remote: Remote, start: Start, tmp_path: Path
) -> None:
    """Whoever can write to the stream could name any file; the worker neither reads nor writes there."""
    start()
    remote.results.mkdir(exist_ok=True)
    source = remote.results / "input.json"
    source.write_text(json.dumps({key: value for key, value in replay().items() if key != "title"}))
    (remote.results / "link").symlink_to(tmp_path)
    secret = tmp_path / "secret.json"
    secret.write_bytes(source.read_bytes())
    inside = str(remote.results / "out.mp4")
    for given, target, code in (
        (str(source), str(tmp_path / "stolen.mp4"), "INVALID_OUTPUT_PATH"),
        (str(source), str(remote.results / "../stolen.mp4"), "INVALID_OUTPUT_PATH"),
        (str(source), str(remote.results / "link/stolen.mp4"), "INVALID_OUTPUT_PATH"),
        (str(secret), inside, "INVALID_INPUT_PATH"),
        (str(remote.results / "link/secret.json"), inside, "INVALID_INPUT_PATH"),
        (str(remote.results / "missing.json"), inside, "INPUT_NOT_FOUND"),
        (7, inside, "BAD_REQUEST"),
    ):
        seen = remote.redis.xlen(remote.key("job.results"))
        options = json.dumps({"inputPath": given, "outputPath": target, "durationMs": 100})
        remote.say("job.requests", jobId="018f0000-0000-7000-8000-000000000001", jobType="REPLAY_MP4", options=options)
        await until(lambda seen=seen: remote.redis.xlen(remote.key("job.results")) > seen)
        said = remote.redis.xrevrange(remote.key("job.results"), count=1)[0][1]
        assert (said["status"], said["errorCode"]) == ("FAILED", code), said
    assert [name for name in os.listdir(tmp_path) if name.startswith("stolen")] == []
    assert sorted(os.listdir(remote.results)) == ["input.json", "link"]


@ONE_ENGINE
async def test_an_export_behind_redis_that_takes_too_long_is_killed_with_all_of_its_processes(
    far_api: Api, start: Start, tmp_path: Path
) -> None:
    pids = sleeping_ffmpeg(tmp_path)
    start(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}", EXPORT_TIMEOUT_MS="1500")
    token = await far_api.token("ana")
    job = await ended(far_api, token, await ask_export(far_api, token, await create(far_api, token)))
    assert (job["status"], job["errorCode"]) == ("FAILED", "TIMEOUT")
    assert len(pids()) == 2
    await wait_until_gone(pids())


@ONE_ENGINE
async def test_a_full_disk_behind_redis_fails_the_job_and_leaves_no_file(
    far_api: Api, remote: Remote, start: Start
) -> None:
    """The worker may write files of at most 600 bytes: its disk is full in the middle of each."""
    worker = start()
    psutil.Process(worker.pid).rlimit(psutil.RLIMIT_FSIZE, (600, 600))
    token = await far_api.token("ana")
    replay_id = await create(far_api, token)
    for kind in ("mp4", "thumbnail"):
        job_id = await ask_export(far_api, token, replay_id, kind)
        job = await ended(far_api, token, job_id)
        assert (job["status"], job["errorCode"]) == ("FAILED", "DISK_FULL"), job
        assert [file for _, _, files in os.walk(remote.results / job_id) for file in files] == []
    worker.kill()
    start()
    assert (await far_api.ask("POST", f"/api/jobs/{job_id}/retry", token))[0] in (200, 202)
    assert (await ended(far_api, token, job_id))["status"] == "SUCCEEDED"


@ONE_ENGINE
async def test_the_request_of_a_killed_worker_is_done_by_another_one(
    far_api: Api, remote: Remote, start: Start, tmp_path: Path
) -> None:
    pids = sleeping_ffmpeg(tmp_path)
    first = start(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    token = await far_api.token("ana")
    job_id = await ask_export(far_api, token, await create(far_api, token))
    await until(lambda: len(pids()) == 2)
    first.kill()
    start(TAKEOVER_MS="300")
    assert (await ended(far_api, token, job_id))["status"] == "SUCCEEDED"
    for pid in pids():  # a real encoder ends when nobody sends pictures any more
        os.kill(pid, signal.SIGKILL)


@ONE_ENGINE
async def test_a_worker_that_is_at_work_for_long_keeps_its_request_and_finds_streams_that_vanished(
    far_api: Api, remote: Remote, start: Start, tmp_path: Path
) -> None:
    """Another worker would take the request over after 4 s without a beat, which is longer than a busy machine stands
    still; the encoder takes longer. Then Redis loses the stream with its group, and the next request is done all the
    same."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    real = encoder.program()
    fake_ffmpeg(tmp_path, f'echo x >> {begun}; while [ ! -e {go} ]; do sleep 0.02; done; exec {real} "$@"')
    quick = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "TAKEOVER_MS": "4000"}
    workers = [start(**quick), start(**quick)]
    token = await far_api.token("ana")
    job_id = await ask_export(far_api, token, await create(far_api, token))
    beats = lambda: remote.redis.xlen(remote.key("job.progress"))  # noqa: E731
    await until(lambda: begun.exists())
    seen, over = beats(), time.monotonic() + 8  # twice the time of a takeover
    await until(lambda: beats() >= seen + 4 and time.monotonic() > over)
    go.touch()
    assert (await ended(far_api, token, job_id))["status"] == "SUCCEEDED"
    assert begun.read_text() == "x\n", "one worker has encoded it, once"

    remote.redis.delete(remote.key("job.requests"))
    job_id = await ask_export(far_api, token, await create(far_api, token), "thumbnail")
    assert (await ended(far_api, token, job_id))["status"] == "SUCCEEDED"
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    assert [worker.wait(30) for worker in workers] == [0, 0]


async def test_a_file_that_appears_at_the_output_path_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """Two workers may do one request at the same time."""
    target = tmp_path / "job/1-00c0ffee/replay.mp4"
    async with written_once(target) as partial:
        partial.write_bytes(b"mine")
        target.write_bytes(b"theirs")
    assert target.read_bytes() == b"theirs"
    assert os.listdir(target.parent) == ["replay.mp4"]


def test_the_worker_says_which_variable_is_wrong() -> None:
    for changes, words in (
        ({"JOBS_EXPORT_PATH": ""}, "JOBS_EXPORT_PATH is not set"),
        ({"BEAT_MS": "often"}, "BEAT_MS"),
        ({"TAKEOVER_MS": "-1"}, "TAKEOVER_MS"),
    ):
        with pytest.raises(SystemExit, match=words):
            settings_of({"JOBS_EXPORT_PATH": "/tmp/exports"} | changes)
