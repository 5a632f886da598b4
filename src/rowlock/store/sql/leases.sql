-- Running leases, in the order of store/leases.py.
-- A batch is joined as `FROM {rows} CROSS JOIN jobs`: SQLite then keeps that order, one index probe for each row of the
-- batch, instead of reading the batch again for each running job.

-- name: beat
-- Renew leases. A row that somebody has locked is skipped, not waited for: one user's row lock must not
-- stop the beats of the others (and the sweeper skips it too).
UPDATE {t}jobs_live
SET heartbeat_at = {now}, lease_expires_at = {after(:lease)}
WHERE id IN (
    SELECT j.id
    FROM {rows:mine(id uuid, token uuid)}
    CROSS JOIN {t}jobs_live j
    WHERE {part:fence(mine)}
    ORDER BY j.id
    {skip_locked(j)})
RETURNING id;

-- name: beat_waiting
-- Renew one lease whose row somebody has locked: in line for the lock, and so before any sweeper, which skips it.
UPDATE {t}jobs_live
SET heartbeat_at = {now}, lease_expires_at = {after(:lease)}
WHERE id = :id AND lease_token = :token AND state = 'running'
RETURNING id;

-- name: held
-- Of these leases, the ones that still hold, and whether a cancel was asked for. Reads past row locks.
SELECT j.id, j.cancel_requested_at IS NOT NULL AS cancel_requested
FROM {rows:mine(id uuid, token uuid)}
CROSS JOIN {t}jobs_live j
WHERE {part:fence(mine)};

-- name: progress
-- Latest progress of running jobs, under the fence. The number never goes back within an attempt, and a report without a
-- number keeps it.
UPDATE {t}jobs_live
SET progress = CASE WHEN told.progress >= coalesce({t}jobs_live.progress, 0) THEN told.progress
                    ELSE {t}jobs_live.progress END,
    phase = told.phase, message = told.message, updated_at = {now}
FROM {rows:told(id uuid, token uuid, progress int, phase text, message text)}
-- Computed, so that SQLite does not walk the index of running jobs and read the batch again for each of them.
WHERE {t}jobs_live.id = told.id AND lease_token = told.token AND {computed(state)} = 'running'
RETURNING {t}jobs_live.id;

-- name: set_result_file
-- The file that a running attempt has made. What puts the job back in the queue forgets it.
UPDATE {t}jobs_live
SET result_uri = :uri, result_checksum = :checksum, updated_at = {now}
WHERE id = :id AND lease_token = :token AND state = 'running'
RETURNING id;

-- name: expired
-- Leases that ran out, by their own lease_expires_at and the database's clock only. After a restart of
-- the server every lease looks expired, so nothing is taken before it has been up for :guard seconds. With :job_id, that
-- one alone.
SELECT {claimed}, lease_token, locked_by
FROM {t}jobs_live j
WHERE state = 'running' AND lease_expires_at < {now} AND {up_for(:guard)} AND {not_aside(j.id)}
  AND CASE WHEN CAST(:job_id AS text) IS NULL THEN TRUE ELSE CAST(j.id AS text) = CAST(:job_id AS text) END
ORDER BY id
LIMIT :n
{skip_locked()};

-- name: to_sweep
-- Whether there are leases that ran out, waiting jobs whose latest start has passed, and batches that are not over: one
-- look instead of three transactions, for most rounds find nothing.
SELECT (
    -- The order, here and below, is that of the index: without it, a plan may read the whole table.
    SELECT 1 FROM {t}jobs_live j
    WHERE state = 'running' AND lease_expires_at < {now} AND {not_aside(j.id)}
    ORDER BY id
    LIMIT 1
) IS NOT NULL AS expired, (
    SELECT 1 FROM {t}jobs_live j
    WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at <= {now} AND {not_aside(j.id)}
    ORDER BY expires_at
    LIMIT 1
) IS NOT NULL AS overdue, (
    SELECT 1 FROM {t}batches WHERE finished_at IS NULL ORDER BY id LIMIT 1
) IS NOT NULL AS batched;
