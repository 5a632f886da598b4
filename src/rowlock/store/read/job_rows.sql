-- Rows of jobs and attempts, in the order of store/read/job_rows.py.

-- part: job [postgres]
-- The fields of core.job.Job in their order, from the view `jobs j`. JSON is cast to text, because a caller's own
-- connection may parse JSON, and a parsed string would look like unparsed JSON.
j.id, j.task, j.queue, j.state, j.priority, CAST(j.args AS text), j.owner, j.source, CAST(j.tags AS text),
    j.batch_id, j.schedule_id, {time(j.tick)}, j.attempt, j.max_attempts, j.releases, j.losses, CAST(j.backoff AS text),
    j.timeout_seconds, {time(j.run_after)}, {time(j.expires_at)}, j.lease_token, j.locked_by, {time(j.locked_at)},
    {time(j.heartbeat_at)}, {time(j.lease_expires_at)}, j.settled_token, {time(j.cancel_requested_at)}, j.progress,
    j.phase, j.message, CAST(j.result AS text), j.result_uri, j.result_checksum, j.error_code, j.error_message,
    {time(j.created_at)}, {time(j.started_at)}, {time(j.finished_at)}, {time(j.updated_at)}

-- part: job [sqlite]
-- The fields of core.job.Job in their order, from the view `jobs j`, where times are text already.
j.id, j.task, j.queue, j.state, j.priority, j.args, j.owner, j.source, j.tags, j.batch_id, j.schedule_id, j.tick,
    j.attempt, j.max_attempts, j.releases, j.losses, j.backoff, j.timeout_seconds, j.run_after, j.expires_at,
    j.lease_token, j.locked_by, j.locked_at, j.heartbeat_at, j.lease_expires_at, j.settled_token, j.cancel_requested_at,
    j.progress, j.phase, j.message, j.result, j.result_uri, j.result_checksum, j.error_code, j.error_message,
    j.created_at, j.started_at, j.finished_at, j.updated_at

-- name: read_job
-- One job, live or finished.
SELECT {part:job} FROM {t}jobs j WHERE j.id = :job_id;

-- name: read_jobs
-- Jobs by id, newest first.
SELECT {part:job}
FROM {t}jobs j
WHERE j.id {in:asked(id uuid)}
ORDER BY j.id DESC;

-- name: job_states
-- Those of these jobs that exist, with their tasks, states and result files.
SELECT CAST(j.id AS text) AS id, j.task, j.state, j.result_uri
FROM {t}jobs j
WHERE j.id {in:asked(id uuid)};

-- name: read_attempts
-- The attempts of a job that did not succeed, in order.
SELECT job_id, attempt, outcome, worker, {time(started_at)} AS started_at, {time(finished_at)} AS finished_at,
       error_code, error_message, traceback
FROM {t}attempts
WHERE job_id = :job_id
ORDER BY attempt;

-- name: never_due
-- Jobs whose `run_after` is :end or later; on SQLite, also jobs whose `run_after` is not a number.
SELECT CAST(id AS text) AS id, task FROM {t}jobs_live
WHERE NOT ready AND state <> 'running' AND run_after >= :end
ORDER BY run_after DESC
LIMIT :n;
