-- Parents and children of jobs, in the order of store/read/relatives.py. Jobs without a parent are in neither index.

-- part: live_relative
-- A link to a live job.
SELECT CAST(j.id AS text) AS id, j.task, {part:shown_live} AS state, CAST(j.parent_id AS text) AS parent_id
FROM {t}jobs_live j

-- part: finished_relative
-- A link to a finished job.
SELECT CAST(j.id AS text) AS id, j.task, j.state, CAST(j.parent_id AS text) AS parent_id
FROM {t}jobs_finished j

-- name: relative
-- One job.
{part:live_relative}
WHERE j.id = :job_id
UNION ALL
{part:finished_relative}
WHERE j.id = :job_id;

-- name: children_of
-- The first :n children of a job, oldest first. Each branch reads at most :n entries of an index.
SELECT * FROM (
    SELECT * FROM ({part:live_relative} WHERE j.parent_id = :job_id ORDER BY j.parent_id, j.id LIMIT :n) live
    UNION ALL
    SELECT * FROM ({part:finished_relative} WHERE j.parent_id = :job_id ORDER BY j.parent_id, j.id LIMIT :n) finished
) made
ORDER BY id
LIMIT :n;

-- name: batch_members
-- Up to :n jobs of a batch.
SELECT * FROM (
    SELECT * FROM ({part:live_relative} WHERE j.batch_id = :batch_id ORDER BY j.batch_id, j.id LIMIT :n) live
    UNION ALL
    SELECT * FROM ({part:finished_relative} WHERE j.batch_id = :batch_id ORDER BY j.batch_id, j.id LIMIT :n) finished
) members
LIMIT :n;

-- name: children_of_many
-- Up to :n children of these jobs. For each job, each branch reads at most :n entries of an index.
SELECT * FROM (
    SELECT * FROM ({part:live_relative} WHERE j.parent_id {in:asked(id uuid)} LIMIT :n) live
    UNION ALL
    SELECT * FROM ({part:finished_relative} WHERE j.parent_id {in:asked(id uuid)} LIMIT :n) finished
) made
LIMIT :n;
