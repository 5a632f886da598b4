-- Inserting jobs, in the order of insert.py. Tokens in braces are explained in store/engine/statements.py.

-- part: options
-- The options of a new job that are stored as they are given: the columns that core/options.py lists for a new job.
queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags,
    batch_id, unique_mode, expires_at, traceparent, parent_id

-- part: given_options
-- The parameters for these columns, in their order.
:queue, :priority, :max_attempts, :backoff, :timeout_seconds, :on_success, :on_dead, :on_lost, :keep_seconds, :owner,
    :tags, :batch_id, :unique_mode, :expires_at, :traceparent, :parent_id

-- part: wake_an_idle_worker
-- PostgreSQL: wake workers, but only if one is idle. NOTIFY takes a database-wide lock at commit; sent with every
-- commit, it would halve what ten producers can insert. rowlock.wakeups = off turns it off: see notify_idle.
SELECT pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > {now})
  AND current_setting('rowlock.wakeups', TRUE) IS DISTINCT FROM 'off'

-- part: insert_many
-- Jobs that differ only in their arguments. A job that is due already is claimable at once.
INSERT INTO {t}jobs_live (
    id, args, source, task, ready, run_after, {part:options}, created_at, updated_at)
SELECT added.id, added.args, :source, :task, coalesce(:run_after, {after(:delay)}) <= {now},
       coalesce(:run_after, {after(:delay)}), {part:given_options}, {now}, {now}
FROM {rows:added(id uuid, args json)}

-- name: enqueue [postgres]
-- Insert many jobs that share their options, and wake a worker.
WITH added AS (
    {part:insert_many}
)
{part:wake_an_idle_worker};

-- name: enqueue [sqlite]
-- Insert many jobs that share their options.
{part:insert_many};

-- part: insert_one
-- One job, as scalar parameters: on PostgreSQL, arrays would add a quarter to its time; on SQLite, JSON would have to
-- be parsed.
INSERT INTO {t}jobs_live (
    id, args, source, task, ready, run_after, {part:options}, created_at, updated_at)
SELECT added.id, added.args, :source, :task, coalesce(:run_after, {after(:delay)}) <= {now},
       coalesce(:run_after, {after(:delay)}), {part:given_options}, {now}, {now}
FROM {row:added(id uuid, args json)}

-- name: enqueue_one [postgres]
-- Insert one job, and wake a worker.
WITH added AS (
    {part:insert_one}
)
{part:wake_an_idle_worker};

-- name: enqueue_one [sqlite]
-- Insert one job.
{part:insert_one};

-- part: insert_rows
-- Jobs that share their options, except that each has its own key and source.
INSERT INTO {t}jobs_live (
    id, args, source, unique_key, task, ready, run_after, {part:options}, created_at, updated_at)
SELECT added.id, added.args, added.source, added.unique_key, :task, coalesce(:run_after, {after(:delay)}) <= {now},
       coalesce(:run_after, {after(:delay)}), {part:given_options}, {now}, {now}
FROM {rows:added(id uuid, args json, unique_key text, source text)}

-- name: enqueue_rows [postgres]
-- Insert jobs that each have their own key and source, and wake a worker.
WITH added AS (
    {part:insert_rows}
)
{part:wake_an_idle_worker};

-- name: enqueue_rows [sqlite]
-- Insert jobs that each have their own key and source.
{part:insert_rows};
