-- A request with an Idempotency-Key shows all servers that it is being carried out, before its job is there.
ALTER TABLE rowlock.requests ADD COLUMN claim uuid;  -- of the one request that may name the job
ALTER TABLE rowlock.requests ADD COLUMN claimed_until timestamptz;  -- without a job by then, another request may take the key
