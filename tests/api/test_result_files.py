"""Result files on the disk: attempts that race, files that are swapped or vanish, and what removes old ones."""

import asyncio
import errno
import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from api.conftest import Api
from api.test_results import run
from rowlock import Permanent
from rowlock.client.results.folder import ResultFolder
from rowlock.client.results.results import PARTIAL
from rowlock.store.jobs import leases
from rowlock.worker.upkeep.result_files import YOUNG_SECONDS, ResultTidy


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
    assert folder.publish("job-10", 1, "t", "a").uri == "job-10/1/a"
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


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_file_that_cannot_be_opened_now_is_not_called_gone(files: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = await files.token()
    job = await run(files, ana, "draw")

    def none_left(*_: Any, **__: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("rowlock.client.results.folder._open", none_left)
    status, problem, headers = await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana)
    assert (status, problem["code"], "retry-after" in headers) == (503, "RESULTS_UNAVAILABLE", True)


@pytest.mark.parametrize("engine", ["sqlite"])
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


@pytest.mark.parametrize("engine", ["sqlite"])
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

    deadline = time.monotonic() + 20  # the server notices a little later that the clients have left
    while still_open() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert still_open() == []
    status, content, _ = await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana)
    assert (status, f"sha256:{hashlib.sha256(content).hexdigest()}") == (200, job["checksum"])


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
