-- Every statement as this engine runs it, by name, with its parameters in brackets. `now` is the time of a fake clock:
-- in production it is NULL on PostgreSQL, which then uses its own clock, and the time of the machine on SQLite.

-- about
SELECT 'PostgreSQL ' || current_setting('server_version') AS server,
       (SELECT max(number) FROM rowlock.migrations) AS schema;

-- add_alert_messages (now, made[0], made[1], made[2])
INSERT INTO rowlock.alert_messages (id, type, body, created_at, send_after)
SELECT made.id, made.type, made.body, coalesce($1, statement_timestamp()), coalesce($1, statement_timestamp())
FROM unnest($2::text[]::uuid[], $3::text[], $4::json[]) AS made(id, type, body);

-- add_to_audit (number, id)
UPDATE rowlock.audit SET number = number + $1 WHERE id = $2;

-- add_webhook (owner, url, source, queue, max_attempts, timeout_seconds, job_id, backoff)
INSERT INTO rowlock.webhooks (job_id, owner, url, source, queue, max_attempts, backoff, timeout_seconds)
SELECT hook.job_id, $1, $2, $3, $4, $5, hook.backoff, $6
FROM (SELECT $7::text::uuid AS job_id, $8::json AS backoff) AS hook;

-- adopt (now, worker, token)
SELECT CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -(date_part('epoch', run_after) - date_part('epoch', coalesce($1, statement_timestamp())))
FROM rowlock.jobs_live
WHERE state = 'running' AND locked_by = $2 AND lease_token = $3;

-- advance_preview (next_id, looked, changed, audit_id, token_hash)
UPDATE rowlock.previews
SET next_id = $1, looked = looked + $2, changed = changed + $3, audit_id = $4
WHERE token_hash = $5;

-- alert_lease (now)
SELECT holder, (date_part('epoch', expires_at) - date_part('epoch', coalesce($1, statement_timestamp()))) AS seconds FROM rowlock.alert_lease;

-- alert_message_failed (now, wait, error, id)
UPDATE rowlock.alert_messages
SET attempts = attempts + 1, send_after = (coalesce($1, statement_timestamp()) + ($2) * interval '1 second'), last_error = $3
WHERE id = $4;

-- alert_message_sent (id)
DELETE FROM rowlock.alert_messages WHERE id = $1;

-- alert_messages (now, n)
SELECT CAST(id AS text) AS id, type, body, attempts, (date_part('epoch', send_after) - date_part('epoch', coalesce($1, statement_timestamp()))) AS wait,
       -(date_part('epoch', created_at) - date_part('epoch', coalesce($1, statement_timestamp()))) AS age, last_error
FROM rowlock.alert_messages
ORDER BY created_at, id
LIMIT $2;

-- any_tally
SELECT 1 AS found FROM rowlock.tallies LIMIT 1;

-- any_token (now)
SELECT 1 AS found FROM rowlock.tokens t
WHERE job_id IS NULL AND uses IS NULL AND t.revoked_at IS NULL AND coalesce(t.expires_at > coalesce($1, statement_timestamp()), TRUE)
  AND (SELECT p.revoked_at FROM rowlock.tokens p WHERE p.id = t.made_from) IS NULL
LIMIT 1;

-- app_migrations (app)
SELECT number FROM rowlock.app_migrations WHERE app = $1;

-- ask_worker_to_stop (how, now, id)
UPDATE rowlock.workers
SET stop_requested = CASE WHEN stop_requested = 'stop' THEN 'stop' ELSE $1 END,
    stop_requested_at = coalesce(stop_requested_at, coalesce($2, statement_timestamp()))
WHERE id = $3 AND expires_at > coalesce($2, statement_timestamp()) AND version <> 'sql'
RETURNING id;

-- batch_left (batch_id, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_live j
WHERE j.batch_id = $1 AND j.cancel_requested_at IS NULL
ORDER BY j.batch_id, j.id
LIMIT $2;

-- batch_members (batch_id, n)
SELECT * FROM (
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock.jobs_live j WHERE j.batch_id = $1 ORDER BY j.batch_id, j.id LIMIT $2) live
    UNION ALL
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, j.state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock.jobs_finished j WHERE j.batch_id = $1 ORDER BY j.batch_id, j.id LIMIT $2) finished
) members
LIMIT $2;

-- batch_of (job_id, token)
SELECT CAST(batch_id AS text) AS batch_id
FROM rowlock.jobs_live
WHERE id = $1 AND lease_token = $2 AND state = 'running';

-- batch_open (batch_id)
SELECT sealed_at IS NOT NULL AS sealed, finished_at IS NOT NULL AS finished,
       cancelled_at IS NOT NULL AND reopened_at IS NULL AS cancelled, name
FROM rowlock.batches WHERE id = $1
FOR KEY SHARE;

