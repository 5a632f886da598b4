-- Retention, in the order of retention.py, which also lists the statements of other files that delete old rows. A
-- finished job may be deleted on its day `drop_on` or later. {drop_on(0)} is tomorrow, so the condition is
-- `drop_on < {drop_on(0)}`. Every DELETE removes at most :n rows.

-- part: finished_not_aside
-- The finished job `f` is not set aside, or may be tried again.
(SELECT 1 FROM {t}set_aside a WHERE a.id = f.id AND coalesce(a.again_at > {now}, TRUE)) IS NULL

-- name: prune_default [postgres]
-- Delete rows of the default partition whose day has come; the other partitions are dropped as a whole. = ANY(ARRAY)
-- runs the inner query only once: a second run would lock and delete more than :n rows.
DELETE FROM rowlock.jobs_finished_default
WHERE ctid = ANY(ARRAY(
    SELECT f.ctid FROM rowlock.jobs_finished_default f
    WHERE f.drop_on < {drop_on(0)} AND {part:finished_not_aside}
    ORDER BY f.drop_on
    LIMIT :n
    FOR UPDATE SKIP LOCKED))
RETURNING id;

-- name: prune_finished [postgres]
-- Delete rows whose day has come, from all partitions, for a role that may not drop partitions.
DELETE FROM rowlock.jobs_finished
WHERE drop_on < {drop_on(0)} AND id = ANY(ARRAY(
    SELECT f.id FROM rowlock.jobs_finished f
    WHERE f.drop_on < {drop_on(0)} AND {part:finished_not_aside}
    LIMIT :n
    FOR UPDATE SKIP LOCKED))
RETURNING id;

-- name: prune_finished [sqlite]
-- Delete rows whose day has come, by rowid: with (id, drop_on) IN, each batch would walk the whole table.
DELETE FROM rowlock_jobs_finished
WHERE rowid IN (
    SELECT f.rowid FROM rowlock_jobs_finished f
    WHERE f.drop_on < {drop_on(0)} AND {part:finished_not_aside}
    ORDER BY f.drop_on
    LIMIT :n)
RETURNING id;

-- name: old_finished
-- The next finished jobs to delete, for finding the bad row after an error.
SELECT CAST(f.id AS text) AS id FROM {t}jobs_finished f
WHERE f.drop_on < {drop_on(0)} AND {part:finished_not_aside}
ORDER BY f.drop_on
LIMIT :n;

-- name: prune_these
-- Delete these jobs if their day has come.
DELETE FROM {t}jobs_finished WHERE id {in:asked(id uuid)} AND drop_on < {drop_on(0)} RETURNING id;

-- name: old_attempts
-- The next :n attempts that ended more than -:ago seconds ago, and whether their job still exists. A scalar sub-select
-- with LIMIT stays one probe for each row; EXISTS may be planned as a scan of all finished jobs.
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
-- Delete attempts of jobs that no longer exist. Such jobs never come back.
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
