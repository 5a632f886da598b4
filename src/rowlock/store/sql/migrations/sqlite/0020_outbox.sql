-- What a bridge must append to a Redis stream: written in the transaction that makes it true, removed once it is known
-- that it arrived. So a bridge that dies between the two loses nothing, and sends some of it twice.
CREATE TABLE rowlock_outbox (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    kind           TEXT    NOT NULL CHECK (kind IN ('request', 'cancel')),
    job_id         TEXT    NOT NULL,
    token          TEXT,                         -- of a request: the lease under which it was published
    take_at        REAL    NOT NULL,             -- from this moment on, any bridge may send it
    sent_at        REAL,
    entry          TEXT,                         -- of a request: its id in the stream
    CHECK ((token IS NOT NULL) = (kind = 'request'))
);
CREATE INDEX rowlock_outbox_unsent ON rowlock_outbox (take_at) WHERE sent_at IS NULL;
CREATE INDEX rowlock_outbox_job ON rowlock_outbox (job_id);