-- beat (now, lease, mine[0], mine[1])
UPDATE rowlock.jobs_live
SET heartbeat_at = coalesce($1, statement_timestamp()), lease_expires_at = (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
WHERE id IN (
    SELECT j.id
    FROM unnest($3::text[]::uuid[], $4::text[]::uuid[]) AS mine(id, token)
    CROSS JOIN rowlock.jobs_live j
    WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED)
RETURNING id;

-- beat_waiting (now, lease, id, token)
UPDATE rowlock.jobs_live
SET heartbeat_at = coalesce($1, statement_timestamp()), lease_expires_at = (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
WHERE id = $3 AND lease_token = $4 AND state = 'running'
RETURNING id;

-- begin_request (owner, key, body_hash, claim, now, patience, ttl)
INSERT INTO rowlock.requests (owner, key, body_hash, claim, claimed_until, expires_at)
VALUES ($1, $2, $3, $4, (coalesce($5, statement_timestamp()) + ($6) * interval '1 second'), (coalesce($5, statement_timestamp()) + ($7) * interval '1 second'))
ON CONFLICT (owner, key) DO UPDATE
SET body_hash = excluded.body_hash, claim = excluded.claim, claimed_until = excluded.claimed_until,
    expires_at = excluded.expires_at, job_id = NULL
WHERE rowlock.requests.expires_at <= coalesce($5, statement_timestamp())
   OR (rowlock.requests.job_id IS NULL AND coalesce(rowlock.requests.claimed_until <= coalesce($5, statement_timestamp()), TRUE))
RETURNING key;

-- begin_sample (now)
INSERT INTO rowlock.queue_samples (at, queue, ready, waiting, running)
SELECT date_bin('1 minute', coalesce($1, statement_timestamp()), '2000-01-01Z'), '', 0, 0, 0
WHERE TRUE
ON CONFLICT (at, queue) DO NOTHING
RETURNING 1 AS mine;

-- buckets_by_time (what, seconds, since, queue, task)
SELECT CASE WHEN found.at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN found.at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE found.at END AS at, bucket, sum(number) AS number
FROM (
    SELECT counted.at, CASE $1 WHEN 'wait' THEN wait_bucket ELSE run_bucket END AS bucket, number
    FROM (
    SELECT r.at, r.queue, r.task, r.what, r.run_bucket, r.wait_bucket, r.number FROM rowlock.rollups r
    WHERE r.seconds = $2 AND r.at >= $3
    UNION ALL
    SELECT y.at, y.queue, y.task, y.what, y.run_bucket, y.wait_bucket, y.number FROM rowlock.tallies y
    WHERE y.at >= $3) counted
WHERE CASE WHEN CAST($4 AS text) IS NULL THEN TRUE ELSE queue = $4 END
  AND CASE WHEN CAST($5 AS text) IS NULL THEN TRUE ELSE task = $5 END) found
WHERE bucket >= 0
GROUP BY found.at, bucket;

-- busy_sources (now, n)
WITH running AS (
    SELECT r.source, count(*) AS number FROM rowlock.jobs_live r
    WHERE r.state = 'running' AND r.source IS NOT NULL
    GROUP BY r.source
), standing AS (
    SELECT s.name, coalesce(r.number, 0) AS running, coalesce(s.concurrency, c.concurrency) AS concurrency,
           coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate,
           CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END AS burst,
           s.tokens, -(date_part('epoch', s.tokens_at) - date_part('epoch', coalesce($1, statement_timestamp()))) AS elapsed, s.failure_streak,
           (date_part('epoch', greatest(coalesce(s.paused_until, c.class_paused_until),
                                    coalesce(c.class_paused_until, s.paused_until))) - date_part('epoch', coalesce($1, statement_timestamp()))) AS paused_for,
           s.enabled AND coalesce(c.class_enabled, TRUE) AS enabled, s.opened_at IS NOT NULL AS opened
    FROM rowlock.sources s
    LEFT JOIN rowlock.sources c ON c.name = split_part(s.name, ':', 1)
    LEFT JOIN running r ON r.source = s.name
)
SELECT * FROM standing
WHERE running > 0 OR NOT enabled OR opened OR coalesce(paused_for, 0) > 0
ORDER BY CASE WHEN NOT enabled OR opened OR coalesce(paused_for, 0) > 0 THEN 0 ELSE 1 END, name
LIMIT $2;

-- by_state_finished (id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock.jobs_finished j
WHERE j.id < $1 AND j.id >= $2 AND CASE j.state WHEN 'succeeded' THEN CAST($3 AS boolean) WHEN 'dead' THEN CAST($4 AS boolean)
             ELSE CAST($5 AS boolean) END
  AND CASE WHEN CAST($6 AS text) IS NULL THEN TRUE ELSE j.task = $6 END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.queue = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.owner = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.source = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($10, $11)) END
  AND CASE WHEN CAST($12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $12 END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $13 END
  AND CASE WHEN CAST($14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
GROUP BY j.state;

-- by_state_finished_batch (batch, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock.jobs_finished j
WHERE j.batch_id = $1 AND j.id < $2 AND j.id >= $3 AND CASE j.state WHEN 'succeeded' THEN CAST($4 AS boolean) WHEN 'dead' THEN CAST($5 AS boolean)
             ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.owner = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE j.source = $10 END
  AND CASE WHEN CAST($11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($11, $12)) END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $13 END
  AND CASE WHEN CAST($14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $14 END
  AND CASE WHEN CAST($1 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $1 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
GROUP BY j.state;

-- by_state_finished_owner (owner, id, low, succeeded, dead, cancelled, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock.jobs_finished j
WHERE j.owner = $1 AND j.id < $2 AND j.id >= $3 AND CASE j.state WHEN 'succeeded' THEN CAST($4 AS boolean) WHEN 'dead' THEN CAST($5 AS boolean)
             ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($1 AS text) IS NULL THEN TRUE ELSE j.owner = $1 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.source = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($10, $11)) END
  AND CASE WHEN CAST($12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $12 END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $13 END
  AND CASE WHEN CAST($14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
GROUP BY j.state;

-- by_state_finished_owner_trouble (owner, trouble, id, low, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock.jobs_finished j
WHERE j.owner = $1 AND j.state = $2 AND j.state <> 'succeeded' AND j.id < $3 AND j.id >= $4 AND CASE WHEN CAST($5 AS text) IS NULL THEN TRUE ELSE j.task = $5 END
  AND CASE WHEN CAST($6 AS text) IS NULL THEN TRUE ELSE j.queue = $6 END
  AND CASE WHEN CAST($1 AS text) IS NULL THEN TRUE ELSE j.owner = $1 END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.source = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($8, $9)) END
  AND CASE WHEN CAST($10 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $10 END
  AND CASE WHEN CAST($11 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $11 END
  AND CASE WHEN CAST($12 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $12 END
  AND CASE WHEN CAST($13 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $13 END
  AND CASE WHEN CAST($14 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $14 END
  AND CASE WHEN CAST($15 AS text) IS NULL THEN TRUE ELSE j.error_code = $15 END
  AND CASE WHEN CAST($16 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $17) > 0 OR strpos(CAST(j.args AS text), $18) > 0) END
  AND CASE WHEN CAST($19 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $19 END
GROUP BY j.state;

-- by_state_finished_parent (parent, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock.jobs_finished j
WHERE j.parent_id = $1 AND j.id < $2 AND j.id >= $3 AND CASE j.state WHEN 'succeeded' THEN CAST($4 AS boolean) WHEN 'dead' THEN CAST($5 AS boolean)
             ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.owner = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE j.source = $10 END
  AND CASE WHEN CAST($11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($11, $12)) END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $13 END
  AND CASE WHEN CAST($14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $15 END
  AND CASE WHEN CAST($1 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $1 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
GROUP BY j.state;

-- by_state_finished_schedule (schedule, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, parent, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock.jobs_finished j
WHERE j.schedule_id = $1 AND j.id < $2 AND j.id >= $3 AND CASE j.state WHEN 'succeeded' THEN CAST($4 AS boolean) WHEN 'dead' THEN CAST($5 AS boolean)
             ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.owner = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE j.source = $10 END
  AND CASE WHEN CAST($11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($11, $12)) END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $13 END
  AND CASE WHEN CAST($14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $15 END
  AND CASE WHEN CAST($16 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $16 END
  AND CASE WHEN CAST($1 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $1 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
GROUP BY j.state;

-- by_state_finished_trouble (trouble, id, low, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock.jobs_finished j
WHERE j.state = $1 AND j.state <> 'succeeded' AND j.id < $2 AND j.id >= $3 AND CASE WHEN CAST($4 AS text) IS NULL THEN TRUE ELSE j.task = $4 END
  AND CASE WHEN CAST($5 AS text) IS NULL THEN TRUE ELSE j.queue = $5 END
  AND CASE WHEN CAST($6 AS text) IS NULL THEN TRUE ELSE j.owner = $6 END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.source = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($8, $9)) END
  AND CASE WHEN CAST($10 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $10 END
  AND CASE WHEN CAST($11 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $11 END
  AND CASE WHEN CAST($12 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $12 END
  AND CASE WHEN CAST($13 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $13 END
  AND CASE WHEN CAST($14 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $14 END
  AND CASE WHEN CAST($15 AS text) IS NULL THEN TRUE ELSE j.error_code = $15 END
  AND CASE WHEN CAST($16 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $17) > 0 OR strpos(CAST(j.args AS text), $18) > 0) END
  AND CASE WHEN CAST($19 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $19 END
GROUP BY j.state;

-- by_state_live (id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, count(*) AS number FROM rowlock.jobs_live j
WHERE j.id < $1 AND j.id >= $2 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST($3 AS boolean)
     WHEN j.state = 'running' THEN CAST($4 AS boolean)
     ELSE CAST($5 AS boolean) END
  AND CASE WHEN CAST($6 AS text) IS NULL THEN TRUE ELSE j.task = $6 END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.queue = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.owner = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.source = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($10, $11)) END
  AND CASE WHEN CAST($12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $12 END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $13 END
  AND CASE WHEN CAST($14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
GROUP BY CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END;

-- by_state_live_batch (batch, id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, count(*) AS number FROM rowlock.jobs_live j
WHERE j.batch_id = $1 AND j.id < $2 AND j.id >= $3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST($4 AS boolean)
     WHEN j.state = 'running' THEN CAST($5 AS boolean)
     ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.owner = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE j.source = $10 END
  AND CASE WHEN CAST($11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($11, $12)) END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $13 END
  AND CASE WHEN CAST($14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $14 END
  AND CASE WHEN CAST($1 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $1 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
GROUP BY CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END;

-- by_state_live_owner (owner, id, low, queued, running, retryable, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, count(*) AS number FROM rowlock.jobs_live j
WHERE j.owner = $1 AND j.id < $2 AND j.id >= $3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST($4 AS boolean)
     WHEN j.state = 'running' THEN CAST($5 AS boolean)
     ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($1 AS text) IS NULL THEN TRUE ELSE j.owner = $1 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.source = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($10, $11)) END
  AND CASE WHEN CAST($12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $12 END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $13 END
  AND CASE WHEN CAST($14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
GROUP BY CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END;

-- by_state_live_parent (parent, id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, count(*) AS number FROM rowlock.jobs_live j
WHERE j.parent_id = $1 AND j.id < $2 AND j.id >= $3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST($4 AS boolean)
     WHEN j.state = 'running' THEN CAST($5 AS boolean)
     ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.owner = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE j.source = $10 END
  AND CASE WHEN CAST($11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($11, $12)) END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $13 END
  AND CASE WHEN CAST($14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $15 END
  AND CASE WHEN CAST($1 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $1 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
GROUP BY CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END;

-- by_state_live_running (id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, count(*) AS number FROM rowlock.jobs_live j
WHERE j.state = 'running' AND j.id < $1 AND j.id >= $2 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST($3 AS boolean)
     WHEN j.state = 'running' THEN CAST($4 AS boolean)
     ELSE CAST($5 AS boolean) END
  AND CASE WHEN CAST($6 AS text) IS NULL THEN TRUE ELSE j.task = $6 END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.queue = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.owner = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.source = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($10, $11)) END
  AND CASE WHEN CAST($12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $12 END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $13 END
  AND CASE WHEN CAST($14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
GROUP BY CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END;

-- cancel_batch (now, batch_id)
UPDATE rowlock.batches
SET cancelled_at = coalesce(cancelled_at, coalesce($1, statement_timestamp())), sealed_at = coalesce(sealed_at, coalesce($1, statement_timestamp())), reopened_at = NULL
WHERE id = $2 AND finished_at IS NULL
RETURNING CAST(id AS text) AS id;

-- children_of (job_id, n)
SELECT * FROM (
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock.jobs_live j WHERE j.parent_id = $1 ORDER BY j.parent_id, j.id LIMIT $2) live
    UNION ALL
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, j.state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock.jobs_finished j WHERE j.parent_id = $1 ORDER BY j.parent_id, j.id LIMIT $2) finished
) made
ORDER BY id
LIMIT $2;

-- children_of_many (asked[0], n)
SELECT * FROM (
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock.jobs_live j WHERE j.parent_id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id))) LIMIT $2) live
    UNION ALL
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, j.state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock.jobs_finished j WHERE j.parent_id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id))) LIMIT $2) finished
) made
LIMIT $2;

-- claim (lane[0], lane[1], lane[2], lane[3], lane[4], lane[5], n, now, token, worker, lease)
WITH lane AS (
    SELECT lane.* FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[]::uuid[], $5::integer[], $6::integer[]) AS lane(queue, task, low_priority, low_id, high_priority, most) WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)
), found AS MATERIALIZED (
    SELECT front.id, front.priority, front.unique_mode, front.nth = least(lane.most, $7) AS may_have_more
    FROM lane CROSS JOIN LATERAL (
        SELECT locked.id, locked.priority, locked.unique_mode, row_number() OVER () AS nth
        FROM (
            SELECT j.id, j.priority, j.unique_mode
            FROM rowlock.jobs_live j
            WHERE j.ready
  AND j.source IS NULL
  AND j.queue = lane.queue
  AND j.task = lane.task
  AND (j.priority, j.id) > (lane.low_priority, lane.low_id)
  AND j.priority < lane.high_priority
  AND (j.expires_at IS NULL OR j.expires_at > coalesce($8, statement_timestamp()))
ORDER BY j.priority, j.id
            LIMIT least(lane.most, $7)
            FOR UPDATE SKIP LOCKED
        ) locked
    ) front
), horizon AS (
    SELECT priority, id FROM found WHERE may_have_more ORDER BY priority, id LIMIT 1
), picked AS MATERIALIZED (
    SELECT found.id, found.unique_mode
    FROM found LEFT JOIN horizon ON TRUE
    WHERE horizon.id IS NULL OR (found.priority, found.id) <= (horizon.priority, horizon.id)
    ORDER BY found.priority, found.id
    LIMIT $7
), let_go AS (
    DELETE FROM rowlock.job_keys
    WHERE mode = 'while_queued' AND job_id = ANY(ARRAY(SELECT id FROM picked WHERE unique_mode = 'while_queued'))
)
UPDATE rowlock.jobs_live j
SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = $9, locked_by = $10,
    published = CASE WHEN $10 = 'redis-unread' THEN 'unread' END,
    heartbeat_at = coalesce($8, statement_timestamp()), lease_expires_at = (coalesce($8, statement_timestamp()) + ($11) * interval '1 second'), updated_at = coalesce($8, statement_timestamp()), locked_at = coalesce($8, statement_timestamp()), started_at = coalesce($8, statement_timestamp())
WHERE j.id = ANY(ARRAY(SELECT id FROM picked)) AND j.ready
RETURNING CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -(date_part('epoch', run_after) - date_part('epoch', coalesce($8, statement_timestamp())));

-- claim_picked (token, worker, now, lease, at, epoch, picked[0])
UPDATE rowlock.jobs_live
SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = $1, locked_by = $2,
    published = CASE WHEN $2 = 'redis-unread' THEN 'unread' END,
    heartbeat_at = coalesce($3, statement_timestamp()), lease_expires_at = (coalesce($3, statement_timestamp()) + ($4) * interval '1 second'), updated_at = coalesce($3, statement_timestamp()), locked_at = $5, started_at = $5, source_epoch = $6
WHERE id = ANY(ARRAY(SELECT picked.id FROM unnest($7::text[]::uuid[]) AS picked(id))) AND ready
RETURNING CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -(date_part('epoch', run_after) - date_part('epoch', coalesce($3, statement_timestamp())));

-- claim_turns (token, worker, now, lease, at, epoch, turn[0], turn[1], turn[2], turn[3], turn[4])
UPDATE rowlock.jobs_live j
SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = $1, locked_by = $2,
    published = CASE WHEN $2 = 'redis-unread' THEN 'unread' END,
    heartbeat_at = coalesce($3, statement_timestamp()), lease_expires_at = (coalesce($3, statement_timestamp()) + ($4) * interval '1 second'), updated_at = coalesce($3, statement_timestamp()), locked_at = $5, started_at = $5, source_epoch = $6
WHERE j.id = ANY (ARRAY (
    SELECT front.id
    FROM (SELECT turn.* FROM unnest($7::text[], $8::text[], $9::integer[], $10::text[], $11::integer[]) AS turn(queue, task, priority, source, most)
 WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = turn.queue AND q.paused_at IS NOT NULL)) turn
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM rowlock.jobs_live j
        WHERE j.ready
  AND j.source IS NOT NULL
  AND j.queue = turn.queue
  AND j.task = turn.task
  AND j.priority = turn.priority
  AND j.source >= turn.source AND j.source <= turn.source
  AND (j.expires_at IS NULL OR j.expires_at > coalesce($3, statement_timestamp()))
ORDER BY j.priority, j.source, j.id
        LIMIT turn.most
        FOR UPDATE SKIP LOCKED
    ) front))
  AND j.ready
RETURNING CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -(date_part('epoch', run_after) - date_part('epoch', coalesce($3, statement_timestamp())));

-- claimable (now, job_id)
SELECT CAST(j.id AS text) AS id, coalesce($1, statement_timestamp()) AS at
FROM rowlock.jobs_live j
WHERE j.id = $2 AND j.ready AND j.source IS NULL AND (j.expires_at IS NULL OR j.expires_at > coalesce($1, statement_timestamp()))
  AND NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = j.queue AND q.paused_at IS NOT NULL)
FOR UPDATE OF j SKIP LOCKED;

-- clear_keys (scope, wanted[0], now)
SELECT FROM rowlock._clear_keys($1, ARRAY(SELECT wanted.key FROM unnest($2::text[]) AS wanted(key)), coalesce($3, statement_timestamp()));

-- clock (now)
SELECT CASE WHEN coalesce($1, statement_timestamp()) > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN coalesce($1, statement_timestamp()) < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE coalesce($1, statement_timestamp()) END AS now;

-- closed_sources (now, n)
SELECT name, enabled, opened_at IS NOT NULL AS opened, coalesce(paused_until > coalesce($1, statement_timestamp()), FALSE) AS paused,
       -(date_part('epoch', opened_at) - date_part('epoch', coalesce($1, statement_timestamp()))) AS seconds, last_error
FROM rowlock.sources
WHERE (opened_at IS NOT NULL OR NOT enabled OR paused_until IS NOT NULL)  -- the condition of an index
  AND (opened_at IS NOT NULL OR NOT enabled OR paused_until > coalesce($1, statement_timestamp()))
ORDER BY opened_at IS NULL, opened_at, name
LIMIT $2;

-- complete_batches (asked[0])
SELECT CAST(b.id AS text) AS id, NOT b.ended_once AS first_time
FROM rowlock.batches b
WHERE b.id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id)))
  AND b.finished_at IS NULL AND b.sealed_at IS NOT NULL AND current_setting('transaction_isolation') = 'read committed'
  AND coalesce((SELECT sum(n.total - n.processed) FROM rowlock.batch_counts n WHERE n.batch_id = b.id), 0) <= 0;

-- count_batches (shard, now, counted[0], counted[1], counted[2], counted[3], counted[4], counted[5], counted[6])
INSERT INTO rowlock.batch_counts (
    batch_id, shard, total, processed, failed, cancelled, expired, last_error, last_error_at)
SELECT counted.batch_id, $1, counted.total, counted.processed, counted.failed, counted.cancelled, counted.expired,
       counted.last_error, CASE WHEN counted.last_error IS NOT NULL THEN coalesce($2, statement_timestamp()) END
FROM unnest($3::text[]::uuid[], $4::integer[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::text[]) AS counted(batch_id, total, processed, failed, cancelled, expired, last_error)
WHERE TRUE
ON CONFLICT (batch_id, shard) DO UPDATE
SET total = rowlock.batch_counts.total + excluded.total,
    processed = rowlock.batch_counts.processed + excluded.processed,
    failed = rowlock.batch_counts.failed + excluded.failed,
    cancelled = rowlock.batch_counts.cancelled + excluded.cancelled,
    expired = rowlock.batch_counts.expired + excluded.expired,
    last_error = coalesce(excluded.last_error, rowlock.batch_counts.last_error),
    last_error_at = coalesce(excluded.last_error_at, rowlock.batch_counts.last_error_at);

-- create_token (id, hash, hint, kind, uses, owner, scope, job_id, made_from, good_until, now, until, ttl)
INSERT INTO rowlock.tokens
    (id, hash, hint, kind, uses, owner, scope, job_id, made_from, good_until, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, coalesce($11, statement_timestamp()),
        CASE WHEN CAST($12 AS timestamptz) < (coalesce($11, statement_timestamp()) + ($13) * interval '1 second') THEN $12 ELSE (coalesce($11, statement_timestamp()) + ($13) * interval '1 second') END)
RETURNING CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id, CASE WHEN created_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN created_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE created_at END AS created_at,
       CASE WHEN expires_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN expires_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE expires_at END AS expires_at, CASE WHEN revoked_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN revoked_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE revoked_at END AS revoked_at;

-- create_webhook_secret (id, owner, secret, hint, now)
INSERT INTO rowlock.webhook_secrets (id, owner, secret, hint, created_at) VALUES ($1, $2, $3, $4, coalesce($5, statement_timestamp()));

-- cut_logs (asked[0], n)
DELETE FROM rowlock.job_logs
WHERE job_id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id)))
  AND seq <= (SELECT max(o.seq) FROM rowlock.job_logs o WHERE o.job_id = rowlock.job_logs.job_id) - $2;

-- dead_lately (n, now, ago)
SELECT task, count(*) AS number
FROM (
    SELECT j.task, j.finished_at FROM rowlock.jobs_finished j
    WHERE j.state = 'dead' AND j.state <> 'succeeded'
    ORDER BY j.id DESC LIMIT $1) newest
WHERE finished_at > (coalesce($2, statement_timestamp()) + ($3) * interval '1 second')
GROUP BY task;

-- declarations (now, ago)
SELECT declares, expires_at > coalesce($1, statement_timestamp()) AS alive FROM rowlock.dispatchers WHERE expires_at > (coalesce($1, statement_timestamp()) + ($2) * interval '1 second');

-- declare_schedules (origin, started_at, now, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11], s[12], s[13], s[14], s[15], s[16], s[17], s[18], s[19], s[20], s[21], s[22], s[23])
INSERT INTO rowlock.schedules (
    id, task, args, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds, starts_at, ends_at,
    queue, priority, max_attempts, backoff, timeout_seconds, source, on_success, on_dead, on_lost, keep_seconds, owner,
    origin, writer_started_at, declared_at, next_tick, created_at, updated_at)
SELECT s.id, s.task, s.args, s.rule, s.zone, s.missed, s.missed_most, s.missed_seconds, s.overlap, s.jitter_seconds,
       s.starts_at, s.ends_at,
       s.queue, s.priority, s.max_attempts, s.backoff, s.timeout_seconds, s.source, s.on_success, s.on_dead, s.on_lost,
       s.keep_seconds, s.owner,
       $1, coalesce($2, coalesce($3, statement_timestamp())), coalesce($3, statement_timestamp()), s.next_tick, coalesce($3, statement_timestamp()), coalesce($3, statement_timestamp())
FROM unnest($4::text[], $5::text[], $6::json[], $7::text[], $8::text[], $9::text[], $10::integer[], $11::double precision[], $12::text[], $13::double precision[], $14::timestamptz[], $15::timestamptz[], $16::timestamptz[], $17::text[], $18::integer[], $19::integer[], $20::json[], $21::double precision[], $22::text[], $23::json[], $24::json[], $25::text[], $26::double precision[], $27::text[]) AS s(id, task, args, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds, starts_at, ends_at, next_tick, queue, priority, max_attempts, backoff, timeout_seconds, source, on_success, on_dead, on_lost, keep_seconds, owner)
WHERE TRUE
ON CONFLICT (id) DO UPDATE
SET task = excluded.task, args = excluded.args, missed = excluded.missed, missed_most = excluded.missed_most,
    missed_seconds = excluded.missed_seconds, overlap = excluded.overlap, jitter_seconds = excluded.jitter_seconds,
    starts_at = excluded.starts_at, ends_at = excluded.ends_at,
    queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    backoff = excluded.backoff, timeout_seconds = excluded.timeout_seconds, source = excluded.source,
    on_success = excluded.on_success, on_dead = excluded.on_dead, on_lost = excluded.on_lost,
    keep_seconds = excluded.keep_seconds, owner = excluded.owner,
    writer_started_at = CASE
        WHEN rowlock.schedules.writer_started_at BETWEEN excluded.writer_started_at AND coalesce($3, statement_timestamp())
        THEN rowlock.schedules.writer_started_at ELSE excluded.writer_started_at END,
    declared_at = excluded.declared_at, retired_at = NULL, problem = NULL, updated_at = excluded.updated_at,
    next_tick = CASE
        WHEN rowlock.schedules.rule <> excluded.rule OR rowlock.schedules.zone <> excluded.zone
             OR rowlock.schedules.retired_at IS NOT NULL OR rowlock.schedules.next_tick IS NULL
             OR rowlock.schedules.next_tick < excluded.starts_at
        THEN excluded.next_tick
        WHEN rowlock.schedules.next_tick > excluded.next_tick
        THEN excluded.next_tick
        ELSE rowlock.schedules.next_tick END,
    rule = excluded.rule, zone = excluded.zone
WHERE rowlock.schedules.origin = excluded.origin
  AND (excluded.origin = 'runtime' OR rowlock.schedules.writer_started_at <= excluded.writer_started_at
       OR rowlock.schedules.writer_started_at > coalesce($3, statement_timestamp())  -- written by a clock that was ahead
       OR (rowlock.schedules.task, CAST(rowlock.schedules.args AS text), rowlock.schedules.rule, rowlock.schedules.zone,
           rowlock.schedules.missed, rowlock.schedules.missed_most, rowlock.schedules.missed_seconds, rowlock.schedules.overlap,
           rowlock.schedules.jitter_seconds, rowlock.schedules.starts_at, rowlock.schedules.ends_at,
           CAST(rowlock.schedules.queue AS text), CAST(rowlock.schedules.priority AS text),
           CAST(rowlock.schedules.max_attempts AS text), CAST(rowlock.schedules.backoff AS text),
           CAST(rowlock.schedules.timeout_seconds AS text), CAST(rowlock.schedules.source AS text),
           CAST(rowlock.schedules.on_success AS text), CAST(rowlock.schedules.on_dead AS text),
           CAST(rowlock.schedules.on_lost AS text), CAST(rowlock.schedules.keep_seconds AS text),
           CAST(rowlock.schedules.owner AS text))
          IS NOT DISTINCT FROM
          (excluded.task, CAST(excluded.args AS text), excluded.rule, excluded.zone,
           excluded.missed, excluded.missed_most, excluded.missed_seconds, excluded.overlap,
           excluded.jitter_seconds, excluded.starts_at, excluded.ends_at,
           CAST(excluded.queue AS text), CAST(excluded.priority AS text),
           CAST(excluded.max_attempts AS text), CAST(excluded.backoff AS text),
           CAST(excluded.timeout_seconds AS text), CAST(excluded.source AS text),
           CAST(excluded.on_success AS text), CAST(excluded.on_dead AS text),
           CAST(excluded.on_lost AS text), CAST(excluded.keep_seconds AS text),
           CAST(excluded.owner AS text)))
RETURNING id;

-- declare_tasks (now, declared[0], declared[1], declared[2], declared[3], declared[4])
INSERT INTO rowlock.tasks (name, options, source_derived, arguments, description, updated_at)
SELECT declared.name, declared.options, declared.source_derived = 1, declared.arguments, declared.description, coalesce($1, statement_timestamp())
FROM unnest($2::text[], $3::json[], $4::integer[], $5::json[], $6::text[]) AS declared(name, options, source_derived, arguments, description)
WHERE TRUE
ON CONFLICT (name) DO UPDATE
SET options = excluded.options, source_derived = excluded.source_derived, arguments = excluded.arguments,
    description = excluded.description, updated_at = excluded.updated_at
WHERE CAST(rowlock.tasks.options AS text) <> CAST(excluded.options AS text)
   OR rowlock.tasks.source_derived <> excluded.source_derived
   OR CAST(rowlock.tasks.arguments AS text) IS DISTINCT FROM CAST(excluded.arguments AS text)
   OR rowlock.tasks.description IS DISTINCT FROM excluded.description;

-- default_days (first)
WITH RECURSIVE days (day) AS (
    SELECT min(drop_on) FROM rowlock.jobs_finished_default WHERE drop_on >= CAST(CAST($1 AS text) AS date)
    UNION ALL
    SELECT (SELECT min(f.drop_on) FROM rowlock.jobs_finished_default f WHERE f.drop_on > days.day)
    FROM days
    WHERE days.day IS NOT NULL
)
SELECT to_char(day, 'YYYY-MM-DD') AS day FROM days WHERE day IS NOT NULL;

-- delete_attempts (asked[0])
DELETE FROM rowlock.attempts WHERE job_id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id)));

-- delete_finished (asked[0])
DELETE FROM rowlock.jobs_finished WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id))) RETURNING CAST(id AS text) AS id;

-- delete_logs (asked[0])
DELETE FROM rowlock.job_logs WHERE job_id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id)));

-- dispatcher_seen (now, lease, id)
UPDATE rowlock.dispatchers SET seen_at = coalesce($1, statement_timestamp()), expires_at = (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
WHERE id = $3 AND expires_at > coalesce($1, statement_timestamp())
RETURNING id;

-- drop_alert (rule, subject)
DELETE FROM rowlock.alerts WHERE rule = $1 AND subject = $2;

-- due_ids (now, n)
SELECT CAST(id AS text) AS id FROM rowlock.jobs_live j
        WHERE NOT ready AND state <> 'running' AND run_after <= coalesce($1, statement_timestamp()) AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL
        ORDER BY run_after
        LIMIT $2;

-- earlier_request (owner, key, now)
SELECT body_hash, CAST(job_id AS text) AS job_id
FROM rowlock.requests
WHERE owner = $1 AND key = $2 AND expires_at > coalesce($3, statement_timestamp()) AND (job_id IS NOT NULL OR claimed_until > coalesce($3, statement_timestamp()));

-- edge_finished (id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.id < $1 AND j.id >= $2
ORDER BY j.id DESC LIMIT 1 OFFSET $3;

-- edge_finished_batch (batch, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.batch_id = $1 AND j.id < $2 AND j.id >= $3
ORDER BY j.id DESC LIMIT 1 OFFSET $4;

-- edge_finished_owner (owner, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.owner = $1 AND j.id < $2 AND j.id >= $3
ORDER BY j.id DESC LIMIT 1 OFFSET $4;

-- edge_finished_owner_trouble (owner, trouble, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.owner = $1 AND j.state = $2 AND j.state <> 'succeeded' AND j.id < $3 AND j.id >= $4
ORDER BY j.id DESC LIMIT 1 OFFSET $5;

-- edge_finished_parent (parent, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.parent_id = $1 AND j.id < $2 AND j.id >= $3
ORDER BY j.id DESC LIMIT 1 OFFSET $4;

-- edge_finished_schedule (schedule, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.schedule_id = $1 AND j.id < $2 AND j.id >= $3
ORDER BY j.id DESC LIMIT 1 OFFSET $4;

-- edge_finished_trouble (trouble, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.state = $1 AND j.state <> 'succeeded' AND j.id < $2 AND j.id >= $3
ORDER BY j.id DESC LIMIT 1 OFFSET $4;

-- edge_live (id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_live j
WHERE j.id < $1 AND j.id >= $2
ORDER BY j.id DESC LIMIT 1 OFFSET $3;

-- edge_live_batch (batch, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_live j
WHERE j.batch_id = $1 AND j.id < $2 AND j.id >= $3
ORDER BY j.id DESC LIMIT 1 OFFSET $4;

-- edge_live_owner (owner, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_live j
WHERE j.owner = $1 AND j.id < $2 AND j.id >= $3
ORDER BY j.id DESC LIMIT 1 OFFSET $4;

-- edge_live_parent (parent, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_live j
WHERE j.parent_id = $1 AND j.id < $2 AND j.id >= $3
ORDER BY j.id DESC LIMIT 1 OFFSET $4;

-- end_batches (now, asked[0])
UPDATE rowlock.batches
SET state = CASE
        WHEN cancelled_at IS NOT NULL THEN 'cancelled'
        WHEN (SELECT sum(n.failed) FROM rowlock.batch_counts n WHERE n.batch_id = rowlock.batches.id) > 0 THEN 'failed'
        WHEN (SELECT sum(n.cancelled) FROM rowlock.batch_counts n WHERE n.batch_id = rowlock.batches.id) > 0 THEN 'cancelled'
        ELSE 'succeeded' END,
    started_at = coalesce(started_at, coalesce($1, statement_timestamp())), finished_at = coalesce($1, statement_timestamp()), reopened_at = NULL, ended_once = TRUE
WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($2::text[]::uuid[]) AS asked(id)))
RETURNING CAST(id AS text) AS id, on_end;

-- end_request (job_id, owner, key, claim)
UPDATE rowlock.requests SET job_id = $1
WHERE owner = $2 AND key = $3 AND claim = $4
RETURNING key;

-- end_webhook_secrets (now, overlap, owner)
UPDATE rowlock.webhook_secrets SET expires_at = (coalesce($1, statement_timestamp()) + ($2) * interval '1 second') WHERE owner = $3 AND expires_at IS NULL;

-- ending (asked[0])
SELECT id, CAST(batch_id AS text) AS batch_id, unique_mode
FROM rowlock.jobs_live
WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id))) AND (batch_id IS NOT NULL OR unique_mode IS NOT NULL);

-- ends_by_queue (seconds, since, queue, task)
SELECT CASE WHEN counted.at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN counted.at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE counted.at END AS at, queue, what, sum(number) AS number
FROM (
    SELECT r.at, r.queue, r.task, r.what, r.run_bucket, r.wait_bucket, r.number FROM rowlock.rollups r
    WHERE r.seconds = $1 AND r.at >= $2
    UNION ALL
    SELECT y.at, y.queue, y.task, y.what, y.run_bucket, y.wait_bucket, y.number FROM rowlock.tallies y
    WHERE y.at >= $2) counted
WHERE CASE WHEN CAST($3 AS text) IS NULL THEN TRUE ELSE queue = $3 END
  AND CASE WHEN CAST($4 AS text) IS NULL THEN TRUE ELSE task = $4 END
GROUP BY counted.at, queue, what;

-- ends_by_time (seconds, since, queue, task)
SELECT CASE WHEN counted.at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN counted.at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE counted.at END AS at, what, sum(number) AS number
FROM (
    SELECT r.at, r.queue, r.task, r.what, r.run_bucket, r.wait_bucket, r.number FROM rowlock.rollups r
    WHERE r.seconds = $1 AND r.at >= $2
    UNION ALL
    SELECT y.at, y.queue, y.task, y.what, y.run_bucket, y.wait_bucket, y.number FROM rowlock.tallies y
    WHERE y.at >= $2) counted
WHERE CASE WHEN CAST($3 AS text) IS NULL THEN TRUE ELSE queue = $3 END
  AND CASE WHEN CAST($4 AS text) IS NULL THEN TRUE ELSE task = $4 END
GROUP BY counted.at, what;

-- enqueue (source, task, run_after, now, delay, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id, unique_mode, expires_at, traceparent, parent_id, added[0], added[1])
WITH added AS (
INSERT INTO rowlock.jobs_live (
    id, args, source, task, ready, run_after, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags,
    batch_id, unique_mode, expires_at, traceparent, parent_id, created_at, updated_at)
SELECT added.id, added.args, $1, $2, coalesce($3, (coalesce($4, statement_timestamp()) + ($5) * interval '1 second')) <= coalesce($4, statement_timestamp()),
       coalesce($3, (coalesce($4, statement_timestamp()) + ($5) * interval '1 second')), $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
    $16, $17, $18, $19, $20, $21, coalesce($4, statement_timestamp()), coalesce($4, statement_timestamp())
FROM unnest($22::text[]::uuid[], $23::json[]) AS added(id, args)
)
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > coalesce($4, statement_timestamp()))
  AND current_setting('rowlock.wakeups', TRUE) IS DISTINCT FROM 'off';

-- enqueue_one (source, task, run_after, now, delay, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id, unique_mode, expires_at, traceparent, parent_id, id, args)
WITH added AS (
INSERT INTO rowlock.jobs_live (
    id, args, source, task, ready, run_after, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags,
    batch_id, unique_mode, expires_at, traceparent, parent_id, created_at, updated_at)
SELECT added.id, added.args, $1, $2, coalesce($3, (coalesce($4, statement_timestamp()) + ($5) * interval '1 second')) <= coalesce($4, statement_timestamp()),
       coalesce($3, (coalesce($4, statement_timestamp()) + ($5) * interval '1 second')), $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
    $16, $17, $18, $19, $20, $21, coalesce($4, statement_timestamp()), coalesce($4, statement_timestamp())
FROM (SELECT $22::text::uuid AS id, $23::json AS args) AS added
)
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > coalesce($4, statement_timestamp()))
  AND current_setting('rowlock.wakeups', TRUE) IS DISTINCT FROM 'off';

-- enqueue_rows (task, run_after, now, delay, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id, unique_mode, expires_at, traceparent, parent_id, added[0], added[1], added[2], added[3])
WITH added AS (
INSERT INTO rowlock.jobs_live (
    id, args, source, unique_key, task, ready, run_after, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags,
    batch_id, unique_mode, expires_at, traceparent, parent_id, created_at, updated_at)
SELECT added.id, added.args, added.source, added.unique_key, $1, coalesce($2, (coalesce($3, statement_timestamp()) + ($4) * interval '1 second')) <= coalesce($3, statement_timestamp()),
       coalesce($2, (coalesce($3, statement_timestamp()) + ($4) * interval '1 second')), $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
    $15, $16, $17, $18, $19, $20, coalesce($3, statement_timestamp()), coalesce($3, statement_timestamp())
FROM unnest($21::text[]::uuid[], $22::json[], $23::text[], $24::text[]) AS added(id, args, unique_key, source)
)
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > coalesce($3, statement_timestamp()))
  AND current_setting('rowlock.wakeups', TRUE) IS DISTINCT FROM 'off';

-- error_codes (n)
SELECT DISTINCT f.error_code FROM (
    SELECT a.error_code FROM rowlock.attempts a ORDER BY a.finished_at DESC LIMIT $1) f
WHERE f.error_code IS NOT NULL
ORDER BY 1;

-- event_bounds
SELECT (SELECT last_id FROM rowlock.deleted_events) AS deleted,
       (SELECT id FROM rowlock.events ORDER BY id DESC LIMIT 1) AS newest;

-- event_gaps (id)
SELECT before + 1 AS first, id - 1 AS last
FROM (SELECT id, lag(id, 1, CAST(0 AS bigint)) OVER (ORDER BY id) AS before
      FROM rowlock.events
      WHERE id <= $1) neighbours
WHERE id > before + 1
ORDER BY id;

-- event_writers (running_to)
SELECT CASE WHEN pg_is_in_recovery() OR NOT coalesce(bool_and(numbered), TRUE) THEN 0
            ELSE CAST($1 AS bigint) - coalesce(max(before), 0) END AS oldest
FROM (SELECT bool_or(number IS NOT NULL) AS numbered,
             max((CAST($1 AS bigint) - number) & 4294967295)
                 FILTER (WHERE (CAST($1 AS bigint) - number) & 4294967295 <= 2147483648) AS before
      FROM (SELECT virtualtransaction, locktype,
                   CASE WHEN mode = 'ExclusiveLock' THEN CAST(CAST(transactionid AS text) AS bigint) END AS number
            FROM pg_locks
            WHERE locktype = 'transactionid'
               OR (locktype = 'relation' AND relation = CAST('rowlock.events' AS regclass) AND mode = 'RowExclusiveLock'
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))) locks
      GROUP BY virtualtransaction
      HAVING bool_or(locktype = 'relation')) writers;

-- events_after (id, n)
SELECT id, CAST(job_id AS text) AS job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
result_checksum, error_code, error_message, CASE WHEN at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE at END AS at
FROM rowlock.events
WHERE id > $1
ORDER BY id
LIMIT $2;

-- events_begin
SELECT (SELECT id FROM rowlock.events ORDER BY id DESC LIMIT 1) AS newest,
       (SELECT last_id FROM rowlock.deleted_events) AS deleted,
       CASE WHEN NOT pg_is_in_recovery() THEN CAST(CAST(pg_current_xact_id() AS text) AS bigint) END AS running_to;

-- events_of_owner (owner, id, n)
SELECT id, CAST(job_id AS text) AS job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
result_checksum, error_code, error_message, CASE WHEN at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE at END AS at
FROM rowlock.events
WHERE owner = $1 AND id > $2
ORDER BY id
LIMIT $3;

-- expired (now, guard, n)
SELECT CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -(date_part('epoch', run_after) - date_part('epoch', coalesce($1, statement_timestamp()))), lease_token, locked_by
FROM rowlock.jobs_live j
WHERE state = 'running' AND lease_expires_at < coalesce($1, statement_timestamp()) AND (CAST($2 AS double precision) <= 0 OR pg_postmaster_start_time() > coalesce($1, statement_timestamp())
     OR coalesce($1, statement_timestamp()) > pg_postmaster_start_time() + ($2) * interval '1 second') AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL
ORDER BY id
LIMIT $3
FOR UPDATE SKIP LOCKED;

-- failures (now, since, width, n, task, queue)
SELECT f.task, f.error_code, f.source, f.message, count(*) AS number,
       CAST(floor(((date_part('epoch', f.finished_at) - date_part('epoch', coalesce($1, statement_timestamp()))) - (date_part('epoch', CAST($2 AS timestamptz)) - date_part('epoch', coalesce($1, statement_timestamp())))) / $3) AS integer) AS slot,
       CASE WHEN min(f.finished_at) > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN min(f.finished_at) < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE min(f.finished_at) END AS first_at, CASE WHEN max(f.finished_at) > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN max(f.finished_at) < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE max(f.finished_at) END AS last_at, max(CAST(f.job_id AS text)) AS job_id
FROM (
    SELECT a.job_id, a.attempt, a.source, a.error_code, substr(a.error_message, 1, 300) AS message, a.finished_at,
           coalesce(a.task, '') AS task, coalesce(a.queue, '') AS queue
    FROM rowlock.attempts a
    WHERE a.finished_at >= $2 AND a.outcome IN ('failed', 'timed_out', 'lost')
    ORDER BY a.finished_at DESC
    LIMIT $4) f
WHERE CASE WHEN CAST($5 AS text) IS NULL THEN TRUE ELSE f.task = $5 END
  AND CASE WHEN CAST($6 AS text) IS NULL THEN TRUE ELSE f.queue = $6 END
GROUP BY 1, 2, 3, 4, 6;

-- final_states (asked[0])
SELECT id, state FROM rowlock.jobs_finished WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id)));

-- find_plain (lane[0], lane[1], lane[2], lane[3], lane[4], lane[5], now, n)
SELECT CAST(front.id AS text), front.priority, CAST(NULL AS text) AS source, lane.queue, lane.task
FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[]::uuid[], $5::integer[], $6::integer[]) AS lane(queue, task, low_priority, low_id, high_priority, most)
CROSS JOIN LATERAL (
    SELECT j.id, j.priority
    FROM rowlock.jobs_live j
    WHERE j.ready
  AND j.source IS NULL
  AND j.queue = lane.queue
  AND j.task = lane.task
  AND (j.priority, j.id) > (lane.low_priority, lane.low_id)
  AND j.priority < lane.high_priority
  AND (j.expires_at IS NULL OR j.expires_at > coalesce($7, statement_timestamp()))
ORDER BY j.priority, j.id
    LIMIT $8
    FOR UPDATE SKIP LOCKED
) front
WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL);

-- find_task (name)
SELECT name, CAST(options AS text) AS options, source_derived, CAST(arguments AS text) AS arguments, description,
       CASE WHEN updated_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN updated_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE updated_at END AS updated_at
FROM rowlock.tasks
WHERE name = $1;

-- find_token (hash, kind, now)
SELECT CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id, CASE WHEN created_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN created_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE created_at END AS created_at,
       CASE WHEN expires_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN expires_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE expires_at END AS expires_at, CASE WHEN revoked_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN revoked_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE revoked_at END AS revoked_at FROM rowlock.tokens t
WHERE hash = $1 AND kind = $2 AND t.revoked_at IS NULL AND coalesce(t.expires_at > coalesce($3, statement_timestamp()), TRUE)
  AND (SELECT p.revoked_at FROM rowlock.tokens p WHERE p.id = t.made_from) IS NULL;

-- find_turns (turn[0], turn[1], turn[2], turn[3], turn[4], now, n)
SELECT CAST(front.id AS text), turn.priority, turn.source, turn.queue, turn.task
FROM (SELECT turn.* FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[], $5::integer[]) AS turn(queue, task, priority, source, most)
 WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = turn.queue AND q.paused_at IS NOT NULL)) turn
CROSS JOIN LATERAL (
    SELECT j.id
    FROM rowlock.jobs_live j
    WHERE j.ready
  AND j.source IS NOT NULL
  AND j.queue = turn.queue
  AND j.task = turn.task
  AND j.priority = turn.priority
  AND j.source >= turn.source AND j.source <= turn.source
  AND (j.expires_at IS NULL OR j.expires_at > coalesce($6, statement_timestamp()))
ORDER BY j.priority, j.source, j.id
    LIMIT least(turn.most, $7)
    FOR UPDATE SKIP LOCKED
) front;

-- finish_copy (now, final[0], final[1], final[2], final[3], final[4], final[5], final[6], final[7], final[8], final[9])
INSERT INTO rowlock.jobs_finished (
    id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id, max_attempts, expires_at, run_after, cancel_requested_at, phase, message, result_uri, result_checksum,
    state, releases, losses, convictions, settled_token, progress, result, error_code, error_message,
    last_worker, finished_at, updated_at, drop_on)
SELECT j.id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id, max_attempts, expires_at, run_after, cancel_requested_at, phase, message, result_uri, result_checksum,
       final.state, releases + final.released, losses + final.lost, convictions + final.convicted,
       CASE WHEN final.by_holder = 1 THEN lease_token ELSE settled_token END,
       CASE WHEN final.state = 'succeeded' THEN 100 ELSE progress END,
       final.result, final.error_code, final.error_message,
       locked_by, coalesce($1, statement_timestamp()), coalesce($1, statement_timestamp()), (((coalesce($1, statement_timestamp()) + least(greatest(coalesce(keep_seconds, final.keep), 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC')::date + 1)
FROM unnest($2::text[]::uuid[], $3::text[], $4::json[], $5::text[], $6::text[], $7::integer[], $8::integer[], $9::integer[], $10::double precision[], $11::integer[]) AS final(id, state, result, error_code, error_message, released, lost, convicted, keep, by_holder)
CROSS JOIN rowlock.jobs_live j
WHERE j.id = final.id;

-- finish_remove (gone[0])
DELETE FROM rowlock.jobs_live WHERE id IN (SELECT gone.id FROM unnest($1::text[]::uuid[]) AS gone(id));

-- finished_lately (now, n, ago)
SELECT state, task, count(*) AS number, count(started_at) FILTER (WHERE state <> 'cancelled') AS ran,
       sum((date_part('epoch', finished_at) - date_part('epoch', coalesce($1, statement_timestamp()))) - (date_part('epoch', started_at) - date_part('epoch', coalesce($1, statement_timestamp())))) FILTER (WHERE state <> 'cancelled') AS seconds
FROM (
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM rowlock.jobs_finished j
        ORDER BY j.id DESC LIMIT $2) newest
    WHERE state = 'succeeded'
    UNION ALL
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM rowlock.jobs_finished j
        WHERE j.state = 'dead' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT $2) dead
    UNION ALL
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM rowlock.jobs_finished j
        WHERE j.state = 'cancelled' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT $2) cancelled) newest
WHERE finished_at > (coalesce($1, statement_timestamp()) + ($3) * interval '1 second')
GROUP BY state, task;

-- fire_jobs (now, fired[0], fired[1], fired[2], fired[3])
INSERT INTO rowlock.jobs_live (
    id, args, task, ready, schedule_id, tick, run_after,
    queue, priority, max_attempts, backoff, timeout_seconds, source, on_success, on_dead, on_lost, keep_seconds, owner,
    created_at, updated_at)
SELECT fired.job_id, s.args, s.task, fired.jitter <= 0, s.id, fired.tick, (coalesce($1, statement_timestamp()) + (fired.jitter) * interval '1 second'),
       s.queue, s.priority, s.max_attempts, s.backoff, s.timeout_seconds, s.source, s.on_success, s.on_dead, s.on_lost,
       s.keep_seconds, s.owner,
       coalesce($1, statement_timestamp()), coalesce($1, statement_timestamp())
FROM unnest($2::text[], $3::timestamptz[], $4::text[]::uuid[], $5::double precision[]) AS fired(schedule_id, tick, job_id, jitter)
CROSS JOIN rowlock.schedules s
WHERE s.id = fired.schedule_id;

-- first_log (job_id)
SELECT seq FROM rowlock.job_logs WHERE job_id = $1 ORDER BY seq LIMIT 1;

-- forget_aside (now)
DELETE FROM rowlock.set_aside
WHERE again_at < (coalesce($1, statement_timestamp()) + (-3600) * interval '1 second')
   OR coalesce((SELECT 1 FROM rowlock.jobs_live j WHERE j.id = rowlock.set_aside.id),
               (SELECT 1 FROM rowlock.batches b WHERE b.id = rowlock.set_aside.id AND b.finished_at IS NULL),
               CASE WHEN doing = 'prune'
                    THEN (SELECT 1 FROM rowlock.jobs_finished f WHERE f.id = rowlock.set_aside.id LIMIT 1) END)
      IS NULL;

-- forget_request (owner, key, claim)
DELETE FROM rowlock.requests WHERE owner = $1 AND key = $2 AND claim = $3 AND job_id IS NULL;

-- forget_rollups (seconds, now, ago)
DELETE FROM rowlock.rollups WHERE seconds = $1 AND at < (coalesce($2, statement_timestamp()) + ($3) * interval '1 second');

-- forget_samples (now, ago)
DELETE FROM rowlock.queue_samples WHERE at < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second');

-- forget_webhook_secrets (owner)
DELETE FROM rowlock.webhook_secrets WHERE owner = $1 AND expires_at IS NOT NULL;

-- forget_workers (now, n)
DELETE FROM rowlock.workers
WHERE id IN (
    SELECT id FROM rowlock.workers
    WHERE expires_at < (coalesce($1, statement_timestamp()) + (-3600) * interval '1 second')
    ORDER BY expires_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED)
RETURNING 1 AS pruned;

-- gates (now, named[0])
SELECT named.source, coalesce($1, statement_timestamp()), coalesce(s.concurrency, c.concurrency), c.total,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute),
       CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END,
       coalesce(s.enabled, TRUE) AND coalesce(c.class_enabled, TRUE),
       (date_part('epoch', greatest(coalesce(s.paused_until, c.class_paused_until),
                                coalesce(c.class_paused_until, s.paused_until))) - date_part('epoch', coalesce($1, statement_timestamp()))),
       s.opened_at IS NOT NULL,
       (SELECT 1 FROM rowlock.jobs_live p
        WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running'
          AND (SELECT 1 FROM rowlock.set_aside a
               WHERE a.id = p.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL) IS NOT NULL,
       s.tokens, -(date_part('epoch', s.tokens_at) - date_part('epoch', coalesce($1, statement_timestamp()))), coalesce(s.epoch, 0),
       CASE WHEN coalesce(s.concurrency, c.concurrency) IS NOT NULL THEN (
            SELECT count(*) FROM rowlock.jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL
              AND split_part(r.source, ':', 1) = c.name AND r.source = named.source
              AND (SELECT 1 FROM rowlock.set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL) END,
       CASE WHEN c.total IS NOT NULL THEN (
            SELECT count(*) FROM rowlock.jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL AND split_part(r.source, ':', 1) = c.name
              AND (SELECT 1 FROM rowlock.set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL) END,
       s.name IS NOT NULL
FROM unnest($2::text[]) AS named(source)
LEFT JOIN LATERAL (SELECT * FROM rowlock.sources WHERE name = named.source LIMIT 1) s ON TRUE
LEFT JOIN LATERAL (SELECT * FROM rowlock.sources WHERE name = split_part(named.source, ':', 1) LIMIT 1) c ON TRUE;

-- give_id_back (key)
SELECT FROM rowlock._give_ids_back(ARRAY[CAST($1 AS uuid)]);

-- good_tokens (asked[0], now)
SELECT CAST(t.id AS text) AS id
FROM unnest($1::text[]::uuid[]) AS asked(id)
CROSS JOIN rowlock.tokens t
WHERE t.id = asked.id AND t.revoked_at IS NULL AND coalesce(t.expires_at > coalesce($2, statement_timestamp()), TRUE)
  AND (SELECT p.revoked_at FROM rowlock.tokens p WHERE p.id = t.made_from) IS NULL;

-- hear (now, lease, reported[0], reported[1], reported[2], reported[3], reported[4])
UPDATE rowlock.jobs_live
SET started_at = CASE WHEN published = 'unread' THEN coalesce($1, statement_timestamp()) ELSE started_at END,
    published = 'read', locked_by = 'redis-read', heartbeat_at = coalesce($1, statement_timestamp()), lease_expires_at = (coalesce($1, statement_timestamp()) + ($2) * interval '1 second'),
    progress = greatest(coalesce(rowlock.jobs_live.progress, 0), reported.progress),
    phase = reported.phase, message = reported.message, updated_at = coalesce($1, statement_timestamp())
FROM unnest($3::text[]::uuid[], $4::text[]::uuid[], $5::integer[], $6::text[], $7::text[]) AS reported(id, token, progress, phase, message)
WHERE rowlock.jobs_live.id = reported.id AND lease_token = reported.token AND state = 'running'
  AND published IS NOT NULL
RETURNING CAST(rowlock.jobs_live.id AS text) AS id;

-- held (mine[0], mine[1])
SELECT j.id, j.cancel_requested_at IS NOT NULL AS cancel_requested
FROM unnest($1::text[]::uuid[], $2::text[]::uuid[]) AS mine(id, token)
CROSS JOIN rowlock.jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running';

-- held_queues (n, asked[0])
WITH RECURSIVE plain (queue, task, priority, run_after) AS (
    SELECT queue, task, priority, run_after FROM (
        SELECT j.queue, j.task, j.priority, j.run_after
        FROM rowlock.jobs_live j
        WHERE j.ready AND j.source IS NULL
        ORDER BY j.queue, j.task, j.priority, j.id
        LIMIT 1) first
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after
    FROM plain h
    JOIN rowlock.jobs_live j ON j.id = (
        SELECT n.id
        FROM rowlock.jobs_live n
        WHERE n.ready AND n.source IS NULL
          AND (n.queue, n.task, n.priority, n.id)
              > (h.queue, h.task, h.priority, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY n.queue, n.task, n.priority, n.id
        LIMIT 1)
), sourced (queue, task, priority, run_after) AS (
    SELECT queue, task, priority, run_after FROM (
        SELECT j.queue, j.task, j.priority, j.run_after
        FROM rowlock.jobs_live j
        WHERE j.ready AND j.source IS NOT NULL
        ORDER BY j.queue, j.task, j.priority, j.source, j.id
        LIMIT 1) first
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after
    FROM sourced h
    JOIN rowlock.jobs_live j ON j.id = coalesce(
        (SELECT n.id FROM rowlock.jobs_live n
         WHERE n.ready AND n.source IS NOT NULL
           AND n.queue = h.queue AND n.task = h.task AND n.priority > h.priority
         ORDER BY n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM rowlock.jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue = h.queue AND n.task > h.task
         ORDER BY n.task, n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM rowlock.jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue > h.queue
         ORDER BY n.queue, n.task, n.priority, n.source, n.id LIMIT 1))
), lane AS (SELECT queue, task, priority FROM sourced LIMIT $1)
SELECT lane.queue, asked.source
FROM lane CROSS JOIN unnest($2::text[]) AS asked(source)
WHERE (
    SELECT j.id FROM rowlock.jobs_live j
    WHERE j.ready AND j.source IS NOT NULL
      AND j.queue = lane.queue AND j.task = lane.task AND j.priority = lane.priority AND j.source = asked.source
    ORDER BY j.queue, j.task, j.priority, j.source, j.id LIMIT 1) IS NOT NULL
UNION
SELECT lane.queue, asked.source
FROM lane CROSS JOIN unnest($2::text[]) AS asked(source)
WHERE asked.source NOT LIKE '%:%' AND EXISTS (
    SELECT 1 FROM (
        SELECT j.source FROM rowlock.jobs_live j
        WHERE j.ready AND j.source IS NOT NULL
          AND j.queue = lane.queue AND j.task = lane.task AND j.priority = lane.priority
        ORDER BY j.queue, j.task, j.priority, j.source, j.id LIMIT 200) first
    WHERE split_part(first.source, ':', 1) = asked.source)
ORDER BY 1, 2;

-- hold_alert_lease (token, now)
SELECT one FROM rowlock.alert_lease WHERE token = $1 AND expires_at > coalesce($2, statement_timestamp())
FOR UPDATE;

-- hold_back (job_id)
UPDATE rowlock.jobs_live SET ready = FALSE WHERE id = $1;

-- hold_batches (asked[0])
SELECT CAST(b.id AS text) AS id FROM rowlock.batches b
WHERE b.id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id)))
ORDER BY b.id
FOR UPDATE;

-- is_ready (job_id)
SELECT id FROM rowlock.jobs_live WHERE id = $1 AND ready;

-- job_states (asked[0])
SELECT CAST(j.id AS text) AS id, j.task, j.state, j.result_uri
FROM rowlock.jobs j
WHERE j.id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id)));

-- key_holders (scope, wanted[0], now)
SELECT key, CAST(job_id AS text) AS job_id, over
FROM rowlock._key_holders($1, ARRAY(SELECT wanted.key FROM unnest($2::text[]) AS wanted(key)), coalesce($3, statement_timestamp()));

-- known_id (job_id)
SELECT 1 AS known FROM rowlock._known_ids(ARRAY[CAST($1 AS uuid)]);

-- lane_heads (now, n)
WITH RECURSIVE plain (queue, task, priority, run_after) AS (
    SELECT queue, task, priority, run_after FROM (
        SELECT j.queue, j.task, j.priority, j.run_after
        FROM rowlock.jobs_live j
        WHERE j.ready AND j.source IS NULL
        ORDER BY j.queue, j.task, j.priority, j.id
        LIMIT 1) first
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after
    FROM plain h
    JOIN rowlock.jobs_live j ON j.id = (
        SELECT n.id
        FROM rowlock.jobs_live n
        WHERE n.ready AND n.source IS NULL
          AND (n.queue, n.task, n.priority, n.id)
              > (h.queue, h.task, h.priority, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY n.queue, n.task, n.priority, n.id
        LIMIT 1)
), sourced (queue, task, priority, run_after) AS (
    SELECT queue, task, priority, run_after FROM (
        SELECT j.queue, j.task, j.priority, j.run_after
        FROM rowlock.jobs_live j
        WHERE j.ready AND j.source IS NOT NULL
        ORDER BY j.queue, j.task, j.priority, j.source, j.id
        LIMIT 1) first
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after
    FROM sourced h
    JOIN rowlock.jobs_live j ON j.id = coalesce(
        (SELECT n.id FROM rowlock.jobs_live n
         WHERE n.ready AND n.source IS NOT NULL
           AND n.queue = h.queue AND n.task = h.task AND n.priority > h.priority
         ORDER BY n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM rowlock.jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue = h.queue AND n.task > h.task
         ORDER BY n.task, n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM rowlock.jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue > h.queue
         ORDER BY n.queue, n.task, n.priority, n.source, n.id LIMIT 1))
)
SELECT queue, task, -(date_part('epoch', run_after) - date_part('epoch', coalesce($1, statement_timestamp()))) AS age FROM (
    SELECT * FROM plain UNION ALL SELECT * FROM sourced) heads
LIMIT $2;

-- lane_sizes (n, looks, now, lane[0], lane[1])
SELECT lane.queue, lane.task,
       (SELECT count(*) FROM (
            SELECT 1 FROM rowlock.jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT $1) found) AS ready,
       (SELECT count(*) FROM (
            SELECT j.state FROM rowlock.jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT $2) found
        WHERE state = 'retryable') AS retries,
       (SELECT -(date_part('epoch', min(found.run_after)) - date_part('epoch', coalesce($3, statement_timestamp()))) FROM (
            SELECT j.run_after FROM rowlock.jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT $2) found) AS age
FROM unnest($4::text[], $5::text[]) AS lane(queue, task)
UNION ALL
SELECT lane.queue, lane.task,
       (SELECT count(*) FROM (
            SELECT 1 FROM rowlock.jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT $1) found) AS ready,
       (SELECT count(*) FROM (
            SELECT j.state FROM rowlock.jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT $2) found
        WHERE state = 'retryable') AS retries,
       (SELECT -(date_part('epoch', min(found.run_after)) - date_part('epoch', coalesce($3, statement_timestamp()))) FROM (
            SELECT j.run_after FROM rowlock.jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT $2) found) AS age
FROM unnest($4::text[], $5::text[]) AS lane(queue, task);

-- last_job (job_id, id)
UPDATE rowlock.schedules SET last_job = $1 WHERE id = $2;

-- leave_alert_lease (token)
DELETE FROM rowlock.alert_lease WHERE token = $1;

-- leave_batch (gone[0])
UPDATE rowlock.jobs_live SET batch_id = NULL WHERE id = ANY(ARRAY(SELECT gone.id FROM unnest($1::text[]::uuid[]) AS gone(id)));

-- line (now, priority, id, n, lane[0], lane[1])
SELECT coalesce(sum(ahead.plain), 0) AS same_line, coalesce(sum(ahead.sourced), 0) AS other_lines,
       coalesce(sum(ahead.alike), 0) AS turns
FROM (
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock.jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > coalesce($1, statement_timestamp())) AND j.source IS NULL AND (j.priority, j.id) < ($2, $3)
            ORDER BY j.priority, j.id LIMIT $4) first) AS plain,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock.jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > coalesce($1, statement_timestamp())) AND j.source IS NOT NULL AND j.priority < $2
            ORDER BY j.priority, j.source, j.id LIMIT $4) first) AS sourced,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock.jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > coalesce($1, statement_timestamp())) AND j.source IS NOT NULL AND j.priority >= $2 AND j.priority <= $2
            ORDER BY j.priority, j.source, j.id LIMIT 1) first) AS alike
    FROM unnest($5::text[], $6::text[]) AS lane(queue, task)
    WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)) ahead;

