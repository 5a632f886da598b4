-- The last ticks of schedules: store/schedules/history.py.

-- name: ticks_of
-- The last :n ticks of a schedule, newest first.
SELECT {time(tick)} AS tick, CAST(job_id AS text) AS job_id
FROM {t}ticks
WHERE schedule_id = :id
ORDER BY tick DESC
LIMIT :n;
