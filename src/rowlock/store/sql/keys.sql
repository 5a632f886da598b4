-- Unique keys, in the order of store/keys.py. A key is a row of its own, so that it can outlive its job.

-- name: take_keys
-- Take keys for new jobs, in the order given (the caller sorts them, against deadlocks). The insert waits for a concurrent
-- transaction that takes the same key, and succeeds if that one rolls back. DO NOTHING, because DO UPDATE would lock the row
-- of a held key, and the job that holds it could not end before this transaction does.
INSERT INTO {t}job_keys (scope, key, job_id, mode, expires_at)
SELECT :scope, wanted.key, wanted.job_id, :mode, {after(:window)} FROM {rows:wanted(key text, job_id uuid)} WHERE TRUE
ON CONFLICT (scope, key) DO NOTHING
RETURNING key;

-- name: key_holders
-- The jobs that hold these keys, and whether their window is over.
SELECT key, CAST(job_id AS text) AS job_id, expires_at IS NOT NULL AND expires_at <= {now} AS over
FROM {t}job_keys
WHERE scope = :scope AND key {among(SELECT wanted.key FROM {rows:wanted(key text)})};

-- name: clear_keys
-- Delete keys whose window is over, so that they can be taken again.
DELETE FROM {t}job_keys
WHERE scope = :scope AND key {among(SELECT wanted.key FROM {rows:wanted(key text)})} AND expires_at <= {now};

-- name: let_go
-- Release the keys of claimed jobs that hold only while their job is queued.
DELETE FROM {t}job_keys WHERE mode = 'while_queued' AND job_id {part:one_of(gone)};

-- name: keys_done
-- Release the keys of jobs that have succeeded. The modes `forever` and `window` stay.
DELETE FROM {t}job_keys
WHERE mode IN ('until_done', 'while_queued') AND job_id {part:one_of(gone)};

-- name: keys_given_up
-- Release the keys of jobs that are dead or cancelled, also `forever`: their work was not done. A window stays.
DELETE FROM {t}job_keys
WHERE mode IN ('until_done', 'while_queued', 'forever') AND job_id {part:one_of(gone)};
