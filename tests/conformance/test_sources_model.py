"""Random games against models of slots, bucket and breaker, on both engines; and mutants that the games must find."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from rowlock.core.errors import StoreError
from support.each import each
from support.races.interleave import rewrite
from support.rigs.sources_model import Breaker, Game, Limits, World

games = pytest.mark.parametrize("game", [Limits, Breaker])


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if request.param == "sqlite":
        world = World(f"sqlite:///{tmp_path_factory.mktemp('model') / 'jobs.db'}")
        yield world
        world.close()
        return
    server, name = request.getfixturevalue("postgres_server"), f"rowlock_model_{uuid.uuid4().hex[:12]}"
    world = World(server.create_database(name, template=request.getfixturevalue("template")))
    yield world
    world.close()
    server.drop_database(name)


def play(world: World, game: type[Game], examples: int, steps: int, **how: Any) -> None:
    machine = type(game.__name__, (game,), {"world": world})
    common = {"database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}
    how = {"max_examples": examples, "stateful_step_count": steps, **common, **how}
    run_state_machine_as_test(machine, settings=settings(**how))


@games
def test_sources_behave_as_the_model(world: World, game: type[Game]) -> None:
    # The same games on every push; the soak plays new ones.
    play(world, game, examples=12, steps=30, derandomize=True)


# What is taken out of which statement, on SQLite: a pattern, and what comes instead.
MUTANTS: dict[str, tuple[type[Game], str, str, str]] = {
    "a bucket that is filled twice": (Limits, "spend", r"tokens_at = max.*", "tokens_at = coalesce(tokens_at, ?2)"),
    "a bucket that a clock can fill": (Limits, "spend", r"tokens_at = max.*", "tokens_at = ?2"),
    "a limit that sees nobody": (Limits, "gates", r"r\.source = named\.source\s+AND", "r.source = '' AND"),
    "a class that sees nobody": (Limits, "gates", r"= \+c\.name\s+AND \(SELECT", "= '' AND (SELECT"),
    "a probe that is forgotten": (Breaker, "set_probe", r"probe_job = \?1", "probe_job = nullif(?1, ?1)"),
    "a success from before that closes": (Breaker, "source_succeeded", r"epoch = \?3", "epoch >= ?3"),
}


@each("name", MUTANTS)
def test_the_model_finds_a_store_without_a_guard(tmp_path: Path, name: str) -> None:
    game, *change = MUTANTS[name]
    world = World(f"sqlite:///{tmp_path}/{name}.db")
    try:
        rewrite(world.rig.store, *change)
        with pytest.raises((AssertionError, StoreError)):
            play(world, game, 100, 50, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
    finally:
        world.close()


@games
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_sources_behave_as_the_model_for_long(world: World, game: type[Game]) -> None:
    play(world, game, examples=1000, steps=60)
