-- The jobs that run now: store/read/running.py.

-- name: running_jobs
-- The running jobs, each with its worker.
SELECT CAST(j.id AS text) AS job_id, j.task, j.queue, j.attempt, j.locked_by AS worker, {time(j.locked_at)} AS since,
       -{seconds_until(j.locked_at)} AS seconds, j.progress, j.phase
FROM {t}jobs_live j
WHERE j.state = 'running' AND j.locked_by IS DISTINCT FROM {part:unread}
ORDER BY j.id
LIMIT :n;
