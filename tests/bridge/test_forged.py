"""Messages that are late, forged, repeated or garbage: none is accepted, and none is lost without a word."""

import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from rowlock import JobDead, Rowlock
from support.each import each
from support.web.remote import Remote, until_state, with_tasks

SUM = "sha256:" + hashlib.sha256(b"video").hexdigest()


async def published(app: Rowlock, remote: Remote) -> tuple[str, dict[str, str], Path]:
    """A job, its request, and the path it may write to."""
    job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
    request = await remote.request(job.id)
    path = Path(json.loads(request["options"])["outputPath"])
    path.parent.mkdir(parents=True)
    return job.id, request, path


GARBAGE: dict[str, tuple[str, dict[str, Any], str]] = {
    "no job id": ("job.results", {"status": "SUCCEEDED"}, "BAD_JOB_ID"),
    "job id is a number": ("job.progress", {"jobId": "7", "progress": "1"}, "BAD_JOB_ID"),
    "unknown job": ("job.results", {"jobId": str(uuid.uuid4()), "status": "FAILED"}, "UNKNOWN_JOB"),
    "progress is a word": ("job.progress", {"jobId": "{job}", "progress": "half"}, "BAD_FIELD"),
    "progress above 100": ("job.progress", {"jobId": "{job}", "progress": "101"}, "BAD_FIELD"),
    "progress is missing": ("job.progress", {"jobId": "{job}", "phase": "x"}, "BAD_FIELD"),
    "unknown status": ("job.results", {"jobId": "{job}", "status": "DONE"}, "BAD_FIELD"),
    "attempt is a word": ("job.progress", {"jobId": "{job}", "progress": "1", "attempt": "first"}, "BAD_FIELD"),
    "not UTF-8": ("job.progress", {"jobId": "{job}", "progress": b"\xff\xfe"}, "NOT_TEXT"),
    "too large": ("job.results", {"jobId": "{job}", "status": "FAILED", "errorMessage": "x" * 70_000}, "TOO_LARGE"),
}


