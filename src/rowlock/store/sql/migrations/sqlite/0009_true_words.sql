-- What batches, sources and schedules need to tell the truth: how each job of a batch ended, whether a whole class is
-- paused or only the source of its name, since when a pause counts, and which live jobs are a schedule's.

ALTER TABLE rowlock_batches ADD COLUMN reopened_at REAL;                            -- an operator has retried a job since its end
ALTER TABLE rowlock_batch_counts ADD COLUMN cancelled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE rowlock_batch_counts ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;     -- these are in `failed`, too

-- What ended as cancelled was not counted apart. Of jobs that have been pruned since nobody knows; they stay counted as
-- successes. `<> 'succeeded'` is there for the index on jobs that did not succeed.
INSERT INTO rowlock_batch_counts (batch_id, shard, failed, cancelled, expired)
SELECT f.batch_id, 0, sum(coalesce(f.error_code, '') = 'EXPIRED'), sum(coalesce(f.error_code, '') <> 'EXPIRED'),
       sum(coalesce(f.error_code, '') = 'EXPIRED')
FROM rowlock_jobs_finished f
WHERE f.state = 'cancelled' AND f.state <> 'succeeded' AND f.batch_id IN (SELECT id FROM rowlock_batches)
GROUP BY f.batch_id
ON CONFLICT (batch_id, shard) DO UPDATE
SET failed = rowlock_batch_counts.failed + excluded.failed, cancelled = excluded.cancelled, expired = excluded.expired;

UPDATE rowlock_batches
SET state = CASE WHEN EXISTS (SELECT 1 FROM rowlock_batch_counts n WHERE n.batch_id = rowlock_batches.id AND n.expired > 0)
                 THEN 'failed' ELSE 'cancelled' END
WHERE state = 'succeeded'
  AND EXISTS (SELECT 1 FROM rowlock_batch_counts n WHERE n.batch_id = rowlock_batches.id AND n.cancelled + n.expired > 0);

ALTER TABLE rowlock_sources ADD COLUMN paused_at REAL;                              -- when paused_until was written
ALTER TABLE rowlock_sources ADD COLUMN class_enabled INTEGER NOT NULL DEFAULT 1;    -- of a class: what an operator has said of all
ALTER TABLE rowlock_sources ADD COLUMN class_paused_until REAL;                     -- its sources; the others are of the source so named
ALTER TABLE rowlock_sources ADD COLUMN class_paused_at REAL;

-- A pause of a class that its own breaker or block did not make is an operator's.
UPDATE rowlock_sources
SET class_enabled = enabled OR (block_after IS NOT NULL AND refusals >= block_after),
    class_paused_until = CASE WHEN opened_at IS NULL THEN paused_until END
WHERE name NOT LIKE '%:%' AND (NOT enabled OR paused_until IS NOT NULL);

-- overlap="skip" asks for every live job of a schedule.
CREATE INDEX rowlock_jobs_live_schedule ON rowlock_jobs_live (schedule_id) WHERE schedule_id IS NOT NULL;
