-- Changes of many jobs, in the order of bulk.py.

-- name: run_now
-- Make jobs due now that are waiting for their start time.
UPDATE {t}jobs_live SET run_after = {now}, ready = TRUE, updated_at = {now}
WHERE NOT ready AND state <> 'running' AND id IN (SELECT asked.id FROM {rows:asked(id uuid)})
RETURNING CAST(id AS text) AS id;

-- name: delete_finished
-- Delete finished jobs before their retention time is over.
DELETE FROM {t}jobs_finished WHERE id {in:asked(id uuid)} RETURNING CAST(id AS text) AS id;

-- name: delete_attempts
-- Delete the attempts of deleted jobs.
DELETE FROM {t}attempts WHERE job_id {in:asked(id uuid)};

-- name: delete_logs
-- Delete the log lines of deleted jobs.
DELETE FROM {t}job_logs WHERE job_id {in:asked(id uuid)};

-- name: still_unchanged
-- Those of these jobs that have not changed since :unchanged_since.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j
WHERE j.id {in:asked(id uuid)} AND j.updated_at <= :unchanged_since
UNION ALL
SELECT CAST(j.id AS text) FROM {t}jobs_finished j
WHERE j.id {in:asked(id uuid)} AND j.updated_at <= :unchanged_since;

-- name: write_preview
-- Store a preview, which the holder of its token may confirm.
INSERT INTO {t}previews (token_hash, action, filter, ids, made_at, expires_at, who)
VALUES (:token_hash, :action, :filter, :ids, :made_at, {after(:seconds)}, :who);

-- name: lock_preview
-- A stored preview and how far it has been carried out. Locked while the next jobs are changed.
SELECT action, CAST(filter AS text) AS filter, CAST(ids AS text) AS ids, {time(made_at)} AS made_at,
       CAST(next_id AS text) AS next_id, looked, changed, audit_id
FROM {t}previews
WHERE token_hash = :token_hash AND expires_at > {now}
FOR UPDATE;

-- name: advance_preview
-- Store the progress of a preview after a step.
UPDATE {t}previews
SET next_id = :next_id, looked = looked + :looked, changed = changed + :changed, audit_id = :audit_id
WHERE token_hash = :token_hash;

-- name: remove_preview
-- Delete a preview that has been carried out completely.
DELETE FROM {t}previews WHERE token_hash = :token_hash;

-- name: prune_previews
-- Delete previews that were not confirmed in time.
DELETE FROM {t}previews
WHERE token_hash IN (
    SELECT token_hash FROM {t}previews
    WHERE expires_at <= {now}
    ORDER BY expires_at
    LIMIT :n)
RETURNING 1 AS pruned;
