-- Webhooks: what a job's owner wants to be told when the job ends, and the secrets that sign it.

-- The secrets of owners. They are stored as they are, because a signature needs them. The newest one of an owner signs,
-- and beside it the one before until `expires_at`, so that a receiver can change over.
CREATE TABLE rowlock_webhook_secrets (
    id         TEXT PRIMARY KEY NOT NULL,
    owner      TEXT NOT NULL,
    secret     TEXT NOT NULL,
    hint       TEXT NOT NULL,                    -- the first characters, to recognise a secret in a list
    created_at REAL NOT NULL,
    expires_at REAL                              -- NULL: the owner's newest
);
CREATE INDEX rowlock_webhook_secrets_owner ON rowlock_webhook_secrets (owner, created_at);

-- The webhook of a job, with everything that its delivery needs: who ends the job may know neither the address nor the
-- settings of the server that took the request.
CREATE TABLE rowlock_webhooks (
    job_id          TEXT    PRIMARY KEY NOT NULL,
    owner           TEXT    NOT NULL,
    url             TEXT    NOT NULL,
    source          TEXT    NOT NULL,
    queue           TEXT    NOT NULL,
    max_attempts    INTEGER NOT NULL,
    backoff         TEXT    NOT NULL,
    timeout_seconds REAL    NOT NULL,
    drop_on         TEXT                         -- the day on which the finished job may go; NULL: it has never ended
);
CREATE INDEX rowlock_webhooks_drop ON rowlock_webhooks (drop_on) WHERE drop_on IS NOT NULL;

-- Which jobs have delivered, or deliver, the webhook of a job: one for each time that the job ended.
CREATE TABLE rowlock_webhook_deliveries (
    job_id      TEXT NOT NULL REFERENCES rowlock_webhooks (job_id) ON DELETE CASCADE,
    delivery_id TEXT NOT NULL,
    PRIMARY KEY (job_id, delivery_id)
);

-- The delivery is enqueued here, in the transaction that writes the final state, whoever writes it: a worker of any
-- version, the sweeper, an operator's cancel, somebody's SQL. It has no owner, so that it makes no events and counts
-- against no limit. What it tells is fixed now: the job may be retried, or gone, when it is delivered.
CREATE TRIGGER rowlock_jobs_finished_webhook AFTER INSERT ON rowlock_jobs_finished
WHEN NEW.owner IS NOT NULL AND EXISTS (SELECT 1 FROM rowlock_webhooks WHERE job_id = NEW.id)
BEGIN
    UPDATE rowlock_webhooks SET drop_on = NEW.drop_on WHERE job_id = NEW.id;
    -- An id (UUIDv7) of this moment: 48 bits of milliseconds, then random ones.
    INSERT INTO rowlock_webhook_deliveries (job_id, delivery_id)
    SELECT NEW.id, printf('%08x-%04x-7%03x-%04x-%012x', ms >> 16, ms & 65535, random() & 4095,
                          32768 | (random() & 16383), random() & 281474976710655)
    FROM (SELECT CAST(NEW.finished_at * 1000 AS INTEGER) AS ms);
    INSERT INTO rowlock_jobs_live (id, task, queue, ready, args, source, max_attempts, backoff, timeout_seconds,
                                   run_after, created_at, updated_at)
    SELECT delivery.delivery_id, 'rowlock.webhook', hook.queue, 1,
           json_object(
               'url', hook.url,
               'owner', hook.owner,
               'event', json_object(
                   'job_id', NEW.id, 'task', NEW.task, 'state', NEW.state, 'attempt', NEW.attempt,
                   'progress', NEW.progress, 'phase', NEW.phase, 'message', NEW.message,
                   'result_uri', NEW.result_uri, 'result_checksum', NEW.result_checksum,
                   'error_code', NEW.error_code, 'error_message', NEW.error_message,
                   'at', NEW.finished_at)),
           hook.source, hook.max_attempts, hook.backoff, hook.timeout_seconds,
           NEW.finished_at, NEW.finished_at, NEW.finished_at
    FROM rowlock_webhooks hook
    JOIN rowlock_webhook_deliveries delivery ON delivery.rowid = last_insert_rowid()
    WHERE hook.job_id = NEW.id;
END;
