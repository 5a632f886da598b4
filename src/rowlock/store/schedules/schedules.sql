-- Schedules, in the order of schedules.py.

-- name: declare_schedules
-- Write definitions of schedules. Only the origin that made a schedule (code, config, runtime) may change it; from code
-- and config, only a process that started after its last writer. A process that started earlier may still declare an
-- equal definition: nothing changes, but the schedule counts as declared and is no longer retired. The options of a
-- schedule appear six times below, always in the order of core/options.py.
INSERT INTO {t}schedules (
    id, task, args, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds, starts_at, ends_at,
    queue, priority, max_attempts, backoff, timeout_seconds, source, on_success, on_dead, on_lost, keep_seconds, owner,
    origin, writer_started_at, declared_at, next_tick, created_at, updated_at)
SELECT s.id, s.task, s.args, s.rule, s.zone, s.missed, s.missed_most, s.missed_seconds, s.overlap, s.jitter_seconds,
       s.starts_at, s.ends_at,
       s.queue, s.priority, s.max_attempts, s.backoff, s.timeout_seconds, s.source, s.on_success, s.on_dead, s.on_lost,
       s.keep_seconds, s.owner,
       :origin, coalesce(:started_at, {now}), {now}, s.next_tick, {now}, {now}
FROM {rows:s(id text, task text, args json, rule text, zone text, missed text, missed_most int, missed_seconds float,
             overlap text, jitter_seconds float, starts_at time, ends_at time, next_tick time,
             queue text, priority int, max_attempts int, backoff json, timeout_seconds float, source text,
             on_success json, on_dead json, on_lost text, keep_seconds float, owner text)}
WHERE TRUE
ON CONFLICT (id) DO UPDATE
SET task = excluded.task, args = excluded.args, missed = excluded.missed, missed_most = excluded.missed_most,
    missed_seconds = excluded.missed_seconds, overlap = excluded.overlap, jitter_seconds = excluded.jitter_seconds,
    starts_at = excluded.starts_at, ends_at = excluded.ends_at,
    queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    backoff = excluded.backoff, timeout_seconds = excluded.timeout_seconds, source = excluded.source,
    on_success = excluded.on_success, on_dead = excluded.on_dead, on_lost = excluded.on_lost,
    keep_seconds = excluded.keep_seconds, owner = excluded.owner,
    writer_started_at = CASE
        WHEN {t}schedules.writer_started_at BETWEEN excluded.writer_started_at AND {now}
        THEN {t}schedules.writer_started_at ELSE excluded.writer_started_at END,
    declared_at = excluded.declared_at, retired_at = NULL, problem = NULL, updated_at = excluded.updated_at,
    next_tick = CASE
        -- If the rule has changed, the schedule was retired or had no next tick, or its start was moved later: take the
        -- first tick from now.
        WHEN {t}schedules.rule <> excluded.rule OR {t}schedules.zone <> excluded.zone
             OR {t}schedules.retired_at IS NOT NULL OR {t}schedules.next_tick IS NULL
             OR {t}schedules.next_tick < excluded.starts_at
        THEN excluded.next_tick
        -- If the stored tick is later than the first tick from now, because the start was moved earlier or a clock that
        -- was ahead wrote it: take the first tick from now.
        WHEN {t}schedules.next_tick > excluded.next_tick
        THEN excluded.next_tick
        -- Otherwise keep the stored tick: it may be due already, and the option `missed` decides what happens to it.
        ELSE {t}schedules.next_tick END,
    rule = excluded.rule, zone = excluded.zone
