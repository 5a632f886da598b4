-- Rowlock keeps jobs, and everything that happens to them, in the tables of this file.
--
-- A job is one row, and it travels. rowlock.enqueue (or Python) inserts it into `jobs_live` with the task to call and
-- its arguments. If the job may start now, it's `ready`; if it has to wait, a sweep makes it ready when its time has
-- come. A worker claims it: the row becomes `running` and gets a lease, which is a random token, the worker's name and
-- an expiry time. While the worker runs the job, its heartbeats extend the lease. At the end the worker settles the
-- job, but only if the lease still has the worker's token: a worker that has lost the lease can't change anything any
-- more. That's the fence, and it's why a slow worker and its successor can't both decide how a job ended.
--
-- A job that succeeded, died or was cancelled moves to `jobs_finished` in the transaction that writes its final state.
-- So `jobs_live` has only jobs to which something can still happen: it stays small, and its indexes serve only claims
-- and sweeps. People list and search jobs in `jobs_finished`, whose partitions are dropped when their day has come. A
-- job that failed and has tries left stays in `jobs_live`, as `retryable`, until its backoff is over. An attempt that
-- did not succeed leaves a row in `attempts`. If a worker dies, its leases expire, and any sweep reclaims its jobs.
--
-- Around the jobs:
--
--   job_keys      A key stands for "only one such job". It isn't a column of the job, because it may have to outlive it.
--   batches       Jobs that end together. `batch_counts` counts them in several rows, so that no row is hot.
--   sources       Outside services, such as api:ebay: how many jobs may use one at a time and how often, and whether it
--                 works at the moment. Claims lock and read them; settles update their health.
--   schedules     Rules such as "every Monday at nine". A dispatcher turns each tick into a job, once: `ticks`.
--   events        What happened to the jobs of an owner, for clients that watch. Triggers write it.
--   tallies       How many jobs ended, and how fast. Triggers count; workers sum up into `rollups` and `counters`.
--   outbox        Entries that a bridge has to publish to Redis.
--
-- Users and programs read the views of views.sql, whose columns are part of the contract. The functions in
-- functions/*.sql follow the rules of the Python store. `rowlock migrate` applies this file once, as number 1, and
-- views.sql and functions/*.sql again whenever their text has changed.

-- A trigger needs its function to exist. So these functions are declared here with empty bodies, and functions/*.sql,
-- which is applied in the same transaction, has the real ones.
CREATE FUNCTION rowlock.refuse_unreadable()   RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_progress()       RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_end()            RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_webhook()        RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_tallies()        RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_attempt_task()   RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_attempts()       RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_deleted_events() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';

-- --- Jobs

-- An unfinished job: waiting, ready or running. The lease is part of the job's own row, because a worker's row may
-- vanish, but its jobs must not.
CREATE TABLE rowlock.jobs_live (
    id                  uuid        PRIMARY KEY,         -- UUIDv7: ids grow with time
    task                text        NOT NULL,
    queue               text        NOT NULL,
    state               text        NOT NULL DEFAULT 'queued',
    ready               boolean     NOT NULL,            -- may be claimed now; set by enqueue, settle and the sweep
    priority            smallint    NOT NULL DEFAULT 0,  -- -100 is first, 100 is last
    args                json        NOT NULL,
    owner               text,
    tags                json,
    parent_id           uuid,                            -- the job that made it, in its handler or as a follow-up
    traceparent         text,                            -- W3C: the span that created it, if traces are on

    source              text,
    batch_id            uuid,
    unique_key          text,
    unique_mode         text,                 -- until_done, while_queued, forever or window
    schedule_id         text,
    tick                timestamptz,

    run_after           timestamptz NOT NULL,
    expires_at          timestamptz,          -- if it hasn't started by then, it is cancelled
    timeout_seconds     double precision,
    backoff             json,
    on_success          json,                 -- the follow-up, or NULL
    on_dead             json,
    on_lost             text,                 -- if its worker is lost: 'dead', or NULL for another attempt
    keep_seconds        double precision,     -- how long to keep it after it has finished

    -- Tries are attempts minus releases and losses. The streaks `…_in_row` and the probation restart when an attempt
    -- comes back (core/policy.py: Streaks), because sums would eventually reach any limit.
    attempt             integer     NOT NULL DEFAULT 0,
    max_attempts        integer     NOT NULL,
    releases            integer     NOT NULL DEFAULT 0,
    losses              integer     NOT NULL DEFAULT 0,  -- attempts whose worker died
    convictions         integer     NOT NULL DEFAULT 0,  -- attempts whose own child process died
    losses_in_row       integer     NOT NULL DEFAULT 0,  -- above 0 the job is a suspect
    probation           integer     NOT NULL DEFAULT 0,  -- attempts until the next loss counts as a first one
    sigterms_in_row     integer     NOT NULL DEFAULT 0,  -- releases by a SIGTERM from outside
    disconnects_in_row  integer     NOT NULL DEFAULT 0,  -- releases by a rolled-back transaction

    lease_token         uuid,
    locked_by           text,
    locked_at           timestamptz,
    heartbeat_at        timestamptz,
    lease_expires_at    timestamptz,
    published           text,                 -- to Redis: 'unread' while its request waits there, then 'read'
    source_epoch        integer,              -- the breaker's epoch under which this attempt was claimed
    settled_token       uuid,                 -- the token of the last settle, to recognize a repeat
    cancel_requested_at timestamptz,

    progress            smallint,
    phase               text,
    message             text,
    result_uri          text,
    result_checksum     text,
    error_code          text,
    error_message       text,

    created_at          timestamptz NOT NULL,
    started_at          timestamptz,
    updated_at          timestamptz NOT NULL,

    -- A running row has a complete lease and isn't ready; any other row has no lease. This checks only mistakes that
    -- would leave a job stuck forever, because PostgreSQL parses and prepares a CHECK again for each statement: this
    -- one costs a single insert 15 µs of the server's 280, a longer one took 45. On SQLite checks are free, so it has
    -- more.
    CONSTRAINT jobs_live_row CHECK (
        num_nulls(lease_token, locked_by, locked_at, lease_expires_at)
            = CASE WHEN state <> 'running' THEN 4 WHEN ready THEN -1 ELSE 0 END
        AND abs(priority) <= 100)
) WITH (
    fillfactor = 70,                                        -- room for heartbeats on the page (HOT)
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_limit = 2000
);

-- Claims read one range for each queue and task. Only jobs that can be claimed now have an entry. Jobs with a source
-- have their own index, so that a million jobs of one source don't hide those of other sources, or plain jobs.
CREATE INDEX jobs_live_claim ON rowlock.jobs_live (queue, task, priority, id) WHERE ready AND source IS NULL;
CREATE INDEX jobs_live_turns ON rowlock.jobs_live (queue, task, priority, source, id) WHERE ready AND source IS NOT NULL;
-- For the limits of sources: running jobs by class and source.
CREATE INDEX jobs_live_slots ON rowlock.jobs_live (split_part(source, ':', 1), source)
    WHERE state = 'running' AND source IS NOT NULL;
-- Sweeps look for delayed jobs, jobs past their `expires_at`, and expired leases. Running rows are few, so the end of a
-- lease doesn't need an index; with one, heartbeats would not be HOT.
CREATE INDEX jobs_live_due ON rowlock.jobs_live (run_after) WHERE NOT ready AND state <> 'running';
CREATE INDEX jobs_live_expiry ON rowlock.jobs_live (expires_at) WHERE expires_at IS NOT NULL AND state <> 'running';
CREATE INDEX jobs_live_running ON rowlock.jobs_live (id) WHERE state = 'running';
-- For lists, and for schedules with overlap = 'skip'. A job has no entry for a column that is NULL.
CREATE INDEX jobs_live_owner ON rowlock.jobs_live (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX jobs_live_parent ON rowlock.jobs_live (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX jobs_live_batch ON rowlock.jobs_live (batch_id, id) WHERE batch_id IS NOT NULL;
CREATE INDEX jobs_live_schedule ON rowlock.jobs_live (schedule_id) WHERE schedule_id IS NOT NULL;

-- Refuse rows that no worker could read. No WHEN for inserts: the function is compiled once for each connection and
-- costs a single insert 1 µs, while a WHEN is parsed and prepared again for each statement and costs 9. Updates do have
-- a WHEN, because claims and settles update many rows at once.
CREATE TRIGGER jobs_live_readable BEFORE INSERT ON rowlock.jobs_live
    FOR EACH ROW EXECUTE FUNCTION rowlock.refuse_unreadable();
CREATE TRIGGER jobs_live_state BEFORE UPDATE OF state ON rowlock.jobs_live
    FOR EACH ROW WHEN (NEW.state NOT IN ('queued', 'running', 'retryable'))
    EXECUTE FUNCTION rowlock.refuse_unreadable();
CREATE TRIGGER jobs_live_stays_readable BEFORE UPDATE OF run_after, expires_at, args ON rowlock.jobs_live
    FOR EACH ROW WHEN (
        least(NEW.run_after, NEW.expires_at) < '1970-01-01Z'
        OR greatest(NEW.run_after, NEW.expires_at) >= '2200-01-01Z'
        OR pg_column_size(NEW.args) > 4300)
    EXECUTE FUNCTION rowlock.refuse_unreadable();
-- Write an event for clients that watch. Triggers for events are never on a column that a claim sets.
CREATE TRIGGER jobs_live_progress AFTER UPDATE OF progress, phase, message ON rowlock.jobs_live
    FOR EACH ROW WHEN (
        NEW.owner IS NOT NULL AND NEW.state = 'running'
        AND (NEW.progress, NEW.phase, NEW.message) IS DISTINCT FROM (OLD.progress, OLD.phase, OLD.message))
    EXECUTE FUNCTION rowlock.tell_progress();

-- A finished job, in the partition of the day on which it may be dropped, so that retention is a DROP TABLE. Rows whose
-- day has no partition (the role may not create one, or the retention is unusual) go to the default partition.
CREATE TABLE rowlock.jobs_finished (
    id                  uuid        NOT NULL,
    task                text        NOT NULL,
    queue               text        NOT NULL,
    state               text        NOT NULL,
    priority            smallint    NOT NULL,
    args                json        NOT NULL,
    owner               text,
    tags                json,
    parent_id           uuid,
    traceparent         text,

    source              text,
    batch_id            uuid,
    unique_key          text,
    unique_mode         text,
    schedule_id         text,
    tick                timestamptz,

    run_after           timestamptz NOT NULL,
    expires_at          timestamptz,
    timeout_seconds     double precision,
    backoff             json,
    on_success          json,
    on_dead             json,
    on_lost             text,
    keep_seconds        double precision,

    attempt             integer     NOT NULL,
    max_attempts        integer     NOT NULL,
    releases            integer     NOT NULL,
    losses              integer     NOT NULL,
    convictions         integer     NOT NULL,

    last_worker         text,
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

-- Nearly all jobs are successes, which are listed by id alone. The few that people look for have their own index.
CREATE INDEX jobs_finished_trouble ON rowlock.jobs_finished (state, id) WHERE state <> 'succeeded';
CREATE INDEX jobs_finished_owner ON rowlock.jobs_finished (owner, id) WHERE owner IS NOT NULL;
-- For an owner's list by state. The two indexes above take 200 ms to find no dead job among 30,000 of other owners.
CREATE INDEX jobs_finished_owner_trouble ON rowlock.jobs_finished (owner, state, id)
    WHERE owner IS NOT NULL AND state <> 'succeeded';
CREATE INDEX jobs_finished_parent ON rowlock.jobs_finished (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX jobs_finished_batch ON rowlock.jobs_finished (batch_id, id) WHERE batch_id IS NOT NULL;
CREATE INDEX jobs_finished_schedule ON rowlock.jobs_finished (schedule_id, id) WHERE schedule_id IS NOT NULL;

-- However a job ends, in Python or SQL, these count it, write its event and enqueue the delivery of its webhook.
CREATE TRIGGER jobs_finished_tallies AFTER INSERT ON rowlock.jobs_finished
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION rowlock.tell_tallies();
CREATE TRIGGER jobs_finished_end AFTER INSERT ON rowlock.jobs_finished
    FOR EACH ROW WHEN (NEW.owner IS NOT NULL) EXECUTE FUNCTION rowlock.tell_end();
CREATE TRIGGER jobs_finished_webhook AFTER INSERT ON rowlock.jobs_finished
    FOR EACH ROW WHEN (NEW.owner IS NOT NULL) EXECUTE FUNCTION rowlock.tell_webhook();

-- An attempt that did not succeed. A job that succeeds at once writes nothing here.
CREATE TABLE rowlock.attempts (
    job_id        uuid        NOT NULL,
    attempt       integer     NOT NULL,
    outcome       text        NOT NULL CHECK (outcome IN ('failed', 'timed_out', 'lost', 'cancelled', 'released')),
    task          text,                       -- this and the next two are copied from the job, for grouping failures
    queue         text,
    source        text,
    worker        text,
    started_at    timestamptz,
    finished_at   timestamptz NOT NULL,
    error_code    text,
    error_message text,
    traceback     text,
    PRIMARY KEY (job_id, attempt)
);
CREATE INDEX attempts_age ON rowlock.attempts (finished_at);
CREATE TRIGGER attempts_task BEFORE INSERT ON rowlock.attempts
    FOR EACH ROW EXECUTE FUNCTION rowlock.tell_attempt_task();
CREATE TRIGGER attempts_tallies AFTER INSERT ON rowlock.attempts
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION rowlock.tell_attempts();

-- A key or a client-chosen id that a job holds. Not a column of the job, because it may have to outlive the job's row.
CREATE TABLE rowlock.job_keys (
    scope      text NOT NULL,                 -- task and owner; 'id' for ids
    key        text NOT NULL,
    job_id     uuid NOT NULL,
    mode       text NOT NULL,                 -- as jobs_live.unique_mode; 'id' for ids
    expires_at timestamptz,                   -- the end of a window
    PRIMARY KEY (scope, key)
);
CREATE INDEX job_keys_expiry ON rowlock.job_keys (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX job_keys_job ON rowlock.job_keys (job_id);

-- A job or batch for which an operation fails, and would fail again and again for all rows that are processed together
-- with it. The bad row itself stays as it is.
CREATE TABLE rowlock.set_aside (
    id       uuid        PRIMARY KEY,         -- of the job or batch
    doing    text        NOT NULL,            -- claim, promote, reclaim, expire, settle, prune; end (of a batch)
    error    text        NOT NULL,
    times    integer     NOT NULL DEFAULT 1,  -- how often it was tried and failed
    since    timestamptz NOT NULL,
    again_at timestamptz                      -- when to try it again; NULL: after this row is deleted
);

-- A log line of a job whose task keeps log lines. Only the newest lines of each job are kept.
CREATE TABLE rowlock.job_logs (
    job_id  uuid        NOT NULL,
    seq     bigint      NOT NULL,             -- grows with each line of a job
    attempt integer     NOT NULL,
    at      timestamptz NOT NULL,
    level   text        NOT NULL,
    message text        NOT NULL,
    PRIMARY KEY (job_id, seq)
);
CREATE INDEX job_logs_age ON rowlock.job_logs (at);

-- --- Queues, tasks, workers

-- A queue that is, or was, paused. Other queues need no row.
CREATE TABLE rowlock.queues (
    name      text PRIMARY KEY,
    paused_at timestamptz
);

-- A task as its worker registered it, so that programs without its code can enqueue it with its options.
CREATE TABLE rowlock.tasks (
    name           text        PRIMARY KEY,
    source_derived boolean     NOT NULL,      -- the task's code computes the source: it isn't in `options`
    options        json        NOT NULL,      -- those that differ from the defaults (core/options.py)
    arguments      json,                      -- their names and types
    description    text,
    updated_at     timestamptz NOT NULL
);

-- A worker process: for operators, `explain` and wake-ups. Leases never depend on this row.
CREATE TABLE rowlock.workers (
    id                text PRIMARY KEY,
    hostname          text        NOT NULL,
    pid               integer     NOT NULL,
    version           text        NOT NULL,
    queues            json        NOT NULL,
    tasks             json        NOT NULL,
    pool_size         integer     NOT NULL,
    running           integer     NOT NULL DEFAULT 0,
    memory_bytes      bigint,
    idle              boolean     NOT NULL DEFAULT false,                -- wants a wake-up when work arrives
    bell              text,                                              -- path of its socket, on engines without NOTIFY
    stop_requested    text CHECK (stop_requested IN ('drain', 'stop')),  -- by an operator; read at each heartbeat
    stop_requested_at timestamptz,
    started_at        timestamptz NOT NULL,
    seen_at           timestamptz NOT NULL,
    expires_at        timestamptz NOT NULL                               -- after this it counts as dead
);

-- --- Batches

-- Jobs that belong together.
CREATE TABLE rowlock.batches (
    id           uuid        PRIMARY KEY,
    name         text        NOT NULL,
    owner        text,
    parent_id    uuid,                                -- the job whose handler made it
    state        text        NOT NULL DEFAULT 'queued'
                             CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    on_end       json,                                -- the follow-up
    ended_once   boolean     NOT NULL DEFAULT false,  -- on_end has been enqueued
    end_job      uuid,                                -- the job that on_end made
    sealed_at    timestamptz,                         -- since then, only its own jobs may add jobs
    cancelled_at timestamptz,
    reopened_at  timestamptz,                         -- an operator has retried one of its jobs since it ended
    created_at   timestamptz NOT NULL,
    started_at   timestamptz,
    finished_at  timestamptz
);
CREATE INDEX batches_open ON rowlock.batches (id) WHERE finished_at IS NULL;
CREATE INDEX batches_done ON rowlock.batches (finished_at) WHERE finished_at IS NOT NULL;

-- One part (shard) of a batch's counters. A batch has several rows that different connections write, so that no row is
-- hot; the batch's numbers are their sums.
CREATE TABLE rowlock.batch_counts (
    batch_id      uuid     NOT NULL REFERENCES rowlock.batches (id) ON DELETE CASCADE,
    shard         smallint NOT NULL,
    total         bigint   NOT NULL DEFAULT 0,
    processed     bigint   NOT NULL DEFAULT 0,
    failed        bigint   NOT NULL DEFAULT 0,  -- dead or expired
    cancelled     bigint   NOT NULL DEFAULT 0,
    expired       bigint   NOT NULL DEFAULT 0,
    last_error    text,
    last_error_at timestamptz,
    PRIMARY KEY (batch_id, shard)
) WITH (fillfactor = 50);

-- --- Sources

-- An outside service (api:ebay), or a class of services (api), whose settings are the defaults of its sources. A source
-- that is named like its class shares the class's row: the columns class_… are an operator's decisions for all sources
-- of the class, the other columns are about the source.
CREATE TABLE rowlock.sources (
    name                  text             PRIMARY KEY,
    concurrency           integer          CHECK (concurrency >= 0),        -- running jobs at a time; NULL: the class's
    total                 integer          CHECK (total >= 0),              -- running jobs of all sources of this class
    rate_limit_per_minute double precision CHECK (rate_limit_per_minute > 0),
    burst                 integer          CHECK (burst >= 1),
    failure_threshold     integer          CHECK (failure_threshold >= 1),  -- failures in a row that open the breaker
    cooldown_seconds      double precision CHECK (cooldown_seconds > 0),
    cooldown_factor       double precision CHECK (cooldown_factor >= 1),    -- for each further opening
    block_after           integer          CHECK (block_after >= 1),        -- refusals in a row that disable it
    set_by                text,                                             -- config or operator

    enabled               boolean          NOT NULL DEFAULT true,
    paused_until          timestamptz,        -- by the breaker, Retry-After or an operator
    paused_at             timestamptz,        -- when paused_until was written
    class_enabled         boolean          NOT NULL DEFAULT true,
    class_paused_until    timestamptz,
    class_paused_at       timestamptz,

    failure_streak        integer          NOT NULL DEFAULT 0,
    opened_at             timestamptz,                          -- set while the breaker is open or half open
    opens                 integer          NOT NULL DEFAULT 0,  -- how often it opened in a row
    epoch                 integer          NOT NULL DEFAULT 0,  -- grows when it opens or closes
    probe_job             uuid,                                 -- the one job that a half-open breaker admits
    probe_token           uuid,
    refusals              integer          NOT NULL DEFAULT 0,  -- in a row: 403, robots.txt, captcha
    refused_at            timestamptz,
    refusal_code          text,

    tokens                double precision,   -- in the token bucket at the time tokens_at
    tokens_at             timestamptz,
    last_success_at       timestamptz,
    last_failure_at       timestamptz,
    last_error            text,
    created_at            timestamptz      NOT NULL DEFAULT now()
) WITH (fillfactor = 50);                                                       -- updates stay on the page
CREATE INDEX sources_refused ON rowlock.sources (name) WHERE refusals > 0;
-- For finding problems: the few sources that may be closed.
CREATE INDEX sources_closed ON rowlock.sources (name) WHERE opened_at IS NOT NULL OR NOT enabled OR paused_until IS NOT NULL;

-- The two classes that everybody needs. Two requests at a time are polite to a website; an API has its own contract.
INSERT INTO rowlock.sources (name, concurrency) VALUES ('domain', 2), ('api', NULL);

-- --- Schedules

-- A rule, and the job to enqueue at each of its ticks. `next_tick` is the first tick that hasn't been handled yet.
CREATE TABLE rowlock.schedules (
    id                text             PRIMARY KEY,
    task              text             NOT NULL,
    args              json             NOT NULL,
    rule              text             NOT NULL,
    zone              text             NOT NULL,
    missed            text             NOT NULL DEFAULT 'latest' CHECK (missed IN ('latest', 'skip', 'all')),
    missed_most       integer          NOT NULL DEFAULT 100 CHECK (missed_most >= 1),  -- of `all`
    missed_seconds    double precision NOT NULL DEFAULT 3600 CHECK (missed_seconds >= 0),
    overlap           text             NOT NULL DEFAULT 'allow' CHECK (overlap IN ('allow', 'skip')),
    jitter_seconds    double precision NOT NULL DEFAULT 0 CHECK (jitter_seconds >= 0),
    starts_at         timestamptz,
    ends_at           timestamptz,

    queue             text             NOT NULL,  -- this and the columns to keep_seconds: options of its jobs
    priority          smallint         NOT NULL DEFAULT 0,
    owner             text,
    source            text,
    max_attempts      integer          NOT NULL,
    backoff           json,
    timeout_seconds   double precision,
    on_success        json,
    on_dead           json,
    on_lost           text,
    keep_seconds      double precision,

    origin            text             NOT NULL CHECK (origin IN ('code', 'config', 'runtime')),
    writer_started_at timestamptz      NOT NULL,  -- when the process that wrote this definition started
    declared_at       timestamptz      NOT NULL,  -- when a process last declared it in its code or config
    paused_at         timestamptz,
    retired_at        timestamptz,                -- set when no live process declares it any more
    last_tick         timestamptz,
    last_job          uuid,
    next_tick         timestamptz,                -- NULL: no more ticks
    problem           text,                       -- why it can't be fired
    created_at        timestamptz      NOT NULL,
    updated_at        timestamptz      NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX schedules_due ON rowlock.schedules (next_tick)
    WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL;
CREATE INDEX schedules_problem ON rowlock.schedules (id) WHERE problem IS NOT NULL AND retired_at IS NULL;

-- A tick that was fired, or skipped because the previous tick's job was unfinished. Not a part of the jobs, so that
-- deleting a job doesn't bring its tick back.
CREATE TABLE rowlock.ticks (
    schedule_id text        NOT NULL,
    tick        timestamptz NOT NULL,
    job_id      uuid,                         -- NULL: skipped
    fired_at    timestamptz NOT NULL,
    PRIMARY KEY (schedule_id, tick)
);
CREATE INDEX ticks_age ON rowlock.ticks (fired_at);

-- A process that fires ticks, with the schedules that its code and config declare.
CREATE TABLE rowlock.dispatchers (
    id         text        PRIMARY KEY,
    declares   json        NOT NULL,
    bell       text,                          -- path of its socket, on engines without NOTIFY
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);

-- --- Events

-- Something that happened to a job with an owner, for clients that watch. Triggers write it in the transaction of the
-- change, whether that's a worker of any version, an operator, or somebody's SQL. Jobs without an owner have no events.
CREATE TABLE rowlock.events (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id          uuid        NOT NULL,
    owner           text        NOT NULL,
    type            text        NOT NULL,     -- job.progress, job.completed, job.failed, job.cancelled
    task            text        NOT NULL,
    state           text        NOT NULL,
    attempt         integer     NOT NULL,
    progress        smallint,
    phase           text,
    message         text,
    result_uri      text,
    result_checksum text,
    error_code      text,
    error_message   text,
    at              timestamptz NOT NULL
);
CREATE INDEX events_owner ON rowlock.events (owner, id);
CREATE TRIGGER events_deleted AFTER DELETE ON rowlock.events
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION rowlock.tell_deleted_events();

-- The largest id of a deleted event, in one row: a client that has not read that far must reload its jobs. The
-- remaining ids don't show it, because a transaction that rolls back leaves a gap as well.
CREATE TABLE rowlock.deleted_events (
    one     boolean PRIMARY KEY DEFAULT TRUE CHECK (one),
    last_id bigint  NOT NULL
);

-- A server that wants wake-ups for new events. NOTIFY takes a database-wide lock at commit, so it is sent only while
-- there is such a server.
CREATE TABLE rowlock.event_listeners (
    id         text        PRIMARY KEY,
    expires_at timestamptz NOT NULL
);

-- --- Numbers, for dashboards and metrics that must not count rows
--
-- `what` is the state in which a job ended (succeeded, dead, cancelled), or `attempt.` and the outcome of an attempt
-- that did not succeed. Bucket n of seconds goes from the (n-1)th to the nth bound of store/read/counters.py; -1 is
-- unknown.

-- The jobs and attempts that one statement has ended, written in its transaction: the numbers are right after any
-- crash, and writers never wait for each other. Every few seconds workers move these rows to `rollups` and `counters`.
CREATE TABLE rowlock.tallies (
    at           timestamptz      NOT NULL,   -- the minute
    queue        text             NOT NULL,
    task         text             NOT NULL,
    what         text             NOT NULL,
    run_bucket   smallint         NOT NULL,
    wait_bucket  smallint         NOT NULL,
    number       bigint           NOT NULL,
    run_seconds  double precision NOT NULL,
    wait_seconds double precision NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    vacuum_truncate = off                        -- it fills up again at once
);

-- The sums of a minute or an hour.
CREATE TABLE rowlock.rollups (
    seconds      integer          NOT NULL,   -- 60 or 3600
    at           timestamptz      NOT NULL,   -- when this minute or hour began
    queue        text             NOT NULL,
    task         text             NOT NULL,
    what         text             NOT NULL,
    run_bucket   smallint         NOT NULL,
    wait_bucket  smallint         NOT NULL,
    number       bigint           NOT NULL,
    run_seconds  double precision NOT NULL,
    wait_seconds double precision NOT NULL,
    PRIMARY KEY (seconds, at, queue, task, what, run_bucket, wait_bucket)
);

-- The sums since the database was made.
CREATE TABLE rowlock.counters (
    queue        text             NOT NULL,
    task         text             NOT NULL,
    what         text             NOT NULL,
    run_bucket   smallint         NOT NULL,
    wait_bucket  smallint         NOT NULL,
    number       bigint           NOT NULL,
    run_seconds  double precision NOT NULL,
    wait_seconds double precision NOT NULL,
    PRIMARY KEY (queue, task, what, run_bucket, wait_bucket)
);

-- The length of a queue in one minute.
CREATE TABLE rowlock.queue_samples (
    at             timestamptz NOT NULL,      -- the minute
    queue          text        NOT NULL,      -- '' marks the minute as sampled by some process
    ready          integer     NOT NULL,
    waiting        integer     NOT NULL,
    running        integer     NOT NULL,
    oldest_seconds double precision,          -- age of the oldest ready job
    PRIMARY KEY (at, queue)
);

-- --- The API: who may use it

-- Every credential that authenticates a request: a `token`, which `rowlock tokens create` showed once; the `session` of
-- a browser; and two that work only once, the `link` that opens a session and the `ticket` that a browser puts into the
-- address of a WebSocket. Only the SHA-256 of each is stored, which is useless to readers of this table. Each kind is
-- accepted only where it belongs: a session only in a cookie, a token never in one.
CREATE TABLE rowlock.tokens (
    id         uuid        PRIMARY KEY,
    hash       text        NOT NULL UNIQUE,
    hint       text        NOT NULL,          -- the first characters, to recognise a token in a list
    kind       text        NOT NULL DEFAULT 'token',
    uses       integer,                       -- remaining uses; NULL: unlimited
    owner      text,                          -- whose jobs it gives access to; NULL: an operator's, for all jobs
    scope      text        NOT NULL,
    job_id     uuid,                          -- if set, it gives access only to this job, and only for reading
    made_from  uuid,                          -- the token that requested it; revoking that token revokes this
    good_until double precision,              -- of a ticket: when the JSON Web Token that requested it expires (epoch)
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT tokens_scope CHECK (scope IN ('jobs', 'operator', 'operator:read')),
    CONSTRAINT tokens_owner CHECK ((owner IS NULL) = (scope <> 'jobs')),
    CONSTRAINT tokens_kind CHECK (
        (kind = 'token' AND uses IS NULL)
        OR (kind = 'session' AND uses IS NULL AND job_id IS NULL AND expires_at IS NOT NULL)
        OR (kind IN ('link', 'ticket') AND uses >= 0 AND uses IS NOT NULL AND expires_at IS NOT NULL))
);

-- A request that created a job under an Idempotency-Key: repeating the request returns that job. The row is written
-- before the job, so that all servers see that the request is in progress.
CREATE TABLE rowlock.requests (
    owner         text        NOT NULL,       -- empty: an operator
    key           text        NOT NULL,
    body_hash     text        NOT NULL,
    job_id        uuid,
    claim         uuid,                       -- of the one request that may create the job
    claimed_until timestamptz,                -- if there is no job by then, another request may take over
    expires_at    timestamptz NOT NULL,
    PRIMARY KEY (owner, key)
);

-- --- Webhooks

-- A secret of an owner. It is stored in clear text, because signing needs it. The newest one signs, and until
-- `expires_at` the previous one as well, so that a receiver has time to switch.
CREATE TABLE rowlock.webhook_secrets (
    id         uuid        PRIMARY KEY,
    owner      text        NOT NULL,
    secret     text        NOT NULL,
    hint       text        NOT NULL,          -- the first characters, to recognise a secret in a list
    created_at timestamptz NOT NULL,
    expires_at timestamptz                    -- NULL: the owner's newest
);
CREATE INDEX webhook_secrets_owner ON rowlock.webhook_secrets (owner, created_at);

-- The webhook of a job, with everything that its delivery needs, because the process that ends the job may know neither
-- the address nor the settings of the server that took the request.
CREATE TABLE rowlock.webhooks (
    job_id          uuid             PRIMARY KEY,
    owner           text             NOT NULL,
    url             text             NOT NULL,
    source          text             NOT NULL,
    queue           text             NOT NULL,
    max_attempts    integer          NOT NULL,
    backoff         json             NOT NULL,
    timeout_seconds double precision NOT NULL,
    drop_on         date                      -- when the finished job may be dropped; NULL: it has never ended
);
CREATE INDEX webhooks_drop ON rowlock.webhooks (drop_on) WHERE drop_on IS NOT NULL;

-- A job that delivers the webhook of another job, one for each time that the other job has ended.
CREATE TABLE rowlock.webhook_deliveries (
    job_id      uuid NOT NULL REFERENCES rowlock.webhooks (job_id) ON DELETE CASCADE,
    delivery_id uuid NOT NULL,
    PRIMARY KEY (job_id, delivery_id)
);

-- --- Alerts

-- The process that evaluates the alert rules: at most one row. Its token fences everything that this process writes.
CREATE TABLE rowlock.alert_lease (
    one        integer     PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    holder     text        NOT NULL,
    token      uuid        NOT NULL,
    expires_at timestamptz NOT NULL
);

-- The state of a rule for one subject (a queue, a task, a source, a schedule; empty for the whole system). The row
-- exists while the condition is true or the alert isn't resolved yet.
CREATE TABLE rowlock.alerts (
    rule        text             NOT NULL,
    subject     text             NOT NULL,
    value       double precision NOT NULL,
    text        text             NOT NULL,
    true_since  timestamptz      NOT NULL,
    false_since timestamptz,                  -- since when the condition has not been true; not resolved yet
    fired_at    timestamptz,                  -- NULL: still pending
    told_at     timestamptz,                  -- when the last message was written
    repeats     integer          NOT NULL DEFAULT 0,
    PRIMARY KEY (rule, subject)
);

-- A message to be sent. It is written together with the change that it reports, and deleted once it has arrived. If a
-- process dies in between, no message is lost, but one may be sent twice (with the same id).
CREATE TABLE rowlock.alert_messages (
    id         uuid        PRIMARY KEY,
    type       text        NOT NULL,
    body       json        NOT NULL,
    created_at timestamptz NOT NULL,
    attempts   integer     NOT NULL DEFAULT 0,
    send_after timestamptz NOT NULL,
    last_error text
);

-- --- Operators

-- The audit: something that a person did, on the command line or through the API.
CREATE TABLE rowlock.audit (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL,
    who     text        NOT NULL,
    via     text        NOT NULL,             -- api, cli
    address text,                             -- where the request came from
    action  text        NOT NULL,             -- jobs.retry, queues.pause, …
    target  text,                             -- a job's id, a name, or the filter as JSON
    number  bigint      NOT NULL,             -- how many jobs or things were changed
    details json
);

-- A bulk change that somebody has previewed and may confirm. Jobs that have changed since then are left alone.
CREATE TABLE rowlock.previews (
    token_hash text        PRIMARY KEY,
    action     text        NOT NULL,
    filter     json        NOT NULL,
    ids        json,                          -- a selection; NULL: everything that matches
    made_at    timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    who        text        NOT NULL,
    next_id    uuid,                          -- continue before this one
    looked     bigint      NOT NULL DEFAULT 0,
    changed    bigint      NOT NULL DEFAULT 0,
    audit_id   bigint
);
CREATE INDEX previews_expiry ON rowlock.previews (expires_at);

-- --- Redis

-- An entry that a bridge has to append to a Redis stream. It is written in the transaction that it announces, and
-- deleted once it is known to have arrived. A bridge that dies in between loses nothing, but may send entries twice.
CREATE TABLE rowlock.outbox (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind    text        NOT NULL,
    job_id  uuid        NOT NULL,
    token   uuid,                             -- of a request: the lease under which it was published
    take_at timestamptz NOT NULL,             -- from then on, any bridge may send it
    sent_at timestamptz,
    entry   text,                             -- of a request: its id in the stream
    CONSTRAINT outbox_kind CHECK (kind IN ('request', 'cancel')),
    CONSTRAINT outbox_token CHECK ((token IS NOT NULL) = (kind = 'request'))
);
CREATE INDEX outbox_unsent ON rowlock.outbox (take_at) WHERE sent_at IS NULL;
CREATE INDEX outbox_job ON rowlock.outbox (job_id);

-- --- Migrations
--
-- `rowlock.migrations` and `rowlock.schema_files` record which files of this folder were applied. They are created
-- before everything else (store/engine/dialects.py).

-- An applied migration of an app's own tables (store/engine/app_schema.py).
CREATE TABLE rowlock.app_migrations (
    app        text        NOT NULL,
    number     integer     NOT NULL,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL,
    PRIMARY KEY (app, number)
);

-- --- Types that the functions pass to each other

-- A job to insert.
CREATE TYPE rowlock._new_row AS (id uuid, args json, key text, source text);

-- A position where a source has ready jobs. `last`: its queue and task may have more sources after this one.
CREATE TYPE rowlock._head AS (queue text, task text, priority integer, source text, last boolean);

-- How many jobs a source admits, and its place in this claim. core/sources/admission.py: Admission.
CREATE TYPE rowlock._admission AS (
    source text, room integer, class_room integer, epoch integer, level double precision, probe boolean,
    turn double precision);

-- A success, as a worker reports it.
CREATE TYPE rowlock._success AS (
    nth integer, job_id uuid, token uuid, result json, result_uri text, result_checksum text);

-- The end of an attempt that did not succeed, as a worker or the sweep reports it. core/outcome.py.
CREATE TYPE rowlock._ending AS (
    nth             integer,                  -- if one lease has two endings, the first counts
    job_id          uuid,
    token           uuid,
    outcome         text,
    error_code      text,
    error_message   text,
    after           double precision,         -- seconds until the next attempt; NULL: by the backoff
    permanent       boolean,
    backoff         jsonb,
    fault           text,
    retry_after     double precision
);

-- The resulting change, with the data that its source, batch and keys need. core/policy.py: Transition.
CREATE TYPE rowlock._step AS (
    id              uuid,
    token           uuid,
    state           text,
    outcome         text,
    delay           double precision,
    error_code      text,
    error_message   text,
    released        integer,
    lost            integer,
    convicted       integer,
    fault           text,
    retry_after     double precision,
    attempt         integer,
    worker          text,
    locked_at       timestamptz,
    source          text,
    source_epoch    integer,
    batch_id        uuid,
    unique_mode     text,
    follow_up       json
);
