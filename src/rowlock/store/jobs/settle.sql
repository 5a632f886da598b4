-- How attempts end, in the order of settle.py: successes, the hot path, then every other transition.

-- part: kept_columns
-- The columns that a job keeps whenever its row moves between jobs_live and jobs_finished: those that identify it, and
-- its options, as core/options.py lists them for a kept job.
task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id

-- part: kept_at_the_end
-- Further columns that a job keeps when it ends. An operator's retry gives them new values.
max_attempts, expires_at, run_after, cancel_requested_at, phase, message, result_uri, result_checksum

-- name: succeed [postgres]
-- Successes, the hot path: check the leases, move the jobs and store the results, all in one statement.
WITH held AS MATERIALIZED (
    -- The fence: the jobs that are still held under these leases, locked in the order given (the caller sorts by id).
    -- LATERAL with LIMIT, because while the table is empty, a plain join may be planned as a product of both sides, and
    -- the plan would be cached: 300 ms for 1,000 jobs. (DELETE … USING would save a tenth, but it gets that plan.)
    SELECT found.*, done.result AS outcome
    FROM {rows:done(id uuid, token uuid, result json)}
    CROSS JOIN LATERAL (
        SELECT j.* FROM rowlock.jobs_live j
        WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running'
        LIMIT 1
        FOR UPDATE
    ) found
), gone AS (
    -- By id, not by ctid: if the row was updated while this statement waited for its lock, the new version is not in
    -- this statement's snapshot, so its ctid would not be found. With the id, PostgreSQL follows the row to it.
    DELETE FROM rowlock.jobs_live WHERE id = ANY(ARRAY(SELECT id FROM held))
), kept AS (
    -- Keep these columns and values as in the bridge's succeed_remote, SQLite's succeed and finish_copy.
    INSERT INTO rowlock.jobs_finished (
        id, {part:kept_columns}, {part:kept_at_the_end},
        state, releases, losses, convictions, settled_token, progress, result, error_code, error_message,
        last_worker, finished_at, updated_at, drop_on)
    SELECT j.id, {part:kept_columns}, {part:kept_at_the_end},
           'succeeded', releases, losses, convictions, lease_token, 100, outcome, NULL, NULL,
           locked_by, {now}, {now}, {drop_on(coalesce(keep_seconds, :keep))}
    FROM held j
    RETURNING 1
)
-- Return only their number: the ids would cost as much as sending all parameters.
SELECT count(*) AS moved FROM kept;

