-- Every statement as this engine runs it, by name, with its parameters in brackets. `now` is the time of a fake clock:
-- in production it is NULL on PostgreSQL, which then uses its own clock, and the time of the machine on SQLite.

-- about
SELECT 'SQLite ' || sqlite_version() AS server, (SELECT max(number) FROM rowlock_migrations) AS schema;

-- add_alert_messages (now, made)
INSERT INTO rowlock_alert_messages (id, type, body, created_at, send_after)
SELECT made.id, made.type, made.body, ?1, ?1
FROM (SELECT value ->> 0 AS id, value ->> 1 AS type, value ->> 2 AS body FROM json_each(?2)) AS made;

-- add_to_audit (number, id)
UPDATE rowlock_audit SET number = number + ?1 WHERE id = ?2;

-- add_webhook (owner, url, source, queue, max_attempts, timeout_seconds, job_id, backoff)
INSERT INTO rowlock_webhooks (job_id, owner, url, source, queue, max_attempts, backoff, timeout_seconds)
SELECT hook.job_id, ?1, ?2, ?3, ?4, ?5, hook.backoff, ?6
FROM (SELECT ?7 AS job_id, ?8 AS backoff) AS hook;

-- adopt (now, worker, token)
SELECT CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -(run_after - ?1)
FROM rowlock_jobs_live
WHERE state = 'running' AND locked_by = ?2 AND lease_token = ?3;

-- advance_preview (next_id, looked, changed, audit_id, token_hash)
UPDATE rowlock_previews
SET next_id = ?1, looked = looked + ?2, changed = changed + ?3, audit_id = ?4
WHERE token_hash = ?5;

-- alert_lease (now)
SELECT holder, (expires_at - ?1) AS seconds FROM rowlock_alert_lease;

-- alert_message_failed (now, wait, error, id)
UPDATE rowlock_alert_messages
SET attempts = attempts + 1, send_after = (?1 + (?2)), last_error = ?3
WHERE id = ?4;

-- alert_message_sent (id)
DELETE FROM rowlock_alert_messages WHERE id = ?1;

-- alert_messages (now, n)
SELECT CAST(id AS text) AS id, type, body, attempts, (send_after - ?1) AS wait,
       -(created_at - ?1) AS age, last_error
FROM rowlock_alert_messages
ORDER BY created_at, id
LIMIT ?2;

-- any_tally
SELECT 1 AS found FROM rowlock_tallies LIMIT 1;

-- any_token (now)
SELECT 1 AS found FROM rowlock_tokens t
WHERE job_id IS NULL AND uses IS NULL AND t.revoked_at IS NULL AND coalesce(t.expires_at > ?1, TRUE)
  AND (SELECT p.revoked_at FROM rowlock_tokens p WHERE p.id = t.made_from) IS NULL
LIMIT 1;

-- app_migrations (app)
SELECT number FROM rowlock_app_migrations WHERE app = ?1;

-- ask_worker_to_stop (how, now, id)
UPDATE rowlock_workers
SET stop_requested = CASE WHEN stop_requested = 'stop' THEN 'stop' ELSE ?1 END,
    stop_requested_at = coalesce(stop_requested_at, ?2)
WHERE id = ?3 AND expires_at > ?2 AND version <> 'sql'
RETURNING id;

-- batch_left (batch_id, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_live j
WHERE j.batch_id = ?1 AND j.cancel_requested_at IS NULL
ORDER BY j.batch_id, j.id
LIMIT ?2;

-- batch_members (batch_id, n)
SELECT * FROM (
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock_jobs_live j WHERE j.batch_id = ?1 ORDER BY j.batch_id, j.id LIMIT ?2) live
    UNION ALL
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, j.state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock_jobs_finished j WHERE j.batch_id = ?1 ORDER BY j.batch_id, j.id LIMIT ?2) finished
) members
LIMIT ?2;

-- batch_of (job_id, token)
SELECT CAST(batch_id AS text) AS batch_id
FROM rowlock_jobs_live
WHERE id = ?1 AND lease_token = ?2 AND state = 'running';

-- batch_open (batch_id)
SELECT sealed_at IS NOT NULL AS sealed, finished_at IS NOT NULL AS finished,
       cancelled_at IS NOT NULL AND reopened_at IS NULL AS cancelled, name
FROM rowlock_batches WHERE id = ?1;

-- beat (now, lease, mine)
UPDATE rowlock_jobs_live
SET heartbeat_at = ?1, lease_expires_at = (?1 + (?2))
WHERE id IN (
    SELECT j.id
    FROM (SELECT value ->> 0 AS id, value ->> 1 AS token FROM json_each(?3)) AS mine
    CROSS JOIN rowlock_jobs_live j
    WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
    ORDER BY j.id)
RETURNING id;

-- beat_waiting (now, lease, id, token)
UPDATE rowlock_jobs_live
SET heartbeat_at = ?1, lease_expires_at = (?1 + (?2))
WHERE id = ?3 AND lease_token = ?4 AND state = 'running'
RETURNING id;

-- begin_request (owner, key, body_hash, claim, now, patience, ttl)
INSERT INTO rowlock_requests (owner, key, body_hash, claim, claimed_until, expires_at)
VALUES (?1, ?2, ?3, ?4, (?5 + (?6)), (?5 + (?7)))
ON CONFLICT (owner, key) DO UPDATE
SET body_hash = excluded.body_hash, claim = excluded.claim, claimed_until = excluded.claimed_until,
    expires_at = excluded.expires_at, job_id = NULL
WHERE rowlock_requests.expires_at <= ?5
   OR (rowlock_requests.job_id IS NULL AND coalesce(rowlock_requests.claimed_until <= ?5, TRUE))
RETURNING key;

-- begin_sample (now)
INSERT INTO rowlock_queue_samples (at, queue, ready, waiting, running)
SELECT (CAST(?1 AS INTEGER) / 60 * 60), '', 0, 0, 0
WHERE TRUE
ON CONFLICT (at, queue) DO NOTHING
RETURNING 1 AS mine;

-- buckets_by_time (what, seconds, since, queue, task)
SELECT coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', found.at, 'unixepoch'), found.at) AS at, bucket, sum(number) AS number
FROM (
    SELECT counted.at, CASE ?1 WHEN 'wait' THEN wait_bucket ELSE run_bucket END AS bucket, number
    FROM (
    SELECT r.at, r.queue, r.task, r.what, r.run_bucket, r.wait_bucket, r.number FROM rowlock_rollups r
    WHERE r.seconds = ?2 AND r.at >= ?3
    UNION ALL
    SELECT y.at, y.queue, y.task, y.what, y.run_bucket, y.wait_bucket, y.number FROM rowlock_tallies y
    WHERE y.at >= ?3) counted
WHERE CASE WHEN CAST(?4 AS text) IS NULL THEN TRUE ELSE queue = ?4 END
  AND CASE WHEN CAST(?5 AS text) IS NULL THEN TRUE ELSE task = ?5 END) found
WHERE bucket >= 0
GROUP BY found.at, bucket;

-- busy_sources (now, n)
WITH running AS (
    SELECT r.source, count(*) AS number FROM rowlock_jobs_live r
    WHERE r.state = 'running' AND r.source IS NOT NULL
    GROUP BY r.source
), standing AS (
    SELECT s.name, coalesce(r.number, 0) AS running, coalesce(s.concurrency, c.concurrency) AS concurrency,
           coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate,
           CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END AS burst,
           s.tokens, -(s.tokens_at - ?1) AS elapsed, s.failure_streak,
           (max(coalesce(s.paused_until, c.class_paused_until),
                                    coalesce(c.class_paused_until, s.paused_until)) - ?1) AS paused_for,
           s.enabled AND coalesce(c.class_enabled, TRUE) AS enabled, s.opened_at IS NOT NULL AS opened
    FROM rowlock_sources s
    LEFT JOIN rowlock_sources c ON c.name = substr(s.name, 1, instr(s.name || ':', ':') - 1)
    LEFT JOIN running r ON r.source = s.name
)
SELECT * FROM standing
WHERE running > 0 OR NOT enabled OR opened OR coalesce(paused_for, 0) > 0
ORDER BY CASE WHEN NOT enabled OR opened OR coalesce(paused_for, 0) > 0 THEN 0 ELSE 1 END, name
LIMIT ?2;

