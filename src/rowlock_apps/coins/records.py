"""The SQL of this system, one text for both engines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from rowlock import Session
from rowlock_apps.coins.ask import Market
from rowlock_apps.coins.coin import Coin, match_strength
from rowlock_apps.coins.listing import Listing
from rowlock_apps.coins.valuation import CURRENCY, Point, Valuation

NEWEST = 1000  # points that a valuation looks at
SHOWN = 20  # points of each coin that a report shows


class PricePoint(NamedTuple):
    """One price from a market, for a report."""

    source_id: str
    price_type: str
    cents: int
    currency: str
    listed_on: str
    match_strength: int
    title: str


class Worth(NamedTuple):
    """A coin and what is known of its price, for a report."""

    intake_id: int
    coin: Coin
    points: int
    cents: int | None
    low: int | None
    high: int | None
    basis: str | None
    newest: tuple[PricePoint, ...] = ()  # of its points


# --- intakes and markets


async def add_intake(tx: Session, coin: Coin) -> int:
    """The intake of this coin: the existing one, or a new one."""
    wanted = (coin.year, coin.mintmark, coin.denomination, coin.series, coin.title)
    rows = await tx.fetch(
        """
        INSERT INTO coins_intakes (year, mintmark, denomination, series, title)
        VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (year, mintmark, denomination, series, title) DO NOTHING
        RETURNING id
        """,
        *wanted,
    ) or await tx.fetch(
        """
        SELECT id FROM coins_intakes
        WHERE year = $1 AND mintmark = $2 AND denomination = $3 AND series = $4 AND title = $5
        """,
        *wanted,
    )
    return int(rows[0][0])


async def find_coin(tx: Session, intake_id: int) -> Coin | None:
    rows = await tx.fetch(
        "SELECT year, mintmark, denomination, series, title FROM coins_intakes WHERE id = $1", intake_id
    )
    return _coin(rows[0]) if rows else None


async def hold_intake(tx: Session, intake_id: int) -> bool:
    """Lock the intake until this transaction ends: no other job adds prices or values it. False if there is no
    intake."""
    return bool(
        await tx.fetch("UPDATE coins_intakes SET priced_at = CURRENT_TIMESTAMP WHERE id = $1 RETURNING id", intake_id)
    )


async def set_market(tx: Session, market: Market, name: str) -> None:
    """A market, new or with a new name and address."""
    await tx.execute(
        """
        INSERT INTO coins_sources (id, name, url) VALUES ($1, $2, $3)
        ON CONFLICT (id) DO UPDATE SET name = excluded.name, url = excluded.url
        """,
        market.id,
        name,
        market.url,
    )


async def find_market(tx: Session, source_id: str) -> Market | None:
    rows = await tx.fetch("SELECT id, url FROM coins_sources WHERE id = $1", source_id)
    return Market(*rows[0]) if rows else None


async def market_ids(tx: Session) -> list[str]:
    return [row[0] for row in await tx.fetch("SELECT id FROM coins_sources ORDER BY id")]


# --- prices and valuations


async def put_points(
    tx: Session, intake_id: int, source_id: str, coin: Coin, listings: Sequence[Listing]
) -> tuple[int, int]:
    """Write price points, each once. Returns how many were written, and how many were not because the stored version
    fits the coin at least as well."""
    written = 0
    for listing in listings:
        written += len(
            await tx.fetch(
                """
                INSERT INTO coins_price_points
                    (intake_id, source_id, dedupe_key, external_id, url, title, price_cents, currency, price_type,
                     listed_on, match_strength)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
                ON CONFLICT (intake_id, source_id, dedupe_key) DO UPDATE
                SET external_id = excluded.external_id, url = excluded.url, title = excluded.title,
                    price_cents = excluded.price_cents, currency = excluded.currency,
                    price_type = excluded.price_type, listed_on = excluded.listed_on,
                    match_strength = excluded.match_strength, updated_at = CURRENT_TIMESTAMP
                WHERE excluded.match_strength > coins_price_points.match_strength
                RETURNING dedupe_key
                """,
                intake_id,
                source_id,
                listing.dedupe_key,
                listing.external_id,
                listing.url,
                listing.title,
                listing.cents,
                listing.currency,
                listing.type,
                listing.date.isoformat(),
                match_strength(coin, listing.title),
            )
        )
    return written, len(listings) - written


async def points_of(tx: Session, intake_id: int) -> list[Point]:
    """The input of a valuation: the newest points in its currency."""
    rows = await tx.fetch(
        """
        SELECT price_cents, price_type, match_strength FROM coins_price_points
        WHERE intake_id = $1 AND currency = $2
        ORDER BY listed_on DESC, source_id, dedupe_key
        LIMIT $3
        """,
        intake_id,
        CURRENCY,
        NEWEST,
    )
    return [Point(*row) for row in rows]


async def put_valuation(tx: Session, intake_id: int, found: Valuation) -> None:
    """The one valuation of an intake."""
    await tx.execute(
        """
        INSERT INTO coins_valuations (intake_id, value_cents, low_cents, high_cents, currency, basis, points)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (intake_id) DO UPDATE
        SET value_cents = excluded.value_cents, low_cents = excluded.low_cents, high_cents = excluded.high_cents,
            currency = excluded.currency, basis = excluded.basis, points = excluded.points,
            valued_at = CURRENT_TIMESTAMP
        """,
        intake_id,
        found.cents,
        found.low,
        found.high,
        CURRENCY,
        found.basis,
        found.points,
    )


async def report(tx: Session) -> list[Worth]:
    """Every coin with its newest points and its valuation, in the order in which they came in."""
    newest = await _newest_points(tx)
    rows = await tx.fetch(
        """
        SELECT i.year, i.mintmark, i.denomination, i.series, i.title, i.id,
               (SELECT count(*) FROM coins_price_points p WHERE p.intake_id = i.id),
               v.value_cents, v.low_cents, v.high_cents, v.basis
        FROM coins_intakes i
        LEFT JOIN coins_valuations v ON v.intake_id = i.id
        ORDER BY i.id
        """
    )
    return [Worth(row[5], _coin(row), *row[6:])._replace(newest=tuple(newest[row[5]])) for row in rows]


async def _newest_points(tx: Session) -> dict[int, list[PricePoint]]:
    """The newest points of each intake, at most SHOWN."""
    rows = await tx.fetch(
        """
        SELECT intake_id, source_id, price_type, price_cents, currency, listed_on, match_strength, title
        FROM (SELECT p.*, row_number() OVER (PARTITION BY p.intake_id
                                             ORDER BY p.listed_on DESC, p.source_id, p.dedupe_key) AS place
              FROM coins_price_points p) ranked
        WHERE place <= $1
        ORDER BY intake_id, place
        """,
        SHOWN,
    )
    found: defaultdict[int, list[PricePoint]] = defaultdict(list)
    for intake_id, *rest in rows:
        found[intake_id].append(PricePoint(*rest))
    return found


def _coin(row: Sequence[Any]) -> Coin:
    year, mintmark, denomination, series, title = row[:5]
    return Coin(year=year, mintmark=mintmark, denomination=denomination, series=series, title=title)
