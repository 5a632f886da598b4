"""The demo, the README's commands and the command line, as a user types them."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from rich.console import Console

from apps.coins.helpers import LISTING, Says, listing
from apps.engines import ONE_ENGINE
from rowlock import ConfigError
from rowlock.cli.main import execute
from rowlock.testing import Testing
from rowlock_apps.coins import Coin, Coins
from rowlock_apps.coins.__main__ import cli as typed
from rowlock_apps.coins.demo import COINS, play
from rowlock_apps.coins.listing import read_answer
from rowlock_apps.coins.markets import Markets
from rowlock_apps.coins.records import Worth
from rowlock_apps.coins.report import as_table
from support.each import each

README = Path(sys.modules["rowlock_apps.coins"].__file__ or "").parent / "README.md"
BLOCKS = re.findall(r"^```(?:sh|sql)\n(.*?)^```", README.read_text(), re.M | re.S)
STAYS = ("stand-ins", " up ", " worker ")  # what goes on until it is stopped


class Reader:
    """Somebody who types what the README says, in a folder of their own. What ends by itself runs in this process: a
    process for each line takes longer than what it does."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._patch, self._capsys = folder, monkeypatch, capsys
        self.started: list[subprocess.Popen[bytes]] = []
        monkeypatch.chdir(folder)

    def type(self, line: str) -> str:
        """Run one line; answers what it printed, or nothing if it goes on."""
        words = shlex.split(line, comments=True)
        if words[0] == "export":
            self._patch.setenv(*words[1].split("=", 1))
        elif any(sign in f"{line} " for sign in STAYS):
            self.start(words)
        elif words[0] == "rowlock":
            assert execute(words[1:]) == 0, line
        else:
            assert words[:3] == ["python", "-m", "rowlock_apps.coins"]
            typed(words[3:], standalone_mode=False)
        return self._capsys.readouterr().out

    def start(self, words: list[str]) -> None:
        """A process that goes on; `NAME=value` before it is its environment."""
        given = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        command = [sys.executable, *(["-m"] if "rowlock" in words else []), *words[len(given) + ("python" in words) :]]
        with (self.folder / f"log-{len(self.started)}.txt").open("wb") as log:
            env = os.environ | {"PYTHONUNBUFFERED": "1"} | given
            process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.started.append(process)

    def wait_for(self, number: int, text: str) -> None:
        """Until the program that was started so has said that."""
        file, deadline = self.folder / f"log-{number}.txt", time.monotonic() + 30
        while text not in file.read_text():
            assert time.monotonic() < deadline, file.read_text()
            time.sleep(0.05)

    def close(self) -> list[int]:
        for process in self.started:
            process.terminate()
        return [process.wait(20) for process in self.started]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Reader]:
    reader = Reader(tmp_path, monkeypatch, capsys)
    yield reader
    reader.close()


def valued(url: str) -> None:
    """Wait until the one coin in this database has its price."""

    async def look() -> None:
        coins = Coins(url)
        async with coins.app, asyncio.timeout(30):
            while [worth.basis for worth in await coins.report()] != ["sold"]:
                await asyncio.sleep(0.05)

    asyncio.run(look())


def lines(number: int) -> list[str]:
    return str(BLOCKS[number]).splitlines()


def test_the_readmes_demo_shows_what_it_promises_and_leaves_nothing(reader: Reader) -> None:
    """The demo on SQLite, by one command."""
    (line,) = lines(0)
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(line), "--once"], capture_output=True, text=True, timeout=60, check=False
    )
    told = done.stdout
    assert done.returncode == 0, told + done.stderr
    for expected in (
        "flaky answered 503",
        "metered answered 429",
        "5 failures in a row: dead is left alone",
        "1921-D Morgan Dollar",
        "36 of 48 jobs succeeded",
        "second pass: 100 % from the cache",
    ):
        assert expected in told
    assert list(reader.folder.iterdir()) == []


