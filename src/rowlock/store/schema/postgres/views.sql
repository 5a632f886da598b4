-- The views that people and programs may query. Their columns, and the order of the columns, are part of the contract.

-- Every job, live or finished. A role that can't read the tokens in the tables sees NULL here, because with a token it
-- could end the job in its worker's place. has_column_privilege checks the role that reads the view, not the view's
-- owner. A job that was published to Redis is queued, and has not started, until a worker there has answered.
CREATE OR REPLACE VIEW rowlock.jobs AS
SELECT id, task, queue, CASE WHEN published = 'unread' THEN 'queued' ELSE state END AS state,
       priority, args, owner, source, tags, batch_id, schedule_id, tick,
       attempt, max_attempts, releases, losses, backoff, timeout_seconds, run_after, expires_at,
       CASE WHEN has_column_privilege('rowlock.jobs_live', 'lease_token', 'SELECT') THEN lease_token END AS lease_token,
       locked_by, locked_at, heartbeat_at, lease_expires_at,
       CASE WHEN has_column_privilege('rowlock.jobs_live', 'settled_token', 'SELECT') THEN settled_token END
           AS settled_token,
       cancel_requested_at, progress, phase, message, NULL::json AS result, result_uri,
       result_checksum, error_code, error_message, created_at,
       CASE WHEN published = 'unread' THEN NULL ELSE started_at END AS started_at,
       NULL::timestamptz AS finished_at, updated_at
FROM rowlock.jobs_live
UNION ALL
SELECT id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick,
       attempt, max_attempts, releases, losses, backoff, timeout_seconds, run_after, expires_at,
       NULL::uuid, last_worker, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz,
       CASE WHEN has_column_privilege('rowlock.jobs_finished', 'settled_token', 'SELECT') THEN settled_token END,
       cancel_requested_at, progress, phase, message, result, result_uri,
       result_checksum, error_code, error_message, created_at, started_at,
       finished_at, updated_at
FROM rowlock.jobs_finished;

-- The twenty newest jobs.
CREATE OR REPLACE VIEW rowlock.recent_jobs AS
SELECT id, task, queue, state, attempt, locked_by, heartbeat_at, created_at, started_at, finished_at, error_code,
       error_message
FROM rowlock.jobs
-- Ids begin with the time of creation, so twenty index entries of each table are read.
WHERE id = ANY (ARRAY(
    SELECT id FROM (SELECT id FROM rowlock.jobs_live ORDER BY id DESC LIMIT 20) live
    UNION ALL
    SELECT id FROM (SELECT id FROM rowlock.jobs_finished ORDER BY id DESC LIMIT 20) finished))
ORDER BY created_at DESC, id DESC
LIMIT 20;

-- The state of each source and class.
CREATE OR REPLACE VIEW rowlock.source_health AS
SELECT s.name,
       CASE WHEN NOT (s.enabled AND coalesce(c.class_enabled, true)) THEN 'disabled'
            WHEN greatest(s.paused_until, c.class_paused_until) > statement_timestamp()
                THEN CASE WHEN s.opened_at IS NULL THEN 'paused' ELSE 'broken' END
            WHEN s.opened_at IS NOT NULL THEN 'half-open'
            ELSE 'open'
       END AS state,
       s.enabled AND coalesce(c.class_enabled, true) AS enabled,
       s.failure_streak, s.last_success_at, s.last_failure_at,
       greatest(s.paused_until, c.class_paused_until) AS paused_until,
       s.last_error
FROM rowlock.sources s
LEFT JOIN rowlock.sources c ON c.name = split_part(s.name, ':', 1)
ORDER BY s.name;

-- Running jobs whose worker hasn't sent a heartbeat for five minutes. Before the first heartbeat, the time of the claim
-- counts. Jobs whose request waits in a Redis stream aren't running.
CREATE OR REPLACE VIEW rowlock.stuck_jobs AS
SELECT id, task, queue, locked_by, attempt, locked_at, heartbeat_at, lease_expires_at,
       statement_timestamp() - coalesce(heartbeat_at, locked_at) AS time_since_heartbeat
