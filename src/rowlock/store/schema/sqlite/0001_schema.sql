-- Rowlock keeps jobs, and everything that happens to them, in the tables of this file. They are the same tables as on
-- PostgreSQL, with the prefix rowlock_. Times are stored as Unix seconds, which are cheap to compare and add to; the
-- views show them as ISO 8601.
--
-- A job is one row, and it travels. `enqueue` inserts it into `rowlock_jobs_live` with the task to call and its
-- arguments. If the job may start now, it's `ready`; if it has to wait, a sweep makes it ready when its time has come.
-- A worker claims it: the row becomes `running` and gets a lease, which is a random token, the worker's name and an
-- expiry time. While the worker runs the job, its heartbeats extend the lease. At the end the worker settles the job,
-- but only if the lease still has the worker's token: a worker that has lost the lease can't change anything any more.
-- That's the fence, and it's why a slow worker and its successor can't both decide how a job ended.
--
-- A job that succeeded, died or was cancelled moves to `rowlock_jobs_finished` in the transaction that writes its final
-- state. So `rowlock_jobs_live` has only jobs to which something can still happen: it stays small, and its indexes
-- serve only claims and sweeps. People list and search jobs in `rowlock_jobs_finished`, until retention deletes them.
-- A job that failed and has tries left stays in `rowlock_jobs_live`, as `retryable`, until its backoff is over. An
-- attempt that did not succeed leaves a row in `rowlock_attempts`. If a worker dies, its leases expire, and any sweep
-- reclaims its jobs.
--
-- The other tables, all with the prefix:
--
--   job_keys      A key stands for "only one such job". It isn't a column of the job, because it may have to outlive it.
--   batches       Jobs that end together, counted in `batch_counts`.
--   sources       Outside services, such as api:ebay: how many jobs may use one at a time and how often, and whether it
--                 works at the moment. Claims read them; settles update their health.
--   schedules     Rules such as "every Monday at nine". A dispatcher turns each tick into a job, once: `ticks`.
--   events        What happened to the jobs of an owner, for clients that watch. Triggers write it.
--   tallies       How many jobs ended, and how fast. Triggers count; workers sum up into `rollups` and `counters`.
--   outbox        Entries that a bridge has to publish to Redis.
--
-- Users and programs read the views of views.sql, whose columns are part of the contract. When a database file is
-- opened, this file is applied once, as number 1, and views.sql again whenever its text has changed.

-- --- Jobs

-- An unfinished job: waiting, ready or running. The lease is part of the job's own row, because a worker's row may
-- vanish, but its jobs must not.
CREATE TABLE rowlock_jobs_live (
    id                  TEXT        PRIMARY KEY NOT NULL,  -- UUIDv7: ids grow with time
    task                TEXT        NOT NULL,
    queue               TEXT        NOT NULL,
    state               TEXT        NOT NULL DEFAULT 'queued',
    ready               INTEGER     NOT NULL,              -- may be claimed now; set by enqueue, settle and the sweep
    priority            INTEGER     NOT NULL DEFAULT 0,    -- -100 is first, 100 is last
    args                TEXT        NOT NULL,
    owner               TEXT,
    tags                TEXT,
    parent_id           TEXT,                              -- the job that made it, in its handler or as a follow-up
    traceparent         TEXT,                              -- W3C: the span that created it, if traces are on

    source              TEXT,
    batch_id            TEXT,
    unique_key          TEXT,
    unique_mode         TEXT        CHECK (unique_mode IN ('until_done', 'while_queued', 'forever', 'window')),
    schedule_id         TEXT,
    tick                REAL,

    run_after           REAL        NOT NULL,
    expires_at          REAL,                 -- if it hasn't started by then, it is cancelled
    timeout_seconds     REAL,
    backoff             TEXT,
    on_success          TEXT,                 -- the follow-up, or NULL
    on_dead             TEXT,
    on_lost             TEXT,                 -- if its worker is lost: 'dead', or NULL for another attempt
    keep_seconds        REAL,                 -- how long to keep it after it has finished

    -- Tries are attempts minus releases and losses. The streaks `…_in_row` and the probation restart when an attempt
    -- comes back (core/policy.py: Streaks), because sums would eventually reach any limit.
    attempt             INTEGER     NOT NULL DEFAULT 0,
    max_attempts        INTEGER     NOT NULL,
    releases            INTEGER     NOT NULL DEFAULT 0,
    losses              INTEGER     NOT NULL DEFAULT 0,  -- attempts whose worker died
    convictions         INTEGER     NOT NULL DEFAULT 0,  -- attempts whose own child process died
    -- If above 0, the job is a suspect.
    losses_in_row       INTEGER     NOT NULL DEFAULT 0 CHECK (typeof(losses_in_row) = 'integer' AND losses_in_row >= 0),
    -- Attempts that must come back until the next loss counts as a first one.
    probation           INTEGER     NOT NULL DEFAULT 0 CHECK (typeof(probation) = 'integer' AND probation >= 0),
    -- Releases because a SIGTERM from outside ended its child process.
    sigterms_in_row     INTEGER     NOT NULL DEFAULT 0 CHECK (typeof(sigterms_in_row) = 'integer' AND sigterms_in_row >= 0),
    -- Releases because its transaction was rolled back.
    disconnects_in_row  INTEGER     NOT NULL DEFAULT 0 CHECK (typeof(disconnects_in_row) = 'integer' AND disconnects_in_row >= 0),

    lease_token         TEXT,
    locked_by           TEXT,
    locked_at           REAL,
    heartbeat_at        REAL,
    lease_expires_at    REAL,
    published           TEXT,                 -- to Redis: 'unread' while its request waits there, then 'read'
    source_epoch        INTEGER,              -- the breaker's epoch under which this attempt was claimed
    settled_token       TEXT,                 -- the token of the last settle, to recognize a repeat
    cancel_requested_at REAL,

    progress            INTEGER,
    phase               TEXT,
    message             TEXT,
    result_uri          TEXT,
    result_checksum     TEXT,
    error_code          TEXT,
    error_message       TEXT,

    created_at          REAL        NOT NULL,
    started_at          REAL,
    updated_at          REAL        NOT NULL,

    CONSTRAINT jobs_live_state CHECK (state IN ('queued', 'running', 'retryable')),
    CONSTRAINT jobs_live_priority CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT jobs_live_counts CHECK (attempt >= 0 AND releases >= 0 AND losses >= 0 AND max_attempts >= 1),
    CONSTRAINT jobs_live_ready CHECK (NOT (ready AND state = 'running')),
    -- A running row has a complete lease; any other row has no lease.
    CONSTRAINT jobs_live_lease CHECK (
        CASE WHEN state = 'running'
             THEN lease_token IS NOT NULL AND locked_by IS NOT NULL AND locked_at IS NOT NULL
                  AND lease_expires_at IS NOT NULL
             ELSE lease_token IS NULL AND locked_by IS NULL AND locked_at IS NULL
                  AND lease_expires_at IS NULL AND heartbeat_at IS NULL
        END)
);

