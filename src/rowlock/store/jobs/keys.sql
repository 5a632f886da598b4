-- Unique keys, in the order of keys.py. A key is a separate row, so that it can outlive its job.
--
-- PostgreSQL: taking, reading and clearing keys are functions that run with the rights of their owner, so that a role
-- which may enqueue needs no right to read or delete all keys.

-- name: take_keys [postgres]
-- Take keys for new jobs, in the order given (the caller sorts them, against deadlocks); returns the keys that were
-- free. The insert waits for a concurrent transaction that takes the same key, and succeeds if that one rolls back. It
-- uses DO NOTHING, because DO UPDATE would lock the row of a held key, and the job that holds it could not end before
-- this transaction does.
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
-- Release the keys that jobs in :state no longer hold. `forever` ends only if the work was not done; a window stays.
DELETE FROM {t}job_keys
WHERE job_id {in:gone(id uuid)}
  AND CASE mode WHEN 'while_queued' THEN TRUE WHEN 'until_done' THEN :state <> 'running'
                WHEN 'forever' THEN :state NOT IN ('running', 'succeeded') ELSE FALSE END;
