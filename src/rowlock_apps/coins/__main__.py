"""`python -m rowlock_apps.coins`: add markets and coins, print a report. `rowlock worker` runs the jobs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from rowlock import RowlockError
from rowlock_apps.coins.app import Coins
from rowlock_apps.coins.coin import Coin
from rowlock_apps.coins.markets import Markets, flaky, metered, steady
from rowlock_apps.coins.report import as_table, points_table

cli = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
Database = Annotated[str | None, typer.Option("--database", metavar="URL", help="Instead of ROWLOCK_DATABASE_URL")]


@cli.command()
def market(source_id: str, url: str, name: str | None = None, database: Database = None) -> None:
    """Add a market, or change its address. Limit its rate with: rowlock sources set api:ID --rate 30/min"""
    _run(database, lambda coins: coins.set_market(source_id, url, name))


@cli.command()
def submit(
    year: int,
    denomination: str,
    mintmark: str = "",
    series: str = "",
    title: str = "",
    database: Database = None,
) -> None:
    """Add a coin and ask every enabled market about it."""

    async def take_in(coins: Coins) -> None:
        coin = Coin(year=year, mintmark=mintmark, denomination=denomination, series=series, title=title)
        submission = await coins.submit(coin)
        print(f"intake {submission.intake_id}: {coin}, {len(submission.jobs)} scrape jobs")

    _run(database, take_in)


@cli.command()
def report(database: Database = None) -> None:
    """Every coin with its valuation, and its newest price points."""

    async def show(coins: Coins) -> None:
        from rich.console import Console

        console, worths = Console(), await coins.report()
        console.print(as_table(worths))
        for worth in worths:
            if worth.newest:
                console.print(points_table(worth))

    _run(database, show)


@cli.command()
def stand_ins(database: Database = None) -> None:
    """Open four stand-in markets on this machine, add them to the database, and serve until Ctrl-C."""

    async def serve(coins: Coins) -> None:
        async with Markets() as markets:
            await coins.set_market("steady", markets.add("steady", steady(0.05)))
            await coins.set_market("flaky", markets.add("flaky", flaky(3)))
            await coins.set_market("metered", markets.add("metered", metered(4)))
            await coins.set_market("dead", markets.add_dead("dead"))
            print(f"the markets steady, flaky and metered are open at {markets.url('…')}; dead is not", flush=True)
            stopped = asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stopped.set)
            await stopped.wait()

    _run(database, serve)


def _run(database: str | None, work: Callable[[Coins], Coroutine[Any, Any, None]]) -> None:
    """Run the work on that database; bad input is reported in one line, with exit code 2."""

    async def on_database() -> None:
        coins = Coins(database)
        async with coins.app:
            await work(coins)

    try:
        asyncio.run(on_database())
    except ValidationError as error:
        first = error.errors()[0]
        _refuse(f"{'.'.join(map(str, first['loc']))} = {first['input']!r}: {first['msg']}")
    except RowlockError as error:
        _refuse(str(error))


def _refuse(reason: str) -> None:
    print(f"coins: {reason}", file=sys.stderr)
    raise typer.Exit(2)


if __name__ == "__main__":
    cli()