-- by_state_finished (id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock_jobs_finished j
WHERE j.id < ?1 AND j.id >= ?2 AND CASE j.state WHEN 'succeeded' THEN CAST(?3 AS boolean) WHEN 'dead' THEN CAST(?4 AS boolean)
             ELSE CAST(?5 AS boolean) END
  AND CASE WHEN CAST(?6 AS text) IS NULL THEN TRUE ELSE j.task = ?6 END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.queue = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.owner = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.source = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?10 ->> '$', ?11 ->> '$')) END
  AND CASE WHEN CAST(?12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?12 END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?13 END
  AND CASE WHEN CAST(?14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
GROUP BY j.state;

-- by_state_finished_batch (batch, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock_jobs_finished j
WHERE j.batch_id = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE j.state WHEN 'succeeded' THEN CAST(?4 AS boolean) WHEN 'dead' THEN CAST(?5 AS boolean)
             ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.owner = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE j.source = ?10 END
  AND CASE WHEN CAST(?11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?11 ->> '$', ?12 ->> '$')) END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?13 END
  AND CASE WHEN CAST(?14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?14 END
  AND CASE WHEN CAST(?1 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?1 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
GROUP BY j.state;

-- by_state_finished_owner (owner, id, low, succeeded, dead, cancelled, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock_jobs_finished j
WHERE j.owner = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE j.state WHEN 'succeeded' THEN CAST(?4 AS boolean) WHEN 'dead' THEN CAST(?5 AS boolean)
             ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?1 AS text) IS NULL THEN TRUE ELSE j.owner = ?1 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.source = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?10 ->> '$', ?11 ->> '$')) END
  AND CASE WHEN CAST(?12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?12 END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?13 END
  AND CASE WHEN CAST(?14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
GROUP BY j.state;

-- by_state_finished_owner_trouble (owner, trouble, id, low, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock_jobs_finished j INDEXED BY rowlock_jobs_finished_owner_trouble
WHERE j.owner = ?1 AND j.state = ?2 AND j.state <> 'succeeded' AND j.id < ?3 AND j.id >= ?4 AND CASE WHEN CAST(?5 AS text) IS NULL THEN TRUE ELSE j.task = ?5 END
  AND CASE WHEN CAST(?6 AS text) IS NULL THEN TRUE ELSE j.queue = ?6 END
  AND CASE WHEN CAST(?1 AS text) IS NULL THEN TRUE ELSE j.owner = ?1 END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.source = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?8 ->> '$', ?9 ->> '$')) END
  AND CASE WHEN CAST(?10 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?10 END
  AND CASE WHEN CAST(?11 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?11 END
  AND CASE WHEN CAST(?12 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?12 END
  AND CASE WHEN CAST(?13 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?13 END
  AND CASE WHEN CAST(?14 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?14 END
  AND CASE WHEN CAST(?15 AS text) IS NULL THEN TRUE ELSE j.error_code = ?15 END
  AND CASE WHEN CAST(?16 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?17) > 0 OR instr(j.args, ?18) > 0) END
  AND CASE WHEN CAST(?19 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?19 END
GROUP BY j.state;

-- by_state_finished_parent (parent, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock_jobs_finished j
WHERE j.parent_id = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE j.state WHEN 'succeeded' THEN CAST(?4 AS boolean) WHEN 'dead' THEN CAST(?5 AS boolean)
             ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.owner = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE j.source = ?10 END
  AND CASE WHEN CAST(?11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?11 ->> '$', ?12 ->> '$')) END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?13 END
  AND CASE WHEN CAST(?14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?15 END
  AND CASE WHEN CAST(?1 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?1 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
GROUP BY j.state;

-- by_state_finished_schedule (schedule, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, parent, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock_jobs_finished j
WHERE j.schedule_id = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE j.state WHEN 'succeeded' THEN CAST(?4 AS boolean) WHEN 'dead' THEN CAST(?5 AS boolean)
             ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.owner = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE j.source = ?10 END
  AND CASE WHEN CAST(?11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?11 ->> '$', ?12 ->> '$')) END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?13 END
  AND CASE WHEN CAST(?14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?15 END
  AND CASE WHEN CAST(?16 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?16 END
  AND CASE WHEN CAST(?1 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?1 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
GROUP BY j.state;

-- by_state_finished_trouble (trouble, id, low, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT j.state AS state, count(*) AS number FROM rowlock_jobs_finished j
WHERE j.state = ?1 AND j.state <> 'succeeded' AND j.id < ?2 AND j.id >= ?3 AND CASE WHEN CAST(?4 AS text) IS NULL THEN TRUE ELSE j.task = ?4 END
  AND CASE WHEN CAST(?5 AS text) IS NULL THEN TRUE ELSE j.queue = ?5 END
  AND CASE WHEN CAST(?6 AS text) IS NULL THEN TRUE ELSE j.owner = ?6 END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.source = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?8 ->> '$', ?9 ->> '$')) END
  AND CASE WHEN CAST(?10 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?10 END
  AND CASE WHEN CAST(?11 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?11 END
  AND CASE WHEN CAST(?12 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?12 END
  AND CASE WHEN CAST(?13 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?13 END
  AND CASE WHEN CAST(?14 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?14 END
  AND CASE WHEN CAST(?15 AS text) IS NULL THEN TRUE ELSE j.error_code = ?15 END
  AND CASE WHEN CAST(?16 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?17) > 0 OR instr(j.args, ?18) > 0) END
  AND CASE WHEN CAST(?19 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?19 END
GROUP BY j.state;

-- by_state_live (id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, count(*) AS number FROM rowlock_jobs_live j
WHERE j.id < ?1 AND j.id >= ?2 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST(?3 AS boolean)
     WHEN j.state = 'running' THEN CAST(?4 AS boolean)
     ELSE CAST(?5 AS boolean) END
  AND CASE WHEN CAST(?6 AS text) IS NULL THEN TRUE ELSE j.task = ?6 END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.queue = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.owner = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.source = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?10 ->> '$', ?11 ->> '$')) END
  AND CASE WHEN CAST(?12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?12 END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?13 END
  AND CASE WHEN CAST(?14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
GROUP BY CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END;

-- by_state_live_batch (batch, id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, count(*) AS number FROM rowlock_jobs_live j
WHERE j.batch_id = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST(?4 AS boolean)
     WHEN j.state = 'running' THEN CAST(?5 AS boolean)
     ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.owner = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE j.source = ?10 END
  AND CASE WHEN CAST(?11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?11 ->> '$', ?12 ->> '$')) END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?13 END
  AND CASE WHEN CAST(?14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?14 END
  AND CASE WHEN CAST(?1 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?1 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
GROUP BY CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END;

-- by_state_live_owner (owner, id, low, queued, running, retryable, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, count(*) AS number FROM rowlock_jobs_live j
WHERE j.owner = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST(?4 AS boolean)
     WHEN j.state = 'running' THEN CAST(?5 AS boolean)
     ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?1 AS text) IS NULL THEN TRUE ELSE j.owner = ?1 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.source = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?10 ->> '$', ?11 ->> '$')) END
  AND CASE WHEN CAST(?12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?12 END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?13 END
  AND CASE WHEN CAST(?14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
GROUP BY CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END;

-- by_state_live_parent (parent, id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, count(*) AS number FROM rowlock_jobs_live j
WHERE j.parent_id = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST(?4 AS boolean)
     WHEN j.state = 'running' THEN CAST(?5 AS boolean)
     ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.owner = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE j.source = ?10 END
  AND CASE WHEN CAST(?11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?11 ->> '$', ?12 ->> '$')) END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?13 END
  AND CASE WHEN CAST(?14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?15 END
  AND CASE WHEN CAST(?1 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?1 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
GROUP BY CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END;

-- by_state_live_running (id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since)
SELECT CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, count(*) AS number FROM rowlock_jobs_live j
WHERE j.state = 'running' AND j.id < ?1 AND j.id >= ?2 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST(?3 AS boolean)
     WHEN j.state = 'running' THEN CAST(?4 AS boolean)
     ELSE CAST(?5 AS boolean) END
  AND CASE WHEN CAST(?6 AS text) IS NULL THEN TRUE ELSE j.task = ?6 END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.queue = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.owner = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.source = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?10 ->> '$', ?11 ->> '$')) END
  AND CASE WHEN CAST(?12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?12 END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?13 END
  AND CASE WHEN CAST(?14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
GROUP BY CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END;

-- cancel_batch (now, batch_id)
UPDATE rowlock_batches
SET cancelled_at = coalesce(cancelled_at, ?1), sealed_at = coalesce(sealed_at, ?1), reopened_at = NULL
WHERE id = ?2 AND finished_at IS NULL
RETURNING CAST(id AS text) AS id;

-- changed
SELECT changes() AS moved;

-- children_of (job_id, n)
SELECT * FROM (
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock_jobs_live j WHERE j.parent_id = ?1 ORDER BY j.parent_id, j.id LIMIT ?2) live
    UNION ALL
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, j.state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock_jobs_finished j WHERE j.parent_id = ?1 ORDER BY j.parent_id, j.id LIMIT ?2) finished
) made
ORDER BY id
LIMIT ?2;

-- children_of_many (asked, n)
SELECT * FROM (
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock_jobs_live j WHERE j.parent_id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked) LIMIT ?2) live
    UNION ALL
    SELECT * FROM (SELECT CAST(j.id AS text) AS id, j.task, j.state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock_jobs_finished j WHERE j.parent_id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked) LIMIT ?2) finished
) made
LIMIT ?2;

-- claim (token, worker, now, lease, at, epoch, front)
UPDATE rowlock_jobs_live
SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = ?1, locked_by = ?2,
    published = CASE WHEN ?2 = 'redis-unread' THEN 'unread' END,
    heartbeat_at = ?3, lease_expires_at = (?3 + (?4)), updated_at = ?3, locked_at = coalesce(?5, ?3), started_at = coalesce(?5, ?3), source_epoch = ?6
WHERE rowid IN (SELECT value FROM json_each(?7)) AND ready;

-- claim_picked (token, worker, now, lease, at, epoch, picked)
UPDATE rowlock_jobs_live
SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = ?1, locked_by = ?2,
    published = CASE WHEN ?2 = 'redis-unread' THEN 'unread' END,
    heartbeat_at = ?3, lease_expires_at = (?3 + (?4)), updated_at = ?3, locked_at = ?5, started_at = ?5, source_epoch = ?6
WHERE id IN (SELECT picked.id FROM (SELECT value ->> 0 AS id FROM json_each(?7)) AS picked) AND ready;

-- claimable (now, job_id)
SELECT CAST(j.id AS text) AS id, ?1 AS at
FROM rowlock_jobs_live j
WHERE j.id = ?2 AND j.ready AND j.source IS NULL AND (j.expires_at IS NULL OR j.expires_at > ?1)
  AND NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = j.queue AND q.paused_at IS NOT NULL);

-- clear_keys (scope, wanted, now)
DELETE FROM rowlock_job_keys
WHERE scope = ?1 AND key IN (SELECT wanted.key FROM (SELECT value ->> 0 AS key FROM json_each(?2)) AS wanted) AND expires_at <= ?3;

-- clock (now)
SELECT coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', ?1, 'unixepoch'), ?1) AS now;

-- closed_sources (now, n)
SELECT name, enabled, opened_at IS NOT NULL AS opened, coalesce(paused_until > ?1, FALSE) AS paused,
       -(opened_at - ?1) AS seconds, last_error
FROM rowlock_sources
WHERE (opened_at IS NOT NULL OR NOT enabled OR paused_until IS NOT NULL)  -- the condition of an index
  AND (opened_at IS NOT NULL OR NOT enabled OR paused_until > ?1)
ORDER BY opened_at IS NULL, opened_at, name
LIMIT ?2;

-- complete_batches (asked)
SELECT CAST(b.id AS text) AS id, NOT b.ended_once AS first_time
FROM rowlock_batches b
WHERE b.id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked)
  AND b.finished_at IS NULL AND b.sealed_at IS NOT NULL AND TRUE
  AND coalesce((SELECT sum(n.total - n.processed) FROM rowlock_batch_counts n WHERE n.batch_id = b.id), 0) <= 0;

-- count_batches (shard, now, counted)
INSERT INTO rowlock_batch_counts (
    batch_id, shard, total, processed, failed, cancelled, expired, last_error, last_error_at)
SELECT counted.batch_id, ?1, counted.total, counted.processed, counted.failed, counted.cancelled, counted.expired,
       counted.last_error, CASE WHEN counted.last_error IS NOT NULL THEN ?2 END
FROM (SELECT value ->> 0 AS batch_id, value ->> 1 AS total, value ->> 2 AS processed, value ->> 3 AS failed, value ->> 4 AS cancelled, value ->> 5 AS expired, value ->> 6 AS last_error FROM json_each(?3)) AS counted
WHERE TRUE
ON CONFLICT (batch_id, shard) DO UPDATE
SET total = rowlock_batch_counts.total + excluded.total,
    processed = rowlock_batch_counts.processed + excluded.processed,
    failed = rowlock_batch_counts.failed + excluded.failed,
    cancelled = rowlock_batch_counts.cancelled + excluded.cancelled,
    expired = rowlock_batch_counts.expired + excluded.expired,
    last_error = coalesce(excluded.last_error, rowlock_batch_counts.last_error),
    last_error_at = coalesce(excluded.last_error_at, rowlock_batch_counts.last_error_at);

-- create_token (id, hash, hint, kind, uses, owner, scope, job_id, made_from, good_until, now, until, ttl)
INSERT INTO rowlock_tokens
    (id, hash, hint, kind, uses, owner, scope, job_id, made_from, good_until, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
        CASE WHEN CAST(?12 AS timestamptz) < (?11 + (?13)) THEN ?12 ELSE (?11 + (?13)) END)
RETURNING CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch'), created_at) AS created_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch'), expires_at) AS expires_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', revoked_at, 'unixepoch'), revoked_at) AS revoked_at;

-- create_webhook_secret (id, owner, secret, hint, now)
INSERT INTO rowlock_webhook_secrets (id, owner, secret, hint, created_at) VALUES (?1, ?2, ?3, ?4, ?5);

-- cut_logs (asked, n)
DELETE FROM rowlock_job_logs
WHERE job_id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked)
  AND seq <= (SELECT max(o.seq) FROM rowlock_job_logs o WHERE o.job_id = rowlock_job_logs.job_id) - ?2;

-- dead_lately (n, now, ago)
SELECT task, count(*) AS number
FROM (
    SELECT j.task, j.finished_at FROM rowlock_jobs_finished j
    WHERE j.state = 'dead' AND j.state <> 'succeeded'
    ORDER BY j.id DESC LIMIT ?1) newest
WHERE finished_at > (?2 + (?3))
GROUP BY task;

-- declarations (now, ago)
SELECT declares, expires_at > ?1 AS alive FROM rowlock_dispatchers WHERE expires_at > (?1 + (?2));

-- declare_schedules (origin, started_at, now, s)
INSERT INTO rowlock_schedules (
    id, task, args, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds, starts_at, ends_at,
    queue, priority, max_attempts, backoff, timeout_seconds, source, on_success, on_dead, on_lost, keep_seconds, owner,
    origin, writer_started_at, declared_at, next_tick, created_at, updated_at)
SELECT s.id, s.task, s.args, s.rule, s.zone, s.missed, s.missed_most, s.missed_seconds, s.overlap, s.jitter_seconds,
       s.starts_at, s.ends_at,
       s.queue, s.priority, s.max_attempts, s.backoff, s.timeout_seconds, s.source, s.on_success, s.on_dead, s.on_lost,
       s.keep_seconds, s.owner,
       ?1, coalesce(?2, ?3), ?3, s.next_tick, ?3, ?3
FROM (SELECT value ->> 0 AS id, value ->> 1 AS task, value ->> 2 AS args, value ->> 3 AS rule, value ->> 4 AS zone, value ->> 5 AS missed, value ->> 6 AS missed_most, value ->> 7 AS missed_seconds, value ->> 8 AS overlap, value ->> 9 AS jitter_seconds, value ->> 10 AS starts_at, value ->> 11 AS ends_at, value ->> 12 AS next_tick, value ->> 13 AS queue, value ->> 14 AS priority, value ->> 15 AS max_attempts, value ->> 16 AS backoff, value ->> 17 AS timeout_seconds, value ->> 18 AS source, value ->> 19 AS on_success, value ->> 20 AS on_dead, value ->> 21 AS on_lost, value ->> 22 AS keep_seconds, value ->> 23 AS owner FROM json_each(?4)) AS s
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
        WHEN rowlock_schedules.writer_started_at BETWEEN excluded.writer_started_at AND ?3
        THEN rowlock_schedules.writer_started_at ELSE excluded.writer_started_at END,
    declared_at = excluded.declared_at, retired_at = NULL, problem = NULL, updated_at = excluded.updated_at,
    next_tick = CASE
        WHEN rowlock_schedules.rule <> excluded.rule OR rowlock_schedules.zone <> excluded.zone
             OR rowlock_schedules.retired_at IS NOT NULL OR rowlock_schedules.next_tick IS NULL
             OR rowlock_schedules.next_tick < excluded.starts_at
        THEN excluded.next_tick
        WHEN rowlock_schedules.next_tick > excluded.next_tick
        THEN excluded.next_tick
        ELSE rowlock_schedules.next_tick END,
    rule = excluded.rule, zone = excluded.zone
WHERE rowlock_schedules.origin = excluded.origin
  AND (excluded.origin = 'runtime' OR rowlock_schedules.writer_started_at <= excluded.writer_started_at
       OR rowlock_schedules.writer_started_at > ?3  -- written by a clock that was ahead
       OR (rowlock_schedules.task, CAST(rowlock_schedules.args AS text), rowlock_schedules.rule, rowlock_schedules.zone,
           rowlock_schedules.missed, rowlock_schedules.missed_most, rowlock_schedules.missed_seconds, rowlock_schedules.overlap,
           rowlock_schedules.jitter_seconds, rowlock_schedules.starts_at, rowlock_schedules.ends_at,
           CAST(rowlock_schedules.queue AS text), CAST(rowlock_schedules.priority AS text),
           CAST(rowlock_schedules.max_attempts AS text), CAST(rowlock_schedules.backoff AS text),
           CAST(rowlock_schedules.timeout_seconds AS text), CAST(rowlock_schedules.source AS text),
           CAST(rowlock_schedules.on_success AS text), CAST(rowlock_schedules.on_dead AS text),
           CAST(rowlock_schedules.on_lost AS text), CAST(rowlock_schedules.keep_seconds AS text),
           CAST(rowlock_schedules.owner AS text))
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

-- declare_tasks (now, declared)
INSERT INTO rowlock_tasks (name, options, source_derived, arguments, description, updated_at)
SELECT declared.name, declared.options, declared.source_derived = 1, declared.arguments, declared.description, ?1
FROM (SELECT value ->> 0 AS name, value ->> 1 AS options, value ->> 2 AS source_derived, value ->> 3 AS arguments, value ->> 4 AS description FROM json_each(?2)) AS declared
WHERE TRUE
ON CONFLICT (name) DO UPDATE
SET options = excluded.options, source_derived = excluded.source_derived, arguments = excluded.arguments,
    description = excluded.description, updated_at = excluded.updated_at
WHERE CAST(rowlock_tasks.options AS text) <> CAST(excluded.options AS text)
   OR rowlock_tasks.source_derived <> excluded.source_derived
   OR CAST(rowlock_tasks.arguments AS text) IS DISTINCT FROM CAST(excluded.arguments AS text)
   OR rowlock_tasks.description IS DISTINCT FROM excluded.description;

-- delete_attempts (asked)
DELETE FROM rowlock_attempts WHERE job_id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked);

-- delete_finished (asked)
DELETE FROM rowlock_jobs_finished WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked) RETURNING CAST(id AS text) AS id;

-- delete_logs (asked)
DELETE FROM rowlock_job_logs WHERE job_id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked);

-- dispatcher_addresses (now)
SELECT bell AS address FROM rowlock_dispatchers WHERE bell IS NOT NULL AND expires_at > ?1;

-- dispatcher_seen (now, lease, id)
UPDATE rowlock_dispatchers SET seen_at = ?1, expires_at = (?1 + (?2))
WHERE id = ?3 AND expires_at > ?1
RETURNING id;

-- drop_alert (rule, subject)
DELETE FROM rowlock_alerts WHERE rule = ?1 AND subject = ?2;

-- due_ids (now, n)
SELECT CAST(id AS text) AS id FROM rowlock_jobs_live j
        WHERE NOT ready AND state <> 'running' AND run_after <= ?1 AND (SELECT 1 FROM rowlock_set_aside a WHERE a.id = j.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL
        ORDER BY run_after
        LIMIT ?2;

-- earlier_request (owner, key, now)
SELECT body_hash, CAST(job_id AS text) AS job_id
FROM rowlock_requests
WHERE owner = ?1 AND key = ?2 AND expires_at > ?3 AND (job_id IS NOT NULL OR claimed_until > ?3);

-- edge_finished (id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.id < ?1 AND j.id >= ?2
ORDER BY j.id DESC LIMIT 1 OFFSET ?3;

-- edge_finished_batch (batch, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.batch_id = ?1 AND j.id < ?2 AND j.id >= ?3
ORDER BY j.id DESC LIMIT 1 OFFSET ?4;

-- edge_finished_owner (owner, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.owner = ?1 AND j.id < ?2 AND j.id >= ?3
ORDER BY j.id DESC LIMIT 1 OFFSET ?4;

-- edge_finished_owner_trouble (owner, trouble, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j INDEXED BY rowlock_jobs_finished_owner_trouble
WHERE j.owner = ?1 AND j.state = ?2 AND j.state <> 'succeeded' AND j.id < ?3 AND j.id >= ?4
ORDER BY j.id DESC LIMIT 1 OFFSET ?5;

-- edge_finished_parent (parent, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.parent_id = ?1 AND j.id < ?2 AND j.id >= ?3
ORDER BY j.id DESC LIMIT 1 OFFSET ?4;

-- edge_finished_schedule (schedule, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.schedule_id = ?1 AND j.id < ?2 AND j.id >= ?3
ORDER BY j.id DESC LIMIT 1 OFFSET ?4;

-- edge_finished_trouble (trouble, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.state = ?1 AND j.state <> 'succeeded' AND j.id < ?2 AND j.id >= ?3
ORDER BY j.id DESC LIMIT 1 OFFSET ?4;

-- edge_live (id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_live j
WHERE j.id < ?1 AND j.id >= ?2
ORDER BY j.id DESC LIMIT 1 OFFSET ?3;

-- edge_live_batch (batch, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_live j
WHERE j.batch_id = ?1 AND j.id < ?2 AND j.id >= ?3
ORDER BY j.id DESC LIMIT 1 OFFSET ?4;

-- edge_live_owner (owner, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_live j
WHERE j.owner = ?1 AND j.id < ?2 AND j.id >= ?3
ORDER BY j.id DESC LIMIT 1 OFFSET ?4;

-- edge_live_parent (parent, id, low, skip)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_live j
WHERE j.parent_id = ?1 AND j.id < ?2 AND j.id >= ?3
ORDER BY j.id DESC LIMIT 1 OFFSET ?4;

-- end_batches (now, asked)
UPDATE rowlock_batches
SET state = CASE
        WHEN cancelled_at IS NOT NULL THEN 'cancelled'
        WHEN (SELECT sum(n.failed) FROM rowlock_batch_counts n WHERE n.batch_id = rowlock_batches.id) > 0 THEN 'failed'
        WHEN (SELECT sum(n.cancelled) FROM rowlock_batch_counts n WHERE n.batch_id = rowlock_batches.id) > 0 THEN 'cancelled'
        ELSE 'succeeded' END,
    started_at = coalesce(started_at, ?1), finished_at = ?1, reopened_at = NULL, ended_once = TRUE
WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?2)) AS asked)
RETURNING CAST(id AS text) AS id, on_end;

-- end_request (job_id, owner, key, claim)
UPDATE rowlock_requests SET job_id = ?1
WHERE owner = ?2 AND key = ?3 AND claim = ?4
RETURNING key;

-- end_webhook_secrets (now, overlap, owner)
UPDATE rowlock_webhook_secrets SET expires_at = (?1 + (?2)) WHERE owner = ?3 AND expires_at IS NULL;

-- ending (asked)
SELECT id, CAST(batch_id AS text) AS batch_id, unique_mode
FROM rowlock_jobs_live
WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked) AND (batch_id IS NOT NULL OR unique_mode IS NOT NULL);

-- ends_by_queue (seconds, since, queue, task)
SELECT coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', counted.at, 'unixepoch'), counted.at) AS at, queue, what, sum(number) AS number
FROM (
    SELECT r.at, r.queue, r.task, r.what, r.run_bucket, r.wait_bucket, r.number FROM rowlock_rollups r
    WHERE r.seconds = ?1 AND r.at >= ?2
    UNION ALL
    SELECT y.at, y.queue, y.task, y.what, y.run_bucket, y.wait_bucket, y.number FROM rowlock_tallies y
    WHERE y.at >= ?2) counted
WHERE CASE WHEN CAST(?3 AS text) IS NULL THEN TRUE ELSE queue = ?3 END
  AND CASE WHEN CAST(?4 AS text) IS NULL THEN TRUE ELSE task = ?4 END
GROUP BY counted.at, queue, what;

-- ends_by_time (seconds, since, queue, task)
SELECT coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', counted.at, 'unixepoch'), counted.at) AS at, what, sum(number) AS number
FROM (
    SELECT r.at, r.queue, r.task, r.what, r.run_bucket, r.wait_bucket, r.number FROM rowlock_rollups r
    WHERE r.seconds = ?1 AND r.at >= ?2
    UNION ALL
    SELECT y.at, y.queue, y.task, y.what, y.run_bucket, y.wait_bucket, y.number FROM rowlock_tallies y
    WHERE y.at >= ?2) counted
WHERE CASE WHEN CAST(?3 AS text) IS NULL THEN TRUE ELSE queue = ?3 END
  AND CASE WHEN CAST(?4 AS text) IS NULL THEN TRUE ELSE task = ?4 END
GROUP BY counted.at, what;

-- enqueue (source, task, run_after, now, delay, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id, unique_mode, expires_at, traceparent, parent_id, added)
INSERT INTO rowlock_jobs_live (
    id, args, source, task, ready, run_after, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags,
    batch_id, unique_mode, expires_at, traceparent, parent_id, created_at, updated_at)
SELECT added.id, added.args, ?1, ?2, coalesce(?3, (?4 + (?5))) <= ?4,
       coalesce(?3, (?4 + (?5))), ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
    ?16, ?17, ?18, ?19, ?20, ?21, ?4, ?4
FROM (SELECT value ->> 0 AS id, value ->> 1 AS args FROM json_each(?22)) AS added
;

-- enqueue_one (source, task, run_after, now, delay, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id, unique_mode, expires_at, traceparent, parent_id, id, args)
INSERT INTO rowlock_jobs_live (
    id, args, source, task, ready, run_after, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags,
    batch_id, unique_mode, expires_at, traceparent, parent_id, created_at, updated_at)
SELECT added.id, added.args, ?1, ?2, coalesce(?3, (?4 + (?5))) <= ?4,
       coalesce(?3, (?4 + (?5))), ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
    ?16, ?17, ?18, ?19, ?20, ?21, ?4, ?4
FROM (SELECT ?22 AS id, ?23 AS args) AS added
;

-- enqueue_rows (task, run_after, now, delay, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id, unique_mode, expires_at, traceparent, parent_id, added)
INSERT INTO rowlock_jobs_live (
    id, args, source, unique_key, task, ready, run_after, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags,
    batch_id, unique_mode, expires_at, traceparent, parent_id, created_at, updated_at)
SELECT added.id, added.args, added.source, added.unique_key, ?1, coalesce(?2, (?3 + (?4))) <= ?3,
       coalesce(?2, (?3 + (?4))), ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
    ?15, ?16, ?17, ?18, ?19, ?20, ?3, ?3
FROM (SELECT value ->> 0 AS id, value ->> 1 AS args, value ->> 2 AS unique_key, value ->> 3 AS source FROM json_each(?21)) AS added
;

-- error_codes (n)
SELECT DISTINCT f.error_code FROM (
    SELECT a.error_code FROM rowlock_attempts a ORDER BY a.finished_at DESC LIMIT ?1) f
WHERE f.error_code IS NOT NULL
ORDER BY 1;

-- event_bounds
SELECT (SELECT last_id FROM rowlock_deleted_events) AS deleted,
       (SELECT id FROM rowlock_events ORDER BY id DESC LIMIT 1) AS newest;

-- events_after (id, n)
SELECT id, CAST(job_id AS text) AS job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
result_checksum, error_code, error_message, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, 'unixepoch'), at) AS at
FROM rowlock_events
WHERE id > ?1
ORDER BY id
LIMIT ?2;

-- events_of_owner (owner, id, n)
SELECT id, CAST(job_id AS text) AS job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
result_checksum, error_code, error_message, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, 'unixepoch'), at) AS at
FROM rowlock_events
WHERE owner = ?1 AND id > ?2
ORDER BY id
LIMIT ?3;

-- expired (now, guard, n)
SELECT CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -(run_after - ?1), lease_token, locked_by
FROM rowlock_jobs_live j
WHERE state = 'running' AND lease_expires_at < ?1 AND (?2 IS NOT NULL) AND (SELECT 1 FROM rowlock_set_aside a WHERE a.id = j.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL
ORDER BY id
LIMIT ?3;

-- failures (now, since, width, n, task, queue)
SELECT f.task, f.error_code, f.source, f.message, count(*) AS number,
       CAST(floor(((f.finished_at - ?1) - (CAST(?2 AS timestamptz) - ?1)) / ?3) AS integer) AS slot,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', min(f.finished_at), 'unixepoch'), min(f.finished_at)) AS first_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', max(f.finished_at), 'unixepoch'), max(f.finished_at)) AS last_at, max(CAST(f.job_id AS text)) AS job_id
FROM (
    SELECT a.job_id, a.attempt, a.source, a.error_code, substr(a.error_message, 1, 300) AS message, a.finished_at,
           coalesce(a.task, '') AS task, coalesce(a.queue, '') AS queue
    FROM rowlock_attempts a
    WHERE a.finished_at >= ?2 AND a.outcome IN ('failed', 'timed_out', 'lost')
    ORDER BY a.finished_at DESC
    LIMIT ?4) f
WHERE CASE WHEN CAST(?5 AS text) IS NULL THEN TRUE ELSE f.task = ?5 END
  AND CASE WHEN CAST(?6 AS text) IS NULL THEN TRUE ELSE f.queue = ?6 END
GROUP BY 1, 2, 3, 4, 6;

-- final_states (asked)
SELECT id, state FROM rowlock_jobs_finished WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked);

-- find_plain (lane, now, n)
SELECT front.id, front.priority, NULL AS source, lane.queue, lane.task
FROM (SELECT value ->> 0 AS queue, value ->> 1 AS task, value ->> 2 AS low_priority, value ->> 3 AS low_id, value ->> 4 AS high_priority, value ->> 5 AS most FROM json_each(?1)) AS lane
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    WHERE j.ready
  AND j.source IS NULL
  AND j.queue = lane.queue
  AND j.task = lane.task
  AND (j.priority, j.id) > (lane.low_priority, lane.low_id)
  AND j.priority < lane.high_priority
  AND (j.expires_at IS NULL OR j.expires_at > ?2)
ORDER BY j.priority, j.id
    LIMIT ?3)
WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL);

-- find_task (name)
SELECT name, CAST(options AS text) AS options, source_derived, CAST(arguments AS text) AS arguments, description,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, 'unixepoch'), updated_at) AS updated_at
FROM rowlock_tasks
WHERE name = ?1;

-- find_token (hash, kind, now)
SELECT CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch'), created_at) AS created_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch'), expires_at) AS expires_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', revoked_at, 'unixepoch'), revoked_at) AS revoked_at FROM rowlock_tokens t
WHERE hash = ?1 AND kind = ?2 AND t.revoked_at IS NULL AND coalesce(t.expires_at > ?3, TRUE)
  AND (SELECT p.revoked_at FROM rowlock_tokens p WHERE p.id = t.made_from) IS NULL;

-- find_turns (turn, now, n)
SELECT front.id, turn.priority, turn.source, turn.queue, turn.task
FROM (SELECT turn.* FROM (SELECT value ->> 0 AS queue, value ->> 1 AS task, value ->> 2 AS priority, value ->> 3 AS source, value ->> 4 AS most FROM json_each(?1)) AS turn
 WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = turn.queue AND q.paused_at IS NOT NULL)) turn
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    WHERE j.ready
  AND j.source IS NOT NULL
  AND j.queue = turn.queue
  AND j.task = turn.task
  AND j.priority = turn.priority
  AND j.source = turn.source
  AND (j.expires_at IS NULL OR j.expires_at > ?2)
ORDER BY j.priority, j.source, j.id
    LIMIT ?3);

-- finish_copy (now, final)
INSERT INTO rowlock_jobs_finished (
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
       locked_by, ?1, ?1, date(?1 + min(max(coalesce(keep_seconds, final.keep), 0), 3155760000), 'unixepoch', '+1 day')
FROM (SELECT value ->> 0 AS id, value ->> 1 AS state, value ->> 2 AS result, value ->> 3 AS error_code, value ->> 4 AS error_message, value ->> 5 AS released, value ->> 6 AS lost, value ->> 7 AS convicted, value ->> 8 AS keep, value ->> 9 AS by_holder FROM json_each(?2)) AS final
CROSS JOIN rowlock_jobs_live j
WHERE j.id = final.id;

-- finish_remove (gone)
DELETE FROM rowlock_jobs_live WHERE id IN (SELECT gone.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS gone);

-- finished_lately (now, n, ago)
SELECT state, task, count(*) AS number, count(started_at) FILTER (WHERE state <> 'cancelled') AS ran,
       sum((finished_at - ?1) - (started_at - ?1)) FILTER (WHERE state <> 'cancelled') AS seconds
FROM (
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM rowlock_jobs_finished j
        ORDER BY j.rowid DESC LIMIT ?2) newest
    WHERE state = 'succeeded'
    UNION ALL
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM rowlock_jobs_finished j
        WHERE j.state = 'dead' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT ?2) dead
    UNION ALL
    SELECT * FROM (
        SELECT j.state, j.task, j.started_at, j.finished_at FROM rowlock_jobs_finished j
        WHERE j.state = 'cancelled' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT ?2) cancelled) newest
WHERE finished_at > (?1 + (?3))
GROUP BY state, task;

-- fire_jobs (now, fired)
INSERT INTO rowlock_jobs_live (
    id, args, task, ready, schedule_id, tick, run_after,
    queue, priority, max_attempts, backoff, timeout_seconds, source, on_success, on_dead, on_lost, keep_seconds, owner,
    created_at, updated_at)
SELECT fired.job_id, s.args, s.task, fired.jitter <= 0, s.id, fired.tick, (?1 + (fired.jitter)),
       s.queue, s.priority, s.max_attempts, s.backoff, s.timeout_seconds, s.source, s.on_success, s.on_dead, s.on_lost,
       s.keep_seconds, s.owner,
       ?1, ?1
FROM (SELECT value ->> 0 AS schedule_id, value ->> 1 AS tick, value ->> 2 AS job_id, value ->> 3 AS jitter FROM json_each(?2)) AS fired
CROSS JOIN rowlock_schedules s
WHERE s.id = fired.schedule_id;

-- first_log (job_id)
SELECT seq FROM rowlock_job_logs WHERE job_id = ?1 ORDER BY seq LIMIT 1;

-- forget_aside (now)
DELETE FROM rowlock_set_aside
WHERE again_at < (?1 + (-3600))
   OR coalesce((SELECT 1 FROM rowlock_jobs_live j WHERE j.id = rowlock_set_aside.id),
               (SELECT 1 FROM rowlock_batches b WHERE b.id = rowlock_set_aside.id AND b.finished_at IS NULL),
               CASE WHEN doing = 'prune'
                    THEN (SELECT 1 FROM rowlock_jobs_finished f WHERE f.id = rowlock_set_aside.id LIMIT 1) END)
      IS NULL;

-- forget_request (owner, key, claim)
DELETE FROM rowlock_requests WHERE owner = ?1 AND key = ?2 AND claim = ?3 AND job_id IS NULL;

-- forget_rollups (seconds, now, ago)
DELETE FROM rowlock_rollups WHERE seconds = ?1 AND at < (?2 + (?3));

-- forget_samples (now, ago)
DELETE FROM rowlock_queue_samples WHERE at < (?1 + (?2));

-- forget_webhook_secrets (owner)
DELETE FROM rowlock_webhook_secrets WHERE owner = ?1 AND expires_at IS NOT NULL;

-- forget_workers (now, n)
DELETE FROM rowlock_workers
WHERE id IN (
    SELECT id FROM rowlock_workers
    WHERE expires_at < (?1 + (-3600))
    ORDER BY expires_at
    LIMIT ?2)
RETURNING 1 AS pruned;

-- front (epoch, now, lane, n)
SELECT front.id, front.task, front.queue, front.priority, front.args, front.owner, front.source, ?1, front.batch_id,
       front.unique_mode, front.attempt + 1, front.max_attempts, front.releases, front.losses, front.convictions,
       front.losses_in_row, front.probation, front.sigterms_in_row, front.disconnects_in_row, front.backoff,
       front.timeout_seconds, front.on_success, front.on_dead, front.on_lost, front.cancel_requested_at IS NOT NULL,
       front.traceparent, -(front.run_after - ?2), front.rowid
FROM (SELECT value ->> 0 AS queue, value ->> 1 AS task, value ->> 2 AS low_priority, value ->> 3 AS low_id, value ->> 4 AS high_priority, value ->> 5 AS most FROM json_each(?3)) AS lane
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    WHERE j.ready
  AND j.source IS NULL
  AND j.queue = lane.queue
  AND j.task = lane.task
  AND (j.priority, j.id) > (lane.low_priority, lane.low_id)
  AND j.priority < lane.high_priority
  AND (j.expires_at IS NULL OR j.expires_at > ?2)
ORDER BY j.priority, j.id
    LIMIT ?4)
WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)
ORDER BY front.priority, front.id
LIMIT ?4;

