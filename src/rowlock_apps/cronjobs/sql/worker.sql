-- The queries of the app. They read the views of its migrations, which speak the document's words. $1, $2 are parameters
-- on both engines.
--
-- Six of them are the document's. Only the holder of a lease may write to an execution, so the write itself is
-- Rowlock's statement, under the lease's token; the query of that name says what must be true of the row for the step to
-- count. Before a claim or a reset: that the execution may take the step. After complete, fail and time out: where the
-- step has led.

-- name: get_pending_executions
-- What waits: for a worker, or for its time to be tried again; the earliest ticks first.
SELECT CAST(e.id AS text), e.job_id, e.scheduled_time, e.status, e.started_at, e.finished_at, e.retry_count,
       e.error_message, CAST(e.result AS text), e.created_at, e.handler_name, CAST(e.handler_params AS text),
       e.max_retry, e.timeout_seconds, e.worker
FROM cronjobs_job_executions e
WHERE e.state IN ('queued', 'retryable')
ORDER BY e.scheduled_time, e.id
LIMIT $1;

-- name: claim_execution
-- PENDING -> RUNNING, before: $1 waits. Rowlock's claim then gives it to one of however many try.
SELECT CAST(e.id AS text), e.job_id, e.scheduled_time, e.status, e.started_at, e.finished_at, e.retry_count,
       e.error_message, CAST(e.result AS text), e.created_at, e.handler_name, CAST(e.handler_params AS text),
       e.max_retry, e.timeout_seconds, e.worker
FROM cronjobs_job_executions e
WHERE e.id = $1 AND e.status = 'PENDING';

-- name: complete_execution
-- RUNNING -> SUCCESS, after: $1 has its result.
SELECT CAST(e.id AS text), e.job_id, e.scheduled_time, e.status, e.started_at, e.finished_at, e.retry_count,
       e.error_message, CAST(e.result AS text), e.created_at, e.handler_name, CAST(e.handler_params AS text),
       e.max_retry, e.timeout_seconds, e.worker
FROM cronjobs_job_executions e
WHERE e.id = $1 AND e.status = 'SUCCESS';

-- name: fail_execution
-- RUNNING -> FAILED, after: $1 has its error, and is PENDING again if it had a retry left.
SELECT CAST(e.id AS text), e.job_id, e.scheduled_time, e.status, e.started_at, e.finished_at, e.retry_count,
       e.error_message, CAST(e.result AS text), e.created_at, e.handler_name, CAST(e.handler_params AS text),
       e.max_retry, e.timeout_seconds, e.worker
FROM cronjobs_job_executions e
WHERE e.id = $1 AND e.status IN ('FAILED', 'PENDING') AND e.error_message IS NOT NULL;

-- name: timeout_execution
-- RUNNING -> TIMEOUT, after: $1 is PENDING again if it had a retry left. One whose cancel came first is FAILED.
SELECT CAST(e.id AS text), e.job_id, e.scheduled_time, e.status, e.started_at, e.finished_at, e.retry_count,
       e.error_message, CAST(e.result AS text), e.created_at, e.handler_name, CAST(e.handler_params AS text),
       e.max_retry, e.timeout_seconds, e.worker
FROM cronjobs_job_executions e
WHERE e.id = $1 AND e.status IN ('TIMEOUT', 'PENDING', 'FAILED') AND e.error_message IS NOT NULL;

-- name: reset_to_pending
-- FAILED or TIMEOUT -> PENDING, before: $1 has ended so.
SELECT CAST(e.id AS text), e.job_id, e.scheduled_time, e.status, e.started_at, e.finished_at, e.retry_count,
       e.error_message, CAST(e.result AS text), e.created_at, e.handler_name, CAST(e.handler_params AS text),
       e.max_retry, e.timeout_seconds, e.worker
FROM cronjobs_job_executions e
WHERE e.id = $1 AND e.status IN ('FAILED', 'TIMEOUT');

-- name: get_execution
-- One execution.
SELECT CAST(e.id AS text), e.job_id, e.scheduled_time, e.status, e.started_at, e.finished_at, e.retry_count,
       e.error_message, CAST(e.result AS text), e.created_at, e.handler_name, CAST(e.handler_params AS text),
       e.max_retry, e.timeout_seconds, e.worker
FROM cronjobs_job_executions e
WHERE e.id = $1;

-- name: get_executions
-- The newest executions of a cron job ($1, or of all) with a status ($2, or any) that are newer than $3.
SELECT CAST(e.id AS text), e.job_id, e.scheduled_time, e.status, e.started_at, e.finished_at, e.retry_count,
       e.error_message, CAST(e.result AS text), e.created_at, e.handler_name, CAST(e.handler_params AS text),
       e.max_retry, e.timeout_seconds, e.worker
FROM cronjobs_job_executions e
WHERE (CAST($1 AS text) IS NULL OR e.job_id = $1)
  AND (CAST($2 AS text) IS NULL OR e.status = $2)
  AND e.id > $3
ORDER BY e.id DESC
LIMIT $4;

-- name: get_cron_jobs
-- Every cron job, by name.
SELECT c.id, c.cron_expression, c.timezone, c.handler_name, CAST(c.handler_params AS text), c.max_retry,
       c.timeout_seconds, c.enabled, c.origin, c.next_run_at, c.last_run_at
FROM cronjobs_cron_jobs c
ORDER BY c.id;

-- name: get_scheduled_time
-- Of an execution: its cron job, and its tick.
SELECT e.job_id, e.scheduled_time
FROM cronjobs_job_executions e
WHERE e.id = $1;

-- name: count_ended
-- How the executions ended that ended from $1 up to $2.
SELECT e.job_id, e.status, count(*)
FROM cronjobs_job_executions e
WHERE e.finished_at >= $1 AND e.finished_at < $2
GROUP BY e.job_id, e.status
ORDER BY e.job_id, e.status;

-- name: save_report
-- The report of a tick; written again by a second attempt, it is the same row.
INSERT INTO cronjobs_reports (job_id, scheduled_time, body)
VALUES ($1, $2, $3)
ON CONFLICT (job_id, scheduled_time) DO UPDATE SET body = excluded.body;

-- name: get_reports
-- The newest reports.
SELECT r.job_id, r.scheduled_time, CAST(r.body AS text)
FROM cronjobs_reports r
ORDER BY r.scheduled_time DESC, r.job_id
LIMIT $1;

-- name: remove_reports
-- Forget the reports of ticks before $1.
DELETE FROM cronjobs_reports WHERE scheduled_time < $1
RETURNING job_id;
