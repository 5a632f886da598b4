-- Wake-ups, in the order of store/engine/wake.py. PostgreSQL has statements that notify, SQLite statements that read
-- addresses: the column `bell` holds the path of the socket on which a worker or dispatcher listens.

-- name: notify_idle [postgres]
-- Notify workers that there is work to claim, but only if one is idle, because NOTIFY takes a database-wide lock at
-- commit. With rowlock.wakeups = off, never: PostgreSQL refuses PREPARE TRANSACTION after a NOTIFY.
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > {now})
  AND current_setting('rowlock.wakeups', TRUE) IS DISTINCT FROM 'off';

-- name: idle_addresses [sqlite]
-- The addresses of idle workers.
SELECT bell AS address FROM rowlock_workers WHERE idle AND bell IS NOT NULL AND expires_at > {now};

-- name: notify_cancel [postgres]
-- Notify these workers that a cancel of one of their jobs was requested.
SELECT pg_notify('rowlock', 'cancel:' || asked.worker) FROM {rows:asked(worker text)};

-- name: worker_addresses [sqlite]
-- The addresses of these workers.
SELECT w.bell AS address
FROM rowlock_workers w JOIN {rows:asked(worker text)} ON w.id = asked.worker
WHERE w.bell IS NOT NULL;

-- name: notify_dispatchers [postgres]
-- Notify dispatchers that a schedule was added or changed.
SELECT pg_notify('rowlock', 'schedules');

-- name: dispatcher_addresses [sqlite]
-- The addresses of live dispatchers.
SELECT bell AS address FROM rowlock_dispatchers WHERE bell IS NOT NULL AND expires_at > {now};
