-- What the pages of a dashboard show, in the order of store/panels.py. Each statement reads a bounded number of rows.

-- name: running_jobs
-- What runs now, and where.
SELECT CAST(j.id AS text) AS id, j.task, j.queue, j.attempt, j.locked_by, {time(j.locked_at)} AS locked_at,
       -{seconds_until(j.locked_at)} AS seconds, j.progress, j.phase
FROM {t}jobs_live j
WHERE j.state = 'running' AND j.locked_by IS DISTINCT FROM 'redis-unread'
ORDER BY j.id
LIMIT :n;

-- part: failed_lately
-- The newest :n attempts that failed since :since.
SELECT a.job_id, a.attempt, a.source, a.error_code, substr(a.error_message, 1, 300) AS message, a.finished_at,
       -- Attempts that are older than their column `task` (migration 0025). Not by the view `jobs`: SQLite would read all of it.
       coalesce(a.task, (SELECT j.task FROM {t}jobs_live j WHERE j.id = a.job_id),
                (SELECT j.task FROM {t}jobs_finished j WHERE j.id = a.job_id LIMIT 1), '') AS task,
       coalesce(a.queue, '') AS queue
FROM {t}attempts a
WHERE a.finished_at >= :since AND a.outcome IN ('failed', 'timed_out', 'lost')
ORDER BY a.finished_at DESC
LIMIT :n

-- name: failures
-- The newest :n failures since :since: how many of each task, code, source and message, in each part of :width seconds.
SELECT f.task, f.error_code, f.source, f.message, count(*) AS number,
       CAST(floor(({seconds_until(f.finished_at)} - {seconds_until(CAST(:since AS timestamptz))}) / :width) AS integer) AS slot,
       {time(min(f.finished_at))} AS first_at, {time(max(f.finished_at))} AS last_at, max(CAST(f.job_id AS text)) AS job_id
FROM (
    {part:failed_lately}) f
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

-- name: states_of
-- Where these jobs stand.
SELECT CAST(j.id AS text) AS id, j.state FROM {t}jobs j WHERE j.id {part:one_of(asked)};

-- name: source_tokens
-- What these sources' buckets held, and how long ago.
SELECT name, tokens, -{seconds_until(tokens_at)} AS age FROM {t}sources WHERE name {among(SELECT asked.name FROM {rows:asked(name text)})};

-- part: source_successes(order)
-- Of the :n newest finished jobs, those of these sources that succeeded in the last -:ago seconds, by minute.
SELECT j.source AS source, {minute(j.finished_at)} AS at, count(*) AS succeeded, 0 AS failed
FROM (
    SELECT f.source, f.state, f.finished_at FROM {t}jobs_finished f ORDER BY f.{order} DESC LIMIT :n) j
WHERE j.state = 'succeeded' AND j.finished_at > {after(:ago)}
  AND j.source IN (SELECT asked.name FROM {rows:asked(name text)})
GROUP BY 1, 2

-- part: source_failures
-- Of the :n newest failures in the last -:ago seconds, those of these sources, by minute.
SELECT a.source, {minute(a.finished_at)}, 0, count(*)
FROM (
    SELECT f.source, f.finished_at FROM {t}attempts f
    WHERE f.finished_at > {after(:ago)} AND f.outcome IN ('failed', 'timed_out', 'lost')
    ORDER BY f.finished_at DESC LIMIT :n) a
WHERE a.source IN (SELECT asked.name FROM {rows:asked(name text)})
GROUP BY 1, 2

-- name: source_strip [postgres]
-- What came of calls to these sources in the last -:ago seconds, by minute. Newest by id, the nearest thing to an order of
-- finishing that has an index.
SELECT source, {time(at)} AS at, succeeded, failed FROM (
    {part:source_successes(id)}
    UNION ALL
    {part:source_failures}) found;

-- name: source_strip [sqlite]
-- What came of calls to these sources in the last -:ago seconds, by minute. By rowid, the order of finishing.
SELECT source, {time(at)} AS at, succeeded, failed FROM (
    {part:source_successes(rowid)}
    UNION ALL
    {part:source_failures}) found;

-- part: bars(order)
-- Attempts that ran in the last -:ago seconds: the :n newest successes, the :n newest others, and what runs now.
SELECT * FROM (
    SELECT CAST(j.id AS text) AS id, j.task, j.attempt, j.last_worker AS worker, 'succeeded' AS outcome,
           {time(j.started_at)} AS began, {time(j.finished_at)} AS ended
    FROM (SELECT f.id, f.task, f.attempt, f.last_worker, f.state, f.started_at, f.finished_at
          FROM {t}jobs_finished f ORDER BY f.{order} DESC LIMIT :n) j
    WHERE j.state = 'succeeded' AND j.finished_at > {after(:ago)} AND j.last_worker IS NOT NULL) done
UNION ALL
SELECT * FROM (
    SELECT CAST(a.job_id AS text) AS id, coalesce(a.task, '') AS task, a.attempt, a.worker, a.outcome,
           {time(a.started_at)} AS began, {time(a.finished_at)} AS ended
    FROM {t}attempts a
    WHERE a.finished_at > {after(:ago)} AND a.worker IS NOT NULL AND a.started_at IS NOT NULL
    ORDER BY a.finished_at DESC LIMIT :n) others
UNION ALL
SELECT CAST(j.id AS text), j.task, j.attempt, j.locked_by, 'running', {time(j.locked_at)}, NULL
FROM {t}jobs_live j
WHERE j.state = 'running' AND j.locked_by IS DISTINCT FROM 'redis-unread'

-- name: slot_bars [postgres]
-- Attempts of a recent time, for a drawing of the slots.
{part:bars(id)};

-- name: slot_bars [sqlite]
-- Attempts of a recent time, for a drawing of the slots.
{part:bars(rowid)};
