"""What operators do on the command line is in the audit: written with the change, in one transaction, and without
secrets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from cli.command import Inside
from rowlock import Rowlock
from rowlock.store import audit
from support.each import each

T = TypeVar("T")


def on_database(work: Callable[[Rowlock], Awaitable[T]]) -> T:
    """Do something with the database of the command, which the environment names."""

    async def opened() -> T:
        async with Rowlock() as app:
            return await work(app)

    return asyncio.run(opened())


def entries() -> list[audit.AuditEntry]:
    """The audit, oldest first."""
    return on_database(lambda app: app.perform(audit.entries(20)))[::-1]


def test_a_token_that_is_created_and_revoked_is_in_the_audit_without_its_secret(inside: Inside) -> None:
    token = inside.json("tokens", "create", "--owner", "ana")
    inside.out("tokens", "revoke", token["token"])
    inside.error("tokens", "revoke", token["token"], code=3)
    created, revoked = entries()
    assert (created.action, created.target) == ("tokens.create", token["id"])
    assert created.details == {"owner": "ana", "scope": "jobs"}
    assert (revoked.action, revoked.target) == ("tokens.revoke", token["id"])
    assert token["token"][:20] not in repr([created, revoked])


def test_a_login_link_is_in_the_audit_without_its_secret(inside: Inside) -> None:
    links = [inside.out("login-link", *more) for more in (["--owner", "ana"], ["--read-only"])]
    found = entries()
    assert [(one.action, one.target, one.details) for one in found] == [
        ("login_links.create", "ana", {"scope": "jobs"}),
        ("login_links.create", "operator:read", {"scope": "operator:read"}),
    ]
    assert not any(link.partition("#once=")[2] in repr(found) for link in links)


def test_the_secret_of_webhooks_is_not_in_the_audit_and_its_rotation_is(inside: Inside) -> None:
    secret = inside.out("webhooks", "secret", "rotate", "--owner", "ana")
    (entry,) = entries()
    assert (entry.action, entry.target) == ("webhooks.rotate", "ana")
    assert secret not in repr(entry)


CHANGES = [
    ["sources", "pause", "api:shop"],
    ["sources", "set", "api:shop", "--concurrency", "1"],
    ["schedules", "pause", "nightly"],
    ["schedules", "remove", "nightly"],
    ["schedules", "run", "nightly"],
    ["schedules", "add", "weekly", "add", "--every", "7d", "--defaults"],
    ["queues", "pause", "default"],
    ["batches", "cancel", "{batch}"],
    ["tokens", "create", "--owner", "ana"],
    ["login-link"],
    ["enqueue", "add", "--defaults"],
]
STATE = (
    "SELECT * FROM rowlock_sources",
    "SELECT id, paused_at FROM rowlock_schedules",
    "SELECT name FROM rowlock_queues WHERE paused_at IS NOT NULL",
    "SELECT cancelled_at FROM rowlock_batches",
    "SELECT id FROM rowlock_tokens",
    "SELECT id, state FROM rowlock_jobs",
)


async def state(app: Rowlock) -> list[list[Any]]:
    """What these commands would change."""
    return [[tuple(row) for row in await app.fetch(sql)] for sql in STATE]


@pytest.fixture
def batch(inside: Inside) -> str:
    """A batch, in a database whose audit takes no entry more."""

    async def prepare(app: Rowlock) -> str:
        @app.task("add")
        async def add(a: int = 0) -> None: ...

        await app.sources.set("api:shop", concurrency=5)
        await app.schedules.add("nightly", add, cron="0 3 * * *")
        async with app.batch("import") as batch:
            await add.using(batch=batch).enqueue(a=1)
        async with app.transaction() as transaction:
            await transaction.execute(
                "CREATE TRIGGER full BEFORE INSERT ON rowlock_audit BEGIN SELECT RAISE(ABORT, 'the audit is full'); END"
            )
        return batch.id

    return on_database(prepare)


@each("words", CHANGES, ids=" ".join)
def test_a_change_that_cannot_be_written_into_the_audit_is_not_made(
    inside: Inside, batch: str, words: list[str]
) -> None:
    before = on_database(state)
    assert "the audit is full" in inside.error(*(word.format(batch=batch) for word in words), code=1)
    assert on_database(state) == before


def test_a_job_that_is_enqueued_is_in_the_audit_once(inside: Inside) -> None:
    words = ["enqueue", "add", "a=1", "--defaults", "--key", "k"]
    job = inside.json(*words)
    assert inside.json(*words)["created"] is False, "nothing was created"
    (entry,) = entries()
    assert (entry.action, entry.target, entry.details) == ("jobs.create", job["id"], {"task": "add"})
