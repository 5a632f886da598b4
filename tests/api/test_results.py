"""Result files: written in private, visible once, downloaded by their owner alone, never from outside of the folder."""

import asyncio
import base64
import errno
import hashlib
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from api.conftest import Api
from rowlock import Context, Permanent, Rowlock
from rowlock.api.results import _digest
from rowlock.client.results import PARTIAL, OutsideOfFolder, ResultFolder
from rowlock.store import leases
from rowlock.worker.result_files import YOUNG_SECONDS, ResultTidy

CONTENT = b"frame " * 50_000


def add_file_tasks(app: Rowlock) -> None:
    """Tasks that make a file, or try to."""

    @app.task("draw", public=True)
    async def draw(ctx: Context, name: str = "film.mp4") -> str:
        ctx.result_file(name).write_bytes(CONTENT)
        return "drawn"

    @app.task("draw_much", public=True)
    async def draw_much(ctx: Context) -> None:
        ctx.result_file("film.mp4").write_bytes(CONTENT * 50)  # more than the buffers between server and client

    @app.task("draw_in_thread", public=True)
    def draw_in_thread(ctx: Context) -> None:
        ctx.result_file("film.mp4").write_bytes(CONTENT)

    @app.task("fails_after_writing", public=True, max_attempts=1)
    async def fails_after_writing(ctx: Context) -> None:
        ctx.result_file("film.mp4").write_bytes(CONTENT)
        raise RuntimeError("the last frame is missing")

    @app.task("writes_nothing", public=True)
    async def writes_nothing(ctx: Context) -> None:
        ctx.result_file("film.mp4")

    @app.task("links_elsewhere", public=True)
    async def links_elsewhere(ctx: Context) -> None:
        ctx.result_file("film.mp4").symlink_to("/etc/passwd")

    @app.task("two_files", public=True, max_attempts=1)
    async def two_files(ctx: Context) -> None:
        ctx.result_file("a").write_text("a")
        ctx.result_file("b")


@pytest.fixture
async def files(serve):  # type: ignore[no-untyped-def]
    async with serve(add_file_tasks) as started:
        yield started


async def run(api: Api, token: str, task: str, **args: str) -> dict[str, object]:
    """A job from creation to end."""
    async with api.app.worker():
        _, body, _ = await api.ask("POST", "/api/jobs", token, {"jobType": task, "args": args}, Prefer="wait=30")
    return dict(body)


@pytest.mark.parametrize("task", ["draw", "draw_in_thread"])
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


async def test_only_the_owner_downloads(files: Api) -> None:
    ana, bob = await files.token("ana"), await files.token("bob")
    job = await run(files, ana, "draw")
    assert (await files.ask("GET", f"/api/jobs/{job['jobId']}/result", bob))[1]["code"] == "JOB_NOT_FOUND"


@pytest.mark.parametrize(
    ("task", "code"),
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


@pytest.mark.parametrize(("wanted", "status", "content"), RANGES.values(), ids=RANGES.keys())
async def test_one_range_of_a_file(files: Api, wanted: str, status: int, content: bytes) -> None:
    ana = await files.token()
    job = await run(files, ana, "draw")
    answer, body, headers = await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana, Range=wanted)
    assert (answer, body) == (status, content)
    assert int(headers["content-length"]) == len(content)
    assert ("content-range" in headers) == (status == 206)


@pytest.mark.parametrize("wanted", [f"bytes={SIZE}-", "bytes=9-2", "bytes=-0"])
async def test_a_range_outside_of_the_file_is_refused(files: Api, wanted: str) -> None:
    ana = await files.token()
    job = await run(files, ana, "draw")
    status, problem, headers = await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana, Range=wanted)
    assert (status, problem["code"]) == (416, "RANGE_NOT_SATISFIABLE")
    assert headers["content-range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize(
    ("checksum", "digest"),
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


async def test_ten_thousand_ranges_are_answered_at_once(files: Api) -> None:
    ana = await files.token()
    job = await run(files, ana, "draw")
    many = "bytes=" + ",".join("0-1" for _ in range(1500))
    started = time.monotonic()
    assert (await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana, Range=many))[0] in (200, 422)
    assert time.monotonic() - started < 2


# --- nothing from outside of the folder

