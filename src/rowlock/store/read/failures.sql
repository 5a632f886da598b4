-- Failed attempts, in the order of store/read/failures.py. Each statement reads a bounded number of rows.

-- name: failures
-- The newest :n failures since :since, counted by task, code, source, message and slot of :width seconds.
SELECT f.task, f.error_code, f.source, f.message, count(*) AS number,
       CAST(floor(({seconds_until(f.finished_at)} - {seconds_until(CAST(:since AS timestamptz))}) / :width) AS integer) AS slot,
       {time(min(f.finished_at))} AS first_at, {time(max(f.finished_at))} AS last_at, max(CAST(f.job_id AS text)) AS job_id
FROM (
    SELECT a.job_id, a.attempt, a.source, a.error_code, substr(a.error_message, 1, 300) AS message, a.finished_at,
           coalesce(a.task, '') AS task, coalesce(a.queue, '') AS queue
    FROM {t}attempts a
    WHERE a.finished_at >= :since AND a.outcome IN ('failed', 'timed_out', 'lost')
    ORDER BY a.finished_at DESC
    LIMIT :n) f
WHERE CASE WHEN CAST(:task AS text) IS NULL THEN TRUE ELSE f.task = :task END
  AND CASE WHEN CAST(:queue AS text) IS NULL THEN TRUE ELSE f.queue = :queue END
GROUP BY 1, 2, 3, 4, 6;

-- name: oldest_failure
-- The time of the failure at position :skip, counted from the newest. No row if there are fewer failures.
SELECT {time(a.finished_at)} AS at
FROM {t}attempts a
WHERE a.finished_at >= :since AND a.outcome IN ('failed', 'timed_out', 'lost')
ORDER BY a.finished_at DESC
LIMIT 1 OFFSET :skip;

-- name: error_codes
-- The codes of the newest failures.
SELECT DISTINCT f.error_code FROM (
    SELECT a.error_code FROM {t}attempts a ORDER BY a.finished_at DESC LIMIT :n) f
WHERE f.error_code IS NOT NULL
ORDER BY 1;