-- line_of_source (now, priority, source, id, n, lane[0], lane[1])
SELECT coalesce(sum(ahead.own), 0) AS same_line, coalesce(sum(ahead.plain + ahead.sourced), 0) AS other_lines,
       coalesce(sum(ahead.alike_plain + ahead.alike_before + ahead.alike_after), 0) AS turns
FROM (
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock.jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > coalesce($1, statement_timestamp())) AND j.source IS NOT NULL AND j.priority >= $2 AND j.priority <= $2
              AND j.source >= $3 AND j.source <= $3 AND j.id < $4
            ORDER BY j.priority, j.source, j.id LIMIT $5) first) AS own,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock.jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > coalesce($1, statement_timestamp())) AND j.source IS NULL AND j.priority < $2
            ORDER BY j.priority, j.id LIMIT $5) first) AS plain,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock.jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > coalesce($1, statement_timestamp())) AND j.source IS NOT NULL AND j.priority < $2
            ORDER BY j.priority, j.source, j.id LIMIT $5) first) AS sourced,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock.jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > coalesce($1, statement_timestamp())) AND j.source IS NULL AND j.priority >= $2 AND j.priority <= $2
            ORDER BY j.priority, j.id LIMIT 1) first) AS alike_plain,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock.jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > coalesce($1, statement_timestamp())) AND j.source IS NOT NULL AND j.priority >= $2 AND j.priority <= $2
              AND j.source < $3
            ORDER BY j.priority, j.source, j.id LIMIT 1) first) AS alike_before,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock.jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > coalesce($1, statement_timestamp())) AND j.source IS NOT NULL AND j.priority >= $2 AND j.priority <= $2
              AND j.source > $3
            ORDER BY j.priority, j.source, j.id LIMIT 1) first) AS alike_after
    FROM unnest($6::text[], $7::text[]) AS lane(queue, task)
    WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)) ahead;

