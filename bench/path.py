"""`python -m bench.path`: follow one job through the package, from enqueue to settle, and print what a reader meets.

For a plain job, a job with a source, a tick of a schedule, a list in the dashboard and a job behind Redis: how many
functions ran, the spine (see tracing.py) and what a reader opens. With --source the same script follows a job of
another checkout, so that two can be compared. Each is followed three times, and the shortest way is printed: a write
that comes alone is shorter than one that shares its commit with another round of the worker.

A reader *opens* the spine and what it calls: each function of the package that a function on the spine enters directly,
or through one that only passes work on. Left out are functions of up to three lines, which are understood where they
are called; helpers of helpers; special methods, lambdas and comprehensions; signals/, which observes and decides
nothing; and worker/loops.py, which repeats the rounds of all parts of a worker.
"""

import argparse
import ast
import asyncio
import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bench.drivers import apsw_statements, asyncpg_statements
from bench.tracing import WOKEN, Trace, Tracer

ROOT = Path(__file__).parents[1]
SECONDS = 10.0  # longest wait for a job to be settled
AFTERWARDS = 0.05  # for what a worker does once the outcome is written
# What executes statements, whichever they are, is read once for all paths: a folder of its own today, and these files
# of store/ in older checkouts.
ENGINE = re.compile(
    r"^store/(engines/|(operation|queries|engine|session|connect|sqlite|postgres|bells|outage|forking|listener))"
)
STATEMENTS = (  # the first that fits names the step
    ("tick", r"^INSERT INTO rowlock[._]jobs_live.* tick,"),
    ("enqueue", r"INSERT INTO rowlock[._]jobs_live"),
    ("claim", r"UPDATE rowlock[._]jobs_live .*SET state = 'running'"),
    ("settle", r"INSERT INTO rowlock[._]jobs_finished"),
    ("sources", r"^(WITH|SELECT).*rowlock[._]sources"),
    ("publish", r"^redis .*XADD"),
    ("list", r"^(WITH|SELECT).*rowlock[._]jobs"),
)
STEPS = ("enqueue", "claim", "user code", "decide", "settle")
SOURCE_STEPS = (*STEPS, "sources")
REDIS_STEPS = ("enqueue", "claim", "publish", "decide", "settle")
# Each way is the shortest of a few. On SQLite a claim of jobs with a source leaves the worker busy with a second write,
# and in every second try that one and the outcome are one group, which is a hop more.
TRIES, TRIES_BESIDE_WRITES = 3, 12
UNDERSTOOD = 3  # lines of a function that is understood where it is called
OBSERVERS = "signals/"
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
IMPORT = re.compile(r"(from|import)\b")
REPEATED_LINES = 6  # as many equal lines in two places are a repeated passage


@dataclass(frozen=True)
class Way:
    """One way through the package."""

    functions: list[CodeType]
    spine: list[tuple[str, CodeType]]  # (step, function)
    beside: list[CodeType]  # what the functions on the spine called


def main() -> int:
    options = arguments()
    if options.source:
        source = Path(options.source).resolve()
        folder = source if (source / "rowlock").is_dir() else source / "src"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
        rest = ["--postgres"] * options.postgres + ["--brief"] * options.brief
        return subprocess.run([sys.executable, "-m", "bench.path", *rest], cwd=ROOT, env=environment).returncode
    package = Path(str(importlib.import_module("rowlock").__file__)).parent
    with ExitStack() as stack:
        url = database(stack, options.postgres)
        for name, way in asyncio.run(follow(url, package)).items():
            print_way(name, way, package, options.brief)
    print_lines(package)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.path", description=__doc__)
    parser.add_argument("--source", help="a checkout, or the folder its package is in; without it the installed one")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL; without it on SQLite")
    parser.add_argument("--brief", action="store_true", help="only the numbers, not the functions of the spine")
    return parser.parse_args()


def database(stack: ExitStack, postgres: bool) -> str:
    if not postgres:
        return f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory(prefix='rowlock-path-'))}/jobs.db"
    from bench.server import start_server

    return stack.enter_context(start_server()).create_database("path")


# --- what is followed


