-- Claiming jobs that have a source, in the order of store/sourced_claim.py.
--
-- A claim is exact because it counts the running jobs of a source in a statement of its own, after it has locked the
-- source's row: the transaction that held the lock before has committed, and this statement's snapshot is younger than
-- that commit. In one statement the snapshot would be older than the lock.

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

-- part: turns
-- The turns of this claim: how many jobs to take of which source.
{rows:turn(queue text, task text, priority int, source text, take int)}

-- part: next_of_turn
-- Of the jobs `j`, the ready ones of `turn`, oldest first: one range of the turns index.
WHERE j.ready
  AND j.source IS NOT NULL
  AND j.queue = turn.queue
  AND j.task = turn.task
  AND j.priority = turn.priority
  AND {equal_by_range(j.source, turn.source)}
  AND (j.expires_at IS NULL OR j.expires_at > {now})
ORDER BY j.priority, j.source, j.id

-- name: find_turns [postgres]
-- The oldest ready jobs of each source and priority, locked.
SELECT CAST(front.id AS text), turn.priority, turn.source, turn.queue, turn.task
FROM {part:turns}
CROSS JOIN LATERAL (
    SELECT j.id
    FROM rowlock.jobs_live j
    {part:next_of_turn}
    LIMIT least(turn.take, :n)
    FOR UPDATE SKIP LOCKED
) front;

-- name: find_turns [sqlite]
-- The oldest ready jobs of each source and priority. A LIMIT cannot name a turn's own `take` here: :n is the largest.
SELECT front.id, turn.priority, turn.source, turn.queue, turn.task
FROM {part:turns}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_turn}
    LIMIT :n);

-- name: take_turns [postgres]
-- find_turns and take in one, for claims that take all that they find: a statement and a round trip less. On SQLite,
-- where neither costs much, they stay two.
UPDATE rowlock.jobs_live j
{part:leased(:at)}, source_epoch = :epoch
WHERE j.id = ANY (ARRAY (
    SELECT front.id
    FROM {part:turns}
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM rowlock.jobs_live j
        {part:next_of_turn}
        LIMIT turn.take
        FOR UPDATE SKIP LOCKED
    ) front))
  AND j.ready
RETURNING {claimed};

-- name: find_plain [postgres]
-- The best ready jobs without a source of each lane, locked: they have one turn together.
SELECT CAST(front.id AS text), front.priority, CAST(NULL AS text) AS source, lane.queue, lane.task
FROM {part:lanes}
CROSS JOIN LATERAL (
    SELECT j.id, j.priority
    FROM rowlock.jobs_live j
    {part:next_of_lane}
    LIMIT :n
    FOR UPDATE SKIP LOCKED
) front
WHERE {part:not_paused(lane)};

-- name: find_plain [sqlite]
-- The best ready jobs without a source of each lane: they have one turn together.
SELECT front.id, front.priority, NULL AS source, lane.queue, lane.task
FROM {part:lanes}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_lane}
    LIMIT :n)
WHERE {part:not_paused(lane)};

-- part: take
-- Claim these jobs, which the caller has locked, at the moment for which their sources were asked.
UPDATE {t}jobs_live
{part:leased(:at)}, source_epoch = :epoch
WHERE id {part:one_of(picked)} AND ready

-- name: take [postgres]
-- Claim and answer in one.
{part:take}
RETURNING {claimed};

-- name: take [sqlite]
-- The claim alone: RETURNING would cost as much again as `taken`, which reads the rows.
{part:take};

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
