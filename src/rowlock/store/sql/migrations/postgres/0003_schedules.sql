-- Schedules and their ticks.

-- A rule, and what to enqueue at each of its ticks. `next_tick` is the first one that has not been dealt with.
CREATE TABLE rowlock.schedules (
    id                text        PRIMARY KEY,
    task              text        NOT NULL,
    args              json        NOT NULL,
    rule              text        NOT NULL,
    zone              text        NOT NULL,
    missed            text        NOT NULL DEFAULT 'latest' CHECK (missed IN ('latest', 'skip', 'all')),
    missed_most       integer     NOT NULL DEFAULT 100 CHECK (missed_most >= 1),    -- of `all`
    missed_seconds    double precision NOT NULL DEFAULT 3600 CHECK (missed_seconds >= 0),
    overlap           text        NOT NULL DEFAULT 'allow' CHECK (overlap IN ('allow', 'skip')),
    jitter_seconds    double precision NOT NULL DEFAULT 0 CHECK (jitter_seconds >= 0),
    starts_at         timestamptz,
    ends_at           timestamptz,
    queue             text        NOT NULL,
    priority          smallint    NOT NULL DEFAULT 0,
    owner             text,
    source            text,
    max_attempts      integer     NOT NULL,
    backoff           json,
    timeout_seconds   double precision,
    on_success        json,
    on_dead           json,
    keep_seconds      double precision,
    origin            text        NOT NULL CHECK (origin IN ('code', 'config', 'runtime')),
    writer_started_at timestamptz NOT NULL,               -- when the process started that wrote this definition
    declared_at       timestamptz NOT NULL,               -- when a process last had it in its code or config
    paused_at         timestamptz,
    retired_at        timestamptz,                        -- no live process has it any more
    last_tick         timestamptz,
    last_job          uuid,
    next_tick         timestamptz,                        -- NULL: there will be none
    problem           text,                               -- why its rule cannot be understood, by this version
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX schedules_due ON rowlock.schedules (next_tick)
    WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL;

-- One row for each tick that was fired, or passed over because the one before was still at work. Apart from the jobs,
-- so that forgetting a job does not bring its tick back.
CREATE TABLE rowlock.ticks (
    schedule_id text        NOT NULL,
    tick        timestamptz NOT NULL,
    job_id      uuid,                                     -- NULL: passed over
    fired_at    timestamptz NOT NULL,
    PRIMARY KEY (schedule_id, tick)
);
CREATE INDEX ticks_age ON rowlock.ticks (fired_at);

-- Who fires ticks, and which schedules their code and config have.
CREATE TABLE rowlock.dispatchers (
    id         text        PRIMARY KEY,
    declares   json        NOT NULL,
    bell       text,                                      -- where to ring, on engines without NOTIFY
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
