"""Exports by Rowlock's own worker, as the system runs by default; and what goes wrong on the way."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.conftest import Api
from apps.engines import ONE_ENGINE
from apps.replays.media import fake_ffmpeg, is_mp4, is_png, sleeping_ffmpeg, wait_until_gone
from apps.replays.replays import ask_export, create, ended
from rowlock_apps.replays import encoder
from rowlock_apps.replays.replay import ExportFailed
from rowlock_apps.replays.service import input_path
from support.web.remote import until


@pytest.fixture
def first_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `bin` is the first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


async def test_a_replay_becomes_an_mp4_and_a_thumbnail_with_progress_result_and_checksum(
    api: Api, ana: str, first_on_path: Path
) -> None:
    """S3.1, S3.4, S3.5: asynchronous jobs that show progress and result. The encoder does not end before its progress
    has arrived: a short video is done sooner than progress is written."""
    go = first_on_path / "go"
    real = encoder.program()
    fake_ffmpeg(first_on_path, f'{real} "$@"; code=$?; while [ ! -e {go} ]; do sleep 0.02; done; exit $code')
    replay_id = await create(api, ana)
    async with api.app.worker(), api.socket(ana) as socket:
        assert (await socket.next())["type"] == "ready"
        for kind, job_type, looks_right, media in (
            ("mp4", "REPLAY_MP4", is_mp4, "video/mp4"),
            ("thumbnail", "REPLAY_THUMBNAIL", is_png, "image/png"),
        ):
            job_id = await ask_export(api, ana, replay_id, kind)
            if kind == "mp4":
                while (told := await socket.next())["phase"] != "encoding":
                    assert told["type"] == "job.progress"
                assert "of 12" in told["message"]
                go.touch()
            completed = (await socket.until_done())[-1]
            assert (completed["type"], completed["jobId"]) == ("job.completed", job_id)
            job = (await api.ask("GET", f"/api/jobs/{job_id}", ana))[1]
            assert (job["jobType"], job["status"], job["progress"]) == (job_type, "SUCCEEDED", 100)
            status, content, headers = await api.ask("GET", f"/api/jobs/{job_id}/result", ana)
            assert (status, headers["content-type"]) == (200, media)
            assert looks_right(content)
            assert job["checksum"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    item = (await api.ask("GET", "/api/replays", ana))[1]["items"][0]
    assert {(one["jobType"], one["status"]) for one in item["exports"]} == {
        ("REPLAY_MP4", "SUCCEEDED"),
        ("REPLAY_THUMBNAIL", "SUCCEEDED"),
    }


@ONE_ENGINE
async def test_a_cancelled_export_and_one_that_takes_too_long_are_killed_with_all_of_their_processes(
    api: Api, ana: str, first_on_path: Path
) -> None:
    pids = sleeping_ffmpeg(first_on_path)
    replay_id = await create(api, ana)
    async with api.app.worker(heartbeat_seconds=0.2):
        job_id = await ask_export(api, ana, replay_id)
        await until(lambda: len(pids()) == 2)
        assert (await api.ask("POST", f"/api/jobs/{job_id}/cancel", ana))[0] in (200, 202)
        assert (await ended(api, ana, job_id))["status"] == "CANCELLED"
        await wait_until_gone(pids())
        args = {"replayId": replay_id, "inputPath": str(input_path(api.app, replay_id)), "durationMs": 500}
        late = await api.app.get_task("REPLAY_MP4").using(owner="ana", timeout=0.5).enqueue(**args)
        job = await ended(api, ana, late.id)
        assert (job["status"], job["errorCode"]) == ("FAILED", "TIMEOUT"), job
        assert len(pids()) == 4
        await wait_until_gone(pids())
    assert await _files(api) == [f".inputs/{replay_id}.json"]


BROKEN: list[tuple[str, str, str]] = [
    ("echo 'Unknown encoder libx264' >&2; exit 8", "ENCODER_FAILED", "exit code 8: Unknown encoder libx264"),
    ("kill -SEGV $$", "ENCODER_FAILED", "killed by SIGSEGV"),
    ("cat > /dev/null", "ENCODER_FAILED", "wrote no file"),
    ('ulimit -f 1; exec {real} "$@"', "DISK_FULL", "no space"),
    ("ulimit -f 1; trap '' XFSZ; exec {real} \"$@\"", "DISK_FULL", "File too large"),
]


@ONE_ENGINE
async def test_a_broken_encoder_and_a_full_disk_fail_the_job_with_a_code_and_lose_nothing(
    api: Api, ana: str, first_on_path: Path
) -> None:
    replay_id = await create(api, ana)
    real = encoder.program()
    async with api.app.worker():
        for script, code, words in BROKEN:
            fake_ffmpeg(first_on_path, script.replace("{real}", real))
            job_id = await ask_export(api, ana, replay_id)
            job = await ended(api, ana, job_id)
            assert (job["status"], job["errorCode"]) == ("FAILED", code), (script, job)
            assert words in job["errorMessage"], job
            assert await _files(api) == [f".inputs/{replay_id}.json"], script
        (first_on_path / "bin/ffmpeg").unlink()
        assert (await api.ask("POST", f"/api/jobs/{job_id}/retry", ana))[0] in (200, 202)
        assert (await ended(api, ana, job_id))["status"] == "SUCCEEDED", "the operator has mended it"


@ONE_ENGINE
async def test_a_job_whose_replay_makes_no_sense_fails_with_a_code(api: Api, ana: str, tmp_path: Path) -> None:
    """The routes refuse such exports; a job can also be created by something else, and its file can be damaged."""
    players = [{"name": "red", "color": "#e5484d"}]
    frames = [{"t": 0, "positions": [[0.5, 0.5]]}]
    (tmp_path / "empty.json").write_text('{"durationMs": 500, "players": [], "frames": []}')
    (tmp_path / "still.json").write_text(json.dumps({"durationMs": 0, "players": players, "frames": frames}))
    (tmp_path / "fine.json").write_text(json.dumps({"durationMs": 500, "players": players, "frames": frames}))
    (tmp_path / "half.json").write_text('{"durationMs": 500, "pla')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    async with api.app.worker():
        for name, duration, code in (
            ("empty.json", 500, "NO_FRAMES"),
            ("still.json", 0, "INVALID_DURATION"),
            ("fine.json", 24 * 3600 * 1000, "INVALID_DURATION"),
            ("fine.json", -5, "INVALID_DURATION"),
            ("half.json", 500, "INVALID_REPLAY"),
            ("deep.json", 500, "INVALID_REPLAY"),
            ("missing.json", 500, "INPUT_NOT_FOUND"),
        ):
            task = api.app.get_task("REPLAY_MP4").using(owner="ana")
            made = await task.enqueue(replayId="1", inputPath=str(tmp_path / name), durationMs=duration)
            job = await ended(api, ana, made.id)
            assert (job["status"], job["errorCode"]) == ("FAILED", code), job
    assert await _files(api) == []


def test_a_full_disk_is_told_before_there_is_a_job() -> None:
    """The replay is written to a file for the worker first; a process that may write no more stands for a full disk."""
    script = (
        "import resource, tempfile, pathlib, os; from rowlock_apps.replays.service import write_input\n"
        "folder = tempfile.mkdtemp(); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: write_input(pathlib.Path(folder, 'a.json'), 'x' * 1000)\n"
        "except Exception as error: print(error.code, os.listdir(folder))\n"
        "os.rmdir(folder)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "EXPORTS_FULL []\n"


def test_without_any_ffmpeg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ExportFailed, match=r"rowlock\[demo-media\]") as missing:
        encoder.program()
    assert missing.value.code == "ENCODER_MISSING"


async def _files(api: Api) -> list[str]:
    """Every file of the exports."""
    root = api.app.results.path

    def walk() -> list[str]:
        return sorted(os.path.relpath(os.path.join(at, name), root) for at, _, names in os.walk(root) for name in names)

    return await asyncio.to_thread(walk)
