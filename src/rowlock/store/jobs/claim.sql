-- Claim jobs without a source, and make due jobs claimable; the statements are in the order of claim.py. Jobs with a
-- source, and the jobs without one that take turns with them, are claimed in sources/claim.sql; workers that call SQL
-- functions use schema/postgres/functions/claim.sql.
--
-- Claim order is priority, then id. A lane is one range of the claim index: the ready jobs of one queue and one task
-- between two priorities. Because it reads lane by lane, a worker never reads jobs of tasks that it does not know.

-- part: claimed
-- The columns of core.job.Claimed in its order, without the token and the worker, which the caller knows. The last
-- column is how many seconds the job has been due. Ids are cast to text, because decoding the driver's UUID type costs
-- more than all other columns together.
CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -{seconds_until(run_after)}

-- part: claiming
-- SQLite: the columns of `claimed`, read from a row `front` that the next statement will claim, with the values that
-- this claim will write. Ids are text already.
front.id, front.task, front.queue, front.priority, front.args, front.owner, front.source, :epoch, front.batch_id,
       front.unique_mode, front.attempt + 1, front.max_attempts, front.releases, front.losses, front.convictions,
       front.losses_in_row, front.probation, front.sigterms_in_row, front.disconnects_in_row, front.backoff,
       front.timeout_seconds, front.on_success, front.on_dead, front.on_lost, front.cancel_requested_at IS NOT NULL,
       front.traceparent, -{seconds_until(front.run_after)}

-- part: leased
-- What every claim writes to a job's row. Each statement adds the start of the attempt as locked_at and started_at. A
-- bridge claims under the worker name `redis-unread` (core/redis_request.py: UNREAD).
state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = :token, locked_by = :worker,
    published = CASE WHEN :worker = 'redis-unread' THEN 'unread' END,
    heartbeat_at = {now}, lease_expires_at = {after(:lease)}, updated_at = {now}

-- part: lanes
-- The lanes to claim from. `most` limits how many jobs are read from one lane.
{rows:lane(queue text, task text, low_priority int, low_id uuid, high_priority int, most int)}

-- part: not_paused
-- The queue of `lane` is not paused.
NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)

-- part: next_of_lane
-- The ready jobs `j` of `lane` that have no source, in claim order: one range of the claim index.
WHERE j.ready
  AND j.source IS NULL
  AND j.queue = lane.queue
  AND j.task = lane.task
  AND (j.priority, j.id) > (lane.low_priority, lane.low_id)
  AND j.priority < lane.high_priority
  AND (j.expires_at IS NULL OR j.expires_at > {now})
ORDER BY j.priority, j.id

-- part: picking
-- PostgreSQL: lock the best :n ready jobs of the given lanes, as `picked`. The bridge's `publish` uses this part too.
lane AS (
    SELECT lane.* FROM {part:lanes} WHERE {part:not_paused}
), found AS MATERIALIZED (
    -- Lock the first jobs of each lane, at most `most` of them: locking :n rows in each of fifty deep lanes would cost
    -- fifty times as much. MATERIALIZED, because a second run of this query would lock more rows.
    SELECT front.id, front.priority, front.unique_mode, front.nth = least(lane.most, :n) AS may_have_more
    FROM lane CROSS JOIN LATERAL (
        SELECT locked.id, locked.priority, locked.unique_mode, row_number() OVER () AS nth
        FROM (
            SELECT j.id, j.priority, j.unique_mode
            FROM rowlock.jobs_live j
            {part:next_of_lane}
            LIMIT least(lane.most, :n)
            FOR UPDATE SKIP LOCKED
        ) locked
    ) front
), horizon AS (
    -- The claim order is known only up to here. If a lane was not read to its end, its unread jobs come after the last
    -- one read, and may come before jobs that were read from other lanes.
    SELECT priority, id FROM found WHERE may_have_more ORDER BY priority, id LIMIT 1
), picked AS MATERIALIZED (
    -- The lanes merged, up to the horizon.
    SELECT found.id, found.unique_mode
    FROM found LEFT JOIN horizon ON TRUE
    WHERE horizon.id IS NULL OR (found.priority, found.id) <= (horizon.priority, horizon.id)
    ORDER BY found.priority, found.id
    LIMIT :n
), let_go AS (
    -- Release the keys that hold only while their job is queued.
    DELETE FROM rowlock.job_keys
    WHERE mode = 'while_queued' AND job_id = ANY(ARRAY(SELECT id FROM picked WHERE unique_mode = 'while_queued'))
)

