-- What a job and its attempts tell observers: the span that created the job (a W3C traceparent; none unless traces are
-- switched on), and the traceback of each attempt that failed.
ALTER TABLE rowlock_jobs_live ADD COLUMN traceparent TEXT;
ALTER TABLE rowlock_jobs_finished ADD COLUMN traceparent TEXT;
ALTER TABLE rowlock_attempts ADD COLUMN traceback TEXT;