-- front_merged (lane, n, now, epoch)
WITH lane AS MATERIALIZED (
    SELECT lane.* FROM (SELECT value ->> 0 AS queue, value ->> 1 AS task, value ->> 2 AS low_priority, value ->> 3 AS low_id, value ->> 4 AS high_priority, value ->> 5 AS most FROM json_each(?1)) AS lane WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)
), depth AS MATERIALIZED (
    SELECT min(?2, max(most)) AS n FROM lane
), horizon AS MATERIALIZED (
    SELECT front.priority, front.id
    FROM lane JOIN rowlock_jobs_live front ON front.rowid = (
        SELECT j.rowid
        FROM rowlock_jobs_live j
        WHERE j.ready
  AND j.source IS NULL
  AND j.queue = lane.queue
  AND j.task = lane.task
  AND (j.priority, j.id) > (lane.low_priority, lane.low_id)
  AND j.priority < lane.high_priority
  AND (j.expires_at IS NULL OR j.expires_at > ?3)
ORDER BY j.priority, j.id
        LIMIT 1 OFFSET (SELECT n - 1 FROM depth))
    WHERE (SELECT n FROM depth) < ?2
    ORDER BY front.priority, front.id
    LIMIT 1
)
SELECT front.id, front.task, front.queue, front.priority, front.args, front.owner, front.source, ?4, front.batch_id,
       front.unique_mode, front.attempt + 1, front.max_attempts, front.releases, front.losses, front.convictions,
       front.losses_in_row, front.probation, front.sigterms_in_row, front.disconnects_in_row, front.backoff,
       front.timeout_seconds, front.on_success, front.on_dead, front.on_lost, front.cancel_requested_at IS NOT NULL,
       front.traceparent, -(front.run_after - ?3), front.rowid
FROM lane CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    WHERE j.ready
  AND j.source IS NULL
  AND j.queue = lane.queue
  AND j.task = lane.task
  AND (j.priority, j.id) > (lane.low_priority, lane.low_id)
  AND j.priority < lane.high_priority
  AND (j.expires_at IS NULL OR j.expires_at > ?3)
ORDER BY j.priority, j.id
    LIMIT (SELECT n FROM depth))
WHERE NOT EXISTS (SELECT 1 FROM horizon WHERE (front.priority, front.id) > (horizon.priority, horizon.id))
ORDER BY front.priority, front.id
LIMIT ?2;

-- front_turns (epoch, now, turn, n)
SELECT front.id, front.task, front.queue, front.priority, front.args, front.owner, front.source, ?1, front.batch_id,
       front.unique_mode, front.attempt + 1, front.max_attempts, front.releases, front.losses, front.convictions,
       front.losses_in_row, front.probation, front.sigterms_in_row, front.disconnects_in_row, front.backoff,
       front.timeout_seconds, front.on_success, front.on_dead, front.on_lost, front.cancel_requested_at IS NOT NULL,
       front.traceparent, -(front.run_after - ?2), front.rowid
FROM (SELECT turn.* FROM (SELECT value ->> 0 AS queue, value ->> 1 AS task, value ->> 2 AS priority, value ->> 3 AS source, value ->> 4 AS most FROM json_each(?3)) AS turn
 WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = turn.queue AND q.paused_at IS NOT NULL)) turn
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    WHERE j.ready
  AND j.source IS NOT NULL
  AND j.queue = turn.queue
  AND j.task = turn.task
  AND j.priority = turn.priority
  AND j.source = turn.source
  AND (j.expires_at IS NULL OR j.expires_at > ?2)
ORDER BY j.priority, j.source, j.id
    LIMIT ?4)
ORDER BY front.priority, front.id;

-- gates (now, named)
SELECT named.source, ?1, coalesce(s.concurrency, c.concurrency), c.total,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute),
       CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END,
       coalesce(s.enabled, TRUE) AND coalesce(c.class_enabled, TRUE),
       (max(coalesce(s.paused_until, c.class_paused_until),
                                coalesce(c.class_paused_until, s.paused_until)) - ?1),
       s.opened_at IS NOT NULL,
       (SELECT 1 FROM rowlock_jobs_live p
        WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running'
          AND (SELECT 1 FROM rowlock_set_aside a
               WHERE a.id = p.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL) IS NOT NULL,
       s.tokens, -(s.tokens_at - ?1), coalesce(s.epoch, 0),
       CASE WHEN coalesce(s.concurrency, c.concurrency) IS NOT NULL THEN (
            SELECT count(*) FROM rowlock_jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL
              AND substr(r.source, 1, instr(r.source || ':', ':') - 1) = +c.name AND r.source = named.source
              AND (SELECT 1 FROM rowlock_set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL) END,
       CASE WHEN c.total IS NOT NULL THEN (
            SELECT count(*) FROM rowlock_jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL AND substr(r.source, 1, instr(r.source || ':', ':') - 1) = +c.name
              AND (SELECT 1 FROM rowlock_set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL) END,
       s.name IS NOT NULL
FROM (SELECT value ->> 0 AS source FROM json_each(?2)) AS named
LEFT JOIN rowlock_sources s INDEXED BY sqlite_autoindex_rowlock_sources_1 ON s.name = named.source
LEFT JOIN rowlock_sources c INDEXED BY sqlite_autoindex_rowlock_sources_1
    ON c.name = substr(named.source, 1, instr(named.source || ':', ':') - 1);

-- give_id_back (key)
DELETE FROM rowlock_job_keys WHERE scope = 'id' AND key = ?1;

-- good_tokens (asked, now)
SELECT CAST(t.id AS text) AS id
FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked
CROSS JOIN rowlock_tokens t
WHERE t.id = asked.id AND t.revoked_at IS NULL AND coalesce(t.expires_at > ?2, TRUE)
  AND (SELECT p.revoked_at FROM rowlock_tokens p WHERE p.id = t.made_from) IS NULL;

-- hear (now, lease, reported)
UPDATE rowlock_jobs_live
SET started_at = CASE WHEN published = 'unread' THEN ?1 ELSE started_at END,
    published = 'read', locked_by = 'redis-read', heartbeat_at = ?1, lease_expires_at = (?1 + (?2)),
    progress = max(coalesce(rowlock_jobs_live.progress, 0), reported.progress),
    phase = reported.phase, message = reported.message, updated_at = ?1
FROM (SELECT value ->> 0 AS id, value ->> 1 AS token, value ->> 2 AS progress, value ->> 3 AS phase, value ->> 4 AS message FROM json_each(?3)) AS reported
WHERE rowlock_jobs_live.id = reported.id AND lease_token = reported.token AND +state = 'running'
  AND published IS NOT NULL
RETURNING CAST(rowlock_jobs_live.id AS text) AS id;

-- held (mine)
SELECT j.id, j.cancel_requested_at IS NOT NULL AS cancel_requested
FROM (SELECT value ->> 0 AS id, value ->> 1 AS token FROM json_each(?1)) AS mine
CROSS JOIN rowlock_jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running';

-- held_queues (n, asked)
WITH RECURSIVE plain (queue, task, priority, run_after) AS (
    SELECT queue, task, priority, run_after FROM (
        SELECT j.queue, j.task, j.priority, j.run_after
        FROM rowlock_jobs_live j
        WHERE j.ready AND j.source IS NULL
        ORDER BY j.queue, j.task, j.priority, j.id
        LIMIT 1) first
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after
    FROM plain h
    JOIN rowlock_jobs_live j ON j.id = (
        SELECT n.id
        FROM rowlock_jobs_live n
        WHERE n.ready AND n.source IS NULL
          AND (n.queue, n.task, n.priority, n.id)
              > (+h.queue, +h.task, +h.priority, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY n.queue, n.task, n.priority, n.id
        LIMIT 1)
), sourced (queue, task, priority, run_after) AS (
    SELECT queue, task, priority, run_after FROM (
        SELECT j.queue, j.task, j.priority, j.run_after
        FROM rowlock_jobs_live j
        WHERE j.ready AND j.source IS NOT NULL
        ORDER BY j.queue, j.task, j.priority, j.source, j.id
        LIMIT 1) first
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after
    FROM sourced h
    JOIN rowlock_jobs_live j ON j.id = coalesce(
        (SELECT n.id FROM rowlock_jobs_live n
         WHERE n.ready AND n.source IS NOT NULL
           AND n.queue = +h.queue AND n.task = +h.task AND n.priority > +h.priority
         ORDER BY n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM rowlock_jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue = +h.queue AND n.task > +h.task
         ORDER BY n.task, n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM rowlock_jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue > +h.queue
         ORDER BY n.queue, n.task, n.priority, n.source, n.id LIMIT 1))
), lane AS (SELECT queue, task, priority FROM sourced LIMIT ?1)
SELECT lane.queue, asked.source
FROM lane CROSS JOIN (SELECT value ->> 0 AS source FROM json_each(?2)) AS asked
WHERE (
    SELECT j.id FROM rowlock_jobs_live j
    WHERE j.ready AND j.source IS NOT NULL
      AND j.queue = lane.queue AND j.task = lane.task AND j.priority = lane.priority AND j.source = asked.source
    ORDER BY j.queue, j.task, j.priority, j.source, j.id LIMIT 1) IS NOT NULL
UNION
SELECT lane.queue, asked.source
FROM lane CROSS JOIN (SELECT value ->> 0 AS source FROM json_each(?2)) AS asked
WHERE asked.source NOT LIKE '%:%' AND EXISTS (
    SELECT 1 FROM (
        SELECT j.source FROM rowlock_jobs_live j
        WHERE j.ready AND j.source IS NOT NULL
          AND j.queue = lane.queue AND j.task = lane.task AND j.priority = lane.priority
        ORDER BY j.queue, j.task, j.priority, j.source, j.id LIMIT 200) first
    WHERE substr(first.source, 1, instr(first.source || ':', ':') - 1) = asked.source)
ORDER BY 1, 2;

-- hold_alert_lease (token, now)
SELECT one FROM rowlock_alert_lease WHERE token = ?1 AND expires_at > ?2;

-- hold_back (job_id)
UPDATE rowlock_jobs_live SET ready = FALSE WHERE id = ?1;

-- hold_batches (asked)
SELECT CAST(b.id AS text) AS id FROM rowlock_batches b
WHERE b.id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked)
ORDER BY b.id;

-- idle_addresses (now)
SELECT bell AS address FROM rowlock_workers WHERE idle AND bell IS NOT NULL AND expires_at > ?1;

-- is_ready (job_id)
SELECT id FROM rowlock_jobs_live WHERE id = ?1 AND ready;

-- job_states (asked)
SELECT CAST(j.id AS text) AS id, j.task, j.state, j.result_uri
FROM rowlock_jobs j
WHERE j.id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked);

-- key_holders (now, scope, wanted)
SELECT key, CAST(job_id AS text) AS job_id, expires_at IS NOT NULL AND expires_at <= ?1 AS over
FROM rowlock_job_keys
WHERE scope = ?2 AND key IN (SELECT wanted.key FROM (SELECT value ->> 0 AS key FROM json_each(?3)) AS wanted);

-- known_id (job_id)
SELECT 1 AS known FROM rowlock_jobs_live WHERE id = ?1
UNION ALL
SELECT 1 FROM rowlock_jobs_finished WHERE id = ?1
UNION ALL
SELECT 1 FROM rowlock_job_keys WHERE job_id = ?1 AND scope <> 'id'
LIMIT 1;

-- lane_heads (now, n)
WITH RECURSIVE plain (queue, task, priority, run_after) AS (
    SELECT queue, task, priority, run_after FROM (
        SELECT j.queue, j.task, j.priority, j.run_after
        FROM rowlock_jobs_live j
        WHERE j.ready AND j.source IS NULL
        ORDER BY j.queue, j.task, j.priority, j.id
        LIMIT 1) first
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after
    FROM plain h
    JOIN rowlock_jobs_live j ON j.id = (
        SELECT n.id
        FROM rowlock_jobs_live n
        WHERE n.ready AND n.source IS NULL
          AND (n.queue, n.task, n.priority, n.id)
              > (+h.queue, +h.task, +h.priority, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY n.queue, n.task, n.priority, n.id
        LIMIT 1)
), sourced (queue, task, priority, run_after) AS (
    SELECT queue, task, priority, run_after FROM (
        SELECT j.queue, j.task, j.priority, j.run_after
        FROM rowlock_jobs_live j
        WHERE j.ready AND j.source IS NOT NULL
        ORDER BY j.queue, j.task, j.priority, j.source, j.id
        LIMIT 1) first
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after
    FROM sourced h
    JOIN rowlock_jobs_live j ON j.id = coalesce(
        (SELECT n.id FROM rowlock_jobs_live n
         WHERE n.ready AND n.source IS NOT NULL
           AND n.queue = +h.queue AND n.task = +h.task AND n.priority > +h.priority
         ORDER BY n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM rowlock_jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue = +h.queue AND n.task > +h.task
         ORDER BY n.task, n.priority, n.source, n.id LIMIT 1),
        (SELECT n.id FROM rowlock_jobs_live n
         WHERE n.ready AND n.source IS NOT NULL AND n.queue > +h.queue
         ORDER BY n.queue, n.task, n.priority, n.source, n.id LIMIT 1))
)
SELECT queue, task, -(run_after - ?1) AS age FROM (
    SELECT * FROM plain UNION ALL SELECT * FROM sourced) heads
LIMIT ?2;

-- lane_sizes (n, looks, now, lane)
SELECT lane.queue, lane.task,
       (SELECT count(*) FROM (
            SELECT 1 FROM rowlock_jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT ?1) found) AS ready,
       (SELECT count(*) FROM (
            SELECT j.state FROM rowlock_jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT ?2) found
        WHERE state = 'retryable') AS retries,
       (SELECT -(min(found.run_after) - ?3) FROM (
            SELECT j.run_after FROM rowlock_jobs_live j
            WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.id LIMIT ?2) found) AS age
FROM (SELECT value ->> 0 AS queue, value ->> 1 AS task FROM json_each(?4)) AS lane
UNION ALL
SELECT lane.queue, lane.task,
       (SELECT count(*) FROM (
            SELECT 1 FROM rowlock_jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT ?1) found) AS ready,
       (SELECT count(*) FROM (
            SELECT j.state FROM rowlock_jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT ?2) found
        WHERE state = 'retryable') AS retries,
       (SELECT -(min(found.run_after) - ?3) FROM (
            SELECT j.run_after FROM rowlock_jobs_live j
            WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
            ORDER BY j.priority, j.source, j.id LIMIT ?2) found) AS age
FROM (SELECT value ->> 0 AS queue, value ->> 1 AS task FROM json_each(?4)) AS lane;

-- last_job (job_id, id)
UPDATE rowlock_schedules SET last_job = ?1 WHERE id = ?2;

-- leave_alert_lease (token)
DELETE FROM rowlock_alert_lease WHERE token = ?1;

-- leave_batch (gone)
UPDATE rowlock_jobs_live SET batch_id = NULL WHERE id IN (SELECT gone.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS gone);

-- line (now, priority, id, n, lane)
SELECT coalesce(sum(ahead.plain), 0) AS same_line, coalesce(sum(ahead.sourced), 0) AS other_lines,
       coalesce(sum(ahead.alike), 0) AS turns
FROM (
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock_jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > ?1) AND j.source IS NULL AND (j.priority, j.id) < (?2, ?3)
            ORDER BY j.priority, j.id LIMIT ?4) first) AS plain,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock_jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > ?1) AND j.source IS NOT NULL AND j.priority < ?2
            ORDER BY j.priority, j.source, j.id LIMIT ?4) first) AS sourced,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock_jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > ?1) AND j.source IS NOT NULL AND j.priority >= ?2 AND j.priority <= ?2
            ORDER BY j.priority, j.source, j.id LIMIT 1) first) AS alike
    FROM (SELECT value ->> 0 AS queue, value ->> 1 AS task FROM json_each(?5)) AS lane
    WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)) ahead;

