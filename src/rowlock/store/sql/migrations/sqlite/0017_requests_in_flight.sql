-- A request with an Idempotency-Key shows all servers that it is being carried out, before its job is there.
ALTER TABLE rowlock_requests ADD COLUMN claim TEXT;  -- of the one request that may name the job
ALTER TABLE rowlock_requests ADD COLUMN claimed_until REAL;  -- without a job by then, another request may take the key
