-- Forgetting, in the order of store/retention.py. A row may go on its day `drop_on`, that is before {drop_on(0)},
-- which is tomorrow. Every statement touches at most :n rows.

-- name: tomorrow
-- The first day that is not here yet.
SELECT CAST({drop_on(0)} AS text) AS day;

-- name: partitions [postgres]
-- The day partitions that exist.
SELECT c.relname
FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'rowlock.jobs_finished'::regclass
ORDER BY c.relname;

-- name: default_days [postgres]
-- Days from :first on that already have rows in the default partition: they cannot get a partition of their own.
-- A loose scan, one probe for each day.
WITH RECURSIVE days (day) AS (
    SELECT min(drop_on) FROM rowlock.jobs_finished_default WHERE drop_on >= CAST(CAST(:first AS text) AS date)
    UNION ALL
    SELECT (SELECT min(f.drop_on) FROM rowlock.jobs_finished_default f WHERE f.drop_on > days.day)
    FROM days
    WHERE days.day IS NOT NULL
)
SELECT CAST(day AS text) AS day FROM days WHERE day IS NOT NULL;

-- name: prune_default [postgres]
-- Rows of the default partition whose day has come; other partitions go as a whole. = ANY(ARRAY) runs the inner
-- query once: run again, it would lock and delete more than :n.
DELETE FROM rowlock.jobs_finished_default
WHERE ctid = ANY(ARRAY(
    SELECT f.ctid FROM rowlock.jobs_finished_default f
    WHERE f.drop_on < {drop_on(0)} AND {not_aside(f.id)}
    ORDER BY f.drop_on
    LIMIT :n
    FOR UPDATE SKIP LOCKED))
RETURNING id;

-- name: prune_finished [postgres]
-- Rows whose day has come, in whatever partition: for a role that may not drop any.
DELETE FROM rowlock.jobs_finished
WHERE drop_on < {drop_on(0)} AND id = ANY(ARRAY(
    SELECT f.id FROM rowlock.jobs_finished f
    WHERE f.drop_on < {drop_on(0)} AND {not_aside(f.id)}
    LIMIT :n
    FOR UPDATE SKIP LOCKED))
RETURNING id;

-- name: prune_finished [sqlite]
-- Rows whose day has come. By rowid: with (id, drop_on) IN every batch would walk all of them.
DELETE FROM rowlock_jobs_finished
WHERE rowid IN (
    SELECT f.rowid FROM rowlock_jobs_finished f
    WHERE f.drop_on < {drop_on(0)} AND {not_aside(f.id)}
    ORDER BY f.drop_on
    LIMIT :n)
RETURNING id;

-- name: old_finished
-- Jobs whose day has come.
SELECT CAST(f.id AS text) AS id FROM {t}jobs_finished f
WHERE f.drop_on < {drop_on(0)} AND {not_aside(f.id)}
ORDER BY f.drop_on
LIMIT :n;

-- name: prune_one
-- One of them.
DELETE FROM {t}jobs_finished WHERE id = :job_id AND drop_on < {drop_on(0)} RETURNING id;

-- name: old_attempts
-- The next :n attempts that ended more than -:ago seconds ago, and whether their job is still there. A scalar
-- sub-select with LIMIT stays one probe for each row; EXISTS may become a scan of all finished jobs.
SELECT a.finished_at, a.job_id, a.attempt,
       coalesce((SELECT 1 FROM {t}jobs_live j WHERE j.id = a.job_id),
                (SELECT 1 FROM {t}jobs_finished j WHERE j.id = a.job_id LIMIT 1)) IS NOT NULL AS has_job
FROM (
    SELECT finished_at, job_id, attempt
    FROM {t}attempts
    WHERE finished_at < {after(:ago)} AND (finished_at, job_id, attempt) > (:finished_at, :job_id, :attempt)
    ORDER BY finished_at, job_id, attempt
    LIMIT :n) a
ORDER BY a.finished_at, a.job_id, a.attempt;

-- name: prune_attempts
-- Attempts of jobs that are gone; such a job does not come back.
DELETE FROM {t}attempts
WHERE (job_id, attempt) IN (SELECT gone.job_id, gone.attempt FROM {rows:gone(job_id uuid, attempt int)})
RETURNING attempt;

-- name: old_keys
-- Expired keys.
SELECT scope, key FROM {t}job_keys WHERE expires_at <= {now} LIMIT :n;

-- name: prune_keys
-- Delete expired keys, unless a new job has taken them since they were read.
DELETE FROM {t}job_keys
WHERE (scope, key) IN (SELECT gone.scope, gone.key FROM {rows:gone(scope text, key text)}) AND expires_at <= {now}
RETURNING key;
