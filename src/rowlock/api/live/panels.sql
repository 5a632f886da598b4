-- Which pages of the dashboard are out of date: api/live/panels.py.

-- name: panel_marks
-- For each page of a dashboard, a text that changes when the data of the page may have changed. It runs about once a second
-- while a dashboard is open, so it reads a bounded number of index entries, whatever the size of the tables.
SELECT 'audit' AS panel, CAST(coalesce((SELECT max(id) FROM {t}audit), 0) AS text) AS mark
UNION ALL
SELECT 'failures', CAST((SELECT max(finished_at) FROM {t}attempts) AS text)
UNION ALL
SELECT 'logs', CAST((SELECT max(at) FROM {t}job_logs) AS text)
UNION ALL
SELECT 'workers', count(*) || ':' || sum(running) || ':' || sum(CASE WHEN expires_at > {now} THEN 1 ELSE 0 END) || ':'
       || max(CAST(started_at AS text))
FROM {t}workers
UNION ALL
SELECT 'schedules', count(*) || ':' || count(paused_at) || ':' || count(retired_at) || ':' || count(problem) || ':'
       || coalesce(max(CAST(last_tick AS text)), '') || ':' || coalesce(max(CAST(last_job AS text)), '')
FROM {t}schedules
UNION ALL
SELECT 'sources', count(*) || ':' || count(paused_until) || ':' || count(opened_at) || ':'
       || coalesce(max(CAST(last_failure_at AS text)), '') || ':' || coalesce(sum(coalesce(concurrency, 0)), 0)
FROM {t}sources
UNION ALL
SELECT 'batches', (SELECT CAST(id AS text) FROM {t}batches ORDER BY id DESC LIMIT 1) || ':'
       || (SELECT count(*) FROM {t}batches WHERE finished_at IS NULL)
UNION ALL
SELECT 'queues', count(*) || ':' || coalesce(max(CAST(paused_at AS text)), '')
FROM {t}queues WHERE paused_at IS NOT NULL
UNION ALL
-- How many jobs live, wait for their time and run, and the last change among the running jobs and among the newest live,
-- finished, dead and cancelled ones. Each claim changes a running job.
SELECT 'jobs',
       (SELECT count(*) FROM (SELECT 1 FROM {t}jobs_live LIMIT :most) live) || ':'
       || (SELECT count(*) FROM (
               SELECT 1 FROM {t}jobs_live j WHERE NOT j.ready AND j.state <> 'running' LIMIT :most) waiting) || ':'
       || (SELECT count(*) || ':' || coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM {t}jobs_live j WHERE j.state = 'running' LIMIT :most) running) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM {t}jobs_live j ORDER BY j.id DESC LIMIT :n) newest) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM {t}jobs_finished j ORDER BY j.{part:end_order} DESC LIMIT :n) finished) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM {t}jobs_finished j WHERE j.state = 'dead' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT :n) dead) || ':'
       || (SELECT coalesce(max(CAST(updated_at AS text)), '') FROM (
               SELECT j.updated_at FROM {t}jobs_finished j WHERE j.state = 'cancelled' AND j.state <> 'succeeded' ORDER BY j.id DESC LIMIT :n) cancelled);
