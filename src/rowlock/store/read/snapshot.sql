-- The snapshot, in the order of store/read/snapshot.py. Queues, workers and waiting jobs are in counts.sql.

-- name: running_jobs
-- Running jobs, the longest first: how long they have been running, and how long ago their leases expired (negative
-- while they hold). There are never more running jobs than slots.
SELECT CAST(id AS text) AS job_id, queue, task, locked_by AS worker, -{seconds_until(locked_at)} AS seconds,
       -{seconds_until(lease_expires_at)} AS overdue, attempt, {time(locked_at)} AS since, progress, phase
FROM {t}jobs_live j
WHERE state = 'running' AND NOT {part:unread}
ORDER BY locked_at
LIMIT :n;

-- name: dead_lately
-- The number of jobs of each task that became dead in the last -:ago seconds, among the :n newest dead jobs.
SELECT task, count(*) AS number
FROM (
    SELECT j.task, j.finished_at FROM {t}jobs_finished j
    WHERE j.state = 'dead' AND j.state <> 'succeeded'
    ORDER BY j.id DESC LIMIT :n) newest
WHERE finished_at > {after(:ago)}
GROUP BY task;

-- name: closed_sources
-- Sources and classes that are paused, disabled, or whose breaker is open. Breakers come first, in the order in which
-- they opened. Sources that are closed only by their class are not listed, but the class is.
SELECT name, enabled, opened_at IS NOT NULL AS opened, coalesce(paused_until > {now}, FALSE) AS paused,
       -{seconds_until(opened_at)} AS seconds, last_error
FROM {t}sources
WHERE (opened_at IS NOT NULL OR NOT enabled OR paused_until IS NOT NULL)  -- the condition of an index
  AND (opened_at IS NOT NULL OR NOT enabled OR paused_until > {now})
ORDER BY opened_at IS NULL, opened_at, name
LIMIT :n;

-- name: held_queues
-- The queues in which these sources and classes have ready jobs: for a source, one probe of the claim index in each
-- lane; for a class, the first jobs of each lane. No EXISTS for sources, because PostgreSQL would read all ready jobs.
WITH RECURSIVE {part:ready_lanes}, lane AS (SELECT queue, task, priority FROM sourced LIMIT :n)
SELECT lane.queue, asked.source
FROM lane CROSS JOIN {rows:asked(source text)}
WHERE (
    SELECT j.id FROM {t}jobs_live j
    WHERE j.ready AND j.source IS NOT NULL
      AND j.queue = lane.queue AND j.task = lane.task AND j.priority = lane.priority AND j.source = asked.source
    ORDER BY j.queue, j.task, j.priority, j.source, j.id LIMIT 1) IS NOT NULL
UNION
SELECT lane.queue, asked.source
FROM lane CROSS JOIN {rows:asked(source text)}
WHERE asked.source NOT LIKE '%:%' AND EXISTS (
    SELECT 1 FROM (
        SELECT j.source FROM {t}jobs_live j
        WHERE j.ready AND j.source IS NOT NULL
          AND j.queue = lane.queue AND j.task = lane.task AND j.priority = lane.priority
        ORDER BY j.queue, j.task, j.priority, j.source, j.id LIMIT 200) first
    WHERE {class(first.source)} = asked.source)
ORDER BY 1, 2;

-- name: troubled_schedules
-- Schedules that have a problem or a due tick, the longest due first.
SELECT id, problem, CASE WHEN paused_at IS NULL THEN -{seconds_until(next_tick)} END AS late
FROM (
    SELECT id, problem, paused_at, next_tick FROM {t}schedules WHERE problem IS NOT NULL AND retired_at IS NULL
    UNION ALL
    SELECT id, problem, paused_at, next_tick FROM {t}schedules
    WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick < {now} AND problem IS NULL
) troubled
ORDER BY next_tick IS NULL, next_tick, id
LIMIT :n;