OUTSIDE = [
    "../secret",
    "../../etc/passwd",
    "/etc/passwd",
    "a/../../secret",
    "./../secret",
    "..",
    ".",
    "",
    "/",
    "//etc/passwd",
    "a//b",
    "a/./b",
    "a/",
    "..\\secret",
    "a\\..\\..\\secret",
    "secret\x00.mp4",
    "%2e%2e/secret",
    "..%2fsecret",
    "%252e%252e%252fsecret",
    "....//secret",
    "..;/secret",
    "~/secret",
    "file:///etc/passwd",
    ".partial/x",
    "a/.partial/b",
    "/proc/self/environ",
    "/dev/stdin",
    "＿/../secret",
    "link/secret",
    "inner/link",
    "inner",
    "pipe",
    # climbing from deeper inside, with and without a way back
    "inner/../../secret",
    "inner/../../exports2/secret",
    "../exports2/secret",
    "../exports/../secret",
    "inner/good/../../../secret",
    "inner/good/..",
    "inner/good/",
    "../exports/inner/link",
    "a/b/c/../../../../secret",
    # absolute, with more slashes and dots
    "///etc/passwd",
    "/./etc/passwd",
    "/../etc/passwd",
    "/etc/../etc/passwd",
    "/proc/self/root/etc/passwd",
    "/proc/self/fd/0",
    "/dev/fd/0",
    # encoded: nothing here is decoded
    "%2e%2e%2f%2e%2e%2fsecret",
    "%2fetc%2fpasswd",
    "..%5csecret",
    "..%c0%afsecret",
    "%00../secret",
    "&#46;&#46;/secret",
    # characters that look like dots and slashes, and such that are not seen
    "．．/secret",
    "..／secret",
    "..∕secret",
    "‥/secret",
    "../secret\u200b",
    "\u202e../secret",
    "../\u0301secret",
    # ends, spaces and control characters
    "../secret\n",
    "../secret ",
    " ../secret",
    "..\t/secret",
    "../secret\r\n.mp4",
    "inner/\x00/../../secret",
    "\x7f../secret",
    # names of other systems
    "C:\\secret",
    "C:../secret",
    "\\\\server\\share\\secret",
    "\\\\?\\C:\\secret",
    "secret:$DATA",
    "http://127.0.0.1/secret",
    "s3://bucket/secret",
    "$HOME/secret",
    "`cat ../secret`",
    "x" * 5000,
    "a/" * 3000 + "b",
    # links, and links on the way
    "link",
    "link/exports2/secret",
    "link/exports/inner/link",
    "inner/link/x",
    "link/..",
    "pipe/x",
]


@pytest.fixture
def trap(tmp_path: Path) -> ResultFolder:
    """A folder with a secret beside it, one whose name begins alike, and links that lead out."""
    root = tmp_path / "exports"
    (root / "inner").mkdir(parents=True)
    (tmp_path / "exports2").mkdir()
    for secret in (tmp_path / "secret", tmp_path / "exports2" / "secret"):
        secret.write_text("SECRET")
    (root / "link").symlink_to(tmp_path)
    (root / "inner" / "link").symlink_to(tmp_path / "secret")
    (root / "inner" / "good").write_text("good")
    os.mkfifo(root / "pipe")
    return ResultFolder(root, 1_000_000)


@pytest.mark.parametrize("uri", OUTSIDE)
def test_no_path_leads_outside_of_the_folder(trap: ResultFolder, uri: str) -> None:
    siblings = (f"{trap.path}2/secret", f"{trap.path}/../secret", f"{trap.path}/link/secret")
    for one in (uri, *siblings):
        with pytest.raises((OutsideOfFolder, OSError)):
            with trap.opened(one):
                pass


def test_the_corpus_of_hostile_paths_has_sixty_different_ones_at_least() -> None:
    assert len(set(OUTSIDE)) == len(OUTSIDE) >= 60


def test_a_path_inside_is_opened_relative_or_absolute(trap: ResultFolder) -> None:
    for uri in ("inner/good", f"{os.path.realpath(trap.path)}/inner/good"):
        with trap.opened(uri) as file:
            assert os.read(file, 100) == b"good"


def test_a_link_that_is_swapped_in_while_reading_leaks_nothing(trap: ResultFolder) -> None:
    target, secret = trap.path / "inner" / "swapped", trap.path.parent / "secret"
    stop, leaks = threading.Event(), []

    def swap() -> None:
        other = trap.path / "inner" / "other"
        while not stop.is_set():
            for make in (lambda: other.write_text("good"), lambda: other.symlink_to(secret)):
                other.unlink(missing_ok=True)
                make()
                os.replace(other, target)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        opened = 0
        deadline = time.monotonic() + 20
        while opened < 300 and time.monotonic() < deadline:
            try:
                with trap.opened("inner/swapped") as file:
                    opened += 1
                    leaks += [1] if b"SECRET" in os.read(file, 100) else []
            except (OutsideOfFolder, FileNotFoundError):
                continue
    finally:
        stop.set()
        swapping.join()
    assert opened > 0
    assert leaks == []


