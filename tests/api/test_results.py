"""Result files: written in private, visible once, downloaded by their owner alone, never from outside of the folder."""

import base64
import hashlib
import time

import pytest

from api.conftest import Api
from rowlock.api.jobs.results import _digest
from rowlock.client.results.results import PARTIAL
from support.each import each
from support.rigs.stores import ENGINES
from support.tasks.results import CONTENT


@pytest.fixture
def engine() -> str:
    """One engine is enough for files and HTTP; a test of what the store writes names both."""
    return "sqlite"


async def run(api: Api, token: str, task: str, **args: str) -> dict[str, object]:
    """A job from creation to end."""
    async with api.app.worker():
        _, body, _ = await api.ask("POST", "/api/jobs", token, {"jobType": task, "args": args}, Prefer="wait=30")
    return dict(body)


@pytest.mark.parametrize("engine", ENGINES)
@each("task", ["draw", "draw_in_thread"])
async def test_a_file_becomes_the_result_with_its_checksum_and_is_downloaded(files: Api, task: str) -> None:
    ana = await files.token()
    job = await run(files, ana, task)
    digest = hashlib.sha256(CONTENT)
    assert (job["status"], job["checksum"]) == ("SUCCEEDED", f"sha256:{digest.hexdigest()}")
    assert job["resultUri"] == f"{job['jobId']}/1/film.mp4"
    status, body, headers = await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana)
    assert (status, body) == (200, CONTENT)
    assert headers["content-type"] == "video/mp4"
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''film.mp4"
    assert headers["repr-digest"] == f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
    assert not any((files.app.results.path / PARTIAL).iterdir())


@pytest.mark.parametrize("engine", ENGINES)
async def test_only_the_owner_downloads(files: Api) -> None:
    ana, bob = await files.token("ana"), await files.token("bob")
    job = await run(files, ana, "draw")
    assert (await files.ask("GET", f"/api/jobs/{job['jobId']}/result", bob))[1]["code"] == "JOB_NOT_FOUND"


@each(
    "task, code",
    [
        ("fails_after_writing", "RuntimeError"),
        ("writes_nothing", "RESULT_MISSING"),
        ("links_elsewhere", "INVALID_OUTPUT_PATH"),
        ("two_files", "InvalidArguments"),
    ],
)
async def test_a_job_without_a_good_file_fails_and_leaves_none(files: Api, task: str, code: str) -> None:
    ana = await files.token()
    job = await run(files, ana, task)
    assert (job["status"], job["errorCode"], job["resultUri"]) == ("FAILED", code, None)
    assert (await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana))[1]["code"] == "NOT_FINISHED"
    left = [path for path in files.app.results.path.rglob("*") if path.is_file() or path.is_symlink()]
    assert left == []


async def test_a_job_that_made_no_file_has_no_result_to_download(files: Api) -> None:
    ana = await files.token()
    job = await run(files, ana, "add", a="1")
    assert (await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana))[1]["code"] == "RESULT_NOT_FOUND"


async def test_a_file_that_vanished_is_told(files: Api) -> None:
    ana = await files.token()
    job = await run(files, ana, "draw")
    (files.app.results.path / str(job["resultUri"])).unlink()
    status, problem, _ = await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana)
    assert (status, problem["code"]) == (410, "RESULT_GONE")


SIZE = len(CONTENT)
RANGES = {
    "first bytes": ("bytes=0-9", 206, CONTENT[:10]),
    "from the middle on": (f"bytes={SIZE - 5}-", 206, CONTENT[-5:]),
    "last bytes": ("bytes=-7", 206, CONTENT[-7:]),
    "more last bytes than there are": (f"bytes=-{SIZE * 2}", 200, CONTENT),
    "more than there is": (f"bytes=10-{SIZE * 2}", 206, CONTENT[10:]),
    "all": (f"bytes=0-{SIZE - 1}", 200, CONTENT),
    "several": ("bytes=0-1,5-6", 200, CONTENT),
    "no range": ("bytes=-", 200, CONTENT),
    "another unit": ("frames=0-1", 200, CONTENT),
}


@pytest.fixture
async def film(files: Api) -> tuple[str, str]:
    """The path of a result file, and its owner's token."""
    ana = await files.token()
    job = await run(files, ana, "draw")
    return f"/api/jobs/{job['jobId']}/result", ana


@each("wanted, status, content", RANGES.values(), ids=RANGES.keys())
async def test_one_range_of_a_file(files: Api, film: tuple[str, str], wanted: str, status: int, content: bytes) -> None:
    answer, body, headers = await files.ask("GET", *film, Range=wanted)
    assert (answer, body) == (status, content)
    assert int(headers["content-length"]) == len(content)
    assert ("content-range" in headers) == (status == 206)


@each("wanted", [f"bytes={SIZE}-", "bytes=9-2", "bytes=-0"])
async def test_a_range_outside_of_the_file_is_refused(files: Api, film: tuple[str, str], wanted: str) -> None:
    status, problem, headers = await files.ask("GET", *film, Range=wanted)
    assert (status, problem["code"]) == (416, "RANGE_NOT_SATISFIABLE")
    assert headers["content-range"] == f"bytes */{SIZE}"


@each(
    "checksum, digest",
    [
        (f"sha256:{'0a' * 32}", base64.b64encode(b"\n" * 32).decode()),
        ("0A" * 32, base64.b64encode(b"\n" * 32).decode()),
        (None, None),
        ("", None),
        (f"md5:{'0a' * 32}", None),
        (f"sha256:{'0a' * 31}", None),
        (f"sha256:{'0g' * 32}", None),
    ],
)
def test_a_digest_is_sent_of_a_sha_256_checksum_alone(checksum: str | None, digest: str | None) -> None:
    assert _digest(checksum) == digest


async def test_a_request_for_1500_ranges_is_answered_at_once(files: Api, film: tuple[str, str]) -> None:
    many = "bytes=" + ",".join("0-1" for _ in range(1500))
    started = time.process_time()  # the server is in this process
    assert (await files.ask("GET", *film, Range=many))[0] in (200, 422)
    assert time.process_time() - started < 2
