-- Counts of each queue with jobs: store/read/live.py.

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
