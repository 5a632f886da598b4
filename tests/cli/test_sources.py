"""Limits on outside services, set, seen and lifted by an operator while workers run."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cli.command import Cli, Inside, wait_until

MARKET = """
import asyncio
from pathlib import Path

from rowlock import Permanent, Rowlock, SourceError

app = Rowlock()


@app.task("buy", source="api:ebay", max_attempts=1)
async def buy(how: str = "well") -> str:
    if how == "down":
        raise SourceError("it answered 503", code="HTTP_503")
    if how == "forbidden":
        raise Permanent("it answered 403", code="HTTP_403")
    return "bought"


@app.task("hold", source="api:ebay")
async def hold(started: str, until: str) -> None:
    Path(started).touch()
    while not Path(until).exists():
        await asyncio.sleep(0.02)


@app.task("free")
async def free() -> str:
    return "done"
"""

DOCUMENTED = [
    "name",
    "enabled",
    "failure_streak",
    "last_success_at",
    "last_failure_at",
    "paused_until",
    "rate_limit_per_minute",
]
EBAY = ["sources", "set", "api:ebay", "--concurrency", "4", "--rate", "30/min", "--burst", "5"]
APP = ["--app", "market"]


@pytest.fixture(autouse=True)
def market(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app whose tasks call a source."""
    (folder / "market.py").write_text(MARKET)
    monkeypatch.delitem(sys.modules, "market", raising=False)


def source(command: Cli | Inside, name: str) -> dict[str, Any]:
    """One line of `sources list --json`."""
    (found,) = [row for row in command.json("sources", "list") if row["name"] == name]
    return dict(found)


def test_limits_are_set_listed_changed_and_taken_back(here: Inside) -> None:
    assert here.out(*EBAY) == "api:ebay is open: concurrency 4, rate 30/min, burst 5"
    ebay = source(here, "api:ebay")
    assert (ebay["concurrency"], ebay["rate_limit_per_minute"], ebay["burst"]) == (4, 30, 5)
    assert (ebay["enabled"], ebay["set_by"], ebay["running"]) == (True, "operator", 0)

    table = [line.split() for line in here.out("sources", "list").splitlines()]
    assert table[0][:5] == ["name", "state", "running", "concurrency", "rate"]
    assert [row[0] for row in table[1:]] == ["api", "api:ebay", "domain"]
    assert table[2][1:5] == ["open", "0", "4", "30/min"]

    changed = here.json("sources", "set", "api:ebay", "--concurrency", "2", "--cooldown", "1m", "--factor", "2")
    assert (changed["concurrency"], changed["rate"], changed["cooldown"], changed["factor"]) == (2, "30/min", 60, 2)
    assert here.out("sources", "set", "api", "--concurrency", "7", "--total", "9").startswith("api is open: ")
    assert here.json("sources", "set", "api:ebay", "--concurrency", "none")["concurrency"] == 7
    assert here.json("sources", "set", "api:ebay", "--concurrency", "unlimited")["concurrency"] == "unlimited"
    assert here.out("sources", "set", "api:ebay", "--reset") == "api:ebay is open: concurrency 7"
    assert here.json("sources", "set", "api:ebay", "--reset", "--burst", "3", "--rate", "2/s")["rate"] == "120/min"
    assert here.out("sources", "set", "api", "--total", "unlimited") == "api is open: concurrency 7, total unlimited"
    assert here.out("sources", "set", "svc") == "svc is open: no limits"
    assert here.json("sources", "set", "svc:a", "--threshold", "3", "--block-after", "2")["block_after"] == 2


