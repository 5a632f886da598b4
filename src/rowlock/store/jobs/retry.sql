-- An operator's retry, in the order of retry.py.

-- name: lock_finished
-- Lock dead and cancelled jobs for an operator's retry, in id order, with the keys and batches that they return to.
SELECT id, task, owner, state, unique_key, unique_mode, CAST(batch_id AS text) AS batch_id, error_code
FROM {t}jobs_finished
WHERE id {in:asked(id uuid)} AND state IN ('dead', 'cancelled')
ORDER BY id
FOR UPDATE;

-- name: revive
-- Copy jobs back to jobs_live with their id, attempt and history. `max_attempts` is raised so that :tries are left. The
-- convictions and the streaks start at 0: the operator has presumably fixed what took the worker down.
INSERT INTO {t}jobs_live (
    id, {part:kept_columns},
    state, ready, max_attempts, releases, losses, convictions, run_after, settled_token, updated_at)
SELECT j.id, {part:kept_columns},
       'queued', TRUE, {greatest(max_attempts, attempt - releases - losses + :tries)},
       releases, losses, 0, {now}, settled_token, {now}
FROM {t}jobs_finished j
WHERE j.id {in:asked(id uuid)};
