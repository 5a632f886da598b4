-- What an operator asks of a worker, which reads it with its heartbeat: to end after the jobs that it runs (drain), or to
-- give them back and end now (stop).
ALTER TABLE rowlock.workers
    ADD COLUMN stop_requested text CHECK (stop_requested IN ('drain', 'stop')),
    ADD COLUMN stop_requested_at timestamptz;