-- line_of_source (now, priority, source, id, n, lane)
SELECT coalesce(sum(ahead.own), 0) AS same_line, coalesce(sum(ahead.plain + ahead.sourced), 0) AS other_lines,
       coalesce(sum(ahead.alike_plain + ahead.alike_before + ahead.alike_after), 0) AS turns
FROM (
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock_jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > ?1) AND j.source IS NOT NULL AND j.priority >= ?2 AND j.priority <= ?2
              AND j.source >= ?3 AND j.source <= ?3 AND j.id < ?4
            ORDER BY j.priority, j.source, j.id LIMIT ?5) first) AS own,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock_jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > ?1) AND j.source IS NULL AND j.priority < ?2
            ORDER BY j.priority, j.id LIMIT ?5) first) AS plain,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock_jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > ?1) AND j.source IS NOT NULL AND j.priority < ?2
            ORDER BY j.priority, j.source, j.id LIMIT ?5) first) AS sourced,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock_jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > ?1) AND j.source IS NULL AND j.priority >= ?2 AND j.priority <= ?2
            ORDER BY j.priority, j.id LIMIT 1) first) AS alike_plain,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock_jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > ?1) AND j.source IS NOT NULL AND j.priority >= ?2 AND j.priority <= ?2
              AND j.source < ?3
            ORDER BY j.priority, j.source, j.id LIMIT 1) first) AS alike_before,
        (SELECT count(*) FROM (
            SELECT 1 FROM rowlock_jobs_live j
            WHERE j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > ?1) AND j.source IS NOT NULL AND j.priority >= ?2 AND j.priority <= ?2
              AND j.source > ?3
            ORDER BY j.priority, j.source, j.id LIMIT 1) first) AS alike_after
    FROM (SELECT value ->> 0 AS queue, value ->> 1 AS task FROM json_each(?6)) AS lane
    WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)) ahead;

-- list_aside (n)
SELECT CAST(a.id AS text) AS id, a.doing, a.error, a.times, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', a.since, 'unixepoch'), a.since) AS since, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', a.again_at, 'unixepoch'), a.again_at) AS again_at
FROM rowlock_set_aside a
ORDER BY a.since DESC
LIMIT ?1;

-- list_audit (before, n)
SELECT id, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, 'unixepoch'), at) AS at, who, via, address, action, target, number AS count, CAST(details AS text) AS details
FROM rowlock_audit
WHERE id < ?1
ORDER BY id DESC
LIMIT ?2;

-- list_batches (batch_id, owner, state, n)
SELECT CAST(b.id AS text) AS id, b.name, b.owner, b.state, b.sealed_at IS NOT NULL AS sealed,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', b.created_at, 'unixepoch'), b.created_at) AS created_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', b.started_at, 'unixepoch'), b.started_at) AS started_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', b.finished_at, 'unixepoch'), b.finished_at) AS finished_at,
       coalesce((SELECT sum(n.total) FROM rowlock_batch_counts n WHERE n.batch_id = b.id), 0) AS total,
       coalesce((SELECT sum(n.processed) FROM rowlock_batch_counts n WHERE n.batch_id = b.id), 0) AS processed,
       coalesce((SELECT sum(n.failed) FROM rowlock_batch_counts n WHERE n.batch_id = b.id), 0) AS failed,
       coalesce((SELECT sum(n.cancelled) FROM rowlock_batch_counts n WHERE n.batch_id = b.id), 0) AS cancelled,
       coalesce((SELECT sum(n.expired) FROM rowlock_batch_counts n WHERE n.batch_id = b.id), 0) AS expired,
       (SELECT n.last_error FROM rowlock_batch_counts n WHERE n.batch_id = b.id AND n.last_error IS NOT NULL
        ORDER BY n.last_error_at DESC LIMIT 1) AS last_error,
       CAST(b.parent_id AS text) AS parent_id, CAST(b.end_job AS text) AS end_job
FROM rowlock_batches b
WHERE b.id < ?1
  AND CASE WHEN CAST(?2 AS text) IS NULL THEN TRUE ELSE b.owner = ?2 END
  AND CASE WHEN CAST(?3 AS text) IS NULL THEN TRUE ELSE b.state = ?3 END
ORDER BY b.id DESC
LIMIT ?4;

-- list_due (now, left_out, n)
SELECT id, rule, zone FROM rowlock_schedules
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick <= ?1 AND NOT (zone || ' ' || rule || ' ' || id
     IN (SELECT left_out.zone || ' ' || left_out.rule || ' ' || left_out.id
            FROM (SELECT value ->> 0 AS id, value ->> 1 AS rule, value ->> 2 AS zone FROM json_each(?2)) AS left_out))
ORDER BY next_tick
LIMIT ?3;

-- list_schedules (now, id, only, n)
SELECT s.id, s.task, CAST(s.args AS text) AS args, s.rule, s.zone, s.missed, s.missed_most, s.missed_seconds,
       s.overlap, s.queue, s.priority, s.owner, s.source, s.max_attempts, s.timeout_seconds, s.jitter_seconds,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.starts_at, 'unixepoch'), s.starts_at) AS starts_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.ends_at, 'unixepoch'), s.ends_at) AS ends_at, s.origin,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.paused_at, 'unixepoch'), s.paused_at) AS paused_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.retired_at, 'unixepoch'), s.retired_at) AS retired_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.last_tick, 'unixepoch'), s.last_tick) AS last_tick, CAST(coalesce(k.job_id, s.last_job) AS text) AS last_job,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.next_tick, 'unixepoch'), s.next_tick) AS next_tick, s.problem,
       (SELECT j.state FROM rowlock_jobs j WHERE j.id = coalesce(k.job_id, s.last_job) LIMIT 1) AS last_state,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', ?1, 'unixepoch'), ?1) AS read_at
FROM rowlock_schedules s
LEFT JOIN rowlock_ticks k ON k.schedule_id = s.id AND k.tick = s.last_tick
WHERE s.id > ?2 AND CASE WHEN CAST(?3 AS text) IS NULL THEN TRUE ELSE s.id = ?3 END
ORDER BY s.id
LIMIT ?4;

-- list_sources (name, only, refused, n)
SELECT s.name, s.concurrency, s.total, s.rate_limit_per_minute AS rate, s.burst, s.failure_threshold AS threshold,
       s.cooldown_seconds AS cooldown, s.cooldown_factor AS factor, s.block_after, s.set_by, s.enabled, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.paused_until, 'unixepoch'), s.paused_until) AS paused_until, s.failure_streak,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.opened_at, 'unixepoch'), s.opened_at) AS opened_at, s.opens, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.last_success_at, 'unixepoch'), s.last_success_at) AS last_success_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.last_failure_at, 'unixepoch'), s.last_failure_at) AS last_failure_at, s.last_error, s.refusals, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.refused_at, 'unixepoch'), s.refused_at) AS refused_at,
       s.refusal_code,
       (SELECT count(*) FROM rowlock_jobs_live r
        WHERE r.state = 'running' AND r.source IS NOT NULL
          AND substr(r.source, 1, instr(r.source || ':', ':') - 1) = substr(s.name, 1, instr(s.name || ':', ':') - 1) AND r.source = s.name) AS running,
       (SELECT count(*) FROM rowlock_jobs_live r
        WHERE r.state = 'running' AND r.source IS NOT NULL AND substr(r.source, 1, instr(r.source || ':', ':') - 1) = s.name) AS class_running,
       coalesce(s.concurrency, c.concurrency) AS effective_concurrency,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate_limit_per_minute,
       coalesce(c.class_enabled, TRUE) AS class_enabled, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', c.class_paused_until, 'unixepoch'), c.class_paused_until) AS class_paused_until
FROM rowlock_sources s
LEFT JOIN rowlock_sources c ON c.name = substr(s.name, 1, instr(s.name || ':', ':') - 1)
WHERE s.name > ?1
  AND CASE WHEN CAST(?2 AS text) IS NULL THEN TRUE ELSE s.name = ?2 END
  AND (?3 = 0 OR s.refusals >= ?3)
ORDER BY s.name
LIMIT ?4;

-- list_tasks (n)
SELECT name, CAST(options AS text) AS options, source_derived, CAST(arguments AS text) AS arguments, description,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, 'unixepoch'), updated_at) AS updated_at
FROM rowlock_tasks
ORDER BY name
LIMIT ?1;

-- list_tokens (n)
SELECT CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch'), created_at) AS created_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch'), expires_at) AS expires_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', revoked_at, 'unixepoch'), revoked_at) AS revoked_at FROM rowlock_tokens t
WHERE job_id IS NULL AND uses IS NULL
ORDER BY created_at DESC, id DESC
LIMIT ?1;

-- list_webhook_secrets (now, n)
SELECT CAST(id AS text) AS id, owner, hint, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch'), created_at) AS created_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch'), expires_at) AS expires_at
FROM rowlock_webhook_secrets
WHERE coalesce(expires_at > ?1, TRUE)
ORDER BY owner, created_at DESC
LIMIT ?2;

-- list_workers (now)
SELECT w.id, w.hostname, w.pid, w.version, w.queues, w.tasks, w.pool_size, w.running, w.idle,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', w.started_at, 'unixepoch'), w.started_at) AS started_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', w.seen_at, 'unixepoch'), w.seen_at) AS seen_at, w.expires_at > ?1 AS alive, w.memory_bytes,
       w.stop_requested, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', w.stop_requested_at, 'unixepoch'), w.stop_requested_at) AS stop_requested_at
FROM rowlock_workers w
ORDER BY w.expires_at > ?1 DESC, w.started_at DESC;

-- listen_for_events (id, now, ttl)
INSERT INTO rowlock_event_listeners (id, expires_at) VALUES (?1, (?2 + (?3)))
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at;

-- live_workers (now)
SELECT id, queues, tasks, pool_size, running FROM rowlock_workers WHERE expires_at > ?1 ORDER BY id;

-- lock_classes (asked)
SELECT name FROM rowlock_sources INDEXED BY sqlite_autoindex_rowlock_sources_1
WHERE name IN (SELECT asked.name FROM (SELECT value ->> 0 AS name FROM json_each(?1)) AS asked) AND total IS NOT NULL
ORDER BY name;

-- lock_due (now, left_out, n)
SELECT id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', starts_at, 'unixepoch'), starts_at) AS starts_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', ends_at, 'unixepoch'), ends_at) AS ends_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.next_tick, 'unixepoch'), s.next_tick) AS next_tick,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', ?1, 'unixepoch'), ?1) AS now, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', paused_at, 'unixepoch'), paused_at) AS paused_at
FROM rowlock_schedules s
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick <= ?1 AND NOT (zone || ' ' || rule || ' ' || id
     IN (SELECT left_out.zone || ' ' || left_out.rule || ' ' || left_out.id
            FROM (SELECT value ->> 0 AS id, value ->> 1 AS rule, value ->> 2 AS zone FROM json_each(?2)) AS left_out))
ORDER BY s.next_tick
LIMIT ?3;

-- lock_finished (asked)
SELECT id, task, owner, state, unique_key, unique_mode, CAST(batch_id AS text) AS batch_id, error_code
FROM rowlock_jobs_finished
WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked) AND state IN ('dead', 'cancelled')
ORDER BY id;

-- lock_health (now, asked)
SELECT s.name, s.failure_streak AS streak, coalesce(s.failure_threshold, c.failure_threshold) AS threshold,
       coalesce(s.cooldown_seconds, c.cooldown_seconds) AS cooldown,
       coalesce(s.cooldown_factor, c.cooldown_factor) AS factor, s.epoch, s.opened_at IS NOT NULL AS opened, s.opens,
       s.refusals, coalesce(s.block_after, c.block_after) AS block_after, s.enabled,
       (s.paused_until - ?1) AS paused_for
FROM rowlock_sources s INDEXED BY sqlite_autoindex_rowlock_sources_1
LEFT JOIN rowlock_sources c INDEXED BY sqlite_autoindex_rowlock_sources_1
    ON c.name = substr(s.name, 1, instr(s.name || ':', ':') - 1)
WHERE s.name IN (SELECT asked.name FROM (SELECT value ->> 0 AS name FROM json_each(?2)) AS asked)
ORDER BY s.name;

-- lock_held (mine)
SELECT j.id, j.lease_token AS token, j.cancel_requested_at IS NOT NULL AS cancel_requested, j.source,
       coalesce(j.source_epoch, 0) AS source_epoch
FROM (SELECT value ->> 0 AS id, value ->> 1 AS token FROM json_each(?1)) AS mine
CROSS JOIN rowlock_jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
ORDER BY j.id;

-- lock_jobs (asked)
SELECT j.id, j.state = 'running' AS running, j.locked_by, j.published IS NOT NULL AS published
FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked
CROSS JOIN rowlock_jobs_live j
WHERE j.id = asked.id
ORDER BY j.id;

-- lock_policy (name)
SELECT s.concurrency, s.total, s.rate_limit_per_minute AS rate, s.burst, s.failure_threshold AS threshold,
       s.cooldown_seconds AS cooldown, s.cooldown_factor AS factor, s.block_after, s.set_by FROM rowlock_sources s WHERE name = ?1;

-- lock_preview (token_hash, now)
SELECT action, CAST(filter AS text) AS filter, CAST(ids AS text) AS ids, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', made_at, 'unixepoch'), made_at) AS made_at,
       CAST(next_id AS text) AS next_id, looked, changed, audit_id
FROM rowlock_previews
WHERE token_hash = ?1 AND expires_at > ?2;

-- lock_ready (picked)
SELECT CAST(j.id AS text) AS id
FROM rowlock_jobs_live j
WHERE j.id IN (SELECT picked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS picked) AND j.ready;

-- lock_schedule (now, id)
SELECT id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', starts_at, 'unixepoch'), starts_at) AS starts_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', ends_at, 'unixepoch'), ends_at) AS ends_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.next_tick, 'unixepoch'), s.next_tick) AS next_tick,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', ?1, 'unixepoch'), ?1) AS now, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', paused_at, 'unixepoch'), paused_at) AS paused_at
FROM rowlock_schedules s
WHERE id = ?2;

-- lock_sources (asked)
SELECT name FROM rowlock_sources INDEXED BY sqlite_autoindex_rowlock_sources_1
WHERE name IN (SELECT asked.name FROM (SELECT value ->> 0 AS name FROM json_each(?1)) AS asked)
ORDER BY name;

