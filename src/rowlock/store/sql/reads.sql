-- What people and programs ask about jobs, in the order of store/reads.py and store/explain.py.
--
-- Lists, ids and counts come in three texts, one for each way into a million finished rows: by id, by state (only
-- trouble has an index: dead, cancelled; and running), and by owner. A branch of a state that was not asked for
-- starts with a FALSE parameter and costs nothing.

-- name: read_job
-- One job, live or finished.
SELECT {job} FROM {t}jobs j WHERE j.id = :job_id;

-- name: read_jobs [postgres]
-- Jobs by id, newest first. = ANY(ARRAY) is looked up in each partition's index; with IN (SELECT …) the planner reads
-- all of them instead (50 of a million rows: 220 ms against 3).
SELECT {job}
FROM rowlock.jobs j
WHERE j.id = ANY(ARRAY(SELECT asked.id FROM {rows:asked(id uuid)}))
ORDER BY j.id DESC;

-- name: read_jobs [sqlite]
-- Jobs by id, newest first.
SELECT {job}
FROM rowlock_jobs j
WHERE j.id IN (SELECT asked.id FROM {rows:asked(id uuid)})
ORDER BY j.id DESC;

-- name: read_attempts
-- The attempts of a job that did not succeed, in order.
SELECT job_id, attempt, outcome, worker, {time(started_at)}, {time(finished_at)}, error_code, error_message
FROM {t}attempts
WHERE job_id = :job_id
ORDER BY attempt;

-- name: list_all
-- The newest jobs before :id, whatever their state.
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j WHERE j.id < :id AND {filter} ORDER BY j.id DESC LIMIT :n) live
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j WHERE j.id < :id AND {filter} ORDER BY j.id DESC LIMIT :n) finished
ORDER BY id DESC
LIMIT :n;

-- name: list_in_states
-- The newest jobs before :id in the states that are TRUE.
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j
    WHERE :running AND j.state = 'running' AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) running
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j
    WHERE (:queued OR :retryable)
      AND (:queued AND j.state = 'queued' OR :retryable AND j.state = 'retryable') AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) waiting
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE :succeeded AND j.state = 'succeeded' AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) succeeded
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE :dead AND j.state = 'dead' AND j.state <> 'succeeded' AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) dead
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE :cancelled AND j.state = 'cancelled' AND j.state <> 'succeeded' AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) cancelled
ORDER BY id DESC
LIMIT :n;

-- name: list_of_owner
-- The newest jobs of an owner before :id in the states that are TRUE.
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j
    WHERE j.owner = :owner AND j.id < :id AND {filter}
      AND CASE j.state WHEN 'queued' THEN CAST(:queued AS boolean) WHEN 'running' THEN CAST(:running AS boolean)
                       ELSE CAST(:retryable AS boolean) END
    ORDER BY j.id DESC LIMIT :n) live
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE j.owner = :owner AND j.id < :id AND {filter}
      AND CASE j.state WHEN 'succeeded' THEN CAST(:succeeded AS boolean) WHEN 'dead' THEN CAST(:dead AS boolean)
                       ELSE CAST(:cancelled AS boolean) END
    ORDER BY j.id DESC LIMIT :n) finished
ORDER BY id DESC
LIMIT :n;

-- name: ids_all
-- The oldest jobs after :id, whatever their state.
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j WHERE j.id > :id AND {filter} ORDER BY j.id LIMIT :n) live
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j WHERE j.id > :id AND {filter} ORDER BY j.id LIMIT :n) finished
ORDER BY id
LIMIT :n;

-- name: ids_in_states
-- The oldest jobs after :id in the states that are TRUE.
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j
    WHERE :running AND j.state = 'running' AND j.id > :id AND {filter}
    ORDER BY j.id LIMIT :n) running
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j
    WHERE (:queued OR :retryable)
      AND (:queued AND j.state = 'queued' OR :retryable AND j.state = 'retryable') AND j.id > :id AND {filter}
    ORDER BY j.id LIMIT :n) waiting
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE :succeeded AND j.state = 'succeeded' AND j.id > :id AND {filter}
    ORDER BY j.id LIMIT :n) succeeded
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE :dead AND j.state = 'dead' AND j.state <> 'succeeded' AND j.id > :id AND {filter}
    ORDER BY j.id LIMIT :n) dead
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE :cancelled AND j.state = 'cancelled' AND j.state <> 'succeeded' AND j.id > :id AND {filter}
    ORDER BY j.id LIMIT :n) cancelled
