"""Schedules as an operator sees them: real commands on both engines, and mistakes that change nothing."""

import itertools
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from cli.command import Cli, Inside, wait_until
from support.each import each

CLOCKWORK = """
from rowlock import Rowlock

app = Rowlock()


@app.schedule("0 3 * * *", zone="Asia/Seoul", missed="latest", overlap="skip")
@app.task("report")
async def report(day: str = "today") -> str:
    return day


@app.task("greet")
async def greet(name: str) -> str:
    return f"hello {name}"
"""
APP = ["--app", "clockwork"]
ADD = ["schedules", "add", "s", "greet", "name=ana", *APP]


@pytest.fixture(autouse=True)
def clockwork(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app with one schedule in its code."""
    (folder / "clockwork.py").write_text(CLOCKWORK)
    monkeypatch.delitem(sys.modules, "clockwork", raising=False)


def named(command: Cli | Inside, name: str) -> dict[str, Any]:
    """One line of `schedules list --json`."""
    (found,) = [row for row in command.json("schedules", "list") if row["name"] == name]
    return dict(found)


def moments(found: list[str]) -> list[datetime]:
    return [datetime.fromisoformat(text) for text in found]


def test_an_added_schedule_is_listed_with_its_rule_in_words_and_its_next_ticks(here: Inside) -> None:
    assert here.out("schedules", "list") == "no schedules"
    said = here.out(*ADD, "--cron", "0 3 * * *", "--zone", "Asia/Seoul", "--missed", "all")
    assert said.startswith("s is on: ")
    assert "03:00" in said
    row = named(here, "s")
    assert (row["task"], row["args"], row["zone"], row["missed"]) == ("greet", {"name": "ana"}, "Asia/Seoul", "all")
    assert (row["state"], row["origin"], row["last_tick"], row["last_state"]) == ("on", "runtime", None, None)
    assert "Asia/Seoul" in row["words"]
    coming = moments(row["next"])
    assert [(tick.astimezone(UTC).hour, tick.minute) for tick in coming] == [(18, 0)] * 3
    table = here.out("schedules", "list").splitlines()
    assert table[0].split()[:3] == ["name", "state", "words"]
    assert row["words"] in table[1], "the list shows the rule in words"


def test_a_schedule_that_is_added_again_has_the_new_rule(here: Inside) -> None:
    here.out(*ADD, "--cron", "0 3 * * *", "--zone", "Asia/Seoul")
    assert here.json(*ADD, "--every", "30s", "--overlap", "skip")["overlap"] == "skip"
    ticks = moments(here.json("schedules", "next", "s", "5"))
    assert [after - before for before, after in itertools.pairwise(ticks)] == [timedelta(seconds=30)] * 4
    assert ticks[0] - datetime.now(UTC) <= timedelta(seconds=30)
    assert len(here.out("schedules", "next", "s").splitlines()) == 3


def test_a_paused_schedule_has_no_next_tick_until_it_is_resumed(here: Inside) -> None:
    here.out(*ADD, "--every", "30s")
    assert here.json("schedules", "pause", "s")["state"] == "paused"
    assert (named(here, "s")["state"], named(here, "s")["next"]) == ("paused", [])
    assert here.out("schedules", "next", "s") == "none"
    assert here.out("schedules", "resume", "s").startswith("s is on: every 30 s")
    assert len(moments(here.json("schedules", "next", "s", "5"))) == 5


def test_a_schedule_that_is_run_by_hand_makes_a_job_without_a_tick_each_time(here: Inside) -> None:
    here.out(*ADD, "--every", "30s")
    job_id = here.out("schedules", "run", "s")
    job = here.json("jobs", "show", job_id)
    assert (job["task"], job["args"], job["schedule_id"], job["tick"]) == ("greet", {"name": "ana"}, "s", None)
    assert here.json("schedules", "run", "s")["job_id"] != job_id


def test_a_removed_schedule_is_no_longer_listed(here: Inside) -> None:
    here.out(*ADD, "--every", "30s")
    assert here.out("schedules", "remove", "s") == "s is removed"
    assert here.json("schedules", "list") == []


def test_every_option_of_add_reaches_the_schedule_and_its_jobs(here: Inside) -> None:
    options = ["--queue", "slow", "--priority", "-5", "--owner", "ana", "--source", "api:x", "--max-attempts", "4"]
    times = ["--start", "2030-01-01T00:00:00Z", "--end", "2030-01-03T00:00:00Z", "--jitter", "5s", "--timeout", "30s"]
    row = here.json(*ADD, "--cron", "15 30 4 * * *", "--seconds", *options, *times)
    assert moments(row["next"]) == [datetime(2030, 1, day, 4, 30, 15, tzinfo=UTC) for day in (1, 2)]
    job = here.json("jobs", "show", here.out("schedules", "run", "s"))
    assert (job["queue"], job["priority"], job["owner"], job["source"]) == ("slow", -5, "ana", "api:x")
    assert (job["max_attempts"], job["timeout_seconds"]) == (4, 30)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_one_off_is_added_with_at(here: Inside) -> None:
    row = here.json(*ADD, "--at", "2030-06-01T09:00", "--zone", "Europe/Berlin")
    assert moments(row["next"]) == [datetime(2030, 6, 1, 7, tzinfo=UTC)]


def test_dispatch_fires_what_the_code_the_config_and_an_operator_have(cli: Cli, here: Inside) -> None:
    (cli.folder / "rowlock.yaml").write_text(
        "schedules:\n  configured: {handler_name: greet, handler_params: {name: bo}, every: 1s, max_retry: 3}\n"
    )
    here.run(*ADD, "--every", "1s")
    dispatcher = cli.start("dispatch", *APP)
    dispatcher.wait_for("Dispatcher started")

    def fired() -> bool:
        return all(named(here, name)["last_tick"] for name in ("s", "configured"))

    wait_until(fired, "ticks of both")
    origins = {row["name"]: row["origin"] for row in here.json("schedules", "list")}
    assert origins == {"s": "runtime", "configured": "config", "report": "code"}
    row = named(here, "configured")
    job = here.json("jobs", "show", row["last_job"])
    assert (job["args"], job["max_attempts"], row["last_state"]) == ({"name": "bo"}, 4, "queued")
    assert "comes from the code" in here.error("schedules", "remove", "report", code=4)
    assert "comes from the config" in here.error("schedules", "add", "configured", "greet", "name=x", "--every", "1s",
                                                 *APP, code=2)  # fmt: skip
    assert dispatcher.stop() == 0
    assert "Dispatcher stopped" in dispatcher.log


@pytest.mark.parametrize("engine", ["sqlite"])
def test_up_dispatches_and_works_in_one_process(cli: Cli, here: Inside) -> None:
    here.run(*ADD, "--every", "1s")
    running = cli.start("up", *APP)
    wait_until(lambda: named(here, "s")["last_state"] == "succeeded", "a tick whose job succeeded")
    assert running.stop() == 0


SICK = """
import rowlock.store.schedules.fire
import rowlock.worker.loops
from clockwork import app

rowlock.worker.loops.GIVE_UP_AFTER = 2


def fire(*given):
    raise RuntimeError("sick")


rowlock.store.schedules.fire.fire = fire
"""


@pytest.mark.parametrize("engine", ["sqlite"])
def test_up_ends_when_its_dispatcher_has_died(cli: Cli, here: Inside) -> None:
    (cli.folder / "sick.py").write_text(SICK)
    here.run(*ADD, "--every", "1s")
    running = cli.start("up", "--app", "sick")
    assert running.process.wait(30) == 1
    assert "Worker stopped" in running.log, "it was not stopped gracefully"
    told = "rowlock: unexpected RuntimeError: sick (set ROWLOCK_DEBUG=1 to see the traceback)"
    assert running.log.splitlines()[-1] == told


MISTAKES = [
    (["--cron", "0 0 31 2 *"], ["0 0 31 2 *", "never|no such day|no date|29"]),
    (["--cron", "0 0 3 * * *"], ["six fields|6 fields", "option seconds"]),
    (["--cron", "0 3 * *"], ["0 3 * *"]),
    (["--cron", "61 3 * * *"], ["61"]),
    (["--cron", "0-4000000000 3 * * *"], ["4000000000"]),
    (["--cron", "0 3 * * *", "--zone", "Asia/Soul"], ["Asia/Soul", "Asia/Seoul"]),
    (["--every", "0s"], ["0s"]),
    (["--every", "soon"], ["soon"]),
    (["--at", "yesterday"], ["yesterday"]),
    (["--at", "2020-01-01T00:00"], ["at 2020-01-01T00:00", "would never fire"]),
    (["--every", "1h", "--end", "2020-01-01T00:00Z"], ["2020-01-01T00:00", "would never fire"]),
    ([], ["cron, every"]),
    (["--cron", "0 3 * * *", "--every", "1h"], ["one of cron, every and at"]),
    (["--every", "1h", "--missed", "some"], ["latest, skip, all", "some"]),
    (["--every", "1h", "--overlap", "maybe"], ["allow, skip", "maybe"]),
    (["--every", "1h", "--jitter", "x"], ["--jitter", "x"]),
    (["--every", "1h", "--start", "soon"], ["--start", "soon"]),
    (["--every", "1h", "--priority", "1000"], ["1000"]),
    (["--every", "1h", "--max-attempts", "0"], ["0"]),
    (["--every", "1h", "--missed-most", "10001"], ["missed_most must be at most 10000"]),
    (["--every", "1h", "--end", "0001-01-01T00:00Z"], ["1970 to 2199"]),
    (["--every", "1h", "--start", "2030-01-02T00:00Z", "--end", "2030-01-01T00:00Z"], ["before start"]),
    (["--every", "1h", "--owner", "\udcff"], ["owner must be", "UTF-8"]),
]


@pytest.fixture
def added(inside: Inside) -> dict[str, Any]:
    """A schedule as it was listed before a mistake, without the ticks to come."""
    inside.run(*ADD, "--every", "5m")
    return named(inside, "s") | {"next": None}


@each("words, expected", MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(
    inside: Inside, added: dict[str, Any], words: list[str], expected: list[str]
) -> None:
    line = inside.error(*ADD, *words, code=2)
    for text in expected:
        assert re.search("|".join(map(re.escape, text.split("|"))), line), line
    assert [row | {"next": None} for row in inside.json("schedules", "list")] == [added]


@each(
    "given, wrong",
    [(["name=ana", "nam=x"], "nam: no such argument"), ([], "name: missing"), (["name=1", "name=2"], "name=2")],
)
def test_arguments_are_checked_as_an_enqueue_does(inside: Inside, given: list[str], wrong: str) -> None:
    of_enqueue = inside.error("enqueue", "greet", *given, *APP, code=2)
    line = inside.error("schedules", "add", "s", "greet", *given, *APP, "--every", "5m", code=2)
    assert wrong in line
    assert line.endswith(of_enqueue)
    assert inside.json("schedules", "list") == []


def test_without_the_code_it_is_said_that_arguments_were_not_checked(inside: Inside) -> None:
    told = inside.run("schedules", "add", "s", "greet", "nam=x", "--every", "5m", "--defaults")
    assert "s is on: every 5 minutes" in told.stdout
    assert "the arguments were not checked" in told.stderr
    assert "--app" in told.stderr


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_list_that_is_cut_says_so(here: Inside) -> None:
    for name in "abc":
        here.run("schedules", "add", name, "greet", "name=ana", *APP, "--every", "5m")
    told = here.run("schedules", "list", "--limit", "2")
    assert [line.split()[0] for line in told.stdout.splitlines()] == ["name", "a", "b"]
    assert told.stderr == "rowlock: only the first 2 are shown; --limit shows more\n"
    assert here.run("schedules", "list", "--limit", "3").stderr == ""
    told = here.run("sources", "list", "--limit", "1")
    assert told.stderr == "rowlock: only the first 1 are shown; --limit shows more\n"
    for _ in range(2):
        here.run("schedules", "run", "a")
    assert "only the first 1" in here.run("jobs", "list", "--limit", "1").stderr


def test_a_schedule_that_has_no_tick_left_is_over(inside: Inside) -> None:
    inside.run("schedules", "add", "once", "greet", "name=ana", *APP, "--at", "2199-06-01T09:00")
    assert named(inside, "once")["state"] == "on"
    database = apsw.Connection("inside.db")
    database.execute("UPDATE rowlock_schedules SET rule = 'at 2020-06-01T09:00:00+00:00', next_tick = NULL")
    database.close()
    assert (named(inside, "once")["state"], named(inside, "once")["next"]) == ("over", [])


def test_mistakes_are_the_same_on_both_engines(here: Inside) -> None:
    assert "0 0 31 2 *" in here.error(*ADD, "--cron", "0 0 31 2 *", code=2)
    assert "UTF-8" in here.error(*ADD, "--every", "1h", "--owner", "\udcff", code=2)
    assert "no schedule named" in here.error("schedules", "run", "\udcff", code=3)
    assert "1970 to 2199" in here.error(*ADD, "--every", "1h", "--end", "0001-01-01T00:00Z", code=2)
    assert "Asia/Seoul" in here.error(*ADD, "--cron", "0 3 * * *", "--zone", "asia/soul", code=2)
    for verb in ("next", "pause", "resume", "remove", "run"):
        assert "nope" in here.error("schedules", verb, "nope", code=3)
    assert here.json("schedules", "list") == []


def test_a_task_that_the_app_does_not_know_is_refused_with_the_nearest(inside: Inside) -> None:
    line = inside.error("schedules", "add", "s", "gret", "name=ana", "--every", "1h", *APP, code=2)
    assert "gret" in line
    assert "greet" in line.replace("'gret'", "")
    assert "nam" in inside.error("schedules", "add", "s", "greet", "nam=ana", "--every", "1h", *APP, code=2)
    assert inside.json("schedules", "list") == []


BROKEN = {
    "{task: greet, cron: '0 0 31 2 *', args: {name: x}}": "0 0 31 2 *",
    "{task: gret, every: 1h}": "greet",
    "{task: greet, every: 1h, zone: Asia/Soul, args: {name: x}}": "Asia/Seoul",
    "{task: report, every: 1h, colour: red}": "colour",
    "{task: report, every: 1h, args: [1]}": "mapping",
    "{task: report, every: 1h, start: 0001-01-01T00:00:00Z}": "1970 to 2199",
    "{task: '', every: 1h}": "no task named ''",
}


@pytest.mark.parametrize("engine", ["sqlite"])
def test_mistakes_in_the_config_are_told_and_the_other_schedules_go_on(cli: Cli, here: Inside) -> None:
    wrong = "".join(f"  wrong-{n}: {text}\n" for n, text in enumerate(BROKEN))
    (cli.folder / "rowlock.yaml").write_text(f"schedules:\n{wrong}  right: {{task: report, every: 1s}}\n")
    dispatcher = cli.start("dispatch", *APP)
    dispatcher.wait_for("Dispatcher started")
    for n, expected in enumerate(BROKEN.values()):
        (line,) = [line for line in dispatcher.log.splitlines() if f"'wrong-{n}'" in line]
        assert expected in line
    wait_until(lambda: named(here, "right")["last_tick"], "a tick of the right one")
    assert {row["name"] for row in here.json("schedules", "list")} == {"right", "report"}
    assert dispatcher.stop() == 0


def test_a_rule_that_this_version_cannot_read_is_shown_as_broken_and_hides_no_other(cli: Cli, here: Inside) -> None:
    here.run(*ADD, "--every", "1h")
    here.run("schedules", "add", "t", "greet", "name=bo", "--every", "1h", *APP)
    spoil = "UPDATE {}schedules SET rule = 'whenever' WHERE id = 's'"
    url = cli.env["ROWLOCK_DATABASE_URL"]
    if url.startswith("sqlite"):
        import apsw

        apsw.Connection(url.removeprefix("sqlite:///")).execute(spoil.format("rowlock_"))
    else:
        import psycopg

        with psycopg.connect(url) as connection:
            connection.execute(spoil.format("rowlock."))
    assert (named(here, "t")["state"], named(here, "s")["next"]) == ("on", [])
    assert "whenever" in here.out("schedules", "list")
    assert "whenever" in here.error("schedules", "next", "s", code=2)