async def follow(url: str, package: Path) -> dict[str, Way]:
    """Run one of each kind and watch it."""
    from rowlock import Rowlock

    with ExitStack() as stack:
        other_side = remote_side(stack)
        app = Rowlock(settings=settings_of(url, other_side))
        await app.migrate()

        async def work(number: int = 0) -> int:
            return number

        plain = app.task("plain")(work)
        sourced = app.task("sourced", source="path:one")(work)
        remote = app.task("remote", runs_on="redis")(work)
        app.schedule("every 1s", name="tick")(app.task("ticked")(work))
        tracer = Tracer(package, step_of, work.__code__)
        asyncio.get_running_loop().set_task_factory(tracer.make_task)
        stack.enter_context(tracer.watched())
        stack.enter_context(noticed(url, tracer))
        stack.enter_context(redis_commands(tracer))
        write_alone()
        await app.sources.set("path", concurrency=2)
        found: dict[str, Way] = {}
        async with app.worker(pool_size=2) as pool:
            for name, task, steps in (("a plain job", plain, STEPS), ("a job with a source", sourced, SOURCE_STEPS)):
                await until_settled(await task.enqueue())  # loads code, connects, registers
                tries = TRIES if task is plain else TRIES_BESIDE_WRITES
                found[name] = await shortest(tracer, partial(one_job, task), steps, tries, partial(until_idle, pool))
        async with app.dispatcher():
            found["a tick of a schedule"] = await shortest(tracer, partial(until_step, what="tick"), ("tick",))
        ask = await dashboard(app)
        await ask()  # opens its connections
        found["a list in the dashboard"] = await shortest(tracer, lambda trace: ask(), ("list",))
        async with app.bridge():
            answered = asyncio.create_task(answer_requests(other_side))
            found["a job behind Redis"] = await shortest(
                tracer, partial(one_job, remote), REDIS_STEPS, TRIES_BESIDE_WRITES, partial(asyncio.sleep, 0.7)
            )
            answered.cancel()
        await app.close()
    return found


def write_alone() -> None:
    """On SQLite, a small write that comes alone is made by its caller, however slow the disk is at this moment."""
    for name in ("rowlock.store.engine.sqlite.store", "rowlock.store.engines.sqlite_writer"):
        with suppress(ImportError):
            importlib.import_module(name).QUICK_SECONDS = 1.0  # type: ignore[attr-defined]


async def shortest(
    tracer: Tracer,
    happens: Callable[[Trace], Awaitable[Any]],
    steps: Sequence[str],
    tries: int = TRIES,
    until_quiet: Callable[[], Awaitable[Any]] = partial(asyncio.sleep, AFTERWARDS),
) -> Way:
    """The shortest of a few ways."""
    ways = []
    for _ in range(tries):
        await until_quiet()
        with tracer.tracing() as trace:
            await happens(trace)
            await asyncio.sleep(AFTERWARDS)
        ways.append(way_of(trace, steps))
    return min(ways, key=lambda way: (len(way.spine), len(way.beside)))


async def one_job(task: Any, trace: Trace) -> None:
    await task.enqueue(1)
    await until_step(trace, "settle")


