-- Schedules, in the order of store/schedules.py. Whoever fires a tick holds its schedule's row, writes the tick and the
-- job, and moves `next_tick` on, all in one transaction; the key of `ticks` is what makes a second one impossible.

-- name: declare_schedules
-- Definitions from code or config, or by hand. One that exists is changed only by a process that started after the one
-- that wrote it last, and not by another kind of place; its next tick stays unless its rule has changed.
INSERT INTO {t}schedules (
    id, task, args, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds, starts_at, ends_at, queue,
    priority, owner, source, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, origin,
    writer_started_at, declared_at, next_tick, created_at, updated_at)
SELECT s.id, s.task, s.args, s.rule, s.zone, s.missed, s.missed_most, s.missed_seconds, s.overlap, s.jitter_seconds,
       s.starts_at, s.ends_at, s.queue, s.priority, s.owner, s.source, s.max_attempts, s.backoff, s.timeout_seconds,
       s.on_success, s.on_dead, s.on_lost, s.keep_seconds, :origin, :started_at, {now}, s.next_tick, {now}, {now}
FROM {rows:s(id text, task text, args json, rule text, zone text, missed text, missed_most int, missed_seconds float, overlap text, jitter_seconds float, starts_at time, ends_at time, queue text, priority int, owner text, source text, max_attempts int, backoff json, timeout_seconds float, on_success json, on_dead json, on_lost text, keep_seconds float, next_tick time)}
WHERE TRUE
ON CONFLICT (id) DO UPDATE
SET task = excluded.task, args = excluded.args, missed = excluded.missed, missed_most = excluded.missed_most,
    missed_seconds = excluded.missed_seconds, overlap = excluded.overlap, jitter_seconds = excluded.jitter_seconds,
    starts_at = excluded.starts_at, ends_at = excluded.ends_at, queue = excluded.queue, priority = excluded.priority,
    owner = excluded.owner, source = excluded.source, max_attempts = excluded.max_attempts, backoff = excluded.backoff,
    timeout_seconds = excluded.timeout_seconds, on_success = excluded.on_success, on_dead = excluded.on_dead,
    on_lost = excluded.on_lost, keep_seconds = excluded.keep_seconds, writer_started_at = excluded.writer_started_at,
    declared_at = excluded.declared_at, retired_at = NULL, problem = NULL, updated_at = excluded.updated_at,
    next_tick = CASE WHEN {t}schedules.rule = excluded.rule AND {t}schedules.zone = excluded.zone
                          AND {t}schedules.retired_at IS NULL AND {t}schedules.next_tick IS NOT NULL
                          AND coalesce(excluded.starts_at, {t}schedules.next_tick) <= {t}schedules.next_tick
                     THEN {t}schedules.next_tick ELSE excluded.next_tick END,
    rule = excluded.rule, zone = excluded.zone
WHERE {t}schedules.origin = excluded.origin AND {t}schedules.writer_started_at <= excluded.writer_started_at
RETURNING id;

-- name: schedule_origins
-- Where these schedules come from, and whether they are retired.
SELECT id, origin, retired_at IS NOT NULL
FROM {t}schedules WHERE id {among(SELECT asked.id FROM {rows:asked(id text)})};

-- name: next_due
-- The present moment, the seconds until the next tick is due, and those until a dispatcher is believed gone.
SELECT {now}, (
    SELECT {seconds_until(next_tick)} FROM {t}schedules
    WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL
    ORDER BY next_tick
    LIMIT 1);

-- name: lock_due
-- Schedules with a tick that is due, the longest due first; those that another dispatcher has in hand are its business.
SELECT id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds, {time(starts_at)}, {time(ends_at)},
       {time(next_tick)}, {time(last_tick)}, CAST(last_job AS text), {time({now})}
FROM {t}schedules
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick <= {now}
ORDER BY next_tick
LIMIT :n
{skip_locked()};

-- name: lock_schedule
-- One schedule, whatever its state.
SELECT id, rule, zone, missed, missed_most, missed_seconds, overlap, jitter_seconds, {time(starts_at)}, {time(ends_at)},
       {time(next_tick)}, {time(last_tick)}, CAST(last_job AS text), {time({now})}
FROM {t}schedules
WHERE id = :id
{lock()};

-- name: jobs_at_work
-- Of these jobs, the ones that are not final.
SELECT CAST(id AS text) FROM {t}jobs_live WHERE id {among(SELECT asked.id FROM {rows:asked(id uuid)})};

-- name: write_ticks
-- Ticks that are fired or passed over now; answers those that nobody has written before.
INSERT INTO {t}ticks (schedule_id, tick, job_id, fired_at)
SELECT fired.schedule_id, fired.tick, fired.job_id, {now}
FROM {rows:fired(schedule_id text, tick time, job_id uuid)}
WHERE TRUE
ON CONFLICT (schedule_id, tick) DO NOTHING
RETURNING CAST(job_id AS text);

