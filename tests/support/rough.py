"""Runs the whole suite on a machine that is busy, or that stands still now and then: luck in a test shows.

    python -m support.rough --loops 2          beside two endless loops
    python -m support.rough --stops            test processes are stopped for up to three seconds, again and again
    python -m support.rough --stops tests/api  arguments of pytest, to choose tests or a seed

Run it from the folder tests; `make rough` does. The processes that run tests are stopped and continued by signals, so
that a deadline, a lease or a lock inside of one runs on while it does nothing. What they start is left alone: a test
that kills or stops a process of Rowlock chooses the moment itself.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
WHOLE = ["-n", "auto", "--dist", "loadscope", "--no-loadscope-reorder"]
LONGEST_STOP = 3.0
PAUSE = 2.0  # the longest time between two stops
XDIST = "sys.stdin.readline()"  # in the command line of every process in which xdist runs tests


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Processes that compute for as long as the block lasts, and end with us however we end."""
    code = f"import os\nwhile os.getppid() == {os.getpid()}:\n    sum(range(100_000))"
    loops = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def runners(controller: int) -> list[psutil.Process]:
    """The processes below pytest's controller that run tests, not those that tests have started."""
    try:
        children = psutil.Process(controller).children()
        return [child for child in children if XDIST in " ".join(child.cmdline())]
    except psutil.Error:
        return []


def stop_now_and_then(controller: int, over: threading.Event, choose: random.Random) -> int:
    """Stop one test process after another until the run is over; how many stops there were."""
    stops = 0
    while not over.wait(choose.uniform(0, PAUSE)):
        for process in choose.sample(found := runners(controller), min(1, len(found))):
            try:
                process.send_signal(signal.SIGSTOP)
                over.wait(choose.uniform(0.1, LONGEST_STOP))
                stops += 1
            except psutil.Error:
                continue
            finally:
                if process.is_running():
                    process.send_signal(signal.SIGCONT)
    return stops


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="support.rough", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loops", type=int, default=0, metavar="N", help="run beside N endless loops")
    parser.add_argument("--stops", action="store_true", help="stop test processes for up to three seconds")
    ours, theirs = parser.parse_known_args(arguments)
    over = threading.Event()
    counted: list[int] = []
    with busy_loops(ours.loops):
        # In its own session: the end of a shell hangs up its process groups that have a stopped process.
        command = [sys.executable, "-m", "pytest", *WHOLE, *theirs]
        pytest = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        if ours.stops:
            choose = random.Random()
            stopper = threading.Thread(target=lambda: counted.append(stop_now_and_then(pytest.pid, over, choose)))
            stopper.start()
        try:
            code = pytest.wait()
        except KeyboardInterrupt:
            pytest.send_signal(signal.SIGINT)
            code = pytest.wait()
        over.set()
        if ours.stops:
            stopper.join()
            print(f"test processes were stopped {counted[0]} times for up to {LONGEST_STOP:g} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