ORDER BY id
LIMIT :n;

-- name: ids_of_owner
-- The oldest jobs of an owner after :id in the states that are TRUE.
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j
    WHERE j.owner = :owner AND j.id > :id AND {filter}
      AND CASE j.state WHEN 'queued' THEN CAST(:queued AS boolean) WHEN 'running' THEN CAST(:running AS boolean)
                       ELSE CAST(:retryable AS boolean) END
    ORDER BY j.id LIMIT :n) live
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE j.owner = :owner AND j.id > :id AND {filter}
      AND CASE j.state WHEN 'succeeded' THEN CAST(:succeeded AS boolean) WHEN 'dead' THEN CAST(:dead AS boolean)
                       ELSE CAST(:cancelled AS boolean) END
    ORDER BY j.id LIMIT :n) finished
ORDER BY id
LIMIT :n;

-- name: count_all
-- How many jobs there are, up to :n.
SELECT count(*) FROM (
    SELECT 1 FROM {t}jobs_live j WHERE {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j WHERE {filter}
    LIMIT :n) found;

-- name: count_in_states
-- How many jobs are in the states that are TRUE, up to :n.
SELECT count(*) FROM (
    SELECT 1 FROM {t}jobs_live j WHERE :running AND j.state = 'running' AND {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_live j
    WHERE (:queued OR :retryable)
      AND (:queued AND j.state = 'queued' OR :retryable AND j.state = 'retryable') AND {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j WHERE :succeeded AND j.state = 'succeeded' AND {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j WHERE :dead AND j.state = 'dead' AND j.state <> 'succeeded' AND {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j WHERE :cancelled AND j.state = 'cancelled' AND j.state <> 'succeeded' AND {filter}
    LIMIT :n) found;

-- name: count_of_owner
-- How many jobs of an owner are in the states that are TRUE, up to :n.
SELECT count(*) FROM (
    SELECT 1 FROM {t}jobs_live j
    WHERE j.owner = :owner AND {filter}
      AND CASE j.state WHEN 'queued' THEN CAST(:queued AS boolean) WHEN 'running' THEN CAST(:running AS boolean)
                       ELSE CAST(:retryable AS boolean) END
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j
    WHERE j.owner = :owner AND {filter}
      AND CASE j.state WHEN 'succeeded' THEN CAST(:succeeded AS boolean) WHEN 'dead' THEN CAST(:dead AS boolean)
                       ELSE CAST(:cancelled AS boolean) END
    LIMIT :n) found;

-- name: owner_size
-- How many finished jobs an owner has, up to :n: says which index is the shorter way.
SELECT count(*) FROM (SELECT 1 FROM {t}jobs_finished j WHERE j.owner = :owner LIMIT :n) found;

-- name: live_workers
-- The workers believed alive: what they serve, and how much of it at a time.
SELECT id, queues, tasks, pool_size, running FROM {t}workers WHERE expires_at > {now} ORDER BY id;

-- name: lane_heads
-- For each (queue, task, priority) with ready jobs, without and with a source: how long its first one has been
-- claimable. Loose scans of the two claim indexes, a few probes for each, whatever the number of jobs.
WITH RECURSIVE plain (queue, task, priority, run_after) AS (
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
        -- Past the last possible id, because SQLite walks over the rows that equal a shorter key; and expressions,
        -- because it compares two columns without the index's affinity and then uses only the first of it
        -- (210 heads in a million rows: 130 ms without the one, 2.3 s without both, 2 ms so).
        WHERE n.ready AND n.source IS NULL
          AND (n.queue, n.task, n.priority, n.id)
              > (h.queue || '', h.task || '', h.priority + 0, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
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
    -- The next priority of the task, else the next task of the queue, else the next queue.
    JOIN {t}jobs_live j ON j.id = coalesce(
        (SELECT n.id FROM {t}jobs_live n
         WHERE n.ready AND n.source IS NOT NULL
           AND n.queue = h.queue || '' AND n.task = h.task || '' AND n.priority > h.priority + 0
         ORDER BY n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM {t}jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue = h.queue || '' AND n.task > h.task || ''
         ORDER BY n.task, n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM {t}jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue > h.queue || ''
         ORDER BY n.queue, n.task, n.priority, n.source, n.id LIMIT 1))
)
SELECT queue, task, -{seconds_until(run_after)} FROM (
    SELECT * FROM plain UNION ALL SELECT * FROM sourced) heads
LIMIT :n;

-- name: lane_sizes
-- For each lane: how many jobs are ready, up to :n; and of its first :looks, how many are retries and the longest
-- time one has been claimable; each without and with a source. The first is read off the index, the others need the
-- rows. ORDER BY keeps it all on the claim indexes: LIMIT alone may turn into a scan of the table.
SELECT lane.queue, lane.task,
       (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT :n) found),
       (SELECT count(*) FROM (
            SELECT j.state FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT :looks) found
        WHERE state = 'retryable'),
       (SELECT -{seconds_until(min(found.run_after))} FROM (
            SELECT j.run_after FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT :looks) found)
FROM {rows:lane(queue text, task text)}
UNION ALL
SELECT lane.queue, lane.task,
       (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT :n) found),
       (SELECT count(*) FROM (
            SELECT j.state FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT :looks) found
        WHERE state = 'retryable'),
       (SELECT -{seconds_until(min(found.run_after))} FROM (
            SELECT j.run_after FROM {t}jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT :looks) found)
FROM {rows:lane(queue text, task text)};

-- name: waiting_lanes
-- What waits for its time, among the :n that are due first.
SELECT queue, task, state, count(*)
FROM (
    SELECT j.queue, j.task, j.state
    FROM {t}jobs_live j
    WHERE NOT j.ready AND j.state <> 'running'
    ORDER BY j.run_after
    LIMIT :n) due
GROUP BY queue, task, state;

-- name: never_due [postgres]
-- Jobs that wait for a time after 2199.
SELECT CAST(id AS text), task FROM rowlock.jobs_live
WHERE NOT ready AND state <> 'running' AND run_after >= '2200-01-01Z'
ORDER BY run_after DESC
LIMIT :n;

-- name: never_due [sqlite]
-- Jobs that wait for a time after 2199, or for what is no time.
SELECT CAST(id AS text), task FROM rowlock_jobs_live
WHERE NOT ready AND state <> 'running' AND run_after >= 7258118400
ORDER BY run_after DESC
LIMIT :n;

-- name: running_lanes
-- Running jobs of each queue, and for how long the longest has run. They are never more than there are slots.
SELECT queue, count(*), -{seconds_until(min(locked_at))} FROM {t}jobs_live WHERE state = 'running' GROUP BY queue;

-- name: finished_lately [postgres]
-- Jobs that finished in the last -:ago seconds, by state and task, and how many of them ran for how long together, among
-- the :n newest of each state. Newest by id, the nearest thing to an order of finishing that has an index.
SELECT state, task, count(*), count(started_at) FILTER (WHERE state <> 'cancelled'),
       sum({seconds_until(finished_at)} - {seconds_until(started_at)}) FILTER (WHERE state <> 'cancelled')
FROM (
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM rowlock.jobs_finished j
        ORDER BY j.id DESC LIMIT :n) newest
    WHERE state = 'succeeded'
    UNION ALL
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM rowlock.jobs_finished j
        WHERE j.state = 'dead' ORDER BY j.id DESC LIMIT :n) dead
    UNION ALL
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM rowlock.jobs_finished j
        WHERE j.state = 'cancelled' ORDER BY j.id DESC LIMIT :n) cancelled) newest
WHERE finished_at > {after(:ago)}
GROUP BY state, task;

-- name: finished_lately [sqlite]
-- Jobs that finished in the last -:ago seconds, by state and task, and how many of them ran for how long together, among
-- the :n that finished last: here rowids are given in the order of finishing.
SELECT state, task, count(*), count(started_at) FILTER (WHERE state <> 'cancelled'),
       sum(finished_at - started_at) FILTER (WHERE state <> 'cancelled')
FROM (
    SELECT j.state, j.task, j.started_at, j.finished_at FROM rowlock_jobs_finished j
    ORDER BY j.rowid DESC LIMIT :n) last
WHERE finished_at > {after(:ago)}
GROUP BY state, task;

-- name: clock
-- The present moment.
SELECT {time({now})};

-- name: is_ready
-- Whether a job may be claimed now, whatever its time.
SELECT 1 FROM {t}jobs_live WHERE id = :job_id AND ready;

-- name: line
-- Who comes before (:priority, :id), a job without a source, in these lanes: older ones without a source, those of sources
-- in better priorities, and whether some of its own priority take turns with it. Each is counted up to :n in each lane. A
-- paused queue has no lane. Ranges and not `=`: see find_turns.
SELECT coalesce(sum(ahead.plain), 0), coalesce(sum(ahead.sourced), 0), coalesce(sum(ahead.alike), 0)
FROM (
    SELECT (
        SELECT count(*) FROM (
            SELECT 1
            FROM {t}jobs_live j
            WHERE j.ready
              AND j.source IS NULL
              AND (j.priority, j.id) < (:priority, :id)
              AND j.queue = lane.queue
              AND j.task = lane.task
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY j.priority, j.id
            LIMIT :n) first) AS plain,
    (
        SELECT count(*) FROM (
            SELECT 1
            FROM {t}jobs_live j
            WHERE j.ready
              AND j.source IS NOT NULL
              AND j.priority < :priority
              AND j.queue = lane.queue
              AND j.task = lane.task
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY j.priority, j.source, j.id
            LIMIT :n) first) AS sourced,
    (
        SELECT count(*) FROM (
            SELECT 1
            FROM {t}jobs_live j
            WHERE j.ready
              AND j.source IS NOT NULL
              AND j.priority >= :priority
              AND j.priority <= :priority
              AND j.queue = lane.queue
              AND j.task = lane.task
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY j.priority, j.source, j.id
            LIMIT 1) first) AS alike
    FROM {rows:lane(queue text, task text)}
    WHERE NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)) ahead;

