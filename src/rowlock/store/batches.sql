-- Batches, in the order of store/batches.py. Each counter is a sum over several rows (shards), so that workers don't
-- wait for each other. The batch's own row is written only when its state changes.

-- name: make_batch
-- Insert a new batch, open for jobs.
INSERT INTO {t}batches (id, name, owner, on_end, parent_id, created_at)
VALUES (:batch_id, :name, :owner, :on_end, :parent_id, {now});

-- name: batch_open
-- Whether jobs may be added: not to a cancelled batch, unless an operator has retried one of its jobs since. FOR KEY
-- SHARE waits for a transaction that seals, cancels, ends or reopens the batch (hold_batches). It doesn't block other
-- transactions that add jobs, nor start_batches: the caller's transaction may be long, and claims must not wait for it.
SELECT sealed_at IS NOT NULL AS sealed, finished_at IS NOT NULL AS finished,
       cancelled_at IS NOT NULL AND reopened_at IS NULL AS cancelled, name
FROM {t}batches WHERE id = :batch_id
FOR KEY SHARE;

-- name: batch_of
-- The batch of a running attempt, which may add jobs to it as long as it holds its lease. Takes no locks.
SELECT CAST(batch_id AS text) AS batch_id
FROM {t}jobs_live
WHERE id = :job_id AND lease_token = :token AND state = 'running';

-- name: count_batches
-- Add to the counters of batches, in their rows for :shard. If this call has no error, the last one stays.
INSERT INTO {t}batch_counts (
    batch_id, shard, total, processed, failed, cancelled, expired, last_error, last_error_at)
SELECT counted.batch_id, :shard, counted.total, counted.processed, counted.failed, counted.cancelled, counted.expired,
       counted.last_error, CASE WHEN counted.last_error IS NOT NULL THEN {now} END
FROM {rows:counted(batch_id uuid, total int, processed int, failed int, cancelled int, expired int, last_error text)}
WHERE TRUE
ON CONFLICT (batch_id, shard) DO UPDATE
SET total = {t}batch_counts.total + excluded.total,
    processed = {t}batch_counts.processed + excluded.processed,
    failed = {t}batch_counts.failed + excluded.failed,
    cancelled = {t}batch_counts.cancelled + excluded.cancelled,
    expired = {t}batch_counts.expired + excluded.expired,
    last_error = coalesce(excluded.last_error, {t}batch_counts.last_error),
    last_error_at = coalesce(excluded.last_error_at, {t}batch_counts.last_error_at);

-- name: start_batches
-- Mark batches as running, because their first job was claimed.
UPDATE {t}batches SET state = 'running', started_at = coalesce(started_at, {now})
WHERE id {in:asked(id uuid)} AND state = 'queued';

-- name: seal_batch
-- Seal a batch: from now on, only its own jobs may add jobs.
UPDATE {t}batches SET sealed_at = coalesce(sealed_at, {now}) WHERE id = :batch_id RETURNING CAST(id AS text) AS id;

-- name: cancel_batch
-- Cancel a batch: from now on, nobody may add jobs. The caller cancels its unfinished jobs.
UPDATE {t}batches
SET cancelled_at = coalesce(cancelled_at, {now}), sealed_at = coalesce(sealed_at, {now}), reopened_at = NULL
WHERE id = :batch_id AND finished_at IS NULL
RETURNING CAST(id AS text) AS id;

-- name: batch_left
-- Jobs of a batch that are neither finished nor asked to stop.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j
WHERE j.batch_id = :batch_id AND j.cancel_requested_at IS NULL
ORDER BY j.batch_id, j.id
LIMIT :n;

-- part: sees_commits [postgres]
-- This statement sees everything that was committed before it began.
current_setting('transaction_isolation') = 'read committed'

-- part: sees_commits [sqlite]
-- The writer's transaction sees everything that was committed.
TRUE

-- name: complete_batches
-- Those of these batches that are sealed and have only finished jobs, and whether each ends for the first time. In a
-- user's transaction with an older snapshot, which may not see added jobs, no batch ends; the next sweep ends it.
SELECT CAST(b.id AS text) AS id, NOT b.ended_once AS first_time
FROM {t}batches b
WHERE b.id {in:asked(id uuid)}
  AND b.finished_at IS NULL AND b.sealed_at IS NOT NULL AND {part:sees_commits}
  AND coalesce((SELECT sum(n.total - n.processed) FROM {t}batch_counts n WHERE n.batch_id = b.id), 0) <= 0;

-- name: open_batches
-- Open batches after :batch_id, without those that are set aside and may not be tried again yet.
SELECT CAST(id AS text) AS id FROM {t}batches b
WHERE finished_at IS NULL AND id > :batch_id
  AND (SELECT 1 FROM {t}set_aside a WHERE a.id = b.id AND coalesce(a.again_at > {now}, TRUE)) IS NULL
