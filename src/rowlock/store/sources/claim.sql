-- Claim jobs that have a source, in the order of store/sources/claim.py.
--
-- Limits are exact because a claim first locks the source's row and then counts its running jobs in a separate
-- statement. By then the transaction that held the lock before has committed, and the counting statement's snapshot is
-- younger than that commit. In a single statement, the snapshot would be older than the lock.
--
-- INDEXED BY makes SQLite find sources by name. With statistics from a time with two sources, it would read all 20,000.

-- part: limits
-- The first columns of core.sources.admission.Gate, from the source's row `s` and its class's row `c`: limits, pause
-- and breaker. A source's own setting overrides its class's; of the two pauses, the one that ends later counts.
coalesce(s.concurrency, c.concurrency), c.total,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute),
       CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END,
       coalesce(s.enabled, TRUE) AND coalesce(c.class_enabled, TRUE),
       {seconds_until({greatest(coalesce(s.paused_until, c.class_paused_until),
                                coalesce(c.class_paused_until, s.paused_until))})},
       s.opened_at IS NOT NULL

-- part: usage
-- The last columns of Gate: the token bucket, the epoch, the running jobs of the source `named` and of its class
-- (counted only if there is a limit), and whether the source has a row.
s.tokens, -{seconds_until(s.tokens_at)}, coalesce(s.epoch, 0),
       CASE WHEN coalesce(s.concurrency, c.concurrency) IS NOT NULL THEN (
            SELECT count(*) FROM {t}jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL
              AND {class(r.source)} = {computed(c.name)} AND r.source = named.source
              AND (SELECT 1 FROM {t}set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > {now}, TRUE)) IS NULL) END,
       CASE WHEN c.total IS NOT NULL THEN (
            SELECT count(*) FROM {t}jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL AND {class(r.source)} = {computed(c.name)}
              AND (SELECT 1 FROM {t}set_aside a
                   WHERE a.id = r.id AND coalesce(a.again_at > {now}, TRUE)) IS NULL) END,
       s.name IS NOT NULL

-- part: probing
-- Whether a probe for the half-open breaker of `s` is running.
(SELECT 1 FROM {t}jobs_live p
        WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running'
          AND (SELECT 1 FROM {t}set_aside a
               WHERE a.id = p.id AND coalesce(a.again_at > {now}, TRUE)) IS NULL) IS NOT NULL

-- part: gate
-- All columns of Gate, for the source `named`.
{part:limits},
       {part:probing},
       {part:usage}

-- part: read_gate [postgres]
-- All columns of Gate, for a role that may only read. It must not see lease tokens, with which it could end a job in
-- its worker's place, so a function tells whether a probe is running.
{part:limits},
       coalesce(rowlock._probes(s.name, {now}), FALSE),
       {part:usage}

-- part: read_gate [sqlite]
-- All columns of Gate: a process that can read the file can read tokens anyway.
{part:gate}

-- part: join_source_and_class [postgres]
-- Join the row `s` of the source `named` and the row `c` of its class, if they exist. LATERAL with LIMIT, because a
-- plain join may be planned as a product of both tables while they are empty.
LEFT JOIN LATERAL (SELECT * FROM rowlock.sources WHERE name = named.source LIMIT 1) s ON TRUE
LEFT JOIN LATERAL (SELECT * FROM rowlock.sources WHERE name = split_part(named.source, ':', 1) LIMIT 1) c ON TRUE

-- part: join_source_and_class [sqlite]
-- Join the row `s` of the source `named` and the row `c` of its class, if they exist.
LEFT JOIN rowlock_sources s INDEXED BY sqlite_autoindex_rowlock_sources_1 ON s.name = named.source
LEFT JOIN rowlock_sources c INDEXED BY sqlite_autoindex_rowlock_sources_1
    ON c.name = substr(named.source, 1, instr(named.source || ':', ':') - 1)

-- part: next_source
-- The first job of the source that follows `head`, in the order of priority and name.
coalesce(
        -- The next source of this priority.
        (SELECT j.id FROM {t}jobs_live j
         WHERE j.ready AND j.source IS NOT NULL AND j.queue = {computed(head.queue)} AND j.task = {computed(head.task)}
           AND j.priority = {computed(head.priority)} AND j.source > {computed(head.source)}
         ORDER BY j.priority, j.source, j.id LIMIT 1),
        -- If there is none, the first source of the next priority.
        (SELECT j.id FROM {t}jobs_live j
         WHERE j.ready AND j.source IS NOT NULL AND j.queue = {computed(head.queue)} AND j.task = {computed(head.task)}
           AND j.priority > {computed(head.priority)}
         ORDER BY j.priority, j.source, j.id LIMIT 1))

-- part: join_next_source [postgres]
-- That job, as `following`. LATERAL with LIMIT, as in join_source_and_class.
CROSS JOIN LATERAL (SELECT * FROM rowlock.jobs_live WHERE id = {part:next_source} LIMIT 1) following

-- part: join_next_source [sqlite]
-- That job, as `following`.
JOIN rowlock_jobs_live following ON following.id = {part:next_source}

