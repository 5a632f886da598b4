-- Numbers that dashboards and metrics read without counting rows: how many jobs ended and how many attempts failed, in
-- total and in each minute, with run and wait times; and how long each queue was, once a minute.
--
-- Each statement that ends jobs or attempts appends a few rows to `tallies`, in its own transaction: the numbers are
-- right after any crash, and no two writers meet in one row. Workers sum these rows up into `rollups` and `counters`
-- every few seconds.
--
-- what: the state in which a job ended (succeeded, dead, cancelled), or `attempt.` and the outcome of an attempt that
-- did not succeed. Buckets of seconds: n is from the (n-1)th bound up to the nth of store/read/counters.py; -1 is unknown.

CREATE TABLE rowlock.tallies (
    at           timestamptz      NOT NULL,      -- the minute
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

CREATE TABLE rowlock.rollups (
    seconds      integer          NOT NULL,      -- 60 or 3600
    at           timestamptz      NOT NULL,      -- when this minute or hour began
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

CREATE TABLE rowlock.queue_samples (
    at             timestamptz NOT NULL,         -- the minute
    queue          text        NOT NULL,         -- empty: the row of the process that took the samples of this minute
    ready          integer     NOT NULL,
    waiting        integer     NOT NULL,
    running        integer     NOT NULL,
    oldest_seconds double precision,             -- how long the oldest ready job has been claimable
    PRIMARY KEY (at, queue)
);

-- Whose attempts these were, for readers that group failures: the job's row may be in any of many partitions.
ALTER TABLE rowlock.attempts ADD COLUMN task text, ADD COLUMN queue text, ADD COLUMN source text;

CREATE FUNCTION rowlock.tell_tallies() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO rowlock.tallies
    SELECT date_bin('1 minute', e.finished_at, '2000-01-01Z'), e.queue, e.task, e.state, e.run_bucket, e.wait_bucket,
           count(*), coalesce(sum(greatest(e.ran, 0)), 0), coalesce(sum(greatest(e.waited, 0)), 0)
    FROM (
        -- Only of successes: how long an attempt ran that did not succeed is told with that attempt.
        SELECT f.finished_at, f.queue, f.task, f.state, f.ran, f.waited,
               coalesce(width_bucket(f.ran, '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,900,3600}'), -1)
                   AS run_bucket,
               coalesce(width_bucket(f.waited, '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,900,3600}'), -1)
                   AS wait_bucket
        FROM (
            SELECT n.finished_at, n.queue, n.task, n.state,
                   CASE WHEN n.state = 'succeeded' THEN
                       date_part('epoch', n.finished_at) - date_part('epoch', n.started_at) END AS ran,
                   CASE WHEN n.state = 'succeeded' THEN
                       date_part('epoch', n.started_at) - date_part('epoch', n.run_after) END AS waited
            FROM ended n) f) e
    GROUP BY 1, 2, 3, 4, 5, 6;
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_finished_tallies AFTER INSERT ON rowlock.jobs_finished
REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION rowlock.tell_tallies();

CREATE FUNCTION rowlock.tell_attempt_task() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.task IS NULL THEN
        SELECT j.task, j.queue, j.source INTO NEW.task, NEW.queue, NEW.source
        FROM rowlock.jobs_live j WHERE j.id = NEW.job_id;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER attempts_task BEFORE INSERT ON rowlock.attempts
FOR EACH ROW EXECUTE FUNCTION rowlock.tell_attempt_task();

CREATE FUNCTION rowlock.tell_attempts() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO rowlock.tallies
    SELECT date_bin('1 minute', e.finished_at, '2000-01-01Z'), coalesce(e.queue, ''), coalesce(e.task, ''),
           'attempt.' || e.outcome,
           coalesce(width_bucket(e.ran, '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,900,3600}'), -1), -1,
           count(*), coalesce(sum(greatest(e.ran, 0)), 0), 0
    FROM (
        SELECT n.finished_at, n.queue, n.task, n.outcome,
               date_part('epoch', n.finished_at) - date_part('epoch', n.started_at) AS ran
        FROM ended n) e
    GROUP BY 1, 2, 3, 4, 5;
    RETURN NULL;
END $$;
CREATE TRIGGER attempts_tallies AFTER INSERT ON rowlock.attempts
REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION rowlock.tell_attempts();

-- Triggers run with the rights of the caller. A role that got its rights before there was this table needs this one too.
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'rowlock_worker') THEN
        GRANT INSERT ON rowlock.tallies TO rowlock_worker;
    END IF;
END $$;

-- What finished before there were counters.
INSERT INTO rowlock.counters
SELECT queue, task, state, -1, -1, count(*), 0, 0 FROM rowlock.jobs_finished GROUP BY queue, task, state;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA rowlock FROM PUBLIC;
