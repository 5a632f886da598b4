"""`kill -9` at every step of submit, claim, draw, settle and refund: nobody pays twice, or for nothing."""

import json
from pathlib import Path

from apps.stickers.killer import BAD, STEPS
from apps.stickers.rig import CALM, Process, Shop, environment
from rowlock_apps.stickers import app, ledger


async def test_the_books_balance_after_kill_9_at_every_step(shop: Shop, tmp_path: Path) -> None:
    """S1.11, S1.12: each process dies at another step; then a worker finds what they left."""
    env = environment(shop.url, shop.results, CALM)
    with Process(tmp_path / "killer.log", env, "-m", "apps.stickers.killer") as killer:
        assert await killer.ends(within=100) == 0, killer.log
    orders = json.loads(killer.log.splitlines()[-1])
    assert list(orders) == list(STEPS)
    assert orders.pop("charging") is None, "an order that did not commit"
    assert await shop.credits("charging") == 3
    async with app.transaction() as tx:
        assert await ledger.unbalanced(tx) == [], (
            "credits and ledger part at no moment, not even right after the deaths"
        )

    await shop.end_leases()
    await shop.run_all()
    await shop.check_the_books()
    for step, job_id in orders.items():
        job = await app.job(job_id)
        fails = STEPS[step] == BAD
        assert job.state == ("dead" if fails else "succeeded"), (step, job.error_message)
        assert await shop.kinds(job_id) == (["charge", "refund"] if fails else ["charge"]), step
        assert await shop.credits(step) == (3 if fails else 2), step
        assert fails or shop.picture(job_id)
    assert len(list(shop.results.iterdir())) == sum(prompt != BAD for prompt in STEPS.values()) - 1, "no half pictures"
