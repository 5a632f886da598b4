-- What people and programs ask about jobs, in the order of store/reads.py and store/explain.py.
--
-- Lists and counts have four statements each, one for each way into a million finished rows: by id, by state (dead and
-- cancelled jobs have an index, and so have running ones), by owner, and by owner and state. A branch of a state that was
-- not asked for starts with a FALSE parameter and costs nothing.

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

-- name: result_files
-- Which of these jobs there are, and the file that each names as its result.
SELECT CAST(j.id AS text) AS id, j.state, j.result_uri
FROM {t}jobs j
WHERE j.id {part:one_of(asked)};

-- name: read_attempts
-- The attempts of a job that did not succeed, in order.
SELECT job_id, attempt, outcome, worker, {time(started_at)} AS started_at, {time(finished_at)} AS finished_at,
       error_code, error_message, traceback
FROM {t}attempts
WHERE job_id = :job_id
ORDER BY attempt;

-- part: running
-- The job is running, and running jobs were asked for. One that was published to Redis and of which nothing was heard is
-- shown as queued, here and below (core/remote.py).
:running AND j.state = 'running' AND j.locked_by IS DISTINCT FROM 'redis-unread'

-- part: waiting
-- The job is queued or retryable, and that state was asked for.
(:queued OR :retryable)
      AND (:queued AND (j.state = 'queued' OR j.state = 'running' AND j.locked_by = 'redis-unread')
           OR :retryable AND j.state = 'retryable')

-- part: succeeded
-- The job has succeeded, and such jobs were asked for.
:succeeded AND j.state = 'succeeded'

-- part: dead
-- The job is dead, and dead jobs were asked for. The second comparison is the condition of the index jobs_finished_trouble.
:dead AND j.state = 'dead' AND j.state <> 'succeeded'

-- part: cancelled
-- The job is cancelled, and cancelled jobs were asked for. The second comparison is as in `dead`.
:cancelled AND j.state = 'cancelled' AND j.state <> 'succeeded'

-- part: live_state
-- The live job is in a state that is TRUE. The first condition names no column: if it is false, no row is read.
(:queued OR :running OR :retryable)
      AND CASE WHEN j.state = 'queued' OR j.locked_by = 'redis-unread' THEN CAST(:queued AS boolean)
                       WHEN j.state = 'running' THEN CAST(:running AS boolean)
                       ELSE CAST(:retryable AS boolean) END

-- part: finished_state
-- The finished job is in a state that is TRUE. The first condition names no column: if it is false, no row is read.
(:succeeded OR :dead OR :cancelled)
      AND CASE j.state WHEN 'succeeded' THEN CAST(:succeeded AS boolean) WHEN 'dead' THEN CAST(:dead AS boolean)
                       ELSE CAST(:cancelled AS boolean) END

-- part: page_all
-- The first :n jobs past :id, whatever their state.
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j WHERE j.id < :id AND {filter} ORDER BY j.id DESC LIMIT :n) live
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j WHERE j.id < :id AND {filter} ORDER BY j.id DESC LIMIT :n) finished
ORDER BY id DESC
LIMIT :n

-- part: page_in_states
-- The first :n jobs past :id in the states that are TRUE.
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j
    WHERE {part:running} AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) running
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j
    WHERE {part:waiting} AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) waiting
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE {part:succeeded} AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) succeeded
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE {part:dead} AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) dead
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE {part:cancelled} AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) cancelled
ORDER BY id DESC
LIMIT :n

-- part: page_of_owner
-- The first :n jobs of an owner past :id in the states that are TRUE.
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j
    WHERE j.owner = :owner AND j.id < :id AND {filter} AND {part:live_state}
    ORDER BY j.id DESC LIMIT :n) live
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE j.owner = :owner AND j.id < :id AND {filter} AND {part:finished_state}
    ORDER BY j.id DESC LIMIT :n) finished
ORDER BY id DESC
LIMIT :n

-- part: page_of_owner_in_trouble
-- The first :n jobs of an owner past :id that run, are dead or are cancelled, if that state is TRUE.
SELECT id FROM (
    SELECT j.id FROM {t}jobs_live j
    WHERE {part:running} AND j.owner = :owner AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) running
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE {part:dead} AND j.owner = :owner AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) dead
UNION ALL
SELECT id FROM (
    SELECT j.id FROM {t}jobs_finished j
    WHERE {part:cancelled} AND j.owner = :owner AND j.id < :id AND {filter}
    ORDER BY j.id DESC LIMIT :n) cancelled
ORDER BY id DESC
LIMIT :n

-- name: list_all
-- The newest jobs before :id, whatever their state.
{part:page_all};

-- name: list_in_states
-- The newest jobs before :id in the states that are TRUE.
{part:page_in_states};

-- name: list_of_owner
-- The newest jobs of an owner before :id in the states that are TRUE.
{part:page_of_owner};

