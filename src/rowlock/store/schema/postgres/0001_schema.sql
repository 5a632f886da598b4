-- Rowlock keeps jobs, and everything that happens to them, in the tables of this file.
--
-- A job is one row, and it travels. rowlock.enqueue (or Python) inserts it into `jobs_live` with the task to call and
-- its arguments. If it may start now it's `ready`; if it has to wait for its time, a sweep makes it ready later. A
-- worker claims it: the row becomes `running` and gets a lease, which is a random token, the worker's name and a time
-- at which the lease ends. While the worker runs the job, its heartbeats move that time. At the end the worker settles
-- the job under the token it was given, and under no other: whoever lost the lease can change nothing any more. That's
-- the fence, and it's why a slow worker and its successor can't both decide how a job ended.
--
-- A job that succeeded, died or was cancelled moves to `jobs_finished` in the transaction that writes its final state.
-- So `jobs_live` has only jobs to which something can still happen: it stays small, and its indexes serve claims and
-- sweeps alone. People list and search jobs in `jobs_finished`, whose partitions are dropped when their day has come. A
-- job that failed and has tries left stays where it is, as `retryable`, until its backoff is over. An attempt that did
-- not succeed leaves a row in `attempts`. If a worker dies, its lease runs out, and any sweep gives the job back.
--
-- Around the jobs:
--
--   job_keys      A key stands for "only one such job". It isn't a column of the job, because it may have to outlive it.
--   batches       Jobs that end together. `batch_counts` counts them in several rows, so that no row is hot.
--   sources       Outside services, such as api:ebay: how many jobs may use one at a time and how often, and whether it
--                 works at the moment. A claim reads and locks them; a settle reports to them.
--   schedules     Rules such as "every Monday at nine". A dispatcher turns each tick into a job, once: `ticks`.
--   events        What happened to the jobs of an owner, for clients that watch. Triggers write it.
--   tallies       How many jobs ended, and how fast. Triggers count; workers sum up into `rollups` and `counters`.
--   outbox        What a bridge has to publish to Redis.
--
-- Users and programs read the views of views.sql, whose columns are part of the contract. The rules of the functions in
-- functions/*.sql are those of the Python store. `rowlock migrate` applies this file once, as number 1; views.sql and
-- functions/*.sql again whenever their text has changed.

-- A trigger needs its function to exist. These are declared here with an empty body, and functions/*.sql, which is
-- applied in the same transaction, has what they do.
CREATE FUNCTION rowlock.refuse_unreadable()   RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_progress()       RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_end()            RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_webhook()        RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_tallies()        RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_attempt_task()   RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_attempts()       RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION rowlock.tell_deleted_events() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';

-- --- Jobs

-- A job that is not final: waiting, ready or running. The lease is part of the job's own row: a worker's row may
-- vanish, its jobs must not.
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
    parent_id           uuid,                            -- the job that made it, in its handler or by its end
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
    keep_seconds        double precision,     -- how long it is kept when it has finished

    -- Tries are attempts without releases and losses. The counts `…_in_row` and the probation start again when an attempt
    -- comes back (core/policy.py: Streaks): in time, a job that often comes back would reach any limit on a sum.
    attempt             integer     NOT NULL DEFAULT 0,
    max_attempts        integer     NOT NULL,
    releases            integer     NOT NULL DEFAULT 0,
    losses              integer     NOT NULL DEFAULT 0,  -- attempts whose worker died
    convictions         integer     NOT NULL DEFAULT 0,  -- attempts whose own child process died
    losses_in_row       integer     NOT NULL DEFAULT 0,  -- above 0 the job is a suspect
    probation           integer     NOT NULL DEFAULT 0,  -- attempts until a loss counts as the first again
    sigterms_in_row     integer     NOT NULL DEFAULT 0,  -- releases by a SIGTERM from outside
    disconnects_in_row  integer     NOT NULL DEFAULT 0,  -- releases by a rolled-back transaction

    lease_token         uuid,
    locked_by           text,
    locked_at           timestamptz,
    heartbeat_at        timestamptz,
    lease_expires_at    timestamptz,
    published           text,                 -- by a bridge: 'unread' while its request waits in Redis, then 'read'
    source_epoch        integer,              -- the breaker's epoch under which this attempt was claimed
    settled_token       uuid,                 -- the token of the last settle: a repeat is a duplicate
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

    -- A running row has a whole lease and is not ready; any other row has none of a lease. This is only what would leave
    -- a job stuck for ever: PostgreSQL reads and prepares the text of a CHECK again for each statement, and this one costs
    -- a single insert 15 µs of the server's 280. A longer one cost 45. SQLite, where it costs nothing, checks more.
    CONSTRAINT jobs_live_row CHECK (
        num_nulls(lease_token, locked_by, locked_at, lease_expires_at)
            = CASE WHEN state <> 'running' THEN 4 WHEN ready THEN -1 ELSE 0 END
        AND abs(priority) <= 100)
) WITH (
    fillfactor = 70,                                        -- heartbeats stay on the page (HOT)
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_limit = 2000
);

-- Claims: one range for each queue and task. Only what can be claimed now has an entry. Jobs with a source have their
-- own index: a million jobs of one source must not stand before those of the others, or before the jobs without one.
CREATE INDEX jobs_live_claim ON rowlock.jobs_live (queue, task, priority, id) WHERE ready AND source IS NULL;
CREATE INDEX jobs_live_turns ON rowlock.jobs_live (queue, task, priority, source, id) WHERE ready AND source IS NOT NULL;
-- The limits of sources: running jobs by class and source.
CREATE INDEX jobs_live_slots ON rowlock.jobs_live (split_part(source, ':', 1), source)
    WHERE state = 'running' AND source IS NOT NULL;
-- Sweeps: jobs that wait for their time, jobs that start too late, leases that run out. Running rows are few, so the
-- end of the lease itself needs no index; with one, heartbeats would not be HOT.
CREATE INDEX jobs_live_due ON rowlock.jobs_live (run_after) WHERE NOT ready AND state <> 'running';
CREATE INDEX jobs_live_expiry ON rowlock.jobs_live (expires_at) WHERE expires_at IS NOT NULL AND state <> 'running';
CREATE INDEX jobs_live_running ON rowlock.jobs_live (id) WHERE state = 'running';
-- Lists, and schedules with overlap = 'skip'. A job adds no entry for what it doesn't have.
CREATE INDEX jobs_live_owner ON rowlock.jobs_live (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX jobs_live_parent ON rowlock.jobs_live (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX jobs_live_batch ON rowlock.jobs_live (batch_id, id) WHERE batch_id IS NOT NULL;
CREATE INDEX jobs_live_schedule ON rowlock.jobs_live (schedule_id) WHERE schedule_id IS NOT NULL;

-- What no worker could read is refused. On insert without a WHEN: the function is compiled once for each connection and
-- takes 1 µs of a single insert; a WHEN is read and prepared again for each statement and takes 9. On update with one,
-- because claims and settles update many rows at once.
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
-- An event for clients that watch. No trigger for events is on a column that a claim sets.
CREATE TRIGGER jobs_live_progress AFTER UPDATE OF progress, phase, message ON rowlock.jobs_live
    FOR EACH ROW WHEN (
        NEW.owner IS NOT NULL AND NEW.state = 'running'
        AND (NEW.progress, NEW.phase, NEW.message) IS DISTINCT FROM (OLD.progress, OLD.phase, OLD.message))
    EXECUTE FUNCTION rowlock.tell_progress();

-- A job that is final, in the partition of the day on which it may be dropped: retention is a DROP TABLE. Rows whose
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

-- Nearly all jobs are successes, which are listed by id alone; what people look for has its own index.
CREATE INDEX jobs_finished_trouble ON rowlock.jobs_finished (state, id) WHERE state <> 'succeeded';
CREATE INDEX jobs_finished_owner ON rowlock.jobs_finished (owner, id) WHERE owner IS NOT NULL;
-- An owner's list by status. By the two indexes above it took 200 ms to find no dead job beside 30,000 of other owners.
CREATE INDEX jobs_finished_owner_trouble ON rowlock.jobs_finished (owner, state, id)
    WHERE owner IS NOT NULL AND state <> 'succeeded';
CREATE INDEX jobs_finished_parent ON rowlock.jobs_finished (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX jobs_finished_batch ON rowlock.jobs_finished (batch_id, id) WHERE batch_id IS NOT NULL;
CREATE INDEX jobs_finished_schedule ON rowlock.jobs_finished (schedule_id, id) WHERE schedule_id IS NOT NULL;

-- Whoever ends a job, in Python or SQL, these count it, write its event and enqueue the delivery of its webhook.
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
    task          text,                       -- these three are copied from the job, for readers that group failures
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

-- A key or a client-chosen id that a job holds. Apart from the jobs, because it may have to outlive the job's row.
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

-- A job or batch for which an operation fails, and would fail again and again for the whole batch of rows that it is
-- in. Its own row stays as it is.
CREATE TABLE rowlock.set_aside (
    id       uuid        PRIMARY KEY,         -- of the job or batch
    doing    text        NOT NULL,            -- claim, promote, reclaim, expire, settle, prune; end (of a batch)
    error    text        NOT NULL,
    times    integer     NOT NULL DEFAULT 1,  -- how often it was tried and failed
    since    timestamptz NOT NULL,
    again_at timestamptz                      -- when it is tried again; NULL: when this row is deleted
);

-- A log line of a job whose task keeps them. Only the newest lines of each job stay.
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

-- A task as its worker registered it, so that it can be enqueued with its options where its code isn't at hand.
CREATE TABLE rowlock.tasks (
    name           text        PRIMARY KEY,
    source_derived boolean     NOT NULL,      -- a function derives the source from the arguments: it isn't in `options`
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
    idle              boolean     NOT NULL DEFAULT false,                -- wants to be woken when work arrives
    bell              text,                                              -- where to ring, on engines without NOTIFY
    stop_requested    text CHECK (stop_requested IN ('drain', 'stop')),  -- by an operator; read with each heartbeat
    stop_requested_at timestamptz,
    started_at        timestamptz NOT NULL,
    seen_at           timestamptz NOT NULL,
    expires_at        timestamptz NOT NULL                               -- it is believed to be gone after this
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
    sealed_at    timestamptz,                         -- from then on only its own jobs may add to it
    cancelled_at timestamptz,
    reopened_at  timestamptz,                         -- an operator has retried one of its jobs since it ended
    created_at   timestamptz NOT NULL,
    started_at   timestamptz,
    finished_at  timestamptz
);
CREATE INDEX batches_open ON rowlock.batches (id) WHERE finished_at IS NULL;
CREATE INDEX batches_done ON rowlock.batches (finished_at) WHERE finished_at IS NOT NULL;

-- A part of a batch's counters. Each has several rows that different connections write, so that no row is hot; the
-- numbers of a batch are their sums.
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

-- An outside service (api:ebay), or a class of them (api), whose settings are the defaults of its sources. A source
-- whose name is just the class uses the same row: the columns class_… are what an operator decided for all sources of
-- the class, the others are about the source.
CREATE TABLE rowlock.sources (
    name                  text             PRIMARY KEY,
    concurrency           integer          CHECK (concurrency >= 0),        -- running jobs at a time; NULL: the class's
    total                 integer          CHECK (total >= 0),              -- of all sources of this class together
    rate_limit_per_minute double precision CHECK (rate_limit_per_minute > 0),
    burst                 integer          CHECK (burst >= 1),
    failure_threshold     integer          CHECK (failure_threshold >= 1),  -- failures in a row that open the breaker
    cooldown_seconds      double precision CHECK (cooldown_seconds > 0),
    cooldown_factor       double precision CHECK (cooldown_factor >= 1),    -- each time it opens again
    block_after           integer          CHECK (block_after >= 1),        -- refusals in a row that disable it
    set_by                text,                                             -- config or operator

    enabled               boolean          NOT NULL DEFAULT true,
    paused_until          timestamptz,        -- by the breaker, Retry-After or an operator
    paused_at             timestamptz,        -- when paused_until was written
    class_enabled         boolean          NOT NULL DEFAULT true,
    class_paused_until    timestamptz,
    class_paused_at       timestamptz,

    failure_streak        integer          NOT NULL DEFAULT 0,
    opened_at             timestamptz,                          -- the breaker is open or half open
    opens                 integer          NOT NULL DEFAULT 0,  -- how often in a row it opened
    epoch                 integer          NOT NULL DEFAULT 0,  -- grows when it opens or closes
    probe_job             uuid,                                 -- the one job that a half-open breaker lets in
    probe_token           uuid,
    refusals              integer          NOT NULL DEFAULT 0,  -- 403, robots.txt, captcha: in a row
    refused_at            timestamptz,
    refusal_code          text,

    tokens                double precision,   -- in the bucket of the rate, at tokens_at
    tokens_at             timestamptz,
    last_success_at       timestamptz,
    last_failure_at       timestamptz,
    last_error            text,
    created_at            timestamptz      NOT NULL DEFAULT now()
) WITH (fillfactor = 50);                                                       -- tokens and streaks stay on the page
CREATE INDEX sources_refused ON rowlock.sources (name) WHERE refusals > 0;
-- What is wrong: sources that may be closed, few of many.
CREATE INDEX sources_closed ON rowlock.sources (name) WHERE opened_at IS NOT NULL OR NOT enabled OR paused_until IS NOT NULL;

-- The two classes that everybody needs. Two at a time is polite to a website; an API has its own contract.
INSERT INTO rowlock.sources (name, concurrency) VALUES ('domain', 2), ('api', NULL);

-- --- Schedules

-- A rule, and the job to enqueue at each of its ticks. `next_tick` is the first tick that hasn't been dealt with.
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

    queue             text             NOT NULL,  -- these are options of its jobs
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
    writer_started_at timestamptz      NOT NULL,  -- when the process started that wrote this definition
    declared_at       timestamptz      NOT NULL,  -- when a process last had it in its code or config
    paused_at         timestamptz,
    retired_at        timestamptz,                -- no live process has it any more
    last_tick         timestamptz,
    last_job          uuid,
    next_tick         timestamptz,                -- NULL: there will be none
    problem           text,                       -- why this version can't understand its rule
    created_at        timestamptz      NOT NULL,
    updated_at        timestamptz      NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX schedules_due ON rowlock.schedules (next_tick)
    WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL;
CREATE INDEX schedules_problem ON rowlock.schedules (id) WHERE problem IS NOT NULL AND retired_at IS NULL;

-- A tick that was fired, or skipped because the job of the one before was still live. Apart from the jobs, so that
-- forgetting a job doesn't bring its tick back.
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
    bell       text,                          -- where to ring, on engines without NOTIFY
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);

-- --- Events

-- Something that happened to a job with an owner, for clients that watch. Triggers write it in the transaction of the
-- change, whoever makes it: a worker of any version, an operator, somebody's SQL. Jobs without an owner write nothing.
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

-- The largest id of a deleted event, in one row: a client that has read less must reload its jobs. The ids that are
-- left don't show it, because a transaction that rolls back leaves a gap as well.
CREATE TABLE rowlock.deleted_events (
    one     boolean PRIMARY KEY DEFAULT TRUE CHECK (one),
    last_id bigint  NOT NULL
);

-- A server that wants to be woken by new events. NOTIFY takes a lock of the whole database at commit, so it is sent
-- only while there is such a server.
CREATE TABLE rowlock.event_listeners (
    id         text        PRIMARY KEY,
    expires_at timestamptz NOT NULL
);

-- --- Numbers, for dashboards and metrics that must not count rows
--
-- `what` is the state in which a job ended (succeeded, dead, cancelled), or `attempt.` and the outcome of an attempt
-- that did not succeed. Bucket n of seconds goes from the (n-1)th to the nth bound of store/read/counters.py; -1 is unknown.

-- What one statement ended, in its own transaction: the numbers are right after any crash, and no two writers meet in
-- one row. Workers move these rows into `rollups` and `counters` every few seconds.
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
    vacuum_truncate = off                        -- it fills again at once
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

-- How long a queue was in one minute.
CREATE TABLE rowlock.queue_samples (
    at             timestamptz NOT NULL,      -- the minute
    queue          text        NOT NULL,      -- empty: the row of the process that took the samples of this minute
    ready          integer     NOT NULL,
    waiting        integer     NOT NULL,
    running        integer     NOT NULL,
    oldest_seconds double precision,          -- how long the oldest ready job has been claimable
    PRIMARY KEY (at, queue)
);

-- --- The API: who may use it

-- Everything that proves who asks: a `token` that `rowlock tokens create` showed once, the `session` of a browser, and
-- two that work once: the `link` that opens a session, and the `ticket` that a browser puts into the address of a
-- WebSocket. Only the SHA-256 of each is stored, which is useless to whoever reads this table. Each kind is accepted only
-- where it belongs: a session in a cookie, a token never in one.
CREATE TABLE rowlock.tokens (
    id         uuid        PRIMARY KEY,
    hash       text        NOT NULL UNIQUE,
    hint       text        NOT NULL,          -- the first characters, to recognise a token in a list
    kind       text        NOT NULL DEFAULT 'token',
    uses       integer,                       -- how often it can still be used; NULL: any number of times
    owner      text,                          -- whose jobs it opens; NULL for an operator's, which opens all
    scope      text        NOT NULL,
    job_id     uuid,                          -- the only job that it opens, and only for reading
    made_from  uuid,                          -- the token that asked for it, and with which it is revoked
    good_until double precision,              -- of a ticket: when the JSON Web Token that asked for it expires (epoch)
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

-- A request that created a job under an Idempotency-Key: the same request again gets the same job. The row is there
-- before the job is, so that all servers see that the request is being carried out.
CREATE TABLE rowlock.requests (
    owner         text        NOT NULL,       -- empty: an operator
    key           text        NOT NULL,
    body_hash     text        NOT NULL,
    job_id        uuid,
    claim         uuid,                       -- of the one request that may name the job
    claimed_until timestamptz,                -- if there is no job by then, another request may take the key
    expires_at    timestamptz NOT NULL,
    PRIMARY KEY (owner, key)
);

-- --- Webhooks

-- A secret of an owner. It is stored as it is, because a signature needs it. The newest one signs, and beside it the
-- one before until `expires_at`, so that a receiver can change over.
CREATE TABLE rowlock.webhook_secrets (
    id         uuid        PRIMARY KEY,
    owner      text        NOT NULL,
    secret     text        NOT NULL,
    hint       text        NOT NULL,          -- the first characters, to recognise a secret in a list
    created_at timestamptz NOT NULL,
    expires_at timestamptz                    -- NULL: the owner's newest
);
CREATE INDEX webhook_secrets_owner ON rowlock.webhook_secrets (owner, created_at);

-- The webhook of a job, with everything that its delivery needs: whoever ends the job may know neither the address nor
-- the settings of the server that took the request.
CREATE TABLE rowlock.webhooks (
    job_id          uuid             PRIMARY KEY,
    owner           text             NOT NULL,
    url             text             NOT NULL,
    source          text             NOT NULL,
    queue           text             NOT NULL,
    max_attempts    integer          NOT NULL,
    backoff         json             NOT NULL,
    timeout_seconds double precision NOT NULL,
    drop_on         date                      -- the day on which the finished job may go; NULL: it has never ended
);
CREATE INDEX webhooks_drop ON rowlock.webhooks (drop_on) WHERE drop_on IS NOT NULL;

-- A job that delivers the webhook of another job: one for each time that the other job ended.
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

-- What a rule has noticed about something (a queue, a task, a source, a schedule; empty for the whole system). The row
-- is there while the condition is true or not yet resolved.
CREATE TABLE rowlock.alerts (
    rule        text             NOT NULL,
    subject     text             NOT NULL,
    value       double precision NOT NULL,
    text        text             NOT NULL,
    true_since  timestamptz      NOT NULL,
    false_since timestamptz,                  -- the condition is over, but not long enough to resolve the alert
    fired_at    timestamptz,                  -- NULL: the condition has not been true for long enough
    told_at     timestamptz,                  -- when the last message was written
    repeats     integer          NOT NULL DEFAULT 0,
    PRIMARY KEY (rule, subject)
);

-- A message to be sent. It is written together with the change that it reports and deleted once it has arrived: a
-- process that dies in between loses no message, and may send one twice (with the same id).
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

-- Something that a person did, on the command line or through the API.
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

-- A change of many jobs that somebody has previewed and may confirm. It acts on what was previewed: jobs that match the
-- filter and haven't changed since.
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

-- An entry that a bridge has to append to a Redis stream. It is written in the transaction that makes it true and
-- removed once it is known to have arrived. A bridge that dies in between loses nothing, and sends some entries twice.
CREATE TABLE rowlock.outbox (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind    text        NOT NULL,
    job_id  uuid        NOT NULL,
    token   uuid,                             -- of a request: the lease under which it was published
    take_at timestamptz NOT NULL,             -- from this moment on, any bridge may send it
    sent_at timestamptz,
    entry   text,                             -- of a request: its id in the stream
    CONSTRAINT outbox_kind CHECK (kind IN ('request', 'cancel')),
    CONSTRAINT outbox_token CHECK ((token IS NOT NULL) = (kind = 'request'))
);
CREATE INDEX outbox_unsent ON rowlock.outbox (take_at) WHERE sent_at IS NULL;
CREATE INDEX outbox_job ON rowlock.outbox (job_id);

-- --- Migrations
--
-- What was applied of this folder is in `rowlock.migrations` and `rowlock.schema_files`, which are made before anything else
-- (store/engine/dialects.py).

-- A migration of an app's own tables that was applied (store/engine/app_schema.py).
CREATE TABLE rowlock.app_migrations (
    app        text        NOT NULL,
    number     integer     NOT NULL,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL,
    PRIMARY KEY (app, number)
);

-- --- What the functions pass to each other

-- A job to insert.
CREATE TYPE rowlock._new_row AS (id uuid, args json, key text, source text);

-- A place where a source has ready jobs; `last` if its queue and task may have more sources behind this one.
CREATE TYPE rowlock._head AS (queue text, task text, priority integer, source text, last boolean);

-- How many jobs a source lets in, and its place in this claim. core/sources/admission.py: Admission.
CREATE TYPE rowlock._admission AS (
    source text, room integer, class_room integer, epoch integer, level double precision, probe boolean,
    turn double precision);

-- A success, as a worker reports it.
CREATE TYPE rowlock._success AS (
    nth integer, job_id uuid, token uuid, result json, result_uri text, result_checksum text);

-- How an attempt ended that did not succeed, as a worker or the sweep reports it. core/outcome.py.
CREATE TYPE rowlock._ending AS (
    nth             integer,                  -- of two endings of one lease, the first counts
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

-- What follows from it, with what its source, batch and keys need to know. core/policy.py: Transition.
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