-- look (span, now)
WITH RECURSIVE head (queue, task, most, nth, priority, source) AS (
    SELECT span.queue, span.task, span.most, 0, span.low_priority, span.low_source
    FROM (SELECT value ->> 0 AS queue, value ->> 1 AS task, value ->> 2 AS low_priority, value ->> 3 AS low_source, value ->> 4 AS most FROM json_each(?1)) AS span
    WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = span.queue AND q.paused_at IS NOT NULL)
    UNION ALL
    SELECT head.queue, head.task, head.most, head.nth + 1, CAST(following.priority AS int), following.source
    FROM head
    JOIN rowlock_jobs_live following ON following.id = coalesce(
        (SELECT j.id FROM rowlock_jobs_live j
         WHERE j.ready AND j.source IS NOT NULL AND j.queue = +head.queue AND j.task = +head.task
           AND j.priority = +head.priority AND j.source > +head.source
         ORDER BY j.priority, j.source, j.id LIMIT 1),
        (SELECT j.id FROM rowlock_jobs_live j
         WHERE j.ready AND j.source IS NOT NULL AND j.queue = +head.queue AND j.task = +head.task
           AND j.priority > +head.priority
         ORDER BY j.priority, j.source, j.id LIMIT 1))
    WHERE head.nth < head.most
)
SELECT named.queue, named.task, named.priority, named.source, named.nth = named.most, coalesce(s.concurrency, c.concurrency), c.total,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute),
       CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END,
       coalesce(s.enabled, TRUE) AND coalesce(c.class_enabled, TRUE),
       (max(coalesce(s.paused_until, c.class_paused_until),
                                coalesce(c.class_paused_until, s.paused_until)) - ?2),
       s.opened_at IS NOT NULL,
       (SELECT 1 FROM rowlock_jobs_live p
        WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running'
          AND (SELECT 1 FROM rowlock_set_aside a
               WHERE a.id = p.id AND coalesce(a.again_at > ?2, TRUE)) IS NULL) IS NOT NULL,
       s.tokens, -(s.tokens_at - ?2), coalesce(s.epoch, 0),
       CASE WHEN coalesce(s.concurrency, c.concurrency) IS NOT NULL THEN (
            SELECT count(*) FROM rowlock_jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL
              AND substr(r.source, 1, instr(r.source || ':', ':') - 1) = +c.name AND r.source = named.source
              AND (SELECT 1 FROM rowlock_set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > ?2, TRUE)) IS NULL) END,
       CASE WHEN c.total IS NOT NULL THEN (
            SELECT count(*) FROM rowlock_jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL AND substr(r.source, 1, instr(r.source || ':', ':') - 1) = +c.name
              AND (SELECT 1 FROM rowlock_set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > ?2, TRUE)) IS NULL) END,
       s.name IS NOT NULL
FROM head named
LEFT JOIN rowlock_sources s INDEXED BY sqlite_autoindex_rowlock_sources_1 ON s.name = named.source
LEFT JOIN rowlock_sources c INDEXED BY sqlite_autoindex_rowlock_sources_1
    ON c.name = substr(named.source, 1, instr(named.source || ':', ':') - 1)
WHERE named.nth > 0
ORDER BY named.priority, named.nth;

