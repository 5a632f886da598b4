-- Correct times that were written while the database's clock was ahead, in the order of clock_repair.py.

-- name: put_leases_right
-- Restart leases whose last heartbeat is in the future: each keeps its length and starts now. Live workers renew theirs
-- before they expire; those of dead workers expire.
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
-- Restart delays that were computed from a time in the future, for retried and released jobs among the :n waiting jobs
-- that are due first. Jobs that have never run keep their start time, which the user may have chosen (run_after).
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

-- name: put_sources_right
-- Correct the times of sources: token buckets keep their tokens and fill from now on, pauses (including those of open
-- breakers) keep their length and start now.
UPDATE {t}sources
SET tokens_at = CASE WHEN tokens_at > {now} THEN {now} ELSE tokens_at END,
    paused_until = CASE WHEN paused_at > {now}
                        THEN {after({seconds_until(paused_until)} - {seconds_until(paused_at)})} ELSE paused_until END,
    paused_at = CASE WHEN paused_at > {now} THEN {now} ELSE paused_at END,
    class_paused_until = CASE
        WHEN class_paused_at > {now} THEN {after({seconds_until(class_paused_until)} - {seconds_until(class_paused_at)})}
        ELSE class_paused_until END,
    class_paused_at = CASE WHEN class_paused_at > {now} THEN {now} ELSE class_paused_at END,
    opened_at = CASE WHEN opened_at > {now} THEN {now} ELSE opened_at END,
    last_success_at = CASE WHEN last_success_at > {now} THEN {now} ELSE last_success_at END,
    last_failure_at = CASE WHEN last_failure_at > {now} THEN {now} ELSE last_failure_at END,
    refused_at = CASE WHEN refused_at > {now} THEN {now} ELSE refused_at END
WHERE name IN (
    SELECT s.name FROM {t}sources s
    WHERE s.tokens_at > {after(1)} OR s.paused_at > {after(1)} OR s.class_paused_at > {after(1)}
       OR s.opened_at > {after(1)} OR s.last_success_at > {after(1)} OR s.last_failure_at > {after(1)}
    ORDER BY s.name
    FOR UPDATE OF s SKIP LOCKED)
RETURNING name;

-- name: written_ahead
-- Lock schedules whose `updated_at` is in the future, because the database's clock was ahead when it was written.
SELECT {part:due_schedule}
FROM {t}schedules s
WHERE updated_at > {after(:ahead)}
ORDER BY id
LIMIT :n
FOR UPDATE SKIP LOCKED;

-- name: put_right
-- Correct the next ticks of schedules, and their times in the future.
UPDATE {t}schedules
SET next_tick = healed.next_tick, updated_at = {now},
    declared_at = CASE WHEN declared_at > {now} THEN {now} ELSE declared_at END,
    writer_started_at = CASE WHEN writer_started_at > {now} THEN {now} ELSE writer_started_at END,
    paused_at = CASE WHEN paused_at > {now} THEN {now} ELSE paused_at END
FROM {rows:healed(id text, next_tick time)}
WHERE {t}schedules.id = healed.id;
