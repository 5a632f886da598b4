"""Bad input about sources: one clear line, exit code 2, and nothing is changed."""

from typing import Any

import pytest

from cli.command import Cli, Inside
from support.each import each

SET = ["sources", "set", "api:ebay"]
MISTAKES = [
    (["sources", "set", "svc:a", "--concurrency", "1"], "no class 'svc'; known: api, domain"),
    (["sources", "pause", "svc:a"], "no class 'svc'; known: api, domain"),
    (["sources", "pause", "ebay"], "no class 'ebay'; known: api, domain"),
    (["sources", "resume", "ebay"], "no class 'ebay'; known: api, domain"),
    (["sources", "resume", "svc:a"], "no class 'svc'; known: api, domain"),
    (["sources", "resume", "api:nobody"], "no source or class named 'api:nobody'"),
    (["sources", "set", "nobody", "--reset"], "no source or class named 'nobody'"),
    (["sources", "set", "", "--burst", "1"], "named like api:ebay"),
    ([*SET, "--concurrency", "-1"], "concurrency of source 'api:ebay' must be a whole number from 0, not -1"),
    ([*SET, "--concurrency", "two"], "--concurrency 'two': expected a whole number"),
    ([*SET, "--concurrency", "9", "--burst", "0"], "burst of source 'api:ebay' must be a whole number from 1, not 0"),
    ([*SET, "--rate", "30"], "a rate needs a number and a unit, such as 30/min"),
    ([*SET, "--rate", "30/fortnight"], "a rate needs a number and a unit"),
    ([*SET, "--rate", "0/min"], "to stop a source, pause it"),
    ([*SET, "--rate", "99999999/s"], "a rate must be at most 1,000,000,000/min"),
    ([*SET, "--total", "3"], "total is for a class: set it on 'api'"),
    ([*SET, "--cooldown", "soon"], "--cooldown 'soon'"),
    ([*SET, "--factor", "0.5"], "factor of source 'api:ebay' must be a number from 1"),
    ([*SET, "--factor", "x"], "--factor 'x'"),
    ([*SET, "--block-after", "0"], "block_after of source 'api:ebay' must be a whole number from 1"),
    ([*SET, "--threshold", "unlimited"], "threshold of source 'api:ebay' must be a whole number from 1"),
    ([*SET, "--reset", "--concurrency", "-1"], "must be a whole number from 0, not -1"),
    (["sources", "pause", "api:ebay", "--for", "soon"], "--for 'soon'"),
]


@pytest.fixture
def listed(inside: Inside) -> Any:
    """The sources as they were listed before a mistake; one has limits."""
    inside.run(*SET, "--concurrency", "4", "--rate", "30/min", "--burst", "5")
    return inside.json("sources", "list")


@each("words, expected", MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(
    inside: Inside, listed: Any, words: list[str], expected: str
) -> None:
    assert expected in inside.error(*words, code=2)
    assert inside.json("sources", "list") == listed


def test_mistakes_are_the_same_on_both_engines(here: Inside) -> None:
    before = here.json("sources", "list")
    assert "known: api, domain" in here.error("sources", "set", "svc:a", "--rate", "1/s", code=2)
    assert "from 0, not -2" in here.error("sources", "set", "api:ebay", "--concurrency", "-2", code=2)
    assert here.json("sources", "list") == before


def test_sources_of_a_broken_file_stop_the_worker_with_one_line(lite: Cli, lite_here: Inside) -> None:
    wrong = {
        "sources: {api: {concurrency: -1}}\n": "must be a whole number from 0, not -1",
        "sources: {'api:ebay': {rate: 30}}\n": "such as 30/min",
        "sources: {'api:ebay': {speed: 3}}\n": "no setting 'speed'",
        "sources: {'api:ebay': {total: 3}}\n": "total is for a class",
    }
    for number, text in enumerate(wrong):
        (lite.folder / f"wrong-{number}.yaml").write_text(text)
    said = lite.errors((["worker", "--app", "shop", "--config", f"wrong-{n}.yaml"] for n in range(len(wrong))), code=2)
    for number, (line, expected) in enumerate(zip(said, wrong.values(), strict=True)):
        assert expected in line
        assert f"wrong-{number}.yaml:1" in line
    assert [row["name"] for row in lite_here.json("sources", "list")] == ["api", "domain"]
