-- Idempotency keys, in the order of keys.py. A key has its own row, so that it can outlive its job.
--
-- On PostgreSQL, functions that run with their owner's rights take, read and clear keys. A role that may enqueue
-- therefore doesn't need the right to read or delete every key.

-- name: take_keys [postgres]
-- Take keys for new jobs, in the order given (the caller sorts them to avoid deadlocks); returns the keys that were
-- free. If a concurrent transaction is taking a key, the insert waits for it and succeeds if it rolls back. DO NOTHING
-- rather than DO UPDATE, which would lock the row of a held key, so that the job holding it could not end until this
-- transaction does.
SELECT taken.key
FROM rowlock._hold_keys(
    :scope,
    ARRAY(SELECT wanted.key FROM {rows:wanted(key text, job_id uuid)}),
    ARRAY(SELECT wanted.job_id FROM {rows:wanted(key text, job_id uuid)}),
    :mode, {after(:window)}) AS taken (key);

-- name: take_keys [sqlite]
-- Take keys for new jobs, in the order given; returns the keys that were free.
INSERT INTO rowlock_job_keys (scope, key, job_id, mode, expires_at)
SELECT :scope, wanted.key, wanted.job_id, :mode, {after(:window)} FROM {rows:wanted(key text, job_id uuid)} WHERE TRUE
ON CONFLICT (scope, key) DO NOTHING
RETURNING key;

-- name: key_holders [postgres]
-- The jobs that hold these keys, and whether their window is over.
SELECT key, CAST(job_id AS text) AS job_id, over
FROM rowlock._key_holders(:scope, ARRAY(SELECT wanted.key FROM {rows:wanted(key text)}), {now});

-- name: key_holders [sqlite]
-- The jobs that hold these keys, and whether their window is over.
SELECT key, CAST(job_id AS text) AS job_id, expires_at IS NOT NULL AND expires_at <= {now} AS over
FROM rowlock_job_keys
WHERE scope = :scope AND key {in:wanted(key text)};

-- name: clear_keys [postgres]
-- Delete keys whose window is over, so that they can be taken again.
SELECT FROM rowlock._clear_keys(:scope, ARRAY(SELECT wanted.key FROM {rows:wanted(key text)}), {now});

-- name: clear_keys [sqlite]
-- Delete keys whose window is over, so that they can be taken again.
DELETE FROM rowlock_job_keys
WHERE scope = :scope AND key {in:wanted(key text)} AND expires_at <= {now};

-- name: release_keys
-- Release the keys that jobs in :state no longer hold. A `forever` key is released only if the job did not succeed; a
-- `window` key is kept.
DELETE FROM {t}job_keys
WHERE job_id {in:gone(id uuid)}
  AND CASE mode WHEN 'while_queued' THEN TRUE WHEN 'until_done' THEN :state <> 'running'
                WHEN 'forever' THEN :state NOT IN ('running', 'succeeded') ELSE FALSE END;
