"""A worker that carries out the plan of its claims without a database or a clock."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rowlock.core.claiming.actions import Action, Claim, Fill, Look, Peek, Promote, SetIdle, Sleep
from rowlock.core.claiming.plan import PREFETCH_SECONDS, REPOLLS, Plan
from rowlock.core.config import WorkerSettings
from rowlock.core.job import Claimed

POLL_SECONDS = 5.0
BATCH = 50
TEN_FREE = Fill(free=10, waiting=0, unsettled=0)
WALL = 0x0190_0000_0000 / 1000  # seconds; the time of the made-up ids
JOB = Claimed(id="", task="fast")


def new_plan(
    *, in_process: list[str] | None = None, can_be_woken: bool = True, jitter: Callable[[], float] = lambda: 1.0
) -> Plan:
    settings = WorkerSettings(claim_batch_size=BATCH, poll_interval_seconds=POLL_SECONDS, wakeups=can_be_woken)
    return Plan(settings, ["fast"], in_process or [], parallel=True, jitter=jitter)


@dataclass
class Worker:
    """Carries out a plan: `ready` jobs are in the queue, and the next delayed job is due in `due` seconds."""

    plan: Plan
    slots: Fill = TEN_FREE
    ready: dict[str, int] = field(default_factory=dict)  # task -> ready jobs
    due: float | None = None
    now: float = 1000.0
    done: list[Action] = field(default_factory=list)

    def do(self) -> Action:
        """Carry out one action."""
        action = self.plan.next(self.slots, self.now)
        self.done.append(action)
        match action:
            case Claim():
                self.plan.claimed(action, self.take(action), self.now, WALL)
            case Look():
                self.plan.sources.saw(action.ranges, [], action.began, self.now)
            case Peek():
                self.plan.peeked(any(self.ready.values()), self.due, self.now)
            case Promote():
                self.plan.promoted(0, self.due, self.now)
            case SetIdle():
                self.plan.set_idle(action.idle)
        return action

    def take(self, claim: Claim) -> list[Claimed]:
        jobs = list[Claimed]()
        for task in {lane.task: None for lane in claim.ranges}:
            count = min(self.ready.get(task, 0), claim.n - len(jobs))
            self.ready[task] = self.ready.get(task, 0) - count
            jobs += [JOB._replace(task=task, id=f"01900000-0000-7000-8000-{n:012x}") for n in range(count)]
        return jobs

    def until_sleep(self) -> Sleep:
        """Carry out the plan up to an action that lets time pass, and stay at its beginning."""
        for _ in range(50):
            action = self.do()
            if isinstance(action, Sleep) and action.until > self.now:
                return action
        raise AssertionError(f"no sleep after 50 actions: {self.done[-5:]}")

    def until(self, kind: type[Action]) -> Action:
        """Carry out the plan, and let time pass, up to the first action of a kind."""
        for _ in range(200):
            action = self.do()
            if isinstance(action, kind):
                return action
            if isinstance(action, Sleep):
                self.now = max(self.now, action.until)
        raise AssertionError(f"no {kind.__name__} among 200 actions: {self.done[-5:]}")

    def until_drained(self) -> None:
        """Carry out the plan until it sleeps for the poll interval, and forget what was done."""
        while (sleep := self.until_sleep()).until - self.now <= max(REPOLLS):
            self.now = sleep.until
        self.done.clear()

    def fast_returns(self, count: int) -> None:
        """Attempts that took a millisecond have returned, the last ones just now."""
        for _ in range(count):
            self.plan.returned(0.001, self.slots.waiting)

    @property
    def claims(self) -> list[Claim]:
        return [action for action in self.done if isinstance(action, Claim)]


def quick_worker(in_process: list[str] | None = None, returns: int = 40) -> Worker:
    """A worker whose attempts are short, `returns` of them within the last 100 ms: it claims ahead of its slots."""
    worker = Worker(new_plan(in_process=in_process), ready={"fast": 1_000_000})
    worker.do()  # the look for sources
    worker.do()  # the first claim
    worker.fast_returns(returns)
    worker.now += PREFETCH_SECONDS / 2
    worker.done.clear()
    return worker
