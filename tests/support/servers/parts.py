"""Programs that tests need and that only a system package, or a venv of their own, brings.

A test names its part with `@pytest.mark.needs("pgbouncer")`. The part is used where it is on PATH; else it is installed
where that is allowed (root, on a system with apt-get); else the test is skipped, and the run ends with a line that says
which tests could not run and how to get the part. With CI=true that line is a failure of the run.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

MISSING = "missing part"  # the property of a test that was skipped for it
INSTALL_SECONDS = 90.0  # below the time limit of one test
SYSTEM_PATH = "/usr/sbin:/sbin"  # where Debian puts servers, and where a user's PATH may not look


@dataclass(frozen=True, slots=True)
class Part:
    """One program, and the Debian package that has it."""

    program: str
    package: str

    def find(self) -> str | None:
        """Its path, if it is here."""
        return shutil.which(self.program, path=f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}")

    def get(self) -> str | None:
        """Its path; installs it if it is not here and that is allowed."""
        found = self.find()
        if found is None and may_install():
            with one_at_a_time(self.program) as note:
                found = self.find()  # another process of this run may have been first
                if found is None and not note.exists():
                    note.write_text(self.install())
                    found = self.find()
        return found

    @property
    def how(self) -> str:
        """How a person gets it."""
        return f"on Debian: apt-get install {self.package}"

    def install(self, seconds: float = INSTALL_SECONDS) -> str:
        """Answers what apt-get said. Nobody is asked anything."""
        quietly = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        script = f"apt-get update -q && apt-get install -q -y --no-install-recommends {self.package}"
        try:
            done = subprocess.run(["sh", "-c", script], env=quietly, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"not done in {seconds:g} s"
        return done.stdout + done.stderr


class OlderServer(Part):
    """The system's PostgreSQL, which Debian keeps off PATH; the tests' own is newer."""

    def find(self) -> str | None:
        """Its path, if it is here: of the oldest version."""
        found = [path for path in Path("/usr/lib/postgresql").glob("*/bin/postgres") if path.parts[-3].isdigit()]
        return str(min(found, key=lambda path: int(path.parts[-3]))) if found else None


class Tool(Part):
    """A program that make installs into a venv of its own, below ours: its `package` is the folder."""

    def find(self) -> str | None:
        """Its path, if it is here."""
        return shutil.which(self.program, path=str(Path(sys.prefix) / self.package / "bin"))

    def get(self) -> str | None:
        """Its path."""
        return self.find()

    @property
    def how(self) -> str:
        """How a person gets it."""
        return "make .venv/.dev"


_ALL = (
    Part("pgbouncer", "pgbouncer"),
    OlderServer("postgres", "postgresql"),
    Part("redis-server", "redis-server"),
    Part("systemd-analyze", "systemd"),
    Tool("openapi-python-client", "client"),
)
PARTS = {part.program: part for part in _ALL}


def may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None and Path("/etc/debian_version").exists()


@contextmanager
def one_at_a_time(program: str) -> Iterator[Path]:
    """A lock between the processes of all runs on this machine, and a file that is there once this run has tried."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    folder = Path(tempfile.gettempdir())
    with open(folder / f"rowlock-parts-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / f"rowlock-parts-{program}-{run}.log"


def summary(missing: Iterable[tuple[str, str]]) -> str | None:
    """The line at the end of a run: `missing` has the program and the test's file for each test that did not run."""
    counted = Counter(missing)
    if not counted:
        return None
    which = []
    for program in sorted({program for program, _ in counted}):
        files = ", ".join(f"{n} in {file}" for (part, file), n in sorted(counted.items()) if part == program)
        which.append(f"{program} is not installed ({files}; {PARTS[program].how})")
    return f"tests that could not run: {'; '.join(which)}"


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("true", "1")


# --- pytest's hooks, for a conftest to import


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        part = PARTS[marker.args[0]]
        if part.get() is None:
            item.user_properties.append((MISSING, part.program))
            pytest.skip(f"{part.program} is not installed")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI somebody counts on every test, so those that could not run fail the run."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    skipped = [(dict(report.user_properties), report.fspath) for report in reporter.stats.get("skipped", [])]
    found = [(properties[MISSING], file) for properties, file in skipped if MISSING in properties]
    if line := summary(found):
        config.add_cleanup(lambda: print(line))  # after pytest's own last line
        if in_ci() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
