-- What a bridge must append to a Redis stream: written in the transaction that makes it true, removed once it is known
-- that it arrived. So a bridge that dies between the two loses nothing, and sends some of it twice.
CREATE TABLE rowlock.outbox (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind           text        NOT NULL,
    job_id         uuid        NOT NULL,
    token          uuid,                         -- of a request: the lease under which it was published
    take_at        timestamptz NOT NULL,         -- from this moment on, any bridge may send it
    sent_at        timestamptz,
    entry          text,                         -- of a request: its id in the stream
    CONSTRAINT outbox_kind CHECK (kind IN ('request', 'cancel')),
    CONSTRAINT outbox_token CHECK ((token IS NOT NULL) = (kind = 'request'))
);
CREATE INDEX outbox_unsent ON rowlock.outbox (take_at) WHERE sent_at IS NULL;
CREATE INDEX outbox_job ON rowlock.outbox (job_id);
