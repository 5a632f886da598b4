"""Keys where the work is done: claims of jobs with a source, a real worker, and what an attempt enqueues itself."""

import uuid
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from rowlock import Context, LeaseLost, Permanent, Rowlock
from support.each import each
from support.rigs.app import app, rig
from support.rigs.rig import Rig
from support.tasks.contract import until, working

__all__ = ["app", "rig"]  # fixtures

YEAR = timedelta(days=365)
KINDS: list[Any] = ["until_done", "while_queued", "forever", YEAR]


@pytest.fixture
def t(app: Rowlock) -> Any:
    @app.task("t")
    async def work(n: int = 0) -> None: ...

    return work


async def test_a_job_with_a_source_lets_go_like_any_other(t: Any, rig: Rig) -> None:
    asked = {kind: t.using(key=str(kind), unique=kind, source=f"api:{n}") for n, kind in enumerate(KINDS)}
    first = {kind: await bound.enqueue() for kind, bound in asked.items()}
    claimed = await rig.claim(10)
    assert len(claimed) == 4
    for kind, bound in asked.items():
        assert (await bound.enqueue()).created == (kind == "while_queued"), kind
    for job in claimed:
        await rig.succeed(job)
    for kind in ("until_done", "forever", YEAR):
        assert (await asked[kind].enqueue()).created == (kind == "until_done"), kind
    assert (await asked["forever"].enqueue()).id == first["forever"].id


async def test_a_worker_releases_the_keys_of_the_jobs_that_it_ends(app: Rowlock) -> None:
    @app.task
    async def work(ctx: Context, how: str, n: int = 0) -> None:
        if how == "dead":
            raise Permanent("no")
        if how == "in a transaction":
            async with ctx.transaction():
                pass

    def asked(how: str, kind: Any, source: str | None) -> Any:
        return work.using(key=f"{how} {kind} {source}", unique=kind, source=source)

    hows, sources = ("plain", "in a transaction", "dead"), (None, "domain:example.com")
    cases = list(product(hows, KINDS, sources))
    first = {case: await asked(*case).enqueue(how=case[0]) for case in cases}

    async def all_over() -> bool:
        return all([(await job.refresh()).record.final for job in first.values()])

    async with working(app):
        await until(all_over)
    for how, kind, source in cases:
        held = kind == YEAR or (kind == "forever" and how != "dead")
        again = await asked(how, kind, source).enqueue(how=how, n=2)
        assert again.created != held, f"{how}: {kind}, source {source}"


@each("options", [{"key": "k"}, {"job_id": str(uuid.uuid4())}], ids=["key", "id"], afresh=True)
async def test_an_attempt_enqueues_with_a_key_or_an_id_only_while_it_holds_its_job(
    app: Rowlock, t: Any, rig: Rig, options: dict[str, Any]
) -> None:
    await t.enqueue()
    (job,) = await rig.claim()
    ctx = Context(app, job)
    made = await ctx.enqueue(t.using(**options))
    again = await ctx.enqueue(t.using(**options))
    assert (made.created, again.created, again.id) == (True, False, made.id)
    await rig.lose(job)
    before = await rig.everything()
    other = {"key": "other"} if "key" in options else {"job_id": str(uuid.uuid4())}
    with pytest.raises(LeaseLost):
        await ctx.enqueue(t.using(**other))
    assert await rig.everything() == before
