-- An execution that is cancelled while it waits for a retry keeps that retry: `retry_count` does not go down.

DROP VIEW cronjobs_job_executions;

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
       -- does not count. One that waits for a retry has it already, also if it is cancelled then.
       max(0, j.attempt - j.releases - j.losses
              - CASE WHEN j.state IN ('queued', 'retryable') THEN 0
                     WHEN j.state = 'cancelled' AND coalesce(last.outcome, '') <> 'cancelled' THEN 0
                     ELSE 1 END)                                     AS retry_count,
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
LEFT JOIN rowlock_attempts last ON last.job_id = j.id AND last.attempt = j.attempt
                                AND j.state IN ('dead', 'cancelled')
WHERE j.schedule_id IS NOT NULL;
