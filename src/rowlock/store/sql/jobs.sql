-- What a job's row goes through, in the order of store/jobs.py. Words and tokens: see store/engines/queries.py.
-- A batch is joined as `FROM {rows} CROSS JOIN jobs`: SQLite then keeps that order, one index probe for each row of the
-- batch, instead of reading the batch again for each running job.

-- part: one_of(asked)
-- Is one of these ids.
{among(SELECT {asked}.id FROM {rows:{asked}(id uuid)})}

-- part: insert(columns | values | given)
-- New jobs that share their options, of the table `given`.
INSERT INTO {t}jobs_live (
    id, args, {columns}, task, ready, run_after, {options(@)}, created_at, updated_at)
SELECT added.id, added.args, {values}, :task, coalesce(:run_after, {after(:delay)}) <= {now},
       coalesce(:run_after, {after(:delay)}), {options(:@)}, {now}, {now}
FROM {given}

-- part: and_notify(insert)
-- Wake workers only if one is idle: NOTIFY takes a database-wide lock at commit; unconditional, it halves what ten
-- producers can insert.
WITH added AS (
    {insert}
)
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > {now})

-- part: insert_many
-- Many jobs that differ in their arguments alone.
{part:insert(source | :source | {rows:added(id uuid, args json)})}

-- name: enqueue [postgres]
-- Insert many jobs that share their options, and notify.
{part:and_notify({part:insert_many})};

-- name: enqueue [sqlite]
-- Insert many jobs that share their options.
{part:insert_many};

-- part: insert_one
-- A single job: without arrays, which would cost it a quarter of its time on PostgreSQL, or JSON to take apart.
{part:insert(source | :source | {row:added(id uuid, args json)})}

-- name: enqueue_one [postgres]
-- Insert one job, and notify.
{part:and_notify({part:insert_one})};

-- name: enqueue_one [sqlite]
-- Insert one job.
{part:insert_one};

-- part: insert_rows
-- Jobs that each have their own key or source.
{part:insert(source, unique_key | added.source, added.unique_key | {rows:added(id uuid, args json, unique_key text, source text)})}

-- name: enqueue_rows [postgres]
-- Insert jobs that each have their own key or source, and notify.
{part:and_notify({part:insert_rows})};

-- name: enqueue_rows [sqlite]
-- Insert jobs that each have their own key or source.
{part:insert_rows};

-- name: take_id
-- Reserve a client-chosen job id. It waits for a concurrent twin and takes over if that one rolls back.
INSERT INTO {t}job_keys (scope, key, job_id, mode)
VALUES ('id', :key, :job_id, 'id')
ON CONFLICT (scope, key) DO NOTHING
RETURNING job_id;

-- name: known_id
-- Whether a job of this id is there, or a key names one that was: not every id was chosen by a client.
SELECT 1 AS known FROM {t}jobs_live WHERE id = :job_id
UNION ALL
SELECT 1 FROM {t}jobs_finished WHERE id = :job_id
UNION ALL
SELECT 1 FROM {t}job_keys WHERE job_id = :job_id AND scope <> 'id'
LIMIT 1;

-- name: give_id_back
-- Undo take_id: the job was not created.
DELETE FROM {t}job_keys WHERE scope = 'id' AND key = :key;

-- part: unchanged
-- The columns that a job keeps whenever its row moves from one table to the other.
task, queue, priority, args, owner, source, tags, batch_id, schedule_id, tick, unique_key, unique_mode, attempt,
backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, traceparent, parent_id, created_at, started_at

-- part: unchanged_at_its_end
-- The other columns that it keeps when it ends. A retry sets them anew.
max_attempts, run_after, expires_at, cancel_requested_at, phase, message, result_uri, result_checksum

-- part: finish(state | counts | token | progress | result | error | keep)
-- Copy jobs `j` into jobs_finished: the one list of its columns.
INSERT INTO {t}jobs_finished (
    id, {part:unchanged}, {part:unchanged_at_its_end},
    state, releases, losses, convictions, settled_token, progress, result, error_code, error_message,
    last_worker, finished_at, updated_at, drop_on)
SELECT j.id, {part:unchanged}, {part:unchanged_at_its_end},
       {state}, {counts}, {token}, {progress}, {result}, {error},
       locked_by, {now}, {now}, {drop_on(coalesce(keep_seconds, {keep}))}

-- part: fence(mine)
-- The lease of the job `j` is the one that `mine` names.
j.id = {mine}.id AND j.lease_token = {mine}.token AND j.state = 'running'

-- part: holding
-- PostgreSQL: the jobs whose leases hold, of :done, locked.
-- The fence, in the order given (the caller sorts by id). LATERAL with LIMIT, because a plain join (as of a DELETE
-- … USING, which would save a tenth) may be planned, while the table is empty, as a product of both sides and
-- then cached: 300 ms for 1,000 jobs.
SELECT found.*, done.result AS outcome
FROM {rows:done(id uuid, token uuid, result json)}
CROSS JOIN LATERAL (
    SELECT j.* FROM rowlock.jobs_live j WHERE {part:fence(done)} LIMIT 1 FOR UPDATE
) found

-- part: moving
-- PostgreSQL: move the jobs of `held` to the finished ones, as successes.
gone AS (
    -- By id, not by ctid: a row that was updated while its lock was waited for has a version that this statement's
    -- snapshot does not see, and only a search that begins at the old one finds it.
    DELETE FROM rowlock.jobs_live WHERE id = ANY(ARRAY(SELECT id FROM held))
), kept AS (
    {part:finish('succeeded' | releases, losses, convictions | lease_token | 100 | outcome | NULL, NULL | :keep)}
    FROM held j
    RETURNING 1
)

