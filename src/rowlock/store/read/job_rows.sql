-- Rows of jobs and attempts, in the order of store/read/job_rows.py.

-- name: read_job
-- One job, live or finished.
SELECT {job} FROM {t}jobs j WHERE j.id = :job_id;

-- name: read_jobs
-- Jobs by id, newest first.
SELECT {job}
FROM {t}jobs j
WHERE j.id {in:asked(id uuid)}
ORDER BY j.id DESC;

-- name: job_states
-- Of these jobs, the ones that exist: their tasks and states, and the files that they name as their results.
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
-- Jobs whose `run_after` is :end or later; on SQLite also jobs whose `run_after` is not a number.
SELECT CAST(id AS text) AS id, task FROM {t}jobs_live
WHERE NOT ready AND state <> 'running' AND run_after >= :end
ORDER BY run_after DESC
LIMIT :n;
