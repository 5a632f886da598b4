-- What happened to a job since its last attempt that came back (core/policy.py: Streaks). `losses` and `releases` are sums
-- over the job's whole life, from which tries are computed. The limits on losses and releases read these counts instead: a
-- job that comes back often would reach any limit on a sum, in time. Jobs that were lost before this migration begin at 0.
-- Attempts whose worker died; above 0 the job is a suspect.
ALTER TABLE rowlock_jobs_live ADD COLUMN losses_in_row INTEGER NOT NULL DEFAULT 0 CHECK (typeof(losses_in_row) = 'integer' AND losses_in_row >= 0);
-- Attempts that have still to come back until a loss counts as a first one again.
ALTER TABLE rowlock_jobs_live ADD COLUMN probation INTEGER NOT NULL DEFAULT 0 CHECK (typeof(probation) = 'integer' AND probation >= 0);
-- Releases because a SIGTERM from outside ended its child process.
ALTER TABLE rowlock_jobs_live ADD COLUMN sigterms_in_row INTEGER NOT NULL DEFAULT 0 CHECK (typeof(sigterms_in_row) = 'integer' AND sigterms_in_row >= 0);
-- Releases because its transaction was rolled back: a broken connection, a full disk, a conflict.
ALTER TABLE rowlock_jobs_live ADD COLUMN disconnects_in_row INTEGER NOT NULL DEFAULT 0 CHECK (typeof(disconnects_in_row) = 'integer' AND disconnects_in_row >= 0);
