-- What operators do and see: who changed what, changes of many jobs that were previewed, log lines of jobs, the shape of
-- each task's arguments, and the jobs of a batch or schedule when they have finished.

-- What people did, by the command line or through the API.
CREATE TABLE rowlock_audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      REAL    NOT NULL,
    who     TEXT    NOT NULL,
    via     TEXT    NOT NULL,                    -- api, cli
    address TEXT,                                -- where the request came from
    action  TEXT    NOT NULL,                    -- jobs.retry, queues.pause, …
    target  TEXT,                                -- a job's id, a name, or the filter as JSON
    number  INTEGER NOT NULL,                    -- of jobs or things that were changed
    details TEXT
);

-- Changes of many jobs that somebody has looked at and may confirm. What is acted on is what was previewed: jobs that fit
-- the filter and have not changed since.
CREATE TABLE rowlock_previews (
    token_hash TEXT    PRIMARY KEY NOT NULL,
    action     TEXT    NOT NULL,
    filter     TEXT    NOT NULL,
    ids        TEXT,                             -- a selection; NULL: everything that fits
    made_at    REAL    NOT NULL,
    expires_at REAL    NOT NULL,
    who        TEXT    NOT NULL,
    next_id    TEXT,                             -- go on before this one
    looked     INTEGER NOT NULL DEFAULT 0,
    changed    INTEGER NOT NULL DEFAULT 0,
    audit_id   INTEGER
);
CREATE INDEX rowlock_previews_expiry ON rowlock_previews (expires_at);

-- The newest log lines of each job whose task keeps them.
CREATE TABLE rowlock_job_logs (
    job_id  TEXT    NOT NULL,
    seq     INTEGER NOT NULL,                    -- grows with each line of a job
    attempt INTEGER NOT NULL,
    at      REAL    NOT NULL,
    level   TEXT    NOT NULL,
    message TEXT    NOT NULL,
    PRIMARY KEY (job_id, seq)
) WITHOUT ROWID;
CREATE INDEX rowlock_job_logs_age ON rowlock_job_logs (at);

ALTER TABLE rowlock_tasks ADD COLUMN arguments TEXT;
ALTER TABLE rowlock_tasks ADD COLUMN description TEXT;
ALTER TABLE rowlock_workers ADD COLUMN memory_bytes INTEGER;

-- Few jobs belong to a batch or come from a schedule; others add no entry.
CREATE INDEX rowlock_jobs_finished_batch ON rowlock_jobs_finished (batch_id, id) WHERE batch_id IS NOT NULL;
CREATE INDEX rowlock_jobs_finished_schedule ON rowlock_jobs_finished (schedule_id, id) WHERE schedule_id IS NOT NULL;
