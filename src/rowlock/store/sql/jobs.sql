-- Every write to a job, in the order of store/jobs.py. Words and tokens: see store/queries.py.
-- A batch is joined as `FROM {rows} CROSS JOIN jobs`: SQLite then keeps that order, one index probe for each row of the
-- batch, instead of reading the batch again for each running job.

-- name: enqueue [postgres]
-- Insert one job or many that share their options, and wake workers only if one sleeps.
-- NOTIFY takes a database-wide lock at commit; unconditional, it halves what ten producers can insert.
WITH added AS (
    INSERT INTO rowlock.jobs_live (
        id, args, task, queue, ready, priority, owner, source, tags, batch_id, unique_key, unique_mode, max_attempts,
        backoff, timeout_seconds, run_after, expires_at, on_success, on_dead, on_lost, keep_seconds, created_at,
        updated_at)
    SELECT added.id, added.args, :task, :queue,
           coalesce(:run_after, {after(:delay)}) <= {now},
           :priority, :owner, :source, :tags, :batch_id, :unique_key, :unique_mode, :max_attempts, :backoff,
           :timeout_seconds,
           coalesce(:run_after, {after(:delay)}),
           :expires_at, :on_success, :on_dead, :on_lost, :keep_seconds, {now}, {now}
    FROM {rows:added(id uuid, args json)}
)
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > {now});

-- name: enqueue [sqlite]
-- Insert one job or many that share their options.
INSERT INTO rowlock_jobs_live (
    id, args, task, queue, ready, priority, owner, source, tags, batch_id, unique_key, unique_mode, max_attempts,
    backoff, timeout_seconds, run_after, expires_at, on_success, on_dead, on_lost, keep_seconds, created_at, updated_at)
SELECT added.id, added.args, :task, :queue,
       coalesce(:run_after, {after(:delay)}) <= {now},
       :priority, :owner, :source, :tags, :batch_id, :unique_key, :unique_mode, :max_attempts, :backoff,
       :timeout_seconds,
       coalesce(:run_after, {after(:delay)}),
       :expires_at, :on_success, :on_dead, :on_lost, :keep_seconds, {now}, {now}
FROM {rows:added(id uuid, args json)};

-- name: idle_bells [sqlite]
-- The sleeping workers to ring once the enqueue has committed (on PostgreSQL the enqueue itself notifies).
SELECT bell FROM rowlock_workers WHERE idle AND bell IS NOT NULL AND expires_at > {now};

-- name: take_id
-- Reserve a client-chosen job id. It waits for a concurrent twin and takes over if that one rolls back.
INSERT INTO {t}job_keys (scope, key, job_id, mode)
VALUES ('id', :key, :job_id, 'id')
ON CONFLICT (scope, key) DO NOTHING
RETURNING job_id;

-- name: known_id
-- Whether a job of this id is there, or a key names one that was: not every id was chosen by a client.
SELECT 1 FROM {t}jobs_live WHERE id = :job_id
UNION ALL
SELECT 1 FROM {t}jobs_finished WHERE id = :job_id
UNION ALL
SELECT 1 FROM {t}job_keys WHERE job_id = :job_id AND scope <> 'id'
LIMIT 1;

-- name: give_id_back
-- The same again, when the job is not made after all.
DELETE FROM {t}job_keys WHERE scope = 'id' AND key = :key;

