-- Claiming jobs that have a source, in the order of store/sourced_claim.py.
--
-- A claim is exact because it counts the running jobs of a source in a statement of its own, after it has locked the
-- source's row: whoever held the lock before has committed, and this statement's snapshot is younger than that. In one
-- statement the snapshot would be older than the lock.

-- name: look
-- The next sources with ready jobs in each lane, by priority and name, and how each source stands: a loose scan of the
-- turns index, one probe for each source, whatever the number of its jobs. Reads only.
WITH RECURSIVE head (queue, task, most, nth, priority, source) AS (
    -- Before the first source of each range. A paused queue has none.
    SELECT span.queue, span.task, span.most, 0, span.low_priority, span.low_source
    FROM {rows:span(queue text, task text, low_priority int, low_source text, most int)}
    WHERE NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = span.queue AND q.paused_at IS NOT NULL)
    UNION ALL
    SELECT head.queue, head.task, head.most, head.nth + 1, CAST(following.priority AS int), following.source
    FROM head {one_job(following, coalesce(
        -- The next source of this priority.
        (SELECT j.id FROM {t}jobs_live j
         WHERE j.ready AND j.source IS NOT NULL AND j.queue = {computed(head.queue)} AND j.task = {computed(head.task)}
           AND j.priority = {computed(head.priority)} AND j.source > {computed(head.source)}
         ORDER BY j.priority, j.source, j.id LIMIT 1),
        -- None: the first source of the next priority.
        (SELECT j.id FROM {t}jobs_live j
         WHERE j.ready AND j.source IS NOT NULL AND j.queue = {computed(head.queue)} AND j.task = {computed(head.task)}
           AND j.priority > {computed(head.priority)}
         ORDER BY j.priority, j.source, j.id LIMIT 1)))}
    WHERE head.nth < head.most
)
SELECT named.queue, named.task, named.priority, named.source, named.nth = named.most, {gate}
FROM head named
{one_source(s, named.source)}
{one_source(c, {class(named.source)})}
WHERE named.nth > 0
ORDER BY named.priority, named.nth;

-- name: make_sources
-- Rows for sources and classes that have none yet, in the order given (the caller sorts them).
INSERT INTO {t}sources (name, created_at)
SELECT made.name, {now} FROM {rows:made(name text)} WHERE TRUE
ON CONFLICT (name) DO NOTHING;

-- name: lock_classes
-- Classes with a total, in order. Waited for: passing over one would leave all of its sources idle.
SELECT name FROM {t}sources{by_name()}
WHERE name {among(SELECT asked.name FROM {rows:asked(name text)})} AND total IS NOT NULL
ORDER BY name
{lock()};

-- name: lock_sources
-- Sources that nobody else claims from just now; the others are passed over.
SELECT name FROM {t}sources{by_name()}
WHERE name {among(SELECT asked.name FROM {rows:asked(name text)})}
ORDER BY name
{skip_locked()};

-- name: gates
-- How sources stand, once they are locked, and the moment of it.
SELECT named.source, {now}, {gate}
FROM {rows:named(source text)}
{one_source(s, named.source)}
{one_source(c, {class(named.source)})};

-- name: find_turns [postgres]
-- The oldest ready jobs of each source and priority, locked.
SELECT CAST(front.id AS text), turn.priority, turn.source, turn.queue, turn.task
FROM {rows:turn(queue text, task text, priority int, source text, take int)}
CROSS JOIN LATERAL (
    SELECT j.id
    FROM rowlock.jobs_live j
    WHERE j.ready
      AND j.source IS NOT NULL
      AND j.queue = turn.queue
      AND j.task = turn.task
      AND j.priority = turn.priority
      -- Not `=`: with every column but the id given, the order is that of the ids, and a plan that was made for an empty
      -- table would walk the primary key.
      AND j.source >= turn.source
      AND j.source <= turn.source
      AND (j.expires_at IS NULL OR j.expires_at > {now})
    ORDER BY j.priority, j.source, j.id
    LIMIT least(turn.take, :n)
    FOR UPDATE SKIP LOCKED
) front;

-- name: find_turns [sqlite]
-- The oldest ready jobs of each source and priority. A LIMIT cannot name a turn's own `take` here: :n is the largest.
SELECT front.id, turn.priority, turn.source, turn.queue, turn.task
FROM {rows:turn(queue text, task text, priority int, source text, take int)}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT c.rowid
    FROM rowlock_jobs_live c
    WHERE c.ready
      AND c.source IS NOT NULL
      AND c.queue = turn.queue
      AND c.task = turn.task
      AND c.priority = turn.priority
      AND c.source = turn.source
      AND (c.expires_at IS NULL OR c.expires_at > {now})
    ORDER BY c.priority, c.source, c.id
    LIMIT :n);

