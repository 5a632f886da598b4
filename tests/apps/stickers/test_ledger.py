"""The ledger alone: every order in which attempts can begin and end, and what the tables refuse by themselves."""

import random
from dataclasses import dataclass, field

import pytest

from apps.stickers.rig import Shop
from rowlock import LeaseLost, StoreError
from rowlock_apps.stickers import app, ledger
from rowlock_apps.stickers.ledger import NoCredit


@dataclass
class Life:
    """A job as the engine sees it: who may do what next. Its credit is moved by the real ledger."""

    job_id: str
    attempt: int = 0
    state: str = "queued"
    asleep: list[int] = field(default_factory=list)  # attempts that were claimed and have not begun to pay
    refunds: list[int] = field(default_factory=list)  # refund jobs that have not run: the attempt each speaks for

    async def step(self, chance: random.Random) -> None:
        """One thing that may happen now, chosen by chance."""
        actions = [action for action, states in WHEN.items() if self.state in states]
        actions += ["wake"] * 2 * bool(self.asleep)
        actions = actions * 2 + ["refund", "refund again"] * bool(self.refunds)  # refunds like to be late
        match chance.choice(actions or ["rest"]):
            case "claim":
                self.attempt += 1
                self.state = "running"
                self.asleep.append(self.attempt)
            case "succeed" if self.attempt not in self.asleep:  # who has not paid has not drawn
                self.state = "succeeded"
            case "die":
                self.state = "dead"
                self.refunds.append(self.attempt)  # on_dead
            case "lose":
                self.state = "queued"
            case "cancel":
                self.state = "cancelled"
            case "retry":
                self.state = "queued"
            case "reconcile":
                await refund(self.job_id, self.attempt)
            case "wake":
                await self.begin(self.asleep.pop(chance.randrange(len(self.asleep))))
            case "refund":
                await refund(self.job_id, self.refunds.pop(0))
            case "refund again":
                await refund(self.job_id, chance.choice(self.refunds))

    async def begin(self, attempt: int) -> None:
        """An attempt, alive or a zombie, wants to draw."""
        try:
            async with app.transaction() as tx:
                await ledger.begin(tx, self.job_id, attempt)
        except (NoCredit, LeaseLost):
            if (self.state, self.attempt) == ("running", attempt):
                self.state = "dead"
                self.refunds.append(attempt)

    async def finish(self) -> None:
        """Let everything that is still to come happen."""
        if self.state in ("queued", "running"):
            self.attempt += self.state == "queued"
            self.state = "dead"
            self.refunds.append(self.attempt)
        for attempt in self.asleep:
            await self.begin(attempt)
        for attempt in self.refunds:
            await refund(self.job_id, attempt)
        if self.state == "cancelled":
            await refund(self.job_id, self.attempt)


MOVE = "INSERT INTO stickers_ledger (user_id, job_id, kind, round, amount)"
WHEN = {
    "claim": ("queued",),
    "succeed": ("running",),
    "die": ("running",),
    "lose": ("running",),
    "cancel": ("queued", "running"),
    "retry": ("dead", "cancelled"),
    "reconcile": ("cancelled",),
}


async def refund(job_id: str, attempt: int) -> bool:
    async with app.transaction() as tx:
        return await ledger.refund(tx, job_id, attempt)


async def test_whatever_the_order_of_things_a_job_is_paid_exactly_if_it_was_drawn(shop: Shop) -> None:
    """Deaths, losses, cancels, retries, late and doubled refunds, zombies that wake: random lives of a job."""
    chance = random.Random(1)  # with it each fence of the ledger is needed within the first 40 walks
    ends = set()
    for number in range(50):
        user = f"user {number}"
        await shop.open(user, chance.choice([1, 2, 3]))
        life = Life((await shop.submit(user, "a cat")).id)
        if chance.random() < 0.3:
            await shop.submit(user, "another") if await shop.credits(user) else None
        for _ in range(chance.randrange(3, 60)):
            await life.step(chance)
        await life.finish()
        ((paid,),) = await shop.fetch("SELECT charges - refunds FROM stickers_orders WHERE job_id = $1", life.job_id)
        assert paid == (life.state == "succeeded"), f"walk {number}: {life}, {await shop.moves(life.job_id)}"
        ends.add(life.state)
    assert ends == {"succeeded", "dead", "cancelled"}
    async with app.transaction() as tx:
        assert await ledger.unbalanced(tx) == []


async def test_a_refund_is_made_once(shop: Shop) -> None:
    job = await shop.submit("ana", "a cat")
    assert [await refund(job.id, 1) for _ in range(3)] == [True, False, False]
    assert await shop.moves(job.id) == [("charge", 1, -1), ("refund", 1, 1)]


async def test_a_zombie_that_wakes_after_its_refund_may_not_pay_again(shop: Shop) -> None:
    job = await shop.submit("ana", "a cat")
    await refund(job.id, 3)
    with pytest.raises(LeaseLost, match=r"attempt 3 .* given up for dead"):
        async with app.transaction() as tx:
            await ledger.begin(tx, job.id, 3)
    assert await shop.kinds(job.id) == ["charge", "refund"]


async def test_the_tables_refuse_what_would_break_the_books(shop: Shop) -> None:
    job = await shop.submit("ana", "a cat")
    for sql in (
        "UPDATE stickers_users SET credits = -1",
        "UPDATE stickers_orders SET refunds = charges + 1",
        "UPDATE stickers_orders SET charges = 2",
        f"{MOVE} VALUES ('ana', '{job.id}', 'charge', 1, -1)",  # again
        f"{MOVE} VALUES ('ana', '{job.id}', 'refund', 1, -1)",
        f"{MOVE} VALUES ('ana', NULL, 'charge', NULL, -1)",
        f"{MOVE} VALUES ('ana', NULL, 'gift', NULL, 1)",
    ):
        with pytest.raises(StoreError):
            await shop.fetch(sql)


async def test_books_that_do_not_balance_are_found(shop: Shop) -> None:
    await shop.fetch("UPDATE stickers_users SET credits = 12 WHERE id = 'ana'")
    async with app.transaction() as tx:
        assert await ledger.unbalanced(tx) == [("ana", 12, 10)]
