"""The system: an intake becomes one scrape job for each market, and a scrape becomes price points and a valuation."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

from pydantic import Field, ValidationError
from yarl import URL

from rowlock import (
    Batch,
    Context,
    FakeClock,
    InvalidArguments,
    JobHandle,
    Migrations,
    Permanent,
    Rowlock,
    Session,
    exponential,
)
from rowlock_apps.coins import records
from rowlock_apps.coins.answer_cache import AnswerCache
from rowlock_apps.coins.ask import Market, QueryParams, ask, open_http
from rowlock_apps.coins.coin import Coin
from rowlock_apps.coins.listing import Answer
from rowlock_apps.coins.records import Worth
from rowlock_apps.coins.valuation import value

HERE = Path(__file__).parent
QUEUE = "coins"
BASE_DELAY = timedelta(minutes=5)  # base_delay_minutes × 2^retry_count
LONGEST_DELAY = timedelta(minutes=1440)  # the longest delay: a day
MAX_ATTEMPTS = 8  # with these delays a market may be away for ten hours
TIMEOUT = timedelta(seconds=60)
CACHE_FILE = "coins_cache.db"
IntakeId = Annotated[int, Field(ge=1, le=2**63 - 1)]  # what both engines can hold
MARKET_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,49}")
ADDRESS = re.compile(r"https?://[^\s\x00-\x1f\x7f\ud800-\udfff?#]+")
NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")
CLASS = "api"  # of sources: all markets together


class Scraped(TypedDict):
    """The result of a scrape job."""

    listings: int
    skipped: int  # listings that could not be used
    written: int
    kept: int  # price points whose stored version fits at least as well
    cached: bool


@dataclass(frozen=True, slots=True)
class Submission:
    """A coin that was added, and its new jobs. A market whose job for this coin is unfinished gets no second one."""

    intake_id: int
    batch: Batch
    jobs: list[JobHandle[Scraped]]


class Coins:
    """The tasks of this system on one database, and what people ask of it."""

    def __init__(
        self,
        database: str | None = None,
        *,
        clock: FakeClock | None = None,
        base_delay: timedelta = BASE_DELAY,
        cache_file: str | Path | None = None,
    ) -> None:
        self.app = Rowlock(
            database,
            config=HERE / "config.yaml",
            clock=clock,
            migrations=Migrations("coins", HERE / "migrations"),
        )
        self.app.lifespan(self._resources)
        self.scrape = self.app.task(
            "coins.scrape",
            queue=QUEUE,
            source=_source,
            max_attempts=MAX_ATTEMPTS,
            backoff=exponential(base_delay, LONGEST_DELAY),
            timeout=TIMEOUT,
        )(self._scrape)
        self._cache_file = cache_file

    # --- what people ask

    async def set_market(self, source_id: str, url: str, name: str | None = None) -> None:
        """Add a market, or change its address."""
        if not isinstance(source_id, str) or not MARKET_ID.fullmatch(source_id):
            raise InvalidArguments(f"a market's id has 1–50 of a–z, 0–9 and -, as in big-auction; not {source_id!r}")
        if not isinstance(url, str) or not _can_be_asked(url):
            raise InvalidArguments(f"a market's address is like https://example.com/api, without query; not {url!r}")
        if name is not None and (not isinstance(name, str) or not NAME.fullmatch(name)):
            raise InvalidArguments(f"a market's name has 1–200 characters on one line, not {name!r:.100}")
        async with self.app.transaction() as tx:
            await records.set_market(tx, Market(source_id, url.rstrip("/")), name or source_id)

    async def submit(self, coin: Coin, markets: Sequence[str] | None = None) -> Submission:
        """Add a coin and ask these markets about it, or all enabled ones. A coin that was added before keeps its
        intake."""
        async with self.app.transaction() as tx:
            wanted = await self._wanted(tx, markets)
            return await self._ask_all(await records.add_intake(tx, coin), coin, wanted)

    async def collect(self, intake_id: int, markets: Sequence[str] | None = None) -> Submission:
        """Ask about an intake again."""
        whole = isinstance(intake_id, int) and not isinstance(intake_id, bool) and 1 <= intake_id < 2**63
        async with self.app.transaction() as tx:
            coin = await records.find_coin(tx, intake_id) if whole else None
            if coin is None:
                raise InvalidArguments(f"no intake {intake_id!r}; `report` lists all intakes")
            return await self._ask_all(intake_id, coin, await self._wanted(tx, markets))

    async def report(self) -> list[Worth]:
        """Every coin with its points and its valuation."""
        async with self.app.transaction() as tx:
            return await records.report(tx)

    async def _wanted(self, tx: Session, named: Sequence[str] | None) -> Sequence[str]:
        """The markets to ask."""
        known = await records.market_ids(tx)
        if named is not None:
            if unknown := sorted(set(named) - set(known)):
                raise InvalidArguments(f"no market {unknown[0]!r}; there are: {', '.join(known) or 'none'}")
            if not named:
                raise InvalidArguments("no market is named; leave `markets` out to ask all that are enabled")
            return named
        sources = await self.app.sources.list()
        disabled = {source.name for source in sources if not source.enabled}
        if any(source.name == CLASS and not source.class_enabled for source in sources):  # all of them together
            raise InvalidArguments(f"no market is enabled; enable them again with: rowlock sources resume {CLASS}")
        enabled = [market for market in known if _source(market) not in disabled]
        if not enabled:
            raise InvalidArguments("no market is enabled; add one with: python -m rowlock_apps.coins market ID URL")
        return enabled

    async def _ask_all(self, intake_id: int, coin: Coin, markets: Sequence[str]) -> Submission:
        """Enqueue the jobs of one intake, in the transaction that writes the intake."""
        async with self.app.batch(f"intake {intake_id}: {coin}"[:200]) as batch:
            once = self.scrape.using(batch=batch, key=_one_at_a_time, unique="until_done")
            jobs = await once.enqueue_many([{"intake_id": intake_id, "source_id": market} for market in markets])
        return Submission(intake_id, batch, [job for job in jobs if job.created])

    # --- the work

    async def _scrape(
        self, ctx: Context, intake_id: IntakeId, source_id: str, query_params: QueryParams | None = None
    ) -> Scraped:
        """Ask one market about one coin. Its prices and the coin's new valuation commit with this job's success."""
        coin, market = await self._look_up(intake_id, source_id)
        answer, cached = await self._answer(ctx.resources, coin, market, query_params or {})
        async with ctx.transaction() as tx:
            # From here on jobs of one coin run one after the other, so that the last of them values the prices of all.
            if not await records.hold_intake(tx, intake_id):
                raise _no_intake(intake_id)
            written, kept = await records.put_points(tx, intake_id, source_id, coin, answer.listings)
            found = value(await records.points_of(tx, intake_id))
            if found is not None:
                await records.put_valuation(tx, intake_id, found)
        return Scraped(listings=len(answer.listings), skipped=answer.skipped, written=written, kept=kept, cached=cached)

    async def _look_up(self, intake_id: int, source_id: str) -> tuple[Coin, Market]:
        async with self.app.transaction() as tx:
            coin = await records.find_coin(tx, intake_id)
            market = await records.find_market(tx, source_id)
        if coin is None:
            raise _no_intake(intake_id)
        if market is None:
            raise Permanent(f"no market {source_id!r}", code="UNKNOWN_SOURCE")
        return coin, market

    async def _answer(
        self, resources: Mapping[str, Any], coin: Coin, market: Market, more: QueryParams
    ) -> tuple[Answer, bool]:
        """The market's answer, from the cache if it is younger than an hour, and whether it came from the cache."""
        http, cache = resources["http"], resources["cache"]
        # Query parameters are not part of the cache's key, so a cached answer may belong to another query.
        if more or not cache.enabled:
            return await ask(http, market, coin, more), False
        asked = False

        async def call() -> dict[str, Any]:
            nonlocal asked
            asked = True
            return (await ask(http, market, coin, more)).model_dump(mode="json")

        key = coin.cache_key(market.id)
        found = await cache.get_or_call(key, call)
        try:
            return Answer.model_validate(found), not asked
        except ValidationError:  # written by another version of this code
            await cache.forget(key)
            return await ask(http, market, coin, more), False

    async def _resources(self) -> AsyncIterator[Mapping[str, Any]]:
        """The HTTP client and the cache of a worker. For CACHE_ENABLED, CACHE_TTL_SECONDS, CACHE_FILE see README."""
        file = self._cache_file or os.environ.get("CACHE_FILE") or CACHE_FILE
        cache = AnswerCache.from_env(file, clock=self._now)
        try:
            async with open_http() as http:
                yield {"http": http, "cache": cache}
        finally:
            await cache.close()

    def _now(self) -> float:
        return self.app.clock.now().timestamp() if self.app.clock else time.time()


def _source(source_id: str) -> str:
    return f"{CLASS}:{source_id}"


def _can_be_asked(url: str) -> bool:
    """Whether the HTTP client can use an address: it has a host and a valid port."""
    try:
        return bool(ADDRESS.fullmatch(url)) and URL(url).port != 0
    except ValueError:
        return False


def _one_at_a_time(intake_id: int, source_id: str) -> str:
    return f"intake {intake_id} at {source_id}"


def _no_intake(intake_id: int) -> Permanent:
    return Permanent(f"no intake {intake_id}", code="UNKNOWN_INTAKE")


coins = Coins()
app = coins.app
