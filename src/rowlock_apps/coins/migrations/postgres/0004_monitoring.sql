-- What operators look at, under names that both engines know. The document's own names are in the schema coins.

CREATE VIEW coins_scrape_jobs AS
SELECT id, intake_id, source_id, query_params, status, locked_by, locked_at, heartbeat_at, attempts, next_retry_at,
       created_at, completed_at, error_message
FROM coins.scrape_jobs;

CREATE VIEW coins_source_health AS
SELECT id, name, enabled, failure_streak, last_success_at, last_failure_at, paused_until, rate_limit_per_minute
FROM coins.sources;

CREATE VIEW coins_stuck_jobs AS
SELECT id, status, locked_by, heartbeat_at,
       round(extract(epoch FROM now() - heartbeat_at))                       AS seconds_since_heartbeat
FROM coins_scrape_jobs
WHERE status = 'running' AND (heartbeat_at IS NULL OR heartbeat_at < now() - interval '5 minutes');
