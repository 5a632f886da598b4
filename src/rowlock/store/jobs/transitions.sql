-- All outcomes other than plain successes, in the order of transitions.py.
--
-- A batch parameter is joined as `FROM {rows:…} CROSS JOIN jobs`, because SQLite keeps that order: one index probe for
-- each row of the batch. A plain JOIN may read the batch again for each running job.

-- name: lock_held
-- The fence: the jobs that are still held under these leases, with their cancel flag and source. Locked in id order.
SELECT j.id, j.lease_token AS token, j.cancel_requested_at IS NOT NULL AS cancel_requested, j.source,
       coalesce(j.source_epoch, 0) AS source_epoch
FROM {rows:mine(id uuid, token uuid)}
CROSS JOIN {t}jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
ORDER BY j.id
FOR UPDATE OF j;

-- name: settled_tokens
-- The token that last settled each of these jobs. It distinguishes a repeated settle (`duplicate`) from a lost lease
-- (`lost`).
SELECT id, settled_token FROM {t}jobs_live WHERE id {in:asked(id uuid)}
UNION ALL
SELECT id, settled_token FROM {t}jobs_finished WHERE id {in:asked(id uuid)};

-- name: record_attempts
-- History of the attempts that did not succeed, taken from the rows before their leases are cleared. A job that was
-- never claimed has no attempt to record.
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
-- next attempt starts without the lease, progress and result file of this one.
UPDATE {t}jobs_live
SET state = back.state, ready = (back.delay <= 0), run_after = {after(back.delay)},
    releases = releases + back.released, losses = losses + back.lost, convictions = convictions + back.convicted,
    losses_in_row = back.losses_in_row, probation = back.probation, sigterms_in_row = back.sigterms_in_row,
    disconnects_in_row = back.disconnects_in_row,
    error_code = back.error_code, error_message = back.error_message,
    settled_token = CASE WHEN back.by_holder = 1 THEN lease_token ELSE settled_token END,
    lease_token = NULL, locked_by = NULL, locked_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL,
    progress = NULL, phase = NULL, message = NULL, result_uri = NULL, result_checksum = NULL, updated_at = {now}
FROM {rows:back(id uuid, state text, delay float, released int, lost int, convicted int,
                losses_in_row int, probation int, sigterms_in_row int, disconnects_in_row int,
                error_code text, error_message text, by_holder int)}
WHERE {t}jobs_live.id = back.id;

-- name: ending
-- The batches and keys that the end of these jobs changes. Read before the rows move.
SELECT id, CAST(batch_id AS text) AS batch_id, unique_mode
FROM {t}jobs_live
WHERE id {in:asked(id uuid)} AND (batch_id IS NOT NULL OR unique_mode IS NOT NULL);

-- name: finish_copy
-- Copy jobs to jobs_finished with their final state. The caller has locked the rows, and removes them next. Only a
-- settle by the lease's holder sets settled_token: a worker whose lease was reclaimed must learn that it lost the
-- lease.
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
