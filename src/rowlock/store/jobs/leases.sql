-- Running leases, in the order of leases.py. Batches of ids are joined by CROSS JOIN, which SQLite never
-- reorders: it reads the batch first, and then one row of the table for each id.

-- name: beat
-- Renew leases. A row that another transaction has locked is skipped, because waiting for it would delay the heartbeats
-- of all other jobs; the sweeper skips locked rows as well.
UPDATE {t}jobs_live
SET heartbeat_at = {now}, lease_expires_at = {after(:lease)}
WHERE id IN (
    SELECT j.id
    FROM {rows:mine(id uuid, token uuid)}
    CROSS JOIN {t}jobs_live j
    WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED)
RETURNING id;

-- name: beat_waiting
-- Renew one lease whose row another transaction has locked. It queues for the lock, and so gets the row before a
-- sweeper, which skips locked rows.
UPDATE {t}jobs_live
SET heartbeat_at = {now}, lease_expires_at = {after(:lease)}
WHERE id = :id AND lease_token = :token AND state = 'running'
RETURNING id;

-- name: held
-- The jobs that are still held under these leases, and whether their cancel was requested. Locks nothing.
SELECT j.id, j.cancel_requested_at IS NOT NULL AS cancel_requested
FROM {rows:mine(id uuid, token uuid)}
CROSS JOIN {t}jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running';

-- name: progress
-- The latest progress of running jobs, if they are still held under these leases. The number never goes back within an
-- attempt, and a report without a number keeps it.
UPDATE {t}jobs_live
SET progress = CASE WHEN told.progress >= coalesce({t}jobs_live.progress, 0) THEN told.progress
                    ELSE {t}jobs_live.progress END,
    phase = told.phase, message = told.message, updated_at = {now}
FROM {rows:told(id uuid, token uuid, progress int, phase text, message text)}
-- {computed}, so that SQLite does not walk the index of running jobs and parse the batch again for each of them.
WHERE {t}jobs_live.id = told.id AND lease_token = told.token AND {computed(state)} = 'running'
RETURNING {t}jobs_live.id;

-- name: set_result_file
-- Store the result file of a running attempt. `requeue` clears it.
UPDATE {t}jobs_live
SET result_uri = :uri, result_checksum = :checksum, updated_at = {now}
WHERE id = :id AND lease_token = :token AND state = 'running'
RETURNING id;

-- part: unread
-- The job `j` was published to Redis, and its worker has sent no message yet (core/redis_request.py). It is running in
-- its table, and is shown as queued.
coalesce(j.published = 'unread', FALSE)

-- part: not_aside
-- The job `j` is not set aside, or it is time to try it again. A scalar sub-select is one index probe for each row; NOT
-- EXISTS may become a join that reads the whole table.
(SELECT 1 FROM {t}set_aside a WHERE a.id = j.id AND coalesce(a.again_at > {now}, TRUE)) IS NULL

-- part: server_is_up [postgres]
-- The server has been up for :guard seconds. A start in the future was written by a clock that was ahead and was set
-- back: then nobody knows how long the server has been up, and waiting for that moment could take hours. The sweeper
-- itself has been connected for :guard seconds by then.
(CAST(:guard AS double precision) <= 0 OR pg_postmaster_start_time() > {now}
     OR {now} > pg_postmaster_start_time() + (:guard) * interval '1 second')

-- part: server_is_up [sqlite]
-- There is no server that could have been away.
(:guard IS NOT NULL)

-- name: expired
-- Leases that have expired, by `lease_expires_at` and the database's clock alone. After an outage of the server all
-- leases look expired, so none is returned before the server has been up for :guard seconds.
SELECT {part:claimed}, lease_token, locked_by
FROM {t}jobs_live j
WHERE state = 'running' AND lease_expires_at < {now} AND {part:server_is_up} AND {part:not_aside}
ORDER BY id
LIMIT :n
FOR UPDATE SKIP LOCKED;

-- part: own_clock [postgres]
-- The database's own clock in seconds, even where a test has set another time.
date_part('epoch', statement_timestamp())

-- part: own_clock [sqlite]
-- The database's own clock in seconds, even where a test has set another time.
unixepoch('subsec')

-- name: to_sweep
-- Whether there are expired leases, waiting jobs whose `expires_at` has passed, and open batches; and the database's
-- own clock, in which the sweeper looks for a jump. One statement instead of three transactions, because most sweeps
-- find nothing.
SELECT (
    -- ORDER BY, here and below, keeps the plan on the index: without it, the plan may read the whole table.
    SELECT 1 FROM {t}jobs_live j
    WHERE state = 'running' AND lease_expires_at < {now} AND {part:not_aside}
    ORDER BY id
    LIMIT 1
) IS NOT NULL AS expired, (
    SELECT 1 FROM {t}jobs_live j
    WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at <= {now} AND {part:not_aside}
    ORDER BY expires_at
    LIMIT 1
) IS NOT NULL AS overdue, (
    SELECT 1 FROM {t}batches WHERE finished_at IS NULL ORDER BY id LIMIT 1
) IS NOT NULL AS batched, {part:own_clock} AS clock;
