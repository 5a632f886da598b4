-- What the pages of a dashboard show, in the order of store/read/failures.py. Each statement reads a bounded number of rows.

-- name: running_jobs
-- The running jobs, each with its worker.
SELECT CAST(j.id AS text) AS job_id, j.task, j.queue, j.attempt, j.locked_by AS worker, {time(j.locked_at)} AS since,
       -{seconds_until(j.locked_at)} AS seconds, j.progress, j.phase
FROM {t}jobs_live j
WHERE j.state = 'running' AND j.locked_by IS DISTINCT FROM {part:unread}
ORDER BY j.id
LIMIT :n;

-- name: failures
-- The newest :n failures since :since: how many of each task, code, source and message, in each part of :width seconds.
SELECT f.task, f.error_code, f.source, f.message, count(*) AS number,
       CAST(floor(({seconds_until(f.finished_at)} - {seconds_until(CAST(:since AS timestamptz))}) / :width) AS integer) AS slot,
       {time(min(f.finished_at))} AS first_at, {time(max(f.finished_at))} AS last_at, max(CAST(f.job_id AS text)) AS job_id
FROM (
    SELECT a.job_id, a.attempt, a.source, a.error_code, substr(a.error_message, 1, 300) AS message, a.finished_at,
           -- Attempts whose job was gone before the trigger could copy its task. Not by the view `jobs`: SQLite would read all of it.
           coalesce(a.task, (SELECT j.task FROM {t}jobs_live j WHERE j.id = a.job_id),
                    (SELECT j.task FROM {t}jobs_finished j WHERE j.id = a.job_id LIMIT 1), '') AS task,
           coalesce(a.queue, '') AS queue
    FROM {t}attempts a
    WHERE a.finished_at >= :since AND a.outcome IN ('failed', 'timed_out', 'lost')
    ORDER BY a.finished_at DESC
    LIMIT :n) f
WHERE CASE WHEN CAST(:task AS text) IS NULL THEN TRUE ELSE f.task = :task END
  AND CASE WHEN CAST(:queue AS text) IS NULL THEN TRUE ELSE f.queue = :queue END
GROUP BY 1, 2, 3, 4, 6;

-- name: oldest_failure
-- The time of the failure at position :skip, newest first; no row if there are fewer failures.
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

-- name: ticks_of
-- The last :n ticks of a schedule, newest first.
SELECT {time(tick)} AS tick, CAST(job_id AS text) AS job_id
FROM {t}ticks
WHERE schedule_id = :id
ORDER BY tick DESC
LIMIT :n;

-- name: source_strip
-- What came of calls to these sources in the last -:ago seconds, by minute.
SELECT source, {time(at)} AS at, succeeded, failed FROM (
    -- Successes among the :n newest finished jobs.
    SELECT j.source AS source, {minute(j.finished_at)} AS at, count(*) AS succeeded, 0 AS failed
    FROM (
        SELECT f.source, f.state, f.finished_at FROM {t}jobs_finished f ORDER BY f.{end_order()} DESC LIMIT :n) j
    WHERE j.state = 'succeeded' AND j.finished_at > {after(:ago)}
      AND j.source IN (SELECT asked.name FROM {rows:asked(name text)})
    GROUP BY 1, 2
    UNION ALL
    -- Failures among the :n newest failures.
    SELECT a.source, {minute(a.finished_at)}, 0, count(*)
    FROM (
        SELECT f.source, f.finished_at FROM {t}attempts f
        WHERE f.finished_at > {after(:ago)} AND f.outcome IN ('failed', 'timed_out', 'lost')
        ORDER BY f.finished_at DESC LIMIT :n) a
    WHERE a.source IN (SELECT asked.name FROM {rows:asked(name text)})
    GROUP BY 1, 2) found;

-- name: slot_bars
-- Attempts that ran in the last -:ago seconds, for a drawing of the slots: the :n newest successes, the :n newest others,
-- and what runs now.
SELECT * FROM (
    SELECT CAST(j.id AS text) AS job_id, j.task, j.attempt, j.last_worker AS worker, 'succeeded' AS outcome,
           {time(j.started_at)} AS began, {time(j.finished_at)} AS ended
    FROM (SELECT f.id, f.task, f.attempt, f.last_worker, f.state, f.started_at, f.finished_at
          FROM {t}jobs_finished f ORDER BY f.{end_order()} DESC LIMIT :n) j
    WHERE j.state = 'succeeded' AND j.finished_at > {after(:ago)} AND j.last_worker IS NOT NULL) done
UNION ALL
SELECT * FROM (
    SELECT CAST(a.job_id AS text) AS job_id, coalesce(a.task, '') AS task, a.attempt, a.worker, a.outcome,
           {time(a.started_at)} AS began, {time(a.finished_at)} AS ended
    FROM {t}attempts a
    WHERE a.finished_at > {after(:ago)} AND a.worker IS NOT NULL AND a.started_at IS NOT NULL
    ORDER BY a.finished_at DESC LIMIT :n) others
UNION ALL
SELECT CAST(j.id AS text), j.task, j.attempt, j.locked_by, 'running', {time(j.locked_at)}, NULL
FROM {t}jobs_live j
WHERE j.state = 'running' AND j.locked_by IS DISTINCT FROM {part:unread};
