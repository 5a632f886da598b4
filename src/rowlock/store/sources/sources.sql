-- Settings and state of sources, in the order of sources.py.

-- name: source_known
-- Whether a source or class is known: it has a row, its class has one, or a live job names it. Only the last check
-- reads all live jobs, and only if the first two fail.
SELECT 1 AS known
WHERE EXISTS (SELECT 1 FROM {t}sources WHERE name = :name OR name = :class_name)
   OR EXISTS (SELECT 1 FROM {t}jobs_live WHERE source = :name OR {class(source)} = :name);

-- name: source_classes
-- The known classes, whose names have no colon.
SELECT name FROM {t}sources WHERE name NOT LIKE '%:%' ORDER BY name LIMIT 50;

-- part: policy
-- The settings of the source or class `s`: the fields of core.sources.policy.Policy.
s.concurrency, s.total, s.rate_limit_per_minute AS rate, s.burst, s.failure_threshold AS threshold,
       s.cooldown_seconds AS cooldown, s.cooldown_factor AS factor, s.block_after, s.set_by

-- name: lock_policy
-- The settings of one source or class, locked.
SELECT {part:policy} FROM {t}sources s WHERE name = :name
FOR UPDATE;

-- name: write_policy
-- Write the settings of one source or class.
UPDATE {t}sources
SET concurrency = :concurrency, total = :total, rate_limit_per_minute = :rate, burst = :burst,
    failure_threshold = :threshold, cooldown_seconds = :cooldown, cooldown_factor = :factor,
    block_after = :block_after, set_by = :set_by
WHERE name = :name;

-- name: pause_source
-- Pause a source for :seconds, or until it is resumed (NULL). A longer pause is kept. If :whole is 1, the name is that
-- of a class: all of its sources are paused, including the source that is named like the class.
UPDATE {t}sources
SET enabled = CASE WHEN CAST(:seconds AS double precision) IS NULL THEN FALSE ELSE enabled END,
    paused_until = CASE WHEN CAST(:seconds AS double precision) IS NULL THEN paused_until
                        ELSE {greatest(coalesce(paused_until, {after(:seconds)}), {after(:seconds)})} END,
    paused_at = CASE WHEN CAST(:seconds AS double precision) IS NULL OR paused_until >= {after(:seconds)} THEN paused_at
                     ELSE {now} END,
    class_enabled = CASE WHEN :whole = 1 AND CAST(:seconds AS double precision) IS NULL THEN FALSE
                         ELSE class_enabled END,
    class_paused_until = CASE
        WHEN :whole = 0 OR CAST(:seconds AS double precision) IS NULL THEN class_paused_until
        ELSE {greatest(coalesce(class_paused_until, {after(:seconds)}), {after(:seconds)})} END,
    class_paused_at = CASE
        WHEN :whole = 0 OR CAST(:seconds AS double precision) IS NULL OR class_paused_until >= {after(:seconds)}
        THEN class_paused_at ELSE {now} END
WHERE name = :name
RETURNING name;

-- name: resume_source
-- End a pause or a block, and close the breaker. The epoch grows, so that older attempts don't count for the breaker.
UPDATE {t}sources
SET enabled = TRUE, paused_until = NULL, paused_at = NULL, class_enabled = TRUE, class_paused_until = NULL,
    class_paused_at = NULL, opened_at = NULL, opens = 0, failure_streak = 0, refusals = 0, epoch = epoch + 1,
    probe_job = NULL, probe_token = NULL
WHERE name = :name
RETURNING name;

