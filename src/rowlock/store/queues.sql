-- Pause and resume queues, in the order of store/queues.py.

-- name: pause_queue
-- Pause a queue, so that none of its jobs is claimed. Running jobs go on.
INSERT INTO {t}queues (name, paused_at) VALUES (:name, {now})
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce({t}queues.paused_at, excluded.paused_at);

-- name: resume_queue
-- End the pause of a queue.
UPDATE {t}queues SET paused_at = NULL WHERE name = :name AND paused_at IS NOT NULL RETURNING name;

-- name: paused_queues
-- The paused queues.
SELECT name, {time(paused_at)} AS paused_at FROM {t}queues WHERE paused_at IS NOT NULL ORDER BY name;
