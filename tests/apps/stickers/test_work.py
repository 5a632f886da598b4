"""What becomes of an order, and of its credit, in every way a job can end."""

import hashlib
from typing import Any

import psutil
import pytest

from apps.engines import ONE_ENGINE
from apps.stickers.rig import LIMIT, Shop, until
from rowlock import JobDead, JobHandle, JobNotFound, NotAllowed
from rowlock_apps.stickers import app
from rowlock_apps.stickers.app import draw, reconcile

UNFIT = "x" * 90


async def test_an_order_ends_drawn_and_paid_or_failed_and_paid_back(shop: Shop) -> None:
    """S1.9, S1.10, S1.11: done or error, with the time of completion, the result or the text of the error; after a
    failure the refund runs, once."""
    good, bad = await shop.submit("ana", "a cat with a hat"), await shop.submit("ana", UNFIT)
    free = await draw.using(owner="ana").enqueue(prompt="a cat that nobody ordered")
    assert (good.owner, await shop.credits("ana")) == ("ana", 8)
    await shop.run_all()

    result = await good.wait(1)
    assert result["path"] == str(shop.results / f"{good.id}.png")
    assert result["checksum"] == f"sha256:{hashlib.sha256(shop.picture(good.id)).hexdigest()}"
    assert good.finished_at is not None
    assert await shop.moves(good.id) == [("charge", 1, -1)]

    with pytest.raises(JobDead, match="does not fit on a sticker"):
        await bad.wait(1)
    assert (bad.error_code, bad.attempt, bad.finished_at is not None) == ("DOES_NOT_FIT", 1, True)
    assert await shop.moves(bad.id) == [("charge", 1, -1), ("refund", 1, 1)]

    with pytest.raises(JobDead, match=r"NO_ORDER.*shop\.submit"):
        await free.wait(1)
    assert await shop.credits("ana") == 9
    await shop.check_the_books()


@ONE_ENGINE
async def test_a_failed_drawing_is_logged_with_its_id_and_message(
    shop: Shop, in_the_worker: None, caplog: pytest.LogCaptureFixture
) -> None:
    """S1.10: id and message in one line of the log, and in the row."""
    job = await shop.submit("ana", UNFIT)
    with caplog.at_level("INFO", "rowlock.worker"):
        await shop.run_all()
    message = f"{UNFIT!r} does not fit on a sticker: use shorter words, or fewer"
    (line,) = [text for text in caplog.messages if text.startswith(f"Job {job.id} (stickers.draw) failed")]
    assert f"now dead: DOES_NOT_FIT {message}" in line
    assert str((await job.refresh()).error_message).startswith(message)


async def test_a_refund_by_hand_pays_nothing_for_a_job_that_is_not_dead(shop: Shop, in_the_worker: None) -> None:
    """Anybody can enqueue the refund task with what it is given: the job's own state decides."""
    drawn = await shop.submit("ana", "a cat")
    await shop.run_all()
    waiting = await shop.submit("ana", "a dog")
    by_hand = []
    for job in (drawn, waiting):  # the refunds come first, by their priority
        finished = {"job_id": job.id, "task": "stickers.draw", "owner": "ana", "state": "dead", "attempt": 99}
        said = {"args": {}, "result": None, "error_code": None, "error_message": None}
        by_hand.append(await app.enqueue("stickers.refund", finished=finished | said))
    await shop.run_all()
    assert [await refund.wait(1) for refund in by_hand] == [False, False]
    assert (await waiting.refresh()).state == "succeeded", "no attempt may draw that is older than a refund"
    for job in (drawn, waiting):
        assert await shop.kinds(job.id) == ["charge"]
    await shop.check_the_books()


async def test_a_drawing_that_is_stopped_in_any_way_is_paid_back(shop: Shop) -> None:
    """S1.11: no sticker, no charge: a timeout, a drawing process that something kills, and a user's change of mind,
    before or after the drawing has begun."""
    hangs, dies, regretted = [await shop.submit("ana", "a cat", wait_seconds=60) for _ in range(3)]
    waiting = await shop.submit("ana", "a dog")
    await shop.fetch(f"UPDATE {shop.table('jobs_live')} SET timeout_seconds = 0.3 WHERE id = $1", hangs.id)
    async with shop.worker():
        assert await shop.cancel("ana", waiting.id) == "cancelled"
        await until(lambda: _in_phase(dies, "thinking"))
        _drawing_process().kill()
        await until(lambda: _in_phase(regretted, "thinking"))
        assert await shop.cancel("ana", regretted.id) == "cancelling"
        await shop.until_quiet()
    ends = [((await job.refresh()).state, job.error_code) for job in (hangs, dies, regretted, waiting)]
    cancelled = ("cancelled", "CANCELLED")
    assert ends == [("dead", "TIMEOUT"), ("dead", "CHILD_DIED"), cancelled, cancelled]
    for job in (hangs, dies, regretted, waiting):
        assert await shop.kinds(job.id) == ["charge", "refund"]
    assert not list(shop.results.glob("*"))
    assert await shop.credits("ana") == 10
    await shop.check_the_books()


