-- Changes of many jobs, in the order of store/jobs/bulk.py.

-- name: run_now
-- Make jobs that wait for their start time due now.
UPDATE {t}jobs_live SET run_after = {now}, ready = TRUE, updated_at = {now}
WHERE NOT ready AND state <> 'running' AND id IN (SELECT asked.id FROM {rows:asked(id uuid)})
RETURNING CAST(id AS text) AS id;

-- name: delete_finished
-- Delete finished jobs before their retention time is over.
DELETE FROM {t}jobs_finished WHERE id {part:one_of(asked)} RETURNING CAST(id AS text) AS id;

-- name: delete_attempts
-- The attempts of jobs that are gone.
DELETE FROM {t}attempts WHERE job_id {part:one_of(asked)};

-- name: delete_logs
-- The log lines of jobs that are gone.
DELETE FROM {t}job_logs WHERE job_id {part:one_of(asked)};

-- name: still_unchanged
-- Which of these jobs have not changed since :unchanged_since.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j WHERE j.id {part:one_of(asked)} AND j.updated_at <= :unchanged_since
UNION ALL
SELECT CAST(j.id AS text) FROM {t}jobs_finished j WHERE j.id {part:one_of(asked)} AND j.updated_at <= :unchanged_since;

-- name: write_preview
-- Store a preview that its viewer may confirm.
INSERT INTO {t}previews (token_hash, action, filter, ids, made_at, expires_at, who)
VALUES (:token_hash, :action, :filter, :ids, :made_at, {after(:seconds)}, :who);

-- part: preview
-- A stored preview, and how far it was carried out.
SELECT action, CAST(filter AS text) AS filter, CAST(ids AS text) AS ids, {time(made_at)} AS made_at,
       CAST(next_id AS text) AS next_id, looked, changed, audit_id
FROM {t}previews
WHERE token_hash = :token_hash AND expires_at > {now}

-- name: read_preview
-- A stored preview, and how far it was carried out.
{part:preview};

-- name: lock_preview
-- A stored preview, locked while its next part is carried out.
{part:preview}
{lock()};

-- name: advance_preview
-- Note that a preview was carried out for some more jobs.
UPDATE {t}previews
SET next_id = :next_id, looked = looked + :looked, changed = changed + :changed, audit_id = :audit_id
WHERE token_hash = :token_hash;

-- name: remove_preview
-- Note that a preview was carried out to its end.
DELETE FROM {t}previews WHERE token_hash = :token_hash;

-- name: prune_previews
-- Delete previews that were not confirmed in time.
{part:prune(previews | token_hash | expires_at <= {now} ORDER BY expires_at LIMIT :n)};
