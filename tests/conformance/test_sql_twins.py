"""The same random calls through the SQL functions and through Python, in two databases whose rows must stay equal.

`test_model.py` plays the functions against a model of a plain job. Here there is no model: Python's store says what is
right, also about keys, chosen ids, batches, follow-ups and sources, and every column of every table that the functions
write is compared after each call.
"""

import asyncio
import dataclasses
import json
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, cast

import pytest

from rowlock.core.errors import BatchNotFound, LeaseLost, NotAllowed, StoreError
from rowlock.core.job import Claimed, NewJob
from rowlock.core.options import to_json
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Lost, Released, Succeeded, TimedOut
from rowlock.core.policy import fixed
from rowlock.core.times import FakeClock
from rowlock.store import Store, batches, open_store
from rowlock.store.engine.store import StoreOptions
from rowlock.store.jobs import cancel as cancels
from rowlock.store.jobs import claim, leases, settle
from rowlock.store.jobs import enqueue as enqueue_jobs
from rowlock.store.jobs.enqueue import NewRow
from rowlock.store.sources import sources
from support.files.functions import FunctionRig, FunctionStore, fake_world
from support.rigs.rig import KEEP, Rig, numbered, settlement
from support.rigs.sources import cleared
from support.servers.postgres import PostgresDatabases

DRAW, LEASE = 0.5, 60.0
# Which of these tasks has sources is fixed, because a claim of both kinds may take them in any order.
PLAIN, SOURCED, AFTER_PLAIN, AFTER_SOURCED = "t", "s", "next", "after"
TASKS = (PLAIN, SOURCED, AFTER_PLAIN, AFTER_SOURCED)
SOURCES = ("api:one", "api:two", "api:slow", "domain:example.com")
CHOSEN = [numbered(0xA000 + n) for n in range(4)]  # ids that clients choose
CALLS = {  # and how often each comes
    "enqueue": 6, "claim": 6, "end": 8, "beat": 1, "cancel": 2, "retry": 2, "sweep": 3, "move_clock": 2,
    "make_batch": 1, "seal": 2, "store_a_strange_follow_up": 2,
}  # fmt: skip
ON_END = [None, {"task": "next"}, {"task": "after", "source": "api:two"}, {"no": "task"}]
# What the games must have met to be worth anything.
WANTED = (
    "enqueue: created", "enqueue: older", "enqueue: batch", "enqueue: lost", "succeed: applied", "succeed: duplicate",
    "succeed: lost", "source: applied", "cancel: cancelled", "cancel: cancelling", "follow-up",
)  # fmt: skip
FOLLOW_UPS: list[dict[str, Any] | None] = [
    None,
    {"task": AFTER_PLAIN},
    {"task": AFTER_PLAIN, "priority": -1, "max_attempts": 1, "on_dead": {"task": AFTER_PLAIN, "bare": True}},
    {"task": AFTER_PLAIN, "bare": True, "keep_seconds": 60, "owner": "bo", "on_lost": "dead"},
    {"task": AFTER_SOURCED, "source": "api:one", "tags": ["a"], "delay": 5},
]
# What another program may have stored, past all checks: either engine of the two reads it the same, or leaves it out.
STORED = [
    {"task": AFTER_PLAIN, "batch_id": numbered(0xBEEF), "unique": "until_done", "parent_id": numbered(0xBEEF)},
    {"task": AFTER_PLAIN, "window": 60, "on_success": {"task": AFTER_PLAIN, "unique": "forever"}},
    {"task": AFTER_PLAIN, "priority": 1000}, {"task": AFTER_PLAIN, "colour": "red"}, {"task": "rowlock.webhook"},
    {"queue": "default"}, [], 7, {"task": AFTER_PLAIN, "max_attempts": 3.0, "priority": None},
]  # fmt: skip
ENDS: dict[str, AttemptEnd] = {
    "succeed": Succeeded('{"done": [true, 1.5, "ä"]}'),
    "succeed with nothing": Succeeded(None),
    "fail": Failed("E", "no"),
    "fail for long": Failed("E", "no", backoff=fixed(seconds=100).to_json()),
    "fail soon": Failed("E", "no", after=3.0),
    "permanent": Failed("E", "never", permanent=True),
    "source": Failed("HTTP_503", "down", fault="source"),
    "refusal": Failed("HTTP_429", "slow down", fault="refusal", retry_after=20.0),
    "time out": TimedOut(3),
    "release": Released(0),
    "snooze": Released(20),
    "cancelled": Cancelled(),
    "convicted": Lost(convicted=True),
}
REGISTERED = {"queue": "default", "max_attempts": 2, "keep_seconds": 3600, "on_lost": "dead"}
# What is compared: each row of these as JSON, but for what is decided by chance or by the process that writes.
COMPARED = {
    "jobs_live": "SELECT to_jsonb(t) FROM rowlock.jobs_live t",
    "jobs_finished": "SELECT to_jsonb(t) FROM rowlock.jobs_finished t",
    "attempts": "SELECT to_jsonb(t) FROM rowlock.attempts t",
    "job_keys": "SELECT to_jsonb(t) FROM rowlock.job_keys t",
    "batches": "SELECT to_jsonb(t) FROM rowlock.batches t",
    "batch_counts": """
        SELECT jsonb_build_array(t.batch_id, sum(t.total), sum(t.processed), sum(t.failed), sum(t.cancelled),
                                 sum(t.expired), max(t.last_error_at))
        FROM rowlock.batch_counts t GROUP BY t.batch_id""",
    "sources": "SELECT to_jsonb(t) - 'created_at' FROM rowlock.sources t",
    "events": "SELECT to_jsonb(t) - 'id' - 'at' FROM rowlock.events t",
}
EVERYTHING = " UNION ALL ".join(
    f"SELECT '{name}', CAST(found.row AS text) FROM ({text}) AS found (row)" for name, text in COMPARED.items()
)
NEW_FOLLOW_UPS = """
    SELECT CAST(j.id AS text) FROM rowlock.jobs_live j
    WHERE j.task IN ('next', 'after') AND CAST(j.id AS text) NOT LIKE '00000000-%'
    ORDER BY j.task, j.parent_id, CAST(j.args AS jsonb), j.id"""


