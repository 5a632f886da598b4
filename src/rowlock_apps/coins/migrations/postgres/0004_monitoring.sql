-- What operators look at, under names that both engines know. The document's own names are in the schema coins.

-- What an operator has said of all markets has columns of its own: a pause of the source `api` is not one of its class.
CREATE OR REPLACE VIEW coins.sources AS
SELECT s.id, s.name, s.url,
       coalesce(e.enabled, true) AND coalesce(c.class_enabled, true)         AS enabled,
       coalesce(e.failure_streak, 0)                                         AS failure_streak,
       e.last_success_at, e.last_failure_at,
       greatest(e.paused_until, c.class_paused_until)                        AS paused_until,
       coalesce(e.rate_limit_per_minute, c.rate_limit_per_minute)            AS rate_limit_per_minute,
       s.created_at
FROM coins_sources s
LEFT JOIN rowlock.sources e ON e.name = 'api:' || s.id
LEFT JOIN rowlock.sources c ON c.name = 'api';

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
