"""The SQL functions as a third engine: a PostgreSQL store that does by `rowlock.…` what there is a function for.

An operation that has a function is read back from its arguments and becomes a call of that function; any other goes to
the store as it is. What the functions take from the world (clock, jitter, ids, tokens) is replaced in the test's own
database by settings of the transaction, and put back at the end.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from rowlock.core.errors import BatchNotFound, LeaseLost, NotAllowed
from rowlock.core.job import Claimed, NewJob
from rowlock.core.options import to_json
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Lost, Released, Succeeded, TimedOut
from rowlock.core.times import FakeClock
from rowlock.store import Store
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.statements import parts
from rowlock.store.jobs.claim import Range, in_claim_order
from rowlock.store.jobs.enqueue import NewOrOlder
from support.rigs.rig import KEEP, Ended, Rig, token

SET = "nullif(current_setting('rowlock.test_%s', TRUE), '')"
REPLACED = {
    "_clock()": ("timestamptz", f"RETURN coalesce(CAST({SET % 'now'} AS timestamptz), clock_timestamp());"),
    "_draw()": ("double precision", f"RETURN coalesce(CAST({SET % 'draw'} AS double precision), 0.5);"),
    "_new_token()": ("uuid", f"RETURN coalesce(CAST({SET % 'token'} AS uuid), gen_random_uuid());"),
    "new_id()": ("uuid", "RETURN rowlock.test_id();"),
    "_seen(worker text, tasks text[], queues text[], lease double precision)": ("void", "RETURN;"),
}
# The next of the ids that the test has chosen; any other if there is none.
TEST_ID = """
    CREATE FUNCTION rowlock.test_id() RETURNS uuid LANGUAGE plpgsql AS $$
    DECLARE
        ids text[] := string_to_array(nullif(current_setting('rowlock.test_ids', TRUE), ''), ',');
    BEGIN
        PERFORM set_config('rowlock.test_ids', array_to_string(ids[2:], ','), TRUE);
        RETURN coalesce(CAST(ids[1] AS uuid), gen_random_uuid());
    END $$
"""
PUT_BACK = "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.oid = CAST($1 AS regprocedure)"


@asynccontextmanager
async def fake_world(url: str) -> AsyncIterator[None]:
    """The functions of this database with the test's own clock, chance and ids."""
    connection = await asyncpg.connect(url)
    try:
        before = []
        await connection.execute(TEST_ID)
        for name, (kind, body) in REPLACED.items():
            types = "text, text[], text[], double precision" if name.startswith("_seen") else ""
            before.append(await connection.fetchval(PUT_BACK, f"rowlock.{name.partition('(')[0]}({types})"))
            await connection.execute(
                f"CREATE OR REPLACE FUNCTION rowlock.{name} RETURNS {kind} LANGUAGE plpgsql AS $$ BEGIN {body} END $$"
            )
        yield
        for text in before:
            await connection.execute(text)
        await connection.execute("DROP FUNCTION rowlock.test_id()")
    finally:
        await connection.close()