FROM rowlock.jobs_live
WHERE state = 'running' AND published IS DISTINCT FROM 'unread'
  AND coalesce(heartbeat_at, locked_at) < statement_timestamp() - interval '5 minutes'
ORDER BY coalesce(heartbeat_at, locked_at);

-- For each queue: how many jobs could start now if a slot were free, how long the first of them has been waiting, and
-- how many slots it would take to start all of them within 30 seconds. Jobs that are delayed, in a paused queue or of a
-- closed source don't count. Counts stop at 10,000 of each kind.
CREATE OR REPLACE VIEW rowlock.backlog AS
WITH RECURSIVE
-- The first ready plain job of each (queue, task, priority): a loose scan of the claim index.
lanes (queue, task, priority, run_after, nth) AS (
    (SELECT j.queue, j.task, j.priority, j.run_after, 1
     FROM rowlock.jobs_live j WHERE j.ready AND j.source IS NULL
     ORDER BY j.queue, j.task, j.priority, j.id LIMIT 1)
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after, l.nth + 1
    FROM lanes l
    CROSS JOIN LATERAL (
        SELECT n.queue, n.task, n.priority, n.run_after
        FROM rowlock.jobs_live n
        WHERE n.ready AND n.source IS NULL
          AND (n.queue, n.task, n.priority, n.id)
              > (l.queue, l.task, l.priority, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
        ORDER BY n.queue, n.task, n.priority, n.id LIMIT 1) j
    WHERE l.nth < 10000
),
-- The first ready job of each (queue, task, priority, source): a loose scan of the index of jobs with a source.
heads (queue, task, priority, source, run_after, nth) AS (
    (SELECT j.queue, j.task, j.priority, j.source, j.run_after, 1
     FROM rowlock.jobs_live j WHERE j.ready AND j.source IS NOT NULL
     ORDER BY j.queue, j.task, j.priority, j.source, j.id LIMIT 1)
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.source, j.run_after, h.nth + 1
    FROM heads h
    CROSS JOIN LATERAL (
        SELECT n.queue, n.task, n.priority, n.source, n.run_after
        FROM rowlock.jobs_live n
        WHERE n.ready AND n.source IS NOT NULL
          AND (n.queue, n.task, n.priority, n.source, n.id)
              > (h.queue, h.task, h.priority, h.source, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
        ORDER BY n.queue, n.task, n.priority, n.source, n.id LIMIT 1) j
    WHERE h.nth < 10000
),
-- Jobs whose time has come but that no worker has made ready yet, for instance because none is alive.
due AS (
    SELECT j.queue, j.source, j.run_after
    FROM rowlock.jobs_live j
    WHERE NOT j.ready AND j.state <> 'running' AND j.run_after <= statement_timestamp()
      AND NOT EXISTS (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id)
    ORDER BY j.run_after LIMIT 10000
),
-- Plain jobs by queue, counted from the index, up to 10,000.
plain AS (
    SELECT q.queue,
           (SELECT count(*) FROM (
                SELECT 1 FROM rowlock.jobs_live j WHERE j.ready AND j.source IS NULL AND j.queue = q.queue
                ORDER BY j.task, j.priority, j.id LIMIT 10000) first) AS number,
           q.oldest
    FROM (SELECT queue, min(run_after) AS oldest FROM lanes GROUP BY queue) q
    UNION ALL
    SELECT queue, count(*), min(run_after) FROM due WHERE source IS NULL GROUP BY queue
),
-- Jobs with a source, by queue and source.
sourced AS (
    SELECT queue, source, sum(number) AS number, min(oldest) AS oldest
    FROM (
        SELECT h.queue, h.source, h.run_after AS oldest,
               (SELECT count(*) FROM (
                    SELECT 1 FROM rowlock.jobs_live j
                    WHERE j.ready AND j.source IS NOT NULL AND j.queue = h.queue AND j.task = h.task
                      AND j.priority = h.priority AND j.source = h.source
                    ORDER BY j.id LIMIT 1000) first) AS number
        FROM heads h
        UNION ALL
        SELECT queue, source, min(run_after), count(*) FROM due WHERE source IS NOT NULL GROUP BY queue, source) found
    GROUP BY queue, source
),
-- How many jobs of each source may start: none if it is closed, one as a probe, else up to its limit. With a rate,
-- those of 30 seconds, but at least one, so that an empty bucket doesn't look like an empty queue.
room AS (
    SELECT o.queue, split_part(o.source, ':', 1) AS class, o.number, o.oldest,
           CASE
               WHEN NOT (coalesce(s.enabled, true) AND coalesce(c.class_enabled, true)) THEN 0
               WHEN greatest(s.paused_until, c.class_paused_until) > statement_timestamp() THEN 0
               WHEN s.opened_at IS NOT NULL THEN
                   CASE WHEN EXISTS (
                            SELECT 1 FROM rowlock.jobs_live p
                            WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running')
                        THEN 0 ELSE 1 END
               ELSE least(
                   coalesce(s.concurrency, c.concurrency) - (
                       SELECT count(*) FROM rowlock.jobs_live r
                       WHERE r.state = 'running' AND r.source IS NOT NULL
                         AND split_part(r.source, ':', 1) = split_part(o.source, ':', 1) AND r.source = o.source),
                   -- greatest() alone would ignore NULL, and give a source without a rate room for only one job.
                   CASE WHEN coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) IS NOT NULL
                        THEN greatest(1, ceil(coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) / 2)) END,
                   1000000)
           END AS room,
           c.total
    FROM sourced o
    LEFT JOIN rowlock.sources s ON s.name = o.source
    LEFT JOIN rowlock.sources c ON c.name = split_part(o.source, ':', 1)
),
-- Jobs that may start, by queue: plain jobs, and jobs of each class as far as its total allows.
startable AS (
    SELECT queue, number, oldest FROM plain
    UNION ALL
    SELECT r.queue,
           greatest(0, least(
               sum(greatest(0, least(r.number, r.room))),
               r.total - (SELECT count(*) FROM rowlock.jobs_live j
                          WHERE j.state = 'running' AND j.source IS NOT NULL
                            AND split_part(j.source, ':', 1) = r.class))),
           min(r.oldest) FILTER (WHERE r.room > 0)
    FROM room r GROUP BY r.queue, r.class, r.total
),
running AS (
    SELECT queue, count(*) AS number FROM rowlock.jobs_live
    WHERE state = 'running' AND published IS DISTINCT FROM 'unread' GROUP BY queue
),
-- The mean run time of the newest thousand jobs, by queue.
took AS (
    SELECT queue, avg(date_part('epoch', finished_at - started_at)) AS seconds
    FROM (
        SELECT f.queue, f.state, f.started_at, f.finished_at
        FROM rowlock.jobs_finished f ORDER BY f.id DESC LIMIT 1000) newest
    WHERE state = 'succeeded' GROUP BY queue
),
counted AS (
    SELECT queue, sum(number) AS runnable, min(oldest) FILTER (WHERE number > 0) AS oldest
    FROM startable
    WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = startable.queue AND q.paused_at IS NOT NULL)
    GROUP BY queue
)
SELECT coalesce(b.queue, r.queue) AS queue,
       CAST(coalesce(b.runnable, 0) AS bigint) AS runnable,
       coalesce(r.number, 0) AS running,
       coalesce(greatest(0, date_part('epoch', statement_timestamp() - b.oldest)), 0) AS oldest_age_seconds,
       t.seconds AS mean_run_seconds,
       -- Slots in use remain needed. If no job has finished yet, assume a run time of one second.
       CAST(coalesce(r.number, 0)
            + least(coalesce(b.runnable, 0), greatest(1, ceil(b.runnable * coalesce(t.seconds, 1) / 30))) AS bigint)
           AS wanted_slots
FROM counted b
FULL JOIN running r ON r.queue = b.queue
LEFT JOIN took t ON t.queue = coalesce(b.queue, r.queue)
ORDER BY 1;