-- name: fire_jobs
-- The jobs of ticks, with the options of their schedules. `tick` is the nominal moment.
INSERT INTO {t}jobs_live (
    id, args, task, queue, ready, priority, owner, source, schedule_id, tick, max_attempts, backoff, timeout_seconds,
    run_after, on_success, on_dead, on_lost, keep_seconds, created_at, updated_at)
SELECT fired.job_id, s.args, s.task, s.queue, fired.jitter <= 0, s.priority, s.owner, s.source, s.id, fired.tick,
       s.max_attempts, s.backoff, s.timeout_seconds, {after(fired.jitter)}, s.on_success, s.on_dead, s.on_lost,
       s.keep_seconds, {now}, {now}
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
-- A job that was made by hand is the last one, too.
UPDATE {t}schedules SET last_job = :job_id, updated_at = {now} WHERE id = :id;

-- name: pause_schedule
-- No more ticks until it is resumed.
UPDATE {t}schedules SET paused_at = coalesce(paused_at, {now}), updated_at = {now} WHERE id = :id RETURNING id;

-- name: resume_schedule
-- Ticks again, from :next_tick on: what was due while it was paused is not missed but not wanted.
UPDATE {t}schedules SET paused_at = NULL, next_tick = :next_tick, updated_at = {now} WHERE id = :id RETURNING id;

-- name: remove_schedule
-- A schedule that was added by hand. Its ticks stay until they are old.
DELETE FROM {t}schedules WHERE id = :id RETURNING id;

-- name: list_schedules
-- Schedules by name, with how their last job ended.
SELECT s.id, s.task, CAST(s.args AS text), s.rule, s.zone, s.missed, s.overlap, s.queue, s.priority, s.owner, s.source,
       s.max_attempts, s.timeout_seconds, s.jitter_seconds, {time(s.starts_at)}, {time(s.ends_at)}, s.origin,
       {time(s.paused_at)}, {time(s.retired_at)}, {time(s.last_tick)}, CAST(s.last_job AS text), {time(s.next_tick)},
       s.problem, (SELECT j.state FROM {t}jobs j WHERE j.id = s.last_job LIMIT 1)
FROM {t}schedules s
WHERE s.id > :id AND CASE WHEN CAST(:only AS text) IS NULL THEN TRUE ELSE s.id = :only END
ORDER BY s.id
LIMIT :n;

-- name: register_dispatcher
-- A dispatcher is here, and these are the schedules of its code and config.
INSERT INTO {t}dispatchers (id, declares, bell, started_at, seen_at, expires_at)
VALUES (:id, :declares, :bell, {now}, {now}, {after(:lease)})
ON CONFLICT (id) DO UPDATE
SET declares = excluded.declares, seen_at = excluded.seen_at, expires_at = excluded.expires_at
RETURNING started_at;

-- name: dispatcher_seen
-- A dispatcher's sign of life, unless it was believed gone: then it must declare its schedules again.
UPDATE {t}dispatchers SET seen_at = {now}, expires_at = {after(:lease)}
WHERE id = :id AND expires_at > {now}
RETURNING id;

-- name: remove_dispatcher
-- A dispatcher leaves, taking long-silent rows along. What it declared has been declared until now.
DELETE FROM {t}dispatchers WHERE id = :id OR expires_at < {after(-86400)};

-- name: ring_dispatchers [postgres]
-- A schedule was added or changed: look again.
SELECT pg_notify('rowlock', 'schedules');

-- name: ring_dispatchers [sqlite]
-- The bells of dispatchers that must look again, because a schedule was added or changed.
SELECT bell FROM rowlock_dispatchers WHERE bell IS NOT NULL AND expires_at > {now};

-- name: live_declarations
-- What living dispatchers declare.
SELECT declares FROM {t}dispatchers WHERE expires_at > {now};

-- name: touch_declared
-- Schedules that living dispatchers declare are not to be retired.
UPDATE {t}schedules SET declared_at = {now}
WHERE origin <> 'runtime' AND retired_at IS NULL AND declared_at < {after(:ago)}
  AND id {among(SELECT asked.id FROM {rows:asked(id text)})};

-- name: retire_schedules
-- Schedules that have left the code and the config of every living process for -:ago seconds: kept, and shown.
UPDATE {t}schedules SET retired_at = {now}, updated_at = {now}
WHERE origin <> 'runtime' AND retired_at IS NULL AND declared_at < {after(:ago)}
RETURNING id;

-- name: prune_ticks
-- Ticks that were fired more than -:ago seconds ago.
DELETE FROM {t}ticks
WHERE (schedule_id, tick) IN (
    SELECT schedule_id, tick FROM {t}ticks WHERE fired_at < {after(:ago)} ORDER BY fired_at LIMIT :n)
RETURNING tick;
