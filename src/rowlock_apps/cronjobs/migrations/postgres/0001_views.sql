-- Cron jobs and their executions in the document's words, over Rowlock's own rows; and the reports, the app's own table.
--
-- Rowlock's word -> the document's word:
--   queued, retryable  -> PENDING      waits for a worker, or for its time to be tried again
--   running            -> RUNNING
--   succeeded          -> SUCCESS
--   dead               -> TIMEOUT      if its last attempt timed out, else FAILED
--   cancelled          -> FAILED       the document has no word for an operator's cancel; error_message says it

CREATE TABLE cronjobs_reports (
    job_id         text        NOT NULL,
    scheduled_time timestamptz NOT NULL,
    body           json        NOT NULL,
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
       CASE WHEN s.paused_at IS NULL AND s.retired_at IS NULL THEN s.next_tick END AS next_run_at,
       s.last_tick                                                   AS last_run_at,
       s.created_at,
       s.updated_at
FROM rowlock.schedules s;

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
       j.started_at,
       j.finished_at,
       -- Retries that were granted: runs that count, without the first. A run that was given back or lost its worker
       -- does not count.
       greatest(0, j.attempt - j.releases - j.losses
                   - CASE WHEN j.state IN ('queued', 'retryable') THEN 0 ELSE 1 END) AS retry_count,
       coalesce(j.error_message, j.error_code)                       AS error_message,
       j.result,
       j.created_at,
       j.task                                                        AS handler_name,
       j.args                                                        AS handler_params,
       j.max_attempts - 1                                            AS max_retry,
       j.timeout_seconds,
       j.locked_by                                                   AS worker,
       j.state
FROM rowlock.jobs j
LEFT JOIN rowlock.attempts last ON last.job_id = j.id AND last.attempt = j.attempt AND j.state = 'dead'
WHERE j.schedule_id IS NOT NULL;

-- The document's tables: SET search_path = cronjobs, and its reading queries run as written.

CREATE SCHEMA cronjobs;

CREATE VIEW cronjobs.cron_jobs AS
SELECT * FROM cronjobs_cron_jobs;

CREATE VIEW cronjobs.job_executions AS
SELECT id, job_id, scheduled_time, status, started_at, finished_at, retry_count, error_message, result, created_at
FROM cronjobs_job_executions;

-- Its writing queries are refused, loudly also where no row fits: an UPDATE … RETURNING that answers nothing would look
-- like an empty queue.

CREATE FUNCTION cronjobs.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on cronjobs.%: it is only to be read; %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = TG_ARGV[1];
END;
$$;

CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON cronjobs.job_executions
    FOR EACH STATEMENT EXECUTE FUNCTION cronjobs.refuse(
    'workers claim and settle executions: rowlock worker --app rowlock_apps.cronjobs:app',
    'To run one now: rowlock schedules run NAME. To send a FAILED or TIMEOUT one back to PENDING: rowlock jobs retry ID. To stop one: rowlock jobs cancel ID.');
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON cronjobs.cron_jobs
    FOR EACH STATEMENT EXECUTE FUNCTION cronjobs.refuse(
    'cron jobs are changed by: rowlock schedules add, pause, resume, remove',
    'Those of the YAML are changed there; a dispatcher takes them over when it starts.');

-- Without a trigger for rows PostgreSQL has its own, less helpful word before ours is heard.
CREATE TRIGGER refuse_row INSTEAD OF INSERT OR UPDATE OR DELETE ON cronjobs.job_executions
    FOR EACH ROW EXECUTE FUNCTION cronjobs.refuse('workers claim and settle executions', '');
CREATE TRIGGER refuse_row INSTEAD OF INSERT OR UPDATE OR DELETE ON cronjobs.cron_jobs
    FOR EACH ROW EXECUTE FUNCTION cronjobs.refuse('use rowlock schedules', '');