class FunctionStore:
    """A store whose operations are the SQL functions, where there is one."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self._store, self._clock = store, clock
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, op: Operation[Any]) -> Any:
        does = getattr(self, f"_{op.name}", None)
        if does is not None:
            start: Any = op.start
            answer = does(*start.args, **start.keywords)
            if answer is not None:
                self.called.append(op.name)
                return await answer
        return await self._store.run(op)

    async def call(
        self, sql: str, *args: Any, draw: float = 0.5, under: str = "", ids: Sequence[str] = ()
    ) -> list[Any]:
        """Rows of a query in a transaction with the test's clock, jitter, token and ids."""
        async with self._store.transaction() as tx:
            await self._set(tx, draw, under, ids)
            return [tuple(row) for row in await tx.fetch(sql, *args)]

    async def _set(self, tx: Any, draw: float = 0.5, under: str = "", ids: Sequence[str] = ()) -> None:
        now = self._clock.now().isoformat()
        world = {"now": now, "draw": repr(draw), "token": under, "ids": ",".join(ids)}
        settings = ", ".join(f"set_config('rowlock.test_{name}', ${n}, TRUE)" for n, name in enumerate(world, 1))
        await tx.fetch(f"SELECT {settings}", *world.values())

    # --- each takes what its operation takes, and answers as it does; None: there is no function for this call

    def _enqueue(self, rows: Sequence[tuple[str, str]], new: NewJob) -> Any:
        options = _options(new)
        if options is None or not rows:
            return None
        jobs = [{"args": json.loads(args)} for _, args in rows]

        async def does() -> None:
            await self.call(
                "SELECT * FROM rowlock.enqueue_many($1, $2::text::jsonb, $3::text::jsonb)",
                new.task, json.dumps(jobs), json.dumps(options), ids=[job_id for job_id, _ in rows],
            )  # fmt: skip

        return does()

    def _enqueue_rows(self, rows: Sequence[Any], new: NewJob, lease: Any = None, must_hold: bool = False) -> Any:
        options = _options(new)
        if options is None or (lease and not must_hold):
            return None
        if lease:
            options["under"] = {"job_id": lease[0], "token": lease[1]}
        jobs = [{"args": json.loads(row.args), "key": row.key, "source": row.source} for row in rows]

        async def does() -> list[NewOrOlder]:
            made = await _refused(lambda: self.call(
                "SELECT CAST(job_id AS text), created FROM rowlock.enqueue_many($1, $2::text::jsonb, $3::text::jsonb)",
                new.task, json.dumps(jobs), json.dumps(options), ids=[row.id for row in rows],
            ), new)  # fmt: skip
            return [(str(job_id), bool(created)) for job_id, created in made]

        return does()

    def _enqueue_once(
        self, job_id: str, args: str, new: NewJob, key: str | None = None, lease: Any = None, must_hold: bool = False
    ) -> Any:
        options = _options(new)
        if options is None or lease:
            return None
        job = {"args": json.loads(args), "job_id": job_id} | ({"key": key} if key else {})

        async def does() -> list[NewOrOlder]:
            ((found, created),) = await _refused(lambda: self.call(
                "SELECT CAST(job_id AS text), created FROM rowlock.enqueue_many($1, $2::text::jsonb, $3::text::jsonb)",
                new.task, json.dumps([job]), json.dumps(options),
            ), new)  # fmt: skip
            return [(str(found), bool(created))]

        return does()

    def _claim(self, worker: str, under: str, lanes: Sequence[Range], n: int, lease: float) -> Any:
        names = {lane[:2] for lane in lanes}
        queues, tasks = {queue for queue, _ in names}, {task for _, task in names}
        whole = all(lane == Range(lane.queue, lane.task) for lane in lanes)
        if not whole or len(names) != len(queues) * len(tasks) or not 1 <= n <= 1000 or not 1 <= lease <= 86400:
            return None
        return self.claim(n, sorted(queues), sorted(tasks), worker, lease, under)

    async def claim(
        self, n: int, queues: Sequence[str], tasks: Sequence[str], worker: str, lease: float, under: str
    ) -> list[Claimed]:
        options = json.dumps({"queues": queues, "lease_seconds": lease, "sweep": False})
        async with self._store.transaction() as tx:
            await self._set(tx, under=under)
            claim = "SELECT CAST(c.job_id AS text) FROM rowlock.claim($1, $2, $3, $4::text::jsonb) c"
            ids = [row[0] for row in await tx.fetch(claim, worker, list(tasks), n, options)]
            columns = parts("postgres")["claimed"].rpartition(",")[0] + ", 0.0"  # the last one needs a time
            read = f"SELECT {columns} FROM rowlock.jobs_live WHERE id = ANY (CAST($1::text[] AS uuid[]))"
            rows = [tuple(row) for row in await tx.fetch(read, ids)]
        return in_claim_order(rows, under, worker)

    def _beat(self, leases: Sequence[tuple[str, str]], lease: float) -> Any:
        if not leases or not 1 <= lease <= 86400:
            return None

        async def does() -> set[str]:
            rows = await self.call(
                "SELECT CAST(job_id AS text), answer, lease_expires_at"
                " FROM rowlock.heartbeat('w', $1::text::jsonb, $2)", _leases(leases), float(lease)
            )  # fmt: skip
            until = self._clock.now() + timedelta(seconds=lease)
            return {job_id for job_id, answer, ends in rows if answer != "lost" and ends == until}

        return does()

    def _progress(self, told: Sequence[tuple[str, str, int | None, str | None, str | None]]) -> Any:
        names = ("job_id", "token", "progress", "phase", "message")
        jobs = json.dumps([dict(zip(names, one, strict=True)) for one in told])
        if not told or "\\u0000" in jobs:
            return None

        async def does() -> set[str]:
            rows = await self.call(
                "SELECT CAST(job_id AS text), answer FROM rowlock.progress_many($1::text::jsonb)", jobs
            )
            return {job_id for job_id, answer in rows if answer != "lost"}

        return does()

    def _succeed(self, done: Sequence[tuple[str, str, str | None]], keep: Any, marked: Sequence[Claimed] = ()) -> Any:
        if keep != KEEP or not done or marked:
            return None

        async def does() -> bool:
            answers = await self._complete_many(done)
            return all(answer == "applied" for _, answer in answers)

        return does()

    async def _complete_many(self, done: Sequence[tuple[str, str, str | None]], draw: float = 0.5) -> list[Any]:
        jobs = [
            {"job_id": job_id, "token": held} | ({} if result is None else {"result": json.loads(result)})
            for job_id, held, result in done
        ]
        sql = "SELECT CAST(job_id AS text), answer FROM rowlock.complete_many($1::text::jsonb)"
        return await self.call(sql, json.dumps(jobs), draw=draw)

    def _apply(self, settlements: Sequence[Any], keep: Any) -> Any:
        plain = all(isinstance(one, Ended) and not one.carried for one in settlements)
        if keep != KEEP or not plain or not settlements or len({one.job.id for one in settlements}) < len(settlements):
            return None
        if any(isinstance(one.end, Succeeded) and "\\u0000" in (one.end.result or "") for one in settlements):
            return None  # jsonb holds no NUL: the function refuses it
        if any(isinstance(one.end, Released) and one.end.cause != "asked" for one in settlements):
            return None  # the release of a caller is one that it asked for

        async def does() -> dict[str, str]:
            answers: dict[str, str] = {}
            for one in settlements:
                answers |= dict(await self._end_one(one.job.id, one.job.token, one.end, one.draw))
            return answers

        return does()

    async def _end_one(self, job_id: str, held: str, end: AttemptEnd, draw: float) -> list[Any]:
        if isinstance(end, Succeeded):
            return await self._complete_many([(job_id, held, end.result)], draw)
        verb, options = "fail", dict[str, Any]()
        match end:
            case Failed():
                options = {"error": end.message, "code": end.code, "permanent": end.permanent, "after": end.after,
                           "fault": end.fault, "retry_after": end.retry_after,
                           "backoff": json.loads(end.backoff) if end.backoff else None}  # fmt: skip
            case TimedOut(timeout):
                options = {"outcome": "timed_out", "error": f"timed out after {timeout:g} s"}
            case Cancelled():
                options = {"outcome": "cancelled"}
            case Released(after, reason):
                verb, options = "release", {"delay": after, "reason": reason}
            case Lost():
                assert end.convicted, "only the sweep ends leases that ran out"
                options = {"outcome": "lost"} | ({"error": end.detail} if end.detail else {})
        job = json.dumps([{"job_id": job_id, "token": held} | options])
        sql = f"SELECT CAST(job_id AS text), answer FROM rowlock.{verb}_many($1::text::jsonb)"
        return await self.call(sql, job, draw=draw)

    def _cancel(self, ids: Sequence[str], keep: Any) -> Any:
        if keep != KEEP:
            return None

        async def does() -> dict[str, str]:
            sql = "SELECT CAST(job_id AS text), answer FROM rowlock.cancel_many(CAST($1::text[] AS uuid[]))"
            return dict(await self.call(sql, list(ids)))

        return does()


