-- Fire due ticks, in the order of fire.py. A dispatcher that fires a tick locks the schedule's row, writes the tick and
-- its job, and advances `next_tick`, all in one transaction. The primary key of `ticks` (schedule, moment) makes a
-- second job for one tick impossible.

-- part: not_left_out
-- The calling dispatcher does not leave out the schedule with this rule, as it does if its version can't read the rule.
NOT (zone || ' ' || rule || ' ' || id
     {among(SELECT left_out.zone || ' ' || left_out.rule || ' ' || left_out.id
            FROM {rows:left_out(id text, rule text, zone text)})})

-- name: next_due
-- The seconds until the next tick is due, without the schedules that the calling dispatcher leaves out.
SELECT {seconds_until(next_tick)} AS seconds FROM {t}schedules
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL
  AND {part:not_left_out}
ORDER BY next_tick
LIMIT 1;

-- part: due_schedule
-- The columns that decide which ticks of the schedule `s` are due.
id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds,
       {time(starts_at)} AS starts_at, {time(ends_at)} AS ends_at, {time(s.next_tick)} AS next_tick,
       {time({now})} AS now, {time(paused_at)} AS paused_at

-- part: is_due
-- The schedule has a due tick, and the calling dispatcher does not leave it out.
next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick <= {now} AND {part:not_left_out}

-- name: lock_due
-- Lock schedules with a due tick, the longest due first. Skips those that another dispatcher has locked, and those that
-- the calling dispatcher leaves out.
SELECT {part:due_schedule}
FROM {t}schedules s
WHERE {part:is_due}
ORDER BY s.next_tick
LIMIT :n
FOR UPDATE SKIP LOCKED;

-- name: list_due
-- The schedules that lock_due would lock, for a dispatcher that fires them one by one after an error. Takes no locks.
SELECT id, rule, zone FROM {t}schedules
WHERE {part:is_due}
ORDER BY next_tick
LIMIT :n;

-- name: tell_problem
-- Store why a schedule can't be fired; `schedules list` shows it.
UPDATE {t}schedules SET problem = :problem, updated_at = {now} WHERE id = :id;

-- name: schedules_at_work
-- Those of these schedules with an unfinished job: from a tick, from a run by hand, or retried.
SELECT asked.id FROM {rows:asked(id text)}
WHERE (SELECT 1 FROM {t}jobs_live j WHERE j.schedule_id = asked.id LIMIT 1) IS NOT NULL;

-- name: write_ticks
-- Write ticks that are fired or skipped now. Returns those that had no row before.
INSERT INTO {t}ticks (schedule_id, tick, job_id, fired_at)
SELECT fired.schedule_id, fired.tick, fired.job_id, {now}
FROM {rows:fired(schedule_id text, tick time, job_id uuid)}
WHERE TRUE
ON CONFLICT (schedule_id, tick) DO NOTHING
RETURNING CAST(job_id AS text) AS job_id;

-- name: fire_jobs
-- Insert the jobs of ticks, with the options of their schedules (core/options.py lists them). `tick` is the nominal
-- time; `run_after` is now plus the jitter.
INSERT INTO {t}jobs_live (
    id, args, task, ready, schedule_id, tick, run_after,
    queue, priority, max_attempts, backoff, timeout_seconds, source, on_success, on_dead, on_lost, keep_seconds, owner,
    created_at, updated_at)
SELECT fired.job_id, s.args, s.task, fired.jitter <= 0, s.id, fired.tick, {after(fired.jitter)},
       s.queue, s.priority, s.max_attempts, s.backoff, s.timeout_seconds, s.source, s.on_success, s.on_dead, s.on_lost,
       s.keep_seconds, s.owner,
       {now}, {now}
FROM {rows:fired(schedule_id text, tick time, job_id uuid, jitter float)}
CROSS JOIN {t}schedules s
WHERE s.id = fired.schedule_id;

-- name: move_on
-- Store the next tick of schedules, and their last tick if one has fired.
UPDATE {t}schedules
SET next_tick = moved.next_tick,
    last_tick = coalesce(moved.last_tick, {t}schedules.last_tick),
    last_job = coalesce(moved.last_job, {t}schedules.last_job),
    problem = moved.problem, updated_at = {now}
FROM {rows:moved(id text, next_tick time, last_tick time, last_job uuid, problem text)}
WHERE {t}schedules.id = moved.id;
