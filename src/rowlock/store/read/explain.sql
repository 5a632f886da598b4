-- What is in the way of one job, in the order of store/read/explain.py.

-- name: is_ready
-- Whether a job may be claimed now, whatever its time.
SELECT id FROM {t}jobs_live WHERE id = :job_id AND ready;

-- part: of_lane
-- The job may be claimed and is of the queue and task of `lane`.
j.ready AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > {now})

-- part: open_lanes
-- The lanes that were given, without those of paused queues.
{rows:lane(queue text, task text)}
    WHERE NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)

-- name: line
-- The jobs before (:priority, :id), a job without a source, in these lanes: older ones without a source, those of sources
-- in better priorities, and whether some of its own priority take turns with it. Each is counted up to :n in each lane. A
-- paused queue has no lane. Its own priority is a range and not `=`: see find_turns.
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
-- The jobs before (:priority, :id), a job of :source, in these lanes: older ones of its source, all others in better
-- priorities, and whether jobs of its own priority take turns with it: jobs without a source, and jobs of sources whose
-- names come before or after its source's.
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
