"""Child processes of a run: every one is known, bounded in time, and ended whatever happens."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.adapter import read_tally
from bench.catalog import ROOT, Candidate

COMMAND_SECONDS = 180.0
STOP_SECONDS = 20.0


class Broken(RuntimeError):
    """A run that did not do what was asked: no number can come of it."""


def environment(source: str = "") -> dict[str, str]:
    """Ours, without settings that would change Rowlock's defaults; with another Rowlock than the installed one first on
    the path, if `source` names its folder."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ROWLOCK_")}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [source])])}


class Child:
    """One process of a measured system. What it prints goes to files, so that no pipe can fill up."""

    def __init__(self, system: Candidate, arguments: Sequence[str], folder: Path) -> None:
        self.system, self.what = system, f"{system.name} on {system.engine}: {arguments[0]}"
        self._stdout = Path(tempfile.mkstemp(dir=folder, prefix="out-")[1])
        self._stderr = Path(tempfile.mkstemp(dir=folder, prefix="err-")[1])
        with open(self._stdout, "wb") as out, open(self._stderr, "wb") as err:
            self.process = subprocess.Popen(
                [*system.command(), *arguments],
                cwd=ROOT,
                env=environment(system.source),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def said(self) -> list[dict[str, Any]]:
        """The facts printed so far."""
        text = self._stdout.read_text(errors="replace")
        whole = text[: text.rfind("\n") + 1]  # the last line may still be on its way
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def wait(self, seconds: float = COMMAND_SECONDS) -> dict[str, Any]:
        """Wait for its end and return all that it said as one dictionary."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.broken(f"was not done within {seconds:.0f} s") from None
        if code != 0:
            raise self.broken(f"ended with status {code}")
        return {key: value for line in self.said() for key, value in line.items()}

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """Ask it to end, and make it end when it does not."""
        if self.alive:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._forget()

    def kill(self) -> None:
        if self.alive:
            self.process.kill()
            self.process.wait()

    def broken(self, why: str) -> Broken:
        tail = self._stderr.read_text(errors="replace")[-1500:].strip()
        return Broken(f"{self.what} {why}" + (f"; it wrote:\n{tail}" if tail else ""))

    def _forget(self) -> None:
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()


class Worker(Child):
    """A worker process and its tally."""

    def __init__(self, system: Candidate, url: str, folder: Path, concurrency: int, flags: Sequence[str]) -> None:
        slot = tempfile.mkstemp(dir=folder, prefix="slot-")[1]
        self.slot_file, self.latency_file = Path(slot), Path(f"{slot}-latency")
        places = ["--slot-file", slot, "--latency-file", str(self.latency_file)]
        super().__init__(system, ["work", "--url", url, "--concurrency", str(concurrency), *places, *flags], folder)

    @property
    def handled(self) -> int:
        return read_tally(self.slot_file)[0]

    @property
    def first(self) -> float:
        """When the first handler began, on the clock of time.monotonic()."""
        return read_tally(self.slot_file)[1] / 1e9

    def latencies(self) -> list[float]:
        """Seconds from the moment that each job carries to its handler's first line."""
        data = self.latency_file.read_bytes() if self.latency_file.exists() else b""
        return [nanoseconds / 1e9 for nanoseconds in memoryview(data[: len(data) // 8 * 8]).cast("q")]


class Children:
    """Everything that was started and may still run."""

    def __init__(self) -> None:
        self._all: list[Child] = []

    def add(self, child: Child) -> None:
        self._all = [known for known in self._all if known.alive]
        self._all.append(child)

    def end(self) -> None:
        for child in self._all:
            if child.alive:
                child.process.terminate()
        deadline = time.monotonic() + 5
        for child in self._all:
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, deadline - time.monotonic()))
            child.kill()
