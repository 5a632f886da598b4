-- Workers and queues, in the order of store/workers.py. Leases never depend on these rows.

-- name: register_worker
-- A worker says that it is here.
INSERT INTO {t}workers (id, hostname, pid, version, queues, tasks, pool_size, running, idle, bell, started_at, seen_at, expires_at)
VALUES (:id, :hostname, :pid, :version, :queues, :tasks, :pool_size, 0, FALSE, :bell, {now}, {now}, {after(:lease)})
ON CONFLICT (id) DO UPDATE
SET seen_at = excluded.seen_at, expires_at = excluded.expires_at, queues = excluded.queues, tasks = excluded.tasks;

-- name: worker_seen
-- A worker's sign of life, with what it is doing; answers what an operator asks of it, and nothing if the row is gone.
UPDATE {t}workers
SET seen_at = {now}, expires_at = {after(:lease)}, running = :running, memory_bytes = coalesce(:memory, memory_bytes)
WHERE id = :id
RETURNING stop_requested;

-- name: worker_idle
-- Ask to be woken, or not to be.
UPDATE {t}workers SET idle = :idle, seen_at = {now}, expires_at = {after(:lease)} WHERE id = :id RETURNING id;

-- name: remove_worker
-- A worker leaves.
DELETE FROM {t}workers WHERE id = :id;

-- name: forget_workers
-- Rows of workers that have been silent for an hour longer than their lease, oldest first, in a bounded batch. Every
-- enqueue looks for sleeping workers in this table, so the dead must not gather here.
DELETE FROM {t}workers
WHERE id IN (
    SELECT id FROM {t}workers
    WHERE expires_at < {after(-3600)}
    ORDER BY expires_at
    LIMIT :n
    {skip_locked()})
RETURNING id;

-- name: list_workers
-- Every known worker, living ones first.
SELECT w.id, w.hostname, w.pid, w.version, w.queues, w.tasks, w.pool_size, w.running, w.idle,
       {time(w.started_at)} AS started_at, {time(w.seen_at)} AS seen_at, w.expires_at > {now} AS alive, w.memory_bytes,
       w.stop_requested, {time(w.stop_requested_at)} AS stop_requested_at
FROM {t}workers w
ORDER BY w.expires_at > {now} DESC, w.started_at DESC;

-- name: ask_worker_to_stop
-- Ask a living worker to end. One that was asked to end now is not slowed down again. A worker that calls the SQL
-- functions reads nothing here.
UPDATE {t}workers
SET stop_requested = CASE WHEN stop_requested = 'stop' THEN 'stop' ELSE :how END,
    stop_requested_at = coalesce(stop_requested_at, {now})
WHERE id = :id AND expires_at > {now} AND version <> 'sql'
RETURNING id;

-- name: find_worker
-- One worker, living or not.
SELECT id, version FROM {t}workers WHERE id = :id;

-- name: pause_queue
-- Nothing more is claimed from this queue; what runs goes on.
INSERT INTO {t}queues (name, paused_at) VALUES (:name, {now})
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce({t}queues.paused_at, excluded.paused_at);

-- name: resume_queue
-- Claims from this queue go on.
UPDATE {t}queues SET paused_at = NULL WHERE name = :name AND paused_at IS NOT NULL RETURNING name;

-- name: paused_queues
-- The paused ones.
SELECT name, {time(paused_at)} AS paused_at FROM {t}queues WHERE paused_at IS NOT NULL ORDER BY name;
