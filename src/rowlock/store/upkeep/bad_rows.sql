-- Set aside jobs and batches for which a statement fails, in the order of bad_rows.py.

-- name: hold_back
-- Take a job that can't be claimed out of the claim index.
UPDATE {t}jobs_live SET ready = FALSE WHERE id = :job_id;

-- name: put_aside
-- Set a job or batch aside for :again seconds, or (NULL) until this row is deleted. Returns how often it has failed.
INSERT INTO {t}set_aside (id, doing, error, since, again_at)
VALUES (:job_id, :doing, :error, {now}, {after(:again)})
ON CONFLICT (id) DO UPDATE
SET doing = excluded.doing, error = excluded.error, again_at = excluded.again_at, times = {t}set_aside.times + 1
RETURNING times;

-- name: list_aside
-- The jobs and batches that are set aside, newest first.
SELECT CAST(a.id AS text) AS id, a.doing, a.error, a.times, {time(a.since)} AS since, {time(a.again_at)} AS again_at
FROM {t}set_aside a
ORDER BY a.since DESC
LIMIT :n;

-- name: one_aside
-- The row of one job or batch, if it is set aside.
SELECT CAST(a.id AS text) AS id, a.doing, a.error, a.times, {time(a.since)} AS since, {time(a.again_at)} AS again_at
FROM {t}set_aside a
WHERE a.id = :job_id;

-- name: forget_aside
-- Delete rows whose job or batch is gone or over, or was tried again more than an hour ago without failing.
DELETE FROM {t}set_aside
WHERE again_at < {after(-3600)}
   OR coalesce((SELECT 1 FROM {t}jobs_live j WHERE j.id = {t}set_aside.id),
               (SELECT 1 FROM {t}batches b WHERE b.id = {t}set_aside.id AND b.finished_at IS NULL),
               CASE WHEN doing = 'prune'
                    THEN (SELECT 1 FROM {t}jobs_finished f WHERE f.id = {t}set_aside.id LIMIT 1) END)
      IS NULL;
