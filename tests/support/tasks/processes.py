"""Tasks that run in child processes, and words for the tests that run them. Children import this module by its name."""

import asyncio
import contextvars
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil

from rowlock import Context, Permanent, Retry, Rowlock, Snooze, fixed
from rowlock.client.context import loose_context
from rowlock.core.job import Claimed
from rowlock.core.policy import PROBATION
from rowlock.store.engine.ids import new_id, new_token
from rowlock.store.jobs import claim as claims
from rowlock.store.jobs.claim import Range
from rowlock.worker.attempt.attempt import LiveAttempt

app = Rowlock()
layers: contextvars.ContextVar[str] = contextvars.ContextVar("layers", default="none")


@app.lifespan
async def resources() -> AsyncIterator[dict[str, Any]]:
    closed = threading.Event()
    threading.Thread(target=closed.wait, name="of a lifespan").start()  # serves every job of the process
    yield {"opened_in": os.getpid()}
    closed.set()
    print("resources closed")


@app.middleware
async def around(ctx: Context, call: Callable[[], Any]) -> Any:
    layers.set(f"around {ctx.task}")
    value = await call()
    return f"wrapped {value}" if ctx.task in ("wrapped", "wrapped_async") else value


@app.on_error
def tell(ctx: Context, error: BaseException) -> None:
    print(f"hook saw {type(error).__name__} in {os.getpid()}")


@app.task(runs_in="process")
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task(runs_in="process")
def pid() -> int:
    return os.getpid()


@app.task(runs_in="process")
async def meets(ctx: Context, folder: str, number: int) -> list[int]:
    """Returns once so many jobs run at the same time."""
    os.close(os.open(os.path.join(folder, ctx.job_id), os.O_CREAT))
    while len(os.listdir(folder)) < number:
        await asyncio.sleep(0.01)
    return [os.getpid(), ctx.resources["opened_in"]]


@app.task
async def pid_anywhere() -> int:
    return os.getpid()


@app.task(runs_in="process")
def wrapped(ctx: Context) -> str:
    return f"{layers.get()} with {ctx.resources['opened_in'] == os.getpid()}"


@app.task(runs_in="process")
async def wrapped_async() -> str:
    return layers.get()


@app.task(runs_in="process")
def reports(ctx: Context, calls: int) -> None:
    for number in range(calls):
        ctx.progress(number * 100 // calls, phase="counting")
    ctx.progress(100, message="counted")


class BrokenCode:
    def __str__(self) -> str:
        raise SystemExit("no code")


@app.task(runs_in="process")
def raises(kind: str) -> None:
    if kind == "exit":
        sys.exit(3)
    if kind == "end of iteration":
        next(iter(()))
    if kind == "permanent":
        raise Permanent("no such page", code="HTTP_404")
    if kind == "retry":
        raise Retry("busy", after=7)
    if kind == "snooze":
        raise Snooze(9, "later")
    if kind == "group":
        raise ExceptionGroup("g", [ValueError("beside"), Permanent("no such page", code="HTTP_404")])
    if kind == "not understood":
        raise Permanent("odd", code=BrokenCode())  # type: ignore[arg-type]
    raise ValueError("boom \ud800")


@app.task(runs_in="process", rules={KeyError: "dead", OSError: fixed(3)})
async def raises_by_rule(final: bool) -> None:
    raise KeyError("gone") if final else OSError("busy")


@app.task(runs_in="process")
async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(10)


@app.task(runs_in="process")
def own_loop() -> str:
    return asyncio.run(asyncio.sleep(0, "ran in a loop of its own"))


@app.task(runs_in="process")
def own_processes() -> int:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(abs, (-5,))


@app.task(runs_in="process")
def unserialisable() -> object:
    return object()


@app.task(runs_in="process")
def signals() -> list[Any]:
    """What this process makes of signals; leaves a handler of its own behind."""
    found = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), signal.pthread_sigmask(0, ())]
    signal.signal(signal.SIGTERM, lambda *_: None)
    return [str(value) for value in found]


@app.task(runs_in="process")
def hangs(file: str, stubborn: bool = False) -> None:
    """Writes its pid and the pid of a process it started, and sleeps for ever."""
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the grandchild inherits it
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(file + ".part").write_text(f"{os.getpid()} {grandchild.pid}")
    Path(file + ".part").rename(file)
    while True:
        time.sleep(600)


@app.task
def waits_for(file: str) -> None:
    """Says that it runs, in another file, and returns once its own is there."""
    Path(f"{file}.{os.getpid()}").touch()
    while not Path(file).exists():
        time.sleep(0.01)


@app.task(runs_in="process")
def kills_itself(number: int) -> None:
    os.write(2, b"last words")
    os.kill(os.getpid(), number)
    time.sleep(60)


@app.task(runs_in="process")
def exits(code: int) -> None:
    os._exit(code)


@app.task(runs_in="process")
def leaves_a_fork_behind(file: str) -> None:
    """Dies while a process that it forked keeps every pipe open."""
    forked = os.fork()
    if forked == 0:
        time.sleep(600)
    Path(file).write_text(f"{os.getpid()} {forked}")
    os._exit(7)


