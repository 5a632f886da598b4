-- Requests with an Idempotency-Key, in the order of store/requests.py.

-- name: begin_request
-- Take a key, unless a request has it: one that is remembered, or one that is being carried out.
INSERT INTO {t}requests (owner, key, body_hash, claim, claimed_until, expires_at)
VALUES (:owner, :key, :body_hash, :claim, {after(:patience)}, {after(:ttl)})
ON CONFLICT (owner, key) DO UPDATE
SET body_hash = excluded.body_hash, claim = excluded.claim, claimed_until = excluded.claimed_until,
    expires_at = excluded.expires_at, job_id = NULL
WHERE {t}requests.expires_at <= {now}
   OR ({t}requests.job_id IS NULL AND coalesce({t}requests.claimed_until <= {now}, TRUE))
RETURNING key;

-- name: earlier_request
-- The request that has this key: it is remembered with its job, or it is being carried out.
SELECT body_hash, CAST(job_id AS text) AS job_id
FROM {t}requests
WHERE owner = :owner AND key = :key AND expires_at > {now} AND (job_id IS NOT NULL OR claimed_until > {now});

-- name: end_request
-- The job that the request creates, if the key is still its own.
UPDATE {t}requests SET job_id = :job_id
WHERE owner = :owner AND key = :key AND claim = :claim
RETURNING key;

-- name: forget_request
-- A request that has created no job.
DELETE FROM {t}requests WHERE owner = :owner AND key = :key AND claim = :claim AND job_id IS NULL;

-- name: prune_requests
-- Requests that are remembered no longer, in a bounded batch.
DELETE FROM {t}requests
WHERE (owner, key) IN (
    SELECT owner, key FROM {t}requests WHERE expires_at <= {now} LIMIT :n {skip_locked()})
RETURNING key;

-- name: lock_owner [postgres]
-- One at a time of those that count an owner's jobs and then add one. A lock without a row: owners have none.
SELECT pg_advisory_xact_lock(hashtext('rowlock.owner'), hashtext(:owner));