async def dashboard(app: Any) -> Callable[[], Awaitable[None]]:
    """What asks the job API for a list of jobs, as an operator."""
    try:
        from rowlock.api.access import tokens
    except ImportError:  # an older checkout
        tokens = importlib.import_module("rowlock.store.tokens")
    secret = tokens.new_secret()
    await (await app.store()).run(tokens.create(secret, None, "operator:read", None))
    served = app.asgi()
    scope = {
        **{"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "root_path": ""},
        **{"path": "/api/operator/jobs", "raw_path": b"/api/operator/jobs", "query_string": b"state=succeeded"},
        **{"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)},
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {secret}".encode())],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise RuntimeError(f"the list was answered with {message['status']}")

    async def ask() -> None:
        await served(dict(scope), receive, send)

    return ask


def remote_side(stack: ExitStack) -> Any:
    """A Redis with nothing in it."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.servers.redis import RedisServer
    from support.web.remote import Remote

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rowlock-path-")))
    server = RedisServer(folder).start()
    stack.callback(server.stop)
    return Remote(server, "path:", folder / "results")


def settings_of(url: str, remote: Any) -> Any:
    from rowlock.core.config import load_settings

    flags = {"database": url, "redis.url": remote.server.url, "redis.prefix": remote.prefix}
    return load_settings(env={}, flags={**flags, "results.path": str(remote.results)})


async def answer_requests(remote: Any) -> None:
    """Be a worker behind Redis: every request succeeds."""
    answered = set[str]()
    while True:
        for request in remote.requests():
            if request["jobId"] not in answered:
                remote.succeed(request)
                answered.add(request["jobId"])
        await asyncio.sleep(0.01)


@contextmanager
def redis_commands(tracer: Tracer) -> Iterator[None]:
    """Show the tracer every command that is sent to Redis."""
    from redis.asyncio.connection import AbstractConnection

    send = AbstractConnection.send_packed_command

    async def traced(connection: Any, command: Any, *more: Any, **named: Any) -> None:
        tracer.statement(f"redis {command!r}")
        await send(connection, command, *more, **named)

    AbstractConnection.send_packed_command = traced  # type: ignore[method-assign]
    try:
        yield
    finally:
        AbstractConnection.send_packed_command = send  # type: ignore[method-assign]


def step_of(sql: str) -> str | None:
    return next((name for name, text in STATEMENTS if re.search(text, sql)), None)


def noticed(url: str, tracer: Tracer) -> AbstractContextManager[None]:
    """Tell the tracer of every statement."""
    if url.startswith("sqlite"):
        return apsw_statements(tracer.statement)

    @contextmanager
    def around(sql: str) -> Iterator[None]:
        tracer.statement(sql)
        yield

    return asyncpg_statements(around)


async def until_idle(pool: Any) -> None:
    """Until the worker's last claim has found nothing; an older checkout does not say so."""
    if not hasattr(pool, "idle"):
        await asyncio.sleep(1.0)
    while not getattr(pool, "idle", True):
        await asyncio.sleep(0.01)
    await asyncio.sleep(AFTERWARDS)


async def until_settled(job: Any) -> None:
    await job.wait(timeout=SECONDS)


async def until_step(trace: Trace, what: str) -> None:
    async with asyncio.timeout(SECONDS):
        while not any(step.what == what for step in trace.steps):
            await asyncio.sleep(0.002)


# --- what was found


def way_of(trace: Trace, wanted: Sequence[str]) -> Way:
    """The functions of the tasks and threads that had a part in these steps; the spine in their order."""
    steps = [step for step in trace.steps if step.what in wanted]
    started = next((number for number, step in enumerate(steps) if step.what == "user code"), len(steps))
    claims = [step for step in steps[:started] if step.what == "claim"]
    actors, spine, known, frames = set(), list[tuple[str, CodeType]](), set[CodeType](), list[FrameType]()
    for step in steps:
        if step.what == "claim" and step is not claims[-1]:
            continue  # one that found nothing
        for part in (*trace.before(step), step):
            actors |= {part.actor, part.thread}
            frames += part.stack
            for frame in part.stack:
                code = frame.f_code
                if code not in known and not is_left_out(code):
                    known.add(code)
                    spine.append(
                        ("wake-up" if step.what in ("claim", "sources") and part.what == WOKEN else step.what, code)
                    )
    ran = [code for code, where in trace.calls.items() if where & actors and code.co_name not in COMPREHENSIONS]
    beside = [code for code in dict.fromkeys(trace.beside(frames)) if code not in known and not is_left_out(code)]
    return Way(ran, spine, beside)


def is_left_out(code: CodeType) -> bool:
    return code.co_name.startswith("__") or code.co_name in COMPREHENSIONS


def opened(way: Way, package: Path) -> list[CodeType]:
    """What a reader opens."""
    beside = [code for code in way.beside if not short(code, package).startswith(OBSERVERS) and "<" not in code.co_name]
    return [code for _, code in way.spine] + [code for code in beside if body_lines(code) > UNDERSTOOD]


def print_way(name: str, way: Way, package: Path, brief: bool) -> None:
    files = {code.co_filename for code in way.functions}
    on_spine = {code.co_filename for _, code in way.spine}
    engine = sum(bool(ENGINE.match(short(code, package))) for _, code in way.spine)
    waking = sum(step == "wake-up" for step, _ in way.spine)
    print(
        f"{name}: {len(way.functions)} functions in {len(files)} files,"
        f" {sum(body_lines(code) for code in way.functions):,} lines of their bodies\n"
        f"  spine: {len(way.spine)} hops ({engine} of them in the engine, {waking} of the wake-up)"
        f" in {len(on_spine)} files of {sum(len(read(file)) for file in on_spine):,} lines,"
        f" {sum(body_lines(code) for _, code in way.spine):,} lines of bodies"
    )
    read_too = opened(way, package)
    print(
        f"  opened by a reader: {len(read_too)} functions in {len({code.co_filename for code in read_too})} files,"
        f" {sum(body_lines(code) for code in read_too):,} lines of bodies"
    )
    own = [code for step, code in way.spine if step != "wake-up" and not ENGINE.match(short(code, package))]
    own_files = {code.co_filename for code in own}
    print(
        f"  without the engine and the wake-up: {len(own)} hops in {len(own_files)} files"
        f" of {sum(len(read(file)) for file in own_files):,} lines"
    )
    before = ""
    for step, code in () if brief else way.spine:
        print(f"    {step if step != before else '':10} {short(code, package):32} {code.co_qualname}")
        before = step
    on_the_spine = {code for _, code in way.spine}
    for code in () if brief else read_too:
        if code not in on_the_spine:
            print(f"    {'beside it':10} {short(code, package):32} {code.co_qualname}")


def short(code: CodeType, package: Path) -> str:
    return Path(code.co_filename).relative_to(package).as_posix()


@cache
def read(file: str) -> list[str]:
    return Path(file).read_text().splitlines()


@cache
def parsed(file: str) -> dict[int, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a file by the line they begin at, as a code object knows it: that of the first decorator."""
    every = ast.walk(ast.parse("\n".join(read(file))))
    found = [node for node in every if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {min([node.lineno, *(one.lineno for one in node.decorator_list)]): node for node in found}


def body_lines(code: CodeType) -> int:
    """Lines of a function's body without its docstring, comments and empty lines; a lambda is one."""
    node = parsed(code.co_filename).get(code.co_firstlineno)
    if node is None:
        return 1
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if not body:
        return 0
    return sum(counts(line) for line in read(code.co_filename)[body[0].lineno - 1 : node.end_lineno])


def counts(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(("#", "--"))


# --- the whole package


def print_lines(package: Path) -> None:
    folders = Counter[str]()
    files = [file for file in sorted(package.rglob("*")) if file.suffix in (".py", ".sql")]
    for file in files:
        inside = file.parent.relative_to(package).as_posix()
        folders[f"{inside if inside != '.' else ''}/*{file.suffix}".lstrip("/")] += len(read(str(file)))
    print("lines of the package")
    for folder, lines in sorted(folders.items()):
        print(f"    {folder:36} {lines:6,}")
    print(f"    {'together':36} {folders.total():6,}")
    print(f"    {repeated(files):,} lines are in passages of {REPEATED_LINES} lines or more that stand in two places")


def repeated(files: Sequence[Path]) -> int:
    """Lines that are part of a passage which stands in another place, too. Imports and signs alone do not count."""
    places: dict[tuple[str, ...], list[set[tuple[Path, int]]]] = {}
    for file in files:
        lines = [(number, line.strip()) for number, line in enumerate(read(str(file))) if counts(line)]
        lines = [(number, line) for number, line in lines if re.search(r"\w", line) and not IMPORT.match(line)]
        for start in range(len(lines) - REPEATED_LINES + 1):
            passage = lines[start : start + REPEATED_LINES]
            key = tuple(line for _, line in passage)
            places.setdefault(key, []).append({(file, number) for number, _ in passage})
    return len(set().union(*(set().union(*found) for found in places.values() if len(found) > 1)))


if __name__ == "__main__":
    sys.exit(main())
