"""What a web tier calls: accounts, orders, cancels. Money and job change in one transaction, or neither does."""

from __future__ import annotations

import unicodedata

from rowlock import JobHandle, JobNotFound, Session
from rowlock_apps.stickers import ledger
from rowlock_apps.stickers.app import app, draw, give_back
from rowlock_apps.stickers.ledger import NoCredit

__all__ = ["BadRequest", "NoCredit", "UnknownUser", "cancel", "credits_of", "open_account", "submit", "top_up"]

LONGEST_PROMPT = 200
LONGEST_NAME = 200
MOST_CREDITS = 1_000_000  # at a time
MOST_HELD = 2_000_000_000  # most credits of one user; the column holds more, so that a refund always fits


class BadRequest(ValueError):
    """The request is invalid; nothing was charged."""


class UnknownUser(LookupError):
    """No account of that name."""

    def __init__(self, user: object) -> None:
        super().__init__(f"no user {user!r}; open_account() makes one")


async def open_account(user: str, credits: int = 0) -> None:
    """Create an account with some credits; an existing one is not changed."""
    _checked_name(user, "a user's name")
    if credits != 0:
        _checked_amount(credits)
    async with app.transaction() as tx:
        made = await tx.fetch(
            "INSERT INTO stickers_users (id, credits) VALUES ($1, 0) ON CONFLICT (id) DO NOTHING RETURNING id", user
        )
        if made and credits:
            await ledger.grant(tx, user, credits)


async def top_up(user: str, credits: int) -> None:
    """Credits that the user has bought."""
    _checked_amount(credits)
    async with app.transaction() as tx:
        if await _lock(tx, user) + credits > MOST_HELD:
            raise BadRequest(f"user {user!r} would have more than {MOST_HELD:,} credits")
        await ledger.grant(tx, user, credits)


async def credits_of(user: str) -> int:
    """How many stickers the user can still order."""
    if not _is_name(user):
        raise UnknownUser(user)
    async with app.transaction() as tx:
        rows = await tx.fetch("SELECT credits FROM stickers_users WHERE id = $1", user)
    if not rows:
        raise UnknownUser(user)
    return int(rows[0][0])


async def submit(
    user: str, prompt: str, *, request_id: str | None = None, wait_seconds: float = 0.0
) -> JobHandle[dict[str, str]]:
    """Take a credit and order a sticker. A second call with this `request_id` returns the first call's job and never
    takes another credit. Raises UnknownUser, NoCredit, BadRequest; JobNotFound when that first job is past its
    retention."""
    prompt = _checked_prompt(prompt)
    if request_id is not None:
        _checked_name(request_id, "request_id")
    async with app.transaction() as tx:
        await _lock(
            tx, user
        )  # orders of one user run one after the other, so the second request of a double click finds the first
        first = await _ordered(tx, user, prompt, request_id)
        if first is None:
            job = await draw.using(owner=user).enqueue(prompt=prompt, wait_seconds=wait_seconds)
            await _order(tx, user, prompt, request_id, job.id)
            return job
    return await app.job(first)


async def cancel(user: str, job_id: str) -> str:
    """Stop an order and give its credit back once, however often this is called: `cancelled` at once when it waits, and
    when it was cancelled before; `cancelling` when it is being drawn. Raises JobNotFound (as for another user's) and
    NotAllowed (when it is drawn or has failed)."""
    job = await app.job(job_id)
    if (job.task, job.owner) != (draw.name, user):
        raise JobNotFound(job_id)
    answer = await app.cancel(job_id)
    # If this process dies here, `reconcile` refunds the credit.
    await give_back.enqueue(job_id=job_id)
    return answer


async def _lock(tx: Session, user: str) -> int:
    """Lock the user until the transaction ends; returns the user's credits. By an UPDATE, because SQLite has no FOR
    UPDATE."""
    found = _is_name(user) and await tx.fetch(
        "UPDATE stickers_users SET credits = credits WHERE id = $1 RETURNING credits", user
    )
    if not found:
        raise UnknownUser(user)
    return int(found[0][0])


async def _ordered(tx: Session, user: str, prompt: str, request_id: str | None) -> str | None:
    """The job of an earlier call with this request id. A key of the job would not do: it is free again once the job is
    dead, but the answer to a request must never change."""
    rows = await tx.fetch(
        "SELECT job_id, prompt FROM stickers_orders WHERE user_id = $1 AND request_id = $2", user, request_id
    )
    if not rows:
        return None
    ((job_id, ordered),) = rows
    if ordered != prompt:
        raise BadRequest(f"request {request_id!r} ordered {ordered!r} already; a new order needs a new request_id")
    return str(job_id)


async def _order(tx: Session, user: str, prompt: str, request_id: str | None, job_id: str) -> None:
    await tx.execute(
        "INSERT INTO stickers_orders (job_id, user_id, prompt, request_id) VALUES ($1, $2, $3, $4)",
        job_id,
        user,
        prompt,
        request_id,
    )
    await ledger.charge(tx, user, job_id)


def _checked_prompt(prompt: object) -> str:
    if not isinstance(prompt, str):
        raise BadRequest(f"a prompt is text, not {prompt!r:.100}")
    words = " ".join(prompt.split())
    if not words:
        raise BadRequest("the prompt is empty; say what to draw")
    if len(words) > LONGEST_PROMPT:
        raise BadRequest(f"the prompt has {len(words)} characters; at most {LONGEST_PROMPT} are drawn")
    if not _storable(words):
        raise BadRequest(f"the prompt has control characters: {words!r:.100}")
    return words


def _checked_name(name: object, what: str) -> None:
    if not _is_name(name):
        raise BadRequest(f"{what} must be text of 1 to {LONGEST_NAME} characters, not {name!r:.100}")


def _checked_amount(credits: object) -> None:
    if isinstance(credits, bool) or not isinstance(credits, int) or not 1 <= credits <= MOST_CREDITS:
        raise BadRequest(f"credits must be a whole number from 1 to {MOST_CREDITS}, not {credits!r:.100}")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 1 <= len(name) <= LONGEST_NAME and _storable(name)


def _storable(text: str) -> bool:
    return not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)
