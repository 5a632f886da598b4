-- Events for clients that watch jobs, in the order of store/events.py. Triggers write the rows: see migration 0012.

-- name: event_bounds
-- The oldest and the newest event.
SELECT (SELECT id FROM {t}events ORDER BY id LIMIT 1) AS oldest,
       (SELECT id FROM {t}events ORDER BY id DESC LIMIT 1) AS newest;

-- part: event
-- The columns of an event.
id, CAST(job_id AS text) AS job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
result_checksum, error_code, error_message, {time(at)} AS at

-- name: new_events [postgres]
-- Events after :id and those of the missing ids that can be seen by now, oldest first, each with the numbers of the
-- transactions that run: one row with these numbers alone where there is no event. It must be one statement. Its
-- snapshot shows an event only if the transaction that took a smaller id had begun before, so that number is below
-- running_to; and once running_from has reached it, what that transaction wrote is in the same snapshot or never was.
SELECT running.running_from, running.running_to, found.*
FROM (SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) AS running_from,
             CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint) AS running_to) running
LEFT JOIN (
    (SELECT {part:event}
     FROM rowlock.events
     WHERE id = ANY(ARRAY(SELECT CAST(missing.id AS bigint) FROM {rows:missing(id text)})))
    UNION ALL
    (SELECT {part:event}
     FROM rowlock.events
     WHERE id > :id
     ORDER BY id
     LIMIT :n)) found ON TRUE
ORDER BY found.id;

-- name: new_events [sqlite]
-- Events after :id, oldest first. One transaction writes at a time: no id is missing.
SELECT 0 AS running_from, 0 AS running_to, {part:event}
FROM (SELECT 1) LEFT JOIN rowlock_events ON id > :id AND :missing IS NOT NULL
ORDER BY id
LIMIT :n;

-- name: events_after
-- Events after :id, oldest first.
SELECT {part:event}
FROM {t}events
WHERE id > :id
ORDER BY id
LIMIT :n;

-- name: events_of_owner
-- Events of one owner after :id, oldest first.
SELECT {part:event}
FROM {t}events
WHERE owner = :owner AND id > :id
ORDER BY id
LIMIT :n;

-- name: listen_for_events
-- Register a server that new events must wake.
INSERT INTO {t}event_listeners (id, expires_at) VALUES (:id, {after(:ttl)})
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at;

-- name: stop_listening_for_events
-- Remove that registration, and registrations that expired more than an hour ago.
DELETE FROM {t}event_listeners WHERE id = :id OR expires_at < {after(-3600)};

-- name: prune_events
-- Delete events older than -:ago seconds, at most :n. The newest event always stays: its id tells whether a client that
-- comes back has missed some.
{part:prune(events | id
    | at < {after(:ago)} AND id < (SELECT max(id) FROM {t}events) ORDER BY id LIMIT :n {skip_locked()})};
