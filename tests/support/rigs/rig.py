"""A store under test with its fake clock, and short words for what tests do to it over and over."""

import itertools
import json
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rowlock.core.claiming.actions import ClaimResult
from rowlock.core.claiming.ranges import PLAIN, Position, QueueTask, Range, Sighting, SourceRange, before_all
from rowlock.core.job import Claimed, NewJob, Settlement
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Lost, Released, Succeeded, TimedOut
from rowlock.core.policy import decide
from rowlock.core.times import FakeClock
from rowlock.store import Store
from rowlock.store.engine.operation import Operation
from rowlock.store.jobs import cancel as cancels
from rowlock.store.jobs import claim, leases
from rowlock.store.jobs import enqueue as enqueue_jobs
from rowlock.store.jobs import retry as retries
from rowlock.store.jobs import settle as transitions
from rowlock.store.jobs.settle import Keep
from rowlock.store.sources import claim as sourced_claim

KEEP = Keep()
LEASE = 60.0
ENDS = [
    Succeeded('{"a": 1}'),
    Failed("E", "no"),
    Failed("E", "no", permanent=True),
    TimedOut(3),
    Cancelled(),
    Released(4),
    Lost(convicted=True),
]
TABLES = (
    "jobs_live",
    "jobs_finished",
    "attempts",
    "job_keys",
    "workers",
    "queues",
    "tasks",
    "set_aside",
    "tokens",
    "requests",
    "events",
    "outbox",
    "tallies",
    "alerts",
    "alert_messages",
    "alert_lease",
)
JSON_COLUMNS = ("args", "tags", "backoff", "result")

# The columns of `jobs`, in the order of the contract.
COLUMNS = [
    "id",
    "task",
    "queue",
    "state",
    "priority",
    "args",
    "owner",
    "source",
    "tags",
    "batch_id",
    "schedule_id",
    "tick",
    "attempt",
    "max_attempts",
    "releases",
    "losses",
    "backoff",
    "timeout_seconds",
    "run_after",
    "expires_at",
    "lease_token",
    "locked_by",
    "locked_at",
    "heartbeat_at",
    "lease_expires_at",
    "settled_token",
    "cancel_requested_at",
    "progress",
    "phase",
    "message",
    "result",
    "result_uri",
    "result_checksum",
    "error_code",
    "error_message",
    "created_at",
    "started_at",
    "finished_at",
    "updated_at",
]


def prefix(store: Store) -> str:
    """What stands before a table's name."""
    return {"postgres": "rowlock.", "sqlite": "rowlock_"}[store.engine]


def numbered(n: int) -> str:
    """The job id that sorts n-th."""
    return f"00000000-0000-7000-8000-{n:012x}"


def token() -> str:
    """A token that nobody holds."""
    return str(uuid.uuid4())