-- look_finished (id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.id < ?1 AND j.id >= ?2 AND CASE j.state WHEN 'succeeded' THEN CAST(?3 AS boolean) WHEN 'dead' THEN CAST(?4 AS boolean)
             ELSE CAST(?5 AS boolean) END
  AND CASE WHEN CAST(?6 AS text) IS NULL THEN TRUE ELSE j.task = ?6 END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.queue = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.owner = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.source = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?10 ->> '$', ?11 ->> '$')) END
  AND CASE WHEN CAST(?12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?12 END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?13 END
  AND CASE WHEN CAST(?14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
ORDER BY j.id DESC LIMIT ?22;

-- look_finished_batch (batch, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.batch_id = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE j.state WHEN 'succeeded' THEN CAST(?4 AS boolean) WHEN 'dead' THEN CAST(?5 AS boolean)
             ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.owner = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE j.source = ?10 END
  AND CASE WHEN CAST(?11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?11 ->> '$', ?12 ->> '$')) END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?13 END
  AND CASE WHEN CAST(?14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?14 END
  AND CASE WHEN CAST(?1 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?1 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
ORDER BY j.id DESC LIMIT ?22;

-- look_finished_owner (owner, id, low, succeeded, dead, cancelled, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.owner = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE j.state WHEN 'succeeded' THEN CAST(?4 AS boolean) WHEN 'dead' THEN CAST(?5 AS boolean)
             ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?1 AS text) IS NULL THEN TRUE ELSE j.owner = ?1 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.source = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?10 ->> '$', ?11 ->> '$')) END
  AND CASE WHEN CAST(?12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?12 END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?13 END
  AND CASE WHEN CAST(?14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
ORDER BY j.id DESC LIMIT ?22;

-- look_finished_owner_trouble (owner, trouble, id, low, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j INDEXED BY rowlock_jobs_finished_owner_trouble
WHERE j.owner = ?1 AND j.state = ?2 AND j.state <> 'succeeded' AND j.id < ?3 AND j.id >= ?4 AND CASE WHEN CAST(?5 AS text) IS NULL THEN TRUE ELSE j.task = ?5 END
  AND CASE WHEN CAST(?6 AS text) IS NULL THEN TRUE ELSE j.queue = ?6 END
  AND CASE WHEN CAST(?1 AS text) IS NULL THEN TRUE ELSE j.owner = ?1 END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.source = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?8 ->> '$', ?9 ->> '$')) END
  AND CASE WHEN CAST(?10 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?10 END
  AND CASE WHEN CAST(?11 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?11 END
  AND CASE WHEN CAST(?12 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?12 END
  AND CASE WHEN CAST(?13 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?13 END
  AND CASE WHEN CAST(?14 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?14 END
  AND CASE WHEN CAST(?15 AS text) IS NULL THEN TRUE ELSE j.error_code = ?15 END
  AND CASE WHEN CAST(?16 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?17) > 0 OR instr(j.args, ?18) > 0) END
  AND CASE WHEN CAST(?19 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?19 END
ORDER BY j.id DESC LIMIT ?20;

-- look_finished_parent (parent, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.parent_id = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE j.state WHEN 'succeeded' THEN CAST(?4 AS boolean) WHEN 'dead' THEN CAST(?5 AS boolean)
             ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.owner = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE j.source = ?10 END
  AND CASE WHEN CAST(?11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?11 ->> '$', ?12 ->> '$')) END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?13 END
  AND CASE WHEN CAST(?14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?15 END
  AND CASE WHEN CAST(?1 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?1 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
ORDER BY j.id DESC LIMIT ?22;

-- look_finished_schedule (schedule, id, low, succeeded, dead, cancelled, task, queue, owner, source, tag, tag_text, since, until, batch, parent, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.schedule_id = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE j.state WHEN 'succeeded' THEN CAST(?4 AS boolean) WHEN 'dead' THEN CAST(?5 AS boolean)
             ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.owner = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE j.source = ?10 END
  AND CASE WHEN CAST(?11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?11 ->> '$', ?12 ->> '$')) END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?13 END
  AND CASE WHEN CAST(?14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?15 END
  AND CASE WHEN CAST(?16 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?16 END
  AND CASE WHEN CAST(?1 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?1 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
ORDER BY j.id DESC LIMIT ?22;

-- look_finished_trouble (trouble, id, low, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_finished j
WHERE j.state = ?1 AND j.state <> 'succeeded' AND j.id < ?2 AND j.id >= ?3 AND CASE WHEN CAST(?4 AS text) IS NULL THEN TRUE ELSE j.task = ?4 END
  AND CASE WHEN CAST(?5 AS text) IS NULL THEN TRUE ELSE j.queue = ?5 END
  AND CASE WHEN CAST(?6 AS text) IS NULL THEN TRUE ELSE j.owner = ?6 END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.source = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?8 ->> '$', ?9 ->> '$')) END
  AND CASE WHEN CAST(?10 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?10 END
  AND CASE WHEN CAST(?11 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?11 END
  AND CASE WHEN CAST(?12 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?12 END
  AND CASE WHEN CAST(?13 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?13 END
  AND CASE WHEN CAST(?14 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?14 END
  AND CASE WHEN CAST(?15 AS text) IS NULL THEN TRUE ELSE j.error_code = ?15 END
  AND CASE WHEN CAST(?16 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?17) > 0 OR instr(j.args, ?18) > 0) END
  AND CASE WHEN CAST(?19 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?19 END
ORDER BY j.id DESC LIMIT ?20;

-- look_live (id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_live j
WHERE j.id < ?1 AND j.id >= ?2 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST(?3 AS boolean)
     WHEN j.state = 'running' THEN CAST(?4 AS boolean)
     ELSE CAST(?5 AS boolean) END
  AND CASE WHEN CAST(?6 AS text) IS NULL THEN TRUE ELSE j.task = ?6 END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.queue = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.owner = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.source = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?10 ->> '$', ?11 ->> '$')) END
  AND CASE WHEN CAST(?12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?12 END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?13 END
  AND CASE WHEN CAST(?14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
ORDER BY j.id DESC LIMIT ?22;

-- look_live_batch (batch, id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_live j
WHERE j.batch_id = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST(?4 AS boolean)
     WHEN j.state = 'running' THEN CAST(?5 AS boolean)
     ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.owner = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE j.source = ?10 END
  AND CASE WHEN CAST(?11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?11 ->> '$', ?12 ->> '$')) END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?13 END
  AND CASE WHEN CAST(?14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?14 END
  AND CASE WHEN CAST(?1 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?1 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
ORDER BY j.id DESC LIMIT ?22;

-- look_live_owner (owner, id, low, queued, running, retryable, task, queue, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_live j
WHERE j.owner = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST(?4 AS boolean)
     WHEN j.state = 'running' THEN CAST(?5 AS boolean)
     ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?1 AS text) IS NULL THEN TRUE ELSE j.owner = ?1 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.source = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?10 ->> '$', ?11 ->> '$')) END
  AND CASE WHEN CAST(?12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?12 END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?13 END
  AND CASE WHEN CAST(?14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
ORDER BY j.id DESC LIMIT ?22;

-- look_live_parent (parent, id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_live j
WHERE j.parent_id = ?1 AND j.id < ?2 AND j.id >= ?3 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST(?4 AS boolean)
     WHEN j.state = 'running' THEN CAST(?5 AS boolean)
     ELSE CAST(?6 AS boolean) END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.task = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.queue = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.owner = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE j.source = ?10 END
  AND CASE WHEN CAST(?11 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?11 ->> '$', ?12 ->> '$')) END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?13 END
  AND CASE WHEN CAST(?14 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?15 END
  AND CASE WHEN CAST(?1 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?1 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
ORDER BY j.id DESC LIMIT ?22;

-- look_live_running (id, low, queued, running, retryable, task, queue, owner, source, tag, tag_text, since, until, batch, parent, schedule, error_code, attempt, text, text_ascii, unchanged_since, n)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_live j
WHERE j.state = 'running' AND j.id < ?1 AND j.id >= ?2 AND CASE WHEN j.state = 'queued' OR coalesce(j.published = 'unread', FALSE) THEN CAST(?3 AS boolean)
     WHEN j.state = 'running' THEN CAST(?4 AS boolean)
     ELSE CAST(?5 AS boolean) END
  AND CASE WHEN CAST(?6 AS text) IS NULL THEN TRUE ELSE j.task = ?6 END
  AND CASE WHEN CAST(?7 AS text) IS NULL THEN TRUE ELSE j.queue = ?7 END
  AND CASE WHEN CAST(?8 AS text) IS NULL THEN TRUE ELSE j.owner = ?8 END
  AND CASE WHEN CAST(?9 AS text) IS NULL THEN TRUE ELSE j.source = ?9 END
  AND CASE WHEN CAST(?10 AS text) IS NULL THEN TRUE ELSE EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (?10 ->> '$', ?11 ->> '$')) END
  AND CASE WHEN CAST(?12 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= ?12 END
  AND CASE WHEN CAST(?13 AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < ?13 END
  AND CASE WHEN CAST(?14 AS uuid) IS NULL THEN TRUE ELSE j.batch_id = ?14 END
  AND CASE WHEN CAST(?15 AS uuid) IS NULL THEN TRUE ELSE j.parent_id = ?15 END
  AND CASE WHEN CAST(?16 AS text) IS NULL THEN TRUE ELSE j.schedule_id = ?16 END
  AND CASE WHEN CAST(?17 AS text) IS NULL THEN TRUE ELSE j.error_code = ?17 END
  AND CASE WHEN CAST(?18 AS integer) IS NULL THEN TRUE ELSE j.attempt >= ?18 END
  AND CASE WHEN CAST(?19 AS text) IS NULL THEN TRUE ELSE (instr(j.args, ?19) > 0 OR instr(j.args, ?20) > 0) END
  AND CASE WHEN CAST(?21 AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= ?21 END
ORDER BY j.id DESC LIMIT ?22;

-- look_owner (owner, id, low, n)
SELECT CAST(u.id AS text) AS id
FROM (SELECT l.id
      FROM (SELECT j.id FROM rowlock_jobs_live j
            WHERE j.owner = ?1 AND j.id < ?2 AND j.id >= ?3
            ORDER BY j.id DESC LIMIT ?4) l
      UNION ALL
      SELECT f.id
      FROM (SELECT j.id FROM rowlock_jobs_finished j
            WHERE j.owner = ?1 AND j.id < ?2 AND j.id >= ?3
            ORDER BY j.id DESC LIMIT ?4) f) u
ORDER BY u.id DESC LIMIT ?4;

-- make_batch (batch_id, name, owner, on_end, parent_id, now)
INSERT INTO rowlock_batches (id, name, owner, on_end, parent_id, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- make_sources (now, made)
INSERT INTO rowlock_sources (name, created_at)
SELECT made.name, ?1 FROM (SELECT value ->> 0 AS name FROM json_each(?2)) AS made WHERE TRUE
ON CONFLICT (name) DO NOTHING;

-- mark_app_migration (app, number, name, now)
INSERT INTO rowlock_app_migrations (app, number, name, applied_at) VALUES (?1, ?2, ?3, ?4);

-- move_on (now, moved)
UPDATE rowlock_schedules
SET next_tick = moved.next_tick,
    last_tick = coalesce(moved.last_tick, rowlock_schedules.last_tick),
    last_job = coalesce(moved.last_job, rowlock_schedules.last_job),
    problem = moved.problem, updated_at = ?1
FROM (SELECT value ->> 0 AS id, value ->> 1 AS next_tick, value ->> 2 AS last_tick, value ->> 3 AS last_job, value ->> 4 AS problem FROM json_each(?2)) AS moved
WHERE rowlock_schedules.id = moved.id;

-- never_due (end, n)
SELECT CAST(id AS text) AS id, task FROM rowlock_jobs_live
WHERE NOT ready AND state <> 'running' AND run_after >= ?1
ORDER BY run_after DESC
LIMIT ?2;

-- new_events (id, gaps, numbered, n)
SELECT 0 AS running_from, (SELECT last_id FROM rowlock_deleted_events) AS deleted, 0 AS running_to, id, CAST(job_id AS text) AS job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
result_checksum, error_code, error_message, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, 'unixepoch'), at) AS at
FROM (SELECT 1) LEFT JOIN rowlock_events ON id > ?1 AND ?2 IS NOT NULL AND ?3 IS NOT NULL
ORDER BY id
LIMIT ?4;

-- next_due (now, left_out)
SELECT (next_tick - ?1) AS seconds FROM rowlock_schedules
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL
  AND NOT (zone || ' ' || rule || ' ' || id
     IN (SELECT left_out.zone || ' ' || left_out.rule || ' ' || left_out.id
            FROM (SELECT value ->> 0 AS id, value ->> 1 AS rule, value ->> 2 AS zone FROM json_each(?2)) AS left_out))
ORDER BY next_tick
LIMIT 1;

-- old_attempts (now, ago, finished_at, job_id, attempt, n)
SELECT a.finished_at, a.job_id, a.attempt,
       coalesce((SELECT 1 FROM rowlock_jobs_live j WHERE j.id = a.job_id),
                (SELECT 1 FROM rowlock_jobs_finished j WHERE j.id = a.job_id LIMIT 1)) IS NOT NULL AS has_job
FROM (
    SELECT finished_at, job_id, attempt
    FROM rowlock_attempts
    WHERE finished_at < (?1 + (?2)) AND (finished_at, job_id, attempt) > (?3, ?4, ?5)
    ORDER BY finished_at, job_id, attempt
    LIMIT ?6) a
ORDER BY a.finished_at, a.job_id, a.attempt;

-- old_finished (now, n)
SELECT CAST(f.id AS text) AS id FROM rowlock_jobs_finished f
WHERE f.drop_on < date(?1 + min(max(0, 0), 3155760000), 'unixepoch', '+1 day') AND (SELECT 1 FROM rowlock_set_aside a WHERE a.id = f.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL
ORDER BY f.drop_on
LIMIT ?2;

-- old_keys (now, n)
SELECT scope, key FROM rowlock_job_keys WHERE expires_at <= ?1 LIMIT ?2;

-- oldest_failure (since, skip)
SELECT coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', a.finished_at, 'unixepoch'), a.finished_at) AS at
FROM rowlock_attempts a
WHERE a.finished_at >= ?1 AND a.outcome IN ('failed', 'timed_out', 'lost')
ORDER BY a.finished_at DESC
LIMIT 1 OFFSET ?2;

-- one_aside (job_id)
SELECT CAST(a.id AS text) AS id, a.doing, a.error, a.times, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', a.since, 'unixepoch'), a.since) AS since, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', a.again_at, 'unixepoch'), a.again_at) AS again_at
FROM rowlock_set_aside a
WHERE a.id = ?1;

-- open_batches (batch_id, now, n)
SELECT CAST(id AS text) AS id FROM rowlock_batches b
WHERE finished_at IS NULL AND id > ?1
  AND (SELECT 1 FROM rowlock_set_aside a WHERE a.id = b.id AND coalesce(a.again_at > ?2, TRUE)) IS NULL
ORDER BY b.id
LIMIT ?3;

-- outbox_add (now, patience, picked)
INSERT INTO rowlock_outbox (kind, job_id, token, take_at)
SELECT 'request', picked.id, picked.token, (?1 + (?2))
FROM (SELECT value ->> 0 AS id, value ->> 1 AS token FROM json_each(?3)) AS picked;

-- outbox_again (now, again)
UPDATE rowlock_outbox SET sent_at = NULL, entry = NULL, take_at = ?1
WHERE id IN (SELECT CAST(again.id AS bigint) FROM (SELECT value ->> 0 AS id FROM json_each(?2)) AS again);

-- outbox_cancel (now, asked)
INSERT INTO rowlock_outbox (kind, job_id, take_at)
SELECT 'cancel', asked.id, ?1 FROM (SELECT value ->> 0 AS id FROM json_each(?2)) AS asked;

-- outbox_heard (heard)
DELETE FROM rowlock_outbox
WHERE kind = 'request' AND job_id IN (SELECT heard.job_id FROM (SELECT value ->> 0 AS job_id FROM json_each(?1)) AS heard);

-- outbox_overdue (now, ago, n)
SELECT count(*) AS number FROM (
    SELECT 1 FROM rowlock_outbox WHERE sent_at IS NULL AND take_at < (?1 + (?2)) ORDER BY take_at LIMIT ?3) overdue;

-- outbox_quiet (now, ago, id, n)
SELECT o.id, CAST(o.job_id AS text) AS job_id, CAST(o.token AS text) AS token, o.entry,
       -(o.sent_at - ?1) AS age,
       (SELECT 1 FROM rowlock_jobs_live j
        WHERE j.id = o.job_id AND j.lease_token = o.token AND coalesce(j.published = 'unread', FALSE)) IS NOT NULL AS waits
FROM rowlock_outbox o
WHERE o.kind = 'request' AND o.sent_at < (?1 + (?2)) AND o.id > CAST(?3 AS bigint)
ORDER BY o.id
LIMIT ?4;

-- outbox_remove (gone)
DELETE FROM rowlock_outbox WHERE id IN (SELECT CAST(gone.id AS bigint) FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS gone);

-- outbox_sent (now, sent)
UPDATE rowlock_outbox SET sent_at = ?1, entry = sent.entry
FROM (SELECT value ->> 0 AS job_id, value ->> 1 AS token, value ->> 2 AS entry FROM json_each(?2)) AS sent
WHERE rowlock_outbox.job_id = sent.job_id AND rowlock_outbox.token = sent.token;

-- outbox_take (now, patience, n)
UPDATE rowlock_outbox SET take_at = (?1 + (?2))
WHERE id IN (
    SELECT id FROM rowlock_outbox
    WHERE sent_at IS NULL AND take_at <= ?1
    ORDER BY id
    LIMIT ?3)
RETURNING id, kind, CAST(job_id AS text) AS job_id, CAST(token AS text) AS token;

-- outbox_unread
SELECT count(*) AS number FROM rowlock_outbox WHERE kind = 'request';

-- outbox_wanted (asked)
SELECT CAST(j.id AS text) AS id, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', j.created_at, 'unixepoch'), j.created_at) AS created_at
FROM (SELECT value ->> 0 AS job_id, value ->> 1 AS token FROM json_each(?1)) AS asked
CROSS JOIN rowlock_jobs_live j
WHERE j.id = asked.job_id AND j.lease_token = asked.token AND j.state = 'running' AND coalesce(j.published = 'unread', FALSE);

-- overdue (now, n)
SELECT id FROM rowlock_jobs_live j
WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at <= ?1 AND (SELECT 1 FROM rowlock_set_aside a WHERE a.id = j.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL
ORDER BY expires_at
LIMIT ?2;

-- panel_marks (now, most, n)
SELECT 'audit' AS panel, CAST(coalesce((SELECT max(id) FROM rowlock_audit), 0) AS text) AS mark
UNION ALL
SELECT 'failures', CAST((SELECT max(finished_at) FROM rowlock_attempts) AS text)
UNION ALL
SELECT 'logs', CAST((SELECT max(at) FROM rowlock_job_logs) AS text)
UNION ALL
SELECT 'workers', count(*) || ':' || sum(running) || ':' || sum(CASE WHEN expires_at > ?1 THEN 1 ELSE 0 END) || ':'
       || max(CAST(started_at AS text))
FROM rowlock_workers
UNION ALL
SELECT 'schedules', count(*) || ':' || count(paused_at) || ':' || count(retired_at) || ':' || count(problem) || ':'
       || coalesce(max(CAST(last_tick AS text)), '') || ':' || coalesce(max(CAST(last_job AS text)), '')
FROM rowlock_schedules
UNION ALL
SELECT 'sources', count(*) || ':' || count(paused_until) || ':' || count(opened_at) || ':'
       || coalesce(max(CAST(last_failure_at AS text)), '') || ':' || coalesce(sum(coalesce(concurrency, 0)), 0)
FROM rowlock_sources
UNION ALL
SELECT 'batches', (SELECT CAST(id AS text) FROM rowlock_batches ORDER BY id DESC LIMIT 1) || ':'
       || (SELECT count(*) FROM rowlock_batches WHERE finished_at IS NULL)
UNION ALL
SELECT 'queues', count(*) || ':' || coalesce(max(CAST(paused_at AS text)), '')
FROM rowlock_queues WHERE paused_at IS NOT NULL
UNION ALL
SELECT 'jobs',
       (SELECT count(*) FROM (SELECT 1 FROM rowlock_jobs_live LIMIT ?2) live) || ':'
       || (SELECT count(*) FROM (
               SELECT 1 FROM rowlock_jobs_live j WHERE NOT j.ready AND j.state <> 'running' LIMIT ?2) waiting) || ':'
       || (SELECT count(*) || ':' || coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM rowlock_jobs_live j WHERE j.state = 'running' LIMIT ?2) running) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM rowlock_jobs_live j ORDER BY j.id DESC LIMIT ?3) newest) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM rowlock_jobs_finished j ORDER BY j.rowid DESC LIMIT ?3) finished) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM rowlock_jobs_finished j WHERE j.state = 'dead' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT ?3) dead) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM rowlock_jobs_finished j WHERE j.state = 'cancelled' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT ?3) cancelled);

-- pause_queue (name, now)
INSERT INTO rowlock_queues (name, paused_at) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(rowlock_queues.paused_at, excluded.paused_at);

-- pause_schedule (now, id)
UPDATE rowlock_schedules SET paused_at = coalesce(paused_at, ?1), updated_at = ?1 WHERE id = ?2 RETURNING id;

-- pause_source (seconds, now, whole, name)
UPDATE rowlock_sources
SET enabled = CASE WHEN CAST(?1 AS double precision) IS NULL THEN FALSE ELSE enabled END,
    paused_until = CASE WHEN CAST(?1 AS double precision) IS NULL THEN paused_until
                        ELSE max(coalesce(paused_until, (?2 + (?1))), (?2 + (?1))) END,
    paused_at = CASE WHEN CAST(?1 AS double precision) IS NULL OR paused_until >= (?2 + (?1)) THEN paused_at
                     ELSE ?2 END,
    class_enabled = CASE WHEN ?3 = 1 AND CAST(?1 AS double precision) IS NULL THEN FALSE
                         ELSE class_enabled END,
    class_paused_until = CASE
        WHEN ?3 = 0 OR CAST(?1 AS double precision) IS NULL THEN class_paused_until
        ELSE max(coalesce(class_paused_until, (?2 + (?1))), (?2 + (?1))) END,
    class_paused_at = CASE
        WHEN ?3 = 0 OR CAST(?1 AS double precision) IS NULL OR class_paused_until >= (?2 + (?1))
        THEN class_paused_at ELSE ?2 END
WHERE name = ?4
RETURNING name;

-- paused_queues
SELECT name, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', paused_at, 'unixepoch'), paused_at) AS paused_at FROM rowlock_queues WHERE paused_at IS NOT NULL ORDER BY name;

-- pauses (now, source, class_name)
SELECT name, enabled, CASE WHEN until > ?1 THEN coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', until, 'unixepoch'), until) END AS until
FROM (
    SELECT name, enabled, paused_until AS until FROM rowlock_sources WHERE name = ?2
    UNION ALL
    SELECT name, class_enabled, class_paused_until FROM rowlock_sources WHERE name = ?3 AND name <> ?2) paused
WHERE NOT enabled OR until > ?1
ORDER BY name DESC;

-- peek (lane, now)
SELECT EXISTS (
    SELECT 1
    FROM (SELECT value ->> 0 AS queue, value ->> 1 AS task FROM json_each(?1)) AS lane
    WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)
      AND coalesce(
          (SELECT j.id FROM rowlock_jobs_live j
           WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
             AND (j.expires_at IS NULL OR j.expires_at > ?2)
           ORDER BY j.priority, j.id LIMIT 1),
          (SELECT j.id FROM rowlock_jobs_live j
           WHERE j.ready AND j.source IS NOT NULL AND j.queue = lane.queue AND j.task = lane.task
             AND (j.expires_at IS NULL OR j.expires_at > ?2)
           ORDER BY j.priority, j.source, j.id LIMIT 1)) IS NOT NULL) AS ready, (
    SELECT (run_after - ?2) FROM rowlock_jobs_live j
    WHERE NOT ready AND state <> 'running' AND (SELECT 1 FROM rowlock_set_aside a WHERE a.id = j.id AND coalesce(a.again_at > ?2, TRUE)) IS NULL
    ORDER BY run_after
    LIMIT 1) AS seconds;

-- progress (now, reported)
UPDATE rowlock_jobs_live
SET progress = CASE WHEN reported.progress >= coalesce(rowlock_jobs_live.progress, 0) THEN reported.progress
                    ELSE rowlock_jobs_live.progress END,
    phase = reported.phase, message = reported.message, updated_at = ?1
FROM (SELECT value ->> 0 AS id, value ->> 1 AS token, value ->> 2 AS progress, value ->> 3 AS phase, value ->> 4 AS message FROM json_each(?2)) AS reported
WHERE rowlock_jobs_live.id = reported.id AND lease_token = reported.token AND +state = 'running'
RETURNING rowlock_jobs_live.id;

-- promote (now, n)
UPDATE rowlock_jobs_live SET ready = TRUE, updated_at = ?1
WHERE id IN (SELECT id FROM rowlock_jobs_live j
        WHERE NOT ready AND state <> 'running' AND run_after <= ?1 AND (SELECT 1 FROM rowlock_set_aside a WHERE a.id = j.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL
        ORDER BY run_after
        LIMIT ?2);

-- promote_these (asked, now)
UPDATE rowlock_jobs_live SET ready = TRUE
WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked) AND NOT ready AND state <> 'running' AND run_after <= ?2;

-- promoted (now)
SELECT changes() AS promoted, (
    SELECT (run_after - ?1) FROM rowlock_jobs_live
    WHERE NOT ready AND state <> 'running' AND run_after > ?1
    ORDER BY run_after
    LIMIT 1) AS seconds;

-- prune_attempts (gone)
DELETE FROM rowlock_attempts
WHERE (job_id, attempt) IN (SELECT gone.job_id, gone.attempt FROM (SELECT value ->> 0 AS job_id, value ->> 1 AS attempt FROM json_each(?1)) AS gone)
RETURNING attempt;

-- prune_audit (now, ago, n)
DELETE FROM rowlock_audit
WHERE id IN (
    SELECT id FROM rowlock_audit
    WHERE at < (?1 + (?2))
    ORDER BY id
    LIMIT ?3)
RETURNING 1 AS pruned;

-- prune_batches (now, ago, n)
DELETE FROM rowlock_batches
WHERE id IN (
    SELECT id FROM rowlock_batches
    WHERE finished_at < (?1 + (?2))
    ORDER BY finished_at
    LIMIT ?3)
RETURNING 1 AS pruned;

-- prune_events (now, ago, n)
DELETE FROM rowlock_events
WHERE id IN (
    SELECT id FROM rowlock_events
    WHERE at < (?1 + (coalesce(CAST(?2 AS double precision), -3600))) AND id < (SELECT max(id) FROM rowlock_events)
    ORDER BY id
    LIMIT ?3)
RETURNING 1 AS pruned;

-- prune_finished (now, n)
DELETE FROM rowlock_jobs_finished
WHERE rowid IN (
    SELECT f.rowid FROM rowlock_jobs_finished f
    WHERE f.drop_on < date(?1 + min(max(0, 0), 3155760000), 'unixepoch', '+1 day') AND (SELECT 1 FROM rowlock_set_aside a WHERE a.id = f.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL
    ORDER BY f.drop_on
    LIMIT ?2)
RETURNING id;

-- prune_keys (gone, now)
DELETE FROM rowlock_job_keys
WHERE (scope, key) IN (SELECT gone.scope, gone.key FROM (SELECT value ->> 0 AS scope, value ->> 1 AS key FROM json_each(?1)) AS gone) AND expires_at <= ?2
RETURNING key;

-- prune_logs (now, ago, n)
DELETE FROM rowlock_job_logs
WHERE (job_id, seq) IN (
    SELECT job_id, seq FROM rowlock_job_logs
    WHERE at < (?1 + (?2))
    ORDER BY at
    LIMIT ?3)
RETURNING 1 AS pruned;

-- prune_previews (now, n)
DELETE FROM rowlock_previews
WHERE token_hash IN (
    SELECT token_hash FROM rowlock_previews
    WHERE expires_at <= ?1
    ORDER BY expires_at
    LIMIT ?2)
RETURNING 1 AS pruned;

-- prune_requests (now, n)
DELETE FROM rowlock_requests
WHERE (owner, key) IN (
    SELECT owner, key FROM rowlock_requests
    WHERE expires_at <= ?1
    LIMIT ?2)
RETURNING 1 AS pruned;

-- prune_sources (now, ago, n)
DELETE FROM rowlock_sources
WHERE name IN (
    SELECT s.name FROM rowlock_sources s LEFT JOIN rowlock_sources c ON c.name = substr(s.name, 1, instr(s.name || ':', ':') - 1)
    WHERE s.name LIKE '%:%' AND s.set_by IS NULL AND s.enabled
      AND s.refusals = 0 AND (s.paused_until IS NULL OR s.paused_until <= ?1)
      AND (s.opened_at IS NULL OR s.paused_until IS NULL OR s.paused_until < (?1 + (?2)))
      AND coalesce(s.last_success_at, s.last_failure_at, s.created_at) < (?1 + (?2))
      AND coalesce(s.last_failure_at, s.last_success_at, s.created_at) < (?1 + (?2))
      AND coalesce(s.tokens_at, s.created_at) < (?1 + (?2))
      AND (s.tokens_at IS NULL OR c.rate_limit_per_minute IS NULL
           OR -(s.tokens_at - ?1) * c.rate_limit_per_minute / 60
              >= coalesce(c.burst, max(1, c.rate_limit_per_minute / 60)))
    LIMIT ?3)
RETURNING name;

-- prune_these (asked, now)
DELETE FROM rowlock_jobs_finished WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked) AND drop_on < date(?2 + min(max(0, 0), 3155760000), 'unixepoch', '+1 day') RETURNING id;

-- prune_ticks (now, ago, n)
DELETE FROM rowlock_ticks
WHERE (schedule_id, tick) IN (
    SELECT schedule_id, tick FROM rowlock_ticks
    WHERE fired_at < (?1 + (?2))
    ORDER BY fired_at
    LIMIT ?3)
RETURNING 1 AS pruned;

-- prune_tokens (now, n)
DELETE FROM rowlock_tokens
WHERE id IN (
    SELECT id FROM rowlock_tokens
    WHERE expires_at < CASE WHEN uses IS NULL THEN (?1 + (-86400)) ELSE ?1 END
    ORDER BY expires_at
    LIMIT ?2)
RETURNING 1 AS pruned;

-- prune_webhooks (now, n)
DELETE FROM rowlock_webhooks
WHERE job_id IN (
    SELECT w.job_id FROM rowlock_webhooks w
    WHERE w.drop_on < date(?1 + min(max(0, 0), 3155760000), 'unixepoch', '+1 day') AND NOT EXISTS (SELECT 1 FROM rowlock_jobs_live j WHERE j.id = w.job_id)
      AND NOT EXISTS (
          SELECT 1 FROM rowlock_webhook_deliveries d JOIN rowlock_jobs_live j ON j.id = d.delivery_id WHERE d.job_id = w.job_id)
    LIMIT ?2)
RETURNING job_id;

-- put_aside (job_id, doing, error, now, again)
INSERT INTO rowlock_set_aside (id, doing, error, since, again_at)
VALUES (?1, ?2, ?3, ?4, (?4 + (?5)))
ON CONFLICT (id) DO UPDATE
SET doing = excluded.doing, error = excluded.error, again_at = excluded.again_at, times = rowlock_set_aside.times + 1
RETURNING times;

-- put_leases_right (now, n)
UPDATE rowlock_jobs_live
SET lease_expires_at = (?1 + ((lease_expires_at - ?1) - (heartbeat_at - ?1))), heartbeat_at = ?1,
    locked_at = CASE WHEN locked_at > ?1 THEN ?1 ELSE locked_at END,
    started_at = CASE WHEN started_at > ?1 THEN ?1 ELSE started_at END
WHERE id IN (
    SELECT j.id FROM rowlock_jobs_live j
    WHERE j.state = 'running' AND j.heartbeat_at > (?1 + (1))
    ORDER BY j.id
    LIMIT ?2)
RETURNING id;

-- put_right (now, healed)
UPDATE rowlock_schedules
SET next_tick = healed.next_tick, updated_at = ?1,
    declared_at = CASE WHEN declared_at > ?1 THEN ?1 ELSE declared_at END,
    writer_started_at = CASE WHEN writer_started_at > ?1 THEN ?1 ELSE writer_started_at END,
    paused_at = CASE WHEN paused_at > ?1 THEN ?1 ELSE paused_at END
FROM (SELECT value ->> 0 AS id, value ->> 1 AS next_tick FROM json_each(?2)) AS healed
WHERE rowlock_schedules.id = healed.id;

-- put_sources_right (now)
UPDATE rowlock_sources
SET tokens_at = CASE WHEN tokens_at > ?1 THEN ?1 ELSE tokens_at END,
    paused_until = CASE WHEN paused_at > ?1
                        THEN (?1 + ((paused_until - ?1) - (paused_at - ?1))) ELSE paused_until END,
    paused_at = CASE WHEN paused_at > ?1 THEN ?1 ELSE paused_at END,
    class_paused_until = CASE
        WHEN class_paused_at > ?1 THEN (?1 + ((class_paused_until - ?1) - (class_paused_at - ?1)))
        ELSE class_paused_until END,
    class_paused_at = CASE WHEN class_paused_at > ?1 THEN ?1 ELSE class_paused_at END,
    opened_at = CASE WHEN opened_at > ?1 THEN ?1 ELSE opened_at END,
    last_success_at = CASE WHEN last_success_at > ?1 THEN ?1 ELSE last_success_at END,
    last_failure_at = CASE WHEN last_failure_at > ?1 THEN ?1 ELSE last_failure_at END,
    refused_at = CASE WHEN refused_at > ?1 THEN ?1 ELSE refused_at END
WHERE name IN (
    SELECT s.name FROM rowlock_sources s
    WHERE s.tokens_at > (?1 + (1)) OR s.paused_at > (?1 + (1)) OR s.class_paused_at > (?1 + (1))
       OR s.opened_at > (?1 + (1)) OR s.last_success_at > (?1 + (1)) OR s.last_failure_at > (?1 + (1))
    ORDER BY s.name)
RETURNING name;

-- put_waiting_right (now, n)
UPDATE rowlock_jobs_live
SET run_after = (?1 + ((run_after - ?1) - (updated_at - ?1))), updated_at = ?1
WHERE id IN (
    SELECT j.id FROM rowlock_jobs_live j
    WHERE NOT j.ready AND j.state <> 'running' AND j.attempt > 0 AND j.updated_at > (?1 + (1))
      AND j.id IN (SELECT due.id FROM (
            SELECT w.id FROM rowlock_jobs_live w
            WHERE NOT w.ready AND w.state <> 'running' AND w.run_after > ?1
            ORDER BY w.run_after
            LIMIT ?2) due)
    ORDER BY j.id)
RETURNING id;

-- read_alerts
SELECT rule, subject, value, text, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', true_since, 'unixepoch'), true_since) AS true_since, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', false_since, 'unixepoch'), false_since) AS false_since,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', fired_at, 'unixepoch'), fired_at) AS fired_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', told_at, 'unixepoch'), told_at) AS told_at, repeats
FROM rowlock_alerts
ORDER BY rule, subject;

-- read_attempts (job_id)
SELECT job_id, attempt, outcome, worker, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', started_at, 'unixepoch'), started_at) AS started_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', finished_at, 'unixepoch'), finished_at) AS finished_at,
       error_code, error_message, traceback
FROM rowlock_attempts
WHERE job_id = ?1
ORDER BY attempt;

-- read_batch (batch_id)
SELECT CAST(b.id AS text) AS id, b.name, b.owner, b.state, b.sealed_at IS NOT NULL AS sealed,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', b.created_at, 'unixepoch'), b.created_at) AS created_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', b.started_at, 'unixepoch'), b.started_at) AS started_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', b.finished_at, 'unixepoch'), b.finished_at) AS finished_at,
       coalesce((SELECT sum(n.total) FROM rowlock_batch_counts n WHERE n.batch_id = b.id), 0) AS total,
       coalesce((SELECT sum(n.processed) FROM rowlock_batch_counts n WHERE n.batch_id = b.id), 0) AS processed,
       coalesce((SELECT sum(n.failed) FROM rowlock_batch_counts n WHERE n.batch_id = b.id), 0) AS failed,
       coalesce((SELECT sum(n.cancelled) FROM rowlock_batch_counts n WHERE n.batch_id = b.id), 0) AS cancelled,
       coalesce((SELECT sum(n.expired) FROM rowlock_batch_counts n WHERE n.batch_id = b.id), 0) AS expired,
       (SELECT n.last_error FROM rowlock_batch_counts n WHERE n.batch_id = b.id AND n.last_error IS NOT NULL
        ORDER BY n.last_error_at DESC LIMIT 1) AS last_error,
       CAST(b.parent_id AS text) AS parent_id, CAST(b.end_job AS text) AS end_job
FROM rowlock_batches b
WHERE b.id = ?1;

-- read_gates (now, named)
SELECT named.source, ?1, coalesce(s.concurrency, c.concurrency), c.total,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute),
       CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END,
       coalesce(s.enabled, TRUE) AND coalesce(c.class_enabled, TRUE),
       (max(coalesce(s.paused_until, c.class_paused_until),
                                coalesce(c.class_paused_until, s.paused_until)) - ?1),
       s.opened_at IS NOT NULL,
       (SELECT 1 FROM rowlock_jobs_live p
        WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running'
          AND (SELECT 1 FROM rowlock_set_aside a
               WHERE a.id = p.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL) IS NOT NULL,
       s.tokens, -(s.tokens_at - ?1), coalesce(s.epoch, 0),
       CASE WHEN coalesce(s.concurrency, c.concurrency) IS NOT NULL THEN (
            SELECT count(*) FROM rowlock_jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL
              AND substr(r.source, 1, instr(r.source || ':', ':') - 1) = +c.name AND r.source = named.source
              AND (SELECT 1 FROM rowlock_set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL) END,
       CASE WHEN c.total IS NOT NULL THEN (
            SELECT count(*) FROM rowlock_jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL AND substr(r.source, 1, instr(r.source || ':', ':') - 1) = +c.name
              AND (SELECT 1 FROM rowlock_set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL) END,
       s.name IS NOT NULL
FROM (SELECT value ->> 0 AS source FROM json_each(?2)) AS named
LEFT JOIN rowlock_sources s ON s.name = named.source
LEFT JOIN rowlock_sources c ON c.name = substr(named.source, 1, instr(named.source || ':', ':') - 1);

-- read_job (job_id)
SELECT j.id, j.task, j.queue, j.state, j.priority, j.args, j.owner, j.source, j.tags, j.batch_id, j.schedule_id, j.tick,
    j.attempt, j.max_attempts, j.releases, j.losses, j.backoff, j.timeout_seconds, j.run_after, j.expires_at,
    j.lease_token, j.locked_by, j.locked_at, j.heartbeat_at, j.lease_expires_at, j.settled_token, j.cancel_requested_at,
    j.progress, j.phase, j.message, j.result, j.result_uri, j.result_checksum, j.error_code, j.error_message,
    j.created_at, j.started_at, j.finished_at, j.updated_at FROM rowlock_jobs j WHERE j.id = ?1;

-- read_jobs (asked)
SELECT j.id, j.task, j.queue, j.state, j.priority, j.args, j.owner, j.source, j.tags, j.batch_id, j.schedule_id, j.tick,
    j.attempt, j.max_attempts, j.releases, j.losses, j.backoff, j.timeout_seconds, j.run_after, j.expires_at,
    j.lease_token, j.locked_by, j.locked_at, j.heartbeat_at, j.lease_expires_at, j.settled_token, j.cancel_requested_at,
    j.progress, j.phase, j.message, j.result, j.result_uri, j.result_checksum, j.error_code, j.error_message,
    j.created_at, j.started_at, j.finished_at, j.updated_at
FROM rowlock_jobs j
WHERE j.id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked)
ORDER BY j.id DESC;

-- read_logs (job_id, after, n)
SELECT seq, attempt, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, 'unixepoch'), at) AS at, level, message
FROM rowlock_job_logs
WHERE job_id = ?1 AND seq > ?2
ORDER BY seq DESC
LIMIT ?3;

-- read_picked (now, picked)
SELECT CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -(run_after - ?1)
FROM rowlock_jobs_live
WHERE id IN (SELECT picked.id FROM (SELECT value ->> 0 AS id FROM json_each(?2)) AS picked) AND state = 'running';

-- ready_ids (lane, id, n)
SELECT CAST(j.id AS text) AS id
FROM rowlock_jobs_live j JOIN (SELECT value ->> 0 AS queue, value ->> 1 AS task FROM json_each(?1)) AS lane ON j.queue = lane.queue AND j.task = lane.task
WHERE j.ready AND j.id > ?2
ORDER BY j.id
LIMIT ?3;

-- record_attempts (now, ended)
INSERT INTO rowlock_attempts (
    job_id, attempt, outcome, worker, started_at, finished_at, error_code, error_message, traceback)
SELECT j.id, j.attempt, ended.outcome, j.locked_by, j.locked_at, ?1, ended.error_code, ended.error_message,
       ended.traceback
FROM (SELECT value ->> 0 AS id, value ->> 1 AS outcome, value ->> 2 AS error_code, value ->> 3 AS error_message, value ->> 4 AS traceback FROM json_each(?2)) AS ended
CROSS JOIN rowlock_jobs_live j
WHERE j.id = ended.id AND j.attempt > 0
ON CONFLICT (job_id, attempt) DO NOTHING;

-- register_dispatcher (id, declares, address, now, lease)
INSERT INTO rowlock_dispatchers (id, declares, bell, started_at, seen_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?4, (?4 + (?5)))
ON CONFLICT (id) DO UPDATE
SET declares = excluded.declares, seen_at = excluded.seen_at, expires_at = excluded.expires_at
RETURNING started_at;

-- register_worker (id, hostname, pid, version, queues, tasks, pool_size, address, now, lease)
INSERT INTO rowlock_workers (
    id, hostname, pid, version, queues, tasks, pool_size, running, idle, bell, started_at, seen_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, FALSE, ?8, ?9, ?9, (?9 + (?10)))
ON CONFLICT (id) DO UPDATE
SET seen_at = excluded.seen_at, expires_at = excluded.expires_at, queues = excluded.queues, tasks = excluded.tasks;

-- relative (job_id)
SELECT CAST(j.id AS text) AS id, j.task, CASE WHEN coalesce(j.published = 'unread', FALSE) THEN 'queued' ELSE j.state END AS state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock_jobs_live j
WHERE j.id = ?1
UNION ALL
SELECT CAST(j.id AS text) AS id, j.task, j.state, CAST(j.parent_id AS text) AS parent_id
FROM rowlock_jobs_finished j
WHERE j.id = ?1;

-- release_keys (gone, state)
DELETE FROM rowlock_job_keys
WHERE job_id IN (SELECT gone.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS gone)
  AND CASE mode WHEN 'while_queued' THEN TRUE WHEN 'until_done' THEN ?2 <> 'running'
                WHEN 'forever' THEN ?2 NOT IN ('running', 'succeeded') ELSE FALSE END;

-- remote_cancels (n)
SELECT CAST(id AS text) AS id FROM rowlock_jobs_live
WHERE state = 'running' AND published IS NOT NULL AND cancel_requested_at IS NOT NULL
ORDER BY id
LIMIT ?1;

-- remote_jobs (now, asked)
SELECT CAST(id AS text), task, queue, priority, args, owner, source, source_epoch, CAST(batch_id AS text), unique_mode,
       attempt, max_attempts, releases, losses, convictions,
       losses_in_row, probation, sigterms_in_row, disconnects_in_row, backoff, timeout_seconds,
       on_success, on_dead, on_lost, cancel_requested_at IS NOT NULL, traceparent, -(run_after - ?1), CAST(lease_token AS text), locked_by
FROM rowlock_jobs_live
WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?2)) AS asked) AND state = 'running' AND published IS NOT NULL;

-- remove_dispatcher (id, now)
DELETE FROM rowlock_dispatchers WHERE id = ?1 OR expires_at < (?2 + (-86400));

-- remove_preview (token_hash)
DELETE FROM rowlock_previews WHERE token_hash = ?1;

-- remove_schedule (id)
DELETE FROM rowlock_schedules WHERE id = ?1 RETURNING id;

-- remove_worker (id)
DELETE FROM rowlock_workers WHERE id = ?1;

-- reopen_batches (now, asked)
UPDATE rowlock_batches
SET state = 'running', finished_at = NULL, reopened_at = ?1,
    cancelled_at = CASE
        WHEN (SELECT sum(n.cancelled) FROM rowlock_batch_counts n WHERE n.batch_id = rowlock_batches.id) > 0
        THEN cancelled_at END
WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?2)) AS asked) AND finished_at IS NOT NULL;

