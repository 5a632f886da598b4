-- Whom to wake and how, in the order of store/wake.py. An engine has either the `notify_` statements or the addresses.
-- An address is in the column `bell` of the worker or dispatcher that listens there.

-- name: notify_idle [postgres]
-- There is work to claim. Only if a worker is idle: NOTIFY takes a database-wide lock at commit.
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > {now});

-- name: idle_addresses [sqlite]
-- The idle workers that can be woken.
SELECT bell FROM rowlock_workers WHERE idle AND bell IS NOT NULL AND expires_at > {now};

-- name: notify_cancel [postgres]
-- Tell these workers that one of their jobs is to be cancelled.
SELECT pg_notify('rowlock', 'cancel:' || asked.worker) FROM {rows:asked(worker text)};

-- name: worker_addresses [sqlite]
-- Those of these workers that can be woken.
SELECT w.bell FROM rowlock_workers w JOIN {rows:asked(worker text)} ON w.id = asked.worker WHERE w.bell IS NOT NULL;

-- name: notify_dispatchers [postgres]
-- A schedule was added or changed.
SELECT pg_notify('rowlock', 'schedules');

-- name: dispatcher_addresses [sqlite]
-- The dispatchers that can be woken.
SELECT bell FROM rowlock_dispatchers WHERE bell IS NOT NULL AND expires_at > {now};
