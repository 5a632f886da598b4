-- The inserts of enqueue.py: reserving ids that clients choose, then the jobs themselves. store/engine/statements.py
-- explains the tokens in braces.

-- name: take_id [postgres]
-- Reserve a job id that a client chose, unless a job has or had it. If a concurrent transaction is reserving this id,
-- wait for it, and take the id if it rolls back. The function runs with its owner's rights, as in keys.sql.
SELECT taken.id AS job_id FROM rowlock._take_ids(ARRAY[CAST(:job_id AS uuid)]) AS taken (id);

-- name: take_id [sqlite]
-- Reserve a job id that a client chose.
INSERT INTO rowlock_job_keys (scope, key, job_id, mode)
VALUES ('id', :job_id, :job_id, 'id')
ON CONFLICT (scope, key) DO NOTHING
RETURNING job_id;

-- name: known_id [postgres]
-- Whether a job has this id, or had it and still holds a key.
SELECT 1 AS known FROM rowlock._known_ids(ARRAY[CAST(:job_id AS uuid)]);

-- name: known_id [sqlite]
-- Whether a job has this id, or had it and still holds a key. take_id can't tell: most ids were not chosen by clients,
-- so they are not in job_keys under the scope `id`.
SELECT 1 AS known FROM rowlock_jobs_live WHERE id = :job_id
UNION ALL
SELECT 1 FROM rowlock_jobs_finished WHERE id = :job_id
UNION ALL
SELECT 1 FROM rowlock_job_keys WHERE job_id = :job_id AND scope <> 'id'
LIMIT 1;

-- name: give_id_back [postgres]
-- Undo take_id: the job was not created.
SELECT FROM rowlock._give_ids_back(ARRAY[CAST(:key AS uuid)]);

-- name: give_id_back [sqlite]
-- Undo take_id: the job was not created.
DELETE FROM rowlock_job_keys WHERE scope = 'id' AND key = :key;

-- part: options
-- The options of a new job that are stored as given: the columns that core/options.py lists for a new job.
queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags,
    batch_id, unique_mode, expires_at, traceparent, parent_id

-- part: given_options
-- The parameters for these columns, in their order.
:queue, :priority, :max_attempts, :backoff, :timeout_seconds, :on_success, :on_dead, :on_lost, :keep_seconds, :owner,
    :tags, :batch_id, :unique_mode, :expires_at, :traceparent, :parent_id

-- part: begin_insert [postgres]
-- The insert is the first half of one statement; the wake-up is the second.
WITH added AS (

-- part: begin_insert [sqlite]
-- A plain insert.

-- part: wake_an_idle_worker [postgres]
-- Wake workers, but only if one is idle: NOTIFY takes a database-wide lock at commit, and with one in every commit, ten
-- producers would insert half as many jobs. rowlock.wakeups = off turns it off: see notify_idle.
)
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > {now})
  AND current_setting('rowlock.wakeups', TRUE) IS DISTINCT FROM 'off'

-- part: wake_an_idle_worker [sqlite]
-- The caller wakes workers by a message to their sockets.

-- name: enqueue
-- Insert many jobs that share their options. Jobs that are due already are claimable at once.
{part:begin_insert}
INSERT INTO {t}jobs_live (
    id, args, source, task, ready, run_after, {part:options}, created_at, updated_at)
SELECT added.id, added.args, :source, :task, coalesce(:run_after, {after(:delay)}) <= {now},
       coalesce(:run_after, {after(:delay)}), {part:given_options}, {now}, {now}
FROM {rows:added(id uuid, args json)}
{part:wake_an_idle_worker};

-- name: enqueue_one
-- Insert one job from scalar parameters: on PostgreSQL, arrays would take a quarter longer; on SQLite, JSON would have
-- to be parsed.
{part:begin_insert}
INSERT INTO {t}jobs_live (
    id, args, source, task, ready, run_after, {part:options}, created_at, updated_at)
SELECT added.id, added.args, :source, :task, coalesce(:run_after, {after(:delay)}) <= {now},
       coalesce(:run_after, {after(:delay)}), {part:given_options}, {now}, {now}
FROM {row:added(id uuid, args json)}
{part:wake_an_idle_worker};

-- name: enqueue_rows
-- Insert jobs that share their options but have their own keys and sources.
{part:begin_insert}
INSERT INTO {t}jobs_live (
    id, args, source, unique_key, task, ready, run_after, {part:options}, created_at, updated_at)
SELECT added.id, added.args, added.source, added.unique_key, :task, coalesce(:run_after, {after(:delay)}) <= {now},
       coalesce(:run_after, {after(:delay)}), {part:given_options}, {now}, {now}
FROM {rows:added(id uuid, args json, unique_key text, source text)}
{part:wake_an_idle_worker};
