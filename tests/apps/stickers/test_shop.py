"""Orders: credit and job together or neither, whatever is asked for and however often."""

import asyncio
from typing import Any

import pytest

from apps.engines import ONE_ENGINE
from apps.stickers.rig import Shop
from rowlock import InvalidArguments
from rowlock_apps.stickers import app, ledger
from rowlock_apps.stickers import shop as counter
from rowlock_apps.stickers.shop import BadRequest, NoCredit, UnknownUser


async def orders(shop: Shop) -> tuple[int, int]:
    """How many jobs and orders there are."""
    ((count,),) = await shop.fetch("SELECT count(*) FROM stickers_orders")
    return len(await app.jobs(task="stickers.draw")), count


async def test_an_order_takes_a_credit_and_makes_a_job_in_one_transaction(shop: Shop) -> None:
    job = await shop.submit("ana", "  a cat\n with a hat ")
    assert await shop.fetch("SELECT user_id, prompt, charges, refunds FROM stickers_orders") == [
        ("ana", "a cat with a hat", 1, 0)
    ]
    assert await shop.credits("ana") == 9
    assert (await app.job(job.id)).args == {"prompt": "a cat with a hat", "wait_seconds": 0.0}
    await shop.check_the_books()


async def test_what_is_rolled_back_charges_nothing_and_draws_nothing(shop: Shop) -> None:
    with pytest.raises(RuntimeError):
        async with app.transaction():
            await shop.submit("ana", "a cat")
            raise RuntimeError("changed my mind")
    assert (await orders(shop), await shop.credits("ana")) == ((0, 0), 10)


BAD_ORDERS: list[tuple[Any, Any, type[Exception], str]] = [
    ("ana", "", BadRequest, "the prompt is empty"),
    ("ana", " \n ", BadRequest, "the prompt is empty"),
    ("ana", "x" * 201, BadRequest, "has 201 characters; at most 200"),
    ("ana", "a \x00 cat", BadRequest, "control characters"),
    ("ana", None, BadRequest, "a prompt is text, not None"),
    ("nobody", "a cat", UnknownUser, "no user 'nobody'; open_account"),
    ("a\x00b", "a cat", UnknownUser, "no user"),
    (7, "a cat", UnknownUser, "no user 7"),
    ("poor", "a cat", NoCredit, "user 'poor' has no credit left; a sticker costs 1"),
]


@ONE_ENGINE
async def test_a_bad_order_is_refused_and_charges_nothing(shop: Shop) -> None:
    await shop.open("poor")
    for user, prompt, error, message in BAD_ORDERS:
        with pytest.raises(error, match=message):
            await shop.submit(user, prompt)
    for request_id in ("", "r" * 201, 7):
        with pytest.raises(BadRequest, match="request_id must be text of 1 to 200 characters"):
            await shop.submit("ana", "a cat", request_id=request_id)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments):
        await shop.submit("ana", "a cat", wait_seconds="long")  # type: ignore[arg-type]
    assert (await orders(shop), await shop.credits("ana"), await shop.credits("poor")) == ((0, 0), 10, 0)


async def test_a_double_click_is_one_order(shop: Shop) -> None:
    """The second request with the same id is answered with the first one's job, also when both come at once."""
    await shop.open("poor", 1)
    first, *others = await asyncio.gather(*(shop.submit("poor", "a cat", request_id="click-7") for _ in range(8)))
    assert {other.id for other in others} == {first.id}
    assert (await shop.submit("poor", "a cat", request_id="click-7")).id == first.id  # although no credit is left
    assert (await orders(shop), await shop.credits("poor")) == ((1, 1), 0)
    with pytest.raises(BadRequest, match="ordered 'a cat' already; a new order needs a new request_id"):
        await shop.submit("poor", "a dog", request_id="click-7")
    assert (await shop.submit("ana", "a cat", request_id="click-7")).id != first.id  # another user's is another's


async def test_a_request_has_the_same_answer_after_its_job_has_ended(shop: Shop) -> None:
    job = await shop.submit("ana", "a cat", request_id="r1")
    await app.cancel(job.id)
    assert (await shop.submit("ana", "a cat", request_id="r1")).id == job.id
    assert await orders(shop) == (1, 1)


async def test_the_last_credit_is_spent_once_however_many_want_it(shop: Shop) -> None:
    await shop.open("poor", 3)
    told = await asyncio.gather(*(shop.submit("poor", f"cat {n}") for n in range(12)), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in told) == ["JobHandle"] * 3 + ["NoCredit"] * 9
    assert (await orders(shop), await shop.credits("poor")) == ((3, 3), 0)
    await shop.check_the_books()


async def test_accounts_are_opened_once_and_topped_up(shop: Shop) -> None:
    await shop.open("ana", 99)
    assert await shop.credits("ana") == 10
    await counter.top_up("ana", 5)
    assert await shop.credits("ana") == 15
    for call, error in (
        (counter.top_up("ana", 0), BadRequest),
        (counter.top_up("ana", -3), BadRequest),
        (counter.top_up("nobody", 5), UnknownUser),
        (counter.open_account("", 5), BadRequest),
        (counter.open_account("bob", 1.5), BadRequest),  # type: ignore[arg-type]
        (counter.credits_of("nobody"), UnknownUser),
    ):
        with pytest.raises(error):
            await call
    await shop.check_the_books()


async def test_no_user_has_more_credits_than_can_be_stored(shop: Shop) -> None:
    async with app.transaction() as tx:
        await ledger.grant(tx, "ana", 1_999_999_985)
    with pytest.raises(BadRequest, match="would have more than 2,000,000,000 credits"):
        await counter.top_up("ana", 6)
    await counter.top_up("ana", 5)
    assert await shop.credits("ana") == 2_000_000_000
    await shop.check_the_books()


async def test_a_second_cancel_is_answered_like_the_first_and_pays_nothing_back(shop: Shop) -> None:
    job = await shop.submit("ana", "a cat")
    assert [await counter.cancel("ana", job.id) for _ in range(2)] == ["cancelled", "cancelled"]
    async with app.worker(poll_interval_seconds=0.05):
        for back in await app.jobs(task="stickers.give_back"):
            await back.wait(10)
    assert await shop.credits("ana") == 10
    await shop.check_the_books()
