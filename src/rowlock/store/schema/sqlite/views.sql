-- The views that people and programs may query. Their columns, and the order of the columns, are part of the contract.
-- Times are shown as ISO 8601; rowlock_jobs shows a value that can't be a time as stored, not as NULL. SQLite can't
-- replace a view, so each is dropped first, which your own views on top of it survive.

-- Every job, live or finished. A job that was published to Redis is queued, and not started, until a worker answers.
DROP VIEW IF EXISTS rowlock_jobs;
CREATE VIEW rowlock_jobs AS
SELECT
       id, task, queue, CASE WHEN published = 'unread' THEN 'queued' ELSE state END AS state,
       priority, args, owner, source, tags, batch_id, schedule_id,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', tick, 'unixepoch'), tick) AS tick,
       attempt, max_attempts, releases, losses,
       backoff, timeout_seconds,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', run_after, 'unixepoch'), run_after) AS run_after,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch'), expires_at) AS expires_at,
       lease_token, locked_by,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', locked_at, 'unixepoch'), locked_at) AS locked_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', heartbeat_at, 'unixepoch'), heartbeat_at) AS heartbeat_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', lease_expires_at, 'unixepoch'), lease_expires_at) AS lease_expires_at,
       settled_token,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', cancel_requested_at, 'unixepoch'), cancel_requested_at)
           AS cancel_requested_at,
       progress, phase, message, NULL AS result, result_uri, result_checksum, error_code, error_message,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch'), created_at) AS created_at,
       CASE WHEN published = 'unread' THEN NULL
            ELSE coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', started_at, 'unixepoch'), started_at) END AS started_at,
       NULL AS finished_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, 'unixepoch'), updated_at) AS updated_at
FROM rowlock_jobs_live
UNION ALL
SELECT
       id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', tick, 'unixepoch'), tick) AS tick,
       attempt, max_attempts, releases, losses,
       backoff, timeout_seconds,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', run_after, 'unixepoch'), run_after) AS run_after,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch'), expires_at) AS expires_at, NULL AS lease_token,
       last_worker AS locked_by, NULL AS locked_at, NULL AS heartbeat_at, NULL AS lease_expires_at,
       settled_token,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', cancel_requested_at, 'unixepoch'), cancel_requested_at)
           AS cancel_requested_at,
       progress, phase, message, result, result_uri, result_checksum, error_code, error_message,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch'), created_at) AS created_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', started_at, 'unixepoch'), started_at) AS started_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', finished_at, 'unixepoch'), finished_at) AS finished_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, 'unixepoch'), updated_at) AS updated_at
FROM rowlock_jobs_finished;

-- The twenty newest jobs.
DROP VIEW IF EXISTS rowlock_recent_jobs;
CREATE VIEW rowlock_recent_jobs AS
SELECT id, task, queue, state, attempt, locked_by, heartbeat_at, created_at, started_at, finished_at, error_code,
       error_message
FROM rowlock_jobs
-- Ids begin with the time of creation, so twenty index entries of each table are read.
WHERE id IN (
    SELECT id FROM (SELECT id FROM rowlock_jobs_live ORDER BY id DESC LIMIT 20) live
    UNION ALL
    SELECT id FROM (SELECT id FROM rowlock_jobs_finished ORDER BY id DESC LIMIT 20) finished)
ORDER BY created_at DESC, id DESC
LIMIT 20;

-- The state of each source and class.
DROP VIEW IF EXISTS rowlock_source_health;
CREATE VIEW rowlock_source_health AS
SELECT name,
       CASE WHEN NOT enabled THEN 'disabled'
            WHEN paused > unixepoch('subsec') THEN CASE WHEN opened_at IS NULL THEN 'paused' ELSE 'broken' END
            WHEN opened_at IS NOT NULL THEN 'half-open'
            ELSE 'open'
       END AS state,
       enabled, failure_streak,
       strftime('%Y-%m-%dT%H:%M:%fZ', last_success_at, 'unixepoch') AS last_success_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', last_failure_at, 'unixepoch') AS last_failure_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', paused, 'unixepoch') AS paused_until,
       last_error
FROM (
    SELECT s.name, s.enabled AND coalesce(c.class_enabled, 1) AS enabled, s.opened_at, s.failure_streak,
           s.last_success_at, s.last_failure_at, s.last_error,
           max(coalesce(s.paused_until, c.class_paused_until), coalesce(c.class_paused_until, s.paused_until)) AS paused
    FROM rowlock_sources s
    LEFT JOIN rowlock_sources c ON c.name = substr(s.name, 1, instr(s.name || ':', ':') - 1))
