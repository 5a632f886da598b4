-- Claims of jobs without a source, and making due jobs claimable, in the order of store/claim.py.

-- part: lanes
-- The lanes that the caller asks for.
{rows:lane(queue text, task text, low_priority int, low_id uuid, high_priority int, take int)}

-- part: not_paused(lane)
-- The queue of this lane is not paused.
NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = {lane}.queue AND q.paused_at IS NOT NULL)

-- part: next_of_lane
-- Of the jobs `j`, the ready ones of `lane` that have no source, best first: one range of the claim index.
WHERE j.ready
  AND j.source IS NULL
  AND j.queue = lane.queue
  AND j.task = lane.task
  AND (j.priority, j.id) > (lane.low_priority, lane.low_id)
  AND j.priority < lane.high_priority
  AND (j.expires_at IS NULL OR j.expires_at > {now})
ORDER BY j.priority, j.id

-- part: leased(at)
-- What a claim writes into a job's row. Its attempt starts at the moment `at`.
SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = :token, locked_by = :worker,
    locked_at = {at}, heartbeat_at = {now}, lease_expires_at = {after(:lease)},
    started_at = {at}, updated_at = {now}

-- part: picking
-- PostgreSQL: the best :n ready jobs of the given lanes, locked, as `picked`.
lane AS (
    SELECT lane.* FROM {part:lanes} WHERE {part:not_paused(lane)}
), found AS MATERIALIZED (
    -- One index range per lane: a task that this worker does not know is never in the way. Each lane gives no more than
    -- it is likely to be needed for: fifty deep lanes that lock :n rows each would cost fifty times as much.
    -- MATERIALIZED, because a re-run of this query would lock more rows.
    SELECT front.id, front.priority, front.unique_mode, front.nth = least(lane.take, :n) AS may_have_more
    FROM lane CROSS JOIN LATERAL (
        SELECT locked.id, locked.priority, locked.unique_mode, row_number() OVER () AS nth
        FROM (
            SELECT j.id, j.priority, j.unique_mode
            FROM rowlock.jobs_live j
            {part:next_of_lane}
            LIMIT least(lane.take, :n)
            FOR UPDATE SKIP LOCKED
        ) locked
    ) front
), horizon AS (
    -- Behind the end of a lane that may have more, other lanes' jobs are not yet next in order.
    SELECT priority, id FROM found WHERE may_have_more ORDER BY priority, id LIMIT 1
), picked AS MATERIALIZED (
    -- The lanes merged.
    SELECT found.id, found.unique_mode
    FROM found LEFT JOIN horizon ON TRUE
    WHERE horizon.id IS NULL OR (found.priority, found.id) <= (horizon.priority, horizon.id)
    ORDER BY found.priority, found.id
    LIMIT :n
), let_go AS (
    -- Keys that hold only while their job is queued.
    DELETE FROM rowlock.job_keys
    WHERE mode = 'while_queued' AND job_id = ANY(ARRAY(SELECT id FROM picked WHERE unique_mode = 'while_queued'))
)

-- part: claiming
-- PostgreSQL: take the jobs of `picked`.
UPDATE rowlock.jobs_live j
{part:leased({now})}
-- = ANY(ARRAY) keeps an index scan whatever the statistics say; and the state is checked again here,
-- because between the snapshot and the lock the row may have been taken.
WHERE j.id = ANY(ARRAY(SELECT id FROM picked)) AND j.ready

-- name: claim [postgres]
-- Take up to :n ready jobs of the given lanes under one fresh token. Jobs with a source: see sourced_claim.sql.
WITH {part:picking}
{part:claiming}
RETURNING {claimed};

-- name: front [sqlite]
-- The best :n ready jobs of the given lanes, as they will be once claimed. SQLite has no LATERAL; a correlated IN with
-- LIMIT reads the same one index range per lane. Read first and updated then, under the writer lock: RETURNING would
-- cost as much again, and so would the two steps below for lanes that are looked into a little only.
SELECT {claiming}, front.rowid
FROM {part:lanes}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_lane}
    LIMIT :n)
WHERE {part:not_paused(lane)}
ORDER BY front.priority, front.id
LIMIT :n;

-- name: front_merged [sqlite]
-- `front` for many lanes: each lane is read only as far as it is likely to be needed (its `take`).
WITH lane AS MATERIALIZED (
    SELECT lane.* FROM {part:lanes} WHERE {part:not_paused(lane)}
), depth AS MATERIALIZED (
    -- How far to look into each lane: a LIMIT cannot name a lane's own `take` here, so all get the largest one.
    SELECT min(:n, max(take)) AS n FROM lane
), horizon AS MATERIALIZED (
    -- Behind the end of a lane that may have more, other lanes' jobs are not yet next in order.
    SELECT front.priority, front.id
    FROM lane JOIN rowlock_jobs_live front ON front.rowid = (
        SELECT j.rowid
        FROM rowlock_jobs_live j
        {part:next_of_lane}
        LIMIT 1 OFFSET (SELECT n - 1 FROM depth))
    WHERE (SELECT n FROM depth) < :n
    ORDER BY front.priority, front.id
    LIMIT 1
)
SELECT {claiming}, front.rowid
FROM lane CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_lane}
    LIMIT (SELECT n FROM depth))