-- list_aside (n)
SELECT CAST(a.id AS text) AS id, a.doing, a.error, a.times, CASE WHEN a.since > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN a.since < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE a.since END AS since, CASE WHEN a.again_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN a.again_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE a.again_at END AS again_at
FROM rowlock.set_aside a
ORDER BY a.since DESC
LIMIT $1;

-- list_audit (before, n)
SELECT id, CASE WHEN at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE at END AS at, who, via, address, action, target, number AS count, CAST(details AS text) AS details
FROM rowlock.audit
WHERE id < $1
ORDER BY id DESC
LIMIT $2;

-- list_batches (batch_id, owner, state, n)
SELECT CAST(b.id AS text) AS id, b.name, b.owner, b.state, b.sealed_at IS NOT NULL AS sealed,
       CASE WHEN b.created_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN b.created_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE b.created_at END AS created_at, CASE WHEN b.started_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN b.started_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE b.started_at END AS started_at, CASE WHEN b.finished_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN b.finished_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE b.finished_at END AS finished_at,
       coalesce((SELECT sum(n.total) FROM rowlock.batch_counts n WHERE n.batch_id = b.id), 0) AS total,
       coalesce((SELECT sum(n.processed) FROM rowlock.batch_counts n WHERE n.batch_id = b.id), 0) AS processed,
       coalesce((SELECT sum(n.failed) FROM rowlock.batch_counts n WHERE n.batch_id = b.id), 0) AS failed,
       coalesce((SELECT sum(n.cancelled) FROM rowlock.batch_counts n WHERE n.batch_id = b.id), 0) AS cancelled,
       coalesce((SELECT sum(n.expired) FROM rowlock.batch_counts n WHERE n.batch_id = b.id), 0) AS expired,
       (SELECT n.last_error FROM rowlock.batch_counts n WHERE n.batch_id = b.id AND n.last_error IS NOT NULL
        ORDER BY n.last_error_at DESC LIMIT 1) AS last_error,
       CAST(b.parent_id AS text) AS parent_id, CAST(b.end_job AS text) AS end_job
FROM rowlock.batches b
WHERE b.id < $1
  AND CASE WHEN CAST($2 AS text) IS NULL THEN TRUE ELSE b.owner = $2 END
  AND CASE WHEN CAST($3 AS text) IS NULL THEN TRUE ELSE b.state = $3 END
ORDER BY b.id DESC
LIMIT $4;

-- list_due (now, left_out[0], left_out[1], left_out[2], n)
SELECT id, rule, zone FROM rowlock.schedules
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick <= coalesce($1, statement_timestamp()) AND NOT (zone || ' ' || rule || ' ' || id
     = ANY(ARRAY(SELECT left_out.zone || ' ' || left_out.rule || ' ' || left_out.id
            FROM unnest($2::text[], $3::text[], $4::text[]) AS left_out(id, rule, zone))))
ORDER BY next_tick
LIMIT $5;

-- list_schedules (now, id, only, n)
SELECT s.id, s.task, CAST(s.args AS text) AS args, s.rule, s.zone, s.missed, s.missed_most, s.missed_seconds,
       s.overlap, s.queue, s.priority, s.owner, s.source, s.max_attempts, s.timeout_seconds, s.jitter_seconds,
       CASE WHEN s.starts_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.starts_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.starts_at END AS starts_at, CASE WHEN s.ends_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.ends_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.ends_at END AS ends_at, s.origin,
       CASE WHEN s.paused_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.paused_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.paused_at END AS paused_at, CASE WHEN s.retired_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.retired_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.retired_at END AS retired_at,
       CASE WHEN s.last_tick > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.last_tick < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.last_tick END AS last_tick, CAST(coalesce(k.job_id, s.last_job) AS text) AS last_job,
       CASE WHEN s.next_tick > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.next_tick < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.next_tick END AS next_tick, s.problem,
       (SELECT j.state FROM rowlock.jobs j WHERE j.id = coalesce(k.job_id, s.last_job) LIMIT 1) AS last_state,
       CASE WHEN coalesce($1, statement_timestamp()) > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN coalesce($1, statement_timestamp()) < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE coalesce($1, statement_timestamp()) END AS read_at
FROM rowlock.schedules s
LEFT JOIN rowlock.ticks k ON k.schedule_id = s.id AND k.tick = s.last_tick
WHERE s.id > $2 AND CASE WHEN CAST($3 AS text) IS NULL THEN TRUE ELSE s.id = $3 END
ORDER BY s.id
LIMIT $4;

-- list_sources (name, only, refused, n)
SELECT s.name, s.concurrency, s.total, s.rate_limit_per_minute AS rate, s.burst, s.failure_threshold AS threshold,
       s.cooldown_seconds AS cooldown, s.cooldown_factor AS factor, s.block_after, s.set_by, s.enabled, CASE WHEN s.paused_until > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.paused_until < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.paused_until END AS paused_until, s.failure_streak,
       CASE WHEN s.opened_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.opened_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.opened_at END AS opened_at, s.opens, CASE WHEN s.last_success_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.last_success_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.last_success_at END AS last_success_at,
       CASE WHEN s.last_failure_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.last_failure_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.last_failure_at END AS last_failure_at, s.last_error, s.refusals, CASE WHEN s.refused_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.refused_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.refused_at END AS refused_at,
       s.refusal_code,
       (SELECT count(*) FROM rowlock.jobs_live r
        WHERE r.state = 'running' AND r.source IS NOT NULL
          AND split_part(r.source, ':', 1) = split_part(s.name, ':', 1) AND r.source = s.name) AS running,
       (SELECT count(*) FROM rowlock.jobs_live r
        WHERE r.state = 'running' AND r.source IS NOT NULL AND split_part(r.source, ':', 1) = s.name) AS class_running,
       coalesce(s.concurrency, c.concurrency) AS effective_concurrency,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate_limit_per_minute,
       coalesce(c.class_enabled, TRUE) AS class_enabled, CASE WHEN c.class_paused_until > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN c.class_paused_until < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE c.class_paused_until END AS class_paused_until
FROM rowlock.sources s
LEFT JOIN rowlock.sources c ON c.name = split_part(s.name, ':', 1)
WHERE s.name > $1
  AND CASE WHEN CAST($2 AS text) IS NULL THEN TRUE ELSE s.name = $2 END
  AND ($3 = 0 OR s.refusals >= $3)
ORDER BY s.name
LIMIT $4;

-- list_tasks (n)
SELECT name, CAST(options AS text) AS options, source_derived, CAST(arguments AS text) AS arguments, description,
       CASE WHEN updated_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN updated_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE updated_at END AS updated_at
FROM rowlock.tasks
ORDER BY name
LIMIT $1;

-- list_tokens (n)
SELECT CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id, CASE WHEN created_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN created_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE created_at END AS created_at,
       CASE WHEN expires_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN expires_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE expires_at END AS expires_at, CASE WHEN revoked_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN revoked_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE revoked_at END AS revoked_at FROM rowlock.tokens t
WHERE job_id IS NULL AND uses IS NULL
ORDER BY created_at DESC, id DESC
LIMIT $1;

-- list_webhook_secrets (now, n)
SELECT CAST(id AS text) AS id, owner, hint, CASE WHEN created_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN created_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE created_at END AS created_at, CASE WHEN expires_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN expires_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE expires_at END AS expires_at
FROM rowlock.webhook_secrets
WHERE coalesce(expires_at > coalesce($1, statement_timestamp()), TRUE)
ORDER BY owner, created_at DESC
LIMIT $2;

-- list_workers (now)
SELECT w.id, w.hostname, w.pid, w.version, w.queues, w.tasks, w.pool_size, w.running, w.idle,
       CASE WHEN w.started_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN w.started_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE w.started_at END AS started_at, CASE WHEN w.seen_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN w.seen_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE w.seen_at END AS seen_at, w.expires_at > coalesce($1, statement_timestamp()) AS alive, w.memory_bytes,
       w.stop_requested, CASE WHEN w.stop_requested_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN w.stop_requested_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE w.stop_requested_at END AS stop_requested_at
FROM rowlock.workers w
ORDER BY w.expires_at > coalesce($1, statement_timestamp()) DESC, w.started_at DESC;

-- listen_for_events (id, now, ttl)
INSERT INTO rowlock.event_listeners (id, expires_at) VALUES ($1, (coalesce($2, statement_timestamp()) + ($3) * interval '1 second'))
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at;

-- live_workers (now)
SELECT id, queues, tasks, pool_size, running FROM rowlock.workers WHERE expires_at > coalesce($1, statement_timestamp()) ORDER BY id;

-- lock_classes (asked[0])
SELECT name FROM rowlock.sources
WHERE name = ANY(ARRAY(SELECT asked.name FROM unnest($1::text[]) AS asked(name))) AND total IS NOT NULL
ORDER BY name
FOR UPDATE;

-- lock_due (now, left_out[0], left_out[1], left_out[2], n)
SELECT id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds,
       CASE WHEN starts_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN starts_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE starts_at END AS starts_at, CASE WHEN ends_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN ends_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE ends_at END AS ends_at, CASE WHEN s.next_tick > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.next_tick < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.next_tick END AS next_tick,
       CASE WHEN coalesce($1, statement_timestamp()) > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN coalesce($1, statement_timestamp()) < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE coalesce($1, statement_timestamp()) END AS now, CASE WHEN paused_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN paused_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE paused_at END AS paused_at
FROM rowlock.schedules s
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick <= coalesce($1, statement_timestamp()) AND NOT (zone || ' ' || rule || ' ' || id
     = ANY(ARRAY(SELECT left_out.zone || ' ' || left_out.rule || ' ' || left_out.id
            FROM unnest($2::text[], $3::text[], $4::text[]) AS left_out(id, rule, zone))))
ORDER BY s.next_tick
LIMIT $5
FOR UPDATE SKIP LOCKED;

-- lock_finished (asked[0])
SELECT id, task, owner, state, unique_key, unique_mode, CAST(batch_id AS text) AS batch_id, error_code
FROM rowlock.jobs_finished
WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id))) AND state IN ('dead', 'cancelled')
ORDER BY id
FOR UPDATE;

-- lock_health (now, asked[0])
SELECT s.name, s.failure_streak AS streak, coalesce(s.failure_threshold, c.failure_threshold) AS threshold,
       coalesce(s.cooldown_seconds, c.cooldown_seconds) AS cooldown,
       coalesce(s.cooldown_factor, c.cooldown_factor) AS factor, s.epoch, s.opened_at IS NOT NULL AS opened, s.opens,
       s.refusals, coalesce(s.block_after, c.block_after) AS block_after, s.enabled,
       (date_part('epoch', s.paused_until) - date_part('epoch', coalesce($1, statement_timestamp()))) AS paused_for
FROM rowlock.sources s
LEFT JOIN LATERAL (SELECT * FROM rowlock.sources WHERE name = split_part(s.name, ':', 1) LIMIT 1) c ON TRUE
WHERE s.name = ANY(ARRAY(SELECT asked.name FROM unnest($2::text[]) AS asked(name)))
ORDER BY s.name
FOR UPDATE OF s;

-- lock_held (mine[0], mine[1])
SELECT j.id, j.lease_token AS token, j.cancel_requested_at IS NOT NULL AS cancel_requested, j.source,
       coalesce(j.source_epoch, 0) AS source_epoch
FROM unnest($1::text[]::uuid[], $2::text[]::uuid[]) AS mine(id, token)
CROSS JOIN rowlock.jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
ORDER BY j.id
FOR UPDATE OF j;

-- lock_jobs (asked[0])
SELECT j.id, j.state = 'running' AS running, j.locked_by, j.published IS NOT NULL AS published
FROM unnest($1::text[]::uuid[]) AS asked(id)
CROSS JOIN rowlock.jobs_live j
WHERE j.id = asked.id
ORDER BY j.id
FOR UPDATE OF j;

-- lock_migrations
SELECT pg_advisory_xact_lock(hashtext('rowlock.migrate'));

-- lock_owner (owner)
SELECT pg_advisory_xact_lock(hashtext('rowlock.owner'), hashtext($1));

-- lock_policy (name)
SELECT s.concurrency, s.total, s.rate_limit_per_minute AS rate, s.burst, s.failure_threshold AS threshold,
       s.cooldown_seconds AS cooldown, s.cooldown_factor AS factor, s.block_after, s.set_by FROM rowlock.sources s WHERE name = $1
FOR UPDATE;

-- lock_preview (token_hash, now)
SELECT action, CAST(filter AS text) AS filter, CAST(ids AS text) AS ids, CASE WHEN made_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN made_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE made_at END AS made_at,
       CAST(next_id AS text) AS next_id, looked, changed, audit_id
FROM rowlock.previews
WHERE token_hash = $1 AND expires_at > coalesce($2, statement_timestamp())
FOR UPDATE;

-- lock_ready (picked[0])
SELECT CAST(j.id AS text) AS id
FROM rowlock.jobs_live j
WHERE j.id = ANY(ARRAY(SELECT picked.id FROM unnest($1::text[]::uuid[]) AS picked(id))) AND j.ready
FOR UPDATE SKIP LOCKED;

-- lock_schedule (now, id)
SELECT id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds,
       CASE WHEN starts_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN starts_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE starts_at END AS starts_at, CASE WHEN ends_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN ends_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE ends_at END AS ends_at, CASE WHEN s.next_tick > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.next_tick < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.next_tick END AS next_tick,
       CASE WHEN coalesce($1, statement_timestamp()) > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN coalesce($1, statement_timestamp()) < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE coalesce($1, statement_timestamp()) END AS now, CASE WHEN paused_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN paused_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE paused_at END AS paused_at
FROM rowlock.schedules s
WHERE id = $2
FOR UPDATE;

-- lock_sources (asked[0])
SELECT name FROM rowlock.sources
WHERE name = ANY(ARRAY(SELECT asked.name FROM unnest($1::text[]) AS asked(name)))
ORDER BY name
FOR UPDATE SKIP LOCKED;

-- look (span[0], span[1], span[2], span[3], span[4], now)
WITH RECURSIVE head (queue, task, most, nth, priority, source) AS (
    SELECT span.queue, span.task, span.most, 0, span.low_priority, span.low_source
    FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[], $5::integer[]) AS span(queue, task, low_priority, low_source, most)
    WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = span.queue AND q.paused_at IS NOT NULL)
    UNION ALL
    SELECT head.queue, head.task, head.most, head.nth + 1, CAST(following.priority AS int), following.source
    FROM head
    CROSS JOIN LATERAL (SELECT * FROM rowlock.jobs_live WHERE id = coalesce(
        (SELECT j.id FROM rowlock.jobs_live j
         WHERE j.ready AND j.source IS NOT NULL AND j.queue = head.queue AND j.task = head.task
           AND j.priority = head.priority AND j.source > head.source
         ORDER BY j.priority, j.source, j.id LIMIT 1),
        (SELECT j.id FROM rowlock.jobs_live j
         WHERE j.ready AND j.source IS NOT NULL AND j.queue = head.queue AND j.task = head.task
           AND j.priority > head.priority
         ORDER BY j.priority, j.source, j.id LIMIT 1)) LIMIT 1) following
    WHERE head.nth < head.most
)
SELECT named.queue, named.task, named.priority, named.source, named.nth = named.most, coalesce(s.concurrency, c.concurrency), c.total,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute),
       CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END,
       coalesce(s.enabled, TRUE) AND coalesce(c.class_enabled, TRUE),
       (date_part('epoch', greatest(coalesce(s.paused_until, c.class_paused_until),
                                coalesce(c.class_paused_until, s.paused_until))) - date_part('epoch', coalesce($6, statement_timestamp()))),
       s.opened_at IS NOT NULL,
       (SELECT 1 FROM rowlock.jobs_live p
        WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running'
          AND (SELECT 1 FROM rowlock.set_aside a
               WHERE a.id = p.id AND coalesce(a.again_at > coalesce($6, statement_timestamp()), TRUE)) IS NULL) IS NOT NULL,
       s.tokens, -(date_part('epoch', s.tokens_at) - date_part('epoch', coalesce($6, statement_timestamp()))), coalesce(s.epoch, 0),
       CASE WHEN coalesce(s.concurrency, c.concurrency) IS NOT NULL THEN (
            SELECT count(*) FROM rowlock.jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL
              AND split_part(r.source, ':', 1) = c.name AND r.source = named.source
              AND (SELECT 1 FROM rowlock.set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > coalesce($6, statement_timestamp()), TRUE)) IS NULL) END,
       CASE WHEN c.total IS NOT NULL THEN (
            SELECT count(*) FROM rowlock.jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL AND split_part(r.source, ':', 1) = c.name
              AND (SELECT 1 FROM rowlock.set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > coalesce($6, statement_timestamp()), TRUE)) IS NULL) END,
       s.name IS NOT NULL
