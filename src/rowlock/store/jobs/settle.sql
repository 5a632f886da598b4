-- Successes, the hot path of settle.py.

-- part: kept_columns
-- The columns that a job keeps whenever its row moves between jobs_live and jobs_finished: its options, as
-- core/options.py lists them for a kept job, and what identifies it.
task, args, source, schedule_id, tick, unique_key, attempt, created_at, started_at,
    queue, priority, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id,
    unique_mode, traceparent, parent_id

-- part: kept_at_the_end
-- The columns that a job keeps besides when it ends. An operator's retry gives them new values.
max_attempts, expires_at, run_after, cancel_requested_at, phase, message, result_uri, result_checksum

-- name: succeed [postgres]
-- Successes, the hot path: check the leases, move the jobs and store the results, all in one statement.
WITH held AS MATERIALIZED (
    -- The fence: the jobs that are still held under these leases, locked in the order given (the caller sorts by id).
    -- LATERAL with LIMIT, because while the table is empty a plain join may be planned as a product of both sides, and
    -- that plan would be cached: 300 ms for 1,000 jobs. (DELETE … USING would save a tenth, but has that plan.)
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
    -- this statement's snapshot, and its ctid would not be found. By id, PostgreSQL follows the row to its new version.
    DELETE FROM rowlock.jobs_live WHERE id = ANY(ARRAY(SELECT id FROM held))
), kept AS (
    -- The same columns and values as in the bridge's succeed_remote, in SQLite's succeed and in finish_copy.
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
-- Only their number: returning the ids would cost as much as sending all parameters.
SELECT count(*) AS moved FROM kept;

-- part: successes
-- SQLite: the successes, sent as one JSON object. A key is the lease (its token, 36 characters, then the job's id), its
-- value the result. As an array for each success, like other batches, SQLite would parse each array again for each
-- column: that is a tenth of the time of both statements.
(SELECT substr(key, 37) AS id, substr(key, 1, 36) AS token, value AS result FROM json_each(:done)) AS done

-- name: succeed [sqlite]
-- Successes, the hot path: copy the jobs that are still held under these leases. The writer lock keeps the rows
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
-- The other half of the move: delete the same rows, by the same condition.
DELETE FROM rowlock_jobs_live
WHERE rowid IN (
    SELECT j.rowid
    FROM {part:successes}
    CROSS JOIN rowlock_jobs_live j
    WHERE j.id = done.id AND j.lease_token = done.token AND j.state = 'running');

-- name: changed [sqlite]
-- How many rows the previous statement has changed.
SELECT changes() AS moved;
