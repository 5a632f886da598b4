-- What operators watch live, in the order of store/read/live.py. Each statement runs about once a second while a dashboard is
-- open, so each reads a bounded number of index entries, whatever the size of the tables.

-- name: queue_counts
-- For each queue and kind, the number of jobs: `ready` (up to :each in each lane), `waiting` (among the :waiting jobs that
-- are due first), `running`. A paused queue also has a row of the kind `paused`.
WITH RECURSIVE {part:ready_lanes}, lane (queue, task) AS (
    -- As expressions: see {computed}.
    SELECT {computed(found.queue)}, {computed(found.task)}
    FROM (
        SELECT * FROM (SELECT queue, task FROM plain LIMIT :lanes) a
        UNION
        SELECT * FROM (SELECT queue, task FROM sourced LIMIT :lanes) b) found
)
SELECT lane.queue AS queue, 'ready' AS kind,
       (SELECT count(*) FROM (
            {part:first_ready(1 | IS NULL | j.priority, j.id | :each)}) found)
       + (SELECT count(*) FROM (
            {part:first_ready(1 | IS NOT NULL | j.priority, j.source, j.id | :each)}) found) AS number
FROM lane
UNION ALL
SELECT queue, 'waiting', count(*)
FROM (
    SELECT j.queue FROM {t}jobs_live j
    WHERE NOT j.ready AND j.state <> 'running'
    ORDER BY j.run_after
    LIMIT :waiting) due
GROUP BY queue
UNION ALL
SELECT queue, 'running', count(*) FROM {t}jobs_live WHERE state = 'running' GROUP BY queue
UNION ALL
SELECT name, 'paused', 1 FROM {t}queues WHERE paused_at IS NOT NULL;

-- name: panel_marks
-- For each page of a dashboard, a text that changes when the data of the page may have changed. The pages about jobs and
-- queues need none: queue_counts and recent_jobs give them their data.
SELECT 'audit' AS panel, CAST(coalesce((SELECT max(id) FROM {t}audit), 0) AS text) AS mark
UNION ALL
SELECT 'failures', CAST((SELECT max(finished_at) FROM {t}attempts) AS text)
UNION ALL
SELECT 'logs', CAST((SELECT max(at) FROM {t}job_logs) AS text)
UNION ALL
SELECT 'workers', count(*) || ':' || sum(running) || ':' || sum(CASE WHEN expires_at > {now} THEN 1 ELSE 0 END) || ':'
       || max(CAST(started_at AS text))
FROM {t}workers
UNION ALL
SELECT 'schedules', count(*) || ':' || count(paused_at) || ':' || count(retired_at) || ':' || count(problem) || ':'
       || coalesce(max(CAST(last_tick AS text)), '') || ':' || coalesce(max(CAST(last_job AS text)), '')
FROM {t}schedules
UNION ALL
SELECT 'sources', count(*) || ':' || count(paused_until) || ':' || count(opened_at) || ':'
       || coalesce(max(CAST(last_failure_at AS text)), '') || ':' || coalesce(sum(coalesce(concurrency, 0)), 0)
FROM {t}sources
UNION ALL
SELECT 'batches', (SELECT CAST(id AS text) FROM {t}batches ORDER BY id DESC LIMIT 1) || ':'
       || (SELECT count(*) FROM {t}batches WHERE finished_at IS NULL);

-- part: change_columns
-- The columns of changes.Change.
CAST(j.id AS text) AS id, j.task, j.queue, j.state, j.owner, j.attempt, j.progress, j.error_code,
           {time(j.updated_at)} AS at

-- name: recent_jobs
-- Jobs that may have changed recently; some occur twice. The newest live jobs, running jobs, finished jobs, dead jobs and
-- cancelled jobs, up to :n of each, and the jobs :known, whatever has become of them.
SELECT * FROM (
    SELECT {part:change_columns} FROM {t}jobs_live j ORDER BY j.id DESC LIMIT :n) newest
UNION ALL
SELECT * FROM (
    SELECT {part:change_columns} FROM {t}jobs_live j WHERE j.state = 'running' ORDER BY j.id DESC LIMIT :n) running
UNION ALL
SELECT * FROM (
    SELECT {part:change_columns} FROM {t}jobs_finished j ORDER BY j.{end_order()} DESC LIMIT :n) finished
UNION ALL
SELECT * FROM (
    SELECT {part:change_columns} FROM {t}jobs_finished j
    WHERE {part:is_dead} ORDER BY j.id DESC LIMIT :n) dead
UNION ALL
SELECT * FROM (
    SELECT {part:change_columns} FROM {t}jobs_finished j
    WHERE {part:is_cancelled} ORDER BY j.id DESC LIMIT :n) cancelled
UNION ALL
SELECT {part:change_columns} FROM {t}jobs_live j
WHERE j.id {in:known(id uuid)}
UNION ALL
SELECT {part:change_columns} FROM {t}jobs_finished j
WHERE j.id {in:known(id uuid)};
