-- Schedules and their ticks.

-- A rule, and what to enqueue at each of its ticks. `next_tick` is the first one that has not been dealt with.
CREATE TABLE rowlock_schedules (
    id                TEXT        PRIMARY KEY,
    task              TEXT        NOT NULL,
    args              TEXT        NOT NULL,
    rule              TEXT        NOT NULL,
    zone              TEXT        NOT NULL,
    missed            TEXT        NOT NULL DEFAULT 'latest' CHECK (missed IN ('latest', 'skip', 'all')),
    missed_most       INTEGER     NOT NULL DEFAULT 100 CHECK (missed_most >= 1),    -- of `all`
    missed_seconds    REAL NOT NULL DEFAULT 3600 CHECK (missed_seconds >= 0),
    overlap           TEXT        NOT NULL DEFAULT 'allow' CHECK (overlap IN ('allow', 'skip')),
    jitter_seconds    REAL NOT NULL DEFAULT 0 CHECK (jitter_seconds >= 0),
    starts_at         REAL,
    ends_at           REAL,
    queue             TEXT        NOT NULL,
    priority          INTEGER    NOT NULL DEFAULT 0,
    owner             TEXT,
    source            TEXT,
    max_attempts      INTEGER     NOT NULL,
    backoff           TEXT,
    timeout_seconds   REAL,
    on_success        TEXT,
    on_dead           TEXT,
    keep_seconds      REAL,
    origin            TEXT        NOT NULL CHECK (origin IN ('code', 'config', 'runtime')),
    writer_started_at REAL NOT NULL,               -- when the process started that wrote this definition
    declared_at       REAL NOT NULL,               -- when a process last had it in its code or config
    paused_at         REAL,
    retired_at        REAL,                        -- no live process has it any more
    last_tick         REAL,
    last_job          TEXT,
    next_tick         REAL,                        -- NULL: there will be none
    problem           TEXT,                               -- why its rule cannot be understood, by this version
    created_at        REAL NOT NULL,
    updated_at        REAL NOT NULL
);
CREATE INDEX rowlock_schedules_due ON rowlock_schedules (next_tick)
    WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL;

-- One row for each tick that was fired, or passed over because the one before was still at work. Apart from the jobs,
-- so that forgetting a job does not bring its tick back.
CREATE TABLE rowlock_ticks (
    schedule_id TEXT        NOT NULL,
    tick        REAL NOT NULL,
    job_id      TEXT,                                     -- NULL: passed over
    fired_at    REAL NOT NULL,
    PRIMARY KEY (schedule_id, tick)
);
CREATE INDEX rowlock_ticks_age ON rowlock_ticks (fired_at);

-- Who fires ticks, and which schedules their code and config have.
CREATE TABLE rowlock_dispatchers (
    id         TEXT        PRIMARY KEY,
    declares   TEXT        NOT NULL,
    bell       TEXT,                                      -- where to ring, on engines without NOTIFY
    started_at REAL NOT NULL,
    seen_at    REAL NOT NULL,
    expires_at REAL NOT NULL
);