-- name: succeed [postgres]
-- Plain successes, the hot path: fence, move and outcome in one statement.
WITH held AS MATERIALIZED (
    {part:holding}
), {part:moving}
-- Only how many: the ids that come back would cost as much as all that is sent.
SELECT count(*) AS moved FROM kept;

-- part: successes
-- Successes as one JSON object, from the lease (its token, 36 characters, then the job's id) to the result. An array for
-- each of them, as in other batches, would be read anew for each column: a tenth of the time of these two statements.
(SELECT substr(key, 37) AS id, substr(key, 1, 36) AS token, value AS result FROM json_each(:done)) AS done

-- name: succeed [sqlite]
-- Plain successes, the hot path: fence and copy. The writer lock keeps the rows as they are until they are removed.
{part:finish('succeeded' | releases, losses, convictions | lease_token | 100 | done.result | NULL, NULL | :keep)}
FROM {part:successes}
CROSS JOIN rowlock_jobs_live j
WHERE {part:fence(done)};

-- name: succeed_remove [sqlite]
-- The other half of the move, under the same fence.
DELETE FROM rowlock_jobs_live
WHERE rowid IN (
    SELECT j.rowid
    FROM {part:successes}
    CROSS JOIN rowlock_jobs_live j
    WHERE {part:fence(done)});

-- name: changed [sqlite]
-- How many rows the statement before it changed.
SELECT changes() AS moved;

-- name: lock_held
-- The fence: of these leases, the ones that still hold, whether a cancel was asked for, and their source. Locked in
-- id order.
SELECT j.id, j.lease_token AS token, j.cancel_requested_at IS NOT NULL AS cancel_requested, j.source,
       coalesce(j.source_epoch, 0) AS source_epoch
FROM {rows:mine(id uuid, token uuid)}
CROSS JOIN {t}jobs_live j
WHERE {part:fence(mine)}
ORDER BY j.id
{lock(j)};

-- name: settled_tokens
-- Which token last settled these jobs: tells a repeated settle from a lost lease.
SELECT id, settled_token FROM {t}jobs_live WHERE id {part:one_of(asked)}
UNION ALL
SELECT id, settled_token FROM {t}jobs_finished WHERE id {part:one_of(asked)};

-- name: record_attempts
-- History of the attempts that did not succeed, taken from the rows before their leases are cleared.
INSERT INTO {t}attempts (
    job_id, attempt, outcome, worker, started_at, finished_at, error_code, error_message, traceback)
SELECT j.id, j.attempt, ended.outcome, j.locked_by, j.locked_at, {now}, ended.error_code, ended.error_message,
       ended.traceback
FROM {rows:ended(id uuid, outcome text, error_code text, error_message text, traceback text)}
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
    progress = NULL, phase = NULL, message = NULL, result_uri = NULL, result_checksum = NULL, updated_at = {now}
FROM {rows:back(id uuid, state text, delay float, released int, lost int, convicted int, error_code text, error_message text, by_holder int)}
WHERE {t}jobs_live.id = back.id;

-- name: ending
-- What must be told of the end of these jobs, before they go: their batches and keys.
SELECT id, CAST(batch_id AS text) AS batch_id, unique_mode
FROM {t}jobs_live
WHERE id {part:one_of(asked)} AND (batch_id IS NOT NULL OR unique_mode IS NOT NULL);

-- name: finish_copy
-- Into jobs_finished with the final state. The caller holds the rows and removes them right after.
{part:finish(final.state
    | releases + final.released, losses + final.lost, convictions + final.convicted
    | CASE WHEN final.by_holder = 1 THEN lease_token ELSE settled_token END
    | CASE WHEN final.state = 'succeeded' THEN 100 ELSE progress END
    | final.result | final.error_code, final.error_message | final.keep)}
FROM {rows:final(id uuid, state text, result json, error_code text, error_message text, released int, lost int, convicted int, keep float, by_holder int)}
CROSS JOIN {t}jobs_live j
WHERE j.id = final.id;

-- name: finish_remove
-- The other half of the move.
DELETE FROM {t}jobs_live WHERE id IN (SELECT gone.id FROM {rows:gone(id uuid)});

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

-- name: final_states
-- Where finished jobs stand.
SELECT id, state FROM {t}jobs_finished WHERE id {part:one_of(asked)};

-- name: lock_finished
-- Dead and cancelled jobs for an operator's retry, with what must be taken back for them, locked in id order.
SELECT id, task, owner, state, unique_key, unique_mode, CAST(batch_id AS text) AS batch_id, error_code
FROM {t}jobs_finished
WHERE id {part:one_of(asked)} AND state IN ('dead', 'cancelled')
ORDER BY id
{lock()};

-- name: revive
-- Back to the live table with id, attempt and history; `max_attempts` is raised so that :tries are left. Convictions
-- are forgotten: the operator has presumably mended what took the worker down.
INSERT INTO {t}jobs_live (
    id, {part:unchanged}, state, ready, max_attempts, releases, losses, convictions, run_after, settled_token, updated_at)
SELECT j.id, {part:unchanged}, 'queued', TRUE, {greatest(max_attempts, attempt - releases - losses + :tries)},
       releases, losses, 0, {now}, settled_token, {now}
FROM {t}jobs_finished j
WHERE j.id {part:one_of(asked)};

-- name: revive_remove
-- The other half of the move back.
DELETE FROM {t}jobs_finished WHERE id {part:one_of(gone)};
