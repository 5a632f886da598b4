"""The report as people read it."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from rowlock_apps.coins.records import Worth


def as_table(worths: list[Worth]) -> Table:
    """Coins, what was found of them, and what they are worth."""
    table = Table("coin", "points", "worth", "from", "to", "by")
    for column in table.columns[1:5]:
        column.justify = "right"
    for worth in worths:
        prices = [money(cents) for cents in (worth.cents, worth.low, worth.high)]
        table.add_row(escape(str(worth.coin)), str(worth.points), *prices, worth.basis or "no price fits yet")
    return table


def points_table(worth: Worth) -> Table:
    """The newest price points of one coin."""
    table = Table("market", "type", "price", "listed", "match", "title", title=escape(str(worth.coin)))
    for column in ("price", "match"):
        next(each for each in table.columns if each.header == column).justify = "right"
    for point in worth.newest:
        price = money(point.cents) if point.currency == "USD" else f"{point.cents / 100:,.2f} {point.currency}"
        table.add_row(
            *(point.source_id, point.price_type, price, str(point.listed_on), f"{point.match_strength} %"),
            escape(point.title),
        )
    if left := worth.points - len(worth.newest):
        table.caption = f"and {left} older ones"
    return table


def money(cents: int | None) -> str:
    """$12.50"""
    return "–" if cents is None else f"${cents // 100:,}.{cents % 100:02}"
