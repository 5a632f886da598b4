import json
import re
from pathlib import Path

from cli.command import Cli

EXPECTED = [
    "demo.charge: attempt 1 failed (ConnectionError: the bank hung up), will be tried again",
    "demo.charge: succeeded on attempt 3",
    "demo.fetch: dead (HTTP_410:",
    "demo.report: dead (TIMEOUT: timed out after 1 s)",
    "demo.primes: succeeded on attempt 1",
    "demo.import: succeeded on attempt 1",
    "demo.mirror: cancel asked for",
    "demo.mirror: cancelled",
    "47 succeeded, 2 dead, 1 cancelled",
]


def test_the_demo_shows_every_way_a_job_can_go_and_leaves_nothing_behind(folder: Path) -> None:
    told = Cli(folder, None).out("demo", "--once")
    assert [line for line in EXPECTED if line not in told] == []
    (file,) = re.findall(r"sqlite:///(\S+demo\.db)", told.partition("worker")[0])
    assert not Path(file).parent.exists()
    assert sorted(path.name for path in folder.iterdir()) == ["shop.py"]


def test_the_demo_migrates_and_keeps_a_database_that_it_was_given(folder: Path, postgres_url: str) -> None:
    cli = Cli(folder, None)
    told = cli.out("demo", "engine", "--database", postgres_url)
    assert [line for line in EXPECTED if line not in told] == []
    assert f"rowlock jobs list --database {postgres_url}" in told
    dead = json.loads(cli.out("jobs", "list", "--state", "dead", "--json", "--database", postgres_url))
    assert sorted(job["task"] for job in dead) == ["demo.fetch", "demo.report"]