async def test_a_stored_path_that_leads_outside_is_refused_with_400(files: Api) -> None:
    ana = await files.token()
    job = await run(files, ana, "draw")
    table = "rowlock.jobs_finished" if "postgres" in files.app.database else "rowlock_jobs_finished"
    async with files.app.transaction() as transaction:
        await transaction.execute(f"UPDATE {table} SET result_uri = '../../etc/passwd'")
    status, problem, _ = await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana)
    assert (status, problem["code"]) == (400, "INVALID_OUTPUT_PATH")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\\b", "a\nb", "x" * 201, "a\x00b"])
def test_a_name_that_is_no_plain_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        ResultFolder(tmp_path, 100).partial("job", 1, "token", name)


# --- attempts, crashes, retention


def test_a_published_file_is_never_overwritten(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path, 1000)
    for text in ("first", "second"):
        folder.partial("job", 1, text, "a.txt").write_text(text)
    folder.publish("job", 1, "first", "a.txt")
    with pytest.raises(Exception, match="not overwritten"):
        folder.publish("job", 1, "second", "a.txt")
    assert (tmp_path / "job/1/a.txt").read_text() == "first"


def test_a_link_to_a_file_elsewhere_is_not_published(tmp_path: Path) -> None:
    folder, secret = ResultFolder(tmp_path / "results", 1000), tmp_path / "secret"
    secret.write_text("SECRET")
    for link in (os.link, os.symlink):
        written = folder.partial("job", 1, "t", "a")
        link(secret, written)
        with pytest.raises(Permanent) as refused:
            folder.publish("job", 1, "t", "a")
        assert refused.value.code == "INVALID_OUTPUT_PATH"
        assert not (folder.path / "job/1/a").exists()
        written.unlink()


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path, 10)
    for size in (10, 11):
        folder.partial(f"job-{size}", 1, "t", "a").write_bytes(b"x" * size)
    assert folder.publish("job-10", 1, "t", "a").size == 10
    with pytest.raises(Exception, match="11 bytes"):
        folder.publish("job-11", 1, "t", "a")


async def test_an_attempt_that_lost_its_lease_cannot_name_its_file(files: Api) -> None:
    ana = await files.token()
    job_id = await files.create(ana, "hang")
    store = await files.app.store()
    lease = await files.app.claim(job_id)
    assert lease is not None
    assert not await store.run(
        leases.set_result_file(job_id, "00000000-0000-4000-8000-000000000000", "x/1/a", "sha256:")
    )
    assert await store.run(leases.set_result_file(job_id, lease.token, "x/1/a", "sha256:00"))
    await lease.release()
    job = await files.app.job(job_id)
    assert (job.result_uri, job.result_checksum) == (None, None)  # the next attempt starts with nothing


def test_a_file_that_is_swapped_after_it_was_checked_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, secret = ResultFolder(tmp_path / "results", 1000), tmp_path / "secret"
    secret.write_text("SECRET")
    written = folder.partial("job", 1, "t", "a")
    written.write_text("good")
    link = os.link

    def swap(*args: Any, **kwargs: Any) -> None:
        written.unlink()
        link(secret, written)
        link(*args, **kwargs)

    monkeypatch.setattr(os, "link", swap)
    with pytest.raises(Permanent, match="replaced") as refused:
        folder.publish("job", 1, "t", "a")
    assert refused.value.code == "INVALID_OUTPUT_PATH"
    assert not (folder.path / "job/1/a").exists()


async def test_a_file_that_an_attempt_writes_for_hours_is_left_alone_while_its_lease_holds(files: Api) -> None:
    job_id = await files.create(await files.token(), "hang")
    lease = await files.app.claim(job_id)
    assert lease is not None
    written = files.app.results.partial(job_id, lease.attempt, lease.token, "film.mp4")
    written.write_text("half of it")
    other = files.app.results.partial(job_id, lease.attempt, "00000000-0000-4000-8000-000000000000", "film.mp4")
    other.write_text("of an attempt that lost its lease")
    old = time.time() - 7200
    for path in (written.parent, other.parent):
        os.utime(path, (old, old))
    tidy = ResultTidy(await files.app.store(), files.app.results, abandoned_seconds=3600)
    await tidy.round()
    assert written.exists()
    assert not other.parent.exists()
    await lease.release()
    await tidy.round()
    assert not written.parent.exists()


