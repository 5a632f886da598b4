-- Statistics of queues, workers and recently finished jobs, in the order of store/read/counts.py.

-- name: live_workers
-- Live workers with their queues, tasks and slots.
SELECT id, queues, tasks, pool_size, running FROM {t}workers WHERE expires_at > {now} ORDER BY id;

-- part: ready_lanes
-- The first ready job of each (queue, task, priority): `plain` without a source, `sourced` with one. Loose scans of the
-- two claim indexes, with a few probes for each combination, whatever the number of jobs.
plain (queue, task, priority, run_after) AS (
    SELECT queue, task, priority, run_after FROM (
        SELECT j.queue, j.task, j.priority, j.run_after
        FROM {t}jobs_live j
        WHERE j.ready AND j.source IS NULL
        ORDER BY j.queue, j.task, j.priority, j.id
        LIMIT 1) first
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after
    FROM plain h
    JOIN {t}jobs_live j ON j.id = (
        SELECT n.id
        FROM {t}jobs_live n
        -- The key includes the last possible id, because SQLite walks over all rows that equal a shorter key: 210 heads
        -- in a million rows take 2 ms, with a shorter key 130 ms, and without {computed} as well 2.3 s.
        WHERE n.ready AND n.source IS NULL
          AND (n.queue, n.task, n.priority, n.id)
              > ({computed(h.queue)}, {computed(h.task)}, {computed(h.priority)}, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY n.queue, n.task, n.priority, n.id
        LIMIT 1)
), sourced (queue, task, priority, run_after) AS (
    SELECT queue, task, priority, run_after FROM (
        SELECT j.queue, j.task, j.priority, j.run_after
        FROM {t}jobs_live j
        WHERE j.ready AND j.source IS NOT NULL
        ORDER BY j.queue, j.task, j.priority, j.source, j.id
        LIMIT 1) first
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after
    FROM sourced h
    -- The task's next priority, else the queue's next task, else the next queue.
    JOIN {t}jobs_live j ON j.id = coalesce(
        (SELECT n.id FROM {t}jobs_live n
         WHERE n.ready AND n.source IS NOT NULL
           AND n.queue = {computed(h.queue)} AND n.task = {computed(h.task)} AND n.priority > {computed(h.priority)}
         ORDER BY n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM {t}jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue = {computed(h.queue)} AND n.task > {computed(h.task)}
         ORDER BY n.task, n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM {t}jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue > {computed(h.queue)}
         ORDER BY n.queue, n.task, n.priority, n.source, n.id LIMIT 1))
)

-- name: lane_heads
-- For each (queue, task, priority) with ready jobs, without and with a source: how long the first job has been ready.
WITH RECURSIVE {part:ready_lanes}
SELECT queue, task, -{seconds_until(run_after)} AS age FROM (
    SELECT * FROM plain UNION ALL SELECT * FROM sourced) heads
LIMIT :n;

-- name: lane_sizes
-- For each lane, without and with a source: the number of ready jobs, up to :n; and among the first :looks of them, the
-- number of retries and the longest time since one became ready. The index alone gives the first number; the others
-- need the rows. ORDER BY keeps the plan on the claim indexes: LIMIT alone may be planned as a scan of the table.
SELECT lane.queue, lane.task,
       (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT :n) found) AS ready,
       (SELECT count(*) FROM (
            SELECT j.state FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT :looks) found
        WHERE state = 'retryable') AS retries,
       (SELECT -{seconds_until(min(found.run_after))} FROM (
            SELECT j.run_after FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT :looks) found) AS age
FROM {rows:lane(queue text, task text)}
UNION ALL
SELECT lane.queue, lane.task,
       (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT :n) found) AS ready,
       (SELECT count(*) FROM (
            SELECT j.state FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT :looks) found
        WHERE state = 'retryable') AS retries,
       (SELECT -{seconds_until(min(found.run_after))} FROM (
            SELECT j.run_after FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT :looks) found) AS age
FROM {rows:lane(queue text, task text)};

-- name: waiting_lanes
-- Delayed jobs by lane and state, among the :n that are due first.
SELECT queue, task, state, count(*) AS number
FROM (
    SELECT j.queue, j.task, j.state
    FROM {t}jobs_live j
    WHERE NOT j.ready AND j.state <> 'running'
    ORDER BY j.run_after
    LIMIT :n) due
GROUP BY queue, task, state;

-- name: running_lanes
-- The number of running jobs of each queue, and how long the longest has been running. There are never more than slots.
-- Jobs that wait in a Redis stream are counted separately.
SELECT queue, {part:unread} AS unread, count(*) AS number, -{seconds_until(min(locked_at))} AS longest
FROM {t}jobs_live j
WHERE state = 'running' GROUP BY queue, {part:unread};

-- name: finished_lately
-- Jobs that finished in the last -:ago seconds, by state and task: their number, how many of them ran, and their total
-- run time. Only among the :n newest jobs of each state; dead and cancelled ones by id, which has an index.
SELECT state, task, count(*) AS number, count(started_at) FILTER (WHERE state <> 'cancelled') AS ran,
       sum({seconds_until(finished_at)} - {seconds_until(started_at)}) FILTER (WHERE state <> 'cancelled') AS seconds
FROM (
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM {t}jobs_finished j
        ORDER BY j.{part:end_order} DESC LIMIT :n) newest
    WHERE state = 'succeeded'
    UNION ALL
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM {t}jobs_finished j
        WHERE j.state = 'dead' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT :n) dead
    UNION ALL
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM {t}jobs_finished j
        WHERE j.state = 'cancelled' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT :n) cancelled) newest
WHERE finished_at > {after(:ago)}
GROUP BY state, task;