def test_a_source_has_the_documented_fields_and_they_follow_what_happens(cli: Cli, here: Inside) -> None:
    worker = cli.start("worker", *APP)
    here.run(*EBAY)
    assert here.out("enqueue", "buy", *APP, "--wait") == "bought"
    well = source(here, "api:ebay")
    assert set(DOCUMENTED) < set(well)
    assert datetime.fromisoformat(well["last_success_at"]).tzinfo is not None
    assert (well["last_failure_at"], well["failure_streak"], well["paused_until"]) == (None, 0, None)

    for streak in range(1, 6):
        assert "503" in here.error("enqueue", "buy", "how=down", *APP, "--wait", code=1)
        assert source(here, "api:ebay")["failure_streak"] == streak
    broken = source(here, "api:ebay")
    assert broken["state"] == "broken"
    assert broken["paused_until"] > broken["last_failure_at"] > well["last_success_at"]
    assert broken["last_error"].startswith("HTTP_503")

    waiting = here.out("enqueue", "buy", *APP)
    why = here.json("jobs", "explain", waiting)
    assert (why["reason"], why["state"]) == ("breaker", "queued")
    assert datetime.fromisoformat(why["waits_until"]) > datetime.fromisoformat(broken["last_failure_at"])
    assert "`rowlock sources resume api:ebay` opens it now" in here.out("jobs", "explain", waiting)
    assert here.out("sources", "resume", "api:ebay").startswith("api:ebay is open")
    wait_until(lambda: here.json("jobs", "show", waiting)["state"] == "succeeded", "it goes on")
    assert source(here, "api:ebay")["failure_streak"] == 0
    assert worker.stop() == 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_paused_source_keeps_its_jobs_queued_until_it_goes_on(cli: Cli, here: Inside) -> None:
    worker = cli.start("worker", *APP)
    worker.wait_for("Worker started: ")
    paused = here.json("sources", "pause", "api:ebay")
    assert (paused["name"], paused["enabled"], paused["paused_until"]) == ("api:ebay", False, None)
    job = here.out("enqueue", "buy", *APP)
    assert here.out("enqueue", "free", *APP, "--wait") == "done"  # the worker has looked
    assert here.json("jobs", "explain", job)["reason"] == "stopped"
    assert here.out("jobs", "explain", job) == (
        "Its source 'api:ebay' is paused; `rowlock sources resume api:ebay` opens it now."
    )
    story = here.json("jobs", "show", job)
    assert (story["state"], story["attempt"]) == ("queued", 0)

    assert here.out("sources", "resume", "api:ebay") == "api:ebay is open: no limits"
    wait_until(lambda: here.json("jobs", "show", job)["state"] == "succeeded", "it goes on")

    assert here.out("sources", "pause", "api:ebay", "--for", "10m") == "api:ebay is paused: no limits"
    job = here.out("enqueue", "buy", *APP)
    why = here.json("jobs", "explain", job)
    until = datetime.fromisoformat(source(here, "api:ebay")["paused_until"])
    assert why["reason"] == "stopped"
    assert abs((datetime.fromisoformat(why["waits_until"]) - until).total_seconds()) < 1
    assert here.json("sources", "resume", "api:ebay")["paused_until"] is None
    wait_until(lambda: here.json("jobs", "show", job)["state"] == "succeeded", "it goes on again")
    assert worker.stop() == 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_paused_class_is_what_the_explanation_names(cli: Cli, here: Inside) -> None:
    worker = cli.start("worker", *APP)
    worker.wait_for("Worker started: ")
    assert here.json("sources", "pause", "api")["enabled"] is False
    job = here.out("enqueue", "buy", *APP)
    assert here.json("jobs", "explain", job)["reason"] == "stopped"
    assert "rowlock sources resume api`" in here.out("jobs", "explain", job)  # of the source would change nothing
    here.run("sources", "resume", "api")
    wait_until(lambda: here.json("jobs", "show", job)["state"] == "succeeded", "it goes on")
    assert worker.stop() == 0


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_running_worker_heeds_a_limit_and_its_change(cli: Cli, here: Inside) -> None:
    here.run("sources", "set", "api:ebay", "--concurrency", "1")
    worker = cli.start("worker", *APP)
    worker.wait_for("Worker started: ")

    def held(name: str) -> str:
        return here.out("enqueue", "hold", f"started={cli.folder}/{name}", f"until={cli.folder}/end", *APP)

    first = held("first")
    wait_until((cli.folder / "first").exists, "the first one runs")
    second = held("second")
    why = here.json("jobs", "explain", second)
    assert (why["reason"], why["busy_with"], why["state"]) == ("saturated", [first], "queued")
    assert here.out("jobs", "explain", second).startswith(
        f"Its source 'api:ebay' runs 1 of 1 jobs that it may: {first} on "
    )
    assert source(here, "api:ebay")["running"] == 1

    here.run("sources", "set", "api:ebay", "--concurrency", "2")
    wait_until((cli.folder / "second").exists, "there is room for the second one")
    here.run("sources", "set", "api", "--total", "2")
    here.run("sources", "set", "api:ebay", "--concurrency", "unlimited")
    third = held("third")
    assert here.out("enqueue", "free", *APP, "--wait") == "done"
    why = here.json("jobs", "explain", third)
    assert (why["reason"], sorted(why["busy_with"])) == ("saturated", sorted([first, second]))
    assert "The class 'api' of its source runs 2 of 2" in why["text"]
    assert not (cli.folder / "third").exists()

    (cli.folder / "end").touch()
    wait_until(lambda: here.json("jobs", "show", third)["state"] == "succeeded", "all come to their end")
    assert worker.stop() == 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_sources_that_refuse_are_listed_as_block_candidates(cli: Cli, here: Inside) -> None:
    worker = cli.start("worker", *APP)
    for _ in range(2):
        assert "403" in here.error("enqueue", "buy", "how=forbidden", *APP, "--wait", code=1)
    (candidate,) = here.json("sources", "list", "--candidates", "2")
    assert (candidate["name"], candidate["refusals"], candidate["refusal_code"]) == ("api:ebay", 2, "HTTP_403")
    assert (candidate["enabled"], candidate["failure_streak"]) == (True, 0)
    assert here.out("sources", "list", "--candidates", "2").splitlines()[1].split()[:3] == ["api:ebay", "2", "HTTP_403"]
    assert here.out("sources", "list", "--candidates", "3") == "no sources"

    here.run("sources", "set", "api", "--block-after", "3")
    here.error("enqueue", "buy", "how=forbidden", *APP, "--wait", code=1)
    assert source(here, "api:ebay")["enabled"] is False
    assert worker.stop() == 0


