-- What workers behind Redis report, in the order of bridge/reports.py.

-- name: remote_jobs
-- Of these jobs, the ones whose lease Redis or a worker behind it holds.
SELECT {claimed}, CAST(lease_token AS text), locked_by
FROM {t}jobs_live
WHERE id {among(SELECT asked.id FROM {rows:asked(id uuid)})} AND state = 'running'
  AND locked_by IN ('redis-unread', 'redis-read');

-- name: hear
-- Progress of jobs behind Redis, under the fence. The first message starts the attempt and gives its lease an end; each
-- further one renews it. Progress does not go back: messages may be read in another order than they were sent.
UPDATE {t}jobs_live
SET started_at = CASE WHEN locked_by = 'redis-unread' THEN {now} ELSE started_at END,
    locked_by = 'redis-read', heartbeat_at = {now}, lease_expires_at = {after(:lease)},
    progress = {greatest(coalesce({t}jobs_live.progress, 0), told.progress)}, phase = told.phase, message = told.message,
    updated_at = {now}
FROM {rows:told(id uuid, token uuid, progress int, phase text, message text)}
WHERE {t}jobs_live.id = told.id AND lease_token = told.token AND {computed(state)} = 'running'
  AND locked_by IN ('redis-unread', 'redis-read')
RETURNING CAST({t}jobs_live.id AS text) AS id;

-- name: succeed_remote [postgres]
-- Successes of jobs behind Redis, and the end of their requests, in one statement: all :number of them, or none.
WITH fenced AS MATERIALIZED (
    {part:holding}
), held AS MATERIALIZED (
    SELECT * FROM fenced WHERE (SELECT count(*) FROM fenced) = :number
), {part:moving}, answered AS (
    DELETE FROM rowlock.outbox WHERE kind = 'request' AND job_id = ANY(ARRAY(SELECT id FROM held))
)
SELECT count(*) AS moved FROM kept;

-- name: set_result_files
-- The files that workers behind Redis have made, under the fence.
UPDATE {t}jobs_live
SET result_uri = named.uri, result_checksum = named.checksum, updated_at = {now}
FROM {rows:named(id uuid, token uuid, uri text, checksum text)}
WHERE {t}jobs_live.id = named.id AND lease_token = named.token AND {computed(state)} = 'running';

-- name: remote_cancels
-- Jobs behind Redis whose cancel was requested by the flag alone, which rowlock.cancel in SQL sets.
SELECT CAST(id AS text) AS id FROM {t}jobs_live
WHERE state = 'running' AND locked_by IN ('redis-unread', 'redis-read') AND cancel_requested_at IS NOT NULL
ORDER BY id
LIMIT :n;
