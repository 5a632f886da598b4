-- The statements of store/jobs.py, transitions.py, cancels.py and retries.py, in this order. Tokens in braces are
-- explained in store/engines/queries.py.
-- A batch parameter is joined as `FROM {rows} CROSS JOIN jobs`, because SQLite keeps that order: one index probe for each
-- row of the batch. A plain JOIN may read the batch again for each running job.

-- part: one_of(asked)
-- A condition: the column before it is one of these ids.
{among(SELECT {asked}.id FROM {rows:{asked}(id uuid)})}

-- part: insert(columns | values | given)
-- Insert new jobs that share their options: one for each row of `given`.
INSERT INTO {t}jobs_live (
    id, args, {columns}, task, ready, run_after, {options(@)}, created_at, updated_at)
SELECT added.id, added.args, {values}, :task, coalesce(:run_after, {after(:delay)}) <= {now},
       coalesce(:run_after, {after(:delay)}), {options(:@)}, {now}, {now}
FROM {given}

-- part: and_notify(insert)
-- Insert and wake workers, but only if one is idle: NOTIFY takes a database-wide lock at commit, and at every commit it
-- would halve what ten producers can insert. With rowlock.wakeups = off never: see notify_idle.
WITH added AS (
    {insert}
)
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > {now})
  AND current_setting('rowlock.wakeups', TRUE) IS DISTINCT FROM 'off'

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
-- A single job, as scalar parameters: arrays would add a quarter to its time on PostgreSQL, and JSON would have to be parsed
-- on SQLite.
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

-- name: take_id [postgres]
-- Reserve a job id that a client chose, if no job has or had it. Waits for a concurrent transaction that reserves the same
-- id, and takes the id if that one rolls back. A function with the rights of its owner, as in keys.sql.
SELECT taken.id AS job_id FROM rowlock._take_ids(ARRAY[CAST(:job_id AS uuid)]) AS taken (id);

-- name: take_id [sqlite]
-- Reserve a job id that a client chose.
INSERT INTO {t}job_keys (scope, key, job_id, mode)
VALUES ('id', :job_id, :job_id, 'id')
ON CONFLICT (scope, key) DO NOTHING
RETURNING job_id;

-- name: known_id [postgres]
-- Whether there is a job with this id, or there was one that still holds a key.
SELECT 1 AS known FROM rowlock._known_ids(ARRAY[CAST(:job_id AS uuid)]);

-- name: known_id [sqlite]
-- Whether there is a job with this id, or there was one that still holds a key: most ids were not chosen by clients, and
-- are not in job_keys under the scope `id`.
SELECT 1 AS known FROM {t}jobs_live WHERE id = :job_id
UNION ALL
SELECT 1 FROM {t}jobs_finished WHERE id = :job_id
UNION ALL
SELECT 1 FROM {t}job_keys WHERE job_id = :job_id AND scope <> 'id'
LIMIT 1;

-- name: give_id_back [postgres]
-- Undo take_id: the job was not created.
SELECT FROM rowlock._give_ids_back(ARRAY[CAST(:key AS uuid)]);

-- name: give_id_back [sqlite]
-- Undo take_id: the job was not created.
DELETE FROM {t}job_keys WHERE scope = 'id' AND key = :key;

-- part: unchanged
-- The columns that a job keeps whenever its row moves from one table to the other: its options, and what they leave out.
task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at, {kept_options(@)}

-- part: unchanged_at_its_end
-- The other columns that it keeps when it ends. An operator's retry gives them new values.
max_attempts, expires_at, run_after, cancel_requested_at, phase, message, result_uri, result_checksum

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
-- PostgreSQL: the fence. Of the leases :done, the jobs that are still held under them, locked in the order given (the
-- caller sorts by id). LATERAL with LIMIT, because a plain join may be planned as a product of both sides while the table
-- is empty, and that plan be cached: 300 ms for 1,000 jobs. (DELETE … USING would save a tenth, and has that plan.)
SELECT found.*, done.result AS outcome
FROM {rows:done(id uuid, token uuid, result json)}
CROSS JOIN LATERAL (
    SELECT j.* FROM rowlock.jobs_live j WHERE {part:fence(done)} LIMIT 1 FOR UPDATE
) found

-- part: moving
-- PostgreSQL: move the jobs of `held` from jobs_live to jobs_finished, as successes.
gone AS (
    -- By id, not by ctid: if the row was updated while this statement waited for its lock, the new version is not in
    -- this statement's snapshot, and its ctid would not be found. By id, PostgreSQL follows the row to its new version.
    DELETE FROM rowlock.jobs_live WHERE id = ANY(ARRAY(SELECT id FROM held))
), kept AS (
    {part:finish('succeeded' | releases, losses, convictions | lease_token | 100 | outcome | NULL, NULL | :keep)}
    FROM held j
    RETURNING 1
)

-- name: succeed [postgres]
-- Successes, the hot path: fence, move and outcome in one statement.
WITH held AS MATERIALIZED (
    {part:holding}
), {part:moving}
-- Only their number: to return the ids would cost as much as to send all parameters.
SELECT count(*) AS moved FROM kept;

