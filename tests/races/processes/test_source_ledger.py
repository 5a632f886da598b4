"""Limits of sources over four worker processes that are killed and frozen. The database and its ledger tell."""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from rowlock.core.policy import fixed
from support.races.ledger import boottime
from support.races.rig import LEASE, Worker, until
from support.races.sources import RECOVERY, Claim, Observer, SourceRace, by_source, most_at_once, too_often

EACH, TOTAL = 2, 5
PER_SECOND, BURST = 4, 3
SHOPS = [f"api:shop-{n}" for n in range(4)]  # with a total for their class
PAGES = ["domain:page-0", "domain:page-1"]  # without
METERED = "domain:metered"
AGAIN = {"max_attempts": 1000, "backoff": fixed(0.05).to_json()}
BROKEN, COOLDOWN = "api:broken", 0.5


@pytest.fixture
async def race(url: str, tmp_path: Path) -> AsyncIterator[SourceRace]:
    """A race on each engine."""
    race = SourceRace(url, tmp_path)
    await race.open()
    yield race
    await race.close()


async def enqueue(race: SourceRace, seconds: float) -> None:
    """Work for about so long, and somewhat more than may run at once."""
    for source in SHOPS + PAGES:
        await race.enqueue("work", round(seconds * 10), ms=100, options={"source": source, "max_attempts": 1})
    metered = {"source": METERED, "max_attempts": 1}
    await race.enqueue("work", round(seconds * PER_SECOND), ms=30, options=metered)
    await race.enqueue("work", round(seconds * 5), ms=50, options={"max_attempts": 1})


async def faults(race: SourceRace, crew: list[Worker], seconds: float, chance: random.Random) -> list[float]:
    """Kill and freeze all but the first, over and over; after how long the slots of the killed were free again."""
    over, free_after = time.monotonic() + seconds, []
    while time.monotonic() < over:
        victim, at = await race.kill_a_holder(crew[1:])
        crew[crew.index(victim)] = race.start()
        # On SQLite a frozen worker may hold the write lock, so there is no freeze before this.
        await until(lambda victim=victim: not race.holds(victim), RECOVERY, race.story)  # type: ignore[misc]
        free_after.append(time.time() - at)
        await race.started(race.workers[-1])
        with race.frozen(crew[chance.randrange(1, 4)]):
            await asyncio.sleep(chance.choice([0.3, 1.3]) * LEASE)
    return free_after


async def limits_hold(race: SourceRace, seconds: float, seed: int) -> None:
    await race.policy("api", concurrency=EACH, total=TOTAL)
    await race.policy("domain", concurrency=EACH)
    await race.policy(METERED, rate=f"{PER_SECOND}/s", burst=BURST, concurrency=10)
    crew = [race.start() for _ in range(4)]
    await race.started()
    with Observer(race.url) as observer:
        await enqueue(race, seconds)
        free_after = await faults(race, crew, seconds / 2, random.Random(seed))
        await race.until_done(seconds + 40)
    race.judge()
    assert not observer.error
    claims = race.claims()
    grouped = by_source(claims)
    allowed = dict.fromkeys(SHOPS + PAGES, EACH) | {"api": TOTAL}
    # The limits were reached, and never passed: in the claims themselves, and in what was seen from outside.
    assert {name: most_at_once(grouped[name]) for name in allowed} == allowed
    assert {name: n for name in allowed if (n := observer.most[name]) > allowed[name]} == {}, observer.samples
    assert too_often([claim.start for claim in grouped[METERED]], PER_SECOND, BURST) == []
    lost = sum(claim.outcome == "lost" for claim in claims)
    assert lost, "no job was running: the kills did not bite"
    print(f"{len(claims)} claims, {lost} lost, {observer.samples} samples; killed, free after {free_after}")


async def test_limits_of_sources_classes_and_rates_hold_while_workers_are_killed(race: SourceRace) -> None:
    await limits_hold(race, 4, seed=3)


@pytest.mark.soak
async def test_limits_of_sources_classes_and_rates_hold_for_minutes_while_workers_are_killed(race: SourceRace) -> None:
    seed = int(os.environ.get("RACE_SEED") or random.SystemRandom().randrange(10**6))
    print(f"RACE_SEED={seed}")
    await limits_hold(race, float(os.environ.get("RACE_SECONDS") or 90), seed)


async def test_the_slot_of_a_killed_worker_is_free_again_within_lease_and_sweep(race: SourceRace) -> None:
    await race.policy("api:one", concurrency=1)
    crew = [race.start() for _ in range(3)]
    await race.started()
    await race.enqueue("work", 3, ms=60_000, options={"source": "api:one"})
    await race.until_noted("start")
    _, at = await race.kill_a_holder(crew)
    starts = await race.until_noted("start", 2, within=RECOVERY)
    assert len(starts) == 2
    print(f"next start {time.time() - at:.2f} s after the kill")


def probes(claims: list[Claim], opened: float) -> list[Claim]:
    """What was claimed from the opening of a breaker to the success that closed it."""
    closed = min(claim.end for claim in claims if claim.outcome == "succeeded" and claim.start > opened)
    return [claim for claim in claims if opened < claim.start < closed]


async def test_a_broken_source_is_tried_by_one_job_at_a_time_and_a_dead_one_is_replaced(race: SourceRace) -> None:
    # With a limit, claims and outcomes of a source come one after the other: none slips in while the breaker opens.
    await race.policy(BROKEN, threshold=3, cooldown=COOLDOWN, concurrency=20)
    race.service("down")
    for _ in range(4):
        race.start(pool_size=5)
    await race.started()
    await race.enqueue("ask", 60, ms=20, options=AGAIN | {"source": BROKEN})
    await until(lambda: race.breaker(BROKEN).opens >= 3, 20, race.story)  # two probes have failed
    race.service("silent")
    probe = (await race.until_noted("silent"))[0]
    race.service("up")
    victim = next(worker for worker in race.workers if str(worker.pid) == probe.worker)
    opened, begun = race.breaker(BROKEN).opened, len(race.noted("start"))
    victim.kill()
    killed = boottime()
    next_probe = (await race.until_noted("start", begun + 1, within=RECOVERY))[-1]
    print(f"next probe {next_probe.at - killed:.2f} s after the kill")
    await race.until_done(30)
    race.judge()
    tried = probes(race.claims(), opened)
    assert [claim.outcome for claim in tried[-2:]] == ["lost", "succeeded"]
    assert len(tried) >= 4
    apart = [after.start - before.end for before, after in pairwise(tried[:-1])]
    assert min(apart) >= COOLDOWN, f"two probes of one half-open breaker: {apart}"
    assert tried[-1].start >= tried[-2].end
