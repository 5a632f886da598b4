"""One process that enqueues, claims and settles as fast as it can: `python -m support.races.mixed URL SECONDS OUT`."""

import asyncio
import json
import random
import sys
import time
from typing import Any

from rowlock.core.job import NewJob, Settlement
from rowlock.core.outcome import Failed, Released, Succeeded
from rowlock.core.policy import decide
from rowlock.store import open_store
from rowlock.store.engine.ids import new_id, new_token
from rowlock.store.jobs import claim, leases, settle
from rowlock.store.jobs import enqueue as enqueue_jobs

KEEP = settle.Keep()


async def mixed(url: str, seconds: float) -> dict[str, Any]:
    """What was accepted, what was finished, and every error that came through."""
    store = await open_store(url)
    told: dict[str, Any] = {"accepted": [], "finished": [], "errors": [], "lost": 0}
    over = time.monotonic() + seconds

    async def enqueue() -> None:
        rows = [(new_id(), "{}") for _ in range(random.randrange(1, 10))]
        await store.run(enqueue_jobs.enqueue(rows, NewJob(task="mixed", max_attempts=1000)))
        told["accepted"] += [job_id for job_id, _ in rows]

    async def work() -> None:
        lanes = [claim.Range("default", "mixed")]
        claimed = await store.run(claim.claim(f"worker-{sys.argv[3]}", new_token(), lanes, 8, 60))
        await store.run(leases.beat([(job.id, job.token) for job in claimed], 60))
        ends = {
            job.id: random.choice([Succeeded(None), Succeeded("1"), Failed("E", "e", 0), Released(0)])
            for job in claimed
        }
        settlements = [Settlement(job, decide(job, ends[job.id], 0)) for job in claimed]
        for job_id, answer in (await settle.settle(store, settlements, KEEP)).items():
            told["lost"] += answer != "applied"
            if isinstance(ends[job_id], Succeeded):
                told["finished"].append(job_id)
        await store.run(claim.promote(100))

    async def repeat() -> None:
        while time.monotonic() < over:
            try:
                await random.choice([enqueue, work, work])()
            except Exception as error:
                told["errors"].append(f"{type(error).__name__}: {error}")

    await asyncio.gather(*[repeat() for _ in range(4)])
    await store.close()
    return told


if __name__ == "__main__":
    answer = asyncio.run(mixed(sys.argv[1], float(sys.argv[2])))
    with open(sys.argv[3], "w") as file:
        json.dump(answer, file)