ORDER BY name;

-- Running jobs whose worker hasn't sent a heartbeat for five minutes. Before the first heartbeat, the time of the claim
-- counts. Jobs whose request waits in a Redis stream aren't running. Here time_since_heartbeat is a number of seconds.
DROP VIEW IF EXISTS rowlock_stuck_jobs;
CREATE VIEW rowlock_stuck_jobs AS
SELECT id, task, queue, locked_by, attempt,
       strftime('%Y-%m-%dT%H:%M:%fZ', locked_at, 'unixepoch') AS locked_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', heartbeat_at, 'unixepoch') AS heartbeat_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', lease_expires_at, 'unixepoch') AS lease_expires_at,
       unixepoch('subsec') - coalesce(heartbeat_at, locked_at) AS time_since_heartbeat
FROM rowlock_jobs_live
WHERE state = 'running' AND published IS NOT 'unread'
  AND coalesce(heartbeat_at, locked_at) < unixepoch('subsec') - 300
ORDER BY time_since_heartbeat DESC;

-- For each queue: how many jobs could start now if a slot were free, how long the first of them has been waiting, and
-- how many slots it would take to start all of them within 30 seconds. Jobs that are delayed, in a paused queue or of a
-- closed source don't count. Counts stop at 10,000 of each kind.
DROP VIEW IF EXISTS rowlock_backlog;
CREATE VIEW rowlock_backlog AS
WITH RECURSIVE
-- The first ready plain job of each (queue, task, priority): a loose scan of the claim index. A unary plus makes a
-- column an expression; otherwise SQLite walks over all rows that equal a part of the key.
lanes (queue, task, priority, run_after, nth) AS (
    SELECT * FROM (
        SELECT j.queue, j.task, j.priority, j.run_after, 1
        FROM rowlock_jobs_live j WHERE j.ready AND j.source IS NULL
        ORDER BY j.queue, j.task, j.priority, j.id LIMIT 1)
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.run_after, l.nth + 1
    FROM lanes l
    JOIN rowlock_jobs_live j ON j.id = (
        SELECT n.id FROM rowlock_jobs_live n
        WHERE n.ready AND n.source IS NULL
          AND (n.queue, n.task, n.priority, n.id)
              > (+l.queue, +l.task, +l.priority, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY n.queue, n.task, n.priority, n.id LIMIT 1)
    WHERE l.nth < 10000
),
-- The first ready job of each (queue, task, priority, source): a loose scan of the index of jobs with a source.
heads (queue, task, priority, source, run_after, nth) AS (
    SELECT * FROM (
        SELECT j.queue, j.task, j.priority, j.source, j.run_after, 1
        FROM rowlock_jobs_live j WHERE j.ready AND j.source IS NOT NULL
        ORDER BY j.queue, j.task, j.priority, j.source, j.id LIMIT 1)
    UNION ALL
    SELECT j.queue, j.task, j.priority, j.source, j.run_after, h.nth + 1
    FROM heads h
    JOIN rowlock_jobs_live j ON j.id = (
        SELECT n.id FROM rowlock_jobs_live n
        WHERE n.ready AND n.source IS NOT NULL
          AND (n.queue, n.task, n.priority, n.source, n.id)
              > (+h.queue, +h.task, +h.priority, +h.source, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY n.queue, n.task, n.priority, n.source, n.id LIMIT 1)
    WHERE h.nth < 10000
),
-- Jobs whose time has come but that no worker has made ready yet, for instance because none is alive.
due AS (
    SELECT j.queue, j.source, j.run_after
    FROM rowlock_jobs_live j
    WHERE NOT j.ready AND j.state <> 'running' AND j.run_after <= unixepoch('subsec')
      AND NOT EXISTS (SELECT 1 FROM rowlock_set_aside a WHERE a.id = j.id)
    ORDER BY j.run_after LIMIT 10000
),
-- Plain jobs by queue, counted from the index, up to 10,000.
plain AS (
    SELECT q.queue,
           (SELECT count(*) FROM (
                SELECT 1 FROM rowlock_jobs_live j WHERE j.ready AND j.source IS NULL AND j.queue = q.queue
                ORDER BY j.task, j.priority, j.id LIMIT 10000)) AS number,
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
                    SELECT 1 FROM rowlock_jobs_live j
                    WHERE j.ready AND j.source IS NOT NULL AND j.queue = h.queue AND j.task = h.task
                      AND j.priority = h.priority AND j.source = h.source
                    ORDER BY j.id LIMIT 1000)) AS number
        FROM heads h
        UNION ALL
        SELECT queue, source, min(run_after), count(*) FROM due WHERE source IS NOT NULL GROUP BY queue, source)
    GROUP BY queue, source
),
-- How many jobs of each source may start: none if it is closed, one as a probe, else up to its limit. With a rate,
-- those of 30 seconds, but at least one, so that an empty bucket doesn't look like an empty queue.
room AS (
    SELECT o.queue, substr(o.source, 1, instr(o.source || ':', ':') - 1) AS class, o.number, o.oldest,
           CASE
               WHEN NOT (coalesce(s.enabled, 1) AND coalesce(c.class_enabled, 1)) THEN 0
               WHEN s.paused_until > unixepoch('subsec') OR c.class_paused_until > unixepoch('subsec') THEN 0
               WHEN s.opened_at IS NOT NULL THEN
                   CASE WHEN EXISTS (
                            SELECT 1 FROM rowlock_jobs_live p
                            WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running')
                        THEN 0 ELSE 1 END
               ELSE min(
                   coalesce(coalesce(s.concurrency, c.concurrency) - (
                       SELECT count(*) FROM rowlock_jobs_live r
                       WHERE r.state = 'running' AND r.source IS NOT NULL
                         AND substr(r.source, 1, instr(r.source || ':', ':') - 1)
                             = substr(o.source, 1, instr(o.source || ':', ':') - 1)
                         AND r.source = o.source), 1000000),
                   coalesce(max(1, ceil(coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) / 2)), 1000000))
           END AS room,
           c.total
    FROM sourced o
    LEFT JOIN rowlock_sources s ON s.name = o.source
    LEFT JOIN rowlock_sources c ON c.name = substr(o.source, 1, instr(o.source || ':', ':') - 1)
),
-- Jobs that may start, by queue: plain jobs, and jobs of each class as far as its total allows.
startable AS (
    SELECT queue, number, oldest FROM plain
    UNION ALL
    SELECT r.queue,
           max(0, min(
               sum(max(0, min(r.number, r.room))),
               coalesce(r.total - (SELECT count(*) FROM rowlock_jobs_live j
                                   WHERE j.state = 'running' AND j.source IS NOT NULL
                                     AND substr(j.source, 1, instr(j.source || ':', ':') - 1) = r.class), 1000000))),
           min(r.oldest) FILTER (WHERE r.room > 0)
    FROM room r GROUP BY r.queue, r.class, r.total
),
running AS (
    SELECT queue, count(*) AS number FROM rowlock_jobs_live
    WHERE state = 'running' AND published IS NOT 'unread' GROUP BY queue
),
-- The mean run time of the thousand newest finished jobs, by queue.
took AS (
    SELECT queue, avg(finished_at - started_at) AS seconds
    FROM (
        SELECT f.queue, f.state, f.started_at, f.finished_at
        FROM rowlock_jobs_finished f ORDER BY f.rowid DESC LIMIT 1000)
    WHERE state = 'succeeded' GROUP BY queue
),
counted AS (
    SELECT queue, sum(number) AS runnable, min(oldest) FILTER (WHERE number > 0) AS oldest
    FROM startable
    WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = startable.queue AND q.paused_at IS NOT NULL)
    GROUP BY queue
)
SELECT coalesce(b.queue, r.queue) AS queue,
       CAST(coalesce(b.runnable, 0) AS INTEGER) AS runnable,
       coalesce(r.number, 0) AS running,
       coalesce(max(0, unixepoch('subsec') - b.oldest), 0) AS oldest_age_seconds,
       t.seconds AS mean_run_seconds,
       -- Slots in use remain needed. If no job has finished yet, assume a run time of one second.
       CAST(coalesce(r.number, 0)
            + coalesce(min(b.runnable, max(1, ceil(b.runnable * coalesce(t.seconds, 1) / 30))), 0) AS INTEGER)
           AS wanted_slots
FROM counted b
FULL JOIN running r ON r.queue = b.queue
LEFT JOIN took t ON t.queue = coalesce(b.queue, r.queue)
ORDER BY 1;
