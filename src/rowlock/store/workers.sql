-- Workers, in the order of store/workers.py. Leases of jobs don't depend on these rows.

-- name: register_worker
-- Register a worker. If it is registered already, store its new queues and tasks and renew its lease.
INSERT INTO {t}workers (
    id, hostname, pid, version, queues, tasks, pool_size, running, idle, bell, started_at, seen_at, expires_at)
VALUES (:id, :hostname, :pid, :version, :queues, :tasks, :pool_size, 0, FALSE, :address, {now}, {now}, {after(:lease)})
ON CONFLICT (id) DO UPDATE
SET seen_at = excluded.seen_at, expires_at = excluded.expires_at, queues = excluded.queues, tasks = excluded.tasks;

-- name: worker_seen
-- Renew a worker's row and store the number of its running jobs. Returns the stop that an operator has requested; no
-- row if the worker's row is gone.
UPDATE {t}workers
SET seen_at = {now}, expires_at = {after(:lease)}, running = :running, memory_bytes = coalesce(:memory, memory_bytes)
WHERE id = :id
RETURNING stop_requested;

-- name: worker_idle
-- Set whether an enqueue must wake this worker.
UPDATE {t}workers SET idle = :idle, seen_at = {now}, expires_at = {after(:lease)} WHERE id = :id RETURNING id;

-- name: remove_worker
-- Delete the row of a worker that is stopping.
DELETE FROM {t}workers WHERE id = :id;

-- name: forget_workers
-- Delete up to :n workers whose lease expired more than an hour ago, oldest first. Every enqueue looks for idle workers
-- in this table, so it must stay small.
DELETE FROM {t}workers
WHERE id IN (
    SELECT id FROM {t}workers
    WHERE expires_at < {after(-3600)}
    ORDER BY expires_at
    LIMIT :n
    FOR UPDATE SKIP LOCKED)
RETURNING 1 AS pruned;

-- name: list_workers
-- All known workers, live ones first.
SELECT w.id, w.hostname, w.pid, w.version, w.queues, w.tasks, w.pool_size, w.running, w.idle,
       {time(w.started_at)} AS started_at, {time(w.seen_at)} AS seen_at, w.expires_at > {now} AS alive, w.memory_bytes,
       w.stop_requested, {time(w.stop_requested_at)} AS stop_requested_at
FROM {t}workers w
ORDER BY w.expires_at > {now} DESC, w.started_at DESC;

-- name: ask_worker_to_stop
-- Ask a live worker to drain or stop. A drain doesn't replace a stop. Workers that call SQL functions don't read this
-- column.
UPDATE {t}workers
SET stop_requested = CASE WHEN stop_requested = 'stop' THEN 'stop' ELSE :how END,
    stop_requested_at = coalesce(stop_requested_at, {now})
WHERE id = :id AND expires_at > {now} AND version <> 'sql'
RETURNING id;
