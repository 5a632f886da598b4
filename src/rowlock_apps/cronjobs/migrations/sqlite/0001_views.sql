-- Cron jobs and their executions in the document's words, over Rowlock's own rows; and the reports, the app's own table.
-- Times are text as in Rowlock's view of jobs, and as a moment is written that is the parameter of a query.
--
-- Rowlock's word -> the document's word:
--   queued, retryable  -> PENDING      waits for a worker, or for its time to be tried again
--   running            -> RUNNING
--   succeeded          -> SUCCESS
--   dead               -> TIMEOUT      if its last attempt timed out, else FAILED
--   cancelled          -> FAILED       the document has no word for an operator's cancel; error_message says it

CREATE TABLE cronjobs_reports (
    job_id         TEXT NOT NULL,
    scheduled_time TEXT NOT NULL,
    body           TEXT NOT NULL,
    PRIMARY KEY (job_id, scheduled_time)
);

CREATE VIEW cronjobs_cron_jobs AS
SELECT s.id,
       s.id                                                          AS name,
       s.rule                                                        AS cron_expression,
       s.zone                                                        AS timezone,
       s.task                                                        AS handler_name,
       s.args                                                        AS handler_params,
       s.max_attempts - 1                                            AS max_retry,
       s.timeout_seconds,
       s.paused_at IS NULL AND s.retired_at IS NULL AND s.problem IS NULL AS enabled,
       s.origin,
       CASE WHEN s.paused_at IS NULL AND s.retired_at IS NULL
            THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.next_tick, 'unixepoch') END AS next_run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.last_tick, 'unixepoch') AS last_run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.created_at, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.updated_at, 'unixepoch') AS updated_at
FROM rowlock_schedules s;

CREATE VIEW cronjobs_job_executions AS
SELECT j.id,
       j.schedule_id                                                 AS job_id,
       coalesce(j.tick, j.created_at)                                AS scheduled_time,   -- no tick: run by hand
       CASE WHEN j.state IN ('queued', 'retryable')                THEN 'PENDING'
            WHEN j.state = 'running'                               THEN 'RUNNING'
            WHEN j.state = 'succeeded'                             THEN 'SUCCESS'
            WHEN j.state = 'dead' AND last.outcome = 'timed_out'   THEN 'TIMEOUT'
            ELSE 'FAILED'
       END                                                           AS status,
       j.started_at                                                  AS started_at,
       j.finished_at                                                 AS finished_at,
       -- Retries that were granted: runs that count, without the first. A run that was given back or lost its worker
       -- does not count.
       max(0, j.attempt - j.releases - j.losses
              - CASE WHEN j.state IN ('queued', 'retryable') THEN 0 ELSE 1 END) AS retry_count,
       coalesce(j.error_message, j.error_code)                       AS error_message,
       j.result,
       j.created_at                                                  AS created_at,
       j.task                                                        AS handler_name,
       j.args                                                        AS handler_params,
       j.max_attempts - 1                                            AS max_retry,
       j.timeout_seconds,
       j.locked_by                                                   AS worker,
       j.state
FROM rowlock_jobs j
LEFT JOIN rowlock_attempts last ON last.job_id = j.id AND last.attempt = j.attempt AND j.state = 'dead'
WHERE j.schedule_id IS NOT NULL;