-- name: list_of_owner_in_trouble
-- The newest jobs of an owner before :id that run, are dead or are cancelled, if that state is TRUE.
{part:page_of_owner_in_trouble};

-- name: count_all
-- How many jobs there are, up to :n.
SELECT count(*) AS number FROM (
    SELECT 1 FROM {t}jobs_live j WHERE {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j WHERE {filter}
    LIMIT :n) found;

-- name: count_in_states
-- How many jobs are in the states that are TRUE, up to :n.
SELECT count(*) AS number FROM (
    SELECT 1 FROM {t}jobs_live j WHERE {part:running} AND {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_live j WHERE {part:waiting} AND {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j WHERE {part:succeeded} AND {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j WHERE {part:dead} AND {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j WHERE {part:cancelled} AND {filter}
    LIMIT :n) found;

-- name: count_of_owner
-- How many jobs of an owner are in the states that are TRUE, up to :n.
SELECT count(*) AS number FROM (
    SELECT 1 FROM {t}jobs_live j WHERE j.owner = :owner AND {filter} AND {part:live_state}
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j WHERE j.owner = :owner AND {filter} AND {part:finished_state}
    LIMIT :n) found;

-- name: count_of_owner_in_trouble
-- How many jobs of an owner run, are dead or are cancelled, if that state is TRUE, up to :n.
SELECT count(*) AS number FROM (
    SELECT 1 FROM {t}jobs_live j WHERE {part:running} AND j.owner = :owner AND {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j WHERE {part:dead} AND j.owner = :owner AND {filter}
    UNION ALL
    SELECT 1 FROM {t}jobs_finished j WHERE {part:cancelled} AND j.owner = :owner AND {filter}
    LIMIT :n) found;

-- name: live_workers
-- The workers believed alive: what they serve, and how much of it at a time.
SELECT id, queues, tasks, pool_size, running FROM {t}workers WHERE expires_at > {now} ORDER BY id;

-- part: ready_lanes
-- The first ready job of each (queue, task, priority), as `plain` without a source and as `sourced` with one. Loose scans
-- of the two claim indexes, a few probes for each, whatever the number of jobs.
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
        -- Past the last possible id, because SQLite walks over the rows that equal a shorter key (210 heads in a
        -- million rows: 2 ms; 130 ms with the shorter key, 2.3 s without {computed} as well).
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
    -- The next priority of the task, else the next task of the queue, else the next queue.
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
-- For each (queue, task, priority) with ready jobs, without and with a source: how long its first one has been
-- claimable.
WITH RECURSIVE {part:ready_lanes}
SELECT queue, task, -{seconds_until(run_after)} AS age FROM (
    SELECT * FROM plain UNION ALL SELECT * FROM sourced) heads
LIMIT :n;

-- part: first_ready(columns | source | order | most)
-- The first jobs of `lane` that are ready. ORDER BY keeps it on the claim indexes: LIMIT alone may turn into a scan of
-- the table.
SELECT {columns} FROM {t}jobs_live j
            WHERE j.ready AND j.source {source} AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY {order} LIMIT {most}

-- part: lane_size(source | order)
-- What lane_sizes answers, for the jobs without a source or for those with one.
SELECT lane.queue, lane.task,
       (SELECT count(*) FROM (
            {part:first_ready(1 | {source} | {order} | :n)}) found) AS ready,
       (SELECT count(*) FROM (
            {part:first_ready(j.state | {source} | {order} | :looks)}) found
        WHERE state = 'retryable') AS retries,
       (SELECT -{seconds_until(min(found.run_after))} FROM (
            {part:first_ready(j.run_after | {source} | {order} | :looks)}) found) AS age
FROM {rows:lane(queue text, task text)}

-- name: lane_sizes
-- For each lane: how many jobs are ready, up to :n; and of its first :looks, how many are retries and the longest
-- time one has been claimable; each without and with a source. The first is read off the index, the others need the
-- rows.
{part:lane_size(IS NULL | j.priority, j.id)}
UNION ALL
{part:lane_size(IS NOT NULL | j.priority, j.source, j.id)};

-- name: waiting_lanes
-- What waits for its time, among the :n that are due first.
SELECT queue, task, state, count(*) AS number
FROM (
    SELECT j.queue, j.task, j.state
    FROM {t}jobs_live j
    WHERE NOT j.ready AND j.state <> 'running'
    ORDER BY j.run_after
    LIMIT :n) due
GROUP BY queue, task, state;

-- name: never_due [postgres]
-- Jobs that wait for a time after 2199.
SELECT CAST(id AS text) AS id, task FROM rowlock.jobs_live
WHERE NOT ready AND state <> 'running' AND run_after >= '2200-01-01Z'
ORDER BY run_after DESC
LIMIT :n;

-- name: never_due [sqlite]
-- Jobs that wait for a time after 2199, or for what is no time.
SELECT CAST(id AS text) AS id, task FROM rowlock_jobs_live
WHERE NOT ready AND state <> 'running' AND run_after >= 7258118400
ORDER BY run_after DESC
LIMIT :n;

-- name: running_lanes
-- Running jobs of each queue, and for how long the longest has run. They are never more than there are slots. Apart, those
-- that wait in a Redis stream.
SELECT queue, coalesce(locked_by = 'redis-unread', FALSE) AS unread, count(*) AS number, -{seconds_until(min(locked_at))} AS longest
FROM {t}jobs_live
WHERE state = 'running' GROUP BY queue, coalesce(locked_by = 'redis-unread', FALSE);

-- name: finished_lately [postgres]
-- Jobs that finished in the last -:ago seconds, by state and task, and how many of them ran for how long together, among
-- the :n newest of each state. Newest by id, the nearest thing to an order of finishing that has an index.
SELECT state, task, count(*) AS number, count(started_at) FILTER (WHERE state <> 'cancelled') AS ran,
       sum({seconds_until(finished_at)} - {seconds_until(started_at)}) FILTER (WHERE state <> 'cancelled') AS seconds
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
SELECT state, task, count(*) AS number, count(started_at) FILTER (WHERE state <> 'cancelled') AS ran,
       sum(finished_at - started_at) FILTER (WHERE state <> 'cancelled') AS seconds
FROM (
    SELECT j.state, j.task, j.started_at, j.finished_at FROM rowlock_jobs_finished j
    ORDER BY j.rowid DESC LIMIT :n) last
WHERE finished_at > {after(:ago)}
GROUP BY state, task;

-- name: clock
-- The present moment.
SELECT {time({now})} AS now;

-- name: is_ready
-- Whether a job may be claimed now, whatever its time.
SELECT id FROM {t}jobs_live WHERE id = :job_id AND ready;

-- part: jobs_ahead(source | which | order | most)
-- How many jobs of `lane` that may be claimed fit the condition `which`, up to `most`.
(
        SELECT count(*) FROM (
            SELECT 1
            FROM {t}jobs_live j
            WHERE j.ready
              AND j.source {source}
              AND {which}
              AND j.queue = lane.queue
              AND j.task = lane.task
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY {order}
            LIMIT {most}) first)

-- part: plain_ahead(which | most)
-- `jobs_ahead` among the jobs without a source.
{part:jobs_ahead(IS NULL | {which} | j.priority, j.id | {most})}

-- part: sourced_ahead(which | most)
-- `jobs_ahead` among the jobs with a source.
{part:jobs_ahead(IS NOT NULL | {which} | j.priority, j.source, j.id | {most})}

-- part: own_priority
-- A range and not `=`: see find_turns.
j.priority >= :priority AND j.priority <= :priority

-- part: open_lanes
-- The lanes that were given, without those of paused queues.
{rows:lane(queue text, task text)}
    WHERE NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)

-- name: line
-- The jobs before (:priority, :id), a job without a source, in these lanes: older ones without a source, those of sources
-- in better priorities, and whether some of its own priority take turns with it. Each is counted up to :n in each lane. A
-- paused queue has no lane.
SELECT coalesce(sum(ahead.plain), 0) AS same_line, coalesce(sum(ahead.sourced), 0) AS other_lines,
       coalesce(sum(ahead.alike), 0) AS turns
FROM (
    SELECT {part:plain_ahead((j.priority, j.id) < (:priority, :id) | :n)} AS plain,
           {part:sourced_ahead(j.priority < :priority | :n)} AS sourced,
           {part:sourced_ahead({part:own_priority} | 1)} AS alike
    FROM {part:open_lanes}) ahead;

-- name: line_of_source
-- The jobs before (:priority, :id), a job of :source, in these lanes: older ones of its source, all others in better
-- priorities, and whether jobs of its own priority take turns with it: jobs without a source, and jobs of sources whose
-- names come before or after its source's.
SELECT coalesce(sum(ahead.own), 0) AS same_line, coalesce(sum(ahead.plain + ahead.sourced), 0) AS other_lines,
       coalesce(sum(ahead.alike_plain + ahead.alike_before + ahead.alike_after), 0) AS turns
FROM (
    SELECT {part:sourced_ahead({part:own_priority} AND j.source >= :source AND j.source <= :source AND j.id < :id | :n)} AS own,
           {part:plain_ahead(j.priority < :priority | :n)} AS plain,
           {part:sourced_ahead(j.priority < :priority | :n)} AS sourced,
           {part:plain_ahead({part:own_priority} | 1)} AS alike_plain,
           {part:sourced_ahead({part:own_priority} AND j.source < :source | 1)} AS alike_before,
           {part:sourced_ahead({part:own_priority} AND j.source > :source | 1)} AS alike_after
    FROM {part:open_lanes}) ahead;

-- name: queue_paused
-- Since when a queue is paused; no row when it is not.
SELECT {time(paused_at)} AS paused_at FROM {t}queues WHERE name = :queue AND paused_at IS NOT NULL;
