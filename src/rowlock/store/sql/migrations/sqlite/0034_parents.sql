-- The job that made a job: the one whose handler enqueued it, or whose end made it (a follow-up). And of a batch: the job
-- whose handler made it, and the job that its end made (`on_end`). Most jobs have no parent, and NULL costs them nothing:
-- the indexes, which the pages of a job and of a batch read, leave them out.
ALTER TABLE rowlock_jobs_live ADD COLUMN parent_id TEXT;
ALTER TABLE rowlock_jobs_finished ADD COLUMN parent_id TEXT;
ALTER TABLE rowlock_batches ADD COLUMN parent_id TEXT;
ALTER TABLE rowlock_batches ADD COLUMN end_job TEXT;
CREATE INDEX rowlock_jobs_live_parent ON rowlock_jobs_live (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX rowlock_jobs_finished_parent ON rowlock_jobs_finished (parent_id, id) WHERE parent_id IS NOT NULL;