-- name: line_of_source
-- The same for a job of :source: older ones of its source, all others in better priorities, and whether some of its own
-- priority take turns with it: those without a source, and those of the sources before and behind its own.
SELECT coalesce(sum(ahead.own), 0), coalesce(sum(ahead.plain + ahead.sourced), 0),
       coalesce(sum(ahead.alike_plain + ahead.alike_before + ahead.alike_after), 0)
FROM (
    SELECT (
        SELECT count(*) FROM (
            SELECT 1
            FROM {t}jobs_live j
            WHERE j.ready
              AND j.source IS NOT NULL
              AND j.priority >= :priority
              AND j.priority <= :priority
              AND j.source >= :source
              AND j.source <= :source
              AND j.id < :id
              AND j.queue = lane.queue
              AND j.task = lane.task
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY j.priority, j.source, j.id
            LIMIT :n) first) AS own,
    (
        SELECT count(*) FROM (
            SELECT 1
            FROM {t}jobs_live j
            WHERE j.ready
              AND j.source IS NULL
              AND j.priority < :priority
              AND j.queue = lane.queue
              AND j.task = lane.task
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY j.priority, j.id
            LIMIT :n) first) AS plain,
    (
        SELECT count(*) FROM (
            SELECT 1
            FROM {t}jobs_live j
            WHERE j.ready
              AND j.source IS NOT NULL
              AND j.priority < :priority
              AND j.queue = lane.queue
              AND j.task = lane.task
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY j.priority, j.source, j.id
            LIMIT :n) first) AS sourced,
    (
        SELECT count(*) FROM (
            SELECT 1
            FROM {t}jobs_live j
            WHERE j.ready
              AND j.source IS NULL
              AND j.priority >= :priority
              AND j.priority <= :priority
              AND j.queue = lane.queue
              AND j.task = lane.task
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY j.priority, j.id
            LIMIT 1) first) AS alike_plain,
    (
        SELECT count(*) FROM (
            SELECT 1
            FROM {t}jobs_live j
            WHERE j.ready
              AND j.source IS NOT NULL
              AND j.priority >= :priority
              AND j.priority <= :priority
              AND j.source < :source
              AND j.queue = lane.queue
              AND j.task = lane.task
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY j.priority, j.source, j.id
            LIMIT 1) first) AS alike_before,
    (
        SELECT count(*) FROM (
            SELECT 1
            FROM {t}jobs_live j
            WHERE j.ready
              AND j.source IS NOT NULL
              AND j.priority >= :priority
              AND j.priority <= :priority
              AND j.source > :source
              AND j.queue = lane.queue
              AND j.task = lane.task
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY j.priority, j.source, j.id
            LIMIT 1) first) AS alike_after
    FROM {rows:lane(queue text, task text)}
    WHERE NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)) ahead;

-- name: queue_paused
-- Since when a queue is paused; no row when it is not.
SELECT {time(paused_at)} FROM {t}queues WHERE name = :queue AND paused_at IS NOT NULL;