-- request_cancel (now, asked)
UPDATE rowlock_jobs_live SET cancel_requested_at = coalesce(cancel_requested_at, ?1), updated_at = ?1
WHERE state = 'running' AND id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?2)) AS asked);

-- requeue (now, back)
UPDATE rowlock_jobs_live
SET state = back.state, ready = (back.delay <= 0), run_after = (?1 + (back.delay)),
    releases = releases + back.released, losses = losses + back.lost, convictions = convictions + back.convicted,
    losses_in_row = back.losses_in_row, probation = back.probation, sigterms_in_row = back.sigterms_in_row,
    disconnects_in_row = back.disconnects_in_row,
    error_code = back.error_code, error_message = back.error_message,
    settled_token = CASE WHEN back.by_holder = 1 THEN lease_token ELSE settled_token END,
    lease_token = NULL, locked_by = NULL, locked_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL,
    published = NULL, progress = NULL, phase = NULL, message = NULL, result_uri = NULL, result_checksum = NULL, updated_at = ?1
FROM (SELECT value ->> 0 AS id, value ->> 1 AS state, value ->> 2 AS delay, value ->> 3 AS released, value ->> 4 AS lost, value ->> 5 AS convicted, value ->> 6 AS losses_in_row, value ->> 7 AS probation, value ->> 8 AS sigterms_in_row, value ->> 9 AS disconnects_in_row, value ->> 10 AS error_code, value ->> 11 AS error_message, value ->> 12 AS by_holder FROM json_each(?2)) AS back
WHERE rowlock_jobs_live.id = back.id;

-- resume_queue (name)
UPDATE rowlock_queues SET paused_at = NULL WHERE name = ?1 AND paused_at IS NOT NULL RETURNING name;

-- resume_schedule (next_tick, now, id)
UPDATE rowlock_schedules
SET next_tick = ?1, paused_at = NULL, problem = NULL, updated_at = ?2
WHERE id = ?3
RETURNING id;

-- resume_source (name)
UPDATE rowlock_sources
SET enabled = TRUE, paused_until = NULL, paused_at = NULL, class_enabled = TRUE, class_paused_until = NULL,
    class_paused_at = NULL, opened_at = NULL, opens = 0, failure_streak = 0, refusals = 0, epoch = epoch + 1,
    probe_job = NULL, probe_token = NULL
WHERE name = ?1
RETURNING name;

-- retire_schedules (now, ago, spared)
UPDATE rowlock_schedules SET retired_at = ?1, updated_at = ?1
WHERE origin <> 'runtime' AND retired_at IS NULL AND declared_at < (?1 + (?2))
  AND NOT (id IN (SELECT spared.id FROM (SELECT value ->> 0 AS id FROM json_each(?3)) AS spared))
RETURNING id;

-- revive (tries, now, asked)
INSERT INTO rowlock_jobs_live (
    id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id,
    state, ready, max_attempts, releases, losses, convictions, run_after, settled_token, updated_at)
SELECT j.id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id,
       'queued', TRUE, max(max_attempts, attempt - releases - losses + ?1),
       releases, losses, 0, ?2, settled_token, ?2
FROM rowlock_jobs_finished j
WHERE j.id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?3)) AS asked);

-- revoke_tokens (now, which)
UPDATE rowlock_tokens SET revoked_at = ?1
WHERE revoked_at IS NULL AND uses IS NULL AND (
    CAST(id AS text) = ?2 OR hint = ?2 OR hash = ?2
    OR made_from IN (
        SELECT t.id FROM rowlock_tokens t WHERE CAST(t.id AS text) = ?2 OR t.hint = ?2 OR t.hash = ?2))
RETURNING CAST(id AS text) AS id, hint;

-- run_now (now, asked)
UPDATE rowlock_jobs_live SET run_after = ?1, ready = TRUE, updated_at = ?1
WHERE NOT ready AND state <> 'running' AND id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?2)) AS asked)
RETURNING CAST(id AS text) AS id;

-- running_jobs (now, n)
SELECT CAST(id AS text) AS job_id, queue, task, locked_by AS worker, -(locked_at - ?1) AS seconds,
       -(lease_expires_at - ?1) AS overdue, attempt, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', locked_at, 'unixepoch'), locked_at) AS since, progress, phase
FROM rowlock_jobs_live j
WHERE state = 'running' AND NOT coalesce(j.published = 'unread', FALSE)
ORDER BY locked_at
LIMIT ?2;

-- running_lanes (now)
SELECT queue, coalesce(j.published = 'unread', FALSE) AS unread, count(*) AS number, -(min(locked_at) - ?1) AS longest
FROM rowlock_jobs_live j
WHERE state = 'running' GROUP BY queue, coalesce(j.published = 'unread', FALSE);

-- samples (since, queue, n)
SELECT coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, 'unixepoch'), at) AS at, queue, ready, waiting, running, oldest_seconds
FROM rowlock_queue_samples
WHERE at >= ?1 AND queue <> ''
  AND CASE WHEN CAST(?2 AS text) IS NULL THEN TRUE ELSE queue = ?2 END
ORDER BY rowlock_queue_samples.at DESC
LIMIT ?3;

-- samples_by_hour (since, queue, n)
SELECT coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', hours.at, 'unixepoch'), hours.at) AS at, queue, ready, waiting, running, oldest_seconds
FROM (
    SELECT (CAST(at AS INTEGER) / 3600 * 3600) AS at, queue, max(ready) AS ready, max(waiting) AS waiting, max(running) AS running,
           max(oldest_seconds) AS oldest_seconds
    FROM rowlock_queue_samples
WHERE at >= ?1 AND queue <> ''
  AND CASE WHEN CAST(?2 AS text) IS NULL THEN TRUE ELSE queue = ?2 END
    GROUP BY 1, 2) hours
ORDER BY hours.at DESC
LIMIT ?3;

-- schedule_origins (asked)
SELECT id, origin, retired_at IS NOT NULL AS retired, rule, zone
FROM rowlock_schedules WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked);

-- schedules_at_work (asked)
SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked
WHERE (SELECT 1 FROM rowlock_jobs_live j WHERE j.schedule_id = asked.id LIMIT 1) IS NOT NULL;

-- seal_batch (now, batch_id)
UPDATE rowlock_batches SET sealed_at = coalesce(sealed_at, ?1) WHERE id = ?2 RETURNING CAST(id AS text) AS id;

-- set_by_config (n)
SELECT name FROM rowlock_sources WHERE set_by = 'config' ORDER BY name LIMIT ?1;

-- set_end_job (job_id, batch_id)
UPDATE rowlock_batches SET end_job = ?1 WHERE id = ?2;

-- set_probe (job_id, token, name)
UPDATE rowlock_sources SET probe_job = ?1, probe_token = ?2 WHERE name = ?3;

-- set_result_file (uri, checksum, now, id, token)
UPDATE rowlock_jobs_live
SET result_uri = ?1, result_checksum = ?2, updated_at = ?3
WHERE id = ?4 AND lease_token = ?5 AND state = 'running'
RETURNING id;

-- set_result_files (now, named)
UPDATE rowlock_jobs_live
SET result_uri = named.uri, result_checksum = named.checksum, updated_at = ?1
FROM (SELECT value ->> 0 AS id, value ->> 1 AS token, value ->> 2 AS uri, value ->> 3 AS checksum FROM json_each(?2)) AS named
WHERE rowlock_jobs_live.id = named.id AND lease_token = named.token AND +state = 'running';

-- settled_tokens (asked)
SELECT id, settled_token FROM rowlock_jobs_live WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked)
UNION ALL
SELECT id, settled_token FROM rowlock_jobs_finished WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked);

-- signing_secrets (owner, now)
SELECT secret FROM rowlock_webhook_secrets
WHERE owner = ?1 AND coalesce(expires_at > ?2, TRUE)
ORDER BY created_at DESC, id DESC;

-- slot_bars (n, now, ago)
SELECT * FROM (
    SELECT CAST(j.id AS text) AS job_id, j.task, j.attempt, j.last_worker AS worker, 'succeeded' AS outcome,
           coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', j.started_at, 'unixepoch'), j.started_at) AS began, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', j.finished_at, 'unixepoch'), j.finished_at) AS ended
    FROM (SELECT f.id, f.task, f.attempt, f.last_worker, f.state, f.started_at, f.finished_at
          FROM rowlock_jobs_finished f ORDER BY f.rowid DESC LIMIT ?1) j
    WHERE j.state = 'succeeded' AND j.finished_at > (?2 + (?3)) AND j.last_worker IS NOT NULL) done
UNION ALL
SELECT * FROM (
    SELECT CAST(a.job_id AS text) AS job_id, coalesce(a.task, '') AS task, a.attempt, a.worker, a.outcome,
           coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', a.started_at, 'unixepoch'), a.started_at) AS began, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', a.finished_at, 'unixepoch'), a.finished_at) AS ended
    FROM rowlock_attempts a
    WHERE a.finished_at > (?2 + (?3)) AND a.worker IS NOT NULL AND a.started_at IS NOT NULL
    ORDER BY a.finished_at DESC LIMIT ?1) others
UNION ALL
SELECT CAST(j.id AS text), j.task, j.attempt, j.locked_by, 'running', coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', j.locked_at, 'unixepoch'), j.locked_at), NULL
FROM rowlock_jobs_live j
WHERE j.state = 'running' AND NOT coalesce(j.published = 'unread', FALSE);

-- source_classes
SELECT name FROM rowlock_sources WHERE name NOT LIKE '%:%' ORDER BY name LIMIT 50;

-- source_known (name, class_name)
SELECT 1 AS known
WHERE EXISTS (SELECT 1 FROM rowlock_sources WHERE name = ?1 OR name = ?2)
   OR EXISTS (SELECT 1 FROM rowlock_jobs_live WHERE source = ?1 OR substr(source, 1, instr(source || ':', ':') - 1) = ?1);

-- source_levels (now, n)
SELECT s.name,
       s.enabled AND coalesce(c.class_enabled, TRUE) AS enabled,
       coalesce(s.paused_until > ?1, FALSE) OR coalesce(c.class_paused_until > ?1, FALSE) AS paused,
       s.opened_at IS NOT NULL AS opened,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate,
           CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END AS burst,
           s.tokens, -(s.tokens_at - ?1) AS elapsed
FROM rowlock_sources s LEFT JOIN rowlock_sources c ON c.name = substr(s.name, 1, instr(s.name || ':', ':') - 1)
WHERE s.name LIKE '%:%'
ORDER BY CASE WHEN s.set_by IS NULL THEN 1 ELSE 0 END, s.name
LIMIT ?2;

-- source_running (class_name, source, n)
SELECT CAST(r.id AS text) AS id, r.locked_by FROM rowlock_jobs_live r
WHERE r.state = 'running' AND r.source IS NOT NULL AND substr(r.source, 1, instr(r.source || ':', ':') - 1) = ?1
  AND CASE WHEN CAST(?2 AS text) IS NULL THEN TRUE ELSE r.source = ?2 END
ORDER BY r.id
LIMIT ?3;

