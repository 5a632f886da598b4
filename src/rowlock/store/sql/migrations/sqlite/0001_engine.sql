-- The engine (the same tables as on PostgreSQL, with the prefix rowlock_): live jobs, finished jobs, attempts, keys, workers, queues.
--
-- A job's row lives in jobs_live while anything can still happen to it and moves to jobs_finished in
-- the transaction that writes its final state, so the hot table stays small and listing costs it no
-- index. Leases are columns of the job itself (a worker's row may vanish, its jobs must not).

CREATE TABLE rowlock_jobs_live (
    id                  TEXT        PRIMARY KEY NOT NULL,
    task                TEXT        NOT NULL,
    queue               TEXT        NOT NULL,
    state               TEXT        NOT NULL DEFAULT 'queued',
    ready               INTEGER     NOT NULL,           -- may be claimed now; set by enqueue, settle and the promoter
    priority            INTEGER    NOT NULL DEFAULT 0,
    args                TEXT        NOT NULL,
    owner               TEXT,
    source              TEXT,
    tags                TEXT,
    batch_id            TEXT,
    schedule_id         TEXT,
    tick                REAL,
    attempt             INTEGER     NOT NULL DEFAULT 0,
    max_attempts        INTEGER     NOT NULL,
    releases            INTEGER     NOT NULL DEFAULT 0,
    losses              INTEGER     NOT NULL DEFAULT 0,
    convictions         INTEGER     NOT NULL DEFAULT 0,
    backoff             TEXT,
    timeout_seconds     REAL,
    run_after           REAL NOT NULL,
    expires_at          REAL,
    lease_token         TEXT,
    locked_by           TEXT,
    locked_at           REAL,
    heartbeat_at        REAL,
    lease_expires_at    REAL,
    settled_token       TEXT,
    cancel_requested_at REAL,
    progress            INTEGER,
    phase               TEXT,
    message             TEXT,
    result_uri          TEXT,
    result_checksum     TEXT,
    error_code          TEXT,
    error_message       TEXT,
    on_success          TEXT,
    on_dead             TEXT,
    on_lost             TEXT,
    keep_seconds        REAL,
    created_at          REAL NOT NULL,
    started_at          REAL,
    updated_at          REAL NOT NULL,

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
);

-- The claim: one range per (queue, task). Nothing that is not claimable now has an entry.
CREATE INDEX rowlock_jobs_live_claim ON rowlock_jobs_live (queue, task, priority, id) WHERE ready;
-- The promoter: what waits for its time.
CREATE INDEX rowlock_jobs_live_due ON rowlock_jobs_live (run_after) WHERE NOT ready AND state <> 'running';
-- The sweeper: running rows are few, so the lease time itself needs no index (one would end HOT beats).
CREATE INDEX rowlock_jobs_live_running ON rowlock_jobs_live (id) WHERE state = 'running';
CREATE INDEX rowlock_jobs_live_expiry ON rowlock_jobs_live (expires_at) WHERE expires_at IS NOT NULL AND state <> 'running';
CREATE INDEX rowlock_jobs_live_owner ON rowlock_jobs_live (owner, id) WHERE owner IS NOT NULL;

-- Finished jobs. SQLite has no partitions: retention deletes by `drop_on`, which only ever grows at the
-- right edge of its index, in small batches.
CREATE TABLE rowlock_jobs_finished (
    id                  TEXT        PRIMARY KEY NOT NULL,
    task                TEXT        NOT NULL,
    queue               TEXT        NOT NULL,
    state               TEXT        NOT NULL,
    priority            INTEGER    NOT NULL,
    args                TEXT        NOT NULL,
    owner               TEXT,
    source              TEXT,
    tags                TEXT,
    batch_id            TEXT,
    schedule_id         TEXT,
    tick                REAL,
    attempt             INTEGER     NOT NULL,
    max_attempts        INTEGER     NOT NULL,
    releases            INTEGER     NOT NULL,
    losses              INTEGER     NOT NULL,
    convictions         INTEGER     NOT NULL,
    backoff             TEXT,
    timeout_seconds     REAL,
    run_after           REAL NOT NULL,
    expires_at          REAL,
    settled_token       TEXT,
    cancel_requested_at REAL,
    progress            INTEGER,
    phase               TEXT,
    message             TEXT,
    result              TEXT,
    result_uri          TEXT,
    result_checksum     TEXT,
    error_code          TEXT,
    error_message       TEXT,
    on_success          TEXT,
    on_dead             TEXT,
    on_lost             TEXT,
    keep_seconds        REAL,
    last_worker         TEXT,
    created_at          REAL NOT NULL,
    started_at          REAL,
    finished_at         REAL NOT NULL,
    updated_at          REAL NOT NULL,
    drop_on             TEXT        NOT NULL,

    CONSTRAINT jobs_finished_state CHECK (state IN ('succeeded', 'dead', 'cancelled'))
);

-- Successes are the bulk and are listed by id alone; what people look for has its own index.
CREATE INDEX rowlock_jobs_finished_trouble ON rowlock_jobs_finished (state, id) WHERE state <> 'succeeded';
CREATE INDEX rowlock_jobs_finished_drop ON rowlock_jobs_finished (drop_on);
CREATE INDEX rowlock_jobs_finished_owner ON rowlock_jobs_finished (owner, id) WHERE owner IS NOT NULL;

-- What people query. Times are stored as Unix seconds (cheap to compare and add to) and shown as ISO 8601.
CREATE VIEW rowlock_jobs AS
SELECT
       id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', tick, 'unixepoch') AS tick, attempt, max_attempts, releases, losses,
       backoff, timeout_seconds, strftime('%Y-%m-%dT%H:%M:%fZ', run_after, 'unixepoch') AS run_after,
       strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch') AS expires_at, lease_token, locked_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', locked_at, 'unixepoch') AS locked_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', heartbeat_at, 'unixepoch') AS heartbeat_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', lease_expires_at, 'unixepoch') AS lease_expires_at, settled_token,
       strftime('%Y-%m-%dT%H:%M:%fZ', cancel_requested_at, 'unixepoch') AS cancel_requested_at, progress,
       phase, message, NULL AS result, result_uri, result_checksum, error_code, error_message,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at, 'unixepoch') AS started_at, NULL AS finished_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, 'unixepoch') AS updated_at
