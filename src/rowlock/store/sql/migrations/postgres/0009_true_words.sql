-- What batches, sources and schedules need to tell the truth: how each job of a batch ended, whether a whole class is
-- paused or only the source of its name, since when a pause counts, and which live jobs are a schedule's.

-- Found before anything is locked, by the index on jobs that did not succeed: what ended as cancelled was not counted
-- apart. Of jobs that have been pruned since nobody knows; they stay counted as successes.
CREATE TABLE rowlock.ends_before AS
SELECT f.batch_id,
       count(*) FILTER (WHERE f.error_code IS DISTINCT FROM 'EXPIRED') AS cancelled,
       count(*) FILTER (WHERE f.error_code = 'EXPIRED') AS expired
FROM rowlock.jobs_finished f JOIN rowlock.batches b ON b.id = f.batch_id
WHERE f.state = 'cancelled' AND f.state <> 'succeeded'
GROUP BY f.batch_id;

-- In the order in which everybody locks: jobs, then batches.
LOCK TABLE rowlock.jobs_live IN SHARE MODE;

ALTER TABLE rowlock.batches ADD COLUMN reopened_at timestamptz;         -- an operator has retried a job since its end
ALTER TABLE rowlock.batch_counts
    ADD COLUMN cancelled bigint NOT NULL DEFAULT 0,
    ADD COLUMN expired   bigint NOT NULL DEFAULT 0;                     -- these are in `failed`, too

INSERT INTO rowlock.batch_counts (batch_id, shard, failed, cancelled, expired)
SELECT batch_id, 0, expired, cancelled, expired FROM rowlock.ends_before
ON CONFLICT (batch_id, shard) DO UPDATE
SET failed = batch_counts.failed + excluded.failed, cancelled = excluded.cancelled, expired = excluded.expired;

UPDATE rowlock.batches b
SET state = CASE WHEN e.expired > 0 THEN 'failed' ELSE 'cancelled' END
FROM rowlock.ends_before e
WHERE b.id = e.batch_id AND b.state = 'succeeded';

DROP TABLE rowlock.ends_before;

ALTER TABLE rowlock.sources
    ADD COLUMN paused_at          timestamptz,                          -- when paused_until was written
    ADD COLUMN class_enabled      boolean NOT NULL DEFAULT true,        -- of a class: what an operator has said of all its
    ADD COLUMN class_paused_until timestamptz,                          -- sources; the others are of the source so named
    ADD COLUMN class_paused_at    timestamptz;

-- A pause of a class that its own breaker or block did not make is an operator's.
UPDATE rowlock.sources
SET class_enabled = enabled OR (block_after IS NOT NULL AND refusals >= block_after),
    class_paused_until = CASE WHEN opened_at IS NULL THEN paused_until END
WHERE name NOT LIKE '%:%' AND (NOT enabled OR paused_until IS NOT NULL);

-- overlap="skip" asks for every live job of a schedule.
CREATE INDEX jobs_live_schedule ON rowlock.jobs_live (schedule_id) WHERE schedule_id IS NOT NULL;