class Rig:
    """One store and its clock."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store, self.clock = store, clock
        self._numbers = itertools.count(1)

    def new_id(self) -> str:
        return numbered(next(self._numbers))

    async def enqueue(self, task: str = "t", args: str = "{}", **options: Any) -> str:
        """Enqueue one job; ids grow in the order of calls."""
        job_id = self.new_id()
        await self.store.run(enqueue_jobs.enqueue([(job_id, args)], NewJob(task=task, **options)))
        return job_id

    async def enqueue_many(self, count: int, task: str = "t", **options: Any) -> list[str]:
        ids = [self.new_id() for _ in range(count)]
        await self.store.run(enqueue_jobs.enqueue([(job_id, "{}") for job_id in ids], NewJob(task=task, **options)))
        return ids

    async def claim(
        self,
        n: int = 1,
        *lanes: Range,
        task: str = "t",
        queue: str = "default",
        worker: str = "worker-1",
        lease: float = LEASE,
        under: str | None = None,
    ) -> list[Claimed]:
        """Claim up to `n` jobs under a fresh token; without lanes, the whole of one task in one queue."""
        wanted, given = lanes or (Range(queue, task),), under or token()
        claimed = await self.store.run(claim.claim(worker, given, wanted, n, lease))
        names = sorted({lane[:2] for lane in wanted})
        if len(claimed) < n and (heads := await self.store.run(look(names, 100))):
            claimed += (await self.store.run(claim_from(worker, given, heads, [], n - len(claimed), lease))).jobs
        return claimed

    async def running(self, worker: str = "worker-1", lease: float = LEASE, **options: Any) -> Claimed:
        """A job under a live lease."""
        job_id = await self.enqueue(**options)
        mine = Range(options.get("queue", "default"), options.get("task", "t"))
        (job,) = [job for job in await self.claim(1000, mine, worker=worker, lease=lease) if job.id == job_id]
        return job

    async def settle(
        self, job: Claimed, end: AttemptEnd, *, under: str | None = None, draw: float = 0.5, keep: Keep = KEEP
    ) -> str:
        """Settle one job as the policy decides; `under` is the token, if not the job's own."""
        return (await self.settle_all([settlement(job, end, under=under, draw=draw)], keep))[job.id]

    async def settle_all(self, settlements: Sequence[Settlement], keep: Keep = KEEP) -> dict[str, str]:
        return dict(await self.store.run(transitions.apply(settlements, keep)))

    async def succeed(self, job: Claimed, result: str | None = None) -> None:
        assert await self.settle(job, Succeeded(result)) == "applied"

    async def reclaim(self, n: int = 100, guard: float = 0.0, draw: float = 0.5) -> list[Settlement]:
        return await self.store.run(leases.reclaim([draw] * n, guard, KEEP))

    async def lose(self, job: Claimed, lease: float = LEASE) -> None:
        """Let the job's lease run out and sweep."""
        self.clock.move(lease + 1)
        assert [lost.job.id for lost in await self.reclaim()] == [job.id]

    async def promote(self, n: int = 100) -> tuple[int, float | None]:
        return await self.store.run(claim.promote(n))

    async def cancel(self, *ids: str) -> dict[str, str]:
        return dict(await self.store.run(cancels.cancel(ids, KEEP)))

    async def retry(self, *ids: str, tries: int = 1) -> set[str]:
        return await self.store.run(retries.retry(ids, tries))

    async def fetch(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Rows of a query; `{t}` is the prefix of the tables."""
        async with self.store.transaction() as tx:
            return [tuple(row) for row in await tx.fetch(sql.replace("{t}", prefix(self.store)), *args)]

    async def rows(self) -> dict[str, dict[str, Any]]:
        """Every job as the view shows it, by id."""
        found = await self.fetch(f"SELECT {', '.join(COLUMNS)} FROM {{t}}jobs ORDER BY id")
        rows = [dict(zip(COLUMNS, map(plain, COLUMNS, row), strict=True)) for row in found]
        assert len({row["id"] for row in rows}) == len(rows), "a job has two rows"
        return {row["id"]: row for row in rows}

    async def row(self, job_id: str) -> dict[str, Any]:
        return (await self.rows())[job_id]

    async def state(self, job_id: str) -> str:
        return str((await self.row(job_id))["state"])

    async def attempts(self, job_id: str) -> list[tuple[int, str, str | None, str | None]]:
        """(attempt, outcome, error code, worker) of each attempt that did not succeed."""
        found = await self.fetch(
            "SELECT attempt, outcome, error_code, worker FROM {t}attempts WHERE job_id = $1 ORDER BY attempt", job_id
        )
        return [(row[0], row[1], row[2], row[3]) for row in found]

    async def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of all tables, for `start_over`."""
        return {table: rows for table in await self._tables() if (rows := await self.fetch(f"SELECT * FROM {table}"))}

    async def start_over(self, contents: dict[str, list[tuple[Any, ...]]]) -> None:
        """Remove all rows and put these back, as if nothing had happened since. The clock goes on."""
        tables = await self._tables()
        if self.store.engine == "postgres":
            used = await self.fetch(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'rowlock'::regnamespace"
                " AND NOT relispartition AND pg_relation_size(oid) > 0"
            )
            names = [table for table in tables if (table.removeprefix("rowlock."),) in used]
            await self.fetch(f"TRUNCATE {', '.join([*names, 'rowlock.jobs_finished'])} RESTART IDENTITY CASCADE")
        async with self.store.transaction() as tx:
            if self.store.engine == "sqlite":
                for table in [*tables, *tables]:  # what a trigger writes about a deleted row goes the second time
                    await tx.fetch(f"DELETE FROM {table}")
            for table, rows in contents.items():
                for row in rows:
                    places = ", ".join(f"${n}" for n in range(1, len(row) + 1))
                    await tx.fetch(f"INSERT INTO {table} VALUES ({places})", *row)

    async def _tables(self) -> list[str]:
        """Every table that has rows of users, not the partitions of one."""
        if self.store.engine == "postgres":
            listed = (
                "SELECT 'rowlock.' || relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
                " AND relnamespace = 'rowlock'::regnamespace ORDER BY 1"
            )
        else:
            listed = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'rowlock_%' ORDER BY 1"
        found = [str(row[0]) for row in await self.fetch(listed)]
        return [
            table for table in found if table.removeprefix(prefix(self.store)) not in ("migrations", "schema_files")
        ]

    async def everything(self, tables: Iterable[str] = TABLES) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of all tables, to see that something changed nothing."""
        return {table: await self.fetch(f"SELECT * FROM {{t}}{table} ORDER BY 1, 2") for table in tables}


class Ended(Settlement):
    """A settlement that remembers from which end and jitter it was decided: the SQL functions decide for themselves."""

    end: AttemptEnd
    draw: float
    carried: dict[str, Any]  # what the job carries beyond what it was claimed with


def settlement(
    job: Claimed, end: AttemptEnd, *, under: str | None = None, draw: float = 0.5, **carried: Any
) -> Settlement:
    made = Ended(job._replace(token=under or job.token, **carried), decide(job, end, draw))
    made.end, made.draw, made.carried = end, draw, carried
    return made


def look(served: Sequence[tuple[str, str]], most: int = 32, after: Position | None = None) -> Operation[list[Sighting]]:
    """The next sources of these (queue, task), from the front or behind a position."""
    return sourced_claim.look([SourceRange(*(after or before_all(QueueTask(*one))), most) for one in served])


def claim_from(
    worker: str, token: str, sightings: Sequence[Sighting], plain: Sequence[Range], n: int, lease: float
) -> Operation[ClaimResult]:
    """Claim jobs of these sources, in this order, plain jobs last."""
    order = [*dict.fromkeys(one.source for one in sightings), PLAIN]
    return sourced_claim.claim_sourced(worker, token, sightings, order, plain, n, lease)


def plain(column: str, value: Any) -> Any:
    """The same value whichever engine it came from: times as datetime, JSON parsed."""
    if column.endswith("_at") or column in ("run_after", "tick"):
        return moment(value)
    if column in JSON_COLUMNS and isinstance(value, str):
        return json.loads(value)
    return value


def moment(value: Any) -> datetime | None:
    """A time from a table (Unix seconds on one engine) or from the view (ISO text there)."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    elif isinstance(value, float):
        value = datetime.fromtimestamp(value, UTC)
    return None if value is None else value.astimezone(UTC)
