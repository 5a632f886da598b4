-- Requests with an Idempotency-Key, in the order of store/requests.py.

-- name: begin_request
-- Remember a request, unless one with the same key is remembered. Another transaction that does the same is waited for.
INSERT INTO {t}requests (owner, key, body_hash, expires_at)
VALUES (:owner, :key, :body_hash, {after(:ttl)})
ON CONFLICT (owner, key) DO UPDATE
SET body_hash = excluded.body_hash, expires_at = excluded.expires_at, job_id = NULL
WHERE {t}requests.expires_at <= {now}
RETURNING key;

-- name: earlier_request
-- The request that has this key.
SELECT body_hash, CAST(job_id AS text) AS job_id FROM {t}requests WHERE owner = :owner AND key = :key;

-- name: end_request
-- The job that the request created.
UPDATE {t}requests SET job_id = :job_id WHERE owner = :owner AND key = :key;

-- name: prune_requests
-- Requests that are remembered no longer, in a bounded batch.
DELETE FROM {t}requests
WHERE (owner, key) IN (
    SELECT owner, key FROM {t}requests WHERE expires_at <= {now} LIMIT :n {skip_locked()})
RETURNING key;