async def test_garbage_becomes_a_dead_letter_with_its_reason_and_is_acknowledged(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job_id, request, _ = await published(app, remote)
        for stream, fields, _ in GARBAGE.values():
            filled = {name: job_id if value == "{job}" else value for name, value in fields.items()}
            remote.redis.xadd(remote.key(stream), filled)
        await remote.all_read()
        reasons = sorted(letter["reason"] for letter in remote.letters())
        assert reasons == sorted(reason for _, _, reason in GARBAGE.values())
        assert all(letter["message"] and letter["text"] and letter["stream"] for letter in remote.letters())
        assert remote.count("dead_letters") == len(GARBAGE)
        assert (await app.job(job_id)).state == "queued"
        remote.succeed(request)  # and the good one behind them is read
        await until_state(app, job_id, "succeeded")


async def test_a_message_about_a_job_that_runs_here_is_refused(app: Rowlock, remote: Remote) -> None:
    @app.task("here")
    async def here() -> None: ...

    job = await here.enqueue()
    lease = await app.claim(job.id)
    assert lease is not None
    async with app.bridge():
        remote.say("job.results", jobId=job.id, status="FAILED")
        await remote.all_read()
        assert [letter["reason"] for letter in remote.letters()] == ["NOT_REMOTE"]
        assert (await app.job(job.id)).state == "running"


@pytest.fixture
async def bridged(app: Rowlock) -> AsyncIterator[Rowlock]:
    """An app whose bridge runs."""
    async with app.bridge():
        yield app


@pytest.mark.parametrize("engine", ["sqlite"])
@each("where", ["outside", "dots", "sibling", "no attempt", "missing", "symlink", "folder", "none"])
async def test_a_result_path_outside_of_the_attempts_folder_fails_the_job(
    where: str, bridged: Rowlock, remote: Remote, tmp_path: Path
) -> None:
    job_id, _, path = await published(bridged, remote)
    secret = tmp_path / "secret"
    secret.write_bytes(b"video")
    (remote.results / "plain").write_bytes(b"video")
    (path.parent / "link").symlink_to(secret)
    (path.parent / "folder").mkdir()
    uri = {
        "outside": str(secret),
        "dots": f"{job_id}/{path.parent.name}/../../../secret",
        "sibling": f"{remote.results}2/x/y",
        "no attempt": str(remote.results / "plain"),
        "missing": str(path),
        "symlink": str(path.parent / "link"),
        "folder": str(path.parent / "folder"),
        "none": "",
    }[where]
    remote.say("job.results", jobId=job_id, status="SUCCEEDED", resultUri=uri, checksum=SUM)
    dead = await until_state(bridged, job_id, "dead")
    assert dead.error_code == "INVALID_OUTPUT_PATH"
    assert dead.result_uri is None


@pytest.mark.parametrize("engine", ["sqlite"])
@each("checksum", ["", "sha256:" + "0" * 64, "md5:abc", "0" * 64])
async def test_a_wrong_checksum_fails_the_job(checksum: str, bridged: Rowlock, remote: Remote) -> None:
    job_id, _, path = await published(bridged, remote)
    path.write_bytes(b"video")
    remote.say("job.results", jobId=job_id, status="SUCCEEDED", resultUri=path, checksum=checksum)
    dead = await until_state(bridged, job_id, "dead")
    assert dead.error_code == "CHECKSUM_MISMATCH"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_result_file_that_is_larger_than_the_setting_allows_fails_the_job(
    settings: Callable[..., Any], remote: Remote
) -> None:
    async with with_tasks(Rowlock(settings=settings(results__file_bytes=5))) as app, app.bridge():
        fits, too_large = [await app.get_task("REPLAY_MP4").enqueue(replayId=7) for _ in range(2)]
        remote.succeed(await remote.request(fits.id), b"video")
        remote.succeed(await remote.request(too_large.id), b"videos")
        await fits.wait(timeout=60)
        with pytest.raises(JobDead, match=r"results\.file_bytes allows 5"):
            await too_large.wait(timeout=60)
        dead = await app.job(too_large.id)
        assert (dead.record.error_code, dead.record.result_uri) == ("RESULT_TOO_LARGE", None)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_relative_path_and_a_bare_checksum_are_accepted(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job_id, _, path = await published(app, remote)
        path.write_bytes(b"video")
        uri, bare = str(path.relative_to(remote.results)), SUM.removeprefix("sha256:").upper()
        remote.say("job.results", jobId=job_id, status="SUCCEEDED", resultUri=uri, checksum=bare)
        done = await until_state(app, job_id, "succeeded")
        assert (done.result_uri, done.result_checksum) == (uri, SUM)


async def test_the_folder_of_another_attempt_is_not_accepted(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job_id, request, path = await published(app, remote)
        forged = path.parent.parent / "1-00000000" / path.name
        forged.parent.mkdir()
        forged.write_bytes(b"video")
        remote.say("job.results", jobId=job_id, status="SUCCEEDED", resultUri=forged, checksum=SUM)
        remote.progress(job_id, 50, attempt=2)
        await remote.all_read()
        assert remote.count("stale") == 2
        assert (await app.job(job_id)).state == "queued"
        remote.succeed(request)
        await until_state(app, job_id, "succeeded")


async def test_of_a_repeated_result_one_is_accepted(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job_id, request, _ = await published(app, remote)
        fields = remote.write(request)
        pipe = remote.redis.pipeline()
        for _ in range(5):
            pipe.xadd(remote.key("job.results"), fields)
        pipe.execute()
        await until_state(app, job_id, "succeeded")
        await remote.all_read()
        assert (remote.count("accepted"), remote.count("late")) == (1, 4)


async def test_text_that_a_database_cannot_store_is_made_storable(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job_id, _, _ = await published(app, remote)
        remote.progress(job_id, 1, phase="a\x00b", message="x" * 5000)
        await until_state(app, job_id, "running")
        remote.say("job.results", jobId=job_id, status="FAILED", errorCode="C\x00D", errorMessage="\x00")
        assert (await until_state(app, job_id, "dead")).error_code == "C\\x00D"
        assert remote.letters() == []
