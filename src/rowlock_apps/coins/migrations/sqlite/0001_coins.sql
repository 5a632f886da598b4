-- Coins, the markets that are asked about them, what those said, and what that makes of each coin.

CREATE TABLE coins_intakes (
    id           INTEGER PRIMARY KEY,
    year         INTEGER NOT NULL CHECK (year BETWEEN 1 AND 2100),
    mintmark     TEXT    NOT NULL DEFAULT '',
    denomination TEXT    NOT NULL CHECK (denomination <> ''),
    series       TEXT    NOT NULL DEFAULT '',
    title        TEXT    NOT NULL DEFAULT '',
    created_at   TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    priced_at    TEXT,                                            -- when a market's answer was last taken in
    UNIQUE (year, mintmark, denomination, series, title)          -- the same coin twice is one question
) STRICT;

-- How a market does (streak, pause, rate) is the engine's to know: rowlock_sources, under api:<id>.
CREATE TABLE coins_sources (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    url        TEXT NOT NULL,
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;

CREATE TABLE coins_price_points (
    intake_id      INTEGER NOT NULL REFERENCES coins_intakes (id),
    source_id      TEXT    NOT NULL REFERENCES coins_sources (id),
    dedupe_key     TEXT    NOT NULL,                              -- ext_… or hash_…
    external_id    TEXT,
    url            TEXT    NOT NULL,
    title          TEXT    NOT NULL,
    price_cents    INTEGER NOT NULL CHECK (price_cents > 0),
    currency       TEXT    NOT NULL,
    price_type     TEXT    NOT NULL CHECK (price_type IN ('sold', 'ask', 'bid')),
    listed_on      TEXT    NOT NULL,                              -- YYYY-MM-DD
    match_strength INTEGER NOT NULL CHECK (match_strength BETWEEN 0 AND 100),
    created_at     TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at     TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (intake_id, source_id, dedupe_key)
) STRICT;

CREATE TABLE coins_valuations (
    intake_id   INTEGER PRIMARY KEY REFERENCES coins_intakes (id),
    value_cents INTEGER NOT NULL,
    low_cents   INTEGER NOT NULL,
    high_cents  INTEGER NOT NULL,
    currency    TEXT    NOT NULL,
    basis       TEXT    NOT NULL CHECK (basis IN ('sold', 'ask', 'bid')),
    points      INTEGER NOT NULL CHECK (points > 0),
    valued_at   TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;
