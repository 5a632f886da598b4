-- Obstacles in the way of one job, in the order of store/read/explain.py.

-- name: is_ready
-- Whether a job is in the claim index, whatever its `run_after`.
SELECT id FROM {t}jobs_live WHERE id = :job_id AND ready;

-- part: of_lane
-- The job is claimable and belongs to the queue and task of `lane`.
j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > {now})

-- part: open_lanes
-- The given lanes, without those of paused queues.
{rows:lane(queue text, task text)}
    WHERE NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)

-- name: line
-- The jobs ahead of a plain job (:priority, :id) in these lanes: plain jobs that come first, jobs of sources in better
-- priorities, and whether jobs of sources in its own priority take turns with it. Each number is counted up to :n per
-- lane. Its own priority is written as a range, not with `=`, for the reason given at source_of_turn.
SELECT coalesce(sum(ahead.plain), 0) AS same_line, coalesce(sum(ahead.sourced), 0) AS other_lines,
       coalesce(sum(ahead.alike), 0) AS turns
FROM (
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE {part:of_lane} AND j.source IS NULL AND (j.priority, j.id) < (:priority, :id)
            ORDER BY j.priority, j.id LIMIT :n) first) AS plain,
        (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE {part:of_lane} AND j.source IS NOT NULL AND j.priority < :priority
            ORDER BY j.priority, j.source, j.id LIMIT :n) first) AS sourced,
        (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE {part:of_lane} AND j.source IS NOT NULL AND j.priority >= :priority AND j.priority <= :priority
            ORDER BY j.priority, j.source, j.id LIMIT 1) first) AS alike
    FROM {part:open_lanes}) ahead;

-- name: line_of_source
-- The jobs ahead of a job (:priority, :id) of :source in these lanes: older jobs of its source, all jobs of better
-- priority, and whether jobs of its own priority take turns with it. These are plain jobs, and jobs of sources whose
-- names come before or after :source.
SELECT coalesce(sum(ahead.own), 0) AS same_line, coalesce(sum(ahead.plain + ahead.sourced), 0) AS other_lines,
       coalesce(sum(ahead.alike_plain + ahead.alike_before + ahead.alike_after), 0) AS turns
FROM (
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE {part:of_lane} AND j.source IS NOT NULL AND j.priority >= :priority AND j.priority <= :priority
              AND j.source >= :source AND j.source <= :source AND j.id < :id
            ORDER BY j.priority, j.source, j.id LIMIT :n) first) AS own,
        (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE {part:of_lane} AND j.source IS NULL AND j.priority < :priority
            ORDER BY j.priority, j.id LIMIT :n) first) AS plain,
        (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE {part:of_lane} AND j.source IS NOT NULL AND j.priority < :priority
            ORDER BY j.priority, j.source, j.id LIMIT :n) first) AS sourced,
        (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE {part:of_lane} AND j.source IS NULL AND j.priority >= :priority AND j.priority <= :priority
            ORDER BY j.priority, j.id LIMIT 1) first) AS alike_plain,
        (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE {part:of_lane} AND j.source IS NOT NULL AND j.priority >= :priority AND j.priority <= :priority
              AND j.source < :source
            ORDER BY j.priority, j.source, j.id LIMIT 1) first) AS alike_before,
        (SELECT count(*) FROM (
            SELECT 1 FROM {t}jobs_live j
            WHERE {part:of_lane} AND j.source IS NOT NULL AND j.priority >= :priority AND j.priority <= :priority
              AND j.source > :source
            ORDER BY j.priority, j.source, j.id LIMIT 1) first) AS alike_after
    FROM {part:open_lanes}) ahead;
