-- What is in the way of one job, in the order of store/read/explain.py.

-- name: is_ready
-- Whether a job may be claimed now, whatever its time.
SELECT id FROM {t}jobs_live WHERE id = :job_id AND ready;

-- part: jobs_ahead(source | which | order | most)
-- How many jobs of `lane` that may be claimed fit the condition `which`, up to `most`.
(
        SELECT count(*) FROM (
            SELECT 1
            FROM {t}jobs_live j
            WHERE j.ready
              AND j.source {source}
              AND {which}
              AND j.queue = lane.queue
              AND j.task = lane.task
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY {order}
            LIMIT {most}) first)

-- part: plain_ahead(which | most)
-- `jobs_ahead` among the jobs without a source.
{part:jobs_ahead(IS NULL | {which} | j.priority, j.id | {most})}

-- part: sourced_ahead(which | most)
-- `jobs_ahead` among the jobs with a source.
{part:jobs_ahead(IS NOT NULL | {which} | j.priority, j.source, j.id | {most})}

-- part: own_priority
-- A range and not `=`: see find_turns.
j.priority >= :priority AND j.priority <= :priority

-- part: open_lanes
-- The lanes that were given, without those of paused queues.
{rows:lane(queue text, task text)}
    WHERE NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)

-- name: line
-- The jobs before (:priority, :id), a job without a source, in these lanes: older ones without a source, those of sources
-- in better priorities, and whether some of its own priority take turns with it. Each is counted up to :n in each lane. A
-- paused queue has no lane.
SELECT coalesce(sum(ahead.plain), 0) AS same_line, coalesce(sum(ahead.sourced), 0) AS other_lines,
       coalesce(sum(ahead.alike), 0) AS turns
FROM (
    SELECT {part:plain_ahead((j.priority, j.id) < (:priority, :id) | :n)} AS plain,
           {part:sourced_ahead(j.priority < :priority | :n)} AS sourced,
           {part:sourced_ahead({part:own_priority} | 1)} AS alike
    FROM {part:open_lanes}) ahead;

-- name: line_of_source
-- The jobs before (:priority, :id), a job of :source, in these lanes: older ones of its source, all others in better
-- priorities, and whether jobs of its own priority take turns with it: jobs without a source, and jobs of sources whose
-- names come before or after its source's.
SELECT coalesce(sum(ahead.own), 0) AS same_line, coalesce(sum(ahead.plain + ahead.sourced), 0) AS other_lines,
       coalesce(sum(ahead.alike_plain + ahead.alike_before + ahead.alike_after), 0) AS turns
FROM (
    SELECT {part:sourced_ahead({part:own_priority} AND j.source >= :source AND j.source <= :source AND j.id < :id | :n)} AS own,
           {part:plain_ahead(j.priority < :priority | :n)} AS plain,
           {part:sourced_ahead(j.priority < :priority | :n)} AS sourced,
           {part:plain_ahead({part:own_priority} | 1)} AS alike_plain,
           {part:sourced_ahead({part:own_priority} AND j.source < :source | 1)} AS alike_before,
           {part:sourced_ahead({part:own_priority} AND j.source > :source | 1)} AS alike_after
    FROM {part:open_lanes}) ahead;
