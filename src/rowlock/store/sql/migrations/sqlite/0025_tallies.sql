-- Numbers that dashboards and metrics read without counting rows: how many jobs ended and how many attempts failed, in
-- total and in each minute, with run and wait times; and how long each queue was, once a minute.
--
-- Triggers count in `tallies`, in the transaction of the change, so the numbers are right after any crash. Workers add
-- these rows to `rollups` and `counters` every few seconds.
--
-- what: the state in which a job ended (succeeded, dead, cancelled), or `attempt.` and the outcome of an attempt that
-- did not succeed. Buckets of seconds: n is from the (n-1)th bound up to the nth of store/read/counters.py; -1 is unknown.

CREATE TABLE rowlock_tallies (
    at           REAL    NOT NULL,               -- the minute
    queue        TEXT    NOT NULL,
    task         TEXT    NOT NULL,
    what         TEXT    NOT NULL,
    run_bucket   INTEGER NOT NULL,
    wait_bucket  INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    run_seconds  REAL    NOT NULL,
    wait_seconds REAL    NOT NULL,
    PRIMARY KEY (at, queue, task, what, run_bucket, wait_bucket)
) WITHOUT ROWID;

CREATE TABLE rowlock_rollups (
    seconds      INTEGER NOT NULL,               -- 60 or 3600
    at           REAL    NOT NULL,               -- when this minute or hour began
    queue        TEXT    NOT NULL,
    task         TEXT    NOT NULL,
    what         TEXT    NOT NULL,
    run_bucket   INTEGER NOT NULL,
    wait_bucket  INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    run_seconds  REAL    NOT NULL,
    wait_seconds REAL    NOT NULL,
    PRIMARY KEY (seconds, at, queue, task, what, run_bucket, wait_bucket)
) WITHOUT ROWID;

CREATE TABLE rowlock_counters (
    queue        TEXT    NOT NULL,
    task         TEXT    NOT NULL,
    what         TEXT    NOT NULL,
    run_bucket   INTEGER NOT NULL,
    wait_bucket  INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    run_seconds  REAL    NOT NULL,
    wait_seconds REAL    NOT NULL,
    PRIMARY KEY (queue, task, what, run_bucket, wait_bucket)
) WITHOUT ROWID;

CREATE TABLE rowlock_queue_samples (
    at             REAL    NOT NULL,             -- the minute
    queue          TEXT    NOT NULL,             -- empty: the row of the process that took the samples of this minute
    ready          INTEGER NOT NULL,
    waiting        INTEGER NOT NULL,
    running        INTEGER NOT NULL,
    oldest_seconds REAL,                         -- how long the oldest ready job has been claimable
    PRIMARY KEY (at, queue)
) WITHOUT ROWID;

-- Whose attempts these were, for readers that group failures.
ALTER TABLE rowlock_attempts ADD COLUMN task TEXT;
ALTER TABLE rowlock_attempts ADD COLUMN queue TEXT;
ALTER TABLE rowlock_attempts ADD COLUMN source TEXT;

