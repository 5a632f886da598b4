-- What workers behind Redis report, in the order of store/remote.py.

-- name: remote_jobs
-- These jobs, if a worker behind Redis has them or can get them.
SELECT {claimed}, CAST(lease_token AS text), locked_by
FROM {t}jobs_live
WHERE id {among(SELECT asked.id FROM {rows:asked(id uuid)})} AND state = 'running'
  AND locked_by IN ('redis-unread', 'redis-read');

-- name: other_states
-- Where jobs stand of which a message came although nobody behind Redis has them.
SELECT CAST(id AS text) AS id, task, state FROM {t}jobs_live
WHERE id {among(SELECT asked.id FROM {rows:asked(id uuid)})}
UNION ALL
SELECT CAST(id AS text) AS id, task, state FROM {t}jobs_finished
WHERE id {among(SELECT asked.id FROM {rows:asked(id uuid)})};

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
-- Plain successes of jobs behind Redis, with their requests, in one statement: all :number of them or none.
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
-- Jobs behind Redis whose cancel was asked for by a flag alone, as a program in SQL does.
SELECT CAST(id AS text) AS id FROM {t}jobs_live
WHERE state = 'running' AND locked_by IN ('redis-unread', 'redis-read') AND cancel_requested_at IS NOT NULL
ORDER BY id
LIMIT :n;