-- name: claim [postgres]
-- Claim up to :n ready jobs without a source from the given lanes, under one new token.
WITH {part:picking}
UPDATE rowlock.jobs_live j
SET {part:leased}, locked_at = {now}, started_at = {now}
-- = ANY(ARRAY) forces an index scan, however wrong the statistics are. `ready` is checked again, because another worker
-- may have claimed the row between this statement's snapshot and its lock.
WHERE j.id = ANY(ARRAY(SELECT id FROM picked)) AND j.ready
RETURNING {part:claimed};

-- name: front [sqlite]
-- The first :n ready jobs of the given lanes, with the values that they will have once claimed. `claim` updates them
-- next, under the same writer lock: two statements, because UPDATE … RETURNING costs twice as much. SQLite has no
-- LATERAL, so a correlated IN with LIMIT reads one index range per lane.
SELECT {part:claiming}, front.rowid
FROM {part:lanes}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_lane}
    LIMIT :n)
WHERE {part:not_paused}
ORDER BY front.priority, front.id
LIMIT :n;

-- name: front_merged [sqlite]
-- `front` for many lanes: each lane is read only up to the largest `most`. If every `most` is at least :n, `front` is cheaper.
WITH lane AS MATERIALIZED (
    SELECT lane.* FROM {part:lanes} WHERE {part:not_paused}
), depth AS MATERIALIZED (
    -- How many jobs to read from each lane. LIMIT can't refer to a lane's own `most` here, so all use the largest.
    SELECT min(:n, max(most)) AS n FROM lane
), horizon AS MATERIALIZED (
    -- The claim order is known only up to here, as in `picking`.
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
SELECT {part:claiming}, front.rowid
FROM lane CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_lane}
    LIMIT (SELECT n FROM depth))
WHERE NOT EXISTS (SELECT 1 FROM horizon WHERE (front.priority, front.id) > (horizon.priority, horizon.id))
ORDER BY front.priority, front.id
LIMIT :n;

-- name: claim [sqlite]
-- Claim the jobs that `front`, `front_merged` or `front_turns` has read, by rowid, under one new token. The writer lock
-- has kept them unchanged. For jobs with a source, :epoch is the epoch of their source's breaker and :at the time when the
-- limits of the sources were read.
UPDATE rowlock_jobs_live
SET {part:leased}, locked_at = coalesce(:at, {now}), started_at = coalesce(:at, {now}), source_epoch = :epoch
WHERE rowid IN (SELECT value FROM json_each(:front)) AND ready;

-- name: promote_these
-- Make these jobs claimable if they are due and no worker has promoted them yet.
UPDATE {t}jobs_live SET ready = TRUE
WHERE id {in:asked(id uuid)} AND NOT ready AND state <> 'running' AND run_after <= {now};

-- name: claimable
-- Lock one job if it may be claimed now, even ahead of jobs that come first in claim order. Jobs with a source are
-- never claimed out of turn.
SELECT CAST(j.id AS text) AS id, {now} AS at
FROM {t}jobs_live j
WHERE j.id = :job_id AND j.ready AND j.source IS NULL AND (j.expires_at IS NULL OR j.expires_at > {now})
  AND NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = j.queue AND q.paused_at IS NOT NULL)
FOR UPDATE OF j SKIP LOCKED;

-- name: claim_picked [postgres]
-- Claim these jobs, which the caller has locked, and return them. :at is the time when the gates were read.
UPDATE rowlock.jobs_live
SET {part:leased}, locked_at = :at, started_at = :at, source_epoch = :epoch
WHERE id {in:picked(id uuid)} AND ready
RETURNING {part:claimed};

-- name: claim_picked [sqlite]
-- Claim these jobs. `read_picked` reads the rows afterwards, which costs half as much as RETURNING.
UPDATE rowlock_jobs_live
SET {part:leased}, locked_at = :at, started_at = :at, source_epoch = :epoch
WHERE id {in:picked(id uuid)} AND ready;

