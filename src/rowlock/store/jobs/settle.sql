-- Successes, the hot path of settle.py.

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
