-- Ids that clients choose, in the order of enqueue.py.

-- name: take_id [postgres]
-- Reserve a job id that a client chose, if no job has or had it. Waits for a concurrent transaction that reserves the
-- same id, and takes the id if that one rolls back. A function with the rights of its owner, as in keys.sql.
SELECT taken.id AS job_id FROM rowlock._take_ids(ARRAY[CAST(:job_id AS uuid)]) AS taken (id);

-- name: take_id [sqlite]
-- Reserve a job id that a client chose.
INSERT INTO rowlock_job_keys (scope, key, job_id, mode)
VALUES ('id', :job_id, :job_id, 'id')
ON CONFLICT (scope, key) DO NOTHING
RETURNING job_id;

-- name: known_id [postgres]
-- Whether there is a job with this id, or there was one that still holds a key.
SELECT 1 AS known FROM rowlock._known_ids(ARRAY[CAST(:job_id AS uuid)]);

-- name: known_id [sqlite]
-- Whether there is a job with this id, or there was one that still holds a key: most ids were not chosen by clients,
-- and are not in job_keys under the scope `id`.
SELECT 1 AS known FROM rowlock_jobs_live WHERE id = :job_id
UNION ALL
SELECT 1 FROM rowlock_jobs_finished WHERE id = :job_id
UNION ALL
SELECT 1 FROM rowlock_job_keys WHERE job_id = :job_id AND scope <> 'id'
LIMIT 1;

-- name: give_id_back [postgres]
-- Undo take_id: the job was not created.
SELECT FROM rowlock._give_ids_back(ARRAY[CAST(:key AS uuid)]);

-- name: give_id_back [sqlite]
-- Undo take_id: the job was not created.
DELETE FROM rowlock_job_keys WHERE scope = 'id' AND key = :key;