-- part: successes
-- Successes as one JSON object. A key is the lease (its token, 36 characters, then the job's id), a value the result. As an
-- array for each success, which is the form of other batches, SQLite would parse each array again for each column: that
-- is a tenth of the time of the two statements.
(SELECT substr(key, 37) AS id, substr(key, 1, 36) AS token, value AS result FROM json_each(:done)) AS done

-- name: succeed [sqlite]
-- Successes, the hot path: fence and copy. The writer lock keeps the rows unchanged until succeed_remove deletes them.
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
-- How many rows the statement before this one has changed.
SELECT changes() AS moved;

-- name: lock_held
-- The fence: the jobs that are still held under these leases, with their cancel flag and source. Locked in id order.
SELECT j.id, j.lease_token AS token, j.cancel_requested_at IS NOT NULL AS cancel_requested, j.source,
       coalesce(j.source_epoch, 0) AS source_epoch
FROM {rows:mine(id uuid, token uuid)}
CROSS JOIN {t}jobs_live j
WHERE {part:fence(mine)}
ORDER BY j.id
{lock(j)};

-- name: settled_tokens
-- The token that last settled each of these jobs. It tells a repeated settle (`duplicate`) from a lost lease (`lost`).
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
-- Put jobs back: retryable after a failure, queued when released. The caller has locked the rows with lock_held.
UPDATE {t}jobs_live
SET state = back.state, ready = (back.delay <= 0), run_after = {after(back.delay)},
    releases = releases + back.released, losses = losses + back.lost, convictions = convictions + back.convicted,
    losses_in_row = back.losses_in_row, probation = back.probation, sigterms_in_row = back.sigterms_in_row,
    disconnects_in_row = back.disconnects_in_row,
    error_code = back.error_code, error_message = back.error_message,
    settled_token = CASE WHEN back.by_holder = 1 THEN lease_token ELSE settled_token END,
    lease_token = NULL, locked_by = NULL, locked_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL,
    progress = NULL, phase = NULL, message = NULL, result_uri = NULL, result_checksum = NULL, updated_at = {now}
FROM {rows:back(id uuid, state text, delay float, released int, lost int, convicted int, losses_in_row int, probation int, sigterms_in_row int, disconnects_in_row int, error_code text, error_message text, by_holder int)}
WHERE {t}jobs_live.id = back.id;

-- name: ending
-- The batches and keys that the end of these jobs changes. Read before the rows move.
SELECT id, CAST(batch_id AS text) AS batch_id, unique_mode
FROM {t}jobs_live
WHERE id {part:one_of(asked)} AND (batch_id IS NOT NULL OR unique_mode IS NOT NULL);

-- name: finish_copy
-- Copy jobs to jobs_finished with their final state. The caller has locked the rows, and removes them next.
{part:finish(final.state
    | releases + final.released, losses + final.lost, convictions + final.convicted
    | CASE WHEN final.by_holder = 1 THEN lease_token ELSE settled_token END
    | CASE WHEN final.state = 'succeeded' THEN 100 ELSE progress END
    | final.result | final.error_code, final.error_message | final.keep)}
FROM {rows:final(id uuid, state text, result json, error_code text, error_message text, released int, lost int, convicted int, keep float, by_holder int)}
CROSS JOIN {t}jobs_live j
WHERE j.id = final.id;

-- name: finish_remove
-- The other half of finish_copy.
DELETE FROM {t}jobs_live WHERE id IN (SELECT gone.id FROM {rows:gone(id uuid)});

-- name: overdue
-- Waiting jobs whose `expires_at` has passed; with :job_id, only that job.
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
-- Ask a running attempt to stop. Its worker learns it from a wake-up or with its next heartbeat.
UPDATE {t}jobs_live SET cancel_requested_at = coalesce(cancel_requested_at, {now}), updated_at = {now}
WHERE state = 'running' AND id IN (SELECT asked.id FROM {rows:asked(id uuid)});

-- name: final_states
-- The states of finished jobs.
SELECT id, state FROM {t}jobs_finished WHERE id {part:one_of(asked)};

-- name: lock_finished
-- Dead and cancelled jobs for an operator's retry, with the key and the batch that a retry takes again, locked in id order.
SELECT id, task, owner, state, unique_key, unique_mode, CAST(batch_id AS text) AS batch_id, error_code
FROM {t}jobs_finished
WHERE id {part:one_of(asked)} AND state IN ('dead', 'cancelled')
ORDER BY id
{lock()};

-- name: revive
-- Copy jobs back to jobs_live, with id, attempt and history; `max_attempts` is raised so that :tries are left. Convictions
-- and all counts in a row start at 0: the operator has presumably mended what took the worker down.
INSERT INTO {t}jobs_live (
    id, {part:unchanged}, state, ready, max_attempts, releases, losses, convictions, run_after, settled_token, updated_at)
SELECT j.id, {part:unchanged}, 'queued', TRUE, {greatest(max_attempts, attempt - releases - losses + :tries)},
       releases, losses, 0, {now}, settled_token, {now}
FROM {t}jobs_finished j
WHERE j.id {part:one_of(asked)};
