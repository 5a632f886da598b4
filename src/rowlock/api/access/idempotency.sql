-- Requests with an Idempotency-Key, in the order of api/access/idempotency.py.

-- name: begin_request
-- Take an idempotency key, unless another request holds it: one that is remembered, or one that is being carried out.
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
-- Store the job that the request has created, if it still holds the key.
UPDATE {t}requests SET job_id = :job_id
WHERE owner = :owner AND key = :key AND claim = :claim
RETURNING key;

-- name: forget_request
-- Release the key of a request that has created no job.
DELETE FROM {t}requests WHERE owner = :owner AND key = :key AND claim = :claim AND job_id IS NULL;

-- name: prune_requests
-- Delete requests whose time is over, at most :n.
DELETE FROM {t}requests
WHERE (owner, key) IN (
    SELECT owner, key FROM {t}requests
    WHERE expires_at <= {now}
    LIMIT :n
    FOR UPDATE SKIP LOCKED)
RETURNING 1 AS pruned;

-- name: lock_owner [postgres]
-- Serialise transactions that count an owner's jobs and then add one. An advisory lock, because owners have no rows.
SELECT pg_advisory_xact_lock(hashtext('rowlock.owner'), hashtext(:owner));

-- name: unfinished_jobs
-- How many jobs of an owner are not finished, up to :n.
SELECT count(*) AS number FROM (SELECT 1 FROM {t}jobs_live j WHERE j.owner = :owner LIMIT :n) found;