-- source_strip (n, now, ago, asked)
SELECT source, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, 'unixepoch'), at) AS at, succeeded, failed FROM (
    SELECT j.source AS source, (CAST(j.finished_at AS INTEGER) / 60 * 60) AS at, count(*) AS succeeded, 0 AS failed
    FROM (
        SELECT f.source, f.state, f.finished_at FROM rowlock_jobs_finished f ORDER BY f.rowid DESC LIMIT ?1) j
    WHERE j.state = 'succeeded' AND j.finished_at > (?2 + (?3))
      AND j.source IN (SELECT asked.name FROM (SELECT value ->> 0 AS name FROM json_each(?4)) AS asked)
    GROUP BY 1, 2
    UNION ALL
    SELECT a.source, (CAST(a.finished_at AS INTEGER) / 60 * 60), 0, count(*)
    FROM (
        SELECT f.source, f.finished_at FROM rowlock_attempts f
        WHERE f.finished_at > (?2 + (?3)) AND f.outcome IN ('failed', 'timed_out', 'lost')
        ORDER BY f.finished_at DESC LIMIT ?1) a
    WHERE a.source IN (SELECT asked.name FROM (SELECT value ->> 0 AS name FROM json_each(?4)) AS asked)
    GROUP BY 1, 2) found;

-- source_succeeded (now, done, epoch)
UPDATE rowlock_sources INDEXED BY sqlite_autoindex_rowlock_sources_1
SET failure_streak = 0, refusals = 0, last_success_at = ?1,
    epoch = epoch + CASE WHEN opened_at IS NULL THEN 0 ELSE 1 END,
    paused_until = CASE WHEN opened_at IS NULL OR paused_until > ?1 THEN paused_until END,
    opened_at = NULL, opens = 0, probe_job = NULL, probe_token = NULL
WHERE name IN (SELECT done.name FROM (SELECT value ->> 0 AS name FROM json_each(?2)) AS done) AND epoch = ?3
  AND (failure_streak > 0 OR refusals > 0 OR opened_at IS NOT NULL
       OR last_success_at IS NULL OR last_success_at <= (?1 + (-1)));

-- source_tokens (now, asked)
SELECT s.name, coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate,
           CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END AS burst,
           s.tokens, -(s.tokens_at - ?1) AS elapsed
FROM rowlock_sources s LEFT JOIN rowlock_sources c ON c.name = substr(s.name, 1, instr(s.name || ':', ':') - 1)
WHERE s.name IN (SELECT asked.name FROM (SELECT value ->> 0 AS name FROM json_each(?2)) AS asked);

-- spend (spent, at)
UPDATE rowlock_sources INDEXED BY sqlite_autoindex_rowlock_sources_1
SET tokens = (SELECT spent.tokens FROM (SELECT value ->> 0 AS name, value ->> 1 AS tokens FROM json_each(?1)) AS spent WHERE spent.name = rowlock_sources.name),
    tokens_at = max(coalesce(tokens_at, ?2), ?2)
WHERE name IN (SELECT spent.name FROM (SELECT value ->> 0 AS name, value ->> 1 AS tokens FROM json_each(?1)) AS spent);

-- spread_by_queue (seconds, since, queue, task)
SELECT queue, run_bucket, wait_bucket, sum(number) AS number
FROM (
    SELECT r.at, r.queue, r.task, r.what, r.run_bucket, r.wait_bucket, r.number FROM rowlock_rollups r
    WHERE r.seconds = ?1 AND r.at >= ?2
    UNION ALL
    SELECT y.at, y.queue, y.task, y.what, y.run_bucket, y.wait_bucket, y.number FROM rowlock_tallies y
    WHERE y.at >= ?2) counted
WHERE CASE WHEN CAST(?3 AS text) IS NULL THEN TRUE ELSE queue = ?3 END
  AND CASE WHEN CAST(?4 AS text) IS NULL THEN TRUE ELSE task = ?4 END AND what = 'succeeded'
GROUP BY queue, run_bucket, wait_bucket;

-- start_batches (now, asked)
UPDATE rowlock_batches SET state = 'running', started_at = coalesce(started_at, ?1)
WHERE id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?2)) AS asked) AND state = 'queued';

-- still_unchanged (asked, unchanged_since)
SELECT CAST(j.id AS text) AS id FROM rowlock_jobs_live j
WHERE j.id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked) AND j.updated_at <= ?2
UNION ALL
SELECT CAST(j.id AS text) FROM rowlock_jobs_finished j
WHERE j.id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked) AND j.updated_at <= ?2;

-- stop_listening_for_events (id, now)
DELETE FROM rowlock_event_listeners WHERE id = ?1 OR expires_at < (?2 + (-3600));

-- succeed (now, keep, done)
INSERT INTO rowlock_jobs_finished (
    id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id, max_attempts, expires_at, run_after, cancel_requested_at, phase, message, result_uri, result_checksum,
    state, releases, losses, convictions, settled_token, progress, result, error_code, error_message,
    last_worker, finished_at, updated_at, drop_on)
SELECT j.id, task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id, max_attempts, expires_at, run_after, cancel_requested_at, phase, message, result_uri, result_checksum,
       'succeeded', releases, losses, convictions, lease_token, 100, done.result, NULL, NULL,
       locked_by, ?1, ?1, date(?1 + min(max(coalesce(keep_seconds, ?2), 0), 3155760000), 'unixepoch', '+1 day')
FROM (SELECT substr(key, 37) AS id, substr(key, 1, 36) AS token, value AS result FROM json_each(?3)) AS done
CROSS JOIN rowlock_jobs_live j
WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running';

-- succeed_remove (done)
DELETE FROM rowlock_jobs_live
WHERE rowid IN (
    SELECT j.rowid
    FROM (SELECT substr(key, 37) AS id, substr(key, 1, 36) AS token, value AS result FROM json_each(?1)) AS done
    CROSS JOIN rowlock_jobs_live j
    WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running');

-- sum_up_remove
DELETE FROM rowlock_tallies;

-- sum_up_rollups (seconds)
INSERT INTO rowlock_rollups
SELECT ?1, CASE ?1 WHEN 60 THEN at ELSE (CAST(at AS INTEGER) / 3600 * 3600) END, queue, task, what, run_bucket, wait_bucket,
       sum(number), sum(run_seconds), sum(wait_seconds)
FROM rowlock_tallies WHERE TRUE
GROUP BY 2, queue, task, what, run_bucket, wait_bucket
ON CONFLICT (seconds, at, queue, task, what, run_bucket, wait_bucket) DO UPDATE
SET number = number + excluded.number, run_seconds = run_seconds + excluded.run_seconds,
    wait_seconds = wait_seconds + excluded.wait_seconds;

-- sum_up_totals
INSERT INTO rowlock_counters
SELECT queue, task, what, run_bucket, wait_bucket, sum(number), sum(run_seconds), sum(wait_seconds)
FROM rowlock_tallies WHERE TRUE
GROUP BY queue, task, what, run_bucket, wait_bucket
ON CONFLICT (queue, task, what, run_bucket, wait_bucket) DO UPDATE
SET number = number + excluded.number, run_seconds = run_seconds + excluded.run_seconds,
    wait_seconds = wait_seconds + excluded.wait_seconds;

-- take_alert_lease (holder, now, lease, token)
INSERT INTO rowlock_alert_lease (one, holder, token, expires_at)
SELECT 1, ?1, mine.token, (?2 + (?3)) FROM (SELECT ?4 AS token) AS mine WHERE TRUE
ON CONFLICT (one) DO UPDATE
SET holder = excluded.holder, token = excluded.token, expires_at = excluded.expires_at
WHERE rowlock_alert_lease.token = excluded.token OR rowlock_alert_lease.expires_at <= ?2
   OR rowlock_alert_lease.expires_at > (?2 + (3600 + ?3))
RETURNING one;

-- take_id (job_id)
INSERT INTO rowlock_job_keys (scope, key, job_id, mode)
VALUES ('id', ?1, ?1, 'id')
ON CONFLICT (scope, key) DO NOTHING
RETURNING job_id;

-- take_keys (scope, mode, now, window, wanted)
INSERT INTO rowlock_job_keys (scope, key, job_id, mode, expires_at)
SELECT ?1, wanted.key, wanted.job_id, ?2, (?3 + (?4)) FROM (SELECT value ->> 0 AS key, value ->> 1 AS job_id FROM json_each(?5)) AS wanted WHERE TRUE
ON CONFLICT (scope, key) DO NOTHING
RETURNING key;

-- task_names
SELECT name FROM rowlock_tasks ORDER BY name;

-- tell_problem (problem, now, id)
UPDATE rowlock_schedules SET problem = ?1, updated_at = ?2 WHERE id = ?3;

-- ticks_ahead (asked, now)
SELECT k.schedule_id, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', k.tick, 'unixepoch'), k.tick) AS tick
FROM (SELECT value ->> 0 AS id FROM json_each(?1)) AS asked
CROSS JOIN rowlock_ticks k
WHERE k.schedule_id = asked.id AND k.tick > ?2;

-- ticks_of (id, n)
SELECT coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', tick, 'unixepoch'), tick) AS tick, CAST(job_id AS text) AS job_id
FROM rowlock_ticks
WHERE schedule_id = ?1
ORDER BY tick DESC
LIMIT ?2;

-- to_sweep (now)
SELECT (
    SELECT 1 FROM rowlock_jobs_live j
    WHERE state = 'running' AND lease_expires_at < ?1 AND (SELECT 1 FROM rowlock_set_aside a WHERE a.id = j.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL
    ORDER BY id
    LIMIT 1
) IS NOT NULL AS expired, (
    SELECT 1 FROM rowlock_jobs_live j
    WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at <= ?1 AND (SELECT 1 FROM rowlock_set_aside a WHERE a.id = j.id AND coalesce(a.again_at > ?1, TRUE)) IS NULL
    ORDER BY expires_at
    LIMIT 1
) IS NOT NULL AS overdue, (
    SELECT 1 FROM rowlock_batches WHERE finished_at IS NULL ORDER BY id LIMIT 1
) IS NOT NULL AS batched, unixepoch('subsec') AS clock;

-- tomorrow (now)
SELECT date(?1 + min(max(0, 0), 3155760000), 'unixepoch', '+1 day') AS day;

-- totals
SELECT queue, task, what, sum(number) AS number
FROM (
    SELECT queue, task, what, number FROM rowlock_counters
    UNION ALL
    SELECT queue, task, what, number FROM rowlock_tallies) counted
GROUP BY queue, task, what
ORDER BY queue, task, what;

-- touch_declared (now, ago, asked)
UPDATE rowlock_schedules SET declared_at = ?1
WHERE origin <> 'runtime' AND retired_at IS NULL AND declared_at < (?1 + (?2))
  AND id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(?3)) AS asked);

-- troubled_schedules (now, n)
SELECT id, problem, CASE WHEN paused_at IS NULL THEN -(next_tick - ?1) END AS late
FROM (
    SELECT id, problem, paused_at, next_tick FROM rowlock_schedules WHERE problem IS NOT NULL AND retired_at IS NULL
    UNION ALL
    SELECT id, problem, paused_at, next_tick FROM rowlock_schedules
    WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick < ?1 AND problem IS NULL
) troubled
ORDER BY next_tick IS NULL, next_tick, id
LIMIT ?2;

-- unfinished_jobs (owner, n)
SELECT count(*) AS number FROM (SELECT 1 FROM rowlock_jobs_live j WHERE j.owner = ?1 LIMIT ?2) found;

-- use_token (hash, kind, now)
UPDATE rowlock_tokens AS t SET uses = uses - 1
WHERE t.hash = ?1 AND t.kind = ?2 AND t.uses > 0 AND t.revoked_at IS NULL AND coalesce(t.expires_at > ?3, TRUE)
  AND (SELECT p.revoked_at FROM rowlock_tokens p WHERE p.id = t.made_from) IS NULL
  AND (t.made_from IS NULL OR t.made_from IN (SELECT t.id FROM rowlock_tokens t WHERE t.revoked_at IS NULL AND coalesce(t.expires_at > ?3, TRUE)
  AND (SELECT p.revoked_at FROM rowlock_tokens p WHERE p.id = t.made_from) IS NULL))
RETURNING CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch'), created_at) AS created_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch'), expires_at) AS expires_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', revoked_at, 'unixepoch'), revoked_at) AS revoked_at, CAST(made_from AS text) AS token_id, good_until;

-- waiting_lanes (n)
SELECT queue, task, state, count(*) AS number
FROM (
    SELECT j.queue, j.task, j.state
    FROM rowlock_jobs_live j
    WHERE NOT j.ready AND j.state <> 'running'
    ORDER BY j.run_after
    LIMIT ?1) due
GROUP BY queue, task, state;

-- webhook_deliveries (job_id)
SELECT CAST(delivery_id AS text) AS id FROM rowlock_webhook_deliveries WHERE job_id = ?1 ORDER BY delivery_id;

-- webhook_of_delivery (job_id, delivery_id)
SELECT w.url, w.owner
FROM rowlock_webhook_deliveries d JOIN rowlock_webhooks w ON w.job_id = d.job_id
WHERE d.job_id = ?1 AND d.delivery_id = ?2;

-- work_left (lane, now)
SELECT j.id
FROM rowlock_jobs_live j JOIN (SELECT value ->> 0 AS queue, value ->> 1 AS task FROM json_each(?1)) AS lane ON j.queue = lane.queue AND j.task = lane.task
WHERE (j.ready OR j.state = 'running' OR j.run_after <= ?2) AND (SELECT 1 FROM rowlock_set_aside a WHERE a.id = j.id AND coalesce(a.again_at > ?2, TRUE)) IS NULL
LIMIT 1;

-- worker_addresses (asked)
SELECT w.bell AS address
FROM rowlock_workers w JOIN (SELECT value ->> 0 AS worker FROM json_each(?1)) AS asked ON w.id = asked.worker
WHERE w.bell IS NOT NULL;

-- worker_idle (idle, now, lease, id)
UPDATE rowlock_workers SET idle = ?1, seen_at = ?2, expires_at = (?2 + (?3)) WHERE id = ?4 RETURNING id;

-- worker_seen (now, lease, running, memory, id)
UPDATE rowlock_workers
SET seen_at = ?1, expires_at = (?1 + (?2)), running = ?3, memory_bytes = coalesce(?4, memory_bytes)
WHERE id = ?5
RETURNING stop_requested;

-- write_alerts (found)
INSERT INTO rowlock_alerts (rule, subject, value, text, true_since, false_since, fired_at, told_at, repeats)
SELECT found.rule, found.subject, found.value, found.text, found.true_since, found.false_since, found.fired_at,
       found.told_at, found.repeats
FROM (SELECT value ->> 0 AS rule, value ->> 1 AS subject, value ->> 2 AS value, value ->> 3 AS text, value ->> 4 AS true_since, value ->> 5 AS false_since, value ->> 6 AS fired_at, value ->> 7 AS told_at, value ->> 8 AS repeats FROM json_each(?1)) AS found
WHERE TRUE
ON CONFLICT (rule, subject) DO UPDATE
SET value = excluded.value, text = excluded.text, true_since = excluded.true_since, false_since = excluded.false_since,
    fired_at = excluded.fired_at, told_at = excluded.told_at, repeats = excluded.repeats;

-- write_audit (now, who, via, address, action, target, number, details)
INSERT INTO rowlock_audit (at, who, via, address, action, target, number, details)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
RETURNING id;

-- write_health (now, changed)
UPDATE rowlock_sources INDEXED BY sqlite_autoindex_rowlock_sources_1
SET failure_streak = changed.streak, opens = changed.opens, refusals = changed.refusals,
    enabled = (changed.enabled = 1), opened_at = CASE WHEN changed.opened = 1 THEN coalesce(opened_at, ?1) END,
    probe_job = CASE WHEN rowlock_sources.epoch = changed.epoch THEN probe_job END,
    probe_token = CASE WHEN rowlock_sources.epoch = changed.epoch THEN probe_token END,
    epoch = changed.epoch,
    paused_until = CASE WHEN changed.repaused = 1 THEN (?1 + (changed.paused_for)) ELSE paused_until END,
    paused_at = CASE WHEN changed.repaused = 1 THEN ?1 ELSE paused_at END,
    last_success_at = CASE WHEN changed.succeeded = 1 THEN ?1 ELSE last_success_at END,
    last_failure_at = CASE WHEN changed.failed = 1 THEN ?1 ELSE last_failure_at END,
    last_error = coalesce(changed.error, last_error),
    refused_at = CASE WHEN changed.refused = 1 THEN ?1 ELSE refused_at END,
    refusal_code = coalesce(changed.refusal_code, rowlock_sources.refusal_code)
FROM (SELECT value ->> 0 AS name, value ->> 1 AS streak, value ->> 2 AS opens, value ->> 3 AS refusals, value ->> 4 AS enabled, value ->> 5 AS opened, value ->> 6 AS epoch, value ->> 7 AS repaused, value ->> 8 AS paused_for, value ->> 9 AS succeeded, value ->> 10 AS failed, value ->> 11 AS error, value ->> 12 AS refused, value ->> 13 AS refusal_code FROM json_each(?2)) AS changed
WHERE rowlock_sources.name = changed.name;

-- write_logs (now, line)
INSERT INTO rowlock_job_logs (job_id, seq, attempt, at, level, message)
SELECT line.job_id, coalesce((SELECT max(o.seq) FROM rowlock_job_logs o WHERE o.job_id = line.job_id), 0) + line.number,
       line.attempt, (?1 + (line.ago)), line.level, line.message
FROM (SELECT value ->> 0 AS job_id, value ->> 1 AS number, value ->> 2 AS attempt, value ->> 3 AS ago, value ->> 4 AS level, value ->> 5 AS message FROM json_each(?2)) AS line
WHERE TRUE
ON CONFLICT (job_id, seq) DO NOTHING;

-- write_policy (concurrency, total, rate, burst, threshold, cooldown, factor, block_after, set_by, name)
UPDATE rowlock_sources
SET concurrency = ?1, total = ?2, rate_limit_per_minute = ?3, burst = ?4,
    failure_threshold = ?5, cooldown_seconds = ?6, cooldown_factor = ?7,
    block_after = ?8, set_by = ?9
WHERE name = ?10;

-- write_preview (token_hash, action, filter, ids, made_at, now, seconds, who)
INSERT INTO rowlock_previews (token_hash, action, filter, ids, made_at, expires_at, who)
VALUES (?1, ?2, ?3, ?4, ?5, (?6 + (?7)), ?8);

-- write_samples (now, s)
INSERT INTO rowlock_queue_samples (at, queue, ready, waiting, running, oldest_seconds)
SELECT (CAST(?1 AS INTEGER) / 60 * 60), s.queue, s.ready, s.waiting, s.running, s.oldest
FROM (SELECT value ->> 0 AS queue, value ->> 1 AS ready, value ->> 2 AS waiting, value ->> 3 AS running, value ->> 4 AS oldest FROM json_each(?2)) AS s
WHERE TRUE
ON CONFLICT (at, queue) DO NOTHING;

-- write_ticks (now, fired)
INSERT INTO rowlock_ticks (schedule_id, tick, job_id, fired_at)
SELECT fired.schedule_id, fired.tick, fired.job_id, ?1
FROM (SELECT value ->> 0 AS schedule_id, value ->> 1 AS tick, value ->> 2 AS job_id FROM json_each(?2)) AS fired
WHERE TRUE
ON CONFLICT (schedule_id, tick) DO NOTHING
RETURNING CAST(job_id AS text) AS job_id;

-- written_ahead (now, ahead, n)
SELECT id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', starts_at, 'unixepoch'), starts_at) AS starts_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', ends_at, 'unixepoch'), ends_at) AS ends_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', s.next_tick, 'unixepoch'), s.next_tick) AS next_tick,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', ?1, 'unixepoch'), ?1) AS now, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', paused_at, 'unixepoch'), paused_at) AS paused_at
FROM rowlock_schedules s
WHERE updated_at > (?1 + (?2))
ORDER BY id
LIMIT ?3;
