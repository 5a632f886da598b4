-- Policy and health of sources for people, in the order of store/sources.py.

-- name: source_known
-- Whether the source or class, the class of it, or a job of it is there. The last one reads all live jobs, and only for a
-- name that is otherwise unknown.
SELECT 1 AS known WHERE EXISTS (SELECT 1 FROM {t}sources WHERE name = :name OR name = :group)
            OR EXISTS (SELECT 1 FROM {t}jobs_live WHERE source = :name OR {class(source)} = :name);

-- name: source_classes
-- The classes that are there.
SELECT name FROM {t}sources WHERE name NOT LIKE '%:%' ORDER BY name LIMIT 50;

-- name: lock_policy
-- The settings of one source or class, locked.
SELECT concurrency, total, rate_limit_per_minute, burst, failure_threshold, cooldown_seconds, cooldown_factor,
       block_after, set_by
FROM {t}sources WHERE name = :name
{lock()};

-- name: write_policy
-- New settings of one source or class.
UPDATE {t}sources
SET concurrency = :concurrency, total = :total, rate_limit_per_minute = :rate, burst = :burst,
    failure_threshold = :threshold, cooldown_seconds = :cooldown, cooldown_factor = :factor,
    block_after = :block_after, set_by = :set_by
WHERE name = :name;

-- name: pause_source
-- No more claims, for :seconds or until it is resumed. A longer pause that is there already stays. A class (:whole) is
-- paused with all of its sources, the one of its own name among them.
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
-- Claims go on: no pause, a closed breaker, no block. Its epoch grows, so that what still runs from before says
-- nothing about it any more.
UPDATE {t}sources
SET enabled = TRUE, paused_until = NULL, paused_at = NULL, class_enabled = TRUE, class_paused_until = NULL,
    class_paused_at = NULL, opened_at = NULL, opens = 0, failure_streak = 0, refusals = 0, epoch = epoch + 1,
    probe_job = NULL, probe_token = NULL
WHERE name = :name
RETURNING name;

-- name: list_sources
-- Sources after :name, with their own settings, those of their class, how they stand and how many jobs run.
SELECT s.name, s.concurrency, s.total, s.rate_limit_per_minute, s.burst, s.failure_threshold, s.cooldown_seconds,
       s.cooldown_factor, s.block_after, s.set_by, s.enabled, {time(s.paused_until)} AS paused_until, s.failure_streak,
       {time(s.opened_at)} AS opened_at, s.opens, {time(s.last_success_at)} AS last_success_at,
       {time(s.last_failure_at)} AS last_failure_at, s.last_error, s.refusals, {time(s.refused_at)} AS refused_at,
       s.refusal_code,
       (SELECT count(*) FROM {t}jobs_live r
        WHERE r.state = 'running' AND r.source IS NOT NULL
          AND {class(r.source)} = {class(s.name)} AND r.source = s.name) AS running,
       (SELECT count(*) FROM {t}jobs_live r
        WHERE r.state = 'running' AND r.source IS NOT NULL AND {class(r.source)} = s.name) AS class_running,
       coalesce(s.concurrency, c.concurrency) AS effective_concurrency,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS effective_rate,
       c.class_enabled, {time(c.class_paused_until)} AS class_paused_until
FROM {t}sources s
LEFT JOIN {t}sources c ON c.name = {class(s.name)}
WHERE s.name > :name
  AND CASE WHEN CAST(:only AS text) IS NULL THEN TRUE ELSE s.name = :only END
  AND (:refused = 0 OR s.refusals >= :refused)
ORDER BY s.name
LIMIT :n;

-- name: busy_sources
-- Closed sources, then sources with running jobs: limits, breaker and token bucket of each.
WITH running AS (
    SELECT r.source, count(*) AS number FROM {t}jobs_live r
    WHERE r.state = 'running' AND r.source IS NOT NULL
    GROUP BY r.source
), standing AS (
    SELECT s.name, coalesce(r.number, 0) AS running, coalesce(s.concurrency, c.concurrency) AS concurrency,
           coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate,
           CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END AS burst,
           s.tokens, -{seconds_until(s.tokens_at)} AS elapsed, s.failure_streak,
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

-- name: set_by_config
-- Sources and classes whose settings a config has written.
SELECT name FROM {t}sources WHERE set_by = 'config' ORDER BY name LIMIT :n;

-- name: class_closed
-- Whether a whole class is paused, and until when if somebody said so.
SELECT class_enabled AS enabled, CASE WHEN class_paused_until > {now} THEN {time(class_paused_until)} END AS until
FROM {t}sources
WHERE name = :group AND (NOT class_enabled OR class_paused_until > {now});

-- name: source_closed
-- Whether a source itself is paused, and until when.
SELECT enabled, CASE WHEN paused_until > {now} THEN {time(paused_until)} END AS until
FROM {t}sources
WHERE name = :source AND (NOT enabled OR paused_until > {now});

-- name: put_sources_right
-- Correct times that were written while the clock was ahead: buckets keep their tokens and fill from now on, and pauses,
-- those of breakers too, keep their length.
UPDATE {t}sources
SET tokens_at = CASE WHEN tokens_at > {now} THEN {now} ELSE tokens_at END,
    paused_until = CASE WHEN paused_at > {now}
                        THEN {after({seconds_until(paused_until)} - {seconds_until(paused_at)})} ELSE paused_until END,
    paused_at = CASE WHEN paused_at > {now} THEN {now} ELSE paused_at END,
    class_paused_until = CASE
        WHEN class_paused_at > {now} THEN {after({seconds_until(class_paused_until)} - {seconds_until(class_paused_at)})}
        ELSE class_paused_until END,
    class_paused_at = CASE WHEN class_paused_at > {now} THEN {now} ELSE class_paused_at END,
    opened_at = CASE WHEN opened_at > {now} THEN {now} ELSE opened_at END,
    last_success_at = CASE WHEN last_success_at > {now} THEN {now} ELSE last_success_at END,
    last_failure_at = CASE WHEN last_failure_at > {now} THEN {now} ELSE last_failure_at END,
    refused_at = CASE WHEN refused_at > {now} THEN {now} ELSE refused_at END
WHERE name IN (
    SELECT s.name FROM {t}sources s
    WHERE s.tokens_at > {after(1)} OR s.paused_at > {after(1)} OR s.class_paused_at > {after(1)}
       OR s.opened_at > {after(1)} OR s.last_success_at > {after(1)} OR s.last_failure_at > {after(1)}
    ORDER BY s.name
    {skip_locked(s)})
RETURNING name;

-- name: source_running
-- The jobs that run on a source, oldest first.
SELECT CAST(r.id AS text) AS id, r.locked_by FROM {t}jobs_live r
WHERE r.state = 'running' AND r.source IS NOT NULL AND {class(r.source)} = {class(:source)} AND r.source = :source
ORDER BY r.id
LIMIT :n;

-- name: class_running
-- The jobs that run on all sources of a class, oldest first.
SELECT CAST(r.id AS text) AS id, r.locked_by FROM {t}jobs_live r
WHERE r.state = 'running' AND r.source IS NOT NULL AND {class(r.source)} = :group
ORDER BY r.id
LIMIT :n;

-- name: prune_sources
-- Sources that nobody has set, paused or blocked, and that were last used more than -:ago seconds ago. A breaker that has
-- been half open for that long is unused, too. A new row begins with a full bucket, so a row whose bucket is not yet full
-- by the rate of its class stays. Full means `burst` tokens, or those of one second, at least one.
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
