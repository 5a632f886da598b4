-- Leases of running jobs, in the order of leases.py. Batches of ids are joined by CROSS JOIN, which SQLite never
-- reorders: it reads the batch first, then one row of the table for each id.

-- name: beat
-- Renew leases. Locked rows are skipped, because waiting for one would delay the heartbeats of all other jobs. The
-- sweeper skips locked rows as well.
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
-- Renew one lease whose row another transaction has locked. This statement queues for the lock, so it gets the row
-- before a sweeper does, which skips locked rows.
UPDATE {t}jobs_live
SET heartbeat_at = {now}, lease_expires_at = {after(:lease)}
WHERE id = :id AND lease_token = :token AND state = 'running'
RETURNING id;

-- name: held
-- Those of these leases that still hold, and whether a cancel was requested. Takes no locks.
SELECT j.id, j.cancel_requested_at IS NOT NULL AS cancel_requested
FROM {rows:mine(id uuid, token uuid)}
CROSS JOIN {t}jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running';

-- name: progress
-- Store the latest progress of running jobs whose leases still hold. The number never decreases within an attempt; a
-- report without a number keeps it.
UPDATE {t}jobs_live
SET progress = CASE WHEN reported.progress >= coalesce({t}jobs_live.progress, 0) THEN reported.progress
                    ELSE {t}jobs_live.progress END,
    phase = reported.phase, message = reported.message, updated_at = {now}
FROM {rows:reported(id uuid, token uuid, progress int, phase text, message text)}
-- {computed} stops SQLite from walking the index of running jobs and parsing the batch again for each of them.
WHERE {t}jobs_live.id = reported.id AND lease_token = reported.token AND {computed(state)} = 'running'
RETURNING {t}jobs_live.id;

-- name: set_result_file
-- Store the result file of a running attempt. `requeue` clears it again.
UPDATE {t}jobs_live
SET result_uri = :uri, result_checksum = :checksum, updated_at = {now}
WHERE id = :id AND lease_token = :token AND state = 'running'
RETURNING id;

-- part: unread
-- The job `j` was published to Redis, but no worker there has sent a message yet (core/redis_request.py). In the table
-- it is running; users see it as queued.
coalesce(j.published = 'unread', FALSE)

-- part: not_aside
-- The job `j` is not set aside, or may be tried again. A scalar sub-select is one index probe for each row; NOT EXISTS
-- may be planned as a join that reads the whole table.
(SELECT 1 FROM {t}set_aside a WHERE a.id = j.id AND coalesce(a.again_at > {now}, TRUE)) IS NULL

-- part: server_is_up [postgres]
-- The server has been up for :guard seconds. If its start time is in the future, the clock was ahead then and has been
-- set back since: the uptime is unknown, and waiting for the start time to pass could take hours, so the server counts
-- as up. (The sweeper itself has been connected for :guard seconds by then.)
(CAST(:guard AS double precision) <= 0 OR pg_postmaster_start_time() > {now}
     OR {now} > pg_postmaster_start_time() + (:guard) * interval '1 second')

-- part: server_is_up [sqlite]
-- SQLite has no server that could have been down.
(:guard IS NOT NULL)

-- name: expired
-- Expired leases, judged by `lease_expires_at` and the database's clock alone. After an outage of the server all leases
-- look expired, so none is returned until the server has been up for :guard seconds.
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
-- own clock, which the sweeper watches for jumps. One statement, not three transactions: most sweeps find nothing.
SELECT (
    -- ORDER BY, here and below, keeps the plan on the index; without it, the whole table may be read.
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