async def test_a_file_that_is_published_while_old_ones_are_removed_stays(
    files: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator retries a dead job in the moment in which the folders of its dead attempts are looked at."""
    ana = await files.token()
    job_id = str((await run(files, ana, "fails_after_writing"))["jobId"])
    root, store = files.app.results.path, await files.app.store()
    stray = root / job_id / "1"
    stray.mkdir(parents=True)
    (stray / "film.mp4").write_text("late")
    old = time.time() - YOUNG_SECONDS - 60
    os.utime(root / job_id, (old, old))

    async def run_and_publish(operation: Any, run: Any = store.run) -> Any:
        answer = await run(operation)
        if operation.name == "result_files":
            files.app.results.partial(job_id, 2, "t", "film.mp4").write_text("new")
            files.app.results.publish(job_id, 2, "t", "film.mp4")
        return answer

    monkeypatch.setattr(store, "run", run_and_publish)
    await ResultTidy(store, files.app.results, abandoned_seconds=3600).round()
    monkeypatch.undo()
    assert not stray.exists()
    assert (root / job_id / "2" / "film.mp4").read_text() == "new"


async def test_a_file_that_cannot_be_opened_now_is_not_called_gone(files: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = await files.token()
    job = await run(files, ana, "draw")

    def none_left(*_: Any, **__: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("rowlock.client.results._open", none_left)
    status, problem, headers = await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana)
    assert (status, problem["code"], "retry-after" in headers) == (503, "RESULTS_UNAVAILABLE", True)


async def test_a_download_goes_on_when_its_file_is_removed_and_its_job_is_gone(files: Api) -> None:
    ana = await files.token()
    job = await run(files, ana, "draw_much")
    headers = {"Authorization": f"Bearer {ana}"}
    async with files.http.get(f"{files.url}/api/jobs/{job['jobId']}/result", headers=headers) as answer:
        content = await answer.content.readexactly(1000)
        table = "rowlock.jobs_finished" if "postgres" in files.app.database else "rowlock_jobs_finished"
        async with files.app.transaction() as transaction:
            await transaction.execute(f"DELETE FROM {table}")
        shutil.rmtree(files.app.results.path / str(job["jobId"]))
        content += await answer.read()
    assert hashlib.sha256(content).hexdigest() == str(job["checksum"]).removeprefix("sha256:")
    assert (await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana))[1]["code"] == "JOB_NOT_FOUND"


async def test_downloads_that_break_off_leave_no_file_open(files: Api) -> None:
    ana = await files.token()
    job = await run(files, ana, "draw_much")
    address = urlsplit(files.url)
    head = f"GET /api/jobs/{job['jobId']}/result HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ana}\r\n\r\n"
    for number in range(12):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(head.encode())
        if number % 2:
            await reader.readexactly(10)
        writer.transport.abort()

    def still_open() -> list[str]:
        links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
        return [target for link in links if "film.mp4" in (target := _target(link))]

    async with asyncio.timeout(20):
        while still_open():
            await asyncio.sleep(0.05)


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


async def test_files_go_with_their_jobs_and_never_before(files: Api) -> None:
    ana = await files.token()
    kept, gone = await run(files, ana, "draw"), await run(files, ana, "draw")
    root = files.app.results.path
    stray = root / str(kept["jobId"]) / "7"  # an attempt that published and died before it was settled
    stray.mkdir()
    (stray / "film.mp4").write_text("late")
    waiting = await files.create(ana, "hang")
    (root / waiting / "1").mkdir(parents=True)
    (root / "notes").mkdir()  # somebody else's
    partial = files.app.results.partial("job", 1, "dead", "a")
    table = "rowlock.jobs_finished" if "postgres" in files.app.database else "rowlock_jobs_finished"
    async with files.app.transaction() as transaction:
        await transaction.execute(f"DELETE FROM {table} WHERE id = '{gone['jobId']}'")
    tidy = ResultTidy(await files.app.store(), files.app.results, abandoned_seconds=3600)
    await tidy.round()
    assert (root / str(gone["jobId"])).exists()  # too young
    old = time.time() - YOUNG_SECONDS - 60
    for path in (*root.iterdir(), partial.parent):
        os.utime(path, (old, old))
    await tidy.round()
    assert sorted(path.name for path in root.iterdir()) == sorted([PARTIAL, str(kept["jobId"]), waiting, "notes"])
    assert [path.name for path in (root / str(kept["jobId"])).iterdir()] == ["1"]
    assert not partial.parent.exists()
    assert (await files.ask("GET", f"/api/jobs/{kept['jobId']}/result", ana))[0] == 200
    await asyncio.sleep(0)
