-- The engine: live jobs, finished jobs, attempts, keys, workers, queues.
--
-- A job's row lives in jobs_live while anything can still happen to it and moves to jobs_finished in
-- the transaction that writes its final state, so the hot table stays small and listing costs it no
-- index. Leases are columns of the job itself (a worker's row may vanish, its jobs must not).

CREATE TABLE rowlock.jobs_live (
    id                  uuid        PRIMARY KEY,
    task                text        NOT NULL,
    queue               text        NOT NULL,
    state               text        NOT NULL DEFAULT 'queued',
    ready               boolean     NOT NULL,           -- may be claimed now; set by enqueue, settle and the promoter
    priority            smallint    NOT NULL DEFAULT 0,
    args                json        NOT NULL,
    owner               text,
    source              text,
    tags                json,
    batch_id            uuid,
    schedule_id         text,
    tick                timestamptz,
    attempt             integer     NOT NULL DEFAULT 0,
    max_attempts        integer     NOT NULL,
    releases            integer     NOT NULL DEFAULT 0,
    losses              integer     NOT NULL DEFAULT 0,
    convictions         integer     NOT NULL DEFAULT 0,
    backoff             json,
    timeout_seconds     double precision,
    run_after           timestamptz NOT NULL,
    expires_at          timestamptz,
    lease_token         uuid,
    locked_by           text,
    locked_at           timestamptz,
    heartbeat_at        timestamptz,
    lease_expires_at    timestamptz,
    settled_token       uuid,
    cancel_requested_at timestamptz,
    progress            smallint,
    phase               text,
    message             text,
    result_uri          text,
    result_checksum     text,
    error_code          text,
    error_message       text,
    on_success          json,
    on_dead             json,
    on_lost             text,
    keep_seconds        double precision,
    created_at          timestamptz NOT NULL,
    started_at          timestamptz,
    updated_at          timestamptz NOT NULL,

    CONSTRAINT jobs_live_state CHECK (state IN ('queued', 'running', 'retryable')),
    CONSTRAINT jobs_live_priority CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT jobs_live_counts CHECK (attempt >= 0 AND releases >= 0 AND losses >= 0 AND max_attempts >= 1),
    CONSTRAINT jobs_live_ready CHECK (NOT (ready AND state = 'running')),
    -- A running row has a whole lease; any other row has none of it.
    CONSTRAINT jobs_live_lease CHECK (
        CASE WHEN state = 'running'
             THEN lease_token IS NOT NULL AND locked_by IS NOT NULL AND locked_at IS NOT NULL
                  AND lease_expires_at IS NOT NULL
             ELSE lease_token IS NULL AND locked_by IS NULL AND locked_at IS NULL
                  AND lease_expires_at IS NULL AND heartbeat_at IS NULL
        END)
) WITH (
    fillfactor = 70,                              -- room for beats to stay on the page (HOT)
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_limit = 2000
);

-- The claim: one range per (queue, task). Nothing that is not claimable now has an entry.
CREATE INDEX jobs_live_claim ON rowlock.jobs_live (queue, task, priority, id) WHERE ready;
-- The promoter: what waits for its time.
CREATE INDEX jobs_live_due ON rowlock.jobs_live (run_after) WHERE NOT ready AND state <> 'running';
-- The sweeper: running rows are few, so the lease time itself needs no index (one would end HOT beats).
CREATE INDEX jobs_live_running ON rowlock.jobs_live (id) WHERE state = 'running';
CREATE INDEX jobs_live_expiry ON rowlock.jobs_live (expires_at) WHERE expires_at IS NOT NULL AND state <> 'running';
CREATE INDEX jobs_live_owner ON rowlock.jobs_live (owner, id) WHERE owner IS NOT NULL;

-- Finished jobs, in one partition per day of expiry, so that retention is a DROP TABLE. Rows whose day
-- has no partition (the role may not create any, or an unusual retention) go to the default one.
CREATE TABLE rowlock.jobs_finished (
    id                  uuid        NOT NULL,
    task                text        NOT NULL,
    queue               text        NOT NULL,
    state               text        NOT NULL,
    priority            smallint    NOT NULL,
    args                json        NOT NULL,
    owner               text,
    source              text,
    tags                json,
    batch_id            uuid,
    schedule_id         text,
    tick                timestamptz,
    attempt             integer     NOT NULL,
    max_attempts        integer     NOT NULL,
    releases            integer     NOT NULL,
    losses              integer     NOT NULL,
    convictions         integer     NOT NULL,
    backoff             json,
    timeout_seconds     double precision,
    run_after           timestamptz NOT NULL,
    expires_at          timestamptz,
    settled_token       uuid,
    cancel_requested_at timestamptz,
    progress            smallint,
    phase               text,
    message             text,
    result              json,
    result_uri          text,
    result_checksum     text,
    error_code          text,
    error_message       text,
    on_success          json,
    on_dead             json,
    on_lost             text,
    keep_seconds        double precision,
    last_worker         text,
    created_at          timestamptz NOT NULL,
    started_at          timestamptz,
    finished_at         timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL,
    drop_on             date        NOT NULL,

    PRIMARY KEY (id, drop_on),
    CONSTRAINT jobs_finished_state CHECK (state IN ('succeeded', 'dead', 'cancelled'))
) PARTITION BY RANGE (drop_on);

CREATE TABLE rowlock.jobs_finished_default PARTITION OF rowlock.jobs_finished DEFAULT;

CREATE INDEX jobs_finished_default_drop ON rowlock.jobs_finished_default (drop_on);

-- Successes are the bulk and are listed by id alone; what people look for has its own index.
CREATE INDEX jobs_finished_trouble ON rowlock.jobs_finished (state, id) WHERE state <> 'succeeded';
CREATE INDEX jobs_finished_owner ON rowlock.jobs_finished (owner, id) WHERE owner IS NOT NULL;

CREATE VIEW rowlock.jobs AS
SELECT id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick,
       attempt, max_attempts, releases, losses, backoff, timeout_seconds, run_after, expires_at,
       lease_token, locked_by, locked_at, heartbeat_at, lease_expires_at, settled_token,
       cancel_requested_at, progress, phase, message, NULL::json AS result, result_uri,
       result_checksum, error_code, error_message, created_at, started_at,
       NULL::timestamptz AS finished_at, updated_at
FROM rowlock.jobs_live
UNION ALL
SELECT id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick,
       attempt, max_attempts, releases, losses, backoff, timeout_seconds, run_after, expires_at,
       NULL::uuid, last_worker, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, settled_token,
       cancel_requested_at, progress, phase, message, result, result_uri,
       result_checksum, error_code, error_message, created_at, started_at,
       finished_at, updated_at
FROM rowlock.jobs_finished;

-- One row for each attempt that did not succeed; the happy path writes nothing here.
CREATE TABLE rowlock.attempts (
    job_id        uuid        NOT NULL,
    attempt       integer     NOT NULL,
    outcome       text        NOT NULL CHECK (outcome IN ('failed', 'timed_out', 'lost', 'cancelled', 'released')),
    worker        text,
    started_at    timestamptz,
    finished_at   timestamptz NOT NULL,
    error_code    text,
    error_message text,
    PRIMARY KEY (job_id, attempt)
);
CREATE INDEX attempts_age ON rowlock.attempts (finished_at);

-- Unique keys and client-chosen ids, apart from the jobs, so that they outlive pruning.
CREATE TABLE rowlock.job_keys (
    scope      text NOT NULL,
    key        text NOT NULL,
    job_id     uuid NOT NULL,
    mode       text NOT NULL,
    expires_at timestamptz,
    PRIMARY KEY (scope, key)
);
CREATE INDEX job_keys_expiry ON rowlock.job_keys (expires_at) WHERE expires_at IS NOT NULL;

-- Who is at work: for operators, `explain` and wake-ups. Leases never depend on these rows.
CREATE TABLE rowlock.workers (
    id         text PRIMARY KEY,
    hostname   text        NOT NULL,
    pid        integer     NOT NULL,
    version    text        NOT NULL,
    queues     json        NOT NULL,
    tasks      json        NOT NULL,
    pool_size  integer     NOT NULL,
    running    integer     NOT NULL DEFAULT 0,
    idle       boolean     NOT NULL DEFAULT false,   -- asks to be woken when work arrives
    bell       text,                                 -- where to ring, on engines without NOTIFY
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    expires_at timestamptz NOT NULL                  -- believed gone after this
);

CREATE TABLE rowlock.queues (
    name      text PRIMARY KEY,
    paused_at timestamptz
);