FROM rowlock_jobs_live
UNION ALL
SELECT
       id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', tick, 'unixepoch') AS tick, attempt, max_attempts, releases, losses,
       backoff, timeout_seconds, strftime('%Y-%m-%dT%H:%M:%fZ', run_after, 'unixepoch') AS run_after,
       strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch') AS expires_at, NULL AS lease_token,
       last_worker AS locked_by, NULL AS locked_at, NULL AS heartbeat_at, NULL AS lease_expires_at,
       settled_token,
       strftime('%Y-%m-%dT%H:%M:%fZ', cancel_requested_at, 'unixepoch') AS cancel_requested_at, progress,
       phase, message, result, result_uri, result_checksum, error_code, error_message,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at, 'unixepoch') AS started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', finished_at, 'unixepoch') AS finished_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, 'unixepoch') AS updated_at
FROM rowlock_jobs_finished;

-- One row for each attempt that did not succeed; the happy path writes nothing here.
CREATE TABLE rowlock_attempts (
    job_id        TEXT        NOT NULL,
    attempt       INTEGER     NOT NULL,
    outcome       TEXT        NOT NULL CHECK (outcome IN ('failed', 'timed_out', 'lost', 'cancelled', 'released')),
    worker        TEXT,
    started_at    REAL,
    finished_at   REAL NOT NULL,
    error_code    TEXT,
    error_message TEXT,
    PRIMARY KEY (job_id, attempt)
);
CREATE INDEX rowlock_attempts_age ON rowlock_attempts (finished_at);

-- Unique keys and client-chosen ids, apart from the jobs, so that they outlive pruning.
CREATE TABLE rowlock_job_keys (
    scope      TEXT NOT NULL,
    key        TEXT NOT NULL,
    job_id     TEXT NOT NULL,
    mode       TEXT NOT NULL,
    expires_at REAL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX rowlock_job_keys_expiry ON rowlock_job_keys (expires_at) WHERE expires_at IS NOT NULL;

-- Who is at work: for operators, `explain` and wake-ups. Leases never depend on these rows.
CREATE TABLE rowlock_workers (
    id         TEXT PRIMARY KEY,
    hostname   TEXT        NOT NULL,
    pid        INTEGER     NOT NULL,
    version    TEXT        NOT NULL,
    queues     TEXT        NOT NULL,
    tasks      TEXT        NOT NULL,
    pool_size  INTEGER     NOT NULL,
    running    INTEGER     NOT NULL DEFAULT 0,
    idle       INTEGER     NOT NULL DEFAULT 0,   -- asks to be woken when work arrives
    bell       TEXT,                                 -- where to ring, on engines without NOTIFY
    started_at REAL NOT NULL,
    seen_at    REAL NOT NULL,
    expires_at REAL NOT NULL                  -- believed gone after this
);

CREATE TABLE rowlock_queues (
    name      TEXT PRIMARY KEY,
    paused_at REAL
);
