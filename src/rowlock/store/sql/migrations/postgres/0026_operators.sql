-- What operators do and see: who changed what, changes of many jobs that were previewed, log lines of jobs, the shape of
-- each task's arguments, and the jobs of a batch or schedule when they have finished.

-- What people did, by the command line or through the API.
CREATE TABLE rowlock.audit (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL,
    who     text        NOT NULL,
    via     text        NOT NULL,                -- api, cli
    address text,                                -- where the request came from
    action  text        NOT NULL,                -- jobs.retry, queues.pause, …
    target  text,                                -- a job's id, a name, or the filter as JSON
    number  bigint      NOT NULL,                -- of jobs or things that were changed
    details json
);

-- Changes of many jobs that somebody has looked at and may confirm. What is acted on is what was previewed: jobs that fit
-- the filter and have not changed since.
CREATE TABLE rowlock.previews (
    token_hash text        PRIMARY KEY,
    action     text        NOT NULL,
    filter     json        NOT NULL,
    ids        json,                             -- a selection; NULL: everything that fits
    made_at    timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    who        text        NOT NULL,
    next_id    uuid,                             -- go on before this one
    looked     bigint      NOT NULL DEFAULT 0,
    changed    bigint      NOT NULL DEFAULT 0,
    audit_id   bigint
);
CREATE INDEX previews_expiry ON rowlock.previews (expires_at);

-- The newest log lines of each job whose task keeps them.
CREATE TABLE rowlock.job_logs (
    job_id  uuid        NOT NULL,
    seq     bigint      NOT NULL,                -- grows with each line of a job
    attempt integer     NOT NULL,
    at      timestamptz NOT NULL,
    level   text        NOT NULL,
    message text        NOT NULL,
    PRIMARY KEY (job_id, seq)
);
CREATE INDEX job_logs_age ON rowlock.job_logs (at);

ALTER TABLE rowlock.tasks ADD COLUMN arguments json, ADD COLUMN description text;
ALTER TABLE rowlock.workers ADD COLUMN memory_bytes bigint;

-- Few jobs belong to a batch or come from a schedule; others add no entry.
CREATE INDEX jobs_finished_batch ON rowlock.jobs_finished (batch_id, id) WHERE batch_id IS NOT NULL;
CREATE INDEX jobs_finished_schedule ON rowlock.jobs_finished (schedule_id, id) WHERE schedule_id IS NOT NULL;
