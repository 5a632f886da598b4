-- Webhooks: what a job's owner wants to be told when the job ends, and the secrets that sign it.

-- The secrets of owners. They are stored as they are, because a signature needs them. The newest one of an owner signs,
-- and beside it the one before until `expires_at`, so that a receiver can change over.
CREATE TABLE rowlock.webhook_secrets (
    id         uuid        PRIMARY KEY,
    owner      text        NOT NULL,
    secret     text        NOT NULL,
    hint       text        NOT NULL,             -- the first characters, to recognise a secret in a list
    created_at timestamptz NOT NULL,
    expires_at timestamptz                       -- NULL: the owner's newest
);
CREATE INDEX webhook_secrets_owner ON rowlock.webhook_secrets (owner, created_at);

-- The webhook of a job, with everything that its delivery needs: who ends the job may know neither the address nor the
-- settings of the server that took the request.
CREATE TABLE rowlock.webhooks (
    job_id          uuid             PRIMARY KEY,
    owner           text             NOT NULL,
    url             text             NOT NULL,
    source          text             NOT NULL,
    queue           text             NOT NULL,
    max_attempts    integer          NOT NULL,
    backoff         json             NOT NULL,
    timeout_seconds double precision NOT NULL,
    drop_on         date                         -- the day on which the finished job may go; NULL: it has never ended
);
CREATE INDEX webhooks_drop ON rowlock.webhooks (drop_on) WHERE drop_on IS NOT NULL;

-- Which jobs have delivered, or deliver, the webhook of a job: one for each time that the job ended.
CREATE TABLE rowlock.webhook_deliveries (
    job_id      uuid NOT NULL REFERENCES rowlock.webhooks (job_id) ON DELETE CASCADE,
    delivery_id uuid NOT NULL,
    PRIMARY KEY (job_id, delivery_id)
);

-- The delivery is enqueued here, in the transaction that writes the final state, whoever writes it: a worker of any
-- version, the sweeper, an operator's cancel, somebody's SQL. It has no owner, so that it makes no events and counts
-- against no limit. What it tells is fixed now: the job may be retried, or gone, when it is delivered.
CREATE FUNCTION rowlock.tell_webhook() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    hook     rowlock.webhooks;
    delivery uuid;
BEGIN
    UPDATE rowlock.webhooks SET drop_on = NEW.drop_on WHERE job_id = NEW.id RETURNING * INTO hook;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    delivery := rowlock.new_id();
    INSERT INTO rowlock.webhook_deliveries (job_id, delivery_id) VALUES (NEW.id, delivery);
    INSERT INTO rowlock.jobs_live (id, task, queue, ready, args, source, max_attempts, backoff, timeout_seconds,
                                   run_after, created_at, updated_at)
    VALUES (delivery, 'rowlock.webhook', hook.queue, TRUE,
            json_build_object(
                'url', hook.url,
                'owner', hook.owner,
                'event', json_build_object(
                    'job_id', NEW.id, 'task', NEW.task, 'state', NEW.state, 'attempt', NEW.attempt,
                    'progress', NEW.progress, 'phase', NEW.phase, 'message', NEW.message,
                    'result_uri', NEW.result_uri, 'result_checksum', NEW.result_checksum,
                    'error_code', NEW.error_code, 'error_message', NEW.error_message,
                    'at', extract(epoch FROM NEW.finished_at))),
            hook.source, hook.max_attempts, hook.backoff, hook.timeout_seconds,
            NEW.finished_at, NEW.finished_at, NEW.finished_at);
    IF EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > NEW.finished_at) THEN
        PERFORM pg_notify('rowlock', 'work');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_finished_webhook AFTER INSERT ON rowlock.jobs_finished
FOR EACH ROW
WHEN (NEW.owner IS NOT NULL)
EXECUTE FUNCTION rowlock.tell_webhook();