-- Successes are nearly all, and their times are counted; those of attempts that did not succeed are told with them.
CREATE TRIGGER rowlock_jobs_finished_success AFTER INSERT ON rowlock_jobs_finished
WHEN NEW.state = 'succeeded'
BEGIN
    INSERT INTO rowlock_tallies
    VALUES (CAST(NEW.finished_at AS INTEGER) / 60 * 60, NEW.queue, NEW.task, 'succeeded',
        CASE WHEN NEW.finished_at - NEW.started_at < 1 THEN
            CASE WHEN NEW.finished_at - NEW.started_at < 0.005 THEN 0 WHEN NEW.finished_at - NEW.started_at < 0.01 THEN 1 WHEN NEW.finished_at - NEW.started_at < 0.025 THEN 2 WHEN NEW.finished_at - NEW.started_at < 0.05 THEN 3
                 WHEN NEW.finished_at - NEW.started_at < 0.1 THEN 4 WHEN NEW.finished_at - NEW.started_at < 0.25 THEN 5 WHEN NEW.finished_at - NEW.started_at < 0.5 THEN 6 ELSE 7 END
        WHEN NEW.finished_at - NEW.started_at IS NULL THEN -1
        ELSE CASE WHEN NEW.finished_at - NEW.started_at < 2.5 THEN 8 WHEN NEW.finished_at - NEW.started_at < 5 THEN 9 WHEN NEW.finished_at - NEW.started_at < 10 THEN 10 WHEN NEW.finished_at - NEW.started_at < 30 THEN 11
             WHEN NEW.finished_at - NEW.started_at < 60 THEN 12 WHEN NEW.finished_at - NEW.started_at < 300 THEN 13 WHEN NEW.finished_at - NEW.started_at < 900 THEN 14 WHEN NEW.finished_at - NEW.started_at < 3600 THEN 15 ELSE 16 END END,
        CASE WHEN NEW.started_at - NEW.run_after < 1 THEN
            CASE WHEN NEW.started_at - NEW.run_after < 0.005 THEN 0 WHEN NEW.started_at - NEW.run_after < 0.01 THEN 1 WHEN NEW.started_at - NEW.run_after < 0.025 THEN 2 WHEN NEW.started_at - NEW.run_after < 0.05 THEN 3
                 WHEN NEW.started_at - NEW.run_after < 0.1 THEN 4 WHEN NEW.started_at - NEW.run_after < 0.25 THEN 5 WHEN NEW.started_at - NEW.run_after < 0.5 THEN 6 ELSE 7 END
        WHEN NEW.started_at - NEW.run_after IS NULL THEN -1
        ELSE CASE WHEN NEW.started_at - NEW.run_after < 2.5 THEN 8 WHEN NEW.started_at - NEW.run_after < 5 THEN 9 WHEN NEW.started_at - NEW.run_after < 10 THEN 10 WHEN NEW.started_at - NEW.run_after < 30 THEN 11
             WHEN NEW.started_at - NEW.run_after < 60 THEN 12 WHEN NEW.started_at - NEW.run_after < 300 THEN 13 WHEN NEW.started_at - NEW.run_after < 900 THEN 14 WHEN NEW.started_at - NEW.run_after < 3600 THEN 15 ELSE 16 END END,
        1, max(coalesce(NEW.finished_at - NEW.started_at, 0), 0), max(coalesce(NEW.started_at - NEW.run_after, 0), 0))
    ON CONFLICT DO UPDATE
    SET number = number + 1, run_seconds = run_seconds + excluded.run_seconds,
        wait_seconds = wait_seconds + excluded.wait_seconds;
END;

CREATE TRIGGER rowlock_jobs_finished_trouble_tally AFTER INSERT ON rowlock_jobs_finished
WHEN NEW.state <> 'succeeded'
BEGIN
    INSERT INTO rowlock_tallies
    VALUES (CAST(NEW.finished_at AS INTEGER) / 60 * 60, NEW.queue, NEW.task, NEW.state, -1, -1, 1, 0, 0)
    ON CONFLICT DO UPDATE SET number = number + 1;
END;

CREATE TRIGGER rowlock_attempts_tally AFTER INSERT ON rowlock_attempts
BEGIN
    UPDATE rowlock_attempts
    SET task = j.task, queue = j.queue, source = j.source
    FROM rowlock_jobs_live j
    WHERE rowlock_attempts.rowid = NEW.rowid AND NEW.task IS NULL AND j.id = NEW.job_id;
    INSERT INTO rowlock_tallies
    SELECT CAST(a.finished_at AS INTEGER) / 60 * 60, coalesce(a.queue, ''), coalesce(a.task, ''), 'attempt.' || a.outcome,
        CASE WHEN a.finished_at - a.started_at < 1 THEN
            CASE WHEN a.finished_at - a.started_at < 0.005 THEN 0 WHEN a.finished_at - a.started_at < 0.01 THEN 1 WHEN a.finished_at - a.started_at < 0.025 THEN 2 WHEN a.finished_at - a.started_at < 0.05 THEN 3
                 WHEN a.finished_at - a.started_at < 0.1 THEN 4 WHEN a.finished_at - a.started_at < 0.25 THEN 5 WHEN a.finished_at - a.started_at < 0.5 THEN 6 ELSE 7 END
        WHEN a.finished_at - a.started_at IS NULL THEN -1
        ELSE CASE WHEN a.finished_at - a.started_at < 2.5 THEN 8 WHEN a.finished_at - a.started_at < 5 THEN 9 WHEN a.finished_at - a.started_at < 10 THEN 10 WHEN a.finished_at - a.started_at < 30 THEN 11
             WHEN a.finished_at - a.started_at < 60 THEN 12 WHEN a.finished_at - a.started_at < 300 THEN 13 WHEN a.finished_at - a.started_at < 900 THEN 14 WHEN a.finished_at - a.started_at < 3600 THEN 15 ELSE 16 END END,
        -1, 1, max(coalesce(a.finished_at - a.started_at, 0), 0), 0
    FROM rowlock_attempts a
    WHERE a.rowid = NEW.rowid
    ON CONFLICT DO UPDATE SET number = number + 1, run_seconds = run_seconds + excluded.run_seconds;
END;

-- What finished before there were counters.
INSERT INTO rowlock_counters
SELECT queue, task, state, -1, -1, count(*), 0, 0 FROM rowlock_jobs_finished GROUP BY queue, task, state;