class FunctionRig(Rig):
    """The rig whose claims take jobs with and without a source by one call."""

    async def claim(
        self, n: int = 1, *lanes: Range, task: str = "t", queue: str = "default", worker: str = "worker-1",
        lease: float = 60.0, under: str | None = None,
    ) -> list[Claimed]:  # fmt: skip
        store: Any = self.store
        claims = store._claim(worker, under or token(), lanes or (Range(queue, task),), n, lease)
        if claims is None:
            return await super().claim(n, *lanes, task=task, queue=queue, worker=worker, lease=lease, under=under)
        return list(await claims)


def _options(new: NewJob) -> dict[str, Any] | None:
    """The options as the function takes them; None if this job cannot be given so, as tests of broken rows want it."""
    try:
        options = to_json(new)
    except ValueError:
        return None
    follow_ups = [options[way] for way in ("on_success", "on_dead") if way in options]
    if not all(isinstance(one, dict) and isinstance(one.get("task"), str) for one in follow_ups):
        return None
    return options


def _leases(leases: Sequence[tuple[str, str]]) -> str:
    return json.dumps([{"job_id": job_id, "token": held} for job_id, held in leases])


async def _refused(call: Callable[[], Any], new: NewJob) -> Any:
    """The errors of Python's store for those of the functions."""
    try:
        return await call()
    except Exception as error:
        text = str(error)
        if "there is no batch" in text:
            raise BatchNotFound(new.batch_id or "") from error
        if any(words in text for words in ("has ended", "is cancelled", "is sealed")):
            raise NotAllowed(text) from error
        if "no longer held" in text:
            raise LeaseLost(text) from error
        raise