-- part: successes
-- SQLite: the successes, sent as one JSON object. Each key is a lease (a token of 36 characters, then the job's id),
-- each value a result. Other batches send an array for each row, which SQLite parses again for each column: here that
-- would cost a tenth of the time of both statements.
(SELECT substr(key, 37) AS id, substr(key, 1, 36) AS token, value AS result FROM json_each(:done)) AS done

-- name: succeed [sqlite]
-- Successes, the hot path: copy the jobs that are still held under these leases. The writer lock keeps their rows
-- unchanged until succeed_remove deletes them.
INSERT INTO rowlock_jobs_finished (
    id, {part:kept_columns}, {part:kept_at_the_end},
    state, releases, losses, convictions, settled_token, progress, result, error_code, error_message,
    last_worker, finished_at, updated_at, drop_on)
SELECT j.id, {part:kept_columns}, {part:kept_at_the_end},
       'succeeded', releases, losses, convictions, lease_token, 100, done.result, NULL, NULL,
       locked_by, {now}, {now}, {drop_on(coalesce(keep_seconds, :keep))}
FROM {part:successes}
CROSS JOIN rowlock_jobs_live j
WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running';

-- name: succeed_remove [sqlite]
-- The other half of the move: delete the rows that `succeed` has copied, by the same condition.
DELETE FROM rowlock_jobs_live
WHERE rowid IN (
    SELECT j.rowid
    FROM {part:successes}
    CROSS JOIN rowlock_jobs_live j
    WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running');

-- name: changed [sqlite]
-- How many rows the previous statement changed.
SELECT changes() AS moved;

-- name: lock_held
-- The fence: lock the jobs that are still held under these leases, in id order, with their cancel flag and source.
SELECT j.id, j.lease_token AS token, j.cancel_requested_at IS NOT NULL AS cancel_requested, j.source,
       coalesce(j.source_epoch, 0) AS source_epoch
FROM {rows:mine(id uuid, token uuid)}
CROSS JOIN {t}jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
ORDER BY j.id
FOR UPDATE OF j;

-- name: settled_tokens
-- The token that last settled each job: it tells a repeated settle (`duplicate`) from a lost lease (`lost`).
SELECT id, settled_token FROM {t}jobs_live WHERE id {in:asked(id uuid)}
UNION ALL
SELECT id, settled_token FROM {t}jobs_finished WHERE id {in:asked(id uuid)};

-- name: record_attempts
-- Record the attempts that did not succeed, from the jobs' rows before their leases are cleared. A job that was never
-- claimed has no attempt to record.
INSERT INTO {t}attempts (
    job_id, attempt, outcome, worker, started_at, finished_at, error_code, error_message, traceback)
SELECT j.id, j.attempt, ended.outcome, j.locked_by, j.locked_at, {now}, ended.error_code, ended.error_message,
       ended.traceback
FROM {rows:ended(id uuid, outcome text, error_code text, error_message text, traceback text)}
CROSS JOIN {t}jobs_live j
WHERE j.id = ended.id AND j.attempt > 0
ON CONFLICT (job_id, attempt) DO NOTHING;

-- name: requeue
-- Put jobs back: retryable after a failure, queued after a release. The caller has locked the rows with lock_held. The
-- next attempt starts without this attempt's lease, progress and result file.
UPDATE {t}jobs_live
SET state = back.state, ready = (back.delay <= 0), run_after = {after(back.delay)},
    releases = releases + back.released, losses = losses + back.lost, convictions = convictions + back.convicted,
    losses_in_row = back.losses_in_row, probation = back.probation, sigterms_in_row = back.sigterms_in_row,
    disconnects_in_row = back.disconnects_in_row,
    error_code = back.error_code, error_message = back.error_message,
    settled_token = CASE WHEN back.by_holder = 1 THEN lease_token ELSE settled_token END,
    lease_token = NULL, locked_by = NULL, locked_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL,
    published = NULL, progress = NULL, phase = NULL, message = NULL, result_uri = NULL, result_checksum = NULL, updated_at = {now}
FROM {rows:back(id uuid, state text, delay float, released int, lost int, convicted int,
                losses_in_row int, probation int, sigterms_in_row int, disconnects_in_row int,
                error_code text, error_message text, by_holder int)}
WHERE {t}jobs_live.id = back.id;

-- name: ending
-- The batches and keys that change when these jobs end. Read before the rows move.
SELECT id, CAST(batch_id AS text) AS batch_id, unique_mode
FROM {t}jobs_live
WHERE id {in:asked(id uuid)} AND (batch_id IS NOT NULL OR unique_mode IS NOT NULL);

-- name: finish_copy
-- Copy jobs to jobs_finished with their final state. The caller has locked the rows and removes them next. Only the
-- lease's holder sets settled_token: a worker whose lease was reclaimed must get the answer `lost`.
INSERT INTO {t}jobs_finished (
    id, {part:kept_columns}, {part:kept_at_the_end},
    state, releases, losses, convictions, settled_token, progress, result, error_code, error_message,
    last_worker, finished_at, updated_at, drop_on)
SELECT j.id, {part:kept_columns}, {part:kept_at_the_end},
       final.state, releases + final.released, losses + final.lost, convictions + final.convicted,
       CASE WHEN final.by_holder = 1 THEN lease_token ELSE settled_token END,
       CASE WHEN final.state = 'succeeded' THEN 100 ELSE progress END,
       final.result, final.error_code, final.error_message,
       locked_by, {now}, {now}, {drop_on(coalesce(keep_seconds, final.keep))}
FROM {rows:final(id uuid, state text, result json, error_code text, error_message text,
                 released int, lost int, convicted int, keep float, by_holder int)}
CROSS JOIN {t}jobs_live j
WHERE j.id = final.id;

-- name: finish_remove
-- The other half of finish_copy: remove the copied jobs from jobs_live.
DELETE FROM {t}jobs_live WHERE id IN (SELECT gone.id FROM {rows:gone(id uuid)});
