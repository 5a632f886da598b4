-- Corrections of times that the database's clock wrote while it was ahead, in the order of clock_repair.py. For sources
-- see put_sources_right in sources/sources.sql, for schedules put_right in schedules/fire.sql.

-- name: put_leases_right
-- Leases whose last heartbeat is in the future: each starts again now, with its whole length. A living worker renews
-- its leases before they expire; the leases of dead workers expire.
UPDATE {t}jobs_live
SET lease_expires_at = {after({seconds_until(lease_expires_at)} - {seconds_until(heartbeat_at)})}, heartbeat_at = {now},
    locked_at = CASE WHEN locked_at > {now} THEN {now} ELSE locked_at END,
    started_at = CASE WHEN started_at > {now} THEN {now} ELSE started_at END
WHERE id IN (
    SELECT j.id FROM {t}jobs_live j
    WHERE j.state = 'running' AND j.heartbeat_at > {after(1)}
    ORDER BY j.id
    LIMIT :n
    FOR UPDATE OF j SKIP LOCKED)
RETURNING id;

-- name: put_waiting_right
-- Retried and released jobs whose delay was counted from a time in the future, among the :n waiting jobs that are due
-- first. The start time of a job that has never run may be the user's choice (run_after), and stays.
UPDATE {t}jobs_live
SET run_after = {after({seconds_until(run_after)} - {seconds_until(updated_at)})}, updated_at = {now}
WHERE id IN (
    SELECT j.id FROM {t}jobs_live j
    WHERE NOT j.ready AND j.state <> 'running' AND j.attempt > 0 AND j.updated_at > {after(1)}
      AND j.id {among(SELECT due.id FROM (
            SELECT w.id FROM {t}jobs_live w
            WHERE NOT w.ready AND w.state <> 'running' AND w.run_after > {now}
            ORDER BY w.run_after
            LIMIT :n) due)}
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED)
RETURNING id;