WHERE NOT EXISTS (SELECT 1 FROM horizon WHERE (front.priority, front.id) > (horizon.priority, horizon.id))
ORDER BY front.priority, front.id
LIMIT :n;

-- name: claim [sqlite]
-- Take the jobs of :front under one fresh token. The writer lock has kept them as they were read.
UPDATE rowlock_jobs_live
{part:leased({now})}
WHERE rowid IN (SELECT value FROM json_each(:front)) AND ready;

-- name: promote_one
-- One job whose time has come, where no worker has noticed yet.
UPDATE {t}jobs_live SET ready = TRUE
WHERE id = :job_id AND NOT ready AND state <> 'running' AND run_after <= {now};

-- name: claimable
-- One job, locked, if it may be claimed now and nothing but its turn is in the way. One with a source is claimed in its
-- turn only.
SELECT CAST(j.id AS text) AS id, {now} AS at
FROM {t}jobs_live j
WHERE j.id = :job_id AND j.ready AND j.source IS NULL AND (j.expires_at IS NULL OR j.expires_at > {now})
  AND {part:not_paused(j)}
{skip_locked(j)};

-- name: adopt
-- The jobs that a claim took although its reply was lost.
SELECT {claimed}
FROM {t}jobs_live
WHERE state = 'running' AND locked_by = :worker AND lease_token = :token;

-- name: promote [postgres]
-- Make due jobs claimable, oldest due first, in a bounded batch; answers how many, and the seconds until the next one
-- is due. One statement, because every idle worker runs it again and again.
WITH promoted AS (
    UPDATE rowlock.jobs_live SET ready = TRUE, updated_at = {now}
    WHERE id IN (
        SELECT id FROM rowlock.jobs_live j
        WHERE NOT ready AND state <> 'running' AND run_after <= {now} AND {not_aside(j.id)}
        ORDER BY run_after
        LIMIT :n
        FOR UPDATE SKIP LOCKED)
    RETURNING id
)
SELECT (SELECT count(*) FROM promoted) AS promoted, (
    SELECT {seconds_until(run_after)} FROM rowlock.jobs_live
    WHERE NOT ready AND state <> 'running' AND run_after > {now}
    ORDER BY run_after
    LIMIT 1) AS seconds;

-- name: promote [sqlite]
-- Make due jobs claimable, oldest due first, in a bounded batch.
UPDATE rowlock_jobs_live SET ready = TRUE, updated_at = {now}
WHERE id IN (
    SELECT id FROM rowlock_jobs_live j
    WHERE NOT ready AND state <> 'running' AND run_after <= {now} AND {not_aside(j.id)}
    ORDER BY run_after
    LIMIT :n);

-- name: promoted [sqlite]
-- What the statement before it did: how many, and the seconds until the next one is due.
SELECT changes() AS promoted, (
    SELECT {seconds_until(run_after)} FROM rowlock_jobs_live
    WHERE NOT ready AND state <> 'running' AND run_after > {now}
    ORDER BY run_after
    LIMIT 1) AS seconds;

-- name: due_ids
-- The jobs that a promotion takes.
SELECT CAST(id AS text) AS id FROM {t}jobs_live j
WHERE NOT ready AND state <> 'running' AND run_after <= {now} AND {not_aside(j.id)}
ORDER BY run_after
LIMIT :n;

-- name: ready_ids
-- Claimable jobs of these lanes after :id, with a source or without one.
SELECT CAST(j.id AS text) AS id
FROM {t}jobs_live j JOIN {rows:lane(queue text, task text)} ON j.queue = lane.queue AND j.task = lane.task
WHERE j.ready AND j.id > :id
ORDER BY j.id
LIMIT :n;

-- name: lock_ready
-- Of these jobs, those that are claimable and that nobody else has locked.
SELECT CAST(j.id AS text) AS id
FROM {t}jobs_live j
WHERE j.id {part:one_of(picked)} AND j.ready
{skip_locked()};

-- name: work_left
-- Something in these lanes that runs or is due, if there is anything.
SELECT j.id
FROM {t}jobs_live j JOIN {rows:lane(queue text, task text)} ON j.queue = lane.queue AND j.task = lane.task
WHERE (j.ready OR j.state = 'running' OR j.run_after <= {now}) AND {not_aside(j.id)}
LIMIT 1;