-- name: list_sources
-- Sources after :name: their own settings, the ones in effect (with their class's), their state and their running jobs.
SELECT s.name, {part:policy}, s.enabled, {time(s.paused_until)} AS paused_until, s.failure_streak,
       {time(s.opened_at)} AS opened_at, s.opens, {time(s.last_success_at)} AS last_success_at,
       {time(s.last_failure_at)} AS last_failure_at, s.last_error, s.refusals, {time(s.refused_at)} AS refused_at,
       s.refusal_code,
       (SELECT count(*) FROM {t}jobs_live r
        WHERE r.state = 'running' AND r.source IS NOT NULL
          AND {class(r.source)} = {class(s.name)} AND r.source = s.name) AS running,
       (SELECT count(*) FROM {t}jobs_live r
        WHERE r.state = 'running' AND r.source IS NOT NULL AND {class(r.source)} = s.name) AS class_running,
       coalesce(s.concurrency, c.concurrency) AS effective_concurrency,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate_limit_per_minute,
       coalesce(c.class_enabled, TRUE) AS class_enabled, {time(c.class_paused_until)} AS class_paused_until
FROM {t}sources s
LEFT JOIN {t}sources c ON c.name = {class(s.name)}
WHERE s.name > :name
  AND CASE WHEN CAST(:only AS text) IS NULL THEN TRUE ELSE s.name = :only END
  AND (:refused = 0 OR s.refusals >= :refused)
ORDER BY s.name
LIMIT :n;

-- part: bucket
-- The token bucket of the source `s` of class `c`: the rate and burst in effect, the tokens that it had at its last
-- write, and how many seconds ago that was.
coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate,
           CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END AS burst,
           s.tokens, -{seconds_until(s.tokens_at)} AS elapsed

-- name: busy_sources
-- Closed sources, then sources with running jobs, each with its limits, breaker and token bucket.
WITH running AS (
    -- Count the running jobs once, not once for each source.
    SELECT r.source, count(*) AS number FROM {t}jobs_live r
    WHERE r.state = 'running' AND r.source IS NOT NULL
    GROUP BY r.source
), standing AS (
    -- All sources with their settings in effect.
    SELECT s.name, coalesce(r.number, 0) AS running, coalesce(s.concurrency, c.concurrency) AS concurrency,
           {part:bucket}, s.failure_streak,
           {seconds_until({greatest(coalesce(s.paused_until, c.class_paused_until),
                                    coalesce(c.class_paused_until, s.paused_until))})} AS paused_for,
           s.enabled AND coalesce(c.class_enabled, TRUE) AS enabled, s.opened_at IS NOT NULL AS opened
    FROM {t}sources s
    LEFT JOIN {t}sources c ON c.name = {class(s.name)}
    LEFT JOIN running r ON r.source = s.name
)
SELECT * FROM standing
WHERE running > 0 OR NOT enabled OR opened OR coalesce(paused_for, 0) > 0
ORDER BY CASE WHEN NOT enabled OR opened OR coalesce(paused_for, 0) > 0 THEN 0 ELSE 1 END, name
LIMIT :n;

-- name: source_levels
-- The state and the token bucket of each source (not class); sources with settings come first. One pass over at most
-- :n rows, without counting jobs.
SELECT s.name,
       s.enabled AND coalesce(c.class_enabled, TRUE) AS enabled,
       coalesce(s.paused_until > {now}, FALSE) OR coalesce(c.class_paused_until > {now}, FALSE) AS paused,
       s.opened_at IS NOT NULL AS opened,
       {part:bucket}
FROM {t}sources s LEFT JOIN {t}sources c ON c.name = {class(s.name)}
WHERE s.name LIKE '%:%'
ORDER BY CASE WHEN s.set_by IS NULL THEN 1 ELSE 0 END, s.name
LIMIT :n;

-- name: source_tokens
-- The token buckets of these sources.
SELECT s.name, {part:bucket}
FROM {t}sources s LEFT JOIN {t}sources c ON c.name = {class(s.name)}
WHERE s.name {in:asked(name text)};

-- name: set_by_config
-- Sources and classes whose settings a config file has written.
SELECT name FROM {t}sources WHERE set_by = 'config' ORDER BY name LIMIT :n;

-- name: pauses
-- The current pauses of a source and of its whole class, each with its end, if it has one.
SELECT name, enabled, CASE WHEN until > {now} THEN {time(until)} END AS until
FROM (
    SELECT name, enabled, paused_until AS until FROM {t}sources WHERE name = :source
    UNION ALL
    SELECT name, class_enabled, class_paused_until FROM {t}sources WHERE name = :class_name AND name <> :source) paused
WHERE NOT enabled OR until > {now}
ORDER BY name DESC;

-- name: source_running
-- The jobs that run on a source, or on all sources of the class if :source is NULL, oldest first.
SELECT CAST(r.id AS text) AS id, r.locked_by FROM {t}jobs_live r
WHERE r.state = 'running' AND r.source IS NOT NULL AND {class(r.source)} = :class_name
  AND CASE WHEN CAST(:source AS text) IS NULL THEN TRUE ELSE r.source = :source END
ORDER BY r.id
LIMIT :n;

-- name: prune_sources
-- Delete sources without settings, pause or block that were last used more than -:ago seconds ago. A breaker that has
-- been half open for that long counts as unused. A row whose token bucket is not full yet stays, because a new row
-- would start with a full one: `burst` tokens, by default those of one second, but at least one.
DELETE FROM {t}sources
WHERE name IN (
    SELECT s.name FROM {t}sources s LEFT JOIN {t}sources c ON c.name = {class(s.name)}
    WHERE s.name LIKE '%:%' AND s.set_by IS NULL AND s.enabled
      AND s.refusals = 0 AND (s.paused_until IS NULL OR s.paused_until <= {now})
      AND (s.opened_at IS NULL OR s.paused_until IS NULL OR s.paused_until < {after(:ago)})
      AND coalesce(s.last_success_at, s.last_failure_at, s.created_at) < {after(:ago)}
      AND coalesce(s.last_failure_at, s.last_success_at, s.created_at) < {after(:ago)}
      AND coalesce(s.tokens_at, s.created_at) < {after(:ago)}
      AND (s.tokens_at IS NULL OR c.rate_limit_per_minute IS NULL
           OR -{seconds_until(s.tokens_at)} * c.rate_limit_per_minute / 60
              >= coalesce(c.burst, {greatest(1, c.rate_limit_per_minute / 60)}))
    LIMIT :n)
RETURNING name;
