-- Reports of workers behind Redis, in the order of bridge/reports.py.

-- name: remote_jobs
-- Those of these jobs whose lease the stream or a worker behind Redis holds.
SELECT {part:claimed}, CAST(lease_token AS text), locked_by
FROM {t}jobs_live
WHERE id {in:asked(id uuid)} AND state = 'running' AND published IS NOT NULL;

-- name: hear
-- Store progress of jobs behind Redis that are still held under these leases. The first message starts the attempt and
-- limits its lease; each later one renews the lease. Progress never decreases, because messages may be read in a
-- different order than they were sent.
UPDATE {t}jobs_live
SET started_at = CASE WHEN published = 'unread' THEN {now} ELSE started_at END,
    published = 'read', locked_by = 'redis-read', heartbeat_at = {now}, lease_expires_at = {after(:lease)},
    progress = {greatest(coalesce({t}jobs_live.progress, 0), reported.progress)},
    phase = reported.phase, message = reported.message, updated_at = {now}
FROM {rows:reported(id uuid, token uuid, progress int, phase text, message text)}
WHERE {t}jobs_live.id = reported.id AND lease_token = reported.token AND {computed(state)} = 'running'
  AND published IS NOT NULL
RETURNING CAST({t}jobs_live.id AS text) AS id;

-- name: succeed_remote [postgres]
-- Settle jobs behind Redis that succeeded and delete their requests, in one statement: all :number of them, or none.
-- Jobs are moved as in `succeed` (store/jobs/settle.sql), which explains the LATERAL and the DELETE by id.
WITH fenced AS MATERIALIZED (
    -- The jobs that are still held under these leases, locked in the given order: the caller has sorted them by id.
    SELECT found.*, done.result AS outcome
    FROM {rows:done(id uuid, token uuid, result json)}
    CROSS JOIN LATERAL (
        SELECT j.* FROM rowlock.jobs_live j
        WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running'
        LIMIT 1
        FOR UPDATE
    ) found
), held AS MATERIALIZED (
    -- None of them if one lease is lost: then the caller settles them one by one.
    SELECT * FROM fenced WHERE (SELECT count(*) FROM fenced) = :number
), gone AS (
    DELETE FROM rowlock.jobs_live WHERE id = ANY(ARRAY(SELECT id FROM held))
), kept AS (
    INSERT INTO rowlock.jobs_finished (
        id, {part:kept_columns}, {part:kept_at_the_end},
        state, releases, losses, convictions, settled_token, progress, result, error_code, error_message,
        last_worker, finished_at, updated_at, drop_on)
    SELECT j.id, {part:kept_columns}, {part:kept_at_the_end},
           'succeeded', releases, losses, convictions, lease_token, 100, outcome, NULL, NULL,
           locked_by, {now}, {now}, {drop_on(coalesce(keep_seconds, :keep))}
    FROM held j
    RETURNING 1
), answered AS (
    DELETE FROM rowlock.outbox WHERE kind = 'request' AND job_id = ANY(ARRAY(SELECT id FROM held))
)
SELECT count(*) AS moved FROM kept;

-- name: set_result_files
-- Store the result files of jobs behind Redis that are still held under these leases.
UPDATE {t}jobs_live
SET result_uri = named.uri, result_checksum = named.checksum, updated_at = {now}
FROM {rows:named(id uuid, token uuid, uri text, checksum text)}
WHERE {t}jobs_live.id = named.id AND lease_token = named.token AND {computed(state)} = 'running';

-- name: remote_cancels
-- Jobs behind Redis for which only the flag requests a cancel, because the SQL function rowlock.cancel set it.
SELECT CAST(id AS text) AS id FROM {t}jobs_live
WHERE state = 'running' AND published IS NOT NULL AND cancel_requested_at IS NOT NULL
ORDER BY id
LIMIT :n;