-- name: claim [postgres]
-- Take up to :n ready jobs of the given lanes under one fresh token. Jobs with a source: see turns.sql.
WITH open_lanes AS (
    -- A paused queue has no lane.
    SELECT lane.*
    FROM {rows:lane(queue text, task text, low_priority int, low_id uuid, high_priority int, take int)}
    WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)
), found AS MATERIALIZED (
    -- One index range per lane: a task that this worker does not know is never in the way. Each lane gives no more than
    -- it is likely to be needed for: fifty deep lanes that lock :n rows each would cost fifty times as much.
    -- MATERIALIZED, because a re-run of this query would lock more rows.
    SELECT front.id, front.priority, front.unique_mode, front.nth = least(open_lanes.take, :n) AS may_have_more
    FROM open_lanes CROSS JOIN LATERAL (
        SELECT locked.id, locked.priority, locked.unique_mode, row_number() OVER () AS nth
        FROM (
            SELECT j.id, j.priority, j.unique_mode
            FROM rowlock.jobs_live j
            WHERE j.ready
              AND j.source IS NULL
              AND j.queue = open_lanes.queue
              AND j.task = open_lanes.task
              AND (j.priority, j.id) > (open_lanes.low_priority, open_lanes.low_id)
              AND j.priority < open_lanes.high_priority
              AND (j.expires_at IS NULL OR j.expires_at > {now})
            ORDER BY j.priority, j.id
            LIMIT least(open_lanes.take, :n)
            FOR UPDATE SKIP LOCKED
        ) locked
    ) front
), horizon AS (
    -- Behind the end of a lane that may have more, other lanes' jobs are not yet next in order.
    SELECT priority, id FROM found WHERE may_have_more ORDER BY priority, id LIMIT 1
), picked AS MATERIALIZED (
    -- The lanes merged.
    SELECT found.id, found.unique_mode
    FROM found LEFT JOIN horizon ON TRUE
    WHERE horizon.id IS NULL OR (found.priority, found.id) <= (horizon.priority, horizon.id)
    ORDER BY found.priority, found.id
    LIMIT :n
), let_go AS (
    -- Keys that hold only while their job is queued.
    DELETE FROM rowlock.job_keys
    WHERE mode = 'while_queued' AND job_id = ANY(ARRAY(SELECT id FROM picked WHERE unique_mode = 'while_queued'))
)
UPDATE rowlock.jobs_live j
SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = :token, locked_by = :worker,
    locked_at = {now}, heartbeat_at = {now}, lease_expires_at = {after(:lease)},
    started_at = {now}, updated_at = {now}
-- = ANY(ARRAY) keeps an index scan whatever the statistics say; and the state is checked again here,
-- because between the snapshot and the lock the row may have been taken.
WHERE j.id = ANY(ARRAY(SELECT id FROM picked)) AND j.ready
RETURNING {claimed};

-- name: front [sqlite]
-- The best :n ready jobs of the given lanes, as they will be once claimed. SQLite has no LATERAL; a correlated IN with
-- LIMIT reads the same one index range per lane. Read first and updated then, under the writer lock: RETURNING would
-- cost as much again, and so would the two steps below for lanes that are looked into a little only.
SELECT {claiming}, front.rowid
FROM {rows:lane(queue text, task text, low_priority int, low_id uuid, high_priority int, take int)}
CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT c.rowid
    FROM rowlock_jobs_live c
    WHERE c.ready
      AND c.source IS NULL
      AND c.queue = lane.queue
      AND c.task = lane.task
      AND (c.priority, c.id) > (lane.low_priority, lane.low_id)
      AND c.priority < lane.high_priority
      AND (c.expires_at IS NULL OR c.expires_at > {now})
    ORDER BY c.priority, c.id
    LIMIT :n)
-- A paused queue has no lane.
WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)
ORDER BY front.priority, front.id
LIMIT :n;

-- name: front_merged [sqlite]
-- The same for many lanes, each of which is looked into only as far as it is likely to be needed.
WITH lane AS MATERIALIZED (
    SELECT lane.*
    FROM {rows:lane(queue text, task text, low_priority int, low_id uuid, high_priority int, take int)}
    WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = lane.queue AND q.paused_at IS NOT NULL)
), depth AS MATERIALIZED (
    -- How far to look into each lane: a LIMIT cannot name a lane's own `take` here, so all get the largest one.
    SELECT min(:n, max(take)) AS n FROM lane
), horizon AS MATERIALIZED (
    -- Behind the end of a lane that may have more, other lanes' jobs are not yet next in order.
    SELECT front.priority, front.id
    FROM lane JOIN rowlock_jobs_live front ON front.rowid = (
        SELECT c.rowid
        FROM rowlock_jobs_live c
        WHERE c.ready
          AND c.source IS NULL
          AND c.queue = lane.queue
          AND c.task = lane.task
          AND (c.priority, c.id) > (lane.low_priority, lane.low_id)
          AND c.priority < lane.high_priority
          AND (c.expires_at IS NULL OR c.expires_at > {now})
        ORDER BY c.priority, c.id
        LIMIT 1 OFFSET (SELECT n - 1 FROM depth))
    WHERE (SELECT n FROM depth) < :n
    ORDER BY front.priority, front.id
    LIMIT 1
)
SELECT {claiming}, front.rowid
FROM lane CROSS JOIN rowlock_jobs_live front ON front.rowid IN (
    SELECT c.rowid
    FROM rowlock_jobs_live c
    WHERE c.ready
      AND c.source IS NULL
      AND c.queue = lane.queue
      AND c.task = lane.task
      AND (c.priority, c.id) > (lane.low_priority, lane.low_id)
      AND c.priority < lane.high_priority
      AND (c.expires_at IS NULL OR c.expires_at > {now})
    ORDER BY c.priority, c.id
    LIMIT (SELECT n FROM depth))
