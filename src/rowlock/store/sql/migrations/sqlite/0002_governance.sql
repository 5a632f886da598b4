-- breaking
-- Sources, keys and batches. Breaking, because code that does not know sources would claim past their limits.

ALTER TABLE rowlock_jobs_live ADD COLUMN source_epoch INTEGER;  -- the breaker's epoch under which the attempt was claimed
ALTER TABLE rowlock_jobs_live ADD COLUMN unique_key TEXT;
ALTER TABLE rowlock_jobs_live ADD COLUMN unique_mode TEXT
    CHECK (unique_mode IN ('until_done', 'while_queued', 'forever', 'window'));
ALTER TABLE rowlock_jobs_finished ADD COLUMN unique_key TEXT;
ALTER TABLE rowlock_jobs_finished ADD COLUMN unique_mode TEXT;

-- Jobs with a source have an index of their own: a million of one source must not stand before the others, nor before
-- the jobs without one.
DROP INDEX rowlock_jobs_live_claim;
CREATE INDEX rowlock_jobs_live_claim ON rowlock_jobs_live (queue, task, priority, id) WHERE ready AND source IS NULL;
CREATE INDEX rowlock_jobs_live_turns ON rowlock_jobs_live (queue, task, priority, source, id) WHERE ready AND source IS NOT NULL;
-- The truth about concurrency: running rows, by class and source.
CREATE INDEX rowlock_jobs_live_slots ON rowlock_jobs_live (substr(source, 1, instr(source || ':', ':') - 1), source)
    WHERE state = 'running' AND source IS NOT NULL;
CREATE INDEX rowlock_jobs_live_batch ON rowlock_jobs_live (batch_id, id) WHERE batch_id IS NOT NULL;

-- A key is let go by its job.
CREATE INDEX rowlock_job_keys_job ON rowlock_job_keys (job_id);

-- Outside services: what they are limited to, and how they do. A row is a source (api:ebay) or a class (api), whose
-- settings are the defaults of its sources.
CREATE TABLE rowlock_sources (
    name                  TEXT    PRIMARY KEY,
    concurrency           INTEGER CHECK (concurrency >= 0),            -- running jobs at a time; NULL: the class's
    total                 INTEGER CHECK (total >= 0),                  -- of all sources of this class together
    rate_limit_per_minute REAL    CHECK (rate_limit_per_minute > 0),
    burst                 INTEGER CHECK (burst >= 1),
    failure_threshold     INTEGER CHECK (failure_threshold >= 1),      -- failures in a row that open the breaker
    cooldown_seconds      REAL    CHECK (cooldown_seconds > 0),
    cooldown_factor       REAL    CHECK (cooldown_factor >= 1),        -- each time it opens again
    block_after           INTEGER CHECK (block_after >= 1),            -- refusals in a row that disable it
    set_by                TEXT,                                        -- config or operator
    enabled               INTEGER NOT NULL DEFAULT 1,
    paused_until          REAL,                                        -- breaker, Retry-After or an operator
    failure_streak        INTEGER NOT NULL DEFAULT 0,
    opened_at             REAL,                                        -- the breaker is open, or half open
    opens                 INTEGER NOT NULL DEFAULT 0,                  -- times in a row that it opened
    epoch                 INTEGER NOT NULL DEFAULT 0,                  -- grows when it opens or closes
    probe_job             TEXT,
    probe_token           TEXT,
    tokens                REAL,                                        -- of the bucket, at tokens_at
    tokens_at             REAL,
    last_success_at       REAL,
    last_failure_at       REAL,
    last_error            TEXT,
    refusals              INTEGER NOT NULL DEFAULT 0,                  -- 403, robots, captcha in a row
    refused_at            REAL,
    refusal_code          TEXT,
    created_at            REAL    NOT NULL DEFAULT (unixepoch('subsec'))
);
CREATE INDEX rowlock_sources_refused ON rowlock_sources (name) WHERE refusals > 0;

-- The two classes that everybody needs. Two at a time is polite to a web site; an API has its own contract.
INSERT INTO rowlock_sources (name, concurrency) VALUES ('domain', 2), ('api', NULL);

-- Jobs that belong together. Counters are kept apart, in a few rows that different workers write, as on PostgreSQL.
CREATE TABLE rowlock_batches (
    id           TEXT    PRIMARY KEY,
    name         TEXT    NOT NULL,
    owner        TEXT,
    state        TEXT    NOT NULL DEFAULT 'queued'
                         CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    on_end       TEXT,
    ended_once   INTEGER NOT NULL DEFAULT 0,             -- on_end has been enqueued
    sealed_at    REAL,
    cancelled_at REAL,
    created_at   REAL    NOT NULL,
    started_at   REAL,
    finished_at  REAL
);
CREATE INDEX rowlock_batches_open ON rowlock_batches (id) WHERE finished_at IS NULL;
CREATE INDEX rowlock_batches_done ON rowlock_batches (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE rowlock_batch_counts (
    batch_id      TEXT    NOT NULL REFERENCES rowlock_batches (id) ON DELETE CASCADE,
    shard         INTEGER NOT NULL,
    total         INTEGER NOT NULL DEFAULT 0,
    processed     INTEGER NOT NULL DEFAULT 0,
    failed        INTEGER NOT NULL DEFAULT 0,
    last_error    TEXT,
    last_error_at REAL,
    PRIMARY KEY (batch_id, shard)
);
