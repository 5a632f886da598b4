-- breaking
-- Sources, keys and batches. Breaking, because code that does not know sources would claim past their limits.

ALTER TABLE rowlock.jobs_live
    ADD COLUMN source_epoch integer,     -- the breaker's epoch under which the attempt was claimed
    ADD COLUMN unique_key   text,
    ADD COLUMN unique_mode  text CHECK (unique_mode IN ('until_done', 'while_queued', 'forever', 'window'));
ALTER TABLE rowlock.jobs_finished
    ADD COLUMN unique_key   text,
    ADD COLUMN unique_mode  text;

-- Jobs with a source have an index of their own: a million of one source must not stand before the others, nor before
-- the jobs without one.
DROP INDEX rowlock.jobs_live_claim;
CREATE INDEX jobs_live_claim ON rowlock.jobs_live (queue, task, priority, id) WHERE ready AND source IS NULL;
CREATE INDEX jobs_live_turns ON rowlock.jobs_live (queue, task, priority, source, id) WHERE ready AND source IS NOT NULL;
-- The truth about concurrency: running rows, by class and source.
CREATE INDEX jobs_live_slots ON rowlock.jobs_live (split_part(source, ':', 1), source)
    WHERE state = 'running' AND source IS NOT NULL;
CREATE INDEX jobs_live_batch ON rowlock.jobs_live (batch_id, id) WHERE batch_id IS NOT NULL;

-- A key is let go by its job.
CREATE INDEX job_keys_job ON rowlock.job_keys (job_id);

-- Outside services: what they are limited to, and how they do. A row is a source (api:ebay) or a class (api), whose
-- settings are the defaults of its sources.
CREATE TABLE rowlock.sources (
    name                  text             PRIMARY KEY,
    concurrency           integer          CHECK (concurrency >= 0),            -- running jobs at a time; NULL: the class's
    total                 integer          CHECK (total >= 0),                  -- of all sources of this class together
    rate_limit_per_minute double precision CHECK (rate_limit_per_minute > 0),
    burst                 integer          CHECK (burst >= 1),
    failure_threshold     integer          CHECK (failure_threshold >= 1),      -- failures in a row that open the breaker
    cooldown_seconds      double precision CHECK (cooldown_seconds > 0),
    cooldown_factor       double precision CHECK (cooldown_factor >= 1),        -- each time it opens again
    block_after           integer          CHECK (block_after >= 1),            -- refusals in a row that disable it
    set_by                text,                                                 -- config or operator
    enabled               boolean          NOT NULL DEFAULT true,
    paused_until          timestamptz,                                          -- breaker, Retry-After or an operator
    failure_streak        integer          NOT NULL DEFAULT 0,
    opened_at             timestamptz,                                          -- the breaker is open, or half open
    opens                 integer          NOT NULL DEFAULT 0,                  -- times in a row that it opened
    epoch                 integer          NOT NULL DEFAULT 0,                  -- grows when it opens or closes
    probe_job             uuid,
    probe_token           uuid,
    tokens                double precision,                                     -- of the bucket, at tokens_at
    tokens_at             timestamptz,
    last_success_at       timestamptz,
    last_failure_at       timestamptz,
    last_error            text,
    refusals              integer          NOT NULL DEFAULT 0,                  -- 403, robots, captcha in a row
    refused_at            timestamptz,
    refusal_code          text,
    created_at            timestamptz      NOT NULL DEFAULT now()
) WITH (fillfactor = 50);                                                       -- tokens and streaks stay on the page
CREATE INDEX sources_refused ON rowlock.sources (name) WHERE refusals > 0;

-- The two classes that everybody needs. Two at a time is polite to a web site; an API has its own contract.
INSERT INTO rowlock.sources (name, concurrency) VALUES ('domain', 2), ('api', NULL);

-- Jobs that belong together. Counters are kept apart, in a few rows that different workers write, so that no row is hot.
CREATE TABLE rowlock.batches (
    id           uuid        PRIMARY KEY,
    name         text        NOT NULL,
    owner        text,
    state        text        NOT NULL DEFAULT 'queued'
                             CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    on_end       json,
    ended_once   boolean     NOT NULL DEFAULT false,     -- on_end has been enqueued
    sealed_at    timestamptz,
    cancelled_at timestamptz,
    created_at   timestamptz NOT NULL,
    started_at   timestamptz,
    finished_at  timestamptz
);
CREATE INDEX batches_open ON rowlock.batches (id) WHERE finished_at IS NULL;
CREATE INDEX batches_done ON rowlock.batches (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE rowlock.batch_counts (
    batch_id      uuid     NOT NULL REFERENCES rowlock.batches (id) ON DELETE CASCADE,
    shard         smallint NOT NULL,
    total         bigint   NOT NULL DEFAULT 0,
    processed     bigint   NOT NULL DEFAULT 0,
    failed        bigint   NOT NULL DEFAULT 0,
    last_error    text,
    last_error_at timestamptz,
    PRIMARY KEY (batch_id, shard)
) WITH (fillfactor = 50);