FROM head named
LEFT JOIN LATERAL (SELECT * FROM rowlock.sources WHERE name = named.source LIMIT 1) s ON TRUE
LEFT JOIN LATERAL (SELECT * FROM rowlock.sources WHERE name = split_part(named.source, ':', 1) LIMIT 1) c ON TRUE
WHERE named.nth > 0
ORDER BY named.priority, named.nth;

-- look_finished (id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.id < $1 AND j.id >= $2 AND CASE j.state WHEN 'succeeded' THEN CAST($3 AS boolean) WHEN 'dead' THEN CAST($4 AS boolean)
             ELSE CAST($5 AS boolean) END
  AND CASE WHEN CAST($6 AS text) IS NULL THEN TRUE ELSE j.task = $6 END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.queue = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.owner = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.source = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($10, $11)) END
  AND CASE WHEN CAST($12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $12 END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $13 END
  AND CASE WHEN CAST($14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
ORDER BY j.id DESC LIMIT $22;

-- look_finished_batch (batch, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.batch_id = $1 AND j.id < $2 AND j.id >= $3 AND CASE j.state WHEN 'succeeded' THEN CAST($4 AS boolean) WHEN 'dead' THEN CAST($5 AS boolean)
             ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.owner = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE j.source = $10 END
  AND CASE WHEN CAST($11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($11, $12)) END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $13 END
  AND CASE WHEN CAST($14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $14 END
  AND CASE WHEN CAST($1 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $1 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
ORDER BY j.id DESC LIMIT $22;

-- look_finished_owner (owner, id, low, succeeded, dead, cancelled, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.owner = $1 AND j.id < $2 AND j.id >= $3 AND CASE j.state WHEN 'succeeded' THEN CAST($4 AS boolean) WHEN 'dead' THEN CAST($5 AS boolean)
             ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($1 AS text) IS NULL THEN TRUE ELSE j.owner = $1 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.source = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($10, $11)) END
  AND CASE WHEN CAST($12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $12 END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $13 END
  AND CASE WHEN CAST($14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
ORDER BY j.id DESC LIMIT $22;

-- look_finished_owner_trouble (owner, trouble, id, low, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.owner = $1 AND j.state = $2 AND j.state <> 'succeeded' AND j.id < $3 AND j.id >= $4 AND CASE WHEN CAST($5 AS text) IS NULL THEN TRUE ELSE j.task = $5 END
  AND CASE WHEN CAST($6 AS text) IS NULL THEN TRUE ELSE j.queue = $6 END
  AND CASE WHEN CAST($1 AS text) IS NULL THEN TRUE ELSE j.owner = $1 END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.source = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($8, $9)) END
  AND CASE WHEN CAST($10 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $10 END
  AND CASE WHEN CAST($11 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $11 END
  AND CASE WHEN CAST($12 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $12 END
  AND CASE WHEN CAST($13 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $13 END
  AND CASE WHEN CAST($14 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $14 END
  AND CASE WHEN CAST($15 AS text) IS NULL THEN TRUE ELSE j.error_code = $15 END
  AND CASE WHEN CAST($16 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $17) > 0 OR strpos(CAST(j.args AS text), $18) > 0) END
  AND CASE WHEN CAST($19 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $19 END
ORDER BY j.id DESC LIMIT $20;

-- look_finished_parent (parent, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.parent_id = $1 AND j.id < $2 AND j.id >= $3 AND CASE j.state WHEN 'succeeded' THEN CAST($4 AS boolean) WHEN 'dead' THEN CAST($5 AS boolean)
             ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.owner = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE j.source = $10 END
  AND CASE WHEN CAST($11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($11, $12)) END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $13 END
  AND CASE WHEN CAST($14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $15 END
  AND CASE WHEN CAST($1 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $1 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
ORDER BY j.id DESC LIMIT $22;

-- look_finished_schedule (schedule, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, parent, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.schedule_id = $1 AND j.id < $2 AND j.id >= $3 AND CASE j.state WHEN 'succeeded' THEN CAST($4 AS boolean) WHEN 'dead' THEN CAST($5 AS boolean)
             ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.owner = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE j.source = $10 END
  AND CASE WHEN CAST($11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($11, $12)) END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $13 END
  AND CASE WHEN CAST($14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $15 END
  AND CASE WHEN CAST($16 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $16 END
  AND CASE WHEN CAST($1 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $1 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
ORDER BY j.id DESC LIMIT $22;

-- look_finished_trouble (trouble, id, low, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_finished j
WHERE j.state = $1 AND j.state <> 'succeeded' AND j.id < $2 AND j.id >= $3 AND CASE WHEN CAST($4 AS text) IS NULL THEN TRUE ELSE j.task = $4 END
  AND CASE WHEN CAST($5 AS text) IS NULL THEN TRUE ELSE j.queue = $5 END
  AND CASE WHEN CAST($6 AS text) IS NULL THEN TRUE ELSE j.owner = $6 END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.source = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($8, $9)) END
  AND CASE WHEN CAST($10 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $10 END
  AND CASE WHEN CAST($11 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $11 END
  AND CASE WHEN CAST($12 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $12 END
  AND CASE WHEN CAST($13 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $13 END
  AND CASE WHEN CAST($14 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $14 END
  AND CASE WHEN CAST($15 AS text) IS NULL THEN TRUE ELSE j.error_code = $15 END
  AND CASE WHEN CAST($16 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $17) > 0 OR strpos(CAST(j.args AS text), $18) > 0) END
  AND CASE WHEN CAST($19 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $19 END
ORDER BY j.id DESC LIMIT $20;

-- look_live (id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_live j
WHERE j.id < $1 AND j.id >= $2 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST($3 AS boolean)
     WHEN j.state = 'running' THEN CAST($4 AS boolean)
     ELSE CAST($5 AS boolean) END
  AND CASE WHEN CAST($6 AS text) IS NULL THEN TRUE ELSE j.task = $6 END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.queue = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.owner = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.source = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($10, $11)) END
  AND CASE WHEN CAST($12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $12 END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $13 END
  AND CASE WHEN CAST($14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
ORDER BY j.id DESC LIMIT $22;

-- look_live_batch (batch, id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_live j
WHERE j.batch_id = $1 AND j.id < $2 AND j.id >= $3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST($4 AS boolean)
     WHEN j.state = 'running' THEN CAST($5 AS boolean)
     ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.owner = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE j.source = $10 END
  AND CASE WHEN CAST($11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($11, $12)) END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $13 END
  AND CASE WHEN CAST($14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $14 END
  AND CASE WHEN CAST($1 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $1 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
ORDER BY j.id DESC LIMIT $22;

-- look_live_owner (owner, id, low, queued, running, retryable, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_live j
WHERE j.owner = $1 AND j.id < $2 AND j.id >= $3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST($4 AS boolean)
     WHEN j.state = 'running' THEN CAST($5 AS boolean)
     ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($1 AS text) IS NULL THEN TRUE ELSE j.owner = $1 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.source = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($10, $11)) END
  AND CASE WHEN CAST($12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $12 END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $13 END
  AND CASE WHEN CAST($14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
ORDER BY j.id DESC LIMIT $22;

-- look_live_parent (parent, id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_live j
WHERE j.parent_id = $1 AND j.id < $2 AND j.id >= $3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST($4 AS boolean)
     WHEN j.state = 'running' THEN CAST($5 AS boolean)
     ELSE CAST($6 AS boolean) END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.task = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.queue = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.owner = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE j.source = $10 END
  AND CASE WHEN CAST($11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($11, $12)) END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $13 END
  AND CASE WHEN CAST($14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $15 END
  AND CASE WHEN CAST($1 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $1 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
ORDER BY j.id DESC LIMIT $22;

-- look_live_running (id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_live j
WHERE j.state = 'running' AND j.id < $1 AND j.id >= $2 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST($3 AS boolean)
     WHEN j.state = 'running' THEN CAST($4 AS boolean)
     ELSE CAST($5 AS boolean) END
  AND CASE WHEN CAST($6 AS text) IS NULL THEN TRUE ELSE j.task = $6 END
  AND CASE WHEN CAST($7 AS text) IS NULL THEN TRUE ELSE j.queue = $7 END
  AND CASE WHEN CAST($8 AS text) IS NULL THEN TRUE ELSE j.owner = $8 END
  AND CASE WHEN CAST($9 AS text) IS NULL THEN TRUE ELSE j.source = $9 END
  AND CASE WHEN CAST($10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN ($10, $11)) END
  AND CASE WHEN CAST($12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= $12 END
  AND CASE WHEN CAST($13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < $13 END
  AND CASE WHEN CAST($14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = $14 END
  AND CASE WHEN CAST($15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = $15 END
  AND CASE WHEN CAST($16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = $16 END
  AND CASE WHEN CAST($17 AS text) IS NULL THEN TRUE ELSE j.error_code = $17 END
  AND CASE WHEN CAST($18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= $18 END
  AND CASE WHEN CAST($19 AS text) IS NULL THEN TRUE ELSE (strpos(CAST(j.args AS text), $19) > 0 OR strpos(CAST(j.args AS text), $20) > 0) END
  AND CASE WHEN CAST($21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= $21 END
ORDER BY j.id DESC LIMIT $22;

-- look_owner (owner, id, low, n)
SELECT CAST(u.id AS text) AS id
FROM (SELECT l.id
      FROM (SELECT j.id FROM rowlock.jobs_live j
            WHERE j.owner = $1 AND j.id < $2 AND j.id >= $3
            ORDER BY j.id DESC LIMIT $4) l
      UNION ALL
      SELECT f.id
      FROM (SELECT j.id FROM rowlock.jobs_finished j
            WHERE j.owner = $1 AND j.id < $2 AND j.id >= $3
            ORDER BY j.id DESC LIMIT $4) f) u
ORDER BY u.id DESC LIMIT $4;

-- make_batch (batch_id, name, owner, on_end, parent_id, now)
INSERT INTO rowlock.batches (id, name, owner, on_end, parent_id, created_at)
VALUES ($1, $2, $3, $4, $5, coalesce($6, statement_timestamp()));

-- make_sources (now, made[0])
INSERT INTO rowlock.sources (name, created_at)
SELECT made.name, coalesce($1, statement_timestamp()) FROM unnest($2::text[]) AS made(name) WHERE TRUE
ON CONFLICT (name) DO NOTHING;

-- mark_app_migration (app, number, name, now)
INSERT INTO rowlock.app_migrations (app, number, name, applied_at) VALUES ($1, $2, $3, coalesce($4, statement_timestamp()));

-- move_on (now, moved[0], moved[1], moved[2], moved[3], moved[4])
UPDATE rowlock.schedules
SET next_tick = moved.next_tick,
    last_tick = coalesce(moved.last_tick, rowlock.schedules.last_tick),
    last_job = coalesce(moved.last_job, rowlock.schedules.last_job),
    problem = moved.problem, updated_at = coalesce($1, statement_timestamp())
FROM unnest($2::text[], $3::timestamptz[], $4::timestamptz[], $5::text[]::uuid[], $6::text[]) AS moved(id, next_tick, last_tick, last_job, problem)
WHERE rowlock.schedules.id = moved.id;

-- never_due (end, n)
SELECT CAST(id AS text) AS id, task FROM rowlock.jobs_live
WHERE NOT ready AND state <> 'running' AND run_after >= $1
ORDER BY run_after DESC
LIMIT $2;

-- new_events (numbered, id, gaps[0], gaps[1], n)
SELECT running.running_from,
       (SELECT last_id FROM rowlock.deleted_events) AS deleted,
       CASE WHEN NOT pg_is_in_recovery()
                 AND (CAST($1 AS boolean)
                      OR max(found.id) OVER () - $2 > count(*) FILTER (WHERE found.id > $2) OVER ())
            THEN CAST(CAST(pg_current_xact_id() AS text) AS bigint) END AS running_to,
       found.*
FROM (SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) AS running_from) running
LEFT JOIN (
    (SELECT late.*
     FROM unnest($3::text[], $4::text[]) AS gaps(first, last)
     CROSS JOIN LATERAL (
         SELECT id, CAST(job_id AS text) AS job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
result_checksum, error_code, error_message, CASE WHEN at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE at END AS at
         FROM rowlock.events
         WHERE id BETWEEN CAST(gaps.first AS bigint) AND CAST(gaps.last AS bigint)
         ORDER BY id
         LIMIT $5) late
     LIMIT $5)
    UNION ALL
    (SELECT id, CAST(job_id AS text) AS job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
result_checksum, error_code, error_message, CASE WHEN at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE at END AS at
     FROM rowlock.events
     WHERE id > $2
     ORDER BY id
     LIMIT $5)) found ON TRUE
ORDER BY found.id;

-- next_due (now, left_out[0], left_out[1], left_out[2])
SELECT (date_part('epoch', next_tick) - date_part('epoch', coalesce($1, statement_timestamp()))) AS seconds FROM rowlock.schedules
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL
  AND NOT (zone || ' ' || rule || ' ' || id
     = ANY(ARRAY(SELECT left_out.zone || ' ' || left_out.rule || ' ' || left_out.id
            FROM unnest($2::text[], $3::text[], $4::text[]) AS left_out(id, rule, zone))))
ORDER BY next_tick
LIMIT 1;

-- notify_cancel (asked[0])
SELECT pg_notify('rowlock', 'cancel:' || asked.worker) FROM unnest($1::text[]) AS asked(worker);

-- notify_dispatchers
SELECT pg_notify('rowlock', 'schedules');

-- notify_idle (now)
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > coalesce($1, statement_timestamp()))
  AND current_setting('rowlock.wakeups', TRUE) IS DISTINCT FROM 'off';

-- old_attempts (now, ago, finished_at, job_id, attempt, n)
SELECT a.finished_at, a.job_id, a.attempt,
       coalesce((SELECT 1 FROM rowlock.jobs_live j WHERE j.id = a.job_id),
                (SELECT 1 FROM rowlock.jobs_finished j WHERE j.id = a.job_id LIMIT 1)) IS NOT NULL AS has_job
FROM (
    SELECT finished_at, job_id, attempt
    FROM rowlock.attempts
    WHERE finished_at < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second') AND (finished_at, job_id, attempt) > ($3, $4, $5)
    ORDER BY finished_at, job_id, attempt
    LIMIT $6) a
ORDER BY a.finished_at, a.job_id, a.attempt;

-- old_finished (now, n)
SELECT CAST(f.id AS text) AS id FROM rowlock.jobs_finished f
WHERE f.drop_on < (((coalesce($1, statement_timestamp()) + least(greatest(0, 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC')::date + 1) AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = f.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL
ORDER BY f.drop_on
LIMIT $2;

-- old_keys (now, n)
SELECT scope, key FROM rowlock.job_keys WHERE expires_at <= coalesce($1, statement_timestamp()) LIMIT $2;

-- oldest_failure (since, skip)
SELECT CASE WHEN a.finished_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN a.finished_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE a.finished_at END AS at
FROM rowlock.attempts a
WHERE a.finished_at >= $1 AND a.outcome IN ('failed', 'timed_out', 'lost')
ORDER BY a.finished_at DESC
LIMIT 1 OFFSET $2;

-- one_aside (job_id)
SELECT CAST(a.id AS text) AS id, a.doing, a.error, a.times, CASE WHEN a.since > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN a.since < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE a.since END AS since, CASE WHEN a.again_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN a.again_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE a.again_at END AS again_at
FROM rowlock.set_aside a
WHERE a.id = $1;

-- open_batches (batch_id, now, n)
SELECT CAST(id AS text) AS id FROM rowlock.batches b
WHERE finished_at IS NULL AND id > $1
  AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = b.id AND coalesce(a.again_at > coalesce($2, statement_timestamp()), TRUE)) IS NULL
ORDER BY b.id
LIMIT $3;

-- outbox_add (now, patience, picked[0], picked[1])
INSERT INTO rowlock.outbox (kind, job_id, token, take_at)
SELECT 'request', picked.id, picked.token, (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
FROM unnest($3::text[]::uuid[], $4::text[]::uuid[]) AS picked(id, token);

-- outbox_again (now, again[0])
UPDATE rowlock.outbox SET sent_at = NULL, entry = NULL, take_at = coalesce($1, statement_timestamp())
WHERE id = ANY(ARRAY(SELECT CAST(again.id AS bigint) FROM unnest($2::text[]) AS again(id)));

-- outbox_cancel (now, asked[0])
INSERT INTO rowlock.outbox (kind, job_id, take_at)
SELECT 'cancel', asked.id, coalesce($1, statement_timestamp()) FROM unnest($2::text[]::uuid[]) AS asked(id);

-- outbox_heard (heard[0])
DELETE FROM rowlock.outbox
WHERE kind = 'request' AND job_id = ANY(ARRAY(SELECT heard.job_id FROM unnest($1::text[]::uuid[]) AS heard(job_id)));

-- outbox_overdue (now, ago, n)
SELECT count(*) AS number FROM (
    SELECT 1 FROM rowlock.outbox WHERE sent_at IS NULL AND take_at < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second') ORDER BY take_at LIMIT $3) overdue;

-- outbox_quiet (now, ago, id, n)
SELECT o.id, CAST(o.job_id AS text) AS job_id, CAST(o.token AS text) AS token, o.entry,
       -(date_part('epoch', o.sent_at) - date_part('epoch', coalesce($1, statement_timestamp()))) AS age,
       (SELECT 1 FROM rowlock.jobs_live j
        WHERE j.id = o.job_id AND j.lease_token = o.token AND coalesce(j.published = 'unread', FALSE)) IS NOT NULL AS waits
FROM rowlock.outbox o
WHERE o.kind = 'request' AND o.sent_at < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second') AND o.id > CAST($3 AS bigint)
ORDER BY o.id
LIMIT $4;

-- outbox_remove (gone[0])
DELETE FROM rowlock.outbox WHERE id = ANY(ARRAY(SELECT CAST(gone.id AS bigint) FROM unnest($1::text[]) AS gone(id)));

-- outbox_sent (now, sent[0], sent[1], sent[2])
WITH marked AS (
    UPDATE rowlock.outbox SET sent_at = coalesce($1, statement_timestamp()), entry = sent.entry
    FROM unnest($2::text[]::uuid[], $3::text[]::uuid[], $4::text[]) AS sent(job_id, token, entry)
    WHERE rowlock.outbox.job_id = sent.job_id AND rowlock.outbox.token = sent.token
)
SELECT set_config('synchronous_commit', 'off', true);

-- outbox_take (now, patience, n)
UPDATE rowlock.outbox SET take_at = (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
WHERE id IN (
    SELECT id FROM rowlock.outbox
    WHERE sent_at IS NULL AND take_at <= coalesce($1, statement_timestamp())
    ORDER BY id
    LIMIT $3
    FOR UPDATE SKIP LOCKED)
RETURNING id, kind, CAST(job_id AS text) AS job_id, CAST(token AS text) AS token;

-- outbox_unread
SELECT count(*) AS number FROM rowlock.outbox WHERE kind = 'request';

-- outbox_wanted (asked[0], asked[1])
SELECT CAST(j.id AS text) AS id, CASE WHEN j.created_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.created_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.created_at END AS created_at
FROM unnest($1::text[]::uuid[], $2::text[]::uuid[]) AS asked(job_id, token)
CROSS JOIN rowlock.jobs_live j
WHERE j.id = asked.job_id AND j.lease_token = asked.token AND j.state = 'running' AND coalesce(j.published = 'unread', FALSE);

-- overdue (now, n)
SELECT id FROM rowlock.jobs_live j
WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at <= coalesce($1, statement_timestamp()) AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL
ORDER BY expires_at
LIMIT $2
FOR UPDATE SKIP LOCKED;

-- panel_marks (now, most, n)
SELECT 'audit' AS panel, CAST(coalesce((SELECT max(id) FROM rowlock.audit), 0) AS text) AS mark
UNION ALL
SELECT 'failures', CAST((SELECT max(finished_at) FROM rowlock.attempts) AS text)
UNION ALL
SELECT 'logs', CAST((SELECT max(at) FROM rowlock.job_logs) AS text)
UNION ALL
SELECT 'workers', count(*) || ':' || sum(running) || ':' || sum(CASE WHEN expires_at > coalesce($1, statement_timestamp()) THEN 1 ELSE 0 END) || ':'
       || max(CAST(started_at AS text))
FROM rowlock.workers
UNION ALL
SELECT 'schedules', count(*) || ':' || count(paused_at) || ':' || count(retired_at) || ':' || count(problem) || ':'
       || coalesce(max(CAST(last_tick AS text)), '') || ':' || coalesce(max(CAST(last_job AS text)), '')
FROM rowlock.schedules
UNION ALL
SELECT 'sources', count(*) || ':' || count(paused_until) || ':' || count(opened_at) || ':'
       || coalesce(max(CAST(last_failure_at AS text)), '') || ':' || coalesce(sum(coalesce(concurrency, 0)), 0)
FROM rowlock.sources
UNION ALL
SELECT 'batches', (SELECT CAST(id AS text) FROM rowlock.batches ORDER BY id DESC LIMIT 1) || ':'
       || (SELECT count(*) FROM rowlock.batches WHERE finished_at IS NULL)
UNION ALL
SELECT 'queues', count(*) || ':' || coalesce(max(CAST(paused_at AS text)), '')
FROM rowlock.queues WHERE paused_at IS NOT NULL
UNION ALL
SELECT 'jobs',
       (SELECT count(*) FROM (SELECT 1 FROM rowlock.jobs_live LIMIT $2) live) || ':'
       || (SELECT count(*) FROM (
               SELECT 1 FROM rowlock.jobs_live j WHERE NOT j.ready AND j.state <> 'running' LIMIT $2) waiting) || ':'
       || (SELECT count(*) || ':' || coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM rowlock.jobs_live j WHERE j.state = 'running' LIMIT $2) running) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM rowlock.jobs_live j ORDER BY j.id DESC LIMIT $3) newest) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM rowlock.jobs_finished j ORDER BY j.id DESC LIMIT $3) finished) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM rowlock.jobs_finished j WHERE j.state = 'dead' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT $3) dead) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM rowlock.jobs_finished j WHERE j.state = 'cancelled' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT $3) cancelled);

-- partitions
SELECT c.relname
FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'rowlock.jobs_finished'::regclass
ORDER BY c.relname;

-- pause_queue (name, now)
INSERT INTO rowlock.queues (name, paused_at) VALUES ($1, coalesce($2, statement_timestamp()))
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(rowlock.queues.paused_at, excluded.paused_at);

-- pause_schedule (now, id)
UPDATE rowlock.schedules SET paused_at = coalesce(paused_at, coalesce($1, statement_timestamp())), updated_at = coalesce($1, statement_timestamp()) WHERE id = $2 RETURNING id;

-- pause_source (seconds, now, whole, name)
UPDATE rowlock.sources
SET enabled = CASE WHEN CAST($1 AS double precision) IS NULL THEN FALSE ELSE enabled END,
    paused_until = CASE WHEN CAST($1 AS double precision) IS NULL THEN paused_until
                        ELSE greatest(coalesce(paused_until, (coalesce($2, statement_timestamp()) + ($1) * interval '1 second')), (coalesce($2, statement_timestamp()) + ($1) * interval '1 second')) END,
    paused_at = CASE WHEN CAST($1 AS double precision) IS NULL OR paused_until >= (coalesce($2, statement_timestamp()) + ($1) * interval '1 second') THEN paused_at
                     ELSE coalesce($2, statement_timestamp()) END,
    class_enabled = CASE WHEN $3 = 1 AND CAST($1 AS double precision) IS NULL THEN FALSE
                         ELSE class_enabled END,
    class_paused_until = CASE
        WHEN $3 = 0 OR CAST($1 AS double precision) IS NULL THEN class_paused_until
        ELSE greatest(coalesce(class_paused_until, (coalesce($2, statement_timestamp()) + ($1) * interval '1 second')), (coalesce($2, statement_timestamp()) + ($1) * interval '1 second')) END,
    class_paused_at = CASE
        WHEN $3 = 0 OR CAST($1 AS double precision) IS NULL OR class_paused_until >= (coalesce($2, statement_timestamp()) + ($1) * interval '1 second')
        THEN class_paused_at ELSE coalesce($2, statement_timestamp()) END
WHERE name = $4
RETURNING name;

-- paused_queues
SELECT name, CASE WHEN paused_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN paused_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE paused_at END AS paused_at FROM rowlock.queues WHERE paused_at IS NOT NULL ORDER BY name;

-- pauses (now, source, class_name)
SELECT name, enabled, CASE WHEN until > coalesce($1, statement_timestamp()) THEN CASE WHEN until > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN until < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE until END END AS until
FROM (
    SELECT name, enabled, paused_until AS until FROM rowlock.sources WHERE name = $2
    UNION ALL
    SELECT name, class_enabled, class_paused_until FROM rowlock.sources WHERE name = $3 AND name <> $2) paused
WHERE NOT enabled OR until > coalesce($1, statement_timestamp())
ORDER BY name DESC;

-- peek (lane[0], lane[1], now)
SELECT EXISTS (
    SELECT 1
    FROM unnest($1::text[], $2::text[]) AS lane(queue, task)
    WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)
      AND coalesce(
          (SELECT j.id FROM rowlock.jobs_live j
           WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
             AND (j.expires_at IS NULL OR j.expires_at > coalesce($3, statement_timestamp()))
           ORDER BY j.priority, j.id LIMIT 1),
          (SELECT j.id FROM rowlock.jobs_live j
           WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
             AND (j.expires_at IS NULL OR j.expires_at > coalesce($3, statement_timestamp()))
           ORDER BY j.priority, j.source, j.id LIMIT 1)) IS NOT NULL) AS ready, (
    SELECT (date_part('epoch', run_after) - date_part('epoch', coalesce($3, statement_timestamp()))) FROM rowlock.jobs_live j
    WHERE NOT ready AND state <> 'running' AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > coalesce($3, statement_timestamp()), TRUE)) IS NULL
    ORDER BY run_after
    LIMIT 1) AS seconds;

-- progress (now, reported[0], reported[1], reported[2], reported[3], reported[4])
UPDATE rowlock.jobs_live
SET progress = CASE WHEN reported.progress >= coalesce(rowlock.jobs_live.progress, 0) THEN reported.progress
                    ELSE rowlock.jobs_live.progress END,
    phase = reported.phase, message = reported.message, updated_at = coalesce($1, statement_timestamp())
FROM unnest($2::text[]::uuid[], $3::text[]::uuid[], $4::integer[], $5::text[], $6::text[]) AS reported(id, token, progress, phase, message)
WHERE rowlock.jobs_live.id = reported.id AND lease_token = reported.token AND state = 'running'
RETURNING rowlock.jobs_live.id;

-- promote (now, n)
WITH promoted AS (
    UPDATE rowlock.jobs_live SET ready = TRUE, updated_at = coalesce($1, statement_timestamp())
    WHERE id IN (
        SELECT id FROM rowlock.jobs_live j
        WHERE NOT ready AND state <> 'running' AND run_after <= coalesce($1, statement_timestamp()) AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL
        ORDER BY run_after
        LIMIT $2
        FOR UPDATE SKIP LOCKED)
    RETURNING id
)
SELECT (SELECT count(*) FROM promoted) AS promoted, (
    SELECT (date_part('epoch', run_after) - date_part('epoch', coalesce($1, statement_timestamp()))) FROM rowlock.jobs_live
    WHERE NOT ready AND state <> 'running' AND run_after > coalesce($1, statement_timestamp())
    ORDER BY run_after
    LIMIT 1) AS seconds;

-- promote_these (asked[0], now)
UPDATE rowlock.jobs_live SET ready = TRUE
WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id))) AND NOT ready AND state <> 'running' AND run_after <= coalesce($2, statement_timestamp());

-- prune_attempts (gone[0], gone[1])
DELETE FROM rowlock.attempts
WHERE (job_id, attempt) IN (SELECT gone.job_id, gone.attempt FROM unnest($1::text[]::uuid[], $2::integer[]) AS gone(job_id, attempt))
RETURNING attempt;

-- prune_audit (now, ago, n)
DELETE FROM rowlock.audit
WHERE id IN (
    SELECT id FROM rowlock.audit
    WHERE at < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
    ORDER BY id
    LIMIT $3)
RETURNING 1 AS pruned;

-- prune_batches (now, ago, n)
DELETE FROM rowlock.batches
WHERE id IN (
    SELECT id FROM rowlock.batches
    WHERE finished_at < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
    ORDER BY finished_at
    LIMIT $3)
RETURNING 1 AS pruned;

-- prune_default (now, n)
DELETE FROM rowlock.jobs_finished_default
WHERE ctid = ANY(ARRAY(
    SELECT f.ctid FROM rowlock.jobs_finished_default f
    WHERE f.drop_on < (((coalesce($1, statement_timestamp()) + least(greatest(0, 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC')::date + 1) AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = f.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL
    ORDER BY f.drop_on
    LIMIT $2
    FOR UPDATE SKIP LOCKED))
RETURNING id;

-- prune_events (now, ago, n)
DELETE FROM rowlock.events
WHERE id IN (
    SELECT id FROM rowlock.events
    WHERE at < (coalesce($1, statement_timestamp()) + (coalesce(CAST($2 AS double precision), -3600)) * interval '1 second') AND id < (SELECT max(id) FROM rowlock.events)
    ORDER BY id
    LIMIT $3
    FOR UPDATE SKIP LOCKED)
RETURNING 1 AS pruned;

-- prune_finished (now, n)
DELETE FROM rowlock.jobs_finished
WHERE drop_on < (((coalesce($1, statement_timestamp()) + least(greatest(0, 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC')::date + 1) AND id = ANY(ARRAY(
    SELECT f.id FROM rowlock.jobs_finished f
    WHERE f.drop_on < (((coalesce($1, statement_timestamp()) + least(greatest(0, 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC')::date + 1) AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = f.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL
    LIMIT $2
    FOR UPDATE SKIP LOCKED))
RETURNING id;

-- prune_keys (gone[0], gone[1], now)
DELETE FROM rowlock.job_keys
WHERE (scope, key) IN (SELECT gone.scope, gone.key FROM unnest($1::text[], $2::text[]) AS gone(scope, key)) AND expires_at <= coalesce($3, statement_timestamp())
RETURNING key;

-- prune_logs (now, ago, n)
DELETE FROM rowlock.job_logs
WHERE (job_id, seq) IN (
    SELECT job_id, seq FROM rowlock.job_logs
    WHERE at < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
    ORDER BY at
    LIMIT $3)
RETURNING 1 AS pruned;

-- prune_previews (now, n)
DELETE FROM rowlock.previews
WHERE token_hash IN (
    SELECT token_hash FROM rowlock.previews
    WHERE expires_at <= coalesce($1, statement_timestamp())
    ORDER BY expires_at
    LIMIT $2)
RETURNING 1 AS pruned;

-- prune_requests (now, n)
DELETE FROM rowlock.requests
WHERE (owner, key) IN (
    SELECT owner, key FROM rowlock.requests
    WHERE expires_at <= coalesce($1, statement_timestamp())
    LIMIT $2
    FOR UPDATE SKIP LOCKED)
RETURNING 1 AS pruned;

-- prune_sources (now, ago, n)
DELETE FROM rowlock.sources
WHERE name IN (
    SELECT s.name FROM rowlock.sources s LEFT JOIN rowlock.sources c ON c.name = split_part(s.name, ':', 1)
    WHERE s.name LIKE '%:%' AND s.set_by IS NULL AND s.enabled
      AND s.refusals = 0 AND (s.paused_until IS NULL OR s.paused_until <= coalesce($1, statement_timestamp()))
      AND (s.opened_at IS NULL OR s.paused_until IS NULL OR s.paused_until < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second'))
      AND coalesce(s.last_success_at, s.last_failure_at, s.created_at) < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
      AND coalesce(s.last_failure_at, s.last_success_at, s.created_at) < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
      AND coalesce(s.tokens_at, s.created_at) < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
      AND (s.tokens_at IS NULL OR c.rate_limit_per_minute IS NULL
           OR -(date_part('epoch', s.tokens_at) - date_part('epoch', coalesce($1, statement_timestamp()))) * c.rate_limit_per_minute / 60
              >= coalesce(c.burst, greatest(1, c.rate_limit_per_minute / 60)))
    LIMIT $3)
RETURNING name;

-- prune_these (asked[0], now)
DELETE FROM rowlock.jobs_finished WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id))) AND drop_on < (((coalesce($2, statement_timestamp()) + least(greatest(0, 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC')::date + 1) RETURNING id;

-- prune_ticks (now, ago, n)
DELETE FROM rowlock.ticks
WHERE (schedule_id, tick) IN (
    SELECT schedule_id, tick FROM rowlock.ticks
    WHERE fired_at < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
    ORDER BY fired_at
    LIMIT $3)
RETURNING 1 AS pruned;

-- prune_tokens (now, n)
DELETE FROM rowlock.tokens
WHERE id IN (
    SELECT id FROM rowlock.tokens
    WHERE expires_at < CASE WHEN uses IS NULL THEN (coalesce($1, statement_timestamp()) + (-86400) * interval '1 second') ELSE coalesce($1, statement_timestamp()) END
    ORDER BY expires_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED)
RETURNING 1 AS pruned;

-- prune_webhooks (now, n)
DELETE FROM rowlock.webhooks
WHERE job_id IN (
    SELECT w.job_id FROM rowlock.webhooks w
    WHERE w.drop_on < (((coalesce($1, statement_timestamp()) + least(greatest(0, 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC')::date + 1) AND NOT EXISTS (SELECT 1 FROM rowlock.jobs_live j WHERE j.id = w.job_id)
      AND NOT EXISTS (
          SELECT 1 FROM rowlock.webhook_deliveries d JOIN rowlock.jobs_live j ON j.id = d.delivery_id WHERE d.job_id = w.job_id)
    LIMIT $2
    FOR UPDATE OF w SKIP LOCKED)
RETURNING job_id;

-- publish (lane[0], lane[1], lane[2], lane[3], lane[4], lane[5], n, now, token, worker, lease, patience)
WITH lane AS (
    SELECT lane.* FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[]::uuid[], $5::integer[], $6::integer[]) AS lane(queue, task, low_priority, low_id, high_priority, most) WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)
), found AS MATERIALIZED (
    SELECT front.id, front.priority, front.unique_mode, front.nth = least(lane.most, $7) AS may_have_more
    FROM lane CROSS JOIN LATERAL (
        SELECT locked.id, locked.priority, locked.unique_mode, row_number() OVER () AS nth
        FROM (
            SELECT j.id, j.priority, j.unique_mode
            FROM rowlock.jobs_live j
            WHERE j.ready
  AND j.source IS NULL
  AND j.queue = lane.queue
  AND j.task = lane.task
  AND (j.priority, j.id) > (lane.low_priority, lane.low_id)
  AND j.priority < lane.high_priority
  AND (j.expires_at IS NULL OR j.expires_at > coalesce($8, statement_timestamp()))
ORDER BY j.priority, j.id
            LIMIT least(lane.most, $7)
            FOR UPDATE SKIP LOCKED
        ) locked
    ) front
), horizon AS (
    SELECT priority, id FROM found WHERE may_have_more ORDER BY priority, id LIMIT 1
), picked AS MATERIALIZED (
    SELECT found.id, found.unique_mode
    FROM found LEFT JOIN horizon ON TRUE
    WHERE horizon.id IS NULL OR (found.priority, found.id) <= (horizon.priority, horizon.id)
    ORDER BY found.priority, found.id
    LIMIT $7
), let_go AS (
    DELETE FROM rowlock.job_keys
    WHERE mode = 'while_queued' AND job_id = ANY(ARRAY(SELECT id FROM picked WHERE unique_mode = 'while_queued'))
), claimed AS (
    UPDATE rowlock.jobs_live j
    SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = $9, locked_by = $10,
    published = CASE WHEN $10 = 'redis-unread' THEN 'unread' END,
    heartbeat_at = coalesce($8, statement_timestamp()), lease_expires_at = (coalesce($8, statement_timestamp()) + ($11) * interval '1 second'), updated_at = coalesce($8, statement_timestamp()), locked_at = coalesce($8, statement_timestamp()), started_at = coalesce($8, statement_timestamp())
    WHERE j.id = ANY(ARRAY(SELECT id FROM picked)) AND j.ready
    RETURNING j.*
), added AS (
    INSERT INTO rowlock.outbox (kind, job_id, token, take_at)
    SELECT 'request', id, lease_token, (coalesce($8, statement_timestamp()) + ($12) * interval '1 second') FROM claimed
), begun AS (
    UPDATE rowlock.batches SET state = 'running', started_at = coalesce(started_at, coalesce($8, statement_timestamp()))
    WHERE id = ANY(ARRAY(SELECT batch_id FROM claimed WHERE batch_id IS NOT NULL)) AND state = 'queued'
)
SELECT CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -(date_part('epoch', run_after) - date_part('epoch', coalesce($8, statement_timestamp()))), CASE WHEN created_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN created_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE created_at END FROM claimed;

-- put_aside (job_id, doing, error, now, again)
INSERT INTO rowlock.set_aside (id, doing, error, since, again_at)
VALUES ($1, $2, $3, coalesce($4, statement_timestamp()), (coalesce($4, statement_timestamp()) + ($5) * interval '1 second'))
ON CONFLICT (id) DO UPDATE
SET doing = excluded.doing, error = excluded.error, again_at = excluded.again_at, times = rowlock.set_aside.times + 1
RETURNING times;

-- put_leases_right (now, n)
UPDATE rowlock.jobs_live
SET lease_expires_at = (coalesce($1, statement_timestamp()) + ((date_part('epoch', lease_expires_at) - date_part('epoch', coalesce($1, statement_timestamp()))) - (date_part('epoch', heartbeat_at) - date_part('epoch', coalesce($1, statement_timestamp())))) * interval '1 second'), heartbeat_at = coalesce($1, statement_timestamp()),
    locked_at = CASE WHEN locked_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE locked_at END,
    started_at = CASE WHEN started_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE started_at END
WHERE id IN (
    SELECT j.id FROM rowlock.jobs_live j
    WHERE j.state = 'running' AND j.heartbeat_at > (coalesce($1, statement_timestamp()) + (1) * interval '1 second')
    ORDER BY j.id
    LIMIT $2
    FOR UPDATE OF j SKIP LOCKED)
RETURNING id;

-- put_right (now, healed[0], healed[1])
UPDATE rowlock.schedules
SET next_tick = healed.next_tick, updated_at = coalesce($1, statement_timestamp()),
    declared_at = CASE WHEN declared_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE declared_at END,
    writer_started_at = CASE WHEN writer_started_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE writer_started_at END,
    paused_at = CASE WHEN paused_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE paused_at END
FROM unnest($2::text[], $3::timestamptz[]) AS healed(id, next_tick)
WHERE rowlock.schedules.id = healed.id;

-- put_sources_right (now)
UPDATE rowlock.sources
SET tokens_at = CASE WHEN tokens_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE tokens_at END,
    paused_until = CASE WHEN paused_at > coalesce($1, statement_timestamp())
                        THEN (coalesce($1, statement_timestamp()) + ((date_part('epoch', paused_until) - date_part('epoch', coalesce($1, statement_timestamp()))) - (date_part('epoch', paused_at) - date_part('epoch', coalesce($1, statement_timestamp())))) * interval '1 second') ELSE paused_until END,
    paused_at = CASE WHEN paused_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE paused_at END,
    class_paused_until = CASE
        WHEN class_paused_at > coalesce($1, statement_timestamp()) THEN (coalesce($1, statement_timestamp()) + ((date_part('epoch', class_paused_until) - date_part('epoch', coalesce($1, statement_timestamp()))) - (date_part('epoch', class_paused_at) - date_part('epoch', coalesce($1, statement_timestamp())))) * interval '1 second')
        ELSE class_paused_until END,
    class_paused_at = CASE WHEN class_paused_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE class_paused_at END,
    opened_at = CASE WHEN opened_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE opened_at END,
    last_success_at = CASE WHEN last_success_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE last_success_at END,
    last_failure_at = CASE WHEN last_failure_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE last_failure_at END,
    refused_at = CASE WHEN refused_at > coalesce($1, statement_timestamp()) THEN coalesce($1, statement_timestamp()) ELSE refused_at END
WHERE name IN (
    SELECT s.name FROM rowlock.sources s
    WHERE s.tokens_at > (coalesce($1, statement_timestamp()) + (1) * interval '1 second') OR s.paused_at > (coalesce($1, statement_timestamp()) + (1) * interval '1 second') OR s.class_paused_at > (coalesce($1, statement_timestamp()) + (1) * interval '1 second')
       OR s.opened_at > (coalesce($1, statement_timestamp()) + (1) * interval '1 second') OR s.last_success_at > (coalesce($1, statement_timestamp()) + (1) * interval '1 second') OR s.last_failure_at > (coalesce($1, statement_timestamp()) + (1) * interval '1 second')
    ORDER BY s.name
    FOR UPDATE OF s SKIP LOCKED)
RETURNING name;

-- put_waiting_right (now, n)
UPDATE rowlock.jobs_live
SET run_after = (coalesce($1, statement_timestamp()) + ((date_part('epoch', run_after) - date_part('epoch', coalesce($1, statement_timestamp()))) - (date_part('epoch', updated_at) - date_part('epoch', coalesce($1, statement_timestamp())))) * interval '1 second'), updated_at = coalesce($1, statement_timestamp())
WHERE id IN (
    SELECT j.id FROM rowlock.jobs_live j
    WHERE NOT j.ready AND j.state <> 'running' AND j.attempt > 0 AND j.updated_at > (coalesce($1, statement_timestamp()) + (1) * interval '1 second')
      AND j.id = ANY(ARRAY(SELECT due.id FROM (
            SELECT w.id FROM rowlock.jobs_live w
            WHERE NOT w.ready AND w.state <> 'running' AND w.run_after > coalesce($1, statement_timestamp())
            ORDER BY w.run_after
            LIMIT $2) due))
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED)
RETURNING id;

-- read_alerts
SELECT rule, subject, value, text, CASE WHEN true_since > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN true_since < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE true_since END AS true_since, CASE WHEN false_since > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN false_since < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE false_since END AS false_since,
       CASE WHEN fired_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN fired_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE fired_at END AS fired_at, CASE WHEN told_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN told_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE told_at END AS told_at, repeats
FROM rowlock.alerts
ORDER BY rule, subject;

-- read_attempts (job_id)
SELECT job_id, attempt, outcome, worker, CASE WHEN started_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN started_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE started_at END AS started_at, CASE WHEN finished_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN finished_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE finished_at END AS finished_at,
       error_code, error_message, traceback
FROM rowlock.attempts
WHERE job_id = $1
ORDER BY attempt;

-- read_batch (batch_id)
SELECT CAST(b.id AS text) AS id, b.name, b.owner, b.state, b.sealed_at IS NOT NULL AS sealed,
       CASE WHEN b.created_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN b.created_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE b.created_at END AS created_at, CASE WHEN b.started_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN b.started_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE b.started_at END AS started_at, CASE WHEN b.finished_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN b.finished_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE b.finished_at END AS finished_at,
       coalesce((SELECT sum(n.total) FROM rowlock.batch_counts n WHERE n.batch_id = b.id), 0) AS total,
       coalesce((SELECT sum(n.processed) FROM rowlock.batch_counts n WHERE n.batch_id = b.id), 0) AS processed,
       coalesce((SELECT sum(n.failed) FROM rowlock.batch_counts n WHERE n.batch_id = b.id), 0) AS failed,
       coalesce((SELECT sum(n.cancelled) FROM rowlock.batch_counts n WHERE n.batch_id = b.id), 0) AS cancelled,
       coalesce((SELECT sum(n.expired) FROM rowlock.batch_counts n WHERE n.batch_id = b.id), 0) AS expired,
       (SELECT n.last_error FROM rowlock.batch_counts n WHERE n.batch_id = b.id AND n.last_error IS NOT NULL
        ORDER BY n.last_error_at DESC LIMIT 1) AS last_error,
       CAST(b.parent_id AS text) AS parent_id, CAST(b.end_job AS text) AS end_job
FROM rowlock.batches b
WHERE b.id = $1;

-- read_gates (now, named[0])
SELECT named.source, coalesce($1, statement_timestamp()), coalesce(s.concurrency, c.concurrency), c.total,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute),
       CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END,
       coalesce(s.enabled, TRUE) AND coalesce(c.class_enabled, TRUE),
       (date_part('epoch', greatest(coalesce(s.paused_until, c.class_paused_until),
                                coalesce(c.class_paused_until, s.paused_until))) - date_part('epoch', coalesce($1, statement_timestamp()))),
       s.opened_at IS NOT NULL,
       coalesce(rowlock._probes(s.name, coalesce($1, statement_timestamp())), FALSE),
       s.tokens, -(date_part('epoch', s.tokens_at) - date_part('epoch', coalesce($1, statement_timestamp()))), coalesce(s.epoch, 0),
       CASE WHEN coalesce(s.concurrency, c.concurrency) IS NOT NULL THEN (
            SELECT count(*) FROM rowlock.jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL
              AND split_part(r.source, ':', 1) = c.name AND r.source = named.source
              AND (SELECT 1 FROM rowlock.set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL) END,
       CASE WHEN c.total IS NOT NULL THEN (
            SELECT count(*) FROM rowlock.jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL AND split_part(r.source, ':', 1) = c.name
              AND (SELECT 1 FROM rowlock.set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL) END,
       s.name IS NOT NULL
FROM unnest($2::text[]) AS named(source)
LEFT JOIN rowlock.sources s ON s.name = named.source
LEFT JOIN rowlock.sources c ON c.name = split_part(named.source, ':', 1);

-- read_job (job_id)
SELECT j.id, j.task, j.queue, j.state, j.priority, CAST(j.args AS text), j.owner, j.source, CAST(j.tags AS text),
    j.batch_id, j.schedule_id, CASE WHEN j.tick > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.tick < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.tick END, j.attempt, j.max_attempts, j.releases, j.losses, CAST(j.backoff AS text),
    j.timeout_seconds, CASE WHEN j.run_after > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.run_after < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.run_after END, CASE WHEN j.expires_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.expires_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.expires_at END, j.lease_token, j.locked_by, CASE WHEN j.locked_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.locked_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.locked_at END,
    CASE WHEN j.heartbeat_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.heartbeat_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.heartbeat_at END, CASE WHEN j.lease_expires_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.lease_expires_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.lease_expires_at END, j.settled_token, CASE WHEN j.cancel_requested_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.cancel_requested_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.cancel_requested_at END, j.progress,
    j.phase, j.message, CAST(j.result AS text), j.result_uri, j.result_checksum, j.error_code, j.error_message,
    CASE WHEN j.created_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.created_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.created_at END, CASE WHEN j.started_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.started_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.started_at END, CASE WHEN j.finished_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.finished_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.finished_at END, CASE WHEN j.updated_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.updated_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.updated_at END FROM rowlock.jobs j WHERE j.id = $1;

-- read_jobs (asked[0])
SELECT j.id, j.task, j.queue, j.state, j.priority, CAST(j.args AS text), j.owner, j.source, CAST(j.tags AS text),
    j.batch_id, j.schedule_id, CASE WHEN j.tick > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.tick < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.tick END, j.attempt, j.max_attempts, j.releases, j.losses, CAST(j.backoff AS text),
    j.timeout_seconds, CASE WHEN j.run_after > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.run_after < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.run_after END, CASE WHEN j.expires_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.expires_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.expires_at END, j.lease_token, j.locked_by, CASE WHEN j.locked_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.locked_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.locked_at END,
    CASE WHEN j.heartbeat_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.heartbeat_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.heartbeat_at END, CASE WHEN j.lease_expires_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.lease_expires_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.lease_expires_at END, j.settled_token, CASE WHEN j.cancel_requested_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.cancel_requested_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.cancel_requested_at END, j.progress,
    j.phase, j.message, CAST(j.result AS text), j.result_uri, j.result_checksum, j.error_code, j.error_message,
    CASE WHEN j.created_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.created_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.created_at END, CASE WHEN j.started_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.started_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.started_at END, CASE WHEN j.finished_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.finished_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.finished_at END, CASE WHEN j.updated_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.updated_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.updated_at END
FROM rowlock.jobs j
WHERE j.id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id)))
ORDER BY j.id DESC;

-- read_logs (job_id, after, n)
SELECT seq, attempt, CASE WHEN at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE at END AS at, level, message
FROM rowlock.job_logs
WHERE job_id = $1 AND seq > $2
ORDER BY seq DESC
LIMIT $3;

-- ready_ids (lane[0], lane[1], id, n)
SELECT CAST(j.id AS text) AS id
FROM rowlock.jobs_live j JOIN unnest($1::text[], $2::text[]) AS lane(queue, task) ON j.queue = lane.queue AND j.task = lane.task
WHERE j.ready AND j.id > $3
ORDER BY j.id
LIMIT $4;

-- record_attempts (now, ended[0], ended[1], ended[2], ended[3], ended[4])
INSERT INTO rowlock.attempts (
    job_id, attempt, outcome, worker, started_at, finished_at, error_code, error_message, traceback)
SELECT j.id, j.attempt, ended.outcome, j.locked_by, j.locked_at, coalesce($1, statement_timestamp()), ended.error_code, ended.error_message,
       ended.traceback
FROM unnest($2::text[]::uuid[], $3::text[], $4::text[], $5::text[], $6::text[]) AS ended(id, outcome, error_code, error_message, traceback)
CROSS JOIN rowlock.jobs_live j
WHERE j.id = ended.id AND j.attempt > 0
ON CONFLICT (job_id, attempt) DO NOTHING;

-- register_dispatcher (id, declares, address, now, lease)
INSERT INTO rowlock.dispatchers (id, declares, bell, started_at, seen_at, expires_at)
VALUES ($1, $2, $3, coalesce($4, statement_timestamp()), coalesce($4, statement_timestamp()), (coalesce($4, statement_timestamp()) + ($5) * interval '1 second'))
ON CONFLICT (id) DO UPDATE
SET declares = excluded.declares, seen_at = excluded.seen_at, expires_at = excluded.expires_at
RETURNING started_at;

-- register_worker (id, hostname, pid, version, queues, tasks, pool_size, address, now, lease)
INSERT INTO rowlock.workers (
    id, hostname, pid, version, queues, tasks, pool_size, running, idle, bell, started_at, seen_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, 0, FALSE, $8, coalesce($9, statement_timestamp()), coalesce($9, statement_timestamp()), (coalesce($9, statement_timestamp()) + ($10) * interval '1 second'))
ON CONFLICT (id) DO UPDATE
SET seen_at = excluded.seen_at, expires_at = excluded.expires_at, queues = excluded.queues, tasks = excluded.tasks;

-- relative (job_id)
SELECT CAST(j.id AS text) AS id, j.task, CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock.jobs_live j
WHERE j.id = $1
UNION ALL
SELECT CAST(j.id AS text) AS id, j.task, j.state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock.jobs_finished j
WHERE j.id = $1;

-- release_keys (gone[0], state)
DELETE FROM rowlock.job_keys
WHERE job_id = ANY(ARRAY(SELECT gone.id FROM unnest($1::text[]::uuid[]) AS gone(id)))
  AND CASE mode WHEN 'while_queued' THEN TRUE WHEN 'until_done' THEN $2 <> 'running'
                WHEN 'forever' THEN $2 NOT IN ('running', 'succeeded') ELSE FALSE END;

-- remote_cancels (n)
SELECT CAST(id AS text) AS id FROM rowlock.jobs_live
WHERE state = 'running' AND published IS NOT NULL AND cancel_requested_at IS NOT NULL
ORDER BY id
LIMIT $1;

-- remote_jobs (now, asked[0])
SELECT CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -(date_part('epoch', run_after) - date_part('epoch', coalesce($1, statement_timestamp()))), CAST(lease_token AS text), locked_by
FROM rowlock.jobs_live
WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($2::text[]::uuid[]) AS asked(id))) AND state = 'running' AND published IS NOT NULL;

-- remove_dispatcher (id, now)
DELETE FROM rowlock.dispatchers WHERE id = $1 OR expires_at < (coalesce($2, statement_timestamp()) + (-86400) * interval '1 second');

-- remove_preview (token_hash)
DELETE FROM rowlock.previews WHERE token_hash = $1;

-- remove_schedule (id)
DELETE FROM rowlock.schedules WHERE id = $1 RETURNING id;

-- remove_worker (id)
DELETE FROM rowlock.workers WHERE id = $1;

-- reopen_batches (now, asked[0])
UPDATE rowlock.batches
SET state = 'running', finished_at = NULL, reopened_at = coalesce($1, statement_timestamp()),
    cancelled_at = CASE
        WHEN (SELECT sum(n.cancelled) FROM rowlock.batch_counts n WHERE n.batch_id = rowlock.batches.id) > 0
        THEN cancelled_at END
WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($2::text[]::uuid[]) AS asked(id))) AND finished_at IS NOT NULL;

-- request_cancel (now, asked[0])
UPDATE rowlock.jobs_live SET cancel_requested_at = coalesce(cancel_requested_at, coalesce($1, statement_timestamp())), updated_at = coalesce($1, statement_timestamp())
WHERE state = 'running' AND id IN (SELECT asked.id FROM unnest($2::text[]::uuid[]) AS asked(id));

-- requeue (now, back[0], back[1], back[2], back[3], back[4], back[5], back[6], back[7], back[8], back[9], back[10], back[11], back[12])
UPDATE rowlock.jobs_live
SET state = back.state, ready = (back.delay <= 0), run_after = (coalesce($1, statement_timestamp()) + (back.delay) * interval '1 second'),
    releases = releases + back.released, losses = losses + back.lost, convictions = convictions + back.convicted,
    losses_in_row = back.losses_in_row, probation = back.probation, sigterms_in_row = back.sigterms_in_row,
    disconnects_in_row = back.disconnects_in_row,
    error_code = back.error_code, error_message = back.error_message,
    settled_token = CASE WHEN back.by_holder = 1 THEN lease_token ELSE settled_token END,
    lease_token = NULL, locked_by = NULL, locked_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL,
    published = NULL, progress = NULL, phase = NULL, message = NULL, result_uri = NULL, result_checksum = NULL, updated_at = coalesce($1, statement_timestamp())
FROM unnest($2::text[]::uuid[], $3::text[], $4::double precision[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::integer[], $10::integer[], $11::integer[], $12::text[], $13::text[], $14::integer[]) AS back(id, state, delay, released, lost, convicted, losses_in_row, probation, sigterms_in_row, disconnects_in_row, error_code, error_message, by_holder)
WHERE rowlock.jobs_live.id = back.id;

-- resume_queue (name)
UPDATE rowlock.queues SET paused_at = NULL WHERE name = $1 AND paused_at IS NOT NULL RETURNING name;

-- resume_schedule (next_tick, now, id)
UPDATE rowlock.schedules
SET next_tick = $1, paused_at = NULL, problem = NULL, updated_at = coalesce($2, statement_timestamp())
WHERE id = $3
RETURNING id;

-- resume_source (name)
UPDATE rowlock.sources
SET enabled = TRUE, paused_until = NULL, paused_at = NULL, class_enabled = TRUE, class_paused_until = NULL,
    class_paused_at = NULL, opened_at = NULL, opens = 0, failure_streak = 0, refusals = 0, epoch = epoch + 1,
    probe_job = NULL, probe_token = NULL
WHERE name = $1
RETURNING name;

-- retire_schedules (now, ago, spared[0])
UPDATE rowlock.schedules SET retired_at = coalesce($1, statement_timestamp()), updated_at = coalesce($1, statement_timestamp())
WHERE origin <> 'runtime' AND retired_at IS NULL AND declared_at < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
  AND NOT (id = ANY(ARRAY(SELECT spared.id FROM unnest($3::text[]) AS spared(id))))
RETURNING id;

-- revive (tries, now, asked[0])
INSERT INTO rowlock.jobs_live (
    id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id,
    state, ready, max_attempts, releases, losses, convictions, run_after, settled_token, updated_at)
SELECT j.id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id,
       'queued', TRUE, greatest(max_attempts, attempt - releases - losses + $1),
       releases, losses, 0, coalesce($2, statement_timestamp()), settled_token, coalesce($2, statement_timestamp())
FROM rowlock.jobs_finished j
WHERE j.id = ANY(ARRAY(SELECT asked.id FROM unnest($3::text[]::uuid[]) AS asked(id)));

-- revoke_tokens (now, which)
UPDATE rowlock.tokens SET revoked_at = coalesce($1, statement_timestamp())
WHERE revoked_at IS NULL AND uses IS NULL AND (
    CAST(id AS text) = $2 OR hint = $2 OR hash = $2
    OR made_from IN (
        SELECT t.id FROM rowlock.tokens t WHERE CAST(t.id AS text) = $2 OR t.hint = $2 OR t.hash = $2))
RETURNING CAST(id AS text) AS id, hint;

-- run_now (now, asked[0])
UPDATE rowlock.jobs_live SET run_after = coalesce($1, statement_timestamp()), ready = TRUE, updated_at = coalesce($1, statement_timestamp())
WHERE NOT ready AND state <> 'running' AND id IN (SELECT asked.id FROM unnest($2::text[]::uuid[]) AS asked(id))
RETURNING CAST(id AS text) AS id;

-- running_jobs (now, n)
SELECT CAST(id AS text) AS job_id, queue, task, locked_by AS worker, -(date_part('epoch', locked_at) - date_part('epoch', coalesce($1, statement_timestamp()))) AS seconds,
       -(date_part('epoch', lease_expires_at) - date_part('epoch', coalesce($1, statement_timestamp()))) AS overdue, attempt, CASE WHEN locked_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN locked_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE locked_at END AS since, progress, phase
FROM rowlock.jobs_live j
WHERE state = 'running' AND NOT coalesce(j.published = 'unread', FALSE)
ORDER BY locked_at
LIMIT $2;

-- running_lanes (now)
SELECT queue, coalesce(j.published = 'unread', FALSE) AS unread, count(*) AS number, -(date_part('epoch', min(locked_at)) - date_part('epoch', coalesce($1, statement_timestamp()))) AS longest
FROM rowlock.jobs_live j
WHERE state = 'running' GROUP BY queue, coalesce(j.published = 'unread', FALSE);

-- samples (since, queue, n)
SELECT CASE WHEN at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE at END AS at, queue, ready, waiting, running, oldest_seconds
FROM rowlock.queue_samples
WHERE at >= $1 AND queue <> ''
  AND CASE WHEN CAST($2 AS text) IS NULL THEN TRUE ELSE queue = $2 END
ORDER BY rowlock.queue_samples.at DESC
LIMIT $3;

-- samples_by_hour (since, queue, n)
SELECT CASE WHEN hours.at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN hours.at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE hours.at END AS at, queue, ready, waiting, running, oldest_seconds
FROM (
    SELECT date_bin('1 hour', at, '2000-01-01Z') AS at, queue, max(ready) AS ready, max(waiting) AS waiting, max(running) AS running,
           max(oldest_seconds) AS oldest_seconds
    FROM rowlock.queue_samples
WHERE at >= $1 AND queue <> ''
  AND CASE WHEN CAST($2 AS text) IS NULL THEN TRUE ELSE queue = $2 END
    GROUP BY 1, 2) hours
ORDER BY hours.at DESC
LIMIT $3;

-- schedule_origins (asked[0])
SELECT id, origin, retired_at IS NOT NULL AS retired, rule, zone
FROM rowlock.schedules WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]) AS asked(id)));

-- schedules_at_work (asked[0])
SELECT asked.id FROM unnest($1::text[]) AS asked(id)
WHERE (SELECT 1 FROM rowlock.jobs_live j WHERE j.schedule_id = asked.id LIMIT 1) IS NOT NULL;

-- seal_batch (now, batch_id)
UPDATE rowlock.batches SET sealed_at = coalesce(sealed_at, coalesce($1, statement_timestamp())) WHERE id = $2 RETURNING CAST(id AS text) AS id;

-- set_by_config (n)
SELECT name FROM rowlock.sources WHERE set_by = 'config' ORDER BY name LIMIT $1;

-- set_end_job (job_id, batch_id)
UPDATE rowlock.batches SET end_job = $1 WHERE id = $2;

-- set_probe (job_id, token, name)
UPDATE rowlock.sources SET probe_job = $1, probe_token = $2 WHERE name = $3;

-- set_result_file (uri, checksum, now, id, token)
UPDATE rowlock.jobs_live
SET result_uri = $1, result_checksum = $2, updated_at = coalesce($3, statement_timestamp())
WHERE id = $4 AND lease_token = $5 AND state = 'running'
RETURNING id;

-- set_result_files (now, named[0], named[1], named[2], named[3])
UPDATE rowlock.jobs_live
SET result_uri = named.uri, result_checksum = named.checksum, updated_at = coalesce($1, statement_timestamp())
FROM unnest($2::text[]::uuid[], $3::text[]::uuid[], $4::text[], $5::text[]) AS named(id, token, uri, checksum)
WHERE rowlock.jobs_live.id = named.id AND lease_token = named.token AND state = 'running';

-- settled_tokens (asked[0])
SELECT id, settled_token FROM rowlock.jobs_live WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id)))
UNION ALL
SELECT id, settled_token FROM rowlock.jobs_finished WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id)));

-- signing_secrets (owner, now)
SELECT secret FROM rowlock.webhook_secrets
WHERE owner = $1 AND coalesce(expires_at > coalesce($2, statement_timestamp()), TRUE)
ORDER BY created_at DESC, id DESC;

-- slot_bars (n, now, ago)
SELECT * FROM (
    SELECT CAST(j.id AS text) AS job_id, j.task, j.attempt, j.last_worker AS worker, 'succeeded' AS outcome,
           CASE WHEN j.started_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.started_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.started_at END AS began, CASE WHEN j.finished_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.finished_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.finished_at END AS ended
    FROM (SELECT f.id, f.task, f.attempt, f.last_worker, f.state, f.started_at, f.finished_at
          FROM rowlock.jobs_finished f ORDER BY f.id DESC LIMIT $1) j
    WHERE j.state = 'succeeded' AND j.finished_at > (coalesce($2, statement_timestamp()) + ($3) * interval '1 second') AND j.last_worker IS NOT NULL) done
UNION ALL
SELECT * FROM (
    SELECT CAST(a.job_id AS text) AS job_id, coalesce(a.task, '') AS task, a.attempt, a.worker, a.outcome,
           CASE WHEN a.started_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN a.started_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE a.started_at END AS began, CASE WHEN a.finished_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN a.finished_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE a.finished_at END AS ended
    FROM rowlock.attempts a
    WHERE a.finished_at > (coalesce($2, statement_timestamp()) + ($3) * interval '1 second') AND a.worker IS NOT NULL AND a.started_at IS NOT NULL
    ORDER BY a.finished_at DESC LIMIT $1) others
UNION ALL
SELECT CAST(j.id AS text), j.task, j.attempt, j.locked_by, 'running', CASE WHEN j.locked_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN j.locked_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE j.locked_at END, NULL
FROM rowlock.jobs_live j
WHERE j.state = 'running' AND NOT coalesce(j.published = 'unread', FALSE);

-- source_classes
SELECT name FROM rowlock.sources WHERE name NOT LIKE '%:%' ORDER BY name LIMIT 50;

-- source_known (name, class_name)
SELECT 1 AS known
WHERE EXISTS (SELECT 1 FROM rowlock.sources WHERE name = $1 OR name = $2)
   OR EXISTS (SELECT 1 FROM rowlock.jobs_live WHERE source = $1 OR split_part(source, ':', 1) = $1);

-- source_levels (now, n)
SELECT s.name,
       s.enabled AND coalesce(c.class_enabled, TRUE) AS enabled,
       coalesce(s.paused_until > coalesce($1, statement_timestamp()), FALSE) OR coalesce(c.class_paused_until > coalesce($1, statement_timestamp()), FALSE) AS paused,
       s.opened_at IS NOT NULL AS opened,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate,
           CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END AS burst,
           s.tokens, -(date_part('epoch', s.tokens_at) - date_part('epoch', coalesce($1, statement_timestamp()))) AS elapsed
FROM rowlock.sources s LEFT JOIN rowlock.sources c ON c.name = split_part(s.name, ':', 1)
WHERE s.name LIKE '%:%'
ORDER BY CASE WHEN s.set_by IS NULL THEN 1 ELSE 0 END, s.name
LIMIT $2;

-- source_running (class_name, source, n)
SELECT CAST(r.id AS text) AS id, r.locked_by FROM rowlock.jobs_live r
WHERE r.state = 'running' AND r.source IS NOT NULL AND split_part(r.source, ':', 1) = $1
  AND CASE WHEN CAST($2 AS text) IS NULL THEN TRUE ELSE r.source = $2 END
ORDER BY r.id
LIMIT $3;

-- source_strip (n, now, ago, asked[0])
SELECT source, CASE WHEN at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE at END AS at, succeeded, failed FROM (
    SELECT j.source AS source, date_bin('1 minute', j.finished_at, '2000-01-01Z') AS at, count(*) AS succeeded, 0 AS failed
    FROM (
        SELECT f.source, f.state, f.finished_at FROM rowlock.jobs_finished f ORDER BY f.id DESC LIMIT $1) j
    WHERE j.state = 'succeeded' AND j.finished_at > (coalesce($2, statement_timestamp()) + ($3) * interval '1 second')
      AND j.source IN (SELECT asked.name FROM unnest($4::text[]) AS asked(name))
    GROUP BY 1, 2
    UNION ALL
    SELECT a.source, date_bin('1 minute', a.finished_at, '2000-01-01Z'), 0, count(*)
    FROM (
        SELECT f.source, f.finished_at FROM rowlock.attempts f
        WHERE f.finished_at > (coalesce($2, statement_timestamp()) + ($3) * interval '1 second') AND f.outcome IN ('failed', 'timed_out', 'lost')
        ORDER BY f.finished_at DESC LIMIT $1) a
    WHERE a.source IN (SELECT asked.name FROM unnest($4::text[]) AS asked(name))
    GROUP BY 1, 2) found;

-- source_succeeded (now, done[0], epoch)
UPDATE rowlock.sources
SET failure_streak = 0, refusals = 0, last_success_at = coalesce($1, statement_timestamp()),
    epoch = epoch + CASE WHEN opened_at IS NULL THEN 0 ELSE 1 END,
    paused_until = CASE WHEN opened_at IS NULL OR paused_until > coalesce($1, statement_timestamp()) THEN paused_until END,
    opened_at = NULL, opens = 0, probe_job = NULL, probe_token = NULL
WHERE name = ANY(ARRAY(SELECT done.name FROM unnest($2::text[]) AS done(name))) AND epoch = $3
  AND (failure_streak > 0 OR refusals > 0 OR opened_at IS NOT NULL
       OR last_success_at IS NULL OR last_success_at <= (coalesce($1, statement_timestamp()) + (-1) * interval '1 second'));

-- source_tokens (now, asked[0])
SELECT s.name, coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate,
           CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END AS burst,
           s.tokens, -(date_part('epoch', s.tokens_at) - date_part('epoch', coalesce($1, statement_timestamp()))) AS elapsed
FROM rowlock.sources s LEFT JOIN rowlock.sources c ON c.name = split_part(s.name, ':', 1)
WHERE s.name = ANY(ARRAY(SELECT asked.name FROM unnest($2::text[]) AS asked(name)));

-- spend (spent[0], spent[1], at)
UPDATE rowlock.sources
SET tokens = (SELECT spent.tokens FROM unnest($1::text[], $2::double precision[]) AS spent(name, tokens) WHERE spent.name = rowlock.sources.name),
    tokens_at = greatest(coalesce(tokens_at, $3), $3)
WHERE name = ANY(ARRAY(SELECT spent.name FROM unnest($1::text[], $2::double precision[]) AS spent(name, tokens)));

-- spread_by_queue (seconds, since, queue, task)
SELECT queue, run_bucket, wait_bucket, sum(number) AS number
FROM (
    SELECT r.at, r.queue, r.task, r.what, r.run_bucket, r.wait_bucket, r.number FROM rowlock.rollups r
    WHERE r.seconds = $1 AND r.at >= $2
    UNION ALL
    SELECT y.at, y.queue, y.task, y.what, y.run_bucket, y.wait_bucket, y.number FROM rowlock.tallies y
    WHERE y.at >= $2) counted
WHERE CASE WHEN CAST($3 AS text) IS NULL THEN TRUE ELSE queue = $3 END
  AND CASE WHEN CAST($4 AS text) IS NULL THEN TRUE ELSE task = $4 END AND what = 'succeeded'
GROUP BY queue, run_bucket, wait_bucket;

-- start_batches (now, asked[0])
UPDATE rowlock.batches SET state = 'running', started_at = coalesce(started_at, coalesce($1, statement_timestamp()))
WHERE id = ANY(ARRAY(SELECT asked.id FROM unnest($2::text[]::uuid[]) AS asked(id))) AND state = 'queued';

-- still_unchanged (asked[0], unchanged_since)
SELECT CAST(j.id AS text) AS id FROM rowlock.jobs_live j
WHERE j.id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id))) AND j.updated_at <= $2
UNION ALL
SELECT CAST(j.id AS text) FROM rowlock.jobs_finished j
WHERE j.id = ANY(ARRAY(SELECT asked.id FROM unnest($1::text[]::uuid[]) AS asked(id))) AND j.updated_at <= $2;

-- stop_listening_for_events (id, now)
DELETE FROM rowlock.event_listeners WHERE id = $1 OR expires_at < (coalesce($2, statement_timestamp()) + (-3600) * interval '1 second');

-- succeed (done[0], done[1], done[2], now, keep)
WITH held AS MATERIALIZED (
    SELECT found.*, done.result AS outcome
    FROM unnest($1::text[]::uuid[], $2::text[]::uuid[], $3::json[]) AS done(id, token, result)
    CROSS JOIN LATERAL (
        SELECT j.* FROM rowlock.jobs_live j
        WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running'
        LIMIT 1
        FOR UPDATE
    ) found
), gone AS (
    DELETE FROM rowlock.jobs_live WHERE id = ANY(ARRAY(SELECT id FROM held))
), kept AS (
    INSERT INTO rowlock.jobs_finished (
        id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id, max_attempts, expires_at, run_after, cancel_requested_at, phase, message, result_uri, result_checksum,
        state, releases, losses, convictions, settled_token, progress, result, error_code, error_message,
        last_worker, finished_at, updated_at, drop_on)
    SELECT j.id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id, max_attempts, expires_at, run_after, cancel_requested_at, phase, message, result_uri, result_checksum,
           'succeeded', releases, losses, convictions, lease_token, 100, outcome, NULL, NULL,
           locked_by, coalesce($4, statement_timestamp()), coalesce($4, statement_timestamp()), (((coalesce($4, statement_timestamp()) + least(greatest(coalesce(keep_seconds, $5), 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC')::date + 1)
    FROM held j
    RETURNING 1
)
SELECT count(*) AS moved FROM kept;

-- succeed_remote (done[0], done[1], done[2], number, now, keep)
WITH fenced AS MATERIALIZED (
    SELECT found.*, done.result AS outcome
    FROM unnest($1::text[]::uuid[], $2::text[]::uuid[], $3::json[]) AS done(id, token, result)
    CROSS JOIN LATERAL (
        SELECT j.* FROM rowlock.jobs_live j
        WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running'
        LIMIT 1
        FOR UPDATE
    ) found
), held AS MATERIALIZED (
    SELECT * FROM fenced WHERE (SELECT count(*) FROM fenced) = $4
), gone AS (
    DELETE FROM rowlock.jobs_live WHERE id = ANY(ARRAY(SELECT id FROM held))
), kept AS (
    INSERT INTO rowlock.jobs_finished (
        id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id, max_attempts, expires_at, run_after, cancel_requested_at, phase, message, result_uri, result_checksum,
        state, releases, losses, convictions, settled_token, progress, result, error_code, error_message,
        last_worker, finished_at, updated_at, drop_on)
    SELECT j.id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id, max_attempts, expires_at, run_after, cancel_requested_at, phase, message, result_uri, result_checksum,
           'succeeded', releases, losses, convictions, lease_token, 100, outcome, NULL, NULL,
           locked_by, coalesce($5, statement_timestamp()), coalesce($5, statement_timestamp()), (((coalesce($5, statement_timestamp()) + least(greatest(coalesce(keep_seconds, $6), 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC')::date + 1)
    FROM held j
    RETURNING 1
), answered AS (
    DELETE FROM rowlock.outbox WHERE kind = 'request' AND job_id = ANY(ARRAY(SELECT id FROM held))
)
SELECT count(*) AS moved FROM kept;

-- sum_up (n)
SELECT rowlock._sum_up($1) AS moved;

-- take_alert_lease (holder, now, lease, token)
INSERT INTO rowlock.alert_lease (one, holder, token, expires_at)
SELECT 1, $1, mine.token, (coalesce($2, statement_timestamp()) + ($3) * interval '1 second') FROM (SELECT $4::text::uuid AS token) AS mine WHERE TRUE
ON CONFLICT (one) DO UPDATE
SET holder = excluded.holder, token = excluded.token, expires_at = excluded.expires_at
WHERE rowlock.alert_lease.token = excluded.token OR rowlock.alert_lease.expires_at <= coalesce($2, statement_timestamp())
   OR rowlock.alert_lease.expires_at > (coalesce($2, statement_timestamp()) + (3600 + $3) * interval '1 second')
RETURNING one;

-- take_id (job_id)
SELECT taken.id AS job_id FROM rowlock._take_ids(ARRAY[CAST($1 AS uuid)]) AS taken (id);

-- take_keys (scope, wanted[0], wanted[1], mode, now, window)
SELECT taken.key
FROM rowlock._hold_keys(
    $1,
    ARRAY(SELECT wanted.key FROM unnest($2::text[], $3::text[]::uuid[]) AS wanted(key, job_id)),
    ARRAY(SELECT wanted.job_id FROM unnest($2::text[], $3::text[]::uuid[]) AS wanted(key, job_id)),
    $4, (coalesce($5, statement_timestamp()) + ($6) * interval '1 second')) AS taken (key);

-- task_names
SELECT name FROM rowlock.tasks ORDER BY name;

-- tell_problem (problem, now, id)
UPDATE rowlock.schedules SET problem = $1, updated_at = coalesce($2, statement_timestamp()) WHERE id = $3;

-- ticks_ahead (asked[0], now)
SELECT k.schedule_id, CASE WHEN k.tick > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN k.tick < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE k.tick END AS tick
FROM unnest($1::text[]) AS asked(id)
CROSS JOIN rowlock.ticks k
WHERE k.schedule_id = asked.id AND k.tick > coalesce($2, statement_timestamp());

-- ticks_of (id, n)
SELECT CASE WHEN tick > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN tick < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE tick END AS tick, CAST(job_id AS text) AS job_id
FROM rowlock.ticks
WHERE schedule_id = $1
ORDER BY tick DESC
LIMIT $2;

-- to_sweep (now)
SELECT (
    SELECT 1 FROM rowlock.jobs_live j
    WHERE state = 'running' AND lease_expires_at < coalesce($1, statement_timestamp()) AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL
    ORDER BY id
    LIMIT 1
) IS NOT NULL AS expired, (
    SELECT 1 FROM rowlock.jobs_live j
    WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at <= coalesce($1, statement_timestamp()) AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > coalesce($1, statement_timestamp()), TRUE)) IS NULL
    ORDER BY expires_at
    LIMIT 1
) IS NOT NULL AS overdue, (
    SELECT 1 FROM rowlock.batches WHERE finished_at IS NULL ORDER BY id LIMIT 1
) IS NOT NULL AS batched, date_part('epoch', statement_timestamp()) AS clock;

-- tomorrow (now)
SELECT to_char((((coalesce($1, statement_timestamp()) + least(greatest(0, 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC')::date + 1), 'YYYY-MM-DD') AS day;

-- totals
SELECT queue, task, what, sum(number) AS number
FROM (
    SELECT queue, task, what, number FROM rowlock.counters
    UNION ALL
    SELECT queue, task, what, number FROM rowlock.tallies) counted
GROUP BY queue, task, what
ORDER BY queue, task, what;

-- touch_declared (now, ago, asked[0])
UPDATE rowlock.schedules SET declared_at = coalesce($1, statement_timestamp())
WHERE origin <> 'runtime' AND retired_at IS NULL AND declared_at < (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
  AND id = ANY(ARRAY(SELECT asked.id FROM unnest($3::text[]) AS asked(id)));

-- troubled_schedules (now, n)
SELECT id, problem, CASE WHEN paused_at IS NULL THEN -(date_part('epoch', next_tick) - date_part('epoch', coalesce($1, statement_timestamp()))) END AS late
FROM (
    SELECT id, problem, paused_at, next_tick FROM rowlock.schedules WHERE problem IS NOT NULL AND retired_at IS NULL
    UNION ALL
    SELECT id, problem, paused_at, next_tick FROM rowlock.schedules
    WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick < coalesce($1, statement_timestamp()) AND problem IS NULL
) troubled
ORDER BY next_tick IS NULL, next_tick, id
LIMIT $2;

-- unfinished_jobs (owner, n)
SELECT count(*) AS number FROM (SELECT 1 FROM rowlock.jobs_live j WHERE j.owner = $1 LIMIT $2) found;

-- use_token (hash, kind, now)
UPDATE rowlock.tokens AS t SET uses = uses - 1
WHERE t.hash = $1 AND t.kind = $2 AND t.uses > 0 AND t.revoked_at IS NULL AND coalesce(t.expires_at > coalesce($3, statement_timestamp()), TRUE)
  AND (SELECT p.revoked_at FROM rowlock.tokens p WHERE p.id = t.made_from) IS NULL
  AND (t.made_from IS NULL OR t.made_from IN (SELECT t.id FROM rowlock.tokens t WHERE t.revoked_at IS NULL AND coalesce(t.expires_at > coalesce($3, statement_timestamp()), TRUE)
  AND (SELECT p.revoked_at FROM rowlock.tokens p WHERE p.id = t.made_from) IS NULL))
RETURNING CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id, CASE WHEN created_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN created_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE created_at END AS created_at,
       CASE WHEN expires_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN expires_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE expires_at END AS expires_at, CASE WHEN revoked_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN revoked_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE revoked_at END AS revoked_at, CAST(made_from AS text) AS token_id, good_until;

-- waiting_lanes (n)
SELECT queue, task, state, count(*) AS number
FROM (
    SELECT j.queue, j.task, j.state
    FROM rowlock.jobs_live j
    WHERE NOT j.ready AND j.state <> 'running'
    ORDER BY j.run_after
    LIMIT $1) due
GROUP BY queue, task, state;

-- webhook_deliveries (job_id)
SELECT CAST(delivery_id AS text) AS id FROM rowlock.webhook_deliveries WHERE job_id = $1 ORDER BY delivery_id;

-- webhook_of_delivery (job_id, delivery_id)
SELECT w.url, w.owner
FROM rowlock.webhook_deliveries d JOIN rowlock.webhooks w ON w.job_id = d.job_id
WHERE d.job_id = $1 AND d.delivery_id = $2;

-- work_left (lane[0], lane[1], now)
SELECT j.id
FROM rowlock.jobs_live j JOIN unnest($1::text[], $2::text[]) AS lane(queue, task) ON j.queue = lane.queue AND j.task = lane.task
WHERE (j.ready OR j.state = 'running' OR j.run_after <= coalesce($3, statement_timestamp())) AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > coalesce($3, statement_timestamp()), TRUE)) IS NULL
LIMIT 1;

-- worker_idle (idle, now, lease, id)
UPDATE rowlock.workers SET idle = $1, seen_at = coalesce($2, statement_timestamp()), expires_at = (coalesce($2, statement_timestamp()) + ($3) * interval '1 second') WHERE id = $4 RETURNING id;

-- worker_seen (now, lease, running, memory, id)
UPDATE rowlock.workers
SET seen_at = coalesce($1, statement_timestamp()), expires_at = (coalesce($1, statement_timestamp()) + ($2) * interval '1 second'), running = $3, memory_bytes = coalesce($4, memory_bytes)
WHERE id = $5
RETURNING stop_requested;

-- write_alerts (found[0], found[1], found[2], found[3], found[4], found[5], found[6], found[7], found[8])
INSERT INTO rowlock.alerts (rule, subject, value, text, true_since, false_since, fired_at, told_at, repeats)
SELECT found.rule, found.subject, found.value, found.text, found.true_since, found.false_since, found.fired_at,
       found.told_at, found.repeats
FROM unnest($1::text[], $2::text[], $3::double precision[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[], $8::timestamptz[], $9::integer[]) AS found(rule, subject, value, text, true_since, false_since, fired_at, told_at, repeats)
WHERE TRUE
ON CONFLICT (rule, subject) DO UPDATE
SET value = excluded.value, text = excluded.text, true_since = excluded.true_since, false_since = excluded.false_since,
    fired_at = excluded.fired_at, told_at = excluded.told_at, repeats = excluded.repeats;

-- write_audit (now, who, via, address, action, target, number, details)
INSERT INTO rowlock.audit (at, who, via, address, action, target, number, details)
VALUES (coalesce($1, statement_timestamp()), $2, $3, $4, $5, $6, $7, $8)
RETURNING id;

-- write_health (now, changed[0], changed[1], changed[2], changed[3], changed[4], changed[5], changed[6], changed[7], changed[8], changed[9], changed[10], changed[11], changed[12], changed[13])
UPDATE rowlock.sources
SET failure_streak = changed.streak, opens = changed.opens, refusals = changed.refusals,
    enabled = (changed.enabled = 1), opened_at = CASE WHEN changed.opened = 1 THEN coalesce(opened_at, coalesce($1, statement_timestamp())) END,
    probe_job = CASE WHEN rowlock.sources.epoch = changed.epoch THEN probe_job END,
    probe_token = CASE WHEN rowlock.sources.epoch = changed.epoch THEN probe_token END,
    epoch = changed.epoch,
    paused_until = CASE WHEN changed.repaused = 1 THEN (coalesce($1, statement_timestamp()) + (changed.paused_for) * interval '1 second') ELSE paused_until END,
    paused_at = CASE WHEN changed.repaused = 1 THEN coalesce($1, statement_timestamp()) ELSE paused_at END,
    last_success_at = CASE WHEN changed.succeeded = 1 THEN coalesce($1, statement_timestamp()) ELSE last_success_at END,
    last_failure_at = CASE WHEN changed.failed = 1 THEN coalesce($1, statement_timestamp()) ELSE last_failure_at END,
    last_error = coalesce(changed.error, last_error),
    refused_at = CASE WHEN changed.refused = 1 THEN coalesce($1, statement_timestamp()) ELSE refused_at END,
    refusal_code = coalesce(changed.refusal_code, rowlock.sources.refusal_code)
FROM unnest($2::text[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::integer[], $10::double precision[], $11::integer[], $12::integer[], $13::text[], $14::integer[], $15::text[]) AS changed(name, streak, opens, refusals, enabled, opened, epoch, repaused, paused_for, succeeded, failed, error, refused, refusal_code)
WHERE rowlock.sources.name = changed.name;

-- write_logs (now, line[0], line[1], line[2], line[3], line[4], line[5])
INSERT INTO rowlock.job_logs (job_id, seq, attempt, at, level, message)
SELECT line.job_id, coalesce((SELECT max(o.seq) FROM rowlock.job_logs o WHERE o.job_id = line.job_id), 0) + line.number,
       line.attempt, (coalesce($1, statement_timestamp()) + (line.ago) * interval '1 second'), line.level, line.message
FROM unnest($2::text[]::uuid[], $3::integer[], $4::integer[], $5::double precision[], $6::text[], $7::text[]) AS line(job_id, number, attempt, ago, level, message)
WHERE TRUE
ON CONFLICT (job_id, seq) DO NOTHING;

-- write_policy (concurrency, total, rate, burst, threshold, cooldown, factor, block_after, set_by, name)
UPDATE rowlock.sources
SET concurrency = $1, total = $2, rate_limit_per_minute = $3, burst = $4,
    failure_threshold = $5, cooldown_seconds = $6, cooldown_factor = $7,
    block_after = $8, set_by = $9
WHERE name = $10;

-- write_preview (token_hash, action, filter, ids, made_at, now, seconds, who)
INSERT INTO rowlock.previews (token_hash, action, filter, ids, made_at, expires_at, who)
VALUES ($1, $2, $3, $4, $5, (coalesce($6, statement_timestamp()) + ($7) * interval '1 second'), $8);

-- write_samples (now, s[0], s[1], s[2], s[3], s[4])
INSERT INTO rowlock.queue_samples (at, queue, ready, waiting, running, oldest_seconds)
SELECT date_bin('1 minute', coalesce($1, statement_timestamp()), '2000-01-01Z'), s.queue, s.ready, s.waiting, s.running, s.oldest
FROM unnest($2::text[], $3::integer[], $4::integer[], $5::integer[], $6::double precision[]) AS s(queue, ready, waiting, running, oldest)
WHERE TRUE
ON CONFLICT (at, queue) DO NOTHING;

-- write_ticks (now, fired[0], fired[1], fired[2])
INSERT INTO rowlock.ticks (schedule_id, tick, job_id, fired_at)
SELECT fired.schedule_id, fired.tick, fired.job_id, coalesce($1, statement_timestamp())
FROM unnest($2::text[], $3::timestamptz[], $4::text[]::uuid[]) AS fired(schedule_id, tick, job_id)
WHERE TRUE
ON CONFLICT (schedule_id, tick) DO NOTHING
RETURNING CAST(job_id AS text) AS job_id;

-- written_ahead (now, ahead, n)
SELECT id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds,
       CASE WHEN starts_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN starts_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE starts_at END AS starts_at, CASE WHEN ends_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN ends_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE ends_at END AS ends_at, CASE WHEN s.next_tick > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN s.next_tick < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE s.next_tick END AS next_tick,
       CASE WHEN coalesce($1, statement_timestamp()) > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN coalesce($1, statement_timestamp()) < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE coalesce($1, statement_timestamp()) END AS now, CASE WHEN paused_at > '9999-12-30 00:00:00Z' THEN '9999-12-30 00:00:00Z' WHEN paused_at < '0001-01-02 00:00:00Z' THEN '0001-01-02 00:00:00Z' ELSE paused_at END AS paused_at
FROM rowlock.schedules s
WHERE updated_at > (coalesce($1, statement_timestamp()) + ($2) * interval '1 second')
ORDER BY id
LIMIT $3
FOR UPDATE SKIP LOCKED;
