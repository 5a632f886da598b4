-- Inserting jobs, in the order of insert.py. Tokens in braces are explained in store/engine/statements.py.

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
