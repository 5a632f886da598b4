-- Claiming jobs that have a source, in the order of store/sources/claim.py.
--
-- A claim is exact because it counts the running jobs of a source in a statement of its own, after it has locked the
-- source's row: the transaction that held the lock before has committed, and this statement's snapshot is younger than
-- that commit. In one statement the snapshot would be older than the lock.

-- name: look
-- The next sources with ready jobs in each lane, by priority and name, each with its gate. A loose scan of the index of
-- jobs with a source: one probe for each source, whatever the number of its jobs. Locks nothing.
WITH RECURSIVE head (queue, task, most, nth, priority, source) AS (
    -- The place before the first source of each range. Paused queues are left out.
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
        -- If there is none: the first source of the next priority.
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
-- Insert rows for sources and classes that have none, in the order given (the caller sorts them, against deadlocks).
INSERT INTO {t}sources (name, created_at)
SELECT made.name, {now} FROM {rows:made(name text)} WHERE TRUE
ON CONFLICT (name) DO NOTHING;

-- name: lock_classes
-- Lock classes with a total, in order. It waits for locked ones: to skip a class would leave all of its sources idle.
SELECT name FROM {t}sources INDEXED BY sqlite_autoindex_rowlock_sources_1
WHERE name {in:asked(name text)} AND total IS NOT NULL
ORDER BY name
FOR UPDATE;

-- name: lock_sources
-- Lock sources, in order. A source that another claim has locked is skipped.
SELECT name FROM {t}sources INDEXED BY sqlite_autoindex_rowlock_sources_1
WHERE name {in:asked(name text)}
ORDER BY name
FOR UPDATE SKIP LOCKED;

-- name: gates
-- The gates of sources that the caller has locked, and the database's time.
SELECT named.source, {now}, {gate}
FROM {rows:named(source text)}
{one_source(s, named.source)}
{one_source(c, {class(named.source)})};

-- name: read_gates
-- The same for a reader, by plain joins: those above read all columns of a source, a token among them.
SELECT named.source, {now}, {read_gate}
FROM {rows:named(source text)}
LEFT JOIN {t}sources s ON s.name = named.source
LEFT JOIN {t}sources c ON c.name = {class(named.source)};

-- part: turns
-- The turns of this claim: how many jobs to claim of which source.
{rows:turn(queue text, task text, priority int, source text, most int)}

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
    LIMIT least(turn.most, :n)
    FOR UPDATE SKIP LOCKED
) front;

-- name: find_turns [sqlite]
-- The oldest ready jobs of each source and priority. A LIMIT cannot name a turn's own `most` here: :n is the largest.
SELECT front.id, turn.priority, turn.source, turn.queue, turn.task
FROM {part:turns}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_turn}
    LIMIT :n);

-- name: claim_turns [postgres]
-- find_turns and claim_picked in one statement, for claims that take all that they find: it saves a round trip.
UPDATE rowlock.jobs_live j
SET {part:leased}, locked_at = :at, started_at = :at, source_epoch = :epoch
WHERE j.id = ANY (ARRAY (
    SELECT front.id
    FROM {part:turns}
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM rowlock.jobs_live j
        {part:next_of_turn}
        LIMIT turn.most
        FOR UPDATE SKIP LOCKED
    ) front))
  AND j.ready
RETURNING {part:claimed};

-- name: front_turns [sqlite]
-- The oldest ready jobs of each source and priority, as they will be once claimed, for claims that take all that they
-- find: then nothing must be read again after the claim.
SELECT {part:claiming}, front.rowid
FROM {part:turns}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_turn}
    LIMIT :n)
ORDER BY front.priority, front.id;

-- name: claim_front [sqlite]
-- Claim the jobs of :front. The writer lock has kept them as they were read.
UPDATE rowlock_jobs_live
SET {part:leased}, locked_at = :at, started_at = :at, source_epoch = :epoch
WHERE rowid IN (SELECT value FROM json_each(:front)) AND ready;

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
WHERE {part:not_paused};

-- name: find_plain [sqlite]
-- The best ready jobs without a source of each lane: they have one turn together.
SELECT front.id, front.priority, NULL AS source, lane.queue, lane.task
FROM {part:lanes}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_lane}
    LIMIT :n)
WHERE {part:not_paused};

-- part: claim_picked
-- Claim these jobs, which the caller has locked. :at is the time at which the gates of their sources were read.
UPDATE {t}jobs_live
SET {part:leased}, locked_at = :at, started_at = :at, source_epoch = :epoch
WHERE id {in:picked(id uuid)} AND ready

-- name: claim_picked [postgres]
-- Claim, and return the jobs.
{part:claim_picked}
RETURNING {part:claimed};

-- name: claim_picked [sqlite]
-- Claim. `read_picked` reads the rows afterwards, which costs half as much as RETURNING.
{part:claim_picked};

-- name: read_picked [sqlite]
-- The jobs that `claim_picked` has claimed.
SELECT {part:claimed} FROM rowlock_jobs_live WHERE id IN (SELECT picked.id FROM {rows:picked(id uuid)}) AND state = 'running';

-- name: spend
-- Write how many tokens are left in buckets that the caller has locked. `tokens_at` never goes back, so that no stretch of
-- time fills a bucket twice.
UPDATE {t}sources INDEXED BY sqlite_autoindex_rowlock_sources_1
SET tokens = (SELECT spent.tokens FROM {rows:spent(name text, tokens float)} WHERE spent.name = {t}sources.name),
    tokens_at = {greatest(coalesce(tokens_at, :at), :at)}
WHERE name {among(SELECT spent.name FROM {rows:spent(name text, tokens float)})};

-- name: set_probe
-- Store which job is the probe of a half-open breaker. It counts as the probe as long as it runs under this token.
UPDATE {t}sources SET probe_job = :job_id, probe_token = :token WHERE name = :name;
