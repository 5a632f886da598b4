-- Schedules, in the order of store/schedules.py. Whoever fires a tick holds its schedule's row, writes the tick and the
-- job, and moves `next_tick` on, all in one transaction; the key of `ticks` is what makes a second one impossible.

-- name: declare_schedules
-- Definitions from code or config, or by hand. One that exists is not changed by another kind of place, and of code and
-- config only by a process that started after the one that wrote it last. The same definition counts from any process:
-- nothing is changed by it, but it has been declared, and is back if it was retired.
INSERT INTO {t}schedules (
    id, task, args, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds, starts_at, ends_at,
    {schedule_options(@)}, origin, writer_started_at, declared_at, next_tick, created_at, updated_at)
SELECT s.id, s.task, s.args, s.rule, s.zone, s.missed, s.missed_most, s.missed_seconds, s.overlap, s.jitter_seconds,
       s.starts_at, s.ends_at,
       {schedule_options(s.@)}, :origin, coalesce(:started_at, {now}), {now}, s.next_tick, {now}, {now}
FROM {rows:s(id text, task text, args json, rule text, zone text, missed text, missed_most int, missed_seconds float,
             overlap text, jitter_seconds float, starts_at time, ends_at time, next_tick time,
             {schedule_options(@ #)})}
WHERE TRUE
ON CONFLICT (id) DO UPDATE
SET task = excluded.task, args = excluded.args, missed = excluded.missed, missed_most = excluded.missed_most,
    missed_seconds = excluded.missed_seconds, overlap = excluded.overlap, jitter_seconds = excluded.jitter_seconds,
    starts_at = excluded.starts_at, ends_at = excluded.ends_at,
    {schedule_options(@ = excluded.@)},
    writer_started_at = CASE
        WHEN {t}schedules.writer_started_at BETWEEN excluded.writer_started_at AND {now}
        THEN {t}schedules.writer_started_at ELSE excluded.writer_started_at END,
    declared_at = excluded.declared_at, retired_at = NULL, problem = NULL, updated_at = excluded.updated_at,
    next_tick = CASE
        -- Another rule, one that is back, or a start that is later now: from then on.
        WHEN {t}schedules.rule <> excluded.rule OR {t}schedules.zone <> excluded.zone
             OR {t}schedules.retired_at IS NOT NULL OR {t}schedules.next_tick IS NULL
             OR {t}schedules.next_tick < excluded.starts_at
        THEN excluded.next_tick
        -- Further away than the first tick from now: for a start that is earlier now, or gone, or because a clock that
        -- was ahead wrote it. Neither must be waited for.
        WHEN {t}schedules.next_tick > excluded.next_tick
        THEN excluded.next_tick
        -- Else it stays, because it may have been missed.
        ELSE {t}schedules.next_tick END,
    rule = excluded.rule, zone = excluded.zone
WHERE {t}schedules.origin = excluded.origin
  AND (excluded.origin = 'runtime' OR {t}schedules.writer_started_at <= excluded.writer_started_at
       OR {t}schedules.writer_started_at > {now}  -- by a clock that was ahead: it says nothing
       OR ({t}schedules.task, CAST({t}schedules.args AS text), {t}schedules.rule, {t}schedules.zone,
           {t}schedules.missed, {t}schedules.missed_most, {t}schedules.missed_seconds, {t}schedules.overlap,
           {t}schedules.jitter_seconds, {t}schedules.starts_at, {t}schedules.ends_at,
           {schedule_options(CAST({t}schedules.@ AS text))})
          IS NOT DISTINCT FROM
          (excluded.task, CAST(excluded.args AS text), excluded.rule, excluded.zone,
           excluded.missed, excluded.missed_most, excluded.missed_seconds, excluded.overlap,
           excluded.jitter_seconds, excluded.starts_at, excluded.ends_at,
           {schedule_options(CAST(excluded.@ AS text))}))
RETURNING id;

-- name: schedule_origins
-- Where these schedules come from, whether they are retired, and their rules.
SELECT id, origin, retired_at IS NOT NULL AS retired, rule, zone
FROM {t}schedules WHERE id {among(SELECT asked.id FROM {rows:asked(id text)})};

-- part: readable
-- The asking dispatcher can read the schedule's rule: it is not among :unread.
NOT (zone || ' ' || rule || ' ' || id
     {among(SELECT unread.zone || ' ' || unread.rule || ' ' || unread.id
            FROM {rows:unread(id text, rule text, zone text)})})

-- name: next_due
-- The seconds until the next tick is due, without schedules whose rule the asking dispatcher cannot read.
SELECT {seconds_until(next_tick)} AS seconds FROM {t}schedules
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL
  AND {part:readable}
ORDER BY next_tick
LIMIT 1;

-- name: lock_due
-- Schedules with a due tick, the longest due first. Skipped are schedules that another dispatcher has locked, and those
-- whose rule this dispatcher cannot read.
SELECT id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds,
       {time(starts_at)} AS starts_at, {time(ends_at)} AS ends_at, {time(s.next_tick)} AS next_tick, {time({now})} AS now
FROM {t}schedules s
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick <= {now}
  AND {part:readable}
ORDER BY s.next_tick
LIMIT :n
{skip_locked()};

-- name: list_due
-- The schedules that lock_due would take, for a dispatcher that must deal with each of them alone.
SELECT id, rule, zone FROM {t}schedules
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick <= {now}
  AND {part:readable}
ORDER BY next_tick
LIMIT :n;

-- name: tell_problem
-- Why a schedule cannot be fired, for people to see.
UPDATE {t}schedules SET problem = :problem, updated_at = {now} WHERE id = :id;

-- name: lock_schedule
-- One schedule, whatever its state.
SELECT id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds,
       {time(starts_at)} AS starts_at, {time(ends_at)} AS ends_at, {time(s.next_tick)} AS next_tick, {time({now})} AS now,
       {time(paused_at)} AS paused_at
FROM {t}schedules s
WHERE id = :id
{lock()};

-- name: schedules_at_work
-- Of these schedules, the ones with a job that is not final: of a tick, made by hand, or retried.
SELECT asked.id FROM {rows:asked(id text)}
WHERE (SELECT 1 FROM {t}jobs_live j WHERE j.schedule_id = asked.id LIMIT 1) IS NOT NULL;

-- name: write_ticks
-- Write ticks that are fired or skipped now; returns the ticks that had no row before.
INSERT INTO {t}ticks (schedule_id, tick, job_id, fired_at)
SELECT fired.schedule_id, fired.tick, fired.job_id, {now}
FROM {rows:fired(schedule_id text, tick time, job_id uuid)}
WHERE TRUE
ON CONFLICT (schedule_id, tick) DO NOTHING
RETURNING CAST(job_id AS text) AS job_id;

-- name: fire_jobs
-- The jobs of ticks, with the options of their schedules. `tick` is the nominal moment.
INSERT INTO {t}jobs_live (
    id, args, task, ready, schedule_id, tick, run_after, {schedule_options(@)}, created_at, updated_at)
SELECT fired.job_id, s.args, s.task, fired.jitter <= 0, s.id, fired.tick, {after(fired.jitter)},
       {schedule_options(s.@)}, {now}, {now}
FROM {rows:fired(schedule_id text, tick time, job_id uuid, jitter float)}
CROSS JOIN {t}schedules s
WHERE s.id = fired.schedule_id;

-- name: move_on
-- Where schedules stand after their ticks.
UPDATE {t}schedules
SET next_tick = moved.next_tick,
    last_tick = coalesce(moved.last_tick, {t}schedules.last_tick),
    last_job = coalesce(moved.last_job, {t}schedules.last_job),
    problem = moved.problem, updated_at = {now}
FROM {rows:moved(id text, next_tick time, last_tick time, last_job uuid, problem text)}
WHERE {t}schedules.id = moved.id;

-- name: last_job
-- A job that was made by hand is the last one, too. `updated_at` is when the schedule moved on, and stays.
UPDATE {t}schedules SET last_job = :job_id WHERE id = :id;

-- name: written_ahead
-- Schedules that were written at a moment which has not come yet: the clock was ahead, and was put right.
SELECT id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds,
       {time(starts_at)} AS starts_at, {time(ends_at)} AS ends_at, {time(s.next_tick)} AS next_tick, {time({now})} AS now
FROM {t}schedules s
WHERE updated_at > {after(:ahead)}
ORDER BY id
LIMIT :n
{skip_locked()};

-- name: put_right
-- Next ticks, and what else was written by a clock that was ahead, as they are by the clock that is right.
UPDATE {t}schedules
SET next_tick = healed.next_tick, updated_at = {now},
    declared_at = CASE WHEN declared_at > {now} THEN {now} ELSE declared_at END,
    writer_started_at = CASE WHEN writer_started_at > {now} THEN {now} ELSE writer_started_at END,
    paused_at = CASE WHEN paused_at > {now} THEN {now} ELSE paused_at END
FROM {rows:healed(id text, next_tick time)}
WHERE {t}schedules.id = healed.id;

-- name: ticks_ahead
-- Ticks of these schedules that were fired although their moment has not come: they do not fire again.
SELECT k.schedule_id, {time(k.tick)} AS tick
FROM {rows:asked(id text)}
CROSS JOIN {t}ticks k
WHERE k.schedule_id = asked.id AND k.tick > {now};

-- name: pause_schedule
-- No more ticks until it is resumed.
UPDATE {t}schedules SET paused_at = coalesce(paused_at, {now}), updated_at = {now} WHERE id = :id RETURNING id;

-- name: resume_schedule
-- Ticks again, from :next_tick on; its row is locked, and what it owed before its pause is dealt with.
UPDATE {t}schedules
SET next_tick = :next_tick,
    paused_at = NULL, problem = NULL, updated_at = {now}
WHERE id = :id
RETURNING id;

-- name: remove_schedule
-- A schedule that was added by hand. Its ticks stay until they are old.
DELETE FROM {t}schedules WHERE id = :id RETURNING id;

-- name: list_schedules
-- Schedules by name, with how the job of their last tick ended; before there was one, a job that was made by hand.
SELECT s.id, s.task, CAST(s.args AS text) AS args, s.rule, s.zone, s.missed, s.missed_most, s.missed_seconds,
       s.overlap, s.queue, s.priority, s.owner, s.source, s.max_attempts, s.timeout_seconds, s.jitter_seconds, {time(s.starts_at)} AS starts_at,
       {time(s.ends_at)} AS ends_at, s.origin, {time(s.paused_at)} AS paused_at, {time(s.retired_at)} AS retired_at,
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
-- Ticks that were fired more than -:ago seconds ago.
DELETE FROM {t}ticks
WHERE (schedule_id, tick) IN (
    SELECT schedule_id, tick FROM {t}ticks WHERE fired_at < {after(:ago)} ORDER BY fired_at LIMIT :n)
RETURNING tick;
