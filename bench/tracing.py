"""Which functions of the package run on the way of one job, and which of them lie between one step and the next.

A profile function sees every call of the package's functions, in every thread. At each *step* (a statement, the first
line of the user's function, the decision about its outcome) the call stack is kept: those functions had to run for the
step to happen, so they are its *spine*. Where a step runs in another task or thread than the one that asked for it, the
stack of the request comes first. Functions that had returned before the step (a check, a helper) are not on the spine;
those that it called directly, and those that passed the work on by returning a coroutine or an operation, are *beside*
it.
"""

import asyncio
import inspect
import queue
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

LOOP_FILES = ("loops.py",)  # it repeats the rounds of all parts of a worker, and is left out of every path
Actor = object  # a task, or a thread outside of tasks
WOKEN, STARTED, GIVEN = "woken", "started", "given"  # how one actor makes another one do something


@dataclass
class Step:
    """Where the package was when something happened."""

    what: str
    stack: list[FrameType]
    actor: Actor
    thread: Actor = None  # where it ran, if that was a thread which serves many


@dataclass
class Trace:
    """What was seen between two moments."""

    steps: list[Step] = field(default_factory=list)
    requests: dict[Actor, Step] = field(default_factory=dict)  # who last gave work to a task or thread
    calls: dict[CodeType, set[Actor]] = field(default_factory=dict)  # functions that ran, and in what
    frames: dict[int, tuple[int, FrameType]] = field(
        default_factory=dict
    )  # in order of entry; kept, so ids stay unique
    callers: dict[int, int] = field(default_factory=dict)  # frame -> the frame of the package that entered it, by id
    passed_on: set[int] = field(default_factory=set)  # frames that returned a coroutine or an operation to be run

    def beside(self, spine: Collection[FrameType]) -> list[CodeType]:
        """The functions that these ones called, in order of entry: directly, or through functions that pass work on."""
        known = {id(frame) for frame in spine}
        found = list[CodeType]()
        for number, (_, frame) in self.frames.items():
            if self.callers.get(number) in known and number not in known:
                found.append(frame.f_code)
                if number in self.passed_on:
                    known.add(number)
        return found

    def before(self, step: Step) -> list[Step]:
        """The requests that led to a step, first one first."""
        found: list[Step] = []
        seen = {step.actor}
        while (request := self.requests.get(step.actor)) is not None:
            found.insert(0, request)
            if request.actor in seen:
                break
            seen.add(request.actor)
            step = request
        return found


class Tracer:
    """Watches one package. `wanted` names the statements that are steps: it gets the SQL and answers a name or None."""

    def __init__(self, package: Path, wanted: Callable[[str], str | None], user_code: CodeType) -> None:
        self._package, self._wanted, self._user_code = str(package) + "/", wanted, user_code
        self._yielded: dict[int, FrameType] = {}  # by thread: the operation that waits for its statement
        self._waiting: dict[asyncio.Event, set[Actor]] = {}
        self._given: dict[int, Step] = {}  # operations that were given to a thread, by id, and by whom
        self._trace: Trace | None = None
        self._main = threading.get_ident()

    @contextmanager
    def tracing(self) -> Iterator[Trace]:
        """Watch until the block ends. Threads that were started before `watched` are not seen."""
        self._trace = Trace()
        try:
            yield self._trace
        finally:
            self._trace = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Threads and events that are made in the block can be traced."""
        set_, wait, tracer = asyncio.Event.set, asyncio.Event.wait, self

        def traced_set(event: asyncio.Event) -> None:
            for actor in tracer._waiting.get(event, ()):
                tracer._request(WOKEN, actor)
            set_(event)

        async def traced_wait(event: asyncio.Event) -> Any:
            waiting, actor = tracer._waiting.setdefault(event, set()), _actor()
            waiting.add(actor)
            try:
                return await wait(event)
            finally:
                waiting.discard(actor)

        asyncio.Event.set, asyncio.Event.wait = traced_set, traced_wait  # type: ignore[method-assign,assignment]
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            asyncio.Event.set, asyncio.Event.wait = set_, wait  # type: ignore[method-assign]

    def make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> "asyncio.Task[Any]":
        """A task factory: who makes a task, asks for what it does."""
        task = asyncio.Task(work, loop=loop, **more)
        self._request(STARTED, task)
        return task

    def statement(self, sql: str) -> None:
        """To be called where a statement is executed."""
        if self._trace is not None and (what := self._wanted(" ".join(sql.split()))):
            operation = self._yielded.get(threading.get_ident())
            self._step(what, [operation] if operation is not None else [])

    def _step(self, what: str, more: list[FrameType] | None = None) -> None:
        if self._trace is None:
            return
        stack = self._stack() + (more or [])
        frames = self._trace.frames
        stack.sort(key=lambda frame: frames[id(frame)][0] if id(frame) in frames else -1)
        step = Step(what, stack, _actor())
        if threading.get_ident() != self._main:  # a thread serves one request after the other
            giver = next((found for one in operations(stack) if (found := self._given.get(id(one)))), None)
            step.actor, step.thread = (step.actor, id(giver)), step.actor
            if giver is not None:
                self._trace.requests[step.actor] = giver
        self._trace.steps.append(step)

    def _request(self, what: str, actor: Actor) -> None:
        if self._trace is not None and (stack := self._stack()):
            self._trace.requests[actor] = Step(what, stack, _actor())

    def _stack(self, frame: FrameType | None = None) -> list[FrameType]:
        """The package's functions that are running here, or that this frame is in, outermost first."""
        found = []
        frame = frame or sys._getframe(1)
        while frame is not None:
            if self._is_ours(frame.f_code):
                found.append(frame)
            frame = frame.f_back
        return found[::-1]

    def _is_ours(self, code: CodeType) -> bool:
        return code.co_filename.startswith(self._package) and not code.co_filename.endswith(LOOP_FILES)

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        trace = self._trace
        if trace is None:
            return
        code = frame.f_code
        if event == "call":
            if code is self._user_code:
                self._step("user code")
            elif self._is_ours(code):
                trace.calls.setdefault(code, set()).add(_actor())
                if id(frame) not in trace.frames:
                    trace.frames[id(frame)] = (len(trace.frames), frame)
                    if callers := self._stack(frame.f_back):
                        trace.callers[id(frame)] = id(callers[-1])
                if code.co_name == "decide":
                    self._step("decide")
        elif event == "return" and code.co_flags & inspect.CO_GENERATOR and type(arg).__name__ == "Call":
            self._yielded[threading.get_ident()] = frame
        elif event == "return" and (inspect.iscoroutine(arg) or type(arg).__name__ == "Operation"):
            trace.passed_on.add(id(frame))
        elif event == "c_call" and arg.__name__ == "put" and isinstance(arg.__self__, queue.SimpleQueue):
            stack = self._stack()
            for one in operations(stack):
                self._given[id(one)] = Step(GIVEN, stack, _actor())


def operations(stack: list[FrameType]) -> list[Any]:
    """The operations of the store that these functions have in hand."""
    values = [value for frame in stack for value in list(frame.f_locals.values())]
    return [value for value in values if type(value).__name__ == "Operation"]


def _actor() -> Actor:
    """The task that runs, or the thread."""
    loop = asyncio._get_running_loop()
    task = asyncio.current_task(loop) if loop is not None else None
    return task if task is not None else threading.get_ident()
