-- Log lines of jobs, in the order of store/read/job_logs.py.

-- name: write_logs
-- Append lines to the log of jobs. The caller numbers the lines of each job from 1.
INSERT INTO {t}job_logs (job_id, seq, attempt, at, level, message)
SELECT line.job_id, coalesce((SELECT max(o.seq) FROM {t}job_logs o WHERE o.job_id = line.job_id), 0) + line.number,
       line.attempt, {after(line.ago)}, line.level, line.message
FROM {rows:line(job_id uuid, number int, attempt int, ago float, level text, message text)}
WHERE TRUE
ON CONFLICT (job_id, seq) DO NOTHING;

-- name: cut_logs
-- Keep the newest :n lines of each of these jobs.
DELETE FROM {t}job_logs
WHERE job_id {in:asked(id uuid)}
  AND seq <= (SELECT max(o.seq) FROM {t}job_logs o WHERE o.job_id = {t}job_logs.job_id) - :n;

-- name: read_logs
-- The newest :n lines of a job after the line :after, newest first.
SELECT seq, attempt, {time(at)} AS at, level, message
FROM {t}job_logs
WHERE job_id = :job_id AND seq > :after
ORDER BY seq DESC
LIMIT :n;

-- name: first_log
-- The oldest line of a job that still exists.
SELECT seq FROM {t}job_logs WHERE job_id = :job_id ORDER BY seq LIMIT 1;

-- name: prune_logs
-- Delete lines that were written more than -:ago seconds ago.
DELETE FROM {t}job_logs
WHERE (job_id, seq) IN (
    SELECT job_id, seq FROM {t}job_logs
    WHERE at < {after(:ago)}
    ORDER BY at
    LIMIT :n)
RETURNING 1 AS pruned;