-- name: read_picked [sqlite]
-- The jobs that `claim_picked` has claimed.
SELECT {part:claimed}
FROM rowlock_jobs_live
WHERE id IN (SELECT picked.id FROM {rows:picked(id uuid)}) AND state = 'running';

-- name: adopt
-- Find the jobs of a claim whose reply was lost, by the claim's token.
SELECT {part:claimed}
FROM {t}jobs_live
WHERE state = 'running' AND locked_by = :worker AND lease_token = :token;

-- part: due
-- The next :n jobs that are due but not claimable yet, longest due first.
{t}jobs_live j
        WHERE NOT ready AND state <> 'running' AND run_after <= {now} AND {part:not_aside}
        ORDER BY run_after
        LIMIT :n

-- part: next_due_in
-- The seconds until the next job is due.
(
    SELECT {seconds_until(run_after)} FROM {t}jobs_live
    WHERE NOT ready AND state <> 'running' AND run_after > {now}
    ORDER BY run_after
    LIMIT 1)

-- name: promote [postgres]
-- Make due jobs claimable; returns their number and the seconds until the next job is due. One statement, because
-- every idle worker repeats it.
WITH promoted AS (
    UPDATE rowlock.jobs_live SET ready = TRUE, updated_at = {now}
    WHERE id IN (
        SELECT id FROM {part:due}
        FOR UPDATE SKIP LOCKED)
    RETURNING id
)
SELECT (SELECT count(*) FROM promoted) AS promoted, {part:next_due_in} AS seconds;

-- name: promote [sqlite]
-- Make due jobs claimable.
UPDATE rowlock_jobs_live SET ready = TRUE, updated_at = {now}
WHERE id IN (SELECT id FROM {part:due});

-- name: promoted [sqlite]
-- How many jobs `promote` has just made claimable, and the seconds until the next job is due.
SELECT changes() AS promoted, {part:next_due_in} AS seconds;

-- name: peek
-- Whether a job of these lanes is ready, and the seconds until the next job is due. Idle workers repeat it.
SELECT EXISTS (
    SELECT 1
    FROM {rows:lane(queue text, task text)}
    WHERE {part:not_paused}
      AND coalesce(
          -- Each sub-select sorts by its index, so each is one probe.
          (SELECT j.id FROM {t}jobs_live j
           WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
             AND (j.expires_at IS NULL OR j.expires_at > {now})
           ORDER BY j.priority, j.id LIMIT 1),
          (SELECT j.id FROM {t}jobs_live j
           WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
             AND (j.expires_at IS NULL OR j.expires_at > {now})
           ORDER BY j.priority, j.source, j.id LIMIT 1)) IS NOT NULL) AS ready, (
    SELECT {seconds_until(run_after)} FROM {t}jobs_live j
    WHERE NOT ready AND state <> 'running' AND {part:not_aside}
    ORDER BY run_after
    LIMIT 1) AS seconds;

-- name: due_ids
-- The jobs that `promote` would make claimable next.
SELECT CAST(id AS text) AS id FROM {part:due};

-- name: ready_ids
-- Ready jobs of these lanes after :id, with or without a source.
SELECT CAST(j.id AS text) AS id
FROM {t}jobs_live j JOIN {rows:lane(queue text, task text)} ON j.queue = lane.queue AND j.task = lane.task
WHERE j.ready AND j.id > :id
ORDER BY j.id
LIMIT :n;

-- name: lock_ready
-- Lock the ready ones of these jobs, skipping those that another transaction has locked.
SELECT CAST(j.id AS text) AS id
FROM {t}jobs_live j
WHERE j.id {in:picked(id uuid)} AND j.ready
FOR UPDATE SKIP LOCKED;

-- name: work_left
-- One job of these lanes that is running or due, if any.
SELECT j.id
FROM {t}jobs_live j JOIN {rows:lane(queue text, task text)} ON j.queue = lane.queue AND j.task = lane.task
WHERE (j.ready OR j.state = 'running' OR j.run_after <= {now}) AND {part:not_aside}
LIMIT 1;