@app.task(runs_in="process")
def leaves_a_thread(ctx: Context, file: str, daemon: bool) -> int:
    """Returns its process, and goes on to report, print and log from a thread until the file is there."""

    def go_on() -> None:
        while not Path(file).exists():
            ctx.progress(99, message="from a thread of an earlier job")
            time.sleep(0.005)

    threading.Thread(target=go_on, name="left", daemon=daemon).start()
    return os.getpid()


@app.task(runs_in="process")
def waits_and_reports(ctx: Context, seconds: float) -> int:
    ctx.progress(1, message="began")
    time.sleep(seconds)
    ctx.progress(2, message="ends")
    return os.getpid()


@app.task(runs_in="process")
def closes(what: str) -> int:
    if what == "stdout":
        sys.stdout.close()
    elif what == "stderr":
        sys.stderr.close()
    elif what == "None instead":
        sys.stdout = None
    elif what == "both descriptors":
        os.close(1)
        os.close(2)
    else:
        with open(what, "w") as file:
            os.dup2(file.fileno(), 1)
    return os.getpid()


@app.task(runs_in="process")
def prints() -> int:
    print("printed")
    print("complained", file=sys.stderr)
    return os.getpid()


@app.task(runs_in="process")
def upsets_its_process(folder: str) -> list[Any]:
    """What it finds here, before it changes all of it."""
    mask = os.umask(0)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1)
    found = [
        os.getcwd(), mask, signal.getitimer(signal.ITIMER_REAL)[0], sorted(signal.pthread_sigmask(0, ())),
        [str(signal.signal(number, lambda *_: None)) for number in numbers],
    ]  # fmt: skip
    os.chdir(folder)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    return found


@app.task(runs_in="process")
def forks(how: str) -> str:
    """Both processes come to the end of this function."""
    if os.fork() == 0:
        logging.getLogger("some.library").warning("logged by the copy")
        print("printed by the copy")
        if how == "raises":
            raise ValueError("in the copy")
        return "the copy's answer"
    os.wait()
    return "the answer"


@app.task(runs_in="process")
async def forks_async() -> str:
    copy = os.fork()
    if copy == 0:
        return "the copy's answer"
    while (ended := os.waitpid(copy, os.WNOHANG)) == (0, 0):  # noqa: ASYNC222 - does not wait
        await asyncio.sleep(0.01)
    return "the answer" if ended == (copy, 0) else f"the copy ended with {ended[1]}"


@app.task(runs_in="process", memory_mb=64)
def eats(megabytes: int) -> int:
    return len(bytearray(megabytes * 2**20))


@app.task(runs_in="process")
def eats_freely(megabytes: int) -> int:
    return len(bytearray(megabytes * 2**20))


@app.task(runs_in="process")
def talks(ctx: Context) -> None:
    print("plain print")
    print("to stderr", file=sys.stderr)
    print("é", "\x1b[31mred\nsecond line")
    os.write(1, b"straight to the descriptor \xff\n")
    subprocess.run(["echo", "from a subprocess"], check=True)
    ctx.log.info("from ctx.log")
    logging.getLogger("some.library").warning("from a library\nin two lines")
    logging.getLogger("some.library").debug("not wanted")
    logging.getLogger("quiet.library").warning("not wanted either")
    print("x" * 20_000)
    print("without an end", end="")


@app.task(runs_in="process")
def floods(lines: int) -> str:
    for number in range(lines):
        print(f"line {number}")
    os.write(1, b"y" * 1_000_000)
    return "dry"


@app.task(runs_in="process")
async def in_transaction(ctx: Context, fail: bool = False) -> str:
    async with ctx.transaction() as tx:
        await tx.execute("CREATE TABLE IF NOT EXISTS done (job TEXT)")
        await tx.execute("INSERT INTO done VALUES ($1)", ctx.job_id)
    if fail:
        raise ValueError("after its transaction block")
    return "kept"


@app.task(runs_in="process")
async def enqueues(ctx: Context) -> str:
    return (await ctx.enqueue(add, a=1)).id


@app.task(runs_in="process", keep_logs=True)
def keeps_lines(ctx: Context, last: str) -> None:
    ctx.log.debug("too small to be kept")
    ctx.log.warning("%s comes first", ctx.job_id)
    ctx.log.info(last)


# --- for the tests


# The row of a job that was lost in its last attempt.
LOST = {"losses": 1, "losses_in_row": 1, "probation": PROBATION}


def claimed(task: str, args: str = "{}", **changes: Any) -> LiveAttempt:
    """An attempt of a job that no database knows."""
    nobody = loose_context(task)._job
    return LiveAttempt(nobody._replace(id=new_id(), token=new_token(), args=args, worker="w", **changes))


async def claim(task: str) -> LiveAttempt:
    """An attempt of a job that was really claimed."""
    store = await app.store()
    found: list[Claimed] = await store.run(claims.claim("w", new_token(), [Range("default", task)], 1, 60.0))
    return LiveAttempt(found[0])


def read_pids(file: Path) -> list[int]:
    """The pids that a task wrote, once it has."""
    wait_until(file.exists)
    return [int(word) for word in file.read_text().split()]


def gone(number: int) -> bool:
    """Whether a process has ended; one that nobody has reaped yet has."""
    try:
        return psutil.Process(number).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Look until it is so; fails when it is not so in time."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


async def until_gone(numbers: list[int]) -> None:
    """Wait until these processes have ended: a signal to a group has been sent before its last process has died."""
    await asyncio.to_thread(wait_until, lambda: all(map(gone, numbers)))