WHERE NOT EXISTS (SELECT 1 FROM horizon WHERE (front.priority, front.id) > (horizon.priority, horizon.id))
ORDER BY front.priority, front.id
LIMIT :n;

-- name: claim [sqlite]
-- Take the jobs of :front under one fresh token. The writer lock has kept them as they were read.
UPDATE rowlock_jobs_live
SET state = 'running', ready = FALSE, attempt = attempt + 1, lease_token = :token, locked_by = :worker,
    locked_at = {now}, heartbeat_at = {now}, lease_expires_at = {after(:lease)},
    started_at = {now}, updated_at = {now}
WHERE rowid IN (SELECT value FROM json_each(:front)) AND ready;

-- name: promote_one
-- One job whose time has come, where no worker has noticed yet.
UPDATE {t}jobs_live SET ready = TRUE
WHERE id = :job_id AND NOT ready AND state <> 'running' AND run_after <= {now};

-- name: claimable
-- One job, locked, if it may be claimed now and nothing but its turn is in the way. One with a source is claimed in its
-- turn only.
SELECT CAST(j.id AS text), {now}
FROM {t}jobs_live j
WHERE j.id = :job_id AND j.ready AND j.source IS NULL AND (j.expires_at IS NULL OR j.expires_at > {now})
  AND NOT EXISTS (SELECT 1 FROM {t}queues q WHERE q.name = j.queue AND q.paused_at IS NOT NULL)
{skip_locked(j)};

-- name: adopt
-- The jobs that a claim took although its reply was lost.
SELECT {claimed}
FROM {t}jobs_live
WHERE state = 'running' AND locked_by = :worker AND lease_token = :token;

-- name: succeed [postgres]
-- Plain successes, the hot path: fence, move and outcome in one statement.
WITH held AS MATERIALIZED (
    -- The fence, in the order given (the caller sorts by id). LATERAL with LIMIT, because a plain join (as of a DELETE
    -- … USING, which would save a tenth) may be planned, while the table is empty, as a product of both sides and
    -- then cached: 300 ms for 1,000 jobs.
    SELECT found.*, done.result AS outcome
    FROM {rows:done(id uuid, token uuid, result json)}
    CROSS JOIN LATERAL (
        SELECT j.*
        FROM rowlock.jobs_live j
        WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running'
        LIMIT 1
        FOR UPDATE
    ) found
), gone AS (
    -- By id, not by ctid: a row that was updated while its lock was waited for has a version that this statement's
    -- snapshot does not see, and only a search that begins at the old one finds it.
    DELETE FROM rowlock.jobs_live WHERE id = ANY(ARRAY(SELECT id FROM held))
), kept AS (
    INSERT INTO rowlock.jobs_finished (
        id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick,
        unique_key, unique_mode, attempt, max_attempts,
        releases, losses, convictions, backoff, timeout_seconds, run_after, expires_at, settled_token,
        cancel_requested_at, progress, phase, message, result, result_uri, result_checksum,
        on_success, on_dead, on_lost, keep_seconds, last_worker, created_at, started_at, finished_at, updated_at, drop_on)
    SELECT id, task, queue, 'succeeded', priority, args, owner, source, tags, batch_id, schedule_id, tick,
           unique_key, unique_mode, attempt, max_attempts,
           releases, losses, convictions, backoff, timeout_seconds, run_after, expires_at, lease_token,
           cancel_requested_at, 100, phase, message, outcome, result_uri, result_checksum,
           on_success, on_dead, on_lost, keep_seconds, locked_by, created_at, started_at, {now}, {now},
           {drop_on(coalesce(keep_seconds, :keep))}
    FROM held
    RETURNING 1
)
-- Only how many: the ids that come back would cost as much as all that is sent.
SELECT count(*) FROM kept;

