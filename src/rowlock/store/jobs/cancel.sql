-- Cancelling and expiring jobs, in the order of cancel.py.

-- name: overdue
-- Waiting jobs whose `expires_at` has passed. Locked jobs are skipped: the next sweep finds them.
SELECT id FROM {t}jobs_live j
WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at <= {now} AND {part:not_aside}
ORDER BY expires_at
LIMIT :n
FOR UPDATE SKIP LOCKED;

-- name: lock_jobs
-- Lock live jobs for an operator's cancel, in id order. The cancel ends a job at once if it is waiting, or if its
-- worker is behind Redis and can't be asked to stop.
SELECT j.id, j.state = 'running' AS running, j.locked_by, j.published IS NOT NULL AS published
FROM {rows:asked(id uuid)}
CROSS JOIN {t}jobs_live j
WHERE j.id = asked.id
ORDER BY j.id
FOR UPDATE OF j;

-- name: request_cancel
-- Ask a running attempt to stop. Its worker sees the request on a wake-up or at its next heartbeat.
UPDATE {t}jobs_live SET cancel_requested_at = coalesce(cancel_requested_at, {now}), updated_at = {now}
WHERE state = 'running' AND id IN (SELECT asked.id FROM {rows:asked(id uuid)});

-- name: final_states
-- The states of finished jobs.
SELECT id, state FROM {t}jobs_finished WHERE id {in:asked(id uuid)};