class Twins:
    """Two databases: one is used by Python's operations, the other by the SQL functions."""

    def __init__(self, python: str, sql: str) -> None:
        self.loop, self.clock, self.exits = asyncio.new_event_loop(), FakeClock(), AsyncExitStack()
        opened = [self.wait(open_store(url, StoreOptions(clock=self.clock))) for url in (python, sql)]
        self.wait(self.exits.enter_async_context(fake_world(sql)))
        functions: Any = FunctionStore(opened[1], self.clock)
        self.functions = functions
        self.seen = Counter[str]()  # answers, to see that the games are worth anything
        self.python, self.sql = Rig(opened[0], self.clock), FunctionRig(cast(Store, functions), self.clock)

    def wait(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def both(self, what: str, question: Callable[[Rig], Any]) -> Any:
        """Ask both the same; answers what both answered."""
        return self.same(what, lambda: question(self.python), lambda: question(self.sql))

    def same(self, what: str, python: Callable[[], Any], sql: Callable[[], Any]) -> Any:
        answer, other = self._answer(python), self._answer(sql)
        assert other == answer, f"{what}: SQL answers something else than Python"
        if isinstance(answer, dict):
            self.seen.update(f"{what}: {each}" for each in answer.values())
        elif isinstance(answer, str):
            self.seen[f"{what}: {answer}"] += 1
        elif what == "enqueue":
            self.seen.update(f"enqueue: {'created' if created else 'older'}" for _, created in answer)
        return answer

    def _answer(self, question: Callable[[], Any]) -> Any:
        """The answer, or the reason of a refusal."""
        try:
            return self.wait(question())
        except (BatchNotFound, NotAllowed):
            return "batch"
        except LeaseLost:
            return "lost"
        except StoreError as error:
            refused = {"RL004": "batch", "RL006": "lost"}.get(getattr(error.__cause__, "sqlstate", ""))
            if refused is None:
                raise
            return refused

    def rows(self, rig: Rig) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in COMPARED}
        for name, row in self.wait(rig.fetch(EVERYTHING)):
            found[name].append(row)  # as PostgreSQL writes jsonb: one text for one value
        return {name: sorted(rows) for name, rows in found.items()}

    def reset(self) -> None:
        for rig in (self.python, self.sql):
            self.wait(cleared(rig))
        registered = "INSERT INTO {t}tasks (name, source_derived, options, updated_at) VALUES ($1, FALSE, $2, $3)"
        values = (AFTER_PLAIN, json.dumps(REGISTERED), self.clock.now())
        self.both("register", lambda rig: rig.fetch(registered, *values))
        for name, policy in (("api:one", {"concurrency": 1}), ("api:slow", {"rate_limit_per_minute": 6, "burst": 2})):
            self.both("set", lambda rig, name=name, policy=policy: rig.store.run(sources.set_policy(name, policy)))

    def close(self) -> None:
        self.wait(self.exits.aclose())
        for rig in (self.python, self.sql):
            self.wait(rig.store.close())
        self.loop.close()


