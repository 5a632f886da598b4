-- Update sources by the outcomes of their jobs, in the order of outcomes.py.

-- name: source_succeeded
-- Successes of attempts that were claimed under one epoch. They end a streak of failures, close a half-open breaker and
-- set `last_success_at`. A row is written at most once a second, unless a streak or breaker must change.
UPDATE {t}sources INDEXED BY sqlite_autoindex_rowlock_sources_1
SET failure_streak = 0, refusals = 0, last_success_at = {now},
    epoch = epoch + CASE WHEN opened_at IS NULL THEN 0 ELSE 1 END,
    paused_until = CASE WHEN opened_at IS NULL OR paused_until > {now} THEN paused_until END,
    opened_at = NULL, opens = 0, probe_job = NULL, probe_token = NULL
WHERE name {in:done(name text)} AND epoch = :epoch
  AND (failure_streak > 0 OR refusals > 0 OR opened_at IS NOT NULL
       OR last_success_at IS NULL OR last_success_at <= {after(-1)});

-- part: join_class [postgres]
-- Join the row `c` of the class of the source `s`, if there is one. LATERAL with LIMIT, because a plain join may be
-- planned as a product of both tables while they are empty.
LEFT JOIN LATERAL (SELECT * FROM rowlock.sources WHERE name = split_part(s.name, ':', 1) LIMIT 1) c ON TRUE

-- part: join_class [sqlite]
-- Join the row `c` of the class of the source `s`, if there is one.
LEFT JOIN rowlock_sources c INDEXED BY sqlite_autoindex_rowlock_sources_1
    ON c.name = substr(s.name, 1, instr(s.name || ':', ':') - 1)

-- name: lock_health
-- Lock these sources in order and read their breakers, with defaults from their classes.
SELECT s.name, s.failure_streak AS streak, coalesce(s.failure_threshold, c.failure_threshold) AS threshold,
       coalesce(s.cooldown_seconds, c.cooldown_seconds) AS cooldown,
       coalesce(s.cooldown_factor, c.cooldown_factor) AS factor, s.epoch, s.opened_at IS NOT NULL AS opened, s.opens,
       s.refusals, coalesce(s.block_after, c.block_after) AS block_after, s.enabled,
       {seconds_until(s.paused_until)} AS paused_for
FROM {t}sources s INDEXED BY sqlite_autoindex_rowlock_sources_1
{part:join_class}
WHERE s.name {in:asked(name text)}
ORDER BY s.name
FOR UPDATE OF s;

-- name: write_health
-- Write breakers. An unchanged pause keeps its end; a new epoch clears the probe.
UPDATE {t}sources INDEXED BY sqlite_autoindex_rowlock_sources_1
SET failure_streak = changed.streak, opens = changed.opens, refusals = changed.refusals,
    enabled = (changed.enabled = 1), opened_at = CASE WHEN changed.opened = 1 THEN coalesce(opened_at, {now}) END,
    probe_job = CASE WHEN {t}sources.epoch = changed.epoch THEN probe_job END,
    probe_token = CASE WHEN {t}sources.epoch = changed.epoch THEN probe_token END,
    epoch = changed.epoch,
    paused_until = CASE WHEN changed.repaused = 1 THEN {after(changed.paused_for)} ELSE paused_until END,
    paused_at = CASE WHEN changed.repaused = 1 THEN {now} ELSE paused_at END,
    last_success_at = CASE WHEN changed.succeeded = 1 THEN {now} ELSE last_success_at END,
    last_failure_at = CASE WHEN changed.failed = 1 THEN {now} ELSE last_failure_at END,
    last_error = coalesce(changed.error, last_error),
    refused_at = CASE WHEN changed.refused = 1 THEN {now} ELSE refused_at END,
    refusal_code = coalesce(changed.refusal_code, {t}sources.refusal_code)
FROM {rows:changed(name text, streak int, opens int, refusals int, enabled int, opened int, epoch int,
                repaused int, paused_for float, succeeded int, failed int, error text,
                refused int, refusal_code text)}
WHERE {t}sources.name = changed.name;