def test_the_readmes_two_commands_and_postgres(reader: Reader, postgres_url: str) -> None:
    """First on SQLite with the stand-ins, then on PostgreSQL with two workers; only the URL differs."""
    stand_ins, up, submit, report = lines(1)
    reader.type(stand_ins)
    reader.wait_for(0, "are open at")
    reader.type(up)
    assert "intake 1: 1921-D Morgan Dollar, 4 scrape jobs" in reader.type(submit)
    valued(f"sqlite:///{reader.folder}/coins.db")
    assert re.search(r"1921-D Morgan Dollar │ +(6|12|18) │ +\$", reader.type(report))

    port = re.search(r"127\.0\.0\.1:(\d+)", (reader.folder / "log-0.txt").read_text())
    assert port
    *setup, market, submit, listed = lines(2)
    for line in setup:
        reader.type(line.replace("postgresql://user@host/db", postgres_url))
    reader.type(market.replace("8000", port[1]))
    assert "intake 1: 1921-D Morgan Dollar, 1 scrape jobs" in reader.type(submit)
    valued(postgres_url)
    assert "succeeded" in reader.type(listed)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for statement in BLOCKS[3].split(";\n"):
            connection.execute(statement)  # type: ignore[arg-type]
    for number in (1, 2, 3):  # one that has not started yet would just end at a signal
        reader.wait_for(number, "Worker started")
    assert reader.close() == [0, 0, 0, 0]


def test_the_example_answer_in_the_readme_is_valid() -> None:
    (text,) = re.findall(r'`(\{"listings".*?\})`', README.read_text(), re.S)
    example = text.replace("…", '"x"', 1).replace("…", f'"{LISTING["url"]}"', 1).replace("…", '"a coin"').encode()
    assert len(read_answer(example, "application/json").listings) == 1


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_the_demo_works_on_a_database_that_an_earlier_one_has_left(
    coins: Coins, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A demo that was stopped half way leaves jobs that nobody runs, and a breaker that is open."""
    async with coins.app:
        for market in ("steady", "dead"):
            await coins.set_market(market, "http://127.0.0.1:9/gone")
        await coins.submit(COINS[0])
        await coins.app.sources.pause("api:dead")
        await coins.app.sources.pause("api:steady", 300)
    assert await asyncio.wait_for(play(url, live=False), 50) == []
    assert "second pass: 100 % from the cache" in capsys.readouterr().out
    async with coins.app:
        assert [job for job in await coins.app.jobs(limit=500) if not job.record.final] == []
        assert len(await coins.report()) == len(COINS)


@each(
    "words, reason",
    [
        (["submit", "3000", "Dollar"], "year = 3000: Input should be less than or equal to 2100"),
        (["submit", "1921", "Dollar", "--mintmark", "d"], "mintmark = 'd'"),
        (
            ["submit", "1921", "Dollar"],
            "no market is enabled; add one with: python -m rowlock_apps.coins market ID URL",
        ),
        (["market", "Big One", "https://a.example"], "a market's id has"),
        (["report", "--database", "mysql://"], "database = 'mysql://'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        typed(words)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"coins: {reason}")


@ONE_ENGINE
async def test_the_report_command_shows_each_coins_newest_price_points(
    coins: Coins,
    t: Testing,
    markets: Markets,
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What its help says. At most 20 for each coin, newest first, and how many there are beside them."""
    monkeypatch.setenv("COLUMNS", "200")
    rows = [listing(external_id=str(n), price=f"{n}.00", date=f"2026-01-{n:02}", title=f"nr {n}") for n in range(1, 24)]
    await coins.set_market("says", markets.add("says", Says(*rows)))
    await coins.submit(Coin(year=1921, denomination="Dollar"))
    await t.drain()
    await asyncio.to_thread(typed, ["report", "--database", url], standalone_mode=False)
    told = capsys.readouterr().out
    prices = re.findall(r"says +│ sold │ +\$(\d+)\.00 │ 2026-01-(\d\d) │ +\d+ % │ nr (\d+)", told)
    assert [int(price) for price, _, _ in prices] == list(range(23, 3, -1))
    assert "and 3 older ones" in told


def test_the_lock_timeout_of_the_document_is_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """S4.6, S4.8: JOB_LOCK_TIMEOUT_SECONDS, 300 if it is not set; a flag or ROWLOCK_WORKER__LEASE_SECONDS wins."""
    assert Coins().app.settings.worker.lease_seconds == 300
    monkeypatch.setenv("JOB_LOCK_TIMEOUT_SECONDS", "120")
    assert Coins().app.settings.worker.lease_seconds == 120
    monkeypatch.setenv("JOB_LOCK_TIMEOUT_SECONDS", "soon")
    with pytest.raises(ConfigError, match=r"lease_seconds = 'soon' \(.*config.yaml:8\)"):
        _ = Coins().app.settings


def test_a_report_shows_titles_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """What looks like markup is none."""
    coin = Coin(year=1921, denomination="Dollar", title="[/b] [red]x")
    worth = Worth(intake_id=1, coin=coin, points=0, cents=None, low=None, high=None, basis=None)
    Console(width=200).print(as_table([worth]))
    assert "1921 Dollar [/b] [red]x" in capsys.readouterr().out
