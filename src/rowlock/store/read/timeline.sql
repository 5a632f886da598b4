-- The recent past, in the order of store/read/timeline.py. Each statement reads a bounded number of rows.

-- part: end_order [postgres]
-- The column of jobs_finished for finding the latest ends: the indexed column that is closest to the order of ends.
id

-- part: end_order [sqlite]
-- The column of jobs_finished for finding the latest ends: rowids are assigned in the order of ends.
rowid

-- name: source_strip
-- The results of calls to these sources in the last -:ago seconds, by minute.
SELECT source, {time(at)} AS at, succeeded, failed FROM (
    -- Successes among the :n newest finished jobs.
    SELECT j.source AS source, {minute(j.finished_at)} AS at, count(*) AS succeeded, 0 AS failed
    FROM (
        SELECT f.source, f.state, f.finished_at FROM {t}jobs_finished f ORDER BY f.{part:end_order} DESC LIMIT :n) j
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
-- Attempts in the last -:ago seconds, for a chart of the slots: the :n newest successes and other ends, and all
-- running.
SELECT * FROM (
    SELECT CAST(j.id AS text) AS job_id, j.task, j.attempt, j.last_worker AS worker, 'succeeded' AS outcome,
           {time(j.started_at)} AS began, {time(j.finished_at)} AS ended
    FROM (SELECT f.id, f.task, f.attempt, f.last_worker, f.state, f.started_at, f.finished_at
          FROM {t}jobs_finished f ORDER BY f.{part:end_order} DESC LIMIT :n) j
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
WHERE j.state = 'running' AND NOT {part:unread};