-- Claims read one range for each queue and task. Only jobs that can be claimed now have an entry. Jobs with a source
-- have their own index, so that a million jobs of one source don't hide those of other sources, or plain jobs.
CREATE INDEX rowlock_jobs_live_claim ON rowlock_jobs_live (queue, task, priority, id) WHERE ready AND source IS NULL;
CREATE INDEX rowlock_jobs_live_turns ON rowlock_jobs_live (queue, task, priority, source, id) WHERE ready AND source IS NOT NULL;
-- For the limits of sources: running jobs by class and source.
CREATE INDEX rowlock_jobs_live_slots ON rowlock_jobs_live (substr(source, 1, instr(source || ':', ':') - 1), source)
    WHERE state = 'running' AND source IS NOT NULL;
-- Sweeps look for delayed jobs, jobs past their `expires_at`, and expired leases. Running rows are few, so the end of a
-- lease doesn't need an index.
CREATE INDEX rowlock_jobs_live_due ON rowlock_jobs_live (run_after) WHERE NOT ready AND state <> 'running';
CREATE INDEX rowlock_jobs_live_expiry ON rowlock_jobs_live (expires_at) WHERE expires_at IS NOT NULL AND state <> 'running';
CREATE INDEX rowlock_jobs_live_running ON rowlock_jobs_live (id) WHERE state = 'running';
-- For lists, and for schedules with overlap = 'skip'. A job has no entry for a column that is NULL.
CREATE INDEX rowlock_jobs_live_owner ON rowlock_jobs_live (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX rowlock_jobs_live_parent ON rowlock_jobs_live (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX rowlock_jobs_live_batch ON rowlock_jobs_live (batch_id, id) WHERE batch_id IS NOT NULL;
CREATE INDEX rowlock_jobs_live_schedule ON rowlock_jobs_live (schedule_id) WHERE schedule_id IS NOT NULL;

-- Refuse rows that no worker could read: a time that Python can't represent, a value of the wrong type, text that isn't
-- JSON, and a whole number of more than 4,300 digits, which Python doesn't parse. Updates are checked only if they
-- change one of these columns, so that an existing bad row can still be claimed and released.
CREATE TRIGGER rowlock_jobs_live_readable BEFORE INSERT ON rowlock_jobs_live
WHEN typeof(NEW.id) <> 'text'
  OR typeof(NEW.run_after) <> 'real' OR NEW.run_after NOT BETWEEN 0 AND 7258118399.999
  OR NEW.expires_at NOT BETWEEN 0 AND 7258118399.999
  OR typeof(NEW.priority) <> 'integer' OR typeof(NEW.attempt) <> 'integer' OR typeof(NEW.max_attempts) <> 'integer'
  OR NOT json_valid(NEW.args)
  OR length(NEW.args) > 4300
BEGIN
    SELECT RAISE(ABORT, 'rowlock: id must be text (constraint)') WHERE typeof(NEW.id) <> 'text';
    SELECT RAISE(ABORT, 'rowlock: run_after and expires_at must be from 1970 to 2199 (constraint)')
    WHERE typeof(NEW.run_after) <> 'real' OR NEW.run_after NOT BETWEEN 0 AND 7258118399.999
       OR NEW.expires_at NOT BETWEEN 0 AND 7258118399.999;
    SELECT RAISE(ABORT, 'rowlock: priority, attempt and max_attempts must be whole numbers (constraint)')
    WHERE typeof(NEW.priority) <> 'integer' OR typeof(NEW.attempt) <> 'integer' OR typeof(NEW.max_attempts) <> 'integer';
    SELECT RAISE(ABORT, 'rowlock: args must be JSON (constraint)') WHERE NOT json_valid(NEW.args);
    -- Only if there are this many digits in a row, find out whether they are a number or part of a text.
    SELECT RAISE(ABORT, 'rowlock: args hold a number of more than 4300 digits; pass it as text (constraint)')
    WHERE length(NEW.args) > 4300
      AND NEW.args GLOB '*' || replace(substr(hex(zeroblob(2151)), 2), '0', '[0-9]') || '*'
      AND EXISTS (SELECT 1 FROM json_tree(NEW.args) WHERE type = 'integer' AND typeof(atom) = 'real' AND abs(atom) > 1e308);
END;
CREATE TRIGGER rowlock_jobs_live_stays_readable BEFORE UPDATE OF run_after, expires_at, args ON rowlock_jobs_live
WHEN (NEW.run_after IS NOT OLD.run_after
      AND (typeof(NEW.run_after) <> 'real' OR NEW.run_after NOT BETWEEN 0 AND 7258118399.999))
  OR (NEW.expires_at IS NOT OLD.expires_at AND NEW.expires_at NOT BETWEEN 0 AND 7258118399.999)
  OR (NEW.args IS NOT OLD.args AND NOT json_valid(NEW.args))
BEGIN
    SELECT RAISE(ABORT, 'rowlock: run_after and expires_at must be from 1970 to 2199, and args JSON (constraint)');
END;

-- Write an event for clients that watch. Triggers for events are never on a column that a claim sets.
CREATE TRIGGER rowlock_jobs_live_progress AFTER UPDATE OF progress, phase, message ON rowlock_jobs_live
WHEN NEW.owner IS NOT NULL AND NEW.state = 'running'
 AND (NEW.progress IS NOT OLD.progress OR NEW.phase IS NOT OLD.phase OR NEW.message IS NOT OLD.message)
BEGIN
    INSERT INTO rowlock_events (job_id, owner, type, task, state, attempt, progress, phase, message, at)
    VALUES (NEW.id, NEW.owner, 'job.progress', NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message,
            NEW.updated_at);
END;

-- A finished job. SQLite has no partitions, so retention deletes small batches by `drop_on`, whose index grows only at
-- its end.
CREATE TABLE rowlock_jobs_finished (
    id                  TEXT        PRIMARY KEY NOT NULL,
    task                TEXT        NOT NULL,
    queue               TEXT        NOT NULL,
    state               TEXT        NOT NULL,
    priority            INTEGER     NOT NULL,
    args                TEXT        NOT NULL,
    owner               TEXT,
    tags                TEXT,
    parent_id           TEXT,
    traceparent         TEXT,

    source              TEXT,
    batch_id            TEXT,
    unique_key          TEXT,
    unique_mode         TEXT,
    schedule_id         TEXT,
    tick                REAL,

    run_after           REAL        NOT NULL,
    expires_at          REAL,
    timeout_seconds     REAL,
    backoff             TEXT,
    on_success          TEXT,
    on_dead             TEXT,
    on_lost             TEXT,
    keep_seconds        REAL,

    attempt             INTEGER     NOT NULL,
    max_attempts        INTEGER     NOT NULL,
    releases            INTEGER     NOT NULL,
    losses              INTEGER     NOT NULL,
    convictions         INTEGER     NOT NULL,

    last_worker         TEXT,
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

    created_at          REAL        NOT NULL,
    started_at          REAL,
    finished_at         REAL        NOT NULL,
    updated_at          REAL        NOT NULL,
    drop_on             TEXT        NOT NULL,

    CONSTRAINT jobs_finished_state CHECK (state IN ('succeeded', 'dead', 'cancelled'))
);

CREATE INDEX rowlock_jobs_finished_drop ON rowlock_jobs_finished (drop_on);

-- Nearly all jobs are successes, which are listed by id alone. The few that people look for have their own index.
CREATE INDEX rowlock_jobs_finished_trouble ON rowlock_jobs_finished (state, id) WHERE state <> 'succeeded';
CREATE INDEX rowlock_jobs_finished_owner ON rowlock_jobs_finished (owner, id) WHERE owner IS NOT NULL;
-- For an owner's list by state. The two indexes above take 200 ms to find no dead job among 30,000 of other owners.
CREATE INDEX rowlock_jobs_finished_owner_trouble ON rowlock_jobs_finished (owner, state, id)
    WHERE owner IS NOT NULL AND state <> 'succeeded';
CREATE INDEX rowlock_jobs_finished_parent ON rowlock_jobs_finished (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX rowlock_jobs_finished_batch ON rowlock_jobs_finished (batch_id, id) WHERE batch_id IS NOT NULL;
CREATE INDEX rowlock_jobs_finished_schedule ON rowlock_jobs_finished (schedule_id, id) WHERE schedule_id IS NOT NULL;

-- However a job ends, these count it, write its event and enqueue the delivery of its webhook.
--
-- For a success, the run time and the wait time are counted as well. Other run times are counted with the attempt.
CREATE TRIGGER rowlock_jobs_finished_tally AFTER INSERT ON rowlock_jobs_finished
BEGIN
    INSERT INTO rowlock_tallies
    SELECT CAST(NEW.finished_at AS INTEGER) / 60 * 60, NEW.queue, NEW.task, NEW.state,
           CASE WHEN ran < 1 THEN
                    CASE WHEN ran < 0.005 THEN 0 WHEN ran < 0.01 THEN 1 WHEN ran < 0.025 THEN 2 WHEN ran < 0.05 THEN 3
                         WHEN ran < 0.1 THEN 4 WHEN ran < 0.25 THEN 5 WHEN ran < 0.5 THEN 6 ELSE 7 END
                WHEN ran IS NULL THEN -1
                ELSE CASE WHEN ran < 2.5 THEN 8 WHEN ran < 5 THEN 9 WHEN ran < 10 THEN 10 WHEN ran < 30 THEN 11
                          WHEN ran < 60 THEN 12 WHEN ran < 300 THEN 13 WHEN ran < 900 THEN 14
                          WHEN ran < 3600 THEN 15 ELSE 16 END END,
           CASE WHEN waited < 1 THEN
                    CASE WHEN waited < 0.005 THEN 0 WHEN waited < 0.01 THEN 1 WHEN waited < 0.025 THEN 2 WHEN waited < 0.05 THEN 3
                         WHEN waited < 0.1 THEN 4 WHEN waited < 0.25 THEN 5 WHEN waited < 0.5 THEN 6 ELSE 7 END
                WHEN waited IS NULL THEN -1
                ELSE CASE WHEN waited < 2.5 THEN 8 WHEN waited < 5 THEN 9 WHEN waited < 10 THEN 10 WHEN waited < 30 THEN 11
                          WHEN waited < 60 THEN 12 WHEN waited < 300 THEN 13 WHEN waited < 900 THEN 14
                          WHEN waited < 3600 THEN 15 ELSE 16 END END,
           1, max(coalesce(ran, 0), 0), max(coalesce(waited, 0), 0)
    FROM (SELECT CASE WHEN NEW.state = 'succeeded' THEN NEW.finished_at - NEW.started_at END AS ran,
                 CASE WHEN NEW.state = 'succeeded' THEN NEW.started_at - NEW.run_after END AS waited)
    WHERE TRUE  -- without it, SQLite parses ON as a join condition
    ON CONFLICT DO UPDATE
    SET number = number + 1, run_seconds = run_seconds + excluded.run_seconds,
        wait_seconds = wait_seconds + excluded.wait_seconds;
END;

CREATE TRIGGER rowlock_jobs_finished_end AFTER INSERT ON rowlock_jobs_finished
WHEN NEW.owner IS NOT NULL
BEGIN
    INSERT INTO rowlock_events (job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
                                result_checksum, error_code, error_message, at)
    VALUES (NEW.id, NEW.owner,
            CASE NEW.state WHEN 'succeeded' THEN 'job.completed' WHEN 'dead' THEN 'job.failed' ELSE 'job.cancelled' END,
            NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message, NEW.result_uri,
            NEW.result_checksum, NEW.error_code, NEW.error_message, NEW.finished_at);
END;

-- The delivery has no owner, so it doesn't write events or count against limits. Its content is fixed now, because by
-- the time of the delivery the job may have been retried or deleted.
CREATE TRIGGER rowlock_jobs_finished_webhook AFTER INSERT ON rowlock_jobs_finished
WHEN NEW.owner IS NOT NULL AND EXISTS (SELECT 1 FROM rowlock_webhooks WHERE job_id = NEW.id)
BEGIN
    UPDATE rowlock_webhooks SET drop_on = NEW.drop_on WHERE job_id = NEW.id;
    -- A UUIDv7 of now: 48 bits of milliseconds, then random bits.
    INSERT INTO rowlock_webhook_deliveries (job_id, delivery_id)
    SELECT NEW.id, printf('%08x-%04x-7%03x-%04x-%012x', ms >> 16, ms & 65535, random() & 4095,
                          32768 | (random() & 16383), random() & 281474976710655)
    FROM (SELECT CAST(NEW.finished_at * 1000 AS INTEGER) AS ms);
    INSERT INTO rowlock_jobs_live (id, task, queue, ready, args, source, max_attempts, backoff, timeout_seconds,
                                   run_after, created_at, updated_at)
    SELECT delivery.delivery_id, 'rowlock.webhook', hook.queue, 1,
           json_object(
               'url', hook.url,
               'owner', hook.owner,
               'event', json_object(
                   'job_id', NEW.id, 'task', NEW.task, 'state', NEW.state, 'attempt', NEW.attempt,
                   'progress', NEW.progress, 'phase', NEW.phase, 'message', NEW.message,
                   'result_uri', NEW.result_uri, 'result_checksum', NEW.result_checksum,
                   'error_code', NEW.error_code, 'error_message', NEW.error_message,
                   'at', NEW.finished_at)),
           hook.source, hook.max_attempts, hook.backoff, hook.timeout_seconds,
           NEW.finished_at, NEW.finished_at, NEW.finished_at
    FROM rowlock_webhooks hook
    JOIN rowlock_webhook_deliveries delivery ON delivery.rowid = last_insert_rowid()
    WHERE hook.job_id = NEW.id;
END;

-- An attempt that did not succeed. A job that succeeds at once writes nothing here.
CREATE TABLE rowlock_attempts (
    job_id        TEXT        NOT NULL,
    attempt       INTEGER     NOT NULL,
    outcome       TEXT        NOT NULL CHECK (outcome IN ('failed', 'timed_out', 'lost', 'cancelled', 'released')),
    task          TEXT,                       -- this and the next two are copied from the job, for grouping failures
    queue         TEXT,
    source        TEXT,
    worker        TEXT,
    started_at    REAL,
    finished_at   REAL        NOT NULL,
    error_code    TEXT,
    error_message TEXT,
    traceback     TEXT,
    PRIMARY KEY (job_id, attempt)
);
CREATE INDEX rowlock_attempts_age ON rowlock_attempts (finished_at);
CREATE TRIGGER rowlock_attempts_tally AFTER INSERT ON rowlock_attempts
BEGIN
    UPDATE rowlock_attempts
    SET task = j.task, queue = j.queue, source = j.source
    FROM rowlock_jobs_live j
    WHERE rowlock_attempts.rowid = NEW.rowid AND NEW.task IS NULL AND j.id = NEW.job_id;
    INSERT INTO rowlock_tallies
    SELECT CAST(finished_at AS INTEGER) / 60 * 60, coalesce(queue, ''), coalesce(task, ''), 'attempt.' || outcome,
           CASE WHEN ran < 1 THEN
                    CASE WHEN ran < 0.005 THEN 0 WHEN ran < 0.01 THEN 1 WHEN ran < 0.025 THEN 2 WHEN ran < 0.05 THEN 3
                         WHEN ran < 0.1 THEN 4 WHEN ran < 0.25 THEN 5 WHEN ran < 0.5 THEN 6 ELSE 7 END
                WHEN ran IS NULL THEN -1
                ELSE CASE WHEN ran < 2.5 THEN 8 WHEN ran < 5 THEN 9 WHEN ran < 10 THEN 10 WHEN ran < 30 THEN 11
                          WHEN ran < 60 THEN 12 WHEN ran < 300 THEN 13 WHEN ran < 900 THEN 14
                          WHEN ran < 3600 THEN 15 ELSE 16 END END,
           -1, 1, max(coalesce(ran, 0), 0), 0
    FROM (SELECT a.*, a.finished_at - a.started_at AS ran FROM rowlock_attempts a WHERE a.rowid = NEW.rowid)
    WHERE TRUE
    ON CONFLICT DO UPDATE SET number = number + 1, run_seconds = run_seconds + excluded.run_seconds;
END;

-- A key or a client-chosen id that a job holds. Not a column of the job, because it may have to outlive the job's row.
CREATE TABLE rowlock_job_keys (
    scope      TEXT NOT NULL,                 -- task and owner; 'id' for ids
    key        TEXT NOT NULL,
    job_id     TEXT NOT NULL,
    mode       TEXT NOT NULL,                 -- as jobs_live.unique_mode; 'id' for ids
    expires_at REAL,                          -- the end of a window
    PRIMARY KEY (scope, key)
);
CREATE INDEX rowlock_job_keys_expiry ON rowlock_job_keys (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX rowlock_job_keys_job ON rowlock_job_keys (job_id);

-- A job or batch for which an operation fails, and would fail again and again for all rows that are processed together
-- with it. The bad row itself stays as it is.
CREATE TABLE rowlock_set_aside (
    id       TEXT        PRIMARY KEY NOT NULL,  -- of the job or batch
    doing    TEXT        NOT NULL,              -- claim, promote, reclaim, expire, settle, prune; end (of a batch)
    error    TEXT        NOT NULL,
    times    INTEGER     NOT NULL DEFAULT 1,    -- how often it was tried and failed
    since    REAL        NOT NULL,
    again_at REAL                               -- when to try it again; NULL: after this row is deleted
);

-- A log line of a job whose task keeps log lines. Only the newest lines of each job are kept.
CREATE TABLE rowlock_job_logs (
    job_id  TEXT        NOT NULL,
    seq     INTEGER     NOT NULL,             -- grows with each line of a job
    attempt INTEGER     NOT NULL,
    at      REAL        NOT NULL,
    level   TEXT        NOT NULL,
    message TEXT        NOT NULL,
    PRIMARY KEY (job_id, seq)
) WITHOUT ROWID;
CREATE INDEX rowlock_job_logs_age ON rowlock_job_logs (at);

-- --- Queues, tasks, workers

-- A queue that is, or was, paused. Other queues need no row.
CREATE TABLE rowlock_queues (
    name      TEXT PRIMARY KEY,
    paused_at REAL
);

-- A task as its worker registered it, so that programs without its code can enqueue it with its options.
CREATE TABLE rowlock_tasks (
    name           TEXT    NOT NULL PRIMARY KEY,
    source_derived INTEGER     NOT NULL,      -- the task's code computes the source: it isn't in `options`
    options        TEXT        NOT NULL,      -- those that differ from the defaults (core/options.py)
    arguments      TEXT,                      -- their names and types
    description    TEXT,
    updated_at     REAL        NOT NULL
);

-- A worker process: for operators, `explain` and wake-ups. Leases never depend on this row.
CREATE TABLE rowlock_workers (
    id                TEXT PRIMARY KEY,
    hostname          TEXT        NOT NULL,
    pid               INTEGER     NOT NULL,
    version           TEXT        NOT NULL,
    queues            TEXT        NOT NULL,
    tasks             TEXT        NOT NULL,
    pool_size         INTEGER     NOT NULL,
    running           INTEGER     NOT NULL DEFAULT 0,
    memory_bytes      INTEGER,
    idle              INTEGER     NOT NULL DEFAULT 0,                    -- wants a wake-up when work arrives
    bell              TEXT,                                              -- path of its socket, on engines without NOTIFY
    stop_requested    TEXT CHECK (stop_requested IN ('drain', 'stop')),  -- by an operator; read at each heartbeat
    stop_requested_at REAL,
    started_at        REAL        NOT NULL,
    seen_at           REAL        NOT NULL,
    expires_at        REAL        NOT NULL                               -- after this it counts as dead
);

-- --- Batches

-- Jobs that belong together.
CREATE TABLE rowlock_batches (
    id           TEXT        PRIMARY KEY,
    name         TEXT        NOT NULL,
    owner        TEXT,
    parent_id    TEXT,                            -- the job whose handler made it
    state        TEXT        NOT NULL DEFAULT 'queued'
                             CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    on_end       TEXT,                            -- the follow-up
    ended_once   INTEGER     NOT NULL DEFAULT 0,  -- on_end has been enqueued
    end_job      TEXT,                            -- the job that on_end made
    sealed_at    REAL,                            -- since then, only its own jobs may add jobs
    cancelled_at REAL,
    reopened_at  REAL,                            -- an operator has retried one of its jobs since it ended
    created_at   REAL        NOT NULL,
    started_at   REAL,
    finished_at  REAL
);
CREATE INDEX rowlock_batches_open ON rowlock_batches (id) WHERE finished_at IS NULL;
CREATE INDEX rowlock_batches_done ON rowlock_batches (finished_at) WHERE finished_at IS NOT NULL;

-- One part (shard) of a batch's counters. A batch has several rows, as on PostgreSQL, where different connections write
-- them; the batch's numbers are their sums.
CREATE TABLE rowlock_batch_counts (
    batch_id      TEXT     NOT NULL REFERENCES rowlock_batches (id) ON DELETE CASCADE,
    shard         INTEGER  NOT NULL,
    total         INTEGER  NOT NULL DEFAULT 0,
    processed     INTEGER  NOT NULL DEFAULT 0,
    failed        INTEGER  NOT NULL DEFAULT 0,  -- dead or expired
    cancelled     INTEGER  NOT NULL DEFAULT 0,
    expired       INTEGER  NOT NULL DEFAULT 0,
    last_error    TEXT,
    last_error_at REAL,
    PRIMARY KEY (batch_id, shard)
);

-- --- Sources

-- An outside service (api:ebay), or a class of services (api), whose settings are the defaults of its sources. A source
-- that is named like its class shares the class's row: the columns class_… are an operator's decisions for all sources
-- of the class, the other columns are about the source.
CREATE TABLE rowlock_sources (
    name                  TEXT             PRIMARY KEY,
    concurrency           INTEGER          CHECK (concurrency >= 0),        -- running jobs at a time; NULL: the class's
    total                 INTEGER          CHECK (total >= 0),              -- running jobs of all sources of this class
    rate_limit_per_minute REAL             CHECK (rate_limit_per_minute > 0),
    burst                 INTEGER          CHECK (burst >= 1),
    failure_threshold     INTEGER          CHECK (failure_threshold >= 1),  -- failures in a row that open the breaker
    cooldown_seconds      REAL             CHECK (cooldown_seconds > 0),
    cooldown_factor       REAL             CHECK (cooldown_factor >= 1),    -- for each further opening
    block_after           INTEGER          CHECK (block_after >= 1),        -- refusals in a row that disable it
    set_by                TEXT,                                             -- config or operator

    enabled               INTEGER          NOT NULL DEFAULT 1,
    paused_until          REAL,               -- by the breaker, Retry-After or an operator
    paused_at             REAL,               -- when paused_until was written
    class_enabled         INTEGER          NOT NULL DEFAULT 1,
    class_paused_until    REAL,
    class_paused_at       REAL,

    failure_streak        INTEGER          NOT NULL DEFAULT 0,
    opened_at             REAL,                                 -- set while the breaker is open or half open
    opens                 INTEGER          NOT NULL DEFAULT 0,  -- how often it opened in a row
    epoch                 INTEGER          NOT NULL DEFAULT 0,  -- grows when it opens or closes
    probe_job             TEXT,                                 -- the one job that a half-open breaker admits
    probe_token           TEXT,
    refusals              INTEGER          NOT NULL DEFAULT 0,  -- in a row: 403, robots.txt, captcha
    refused_at            REAL,
    refusal_code          TEXT,

    tokens                REAL,               -- in the token bucket at the time tokens_at
    tokens_at             REAL,
    last_success_at       REAL,
    last_failure_at       REAL,
    last_error            TEXT,
    created_at            REAL             NOT NULL DEFAULT (unixepoch('subsec'))
);
CREATE INDEX rowlock_sources_refused ON rowlock_sources (name) WHERE refusals > 0;
-- For finding problems: the few sources that may be closed.
CREATE INDEX rowlock_sources_closed ON rowlock_sources (name) WHERE opened_at IS NOT NULL OR NOT enabled OR paused_until IS NOT NULL;

-- The two classes that everybody needs. Two requests at a time are polite to a website; an API has its own contract.
INSERT INTO rowlock_sources (name, concurrency) VALUES ('domain', 2), ('api', NULL);

-- --- Schedules

-- A rule, and the job to enqueue at each of its ticks. `next_tick` is the first tick that hasn't been handled yet.
CREATE TABLE rowlock_schedules (
    id                TEXT             PRIMARY KEY,
    task              TEXT             NOT NULL,
    args              TEXT             NOT NULL,
    rule              TEXT             NOT NULL,
    zone              TEXT             NOT NULL,
    missed            TEXT             NOT NULL DEFAULT 'latest' CHECK (missed IN ('latest', 'skip', 'all')),
    missed_most       INTEGER          NOT NULL DEFAULT 100 CHECK (missed_most >= 1),  -- of `all`
    missed_seconds    REAL             NOT NULL DEFAULT 3600 CHECK (missed_seconds >= 0),
    overlap           TEXT             NOT NULL DEFAULT 'allow' CHECK (overlap IN ('allow', 'skip')),
    jitter_seconds    REAL             NOT NULL DEFAULT 0 CHECK (jitter_seconds >= 0),
    starts_at         REAL,
    ends_at           REAL,

    queue             TEXT             NOT NULL,  -- this and the columns to keep_seconds: options of its jobs
    priority          INTEGER          NOT NULL DEFAULT 0,
    owner             TEXT,
    source            TEXT,
    max_attempts      INTEGER          NOT NULL,
    backoff           TEXT,
    timeout_seconds   REAL,
    on_success        TEXT,
    on_dead           TEXT,
    on_lost           TEXT,
    keep_seconds      REAL,

    origin            TEXT             NOT NULL CHECK (origin IN ('code', 'config', 'runtime')),
    writer_started_at REAL             NOT NULL,  -- when the process that wrote this definition started
    declared_at       REAL             NOT NULL,  -- when a process last declared it in its code or config
    paused_at         REAL,
    retired_at        REAL,                       -- set when no live process declares it any more
    last_tick         REAL,
    last_job          TEXT,
    next_tick         REAL,                       -- NULL: no more ticks
    problem           TEXT,                       -- why it can't be fired
    created_at        REAL             NOT NULL,
    updated_at        REAL             NOT NULL
);
CREATE INDEX rowlock_schedules_due ON rowlock_schedules (next_tick)
    WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL;
CREATE INDEX rowlock_schedules_problem ON rowlock_schedules (id) WHERE problem IS NOT NULL AND retired_at IS NULL;

-- A tick that was fired, or skipped because the previous tick's job was unfinished. Not a part of the jobs, so that
-- deleting a job doesn't bring its tick back.
CREATE TABLE rowlock_ticks (
    schedule_id TEXT        NOT NULL,
    tick        REAL        NOT NULL,
    job_id      TEXT,                         -- NULL: skipped
    fired_at    REAL        NOT NULL,
    PRIMARY KEY (schedule_id, tick)
);
CREATE INDEX rowlock_ticks_age ON rowlock_ticks (fired_at);

-- A process that fires ticks, with the schedules that its code and config declare.
CREATE TABLE rowlock_dispatchers (
    id         TEXT        PRIMARY KEY,
    declares   TEXT        NOT NULL,
    bell       TEXT,                          -- path of its socket, on engines without NOTIFY
    started_at REAL        NOT NULL,
    seen_at    REAL        NOT NULL,
    expires_at REAL        NOT NULL
);

-- --- Events

-- Something that happened to a job with an owner, for clients that watch. Triggers write it in the transaction of the
-- change, whether that's a worker of any version, an operator, or somebody's SQL. Jobs without an owner have no events.
CREATE TABLE rowlock_events (
    id              INTEGER     PRIMARY KEY AUTOINCREMENT,
    job_id          TEXT        NOT NULL,
    owner           TEXT        NOT NULL,
    type            TEXT        NOT NULL,     -- job.progress, job.completed, job.failed, job.cancelled
    task            TEXT        NOT NULL,
    state           TEXT        NOT NULL,
    attempt         INTEGER     NOT NULL,
    progress        INTEGER,
    phase           TEXT,
    message         TEXT,
    result_uri      TEXT,
    result_checksum TEXT,
    error_code      TEXT,
    error_message   TEXT,
    at              REAL        NOT NULL
);
CREATE INDEX rowlock_events_owner ON rowlock_events (owner, id);
CREATE TRIGGER rowlock_events_deleted AFTER DELETE ON rowlock_events
BEGIN
    INSERT INTO rowlock_deleted_events (one, last_id) VALUES (1, OLD.id)
    ON CONFLICT (one) DO UPDATE SET last_id = max(last_id, excluded.last_id);
END;

-- The largest id of a deleted event, in one row: a client that has not read that far must reload its jobs.
CREATE TABLE rowlock_deleted_events (
    one     INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    last_id INTEGER NOT NULL
);

-- A server that wants wake-ups for new events. On SQLite servers poll, so nothing reads this table.
CREATE TABLE rowlock_event_listeners (
    id         TEXT        PRIMARY KEY NOT NULL,
    expires_at REAL        NOT NULL
);

-- --- Numbers, for dashboards and metrics that must not count rows
--
-- `what` is the state in which a job ended (succeeded, dead, cancelled), or `attempt.` and the outcome of an attempt
-- that did not succeed. Bucket n of seconds goes from the (n-1)th to the nth bound of store/read/counters.py; -1 is
-- unknown.

-- The jobs and attempts that ended in a minute. Triggers count in the transaction of the change, so the numbers are
-- right after any crash. Workers move these rows into `rollups` and `counters` every few seconds.
CREATE TABLE rowlock_tallies (
    at           REAL             NOT NULL,   -- the minute
    queue        TEXT             NOT NULL,
    task         TEXT             NOT NULL,
    what         TEXT             NOT NULL,
    run_bucket   INTEGER          NOT NULL,
    wait_bucket  INTEGER          NOT NULL,
    number       INTEGER          NOT NULL,
    run_seconds  REAL             NOT NULL,
    wait_seconds REAL             NOT NULL,
    PRIMARY KEY (at, queue, task, what, run_bucket, wait_bucket)
) WITHOUT ROWID;

-- The sums of a minute or an hour.
CREATE TABLE rowlock_rollups (
    seconds      INTEGER          NOT NULL,   -- 60 or 3600
    at           REAL             NOT NULL,   -- when this minute or hour began
    queue        TEXT             NOT NULL,
    task         TEXT             NOT NULL,
    what         TEXT             NOT NULL,
    run_bucket   INTEGER          NOT NULL,
    wait_bucket  INTEGER          NOT NULL,
    number       INTEGER          NOT NULL,
    run_seconds  REAL             NOT NULL,
    wait_seconds REAL             NOT NULL,
    PRIMARY KEY (seconds, at, queue, task, what, run_bucket, wait_bucket)
) WITHOUT ROWID;

-- The sums since the database was made.
CREATE TABLE rowlock_counters (
    queue        TEXT             NOT NULL,
    task         TEXT             NOT NULL,
    what         TEXT             NOT NULL,
    run_bucket   INTEGER          NOT NULL,
    wait_bucket  INTEGER          NOT NULL,
    number       INTEGER          NOT NULL,
    run_seconds  REAL             NOT NULL,
    wait_seconds REAL             NOT NULL,
    PRIMARY KEY (queue, task, what, run_bucket, wait_bucket)
) WITHOUT ROWID;

-- The length of a queue in one minute.
CREATE TABLE rowlock_queue_samples (
    at             REAL        NOT NULL,      -- the minute
    queue          TEXT        NOT NULL,      -- '' marks the minute as sampled by some process
    ready          INTEGER     NOT NULL,
    waiting        INTEGER     NOT NULL,
    running        INTEGER     NOT NULL,
    oldest_seconds REAL,                      -- age of the oldest ready job
    PRIMARY KEY (at, queue)
) WITHOUT ROWID;

-- --- The API: who may use it

-- Every credential that authenticates a request: a `token`, which `rowlock tokens create` showed once; the `session` of
-- a browser; and two that work only once, the `link` that opens a session and the `ticket` that a browser puts into the
-- address of a WebSocket. Only the SHA-256 of each is stored, which is useless to readers of this table. Each kind is
-- accepted only where it belongs: a session only in a cookie, a token never in one.
CREATE TABLE rowlock_tokens (
    id         TEXT        PRIMARY KEY NOT NULL,
    hash       TEXT        NOT NULL UNIQUE,
    hint       TEXT        NOT NULL,          -- the first characters, to recognise a token in a list
    kind       TEXT        NOT NULL DEFAULT 'token',
    uses       INTEGER,                       -- remaining uses; NULL: unlimited
    owner      TEXT,                          -- whose jobs it gives access to; NULL: an operator's, for all jobs
    scope      TEXT        NOT NULL CHECK (scope IN ('jobs', 'operator', 'operator:read')),
    job_id     TEXT,                          -- if set, it gives access only to this job, and only for reading
    made_from  TEXT,                          -- the token that requested it; revoking that token revokes this
    good_until REAL,                          -- of a ticket: when the JSON Web Token that requested it expires (epoch)
    created_at REAL        NOT NULL,
    expires_at REAL,
    revoked_at REAL,
    CHECK ((owner IS NULL) = (scope <> 'jobs')),
    CHECK (
        (kind = 'token' AND uses IS NULL)
        OR (kind = 'session' AND uses IS NULL AND job_id IS NULL AND expires_at IS NOT NULL)
        OR (kind IN ('link', 'ticket') AND uses >= 0 AND uses IS NOT NULL AND expires_at IS NOT NULL))
);

-- A request that created a job under an Idempotency-Key: repeating the request returns that job. The row is written
-- before the job, so that all servers see that the request is in progress.
CREATE TABLE rowlock_requests (
    owner         TEXT        NOT NULL,       -- empty: an operator
    key           TEXT        NOT NULL,
    body_hash     TEXT        NOT NULL,
    job_id        TEXT,
    claim         TEXT,                       -- of the one request that may create the job
    claimed_until REAL,                       -- if there is no job by then, another request may take over
    expires_at    REAL        NOT NULL,
    PRIMARY KEY (owner, key)
);

-- --- Webhooks

-- A secret of an owner. It is stored in clear text, because signing needs it. The newest one signs, and until
-- `expires_at` the previous one as well, so that a receiver has time to switch.
CREATE TABLE rowlock_webhook_secrets (
    id         TEXT        PRIMARY KEY NOT NULL,
    owner      TEXT        NOT NULL,
    secret     TEXT        NOT NULL,
    hint       TEXT        NOT NULL,          -- the first characters, to recognise a secret in a list
    created_at REAL        NOT NULL,
    expires_at REAL                           -- NULL: the owner's newest
);
CREATE INDEX rowlock_webhook_secrets_owner ON rowlock_webhook_secrets (owner, created_at);

-- The webhook of a job, with everything that its delivery needs, because the process that ends the job may know neither
-- the address nor the settings of the server that took the request.
CREATE TABLE rowlock_webhooks (
    job_id          TEXT             PRIMARY KEY NOT NULL,
    owner           TEXT             NOT NULL,
    url             TEXT             NOT NULL,
    source          TEXT             NOT NULL,
    queue           TEXT             NOT NULL,
    max_attempts    INTEGER          NOT NULL,
    backoff         TEXT             NOT NULL,
    timeout_seconds REAL             NOT NULL,
    drop_on         TEXT                      -- when the finished job may be dropped; NULL: it has never ended
);
CREATE INDEX rowlock_webhooks_drop ON rowlock_webhooks (drop_on) WHERE drop_on IS NOT NULL;

-- A job that delivers the webhook of another job, one for each time that the other job has ended.
CREATE TABLE rowlock_webhook_deliveries (
    job_id      TEXT NOT NULL REFERENCES rowlock_webhooks (job_id) ON DELETE CASCADE,
    delivery_id TEXT NOT NULL,
    PRIMARY KEY (job_id, delivery_id)
);

-- --- Alerts

-- The process that evaluates the alert rules: at most one row. Its token fences everything that this process writes.
CREATE TABLE rowlock_alert_lease (
    one        INTEGER     PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    holder     TEXT        NOT NULL,
    token      TEXT        NOT NULL,
    expires_at REAL        NOT NULL
);

-- The state of a rule for one subject (a queue, a task, a source, a schedule; empty for the whole system). The row
-- exists while the condition is true or the alert isn't resolved yet.
CREATE TABLE rowlock_alerts (
    rule        TEXT             NOT NULL,
    subject     TEXT             NOT NULL,
    value       REAL             NOT NULL,
    text        TEXT             NOT NULL,
    true_since  REAL             NOT NULL,
    false_since REAL,                         -- since when the condition has not been true; not resolved yet
    fired_at    REAL,                         -- NULL: still pending
    told_at     REAL,                         -- when the last message was written
    repeats     INTEGER          NOT NULL DEFAULT 0,
    PRIMARY KEY (rule, subject)
);

-- A message to be sent. It is written together with the change that it reports, and deleted once it has arrived. If a
-- process dies in between, no message is lost, but one may be sent twice (with the same id).
CREATE TABLE rowlock_alert_messages (
    id         TEXT        PRIMARY KEY NOT NULL,
    type       TEXT        NOT NULL,
    body       TEXT        NOT NULL,
    created_at REAL        NOT NULL,
    attempts   INTEGER     NOT NULL DEFAULT 0,
    send_after REAL        NOT NULL,
    last_error TEXT
);

-- --- Operators

-- The audit: something that a person did, on the command line or through the API.
CREATE TABLE rowlock_audit (
    id      INTEGER     PRIMARY KEY AUTOINCREMENT,
    at      REAL        NOT NULL,
    who     TEXT        NOT NULL,
    via     TEXT        NOT NULL,             -- api, cli
    address TEXT,                             -- where the request came from
    action  TEXT        NOT NULL,             -- jobs.retry, queues.pause, …
    target  TEXT,                             -- a job's id, a name, or the filter as JSON
    number  INTEGER     NOT NULL,             -- how many jobs or things were changed
    details TEXT
);

-- A bulk change that somebody has previewed and may confirm. Jobs that have changed since then are left alone.
CREATE TABLE rowlock_previews (
    token_hash TEXT        PRIMARY KEY NOT NULL,
    action     TEXT        NOT NULL,
    filter     TEXT        NOT NULL,
    ids        TEXT,                          -- a selection; NULL: everything that matches
    made_at    REAL        NOT NULL,
    expires_at REAL        NOT NULL,
    who        TEXT        NOT NULL,
    next_id    TEXT,                          -- continue before this one
    looked     INTEGER     NOT NULL DEFAULT 0,
    changed    INTEGER     NOT NULL DEFAULT 0,
    audit_id   INTEGER
);
CREATE INDEX rowlock_previews_expiry ON rowlock_previews (expires_at);

-- --- Redis

-- An entry that a bridge has to append to a Redis stream. It is written in the transaction that it announces, and
-- deleted once it is known to have arrived. A bridge that dies in between loses nothing, but may send entries twice.
CREATE TABLE rowlock_outbox (
    id      INTEGER     PRIMARY KEY AUTOINCREMENT,
    kind    TEXT        NOT NULL CHECK (kind IN ('request', 'cancel')),
    job_id  TEXT        NOT NULL,
    token   TEXT,                             -- of a request: the lease under which it was published
    take_at REAL        NOT NULL,             -- from then on, any bridge may send it
    sent_at REAL,
    entry   TEXT,                             -- of a request: its id in the stream
    CHECK ((token IS NOT NULL) = (kind = 'request'))
);
CREATE INDEX rowlock_outbox_unsent ON rowlock_outbox (take_at) WHERE sent_at IS NULL;
CREATE INDEX rowlock_outbox_job ON rowlock_outbox (job_id);

-- --- Migrations
--
-- `rowlock_migrations` and `rowlock_schema_files` record which files of this folder were applied. They are created
-- before everything else (store/engine/dialects.py).

-- An applied migration of an app's own tables (store/engine/app_schema.py).
CREATE TABLE rowlock_app_migrations (
    app        TEXT        NOT NULL,
    number     INTEGER     NOT NULL,
    name       TEXT        NOT NULL,
    applied_at REAL        NOT NULL,
    PRIMARY KEY (app, number)
);
