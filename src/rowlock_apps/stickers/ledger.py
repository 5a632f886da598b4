"""Credits: taken for an order, given back for one that was not drawn. A user's credits are the sum of the ledger.

An order has at most one charge that is not refunded (`charges - refunds` is 0 or 1). Jobs end in many ways and may be
brought back by an operator at any moment. Every charge and refund therefore names an attempt of the job, and
`stickers_orders.attempt` has the newest one: an attempt that begins must be newer, one that ended at least as new.

    attempt 3 dies ── refund of 3 ── retry ── attempt 4 pays again
    attempt 3 dies ── retry ── attempt 4 keeps what was paid ── refund of 3 comes late and does nothing
    attempt 3 hangs and is reclaimed ── refund of 3 ── attempt 3 goes on, tries to pay, and is refused
"""

from __future__ import annotations

from rowlock import LeaseLost, Session

PRICE = 1  # of a sticker, in credits
ROUND = 500  # most refunds in one transaction: other writers of SQLite wait meanwhile


class NoCredit(Exception):
    """The user has no credit left."""

    def __init__(self, user: str) -> None:
        super().__init__(f"user {user!r} has no credit left; a sticker costs {PRICE}")


class NoOrder(Exception):
    """A drawing job without an order, so there is no user to charge."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} belongs to no order; jobs are made by rowlock_apps.stickers.shop.submit()")


async def grant(tx: Session, user: str, amount: int) -> None:
    await tx.execute("UPDATE stickers_users SET credits = credits + $2 WHERE id = $1", user, amount)
    await tx.execute("INSERT INTO stickers_ledger (user_id, kind, amount) VALUES ($1, 'grant', $2)", user, amount)


async def charge(tx: Session, user: str, job_id: str) -> None:
    """Take the price of an order that is not paid. Raises NoCredit."""
    taken = await tx.fetch(
        "UPDATE stickers_users SET credits = credits - $2 WHERE id = $1 AND credits >= $2 RETURNING credits",
        user,
        PRICE,
    )
    if not taken:
        raise NoCredit(user)
    ((times,),) = await tx.fetch(
        "UPDATE stickers_orders SET charges = charges + 1 WHERE job_id = $1 RETURNING charges", job_id
    )
    await _write(tx, user, job_id, "charge", times, -PRICE)


async def begin(tx: Session, job_id: str, attempt: int) -> None:
    """An attempt begins: it must be newer than all attempts that ended, and it must be paid. A refunded order is
    charged again, because an operator has retried its job. Raises NoCredit, NoOrder, LeaseLost."""
    orders = await tx.fetch(
        """
        UPDATE stickers_orders SET attempt = $2
        WHERE job_id = $1 AND attempt < $2
        RETURNING user_id, charges, refunds
        """,
        job_id,
        attempt,
    )
    if not orders:
        if not await tx.fetch("SELECT 1 FROM stickers_orders WHERE job_id = $1", job_id):
            raise NoOrder(job_id)
        raise LeaseLost(f"attempt {attempt} of job {job_id} was given up for dead, and its credit is settled")
    ((user, charges, refunds),) = orders
    if charges == refunds:
        await charge(tx, user, job_id)


async def refund(tx: Session, job_id: str, attempt: int) -> bool:
    """The job ended with this attempt and without a drawing: refund its charge. False when there is nothing to refund,
    or when a newer attempt uses the charge."""
    orders = await tx.fetch(
        """
        UPDATE stickers_orders SET attempt = $2
        WHERE job_id = $1 AND attempt <= $2
        RETURNING user_id, charges, refunds
        """,
        job_id,
        attempt,
    )
    if not orders or orders[0][1] == orders[0][2]:
        return False
    ((user, _, refunds),) = orders
    await tx.execute("UPDATE stickers_users SET credits = credits + $2 WHERE id = $1", user, PRICE)
    await tx.execute("UPDATE stickers_orders SET refunds = refunds + 1 WHERE job_id = $1", job_id)
    await _write(tx, user, job_id, "refund", refunds + 1, PRICE)
    return True


async def refund_ended(tx: Session, job_id: str) -> bool:
    """Refund a job for its last attempt, if it is dead or cancelled. False if it was drawn, or if it is queued or
    running again: then its next attempt uses the charge."""
    ended = await tx.fetch("SELECT attempt FROM stickers_jobs WHERE id = $1 AND state IN ('dead', 'cancelled')", job_id)
    return bool(ended) and await refund(tx, job_id, ended[0][0])


async def owed(tx: Session) -> list[tuple[str, int]]:
    """Jobs that ended undrawn and are still paid, with the attempt that was their last."""
    rows = await tx.fetch(
        """
        SELECT ended.id, ended.attempt
        FROM stickers_jobs AS ended
        JOIN stickers_orders AS orders ON orders.job_id = ended.id
        WHERE ended.state IN ('dead', 'cancelled') AND orders.charges > orders.refunds
        ORDER BY ended.id
        LIMIT $1
        """,
        ROUND,
    )
    return [(str(job_id), attempt) for job_id, attempt in rows]


async def unbalanced(tx: Session) -> list[tuple[str, int, int]]:
    """Users whose credits are not the sum of their ledger, with both numbers. There are none."""
    rows = await tx.fetch(
        """
        SELECT users.id, users.credits, coalesce(sum(ledger.amount), 0)
        FROM stickers_users AS users
        LEFT JOIN stickers_ledger AS ledger ON ledger.user_id = users.id
        GROUP BY users.id, users.credits
        HAVING users.credits <> coalesce(sum(ledger.amount), 0)
        """
    )
    return [(user, credits, int(total)) for user, credits, total in rows]


async def _write(tx: Session, user: str, job_id: str, kind: str, times: int, amount: int) -> None:
    await tx.execute(
        "INSERT INTO stickers_ledger (user_id, job_id, kind, round, amount) VALUES ($1, $2, $3, $4, $5)",
        user,
        job_id,
        kind,
        times,
        amount,
    )
