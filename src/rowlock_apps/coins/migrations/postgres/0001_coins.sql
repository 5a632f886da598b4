-- Coins, the markets that are asked about them, what those said, and what that makes of each coin.

CREATE TABLE coins_intakes (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    year         integer     NOT NULL CHECK (year BETWEEN 1 AND 2100),
    mintmark     text        NOT NULL DEFAULT '',
    denomination text        NOT NULL CHECK (denomination <> ''),
    series       text        NOT NULL DEFAULT '',
    title        text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
    priced_at    timestamptz,                                     -- when a market's answer was last taken in
    UNIQUE (year, mintmark, denomination, series, title)          -- the same coin twice is one question
);

-- How a market does (streak, pause, rate) is the engine's to know: rowlock.sources, under api:<id>.
CREATE TABLE coins_sources (
    id         text        PRIMARY KEY,
    name       text        NOT NULL,
    url        text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE coins_price_points (
    intake_id      bigint      NOT NULL REFERENCES coins_intakes (id),
    source_id      text        NOT NULL REFERENCES coins_sources (id),
    dedupe_key     text        NOT NULL,                          -- ext_… or hash_…
    external_id    text,
    url            text        NOT NULL,
    title          text        NOT NULL,
    price_cents    bigint      NOT NULL CHECK (price_cents > 0),
    currency       text        NOT NULL,
    price_type     text        NOT NULL CHECK (price_type IN ('sold', 'ask', 'bid')),
    listed_on      text        NOT NULL,                          -- YYYY-MM-DD
    match_strength smallint    NOT NULL CHECK (match_strength BETWEEN 0 AND 100),
    created_at     timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at     timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (intake_id, source_id, dedupe_key)
);

CREATE TABLE coins_valuations (
    intake_id   bigint      PRIMARY KEY REFERENCES coins_intakes (id),
    value_cents bigint      NOT NULL,
    low_cents   bigint      NOT NULL,
    high_cents  bigint      NOT NULL,
    currency    text        NOT NULL,
    basis       text        NOT NULL CHECK (basis IN ('sold', 'ask', 'bid')),
    points      integer     NOT NULL CHECK (points > 0),
    valued_at   timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP
);
