"""JobFlowTest of the document: progress and results are put straight into the streams, as any worker could do."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from api.conftest import Api
from apps.engines import ONE_ENGINE
from apps.replays.replays import ask_export, create, ended
from support.web.remote import Remote, until, until_state

VIDEO = b"\x00\x00\x00\x18ftypisom a video"


async def test_a_job_goes_from_the_route_over_the_streams_and_the_websocket_to_the_download(
    far_api: Api, remote: Remote
) -> None:
    """S3.33: create a replay, create an MP4 job, publish progress and result in Redis, see both on the WebSocket,
    download the file."""
    token = await far_api.token("ana")
    replay_id = await create(far_api, token)
    async with far_api.socket(token) as socket:
        assert (await socket.next())["type"] == "ready"
        status, body, headers = await far_api.ask("POST", f"/api/replays/{replay_id}/exports/mp4", token)
        job_id = body["jobId"]
        assert (status, body, headers["location"]) == (202, {"jobId": job_id}, f"/api/jobs/{job_id}")

        request = await remote.request(job_id)
        options = json.loads(request["options"])
        assert (request["jobType"], request["replayId"]) == ("REPLAY_MP4", replay_id)
        assert (options["durationMs"], options["ownerId"]) == (500, "ana")
        assert Path(options["inputPath"]).is_relative_to(remote.results)
        assert Path(options["outputPath"]).is_relative_to(remote.results / job_id)
        assert (await far_api.ask("GET", f"/api/jobs/{job_id}", token))[1]["status"] == "QUEUED"

        remote.progress(job_id, 40, phase="encoding", message="frame 5 of 12")
        told = await socket.next()
        assert (told["type"], told["jobId"], told["progress"]) == ("job.progress", job_id, 40)
        assert (told["phase"], told["message"]) == ("encoding", "frame 5 of 12")
        running = (await far_api.ask("GET", f"/api/jobs/{job_id}", token))[1]
        assert (running["status"], running["progress"]) == ("RUNNING", 40)

        remote.succeed(request, VIDEO)
        completed = (await socket.until_done())[-1]
        assert (completed["type"], completed["jobId"], completed["progress"]) == ("job.completed", job_id, 100)

    status, content, headers = await far_api.ask("GET", f"/api/jobs/{job_id}/result", token)
    assert (status, content, headers["content-type"]) == (200, VIDEO, "video/mp4")
    job = (await far_api.ask("GET", f"/api/jobs/{job_id}", token))[1]
    assert job["checksum"] == f"sha256:{hashlib.sha256(VIDEO).hexdigest()}"
    assert all(job[name].endswith("+09:00") for name in ("createdAt", "startedAt", "endedAt")), job
    exports = (await far_api.ask("GET", f"/api/replays/{replay_id}", token))[1]["exports"]
    assert exports == [{"jobId": job_id, "jobType": "REPLAY_MP4", "status": "SUCCEEDED", "progress": 100}]


async def test_results_that_are_forged_or_lead_outside_change_nothing_of_others(
    far_api: Api, remote: Remote, tmp_path: Path
) -> None:
    """S3.23: a path outside of the exports fails its job; a result that names the file of somebody else's job does so,
    too; what is about an ended or unknown job is ignored."""
    ana, bob = await far_api.token("ana"), await far_api.token("bob")
    anas = await ask_export(far_api, ana, await create(far_api, ana))
    request = await remote.request(anas)
    remote.succeed(request, VIDEO)
    assert (await ended(far_api, ana, anas))["status"] == "SUCCEEDED"
    secret = tmp_path / "secret"
    secret.write_bytes(b"a secret")
    checksums = {path: f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" for path in (secret, _output(request))}
    for path, checksum in checksums.items():
        job_id = await ask_export(far_api, bob, await create(far_api, bob))
        await remote.request(job_id)
        remote.say("job.results", jobId=job_id, status="SUCCEEDED", resultUri=str(path), checksum=checksum)
        job = await ended(far_api, bob, job_id)
        assert (job["status"], job["errorCode"]) == ("FAILED", "INVALID_OUTPUT_PATH"), job
        status, body, _ = await far_api.ask("GET", f"/api/jobs/{job_id}/result", bob)
        assert (status, body["code"]) == (409, "NOT_FINISHED")

    before = remote.count("late")
    remote.say("job.results", jobId=anas, status="FAILED", errorCode="FORGED", errorMessage="by bob")
    remote.say("job.results", jobId="018f0000-0000-7000-8000-000000000001", status="FAILED")
    await remote.all_read()
    await until(lambda: remote.count("late") == before + 1)
    assert (await far_api.ask("GET", f"/api/jobs/{anas}", ana))[1]["status"] == "SUCCEEDED"
    assert (await far_api.ask("GET", f"/api/jobs/{anas}/result", ana))[1] == VIDEO
    assert [letter["reason"] for letter in remote.letters()] == ["UNKNOWN_JOB"]


@ONE_ENGINE
async def test_a_result_whose_checksum_is_not_that_of_the_file_fails_the_job(far_api: Api, remote: Remote) -> None:
    ana = await far_api.token("ana")
    job_id = await ask_export(far_api, ana, await create(far_api, ana))
    fields: dict[str, Any] = remote.write(await remote.request(job_id), VIDEO) | {"checksum": "0" * 64}
    remote.say("job.results", **fields)
    job = await until_state(far_api.app, job_id, "dead")
    assert job.error_code == "CHECKSUM_MISMATCH"


def _output(request: dict[str, str]) -> Path:
    return Path(os.path.realpath(json.loads(request["options"])["outputPath"]))