ORDER BY b.id
LIMIT :n;

-- name: hold_batches
-- Lock batches that are about to be sealed, cancelled or ended, or whose jobs an operator retries (even if they are
-- over). The lock waits for transactions that add jobs; an UPDATE alone would not.
SELECT CAST(b.id AS text) AS id FROM {t}batches b
WHERE b.id {in:asked(id uuid)}
ORDER BY b.id
FOR UPDATE;

-- name: leave_batch
-- Take these jobs out of their batches, which were pruned.
UPDATE {t}jobs_live SET batch_id = NULL WHERE id {in:gone(id uuid)};

-- name: end_batches
-- End batches that are locked and complete; returns their `on_end`. The state is `cancelled` if the batch was
-- cancelled, else `failed` if a job is dead or expired, else `cancelled` if a job was cancelled, else `succeeded`.
UPDATE {t}batches
SET state = CASE
        WHEN cancelled_at IS NOT NULL THEN 'cancelled'
        WHEN (SELECT sum(n.failed) FROM {t}batch_counts n WHERE n.batch_id = {t}batches.id) > 0 THEN 'failed'
        WHEN (SELECT sum(n.cancelled) FROM {t}batch_counts n WHERE n.batch_id = {t}batches.id) > 0 THEN 'cancelled'
        ELSE 'succeeded' END,
    started_at = coalesce(started_at, {now}), finished_at = {now}, reopened_at = NULL, ended_once = TRUE
WHERE id {in:asked(id uuid)}
RETURNING CAST(id AS text) AS id, on_end;

-- name: set_end_job
-- Store the job that was enqueued at the end of a batch.
UPDATE {t}batches SET end_job = :job_id WHERE id = :batch_id;

-- name: reopen_batches
-- Reopen batches whose jobs an operator retries. A cancelled batch stays cancelled while its counters, which no longer
-- include the retried jobs, have a cancelled job.
UPDATE {t}batches
SET state = 'running', finished_at = NULL, reopened_at = {now},
    cancelled_at = CASE
        WHEN (SELECT sum(n.cancelled) FROM {t}batch_counts n WHERE n.batch_id = {t}batches.id) > 0
        THEN cancelled_at END
WHERE id {in:asked(id uuid)} AND finished_at IS NOT NULL;

-- part: batches
-- Batches with their counters. A batch without jobs has no counter rows, so its sums are NULL.
SELECT CAST(b.id AS text) AS id, b.name, b.owner, b.state, b.sealed_at IS NOT NULL AS sealed,
       {time(b.created_at)} AS created_at, {time(b.started_at)} AS started_at, {time(b.finished_at)} AS finished_at,
       coalesce((SELECT sum(n.total) FROM {t}batch_counts n WHERE n.batch_id = b.id), 0) AS total,
       coalesce((SELECT sum(n.processed) FROM {t}batch_counts n WHERE n.batch_id = b.id), 0) AS processed,
       coalesce((SELECT sum(n.failed) FROM {t}batch_counts n WHERE n.batch_id = b.id), 0) AS failed,
       coalesce((SELECT sum(n.cancelled) FROM {t}batch_counts n WHERE n.batch_id = b.id), 0) AS cancelled,
       coalesce((SELECT sum(n.expired) FROM {t}batch_counts n WHERE n.batch_id = b.id), 0) AS expired,
       (SELECT n.last_error FROM {t}batch_counts n WHERE n.batch_id = b.id AND n.last_error IS NOT NULL
        ORDER BY n.last_error_at DESC LIMIT 1) AS last_error,
       CAST(b.parent_id AS text) AS parent_id, CAST(b.end_job AS text) AS end_job
FROM {t}batches b

-- name: read_batch
-- One batch with its counters.
{part:batches}
WHERE b.id = :batch_id;

-- name: list_batches
-- Batches before :batch_id, newest first, with their counters.
{part:batches}
WHERE b.id < :batch_id
  AND CASE WHEN CAST(:owner AS text) IS NULL THEN TRUE ELSE b.owner = :owner END
  AND CASE WHEN CAST(:state AS text) IS NULL THEN TRUE ELSE b.state = :state END
ORDER BY b.id DESC
LIMIT :n;

-- name: prune_batches
-- Delete batches that ended more than -:ago seconds ago; their counters go with them.
DELETE FROM {t}batches
WHERE id IN (
    SELECT id FROM {t}batches
    WHERE finished_at < {after(:ago)}
    ORDER BY finished_at
    LIMIT :n)
RETURNING 1 AS pruned;