-- name: succeed [sqlite]
-- Plain successes, the hot path: fence and copy. The writer lock keeps the rows as they are until they are removed.
INSERT INTO rowlock_jobs_finished (
    id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick,
    unique_key, unique_mode, attempt, max_attempts,
    releases, losses, convictions, backoff, timeout_seconds, run_after, expires_at, settled_token,
    cancel_requested_at, progress, phase, message, result, result_uri, result_checksum,
    on_success, on_dead, on_lost, keep_seconds, last_worker, created_at, started_at, finished_at, updated_at, drop_on)
SELECT j.id, task, queue, 'succeeded', priority, args, owner, source, tags, batch_id, schedule_id, tick,
       unique_key, unique_mode, attempt, max_attempts,
       releases, losses, convictions, backoff, timeout_seconds, run_after, expires_at, lease_token,
       cancel_requested_at, 100, phase, message, done.result, result_uri, result_checksum,
       on_success, on_dead, on_lost, keep_seconds, locked_by, created_at, started_at, {now}, {now},
       {drop_on(coalesce(keep_seconds, :keep))}
FROM {rows:done(id uuid, token uuid, result json)}
CROSS JOIN rowlock_jobs_live j
WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running';

-- name: succeed_remove [sqlite]
-- The other half of the move, under the same fence.
DELETE FROM rowlock_jobs_live
WHERE rowid IN (
    SELECT j.rowid
    FROM {rows:done(id uuid, token uuid, result json)}
    CROSS JOIN rowlock_jobs_live j
    WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running');

-- name: changed [sqlite]
-- How many rows the statement before it changed.
SELECT changes();

-- name: lock_held
-- The fence: of these leases, the ones that still hold, whether a cancel was asked for, and their source. Locked in
-- id order.
SELECT j.id, j.lease_token, j.cancel_requested_at IS NOT NULL, j.source, coalesce(j.source_epoch, 0)
FROM {rows:mine(id uuid, token uuid)}
CROSS JOIN {t}jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
ORDER BY j.id
{lock(j)};

-- name: settled_tokens
-- Which token last settled these jobs: tells a repeated settle from a lost lease.
SELECT id, settled_token FROM {t}jobs_live WHERE id {among(SELECT asked.id FROM {rows:asked(id uuid)})}
UNION ALL
SELECT id, settled_token FROM {t}jobs_finished WHERE id {among(SELECT asked.id FROM {rows:asked(id uuid)})};

-- name: record_attempts
-- History of the attempts that did not succeed, taken from the rows before their leases are cleared.
INSERT INTO {t}attempts (job_id, attempt, outcome, worker, started_at, finished_at, error_code, error_message)
SELECT j.id, j.attempt, ended.outcome, j.locked_by, j.locked_at, {now}, ended.error_code, ended.error_message
FROM {rows:ended(id uuid, outcome text, error_code text, error_message text)}
CROSS JOIN {t}jobs_live j
WHERE j.id = ended.id AND j.attempt > 0
ON CONFLICT (job_id, attempt) DO NOTHING;

-- name: requeue
-- Back to waiting (retryable, or queued when released). The caller holds the rows through lock_held.
UPDATE {t}jobs_live
SET state = back.state, ready = (back.delay <= 0), run_after = {after(back.delay)},
    releases = releases + back.released, losses = losses + back.lost, convictions = convictions + back.convicted,
    error_code = back.error_code, error_message = back.error_message,
    settled_token = CASE WHEN back.by_holder = 1 THEN lease_token ELSE settled_token END,
    lease_token = NULL, locked_by = NULL, locked_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL,
    progress = NULL, phase = NULL, message = NULL, updated_at = {now}
FROM {rows:back(id uuid, state text, delay float, released int, lost int, convicted int, error_code text, error_message text, by_holder int)}
WHERE {t}jobs_live.id = back.id;

-- name: ending
-- What must be told of the end of these jobs, before they go: their batches and keys.
SELECT id, CAST(batch_id AS text), unique_mode
FROM {t}jobs_live
WHERE id {among(SELECT asked.id FROM {rows:asked(id uuid)})} AND (batch_id IS NOT NULL OR unique_mode IS NOT NULL);

-- name: finish_copy
-- Into jobs_finished with the final state. The caller holds the rows and removes them right after.
INSERT INTO {t}jobs_finished (
    id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick,
    unique_key, unique_mode, attempt, max_attempts,
    releases, losses, convictions, backoff, timeout_seconds, run_after, expires_at, settled_token,
    cancel_requested_at, progress, phase, message, result, result_uri, result_checksum, error_code, error_message,
    on_success, on_dead, on_lost, keep_seconds, last_worker, created_at, started_at, finished_at, updated_at, drop_on)
SELECT j.id, task, queue, final.state, priority, args, owner, source, tags, batch_id, schedule_id, tick,
       unique_key, unique_mode, attempt, max_attempts,
       releases + final.released, losses + final.lost, convictions + final.convicted, backoff, timeout_seconds,
       run_after, expires_at, CASE WHEN final.by_holder = 1 THEN lease_token ELSE settled_token END,
       cancel_requested_at, CASE WHEN final.state = 'succeeded' THEN 100 ELSE progress END, phase, message,
       final.result, result_uri, result_checksum, final.error_code, final.error_message,
       on_success, on_dead, on_lost, keep_seconds, locked_by, created_at, started_at, {now}, {now},
       {drop_on(coalesce(keep_seconds, final.keep))}
FROM {rows:final(id uuid, state text, result json, error_code text, error_message text, released int, lost int, convicted int, keep float, by_holder int)}
CROSS JOIN {t}jobs_live j
WHERE j.id = final.id;

-- name: finish_remove
-- The other half of the move.
DELETE FROM {t}jobs_live WHERE id IN (SELECT gone.id FROM {rows:gone(id uuid)});

-- name: beat
-- Renew leases. A row that somebody has locked is skipped, not waited for: one user's row lock must not
-- stop the beats of the others (and the sweeper skips it too).
UPDATE {t}jobs_live
SET heartbeat_at = {now}, lease_expires_at = {after(:lease)}
WHERE id IN (
    SELECT j.id
    FROM {rows:mine(id uuid, token uuid)}
    CROSS JOIN {t}jobs_live j
    WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
    ORDER BY j.id
    {skip_locked(j)})
RETURNING id;

-- name: beat_waiting
-- Renew one lease whose row somebody has locked: in line for the lock, and so before any sweeper, which skips it.
UPDATE {t}jobs_live
SET heartbeat_at = {now}, lease_expires_at = {after(:lease)}
WHERE id = :id AND lease_token = :token AND state = 'running'
RETURNING id;

-- name: held
-- Of these leases, the ones that still hold, and whether a cancel was asked for. Reads past row locks.
SELECT j.id, j.cancel_requested_at IS NOT NULL
FROM {rows:mine(id uuid, token uuid)}
CROSS JOIN {t}jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running';

-- name: progress
-- Latest progress of running jobs, under the fence.
UPDATE {t}jobs_live
SET progress = told.progress, phase = told.phase, message = told.message, updated_at = {now}
FROM {rows:told(id uuid, token uuid, progress int, phase text, message text)}
-- An expression, so that SQLite does not walk the index of running jobs and read the batch again for each of them.
WHERE {t}jobs_live.id = told.id AND lease_token = told.token AND state || '' = 'running'
RETURNING {t}jobs_live.id;

-- name: expired
-- Leases that ran out, by their own lease_expires_at and the database's clock only. After a restart of
-- the server every lease looks expired, so nothing is taken before it has been up for :guard seconds. With :job_id, that
-- one alone.
SELECT {claimed}, lease_token, locked_by
FROM {t}jobs_live j
WHERE state = 'running' AND lease_expires_at < {now} AND {up_for(:guard)} AND {not_aside(j.id)}
  AND CASE WHEN CAST(:job_id AS text) IS NULL THEN TRUE ELSE CAST(j.id AS text) = CAST(:job_id AS text) END
ORDER BY id
LIMIT :n
{skip_locked()};

-- name: promote [postgres]
-- Make due jobs claimable, oldest due first, in a bounded batch; answers how many, and the seconds until the next one
-- is due. One statement, because every idle worker runs it again and again.
WITH promoted AS (
    UPDATE rowlock.jobs_live SET ready = TRUE, updated_at = {now}
    WHERE id IN (
        SELECT id FROM rowlock.jobs_live j
        WHERE NOT ready AND state <> 'running' AND run_after <= {now} AND {not_aside(j.id)}
        ORDER BY run_after
        LIMIT :n
        FOR UPDATE SKIP LOCKED)
    RETURNING id
)
SELECT (SELECT count(*) FROM promoted), (
    SELECT {seconds_until(run_after)} FROM rowlock.jobs_live
    WHERE NOT ready AND state <> 'running' AND run_after > {now}
    ORDER BY run_after
    LIMIT 1);

-- name: promote [sqlite]
-- Make due jobs claimable, oldest due first, in a bounded batch.
UPDATE rowlock_jobs_live SET ready = TRUE, updated_at = {now}
WHERE id IN (
    SELECT id FROM rowlock_jobs_live j
    WHERE NOT ready AND state <> 'running' AND run_after <= {now} AND {not_aside(j.id)}
    ORDER BY run_after
    LIMIT :n);

-- name: promoted [sqlite]
-- What the statement before it did: how many, and the seconds until the next one is due.
SELECT changes(), (
    SELECT {seconds_until(run_after)} FROM rowlock_jobs_live
    WHERE NOT ready AND state <> 'running' AND run_after > {now}
    ORDER BY run_after
    LIMIT 1);

-- name: due_ids
-- The jobs that a promotion takes.
SELECT CAST(id AS text) FROM {t}jobs_live j
WHERE NOT ready AND state <> 'running' AND run_after <= {now} AND {not_aside(j.id)}
ORDER BY run_after
LIMIT :n;

-- name: ready_ids
-- Claimable jobs of these lanes after :id, with a source or without one.
SELECT CAST(j.id AS text)
FROM {t}jobs_live j JOIN {rows:lane(queue text, task text)} ON j.queue = lane.queue AND j.task = lane.task
WHERE j.ready AND j.id > :id
ORDER BY j.id
LIMIT :n;

-- name: lock_ready
-- Of these jobs, those that are claimable and that nobody else has locked.
SELECT CAST(j.id AS text)
FROM {t}jobs_live j
WHERE j.id {among(SELECT picked.id FROM {rows:picked(id uuid)})} AND j.ready
{skip_locked()};

-- name: hold_back
-- A job that cannot be claimed is no longer looked at by claims.
UPDATE {t}jobs_live SET ready = FALSE WHERE id = :job_id;

-- name: put_aside
-- Leave a job or batch alone for :again seconds, or until its row here is deleted; answers how often it has failed.
INSERT INTO {t}set_aside (id, doing, error, since, again_at)
VALUES (:job_id, :doing, :error, {now}, {after(:again)})
ON CONFLICT (id) DO UPDATE
SET doing = excluded.doing, error = excluded.error, again_at = excluded.again_at, times = {t}set_aside.times + 1
RETURNING times;

-- name: list_aside
-- What is set aside, the latest first.
SELECT CAST(id AS text), doing, error, times, {time(since)}, {time(again_at)}
FROM {t}set_aside
ORDER BY since DESC
LIMIT :n;

-- name: one_aside
-- The same of one job or batch.
SELECT CAST(id AS text), doing, error, times, {time(since)}, {time(again_at)} FROM {t}set_aside WHERE id = :job_id;

-- name: forget_aside
-- Rows about what has come right since: it is gone or over, or it was tried again long ago and has not failed.
DELETE FROM {t}set_aside
WHERE again_at < {after(-3600)}
   OR coalesce((SELECT 1 FROM {t}jobs_live j WHERE j.id = {t}set_aside.id),
               (SELECT 1 FROM {t}batches b WHERE b.id = {t}set_aside.id AND b.finished_at IS NULL),
               CASE WHEN doing = 'prune' THEN (SELECT 1 FROM {t}jobs_finished f WHERE f.id = {t}set_aside.id LIMIT 1) END)
      IS NULL;

-- name: to_sweep
-- Whether there are leases that ran out, waiting jobs whose latest start has passed, and batches that are not over: one
-- look instead of three transactions, for most rounds find nothing.
SELECT (
    -- The order, here and below, is that of the index: without it, a plan may read the whole table.
    SELECT 1 FROM {t}jobs_live j
    WHERE state = 'running' AND lease_expires_at < {now} AND {not_aside(j.id)}
    ORDER BY id
    LIMIT 1
) IS NOT NULL, (
    SELECT 1 FROM {t}jobs_live j
    WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at <= {now} AND {not_aside(j.id)}
    ORDER BY expires_at
    LIMIT 1
) IS NOT NULL, (
    SELECT 1 FROM {t}batches WHERE finished_at IS NULL ORDER BY id LIMIT 1
) IS NOT NULL;

-- name: overdue
-- Waiting jobs whose latest start has passed; with :job_id, that one alone.
SELECT id FROM {t}jobs_live j
WHERE expires_at IS NOT NULL AND state <> 'running' AND expires_at <= {now} AND {not_aside(j.id)}
  AND CASE WHEN CAST(:job_id AS text) IS NULL THEN TRUE ELSE CAST(j.id AS text) = CAST(:job_id AS text) END
ORDER BY expires_at
LIMIT :n
{skip_locked()};

-- name: lock_jobs
-- Live jobs for an operator's cancel, locked in id order.
SELECT j.id, j.state, j.locked_by
FROM {rows:asked(id uuid)}
CROSS JOIN {t}jobs_live j
WHERE j.id = asked.id
ORDER BY j.id
{lock(j)};

-- name: request_cancel
-- Ask a running attempt to stop. Its worker hears of it by wake-up or with its next beat.
UPDATE {t}jobs_live SET cancel_requested_at = coalesce(cancel_requested_at, {now}), updated_at = {now}
WHERE state = 'running' AND id IN (SELECT asked.id FROM {rows:asked(id uuid)});

-- name: ring_workers [postgres]
-- Tell these workers that one of their jobs is to be cancelled.
SELECT pg_notify('rowlock', 'cancel:' || told.worker) FROM {rows:told(worker text)};

-- name: ring_workers [sqlite]
-- The bells of the workers that must look at their cancel flags.
SELECT w.bell FROM rowlock_workers w JOIN {rows:told(worker text)} ON w.id = told.worker WHERE w.bell IS NOT NULL;

-- name: final_states
-- Where finished jobs stand.
SELECT id, state FROM {t}jobs_finished WHERE id {among(SELECT asked.id FROM {rows:asked(id uuid)})};

-- name: lock_finished
-- Dead and cancelled jobs for an operator's retry, with what must be taken back for them, locked in id order.
SELECT id, task, owner, state, unique_key, unique_mode, CAST(batch_id AS text), error_code
FROM {t}jobs_finished
WHERE id {among(SELECT asked.id FROM {rows:asked(id uuid)})} AND state IN ('dead', 'cancelled')
ORDER BY id
{lock()};

-- name: revive
-- Back to the live table with id, attempt and history; `max_attempts` is raised so that :tries are left. Convictions
-- are forgotten: the operator has presumably mended what took the worker down.
INSERT INTO {t}jobs_live (
    id, task, queue, state, ready, priority, args, owner, source, tags, batch_id, schedule_id, tick,
    unique_key, unique_mode, attempt, max_attempts,
    releases, losses, convictions, backoff, timeout_seconds, run_after, settled_token,
    on_success, on_dead, on_lost, keep_seconds, created_at, started_at, updated_at)
SELECT j.id, task, queue, 'queued', TRUE, priority, args, owner, source, tags, batch_id, schedule_id, tick,
       unique_key, unique_mode, attempt,
       {greatest(max_attempts, attempt - releases - losses + :tries)},
       releases, losses, 0, backoff, timeout_seconds, {now}, settled_token,
       on_success, on_dead, on_lost, keep_seconds, created_at, started_at, {now}
FROM {t}jobs_finished j
WHERE j.id {among(SELECT asked.id FROM {rows:asked(id uuid)})};

-- name: revive_remove
-- The other half of the move back.
DELETE FROM {t}jobs_finished WHERE id {among(SELECT gone.id FROM {rows:gone(id uuid)})};

-- name: wake [postgres]
-- Wake sleeping workers after something other than an enqueue made work claimable.
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > {now});

-- name: work_left
-- Something in these lanes that runs or is due, if there is anything.
SELECT j.id
FROM {t}jobs_live j JOIN {rows:lane(queue text, task text)} ON j.queue = lane.queue AND j.task = lane.task
WHERE (j.ready OR j.state = 'running' OR j.run_after <= {now}) AND {not_aside(j.id)}
LIMIT 1;