-- name: take_turns [postgres]
-- find_turns and take in one, for claims that take all that they find: a statement and a round trip less. On SQLite,
-- where neither costs much, they stay two.
UPDATE rowlock.jobs_live j
SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = :token, locked_by = :worker,
    locked_at = :at, heartbeat_at = {now}, lease_expires_at = {after(:lease)},
    started_at = :at, updated_at = {now}, source_epoch = :epoch
WHERE j.id = ANY (ARRAY (
    SELECT front.id
    FROM {rows:turn(queue text, task text, priority int, source text, take int)}
    CROSS JOIN LATERAL (
        SELECT t.id
        FROM rowlock.jobs_live t
        WHERE t.ready
          AND t.source IS NOT NULL
          AND t.queue = turn.queue
          AND t.task = turn.task
          AND t.priority = turn.priority
          AND t.source >= turn.source
          AND t.source <= turn.source
          AND (t.expires_at IS NULL OR t.expires_at > {now})
        ORDER BY t.priority, t.source, t.id
        LIMIT turn.take
        FOR UPDATE SKIP LOCKED
    ) front))
  AND j.ready
RETURNING {claimed};

-- name: find_plain [postgres]
-- The best ready jobs without a source of each lane, locked: they have one turn together.
SELECT CAST(front.id AS text), front.priority, CAST(NULL AS text) AS source, lane.queue, lane.task
FROM {rows:lane(queue text, task text, low_priority int, low_id uuid, high_priority int, take int)}
CROSS JOIN LATERAL (
    SELECT j.id, j.priority
    FROM rowlock.jobs_live j
    WHERE j.ready
      AND j.source IS NULL
      AND j.queue = lane.queue
      AND j.task = lane.task
      AND (j.priority, j.id) > (lane.low_priority, lane.low_id)
      AND j.priority < lane.high_priority
      AND (j.expires_at IS NULL OR j.expires_at > {now})
    ORDER BY j.priority, j.id
    LIMIT :n
    FOR UPDATE SKIP LOCKED
) front
WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL);

-- name: find_plain [sqlite]
-- The best ready jobs without a source of each lane: they have one turn together.
SELECT front.id, front.priority, NULL AS source, lane.queue, lane.task
FROM {rows:lane(queue text, task text, low_priority int, low_id uuid, high_priority int, take int)}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT c.rowid
    FROM rowlock_jobs_live c
    WHERE c.ready
      AND c.source IS NULL
      AND c.queue = lane.queue
      AND c.task = lane.task
      AND (c.priority, c.id) > (lane.low_priority, lane.low_id)
      AND c.priority < lane.high_priority
      AND (c.expires_at IS NULL OR c.expires_at > {now})
    ORDER BY c.priority, c.id
    LIMIT :n)
WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL);

-- name: take [postgres]
-- Claim these jobs, which the caller has locked, at the moment for which their sources were asked.
UPDATE rowlock.jobs_live j
SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = :token, locked_by = :worker,
    locked_at = :at, heartbeat_at = {now}, lease_expires_at = {after(:lease)},
    started_at = :at, updated_at = {now}, source_epoch = :epoch
WHERE j.id {among(SELECT picked.id FROM {rows:picked(id uuid)})} AND j.ready
RETURNING {claimed};

-- name: take [sqlite]
-- Claim these jobs at the moment for which their sources were asked.
UPDATE rowlock_jobs_live
SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = :token, locked_by = :worker,
    locked_at = :at, heartbeat_at = {now}, lease_expires_at = {after(:lease)},
    started_at = :at, updated_at = {now}, source_epoch = :epoch
WHERE id IN (SELECT picked.id FROM {rows:picked(id uuid)}) AND ready;

-- name: taken [sqlite]
-- What the statement before it took.
SELECT {claimed} FROM rowlock_jobs_live WHERE id IN (SELECT picked.id FROM {rows:picked(id uuid)}) AND state = 'running';

-- name: spend
-- Take tokens out of buckets that the caller has locked. The moment never goes back, so that none is filled twice.
UPDATE {t}sources{by_name()}
SET tokens = (SELECT spent.tokens FROM {rows:spent(name text, tokens float)} WHERE spent.name = {t}sources.name),
    tokens_at = {greatest(coalesce(tokens_at, :at), :at)}
WHERE name {among(SELECT spent.name FROM {rows:spent(name text, tokens float)})};

-- name: set_probe
-- Remember the one job that tries out a source whose breaker is half open. It counts as long as it runs.
UPDATE {t}sources SET probe_job = :job_id, probe_token = :token WHERE name = :name;