def _differing(python: list[str], sql: list[str]) -> str:
    """For a reader of the failure: the columns in which the first rows differ."""
    if not python or not sql or not isinstance(json.loads(python[0]), dict):
        return f"Python alone has {python[:1]}, SQL alone has {sql[:1]}"
    one, other = json.loads(python[0]), json.loads(sql[0])
    return "; ".join(f"{name}: Python {one[name]!r}, SQL {other[name]!r}" for name in one if one[name] != other[name])


class Game:
    """Random calls, the same to both."""

    def __init__(self, twins: Twins, seed: int) -> None:
        self.twins, self.chance, self.log = twins, random.Random(seed), list[str]()
        self.made = self.tokens = 0
        self.batches: list[str] = []
        self.leases: list[tuple[Claimed, Claimed]] = []  # every lease there ever was, as either claim brought it
        self.unended: list[tuple[Claimed, Claimed]] = []  # those that no call has ended
        twins.reset()

    def play(self, steps: int) -> None:
        names = list(CALLS)
        for name in self.chance.choices(names, [CALLS[name] for name in names], k=steps):
            self.log.append(name)
            getattr(self, name)()
            self.compare()

    def next_id(self) -> str:
        self.made += 1
        return str(numbered(self.made))

    def any_id(self, where: str) -> str:
        """The id of a job that fits, mostly; any other, sometimes."""
        fits = f"SELECT CAST(id AS text) FROM {{t}}jobs WHERE {where} ORDER BY id"
        found = [row[0] for row in self.twins.wait(self.twins.python.fetch(fits))]
        strange = [*CHOSEN, *(str(numbered(n + 1)) for n in range(self.made))]
        return str(self.chance.choice(found if found and self.chance.random() < 0.8 else strange))

    def token(self) -> str:
        self.tokens += 1
        return str(uuid.UUID(int=self.tokens, version=4))

    def any_leases(self, most: int) -> list[tuple[Claimed, Claimed]]:
        """Leases of different jobs, mostly such as nobody has ended yet."""
        pool = self.unended if self.unended and self.chance.random() < 0.75 else self.leases
        found = {pair[0].id: pair for pair in self.chance.choices(pool, k=self.chance.randint(1, most)) if pool}
        return list(found.values())

    # --- making jobs

    def enqueue(self) -> None:
        chance, task = self.chance, self.chance.choice([PLAIN, PLAIN, SOURCED])
        given: dict[str, Any] = {
            "priority": chance.randint(-1, 1), "delay": chance.choice([0, 0, 0, 5]),
            "max_attempts": chance.randint(1, 3), "on_lost": chance.choice([None, None, "dead"]),
            "owner": chance.choice([None, "ana", "bo"]),
            "backoff": fixed(seconds=10), "tags": chance.choice([(), ("x", "y")]),
            "keep_seconds": chance.choice([None, 0.5]), "timeout_seconds": chance.choice([None, 9.5]),
        }  # fmt: skip
        for way in ("on_success", "on_dead"):
            follow_up = chance.choice(FOLLOW_UPS)
            given[way] = None if follow_up is None else json.dumps(follow_up)
        if chance.random() < 0.15:
            given["expires_at"] = self.twins.clock.now() + timedelta(seconds=chance.choice([4, 30]))
        if self.batches and chance.random() < 0.5:
            given["batch_id"] = chance.choice([*self.batches[-3:]] * 5 + [numbered(0xBEEF)])
        unique = chance.choice([None, None, None, None, "until_done", "while_queued", "forever", "window"])
        if unique is not None:
            given |= {"unique": unique, "window": 60.0 if unique == "window" else None}
        lease = chance.choice(self.leases[-6:]) if self.leases and chance.random() < 0.2 else None
        if lease is not None:
            given["parent_id"] = lease[0].id
        new, rows, keys = NewJob(task, **given), list[tuple[NewRow, str | None]](), dict[str, str]()
        for _ in range(chance.randint(1, 3)):
            key = chance.choice("abc") if unique is not None else None
            chosen = chance.choice([*CHOSEN, *[None] * 8])
            if chosen is not None and key is not None and keys.setdefault(chosen, key) != key:
                continue  # one id with two keys is refused in SQL; in Python, chosen ids come one by one
            source = chance.choice(SOURCES) if task == SOURCED else None
            rows.append((NewRow(self.next_id(), json.dumps({"n": self.made}), key, source), chosen))
        self.twins.same(
            "enqueue", lambda: self.enqueue_in_python(rows, new, lease), lambda: self.enqueue_in_sql(rows, new, lease)
        )

    async def enqueue_in_python(self, rows: Sequence[tuple[NewRow, str | None]], new: NewJob, lease: Any) -> list[Any]:
        store, held, answers = self.twins.python.store, lease and (lease[0].id, lease[0].token), list[Any]()
        for row, chosen in rows:
            if chosen is None:
                answers += await store.run(enqueue_jobs.enqueue_rows([row], new, held, held is not None))
            else:
                one = dataclasses.replace(new, source=row.source)
                answers += await store.run(
                    enqueue_jobs.enqueue_once(chosen, row.args, one, row.key, held, held is not None)
                )
        return answers

    async def enqueue_in_sql(self, rows: Sequence[tuple[NewRow, str | None]], new: NewJob, lease: Any) -> list[Any]:
        options = to_json(new)
        if lease is not None:
            del options["parent_id"]
            options["under"] = {"job_id": lease[1].id, "token": lease[1].token}
        elements = [
            {"args": json.loads(row.args), "key": row.key, "source": row.source, "job_id": chosen}
            for row, chosen in rows
        ]  # fmt: skip
        return await self.call(
            "SELECT CAST(job_id AS text), created FROM rowlock.enqueue_many($1, $2::text::jsonb, $3::text::jsonb)",
            new.task, json.dumps(elements), json.dumps(options), ids=[row.id for row, _ in rows],
        )  # fmt: skip

    async def call(self, text: str, *values: Any, **world: Any) -> list[Any]:
        rows: list[Any] = await self.twins.functions.call(text, *values, **world)
        return rows

    def make_batch(self) -> None:
        batch_id, on_end = numbered(0xB000 + len(self.batches)), self.chance.choice(ON_END)
        stored = None if on_end is None else json.dumps(on_end)
        self.twins.both("make", lambda rig: rig.store.run(batches.make(batch_id, "b", "ana", stored)))
        self.batches.append(batch_id)

    def seal(self) -> None:
        if self.batches:
            batch_id = self.chance.choice(self.batches[-3:])
            self.twins.both("seal", lambda rig: rig.store.run(batches.seal(batch_id)))
            # What a client in Python does after its commit.
            self.twins.wait(self.twins.python.store.run(batches.end([batch_id])))
            self.twins.wait(self.call("SELECT rowlock._end_batches(ARRAY[CAST($1::text AS uuid)])", batch_id))

    def store_a_strange_follow_up(self) -> None:
        way, stored = self.chance.choice(["on_success", "on_dead"]), json.dumps(self.chance.choice(STORED))
        text = f"UPDATE {{t}}jobs_live SET {way} = $1 WHERE id = $2 AND state <> 'running'"
        job_id = self.any_id("state IN ('queued', 'retryable')")
        self.twins.both("store", lambda rig: rig.fetch(text, stored, job_id))

    # --- running them

    def claim(self) -> None:
        task, worker, token = self.chance.choice(TASKS), self.chance.choice(["w1", "w2"]), self.token()
        sourced = task in (SOURCED, AFTER_SOURCED)  # which source has its turn first is left to chance: take all
        n = 100 if sourced else self.chance.randint(1, 4)
        taken = [
            self.twins.wait(rig.claim(n, task=task, worker=worker, lease=LEASE, under=token))
            for rig in (self.twins.python, self.twins.sql)
        ]  # fmt: skip
        started = sorted({job.batch_id for job in taken[0] if job.batch_id is not None})
        if started:  # what a worker in Python does right after its claim
            self.twins.wait(self.twins.python.store.run(batches.start(started)))
        ids = [[job.id for job in found] for found in taken]
        assert sorted(ids[0]) == sorted(ids[1]), "a claim in SQL takes other jobs"
        assert sourced or ids[0] == ids[1], "a claim in SQL takes jobs in another order"
        other = {job.id: job for job in taken[1]}
        pairs = [(job, other[job.id]) for job in taken[0]]
        self.leases += pairs
        self.unended += pairs

    def end(self) -> None:
        if not self.leases:
            return
        how = self.chance.choice([*ENDS, *["succeed"] * 6])
        pairs, under = self.any_leases(3), self.token() if self.chance.random() < 0.1 else None
        python, sql = (
            [settlement(pair[side], ENDS[how], under=under, draw=DRAW) for pair in pairs] for side in (0, 1)
        )  # fmt: skip

        async def in_sql() -> dict[str, str]:
            end = ENDS[how]
            if not isinstance(end, Succeeded):
                return await self.twins.sql.settle_all(sql)
            done = [(one.job.id, one.job.token, end.result) for one in sql]
            return dict(await self.twins.functions._complete_many(done, DRAW))

        def in_python() -> Any:
            # Of several successes of which some are not applied, `settle` answers `duplicate` for the others.
            one = len(python) == 1
            store = self.twins.python.store
            return settle.settle(store, python, KEEP) if one else store.run(settle.apply(python, KEEP))

        answers = self.twins.same(how, in_python, in_sql)
        self.unended = [pair for pair in self.unended if pair not in pairs or answers[pair[0].id] != "applied"]
        # A worker in Python that had not heard of a cancel leaves the end of the batch to the next sweep.
        batched = {one.job.batch_id for one in python if one.job.batch_id is not None}
        self.twins.wait(self.twins.python.store.run(batches.end(batched)))

    def beat(self) -> None:
        if self.leases:
            mine = [(pair[0].id, pair[0].token) for pair in self.any_leases(3)]
            self.twins.both("beat", lambda rig: rig.store.run(leases.beat(mine, 600)))

    # --- from outside

    def cancel(self) -> None:
        state = self.chance.choice(["running", "running", "queued", "retryable"])
        ids = [self.any_id(f"state = '{state}'") for _ in range(self.chance.randint(1, 3))]
        self.twins.both("cancel", lambda rig: rig.store.run(cancels.cancel(ids, KEEP)))

    def retry(self) -> None:
        ids = [self.any_id("state IN ('dead', 'cancelled')") for _ in range(2)]
        self.twins.both("retry", lambda rig: rig.retry(*ids))

    def move_clock(self) -> None:
        self.twins.clock.move(self.chance.choice([0.5, 5, 11, 61, 61, 700]))

    def sweep(self) -> None:
        async def in_python() -> tuple[int, int, int]:
            store = self.twins.python.store
            lost = await store.run(leases.reclaim([DRAW] * 100, 0, KEEP))
            expired = await store.run(cancels.expire(100, KEEP))
            promoted, _ = await store.run(claim.promote(100))
            await store.run(batches.end(self.batches))
            return len(lost), expired, promoted

        async def in_sql() -> tuple[int, int, int]:
            ((lost, expired, promoted, _),) = await self.call("SELECT * FROM rowlock.sweep(100, 0)")
            return lost, expired, promoted

        self.twins.same("sweep", in_python, in_sql)

    # --- comparing

    def compare(self) -> None:
        self.name_follow_ups()
        python, sql = (self.twins.rows(rig) for rig in (self.twins.python, self.twins.sql))
        for table, rows in python.items():
            python_only, sql_only = sorted(set(rows) - set(sql[table])), sorted(set(sql[table]) - set(rows))
            assert sql[table] == rows, f"{table} differs; {_differing(python_only, sql_only)}"

    def name_follow_ups(self) -> None:
        """Give follow-ups, whose ids are made by chance, the same ids in both."""
        rigs = (self.twins.python, self.twins.sql)
        found = [[row[0] for row in self.twins.wait(rig.fetch(NEW_FOLLOW_UPS))] for rig in rigs]
        assert len(found[0]) == len(found[1]), "not the same number of follow-ups"
        for pair in zip(*found, strict=True):
            name = self.next_id()
            self.twins.seen["follow-up"] += 1
            for rig, made in zip(rigs, pair, strict=True):
                self.twins.wait(rig.fetch("UPDATE {t}jobs_live SET id = $1 WHERE id = $2", name, made))
                self.twins.wait(rig.fetch("UPDATE {t}batches SET end_job = $1 WHERE end_job = $2", name, made))


@pytest.fixture(scope="module")
def twins(postgres_server: PostgresDatabases, template: str) -> Iterator[Twins]:
    names = [f"rowlock_twin_{uuid.uuid4().hex[:12]}" for _ in range(2)]
    pair = Twins(*(postgres_server.create_database(name, template=template) for name in names))
    yield pair
    pair.close()
    for name in names:
        postgres_server.drop_database(name)


def play(twins: Twins, seed: int, steps: int) -> None:
    game = Game(twins, seed)
    try:
        game.play(steps)
    except Exception as error:
        error.add_note(f"seed {seed}, after {len(game.log)} calls: {' '.join(game.log[-10:])}")
        raise


def test_the_functions_leave_the_rows_that_python_leaves(twins: Twins) -> None:
    # The same games on every push; the soak plays new ones.
    for seed in range(6):
        play(twins, seed, steps=150)
    missing = {what for what in WANTED if not twins.seen[what]}
    assert not missing, "these games do not show what they are for"


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_the_functions_leave_the_rows_that_python_leaves_for_long(twins: Twins) -> None:
    ends = time.monotonic() + 300
    while time.monotonic() < ends:
        play(twins, random.randrange(10**9), steps=200)
