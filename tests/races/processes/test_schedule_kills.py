"""Dispatchers that die at random, and dispatchers whose clocks are wrong: each tick fires once, and none is missing."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from math import floor
from pathlib import Path
from typing import Any

import pytest

from support.races.dispatcher import NAMES
from support.races.rig import PATIENCE, Race, until


class Dispatcher:
    """One dispatcher process."""

    def __init__(self, race: Race, number: int, skew: float = 0, dies_before: str = "") -> None:
        self._log: Path = race.folder / f"dispatcher-{number}.log"
        environment = race.environment() | {"RACE_SKEW": str(skew), "RACE_DIES_BEFORE": dies_before}
        command = [sys.executable, "-m", "support.races.dispatcher"]
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=race.folder)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    async def started(self) -> None:
        await until(lambda: "Dispatcher started" in self.log() or self.process.poll() is not None, PATIENCE, self.log)
        assert self.process.poll() is None, self.log()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    async def stop(self) -> None:
        """SIGTERM, and a clean exit."""
        self.process.send_signal(signal.SIGTERM)
        await until(lambda: self.process.poll() is not None, PATIENCE, self.log)
        assert self.process.returncode == 0, self.log()


class Crew:
    """The dispatchers of a race; all are gone when the block ends."""

    def __init__(self, race: Race) -> None:
        self.race = race
        self.all: list[Dispatcher] = []

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for dispatcher in self.all:
            dispatcher.kill()

    def start(self, skew: float = 0, dies_before: str = "") -> Dispatcher:
        self.all.append(Dispatcher(self.race, len(self.all), skew, dies_before))
        return self.all[-1]

    def log(self) -> str:
        return "\n".join(f"--- {n}\n{found.log()[-1000:]}" for n, found in enumerate(self.all[-4:]))


def second(value: Any) -> int:
    """A tick as either engine stores it."""
    found = value.timestamp() if isinstance(value, datetime) else float(value)
    assert found == floor(found), f"{value} is not the nominal moment"
    return floor(found)


def fired(race: Race, table: str = "jobs_live") -> Counter[tuple[str, int]]:
    """How many jobs, or rows of `ticks`, each tick has."""
    found = race.query(f"SELECT schedule_id, tick FROM {{t}}{table}")
    return Counter((name, second(tick)) for name, tick in found)


def first_tick(race: Race, name: str) -> int:
    """The first whole second after the schedule was declared."""
    ((made,),) = race.query("SELECT created_at FROM {t}schedules WHERE id = %s", name)
    return floor(made.timestamp() if isinstance(made, datetime) else made) + 1


def judge(race: Race, jobs: Counter[tuple[str, int]], least: int) -> None:
    """Fires per tick = 1, missing = 0, nothing from the future, a row for each."""
    assert set(jobs.values()) == {1}, {tick: n for tick, n in jobs.items() if n > 1}
    assert jobs == fired(race, "ticks")
    for name in NAMES:
        ticks = sorted(tick for which, tick in jobs if which == name)
        missing = set(range(first_tick(race, name), ticks[-1] + 1)) - set(ticks)
        assert not missing, f"{name}: {len(missing)} ticks are missing: {sorted(missing)[:5]}"
        assert ticks == list(range(ticks[0], ticks[-1] + 1))
        # A second may begin between the look at the clock and the row that it is written to.
        assert first_tick(race, name) - ticks[0] in (0, 1)
        assert len(ticks) >= least
        assert ticks[-1] <= time.time() + 0.1  # the server of the tests is on this machine


def passed(race: Race, count: int) -> bool:
    """So many ticks of each schedule have fired."""
    return bool(race.query("SELECT count(*) FROM {t}ticks WHERE schedule_id = %s", NAMES[-1])[0][0] >= count)


@pytest.mark.parametrize("count", [6, pytest.param(120, marks=pytest.mark.soak)])
async def test_three_dispatchers_killed_at_random_fire_every_tick_once(race: Race, count: int) -> None:
    chance, kills = random.Random(5), 0
    with Crew(race) as crew:
        three = [crew.start() for _ in range(3)]
        for dispatcher in three:
            await dispatcher.started()
        deadline = time.monotonic() + 2 * count + PATIENCE
        while kills < count / 6 or not passed(race, count):  # on a busy machine ticks are quicker than kills
            assert time.monotonic() < deadline, crew.log()
            # Most often within the transaction that fires, which begins with the second.
            into = chance.choice([0.002, 0.005, 0.01, 0.02, 0.5])
            await asyncio.sleep((into - time.time()) % 1.0)
            victims = chance.sample(range(3), chance.choice([1, 1, 1, 3]))
            for victim in victims:
                three[victim].kill()
                kills += 1
            for victim in victims:
                three[victim] = crew.start()
            await three[victims[0]].started()
        for dispatcher in three:
            await dispatcher.started()
            await dispatcher.stop()
    judge(race, fired(race), count)


async def test_dispatchers_that_die_between_two_statements_of_a_round_lose_no_tick_and_fire_none_twice(
    race: Race,
) -> None:
    """Ticks, jobs and the next tick are one transaction. A kill at a random moment hardly ever falls between two of
    its statements, which are a millisecond apart."""
    with Crew(race) as crew:
        for statement in ("write_ticks", "fire_jobs", "move_on"):
            victim = crew.start(dies_before=statement)
            await until(lambda: victim.process.poll() is not None, PATIENCE, crew.log)  # noqa: B023
            assert victim.process.returncode == -signal.SIGKILL, crew.log()
            assert sum(fired(race, "ticks").values()) == 0, f"a round that died before {statement} has left something"
        survivor = crew.start()
        await until(lambda: passed(race, 3), PATIENCE, crew.log)
        await survivor.stop()
    judge(race, fired(race), 3)


async def test_dispatchers_with_wrong_clocks_fire_nothing_extra_even_when_the_jobs_are_gone(
    postgres_race: Race,
) -> None:
    race = postgres_race
    seen: Counter[tuple[str, int]] = Counter()

    def forget_jobs() -> None:
        found = race.query("DELETE FROM {t}jobs_live RETURNING schedule_id, tick")
        seen.update((name, second(tick)) for name, tick in found)

    with Crew(race) as crew:
        right = crew.start()
        await until(lambda: passed(race, 2), PATIENCE, crew.log)
        await right.stop()
        forget_jobs()
        for skew in (-120.0, 3600.0):
            wrong = crew.start(skew)
            await wrong.started()
            here = datetime.now(UTC).timestamp()
            (told,) = [line.partition("says ")[2] for line in wrong.log().splitlines() if "my clock says" in line]
            assert abs(datetime.fromisoformat(told).timestamp() - here - skew) < 20, "its clock was right"
            before = sum(fired(race, "ticks").values())
            more = before + 2 * len(NAMES)
            await until(lambda more=more: sum(fired(race, "ticks").values()) >= more, PATIENCE, crew.log)
            forget_jobs()
            await wrong.stop()
        together = [crew.start(skew) for skew in (-120.0, 0.0, 3600.0)]
        for dispatcher in together:
            await dispatcher.started()
        before = sum(fired(race, "ticks").values())
        await until(lambda: sum(fired(race, "ticks").values()) >= before + 2 * len(NAMES), PATIENCE, crew.log)
        for dispatcher in together:
            await dispatcher.stop()
    forget_jobs()
    judge(race, seen, 6)
