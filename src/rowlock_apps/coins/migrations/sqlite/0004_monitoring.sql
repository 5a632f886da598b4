-- What operators look at, in the document's words and under names that both engines know.

CREATE VIEW coins_scrape_jobs AS
SELECT id,
       -- A job made by hand may have anything as its intake: it is shown without one.
       CASE WHEN json_type(args, '$.intake_id') = 'integer' THEN args ->> 'intake_id' END AS intake_id,
       args ->> 'source_id'                                                  AS source_id,
       coalesce(args -> 'query_params', '{}')                                AS query_params,
       CASE WHEN state = 'queued' THEN 'pending'
            WHEN state = 'retryable' AND error_code = 'WORKER_LOST' THEN 'pending'    -- taken back from a dead worker
            WHEN state IN ('dead', 'cancelled') THEN 'failed'
            ELSE state
       END                                                                   AS status,
       locked_by, locked_at, heartbeat_at,
       attempt                                                               AS attempts,
       CASE WHEN state = 'retryable' THEN run_after END                      AS next_retry_at,
       created_at,
       finished_at                                                           AS completed_at,
       error_message
FROM rowlock_jobs
WHERE task = 'coins.scrape';

-- A market that no job has met yet has no row in the engine's table: it is enabled, and nothing is known against it.
CREATE VIEW coins_source_health AS
SELECT s.id, s.name,
       coalesce(e.enabled, 1) AND coalesce(c.class_enabled, 1)               AS enabled,
       coalesce(e.failure_streak, 0)                                         AS failure_streak,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.last_success_at, 'unixepoch')        AS last_success_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.last_failure_at, 'unixepoch')        AS last_failure_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', max(coalesce(e.paused_until, c.class_paused_until),
                                          coalesce(c.class_paused_until, e.paused_until)), 'unixepoch') AS paused_until,
       coalesce(e.rate_limit_per_minute, c.rate_limit_per_minute)            AS rate_limit_per_minute
FROM coins_sources s
LEFT JOIN rowlock_sources e ON e.name = 'api:' || s.id
LEFT JOIN rowlock_sources c ON c.name = 'api';

CREATE VIEW coins_stuck_jobs AS
SELECT id, status, locked_by, heartbeat_at,
       unixepoch('now') - unixepoch(heartbeat_at)                            AS seconds_since_heartbeat
FROM coins_scrape_jobs
WHERE status = 'running' AND (heartbeat_at IS NULL OR unixepoch(heartbeat_at) < unixepoch('now', '-5 minutes'));