@ONE_ENGINE
async def test_nobody_cancels_what_is_not_theirs_or_is_finished(shop: Shop, in_the_worker: None) -> None:
    await shop.open("bob", 1)
    job = await shop.submit("ana", UNFIT)
    for user, wanted in (("bob", job.id), ("ana", "no-such-id"), ("nobody", job.id)):
        with pytest.raises(JobNotFound):
            await shop.cancel(user, wanted)
    await shop.run_all()
    with pytest.raises(NotAllowed, match="already finished"):
        await shop.cancel("ana", job.id)
    assert await shop.kinds(job.id) == ["charge", "refund"]


async def test_the_reconciler_pays_back_what_an_operator_cancelled(shop: Shop, in_the_worker: None) -> None:
    """S1.11: an operator's cancel knows nothing of credits; the books are put right from time to time."""
    cancelled, other = await shop.submit("ana", "a cat"), await shop.submit("ana", "a dog")
    await app.cancel(cancelled.id)
    assert await shop.kinds(cancelled.id) == ["charge"]
    round_ = await reconcile.enqueue()
    await shop.run_all()
    assert await round_.wait(1) == 1
    assert await shop.kinds(cancelled.id) == ["charge", "refund"]
    assert await shop.kinds(other.id) == ["charge"]
    await shop.check_the_books()


async def test_an_operators_retry_of_what_was_paid_back_charges_again(shop: Shop, in_the_worker: None) -> None:
    shop.results.write_text("a file where the folder should be")
    job = await shop.submit("ana", "a cat")
    await shop.run_all()
    assert (await job.refresh()).error_code == "FileExistsError"
    shop.results.unlink()  # the cause is mended
    await app.retry(job.id)
    with pytest.raises(NotAllowed, match="only dead and cancelled"):
        await app.retry(job.id)  # a second one is not a second charge
    await shop.run_all()
    await job.wait(1)
    assert shop.picture(job.id)
    assert await shop.moves(job.id) == [("charge", 1, -1), ("refund", 1, 1), ("charge", 2, -1)]
    assert await shop.credits("ana") == 9
    await shop.check_the_books()


async def test_a_retry_that_nobody_can_pay_for_is_refused_without_a_refund(shop: Shop, in_the_worker: None) -> None:
    await shop.open("poor", 1)
    job = await shop.submit("poor", UNFIT)
    await shop.run_all()
    other = await shop.submit("poor", "a cat")  # spends what came back
    await app.retry(job.id)
    await shop.run_all()
    assert (await job.refresh()).error_code == "NO_CREDIT"
    assert "'poor' has no credit left" in str(job.error_message)
    assert await shop.kinds(job.id) == ["charge", "refund"]
    assert (await other.refresh()).state == "succeeded"
    assert await shop.credits("poor") == 0
    await shop.check_the_books()


async def test_a_retry_that_overtakes_the_refund_keeps_what_was_paid(shop: Shop, in_the_worker: None) -> None:
    shop.results.write_text("a file where the folder should be")
    job = await shop.submit("ana", "a cat")
    await shop.refund_in("later", job.id)
    await shop.run_all()
    assert (await job.refresh()).state == "dead"
    shop.results.unlink()
    await app.retry(job.id)
    await shop.run_all()
    assert (await job.refresh()).state == "succeeded"
    (late,) = await app.jobs(task="stickers.refund", state="queued")
    async with shop.worker(queues=["later"]):
        assert await late.wait(LIMIT) is False
    assert await shop.moves(job.id) == [("charge", 1, -1)]
    await shop.check_the_books()


async def _in_phase(job: JobHandle[Any], phase: str) -> bool:
    return bool((await job.refresh()).phase == phase)


def _drawing_process() -> psutil.Process:
    """The child of this process that draws."""
    (child,) = (child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline()))
    return child