WHERE {t}schedules.origin = excluded.origin
  AND (excluded.origin = 'runtime' OR {t}schedules.writer_started_at <= excluded.writer_started_at
       OR {t}schedules.writer_started_at > {now}  -- written by a clock that was ahead
       OR ({t}schedules.task, CAST({t}schedules.args AS text), {t}schedules.rule, {t}schedules.zone,
           {t}schedules.missed, {t}schedules.missed_most, {t}schedules.missed_seconds, {t}schedules.overlap,
           {t}schedules.jitter_seconds, {t}schedules.starts_at, {t}schedules.ends_at,
           CAST({t}schedules.queue AS text), CAST({t}schedules.priority AS text),
           CAST({t}schedules.max_attempts AS text), CAST({t}schedules.backoff AS text),
           CAST({t}schedules.timeout_seconds AS text), CAST({t}schedules.source AS text),
           CAST({t}schedules.on_success AS text), CAST({t}schedules.on_dead AS text),
           CAST({t}schedules.on_lost AS text), CAST({t}schedules.keep_seconds AS text),
           CAST({t}schedules.owner AS text))
          IS NOT DISTINCT FROM
          (excluded.task, CAST(excluded.args AS text), excluded.rule, excluded.zone,
           excluded.missed, excluded.missed_most, excluded.missed_seconds, excluded.overlap,
           excluded.jitter_seconds, excluded.starts_at, excluded.ends_at,
           CAST(excluded.queue AS text), CAST(excluded.priority AS text),
           CAST(excluded.max_attempts AS text), CAST(excluded.backoff AS text),
           CAST(excluded.timeout_seconds AS text), CAST(excluded.source AS text),
           CAST(excluded.on_success AS text), CAST(excluded.on_dead AS text),
           CAST(excluded.on_lost AS text), CAST(excluded.keep_seconds AS text),
           CAST(excluded.owner AS text)))
RETURNING id;

-- name: schedule_origins
-- The origins of these schedules, whether they are retired, and their rules.
SELECT id, origin, retired_at IS NOT NULL AS retired, rule, zone
FROM {t}schedules WHERE id {in:asked(id text)};

-- name: lock_schedule
-- Lock one schedule, whatever its state.
SELECT {part:due_schedule}
FROM {t}schedules s
WHERE id = :id
FOR UPDATE;

-- name: last_job
-- Store the job of a run by hand as the schedule's last job. `updated_at` stays: it is when `next_tick` was written.
UPDATE {t}schedules SET last_job = :job_id WHERE id = :id;

-- name: ticks_ahead
-- Ticks of these schedules that have fired although they are in the future. They don't fire again.
SELECT k.schedule_id, {time(k.tick)} AS tick
FROM {rows:asked(id text)}
CROSS JOIN {t}ticks k
WHERE k.schedule_id = asked.id AND k.tick > {now};

-- name: pause_schedule
-- Stop a schedule's ticks until it is resumed.
UPDATE {t}schedules SET paused_at = coalesce(paused_at, {now}), updated_at = {now} WHERE id = :id RETURNING id;

-- name: resume_schedule
-- End the pause and set the next tick. The caller has locked the row and fired ticks that were due before the pause.
UPDATE {t}schedules
SET next_tick = :next_tick, paused_at = NULL, problem = NULL, updated_at = {now}
WHERE id = :id
RETURNING id;

-- name: remove_schedule
-- Delete a schedule. The rows of its ticks stay until they are pruned.
DELETE FROM {t}schedules WHERE id = :id RETURNING id;

-- name: list_schedules
-- Schedules by name, each with the state of its last tick's job, or of its last run by hand if no tick has fired yet.
SELECT s.id, s.task, CAST(s.args AS text) AS args, s.rule, s.zone, s.missed, s.missed_most, s.missed_seconds,
       s.overlap, s.queue, s.priority, s.owner, s.source, s.max_attempts, s.timeout_seconds, s.jitter_seconds,
       {time(s.starts_at)} AS starts_at, {time(s.ends_at)} AS ends_at, s.origin,
       {time(s.paused_at)} AS paused_at, {time(s.retired_at)} AS retired_at,
       {time(s.last_tick)} AS last_tick, CAST(coalesce(k.job_id, s.last_job) AS text) AS last_job,
       {time(s.next_tick)} AS next_tick, s.problem,
       (SELECT j.state FROM {t}jobs j WHERE j.id = coalesce(k.job_id, s.last_job) LIMIT 1) AS last_state,
       {time({now})} AS read_at
FROM {t}schedules s
LEFT JOIN {t}ticks k ON k.schedule_id = s.id AND k.tick = s.last_tick
WHERE s.id > :id AND CASE WHEN CAST(:only AS text) IS NULL THEN TRUE ELSE s.id = :only END
ORDER BY s.id
LIMIT :n;

-- name: prune_ticks
-- Delete ticks that were fired more than -:ago seconds ago.
DELETE FROM {t}ticks
WHERE (schedule_id, tick) IN (
    SELECT schedule_id, tick FROM {t}ticks
    WHERE fired_at < {after(:ago)}
    ORDER BY fired_at
    LIMIT :n)
RETURNING 1 AS pruned;
