-- Events for clients that watch jobs, in the order of events.py. Triggers of the jobs' tables write the rows.

-- name: event_bounds
-- The largest id of a deleted event, and the newest event.
SELECT (SELECT last_id FROM {t}deleted_events) AS deleted,
       (SELECT id FROM {t}events ORDER BY id DESC LIMIT 1) AS newest;

-- part: event
-- The columns of an event.
id, CAST(job_id AS text) AS job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
result_checksum, error_code, error_message, {time(at)} AS at

-- name: events_begin [postgres]
-- The newest event, the largest id of a deleted one, and a number above that of every transaction that has taken an id
-- up to the newest: such a transaction has written its job before, so that it has a number, and this one is given after
-- the snapshot that shows the newest event.
-- The snapshot has no such number: its xmax is above the transactions that have ended, and not above those that run.
-- A standby can give no number.
SELECT (SELECT id FROM rowlock.events ORDER BY id DESC LIMIT 1) AS newest,
       (SELECT last_id FROM rowlock.deleted_events) AS deleted,
       CASE WHEN NOT pg_is_in_recovery() THEN CAST(CAST(pg_current_xact_id() AS text) AS bigint) END AS running_to;

-- name: event_writers [postgres]
-- The number of the oldest transaction below :running_to that runs and may have written events, else :running_to. Such a
-- transaction holds a lock on the table until it ends, also while it is prepared. 0 if it is not known: a transaction that
-- is just being prepared may be listed without its number, and a standby does not see the locks of the primary. pg_locks
-- has the lower 32 bits of a number. Each savepoint has its own number, above that of its transaction.
SELECT CASE WHEN pg_is_in_recovery() OR NOT coalesce(bool_and(numbered), TRUE) THEN 0
            ELSE CAST(:running_to AS bigint) - coalesce(max(before), 0) END AS oldest
FROM (SELECT bool_or(number IS NOT NULL) AS numbered,
             max((CAST(:running_to AS bigint) - number) & 4294967295)
                 FILTER (WHERE (CAST(:running_to AS bigint) - number) & 4294967295 <= 2147483648) AS before
      FROM (SELECT virtualtransaction, locktype,
                   CASE WHEN mode = 'ExclusiveLock' THEN CAST(CAST(transactionid AS text) AS bigint) END AS number
            FROM pg_locks
            WHERE locktype = 'transactionid'
               OR (locktype = 'relation' AND relation = CAST('rowlock.events' AS regclass) AND mode = 'RowExclusiveLock'
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))) locks
      GROUP BY virtualtransaction
      HAVING bool_or(locktype = 'relation')) writers;

-- name: event_gaps [postgres]
-- The ids up to :id that have no event: each gap with its first and its last id.
SELECT before + 1 AS first, id - 1 AS last
FROM (SELECT id, lag(id, 1, CAST(0 AS bigint)) OVER (ORDER BY id) AS before
      FROM rowlock.events
      WHERE id <= :id) neighbours
WHERE id > before + 1
ORDER BY id;

-- name: new_events [postgres]
-- Events after :id and those in the gaps that can be seen by now, at most :n of each, oldest first, each with the numbers
-- of the transactions that run: one row with these numbers alone where there is no event. It must be one statement, also
-- with the largest id of a deleted event, which shows whether events were deleted before they were read.
-- Every transaction below running_from has ended: what it wrote is in the same snapshot or never was. running_to is
-- above that of every transaction that took an id below one of these events, as in events_begin; there is one only if
-- ids are missing between the events or if :numbered asks for it, because it costs a transaction number.
SELECT running.running_from,
       (SELECT last_id FROM rowlock.deleted_events) AS deleted,
       CASE WHEN NOT pg_is_in_recovery()
                 AND (CAST(:numbered AS boolean)
                      OR max(found.id) OVER () - :id > count(*) FILTER (WHERE found.id > :id) OVER ())
            THEN CAST(CAST(pg_current_xact_id() AS text) AS bigint) END AS running_to,
       found.*
FROM (SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) AS running_from) running
LEFT JOIN (
    (SELECT late.*
     FROM {rows:gaps(first text, last text)}
     CROSS JOIN LATERAL (
         SELECT {part:event}
         FROM rowlock.events
         WHERE id BETWEEN CAST(gaps.first AS bigint) AND CAST(gaps.last AS bigint)
         ORDER BY id
         LIMIT :n) late
     LIMIT :n)
    UNION ALL
    (SELECT {part:event}
     FROM rowlock.events
     WHERE id > :id
     ORDER BY id
     LIMIT :n)) found ON TRUE
ORDER BY found.id;

-- name: new_events [sqlite]
-- Events after :id, oldest first. One transaction writes at a time: no id is missing.
SELECT 0 AS running_from, (SELECT last_id FROM rowlock_deleted_events) AS deleted, 0 AS running_to, {part:event}
FROM (SELECT 1) LEFT JOIN rowlock_events ON id > :id AND :gaps IS NOT NULL AND :numbered IS NOT NULL
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
-- Delete events older than -:ago seconds, at most :n; by default an hour, for which a client may be away and go on without
-- a gap. The newest event always stays: its id shows whether a client that comes back has missed some.
DELETE FROM {t}events
WHERE id IN (
    SELECT id FROM {t}events
    WHERE at < {after(coalesce(CAST(:ago AS double precision), -3600))} AND id < (SELECT max(id) FROM {t}events)
    ORDER BY id
    LIMIT :n
    FOR UPDATE SKIP LOCKED)
RETURNING 1 AS pruned;