def test_a_worker_writes_what_its_file_says_unless_an_operator_has_set_it(lite: Cli, lite_here: Inside) -> None:
    (lite.folder / "rowlock.yaml").write_text(
        'sources: {domain: {concurrency: 2}, "api:ebay": {rate: 30/min, burst: 5, cooldown: 1m}, svc: {total: 9}}\n'
    )
    worker = lite.start("worker", *APP)
    worker.wait_for("Worker started: ")
    written = {row["name"]: row for row in lite_here.json("sources", "list")}
    ebay = written["api:ebay"]
    assert (ebay["rate"], ebay["burst"], ebay["cooldown"], ebay["set_by"]) == ("30/min", 5, 60, "config")
    assert (written["domain"]["concurrency"], written["svc"]["total"]) == (2, 9)
    assert lite_here.json("sources", "set", "domain:any.example")["concurrency"] == 2  # the default of its class
    assert worker.stop() == 0

    lite_here.run("sources", "set", "api:ebay", "--rate", "60/min")
    worker = lite.start("worker", *APP)
    worker.wait_for("source api:ebay keeps the limits that an operator set")
    ebay = source(lite_here, "api:ebay")
    assert (ebay["rate"], ebay["burst"], ebay["set_by"]) == ("60/min", 5, "operator")
    worker.wait_for("Worker started: ")
    assert worker.stop() == 0