-- name: look
-- The next sources with ready jobs in each lane, by priority and name, each with its gate. A loose index scan of the
-- jobs with a source: one probe for each source, however many jobs it has. Takes no locks.
WITH RECURSIVE head (queue, task, most, nth, priority, source) AS (
    -- The position before the first source of each range, without paused queues.
    SELECT span.queue, span.task, span.most, 0, span.low_priority, span.low_source
    FROM {rows:span(queue text, task text, low_priority int, low_source text, most int)}
    WHERE NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = span.queue AND q.paused_at IS NOT NULL)
    UNION ALL
    -- One source after the other, up to the range's `most`.
    SELECT head.queue, head.task, head.most, head.nth + 1, CAST(following.priority AS int), following.source
    FROM head
    {part:join_next_source}
    WHERE head.nth < head.most
)
SELECT named.queue, named.task, named.priority, named.source, named.nth = named.most, {part:gate}
FROM head named
{part:join_source_and_class}
WHERE named.nth > 0
ORDER BY named.priority, named.nth;

-- name: make_sources
-- Insert rows for sources and classes that have none, in the order given (the caller sorts them to avoid deadlocks).
INSERT INTO {t}sources (name, created_at)
SELECT made.name, {now} FROM {rows:made(name text)} WHERE TRUE
ON CONFLICT (name) DO NOTHING;

-- name: lock_classes
-- Lock classes with a total, in order. Waits for locked ones: skipping a class would leave all of its sources idle.
SELECT name FROM {t}sources INDEXED BY sqlite_autoindex_rowlock_sources_1
WHERE name {in:asked(name text)} AND total IS NOT NULL
ORDER BY name
FOR UPDATE;

-- name: lock_sources
-- Lock sources, in order, skipping those that another claim has locked.
SELECT name FROM {t}sources INDEXED BY sqlite_autoindex_rowlock_sources_1
WHERE name {in:asked(name text)}
ORDER BY name
FOR UPDATE SKIP LOCKED;

-- name: gates
-- The gates of sources that the caller has locked, and the database's time.
SELECT named.source, {now}, {part:gate}
FROM {rows:named(source text)}
{part:join_source_and_class};

-- name: read_gates
-- The gates of sources, for a role that may only read. Plain joins, because the joins of `gates` read all columns of a
-- source, including a token.
SELECT named.source, {now}, {part:read_gate}
FROM {rows:named(source text)}
LEFT JOIN {t}sources s ON s.name = named.source
LEFT JOIN {t}sources c ON c.name = {class(named.source)};

-- part: turns
-- The turns of this claim: how many jobs to claim from which source. A queue may have been paused since the look.
(SELECT turn.* FROM {rows:turn(queue text, task text, priority int, source text, most int)}
 WHERE NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = turn.queue AND q.paused_at IS NOT NULL)) turn

-- part: source_of_turn [postgres]
-- The job's source is the turn's, written as a range. With `=` for every index column except the last, the id, the
-- requested order would be that of ids, and a plan made for an empty table would walk the primary key.
j.source >= turn.source AND j.source <= turn.source

-- part: source_of_turn [sqlite]
-- The job's source is the turn's.
j.source = turn.source

-- part: next_of_turn
-- The ready jobs `j` of `turn`, oldest first: one range of the index of jobs with a source.
WHERE j.ready
  AND j.source IS NOT NULL
  AND j.queue = turn.queue
  AND j.task = turn.task
  AND j.priority = turn.priority
  AND {part:source_of_turn}
  AND (j.expires_at IS NULL OR j.expires_at > {now})
ORDER BY j.priority, j.source, j.id

-- name: find_turns [postgres]
-- The oldest ready jobs of each turn, locked.
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
-- The oldest ready jobs of each turn. LIMIT can't refer to a turn's own `most` here, so :n is the largest of them.
SELECT front.id, turn.priority, turn.source, turn.queue, turn.task
FROM {part:turns}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_turn}
    LIMIT :n);

-- name: claim_turns [postgres]
-- find_turns and claim_picked in one statement, which saves a round trip for claims that take every job they find. :at
-- is the time when the gates were read.
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
-- The oldest ready jobs of each turn, with the values that they will have once claimed. For claims that take every job
-- they find, and so don't need to read the rows again after the claim.
SELECT {part:claiming}, front.rowid
FROM {part:turns}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_turn}
    LIMIT :n)
ORDER BY front.priority, front.id;

-- name: find_plain [postgres]
-- The best ready jobs without a source of each lane, locked. All of them share one turn.
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
-- The best ready jobs without a source of each lane. All of them share one turn.
SELECT front.id, front.priority, NULL AS source, lane.queue, lane.task
FROM {part:lanes}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT j.rowid
    FROM rowlock_jobs_live j
    {part:next_of_lane}
    LIMIT :n)
WHERE {part:not_paused};

-- name: spend
-- Write how many tokens are left in buckets that the caller has locked. `tokens_at` never goes back, because otherwise
-- a period would fill the bucket twice.
UPDATE {t}sources INDEXED BY sqlite_autoindex_rowlock_sources_1
SET tokens = (SELECT spent.tokens FROM {rows:spent(name text, tokens float)} WHERE spent.name = {t}sources.name),
    tokens_at = {greatest(coalesce(tokens_at, :at), :at)}
WHERE name {among(SELECT spent.name FROM {rows:spent(name text, tokens float)})};

-- name: set_probe
-- Store which job is the probe of a half-open breaker. It counts as the probe while it runs under this token.
UPDATE {t}sources SET probe_job = :job_id, probe_token = :token WHERE name = :name;
