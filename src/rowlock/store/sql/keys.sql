-- Unique keys, in the order of store/keys.py. A key is a row of its own, so that it can outlive its job.

-- name: take_keys
-- Take keys for new jobs, in the order given (the caller sorts them). An insert waits for a twin that is not yet
-- committed and goes through if that one is rolled back. DO NOTHING, because DO UPDATE would lock the row of a key that
-- is held, and its job could not end before our transaction does.
INSERT INTO {t}job_keys (scope, key, job_id, mode, expires_at)
SELECT :scope, wanted.key, wanted.job_id, :mode, {after(:window)} FROM {rows:wanted(key text, job_id uuid)} WHERE TRUE
ON CONFLICT (scope, key) DO NOTHING
RETURNING key;

-- name: key_holders
-- Who holds these keys, and whether their time is over.
SELECT key, CAST(job_id AS text) AS job_id, expires_at IS NOT NULL AND expires_at <= {now} AS over
FROM {t}job_keys
WHERE scope = :scope AND key {among(SELECT wanted.key FROM {rows:wanted(key text)})};

-- name: clear_keys
-- Remove keys whose time is over, so that they can be taken anew.
DELETE FROM {t}job_keys
WHERE scope = :scope AND key {among(SELECT wanted.key FROM {rows:wanted(key text)})} AND expires_at <= {now};

-- name: let_go
-- Keys that hold only while their job is queued, at its first claim.
DELETE FROM {t}job_keys WHERE mode = 'while_queued' AND job_id {part:one_of(gone)};

-- name: keys_done
-- Keys that hold until their job is done, when it has succeeded. `forever` stays, and so does a window.
DELETE FROM {t}job_keys
WHERE mode IN ('until_done', 'while_queued') AND job_id {part:one_of(gone)};

-- name: keys_given_up
-- Keys of jobs that ended dead or cancelled: the same work may be asked for again.
DELETE FROM {t}job_keys
WHERE mode IN ('until_done', 'while_queued', 'forever') AND job_id {part:one_of(gone)};
