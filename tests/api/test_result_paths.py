"""Paths of result files: nothing from outside of the folder is read or published."""

import os
import threading
import time
from pathlib import Path

import pytest

from api.conftest import Api
from api.test_results import run
from rowlock.client.results.folder import ResultFolder
from rowlock.client.results.results import OutsideOfFolder
from support.each import each

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
    # whole paths, of files beside the folder and behind its link
    "{root}2/secret",
    "{root}/../secret",
    "{root}/link/secret",
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


@each("uri", OUTSIDE)
def test_no_path_leads_outside_of_the_folder(trap: ResultFolder, uri: str) -> None:
    with pytest.raises((OutsideOfFolder, OSError)), trap.opened(uri.replace("{root}", str(trap.path))):
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


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_stored_path_that_leads_outside_is_refused_with_400(files: Api) -> None:
    ana = await files.token()
    job = await run(files, ana, "draw")
    table = "rowlock.jobs_finished" if "postgres" in files.app.database else "rowlock_jobs_finished"
    async with files.app.transaction() as transaction:
        await transaction.execute(f"UPDATE {table} SET result_uri = '../../etc/passwd'")
    status, problem, _ = await files.ask("GET", f"/api/jobs/{job['jobId']}/result", ana)
    assert (status, problem["code"]) == (400, "INVALID_OUTPUT_PATH")


@each("name", ["", ".", "..", "a/b", "../x", "a\\b", "a\nb", "x" * 201, "a\x00b", ".partial", "é" * 128, "\ud800"])
def test_a_name_that_is_no_plain_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        ResultFolder(tmp_path, 100).partial("job", 1, "token", name)


@each("name", ["...", ".film", " ", "a%2Fb", ".partial2", "é" * 127 + "x", "x" * 200])
def test_a_file_of_any_name_that_is_taken_can_be_downloaded(tmp_path: Path, name: str) -> None:
    results = ResultFolder(tmp_path, 100)
    results.partial("job", 1, "token", name).write_text("good")
    with results.opened(results.publish("job", 1, "token", name).uri) as file:
        assert os.read(file, 100) == b"good"
