-- What an operator asks of a worker, which reads it with its heartbeat: to end after the jobs that it runs (drain), or to
-- give them back and end now (stop).
ALTER TABLE rowlock_workers ADD COLUMN stop_requested TEXT CHECK (stop_requested IN ('drain', 'stop'));
ALTER TABLE rowlock_workers ADD COLUMN stop_requested_at REAL;
