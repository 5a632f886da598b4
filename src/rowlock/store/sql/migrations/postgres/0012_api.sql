-- The job API: who may ask, and what its clients are told while a job runs.

-- Tokens that `rowlock tokens create` showed once. Only the SHA-256 of a token is stored: who reads this table cannot
-- use what stands there.
CREATE TABLE rowlock.tokens (
    id           uuid        PRIMARY KEY,
    hash         text        NOT NULL UNIQUE,
    hint         text        NOT NULL,           -- the first characters, to recognise a token in a list
    owner        text,                           -- whose jobs it opens; NULL for an operator's, which opens all
    scope        text        NOT NULL,
    job_id       uuid,                           -- the only job that it opens, and that only for reading
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    CONSTRAINT tokens_scope CHECK (scope IN ('jobs', 'operator', 'operator:read')),
    CONSTRAINT tokens_owner CHECK ((owner IS NULL) = (scope <> 'jobs'))
);

-- Tickets: what a browser may put into the address of a WebSocket. Each is good once and for a moment.
CREATE TABLE rowlock.tickets (
    hash       text        PRIMARY KEY,
    owner      text,
    scope      text        NOT NULL,
    token_id   uuid,                             -- the token that asked for it: if that is revoked, its sockets close
    job_id     uuid,
    good_until double precision,                 -- when the JSON Web Token that asked for it expires, in seconds since 1970
    expires_at timestamptz NOT NULL
);

-- Requests that created a job under an Idempotency-Key: the same request again is answered with the same job.
CREATE TABLE rowlock.requests (
    owner      text        NOT NULL,             -- empty: an operator
    key        text        NOT NULL,
    body_hash  text        NOT NULL,
    job_id     uuid,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (owner, key)
);

-- What happened to jobs that have an owner, for clients that watch. Triggers write it, in the transaction of the change
-- and whoever makes the change: a worker of any version, an operator, somebody's SQL. Jobs without an owner write
-- nothing, and none of these triggers is about a column that a claim sets.
CREATE TABLE rowlock.events (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id          uuid        NOT NULL,
    owner           text        NOT NULL,
    type            text        NOT NULL,
    task            text        NOT NULL,
    state           text        NOT NULL,
    attempt         integer     NOT NULL,
    progress        smallint,
    phase           text,
    message         text,
    result_uri      text,
    result_checksum text,
    error_code      text,
    error_message   text,
    at              timestamptz NOT NULL
);
CREATE INDEX events_owner ON rowlock.events (owner, id);

-- Servers that want to be woken by new events. NOTIFY takes a lock of the whole database at commit, so that it is sent
-- only while one of them lives.
CREATE TABLE rowlock.event_listeners (
    id         text        PRIMARY KEY,
    expires_at timestamptz NOT NULL
);

CREATE FUNCTION rowlock.tell_progress() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO rowlock.events (job_id, owner, type, task, state, attempt, progress, phase, message, at)
    VALUES (NEW.id, NEW.owner, 'job.progress', NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message,
            NEW.updated_at);
    IF EXISTS (SELECT 1 FROM rowlock.event_listeners WHERE expires_at > statement_timestamp()) THEN
        PERFORM pg_notify('rowlock', 'events');
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION rowlock.tell_end() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO rowlock.events (job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
                                result_checksum, error_code, error_message, at)
    VALUES (NEW.id, NEW.owner,
            CASE NEW.state WHEN 'succeeded' THEN 'job.completed' WHEN 'dead' THEN 'job.failed' ELSE 'job.cancelled' END,
            NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message, NEW.result_uri,
            NEW.result_checksum, NEW.error_code, NEW.error_message, NEW.finished_at);
    IF EXISTS (SELECT 1 FROM rowlock.event_listeners WHERE expires_at > statement_timestamp()) THEN
        PERFORM pg_notify('rowlock', 'events');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_live_progress AFTER UPDATE OF progress, phase, message ON rowlock.jobs_live
FOR EACH ROW
WHEN (NEW.owner IS NOT NULL AND NEW.state = 'running'
      AND (NEW.progress, NEW.phase, NEW.message) IS DISTINCT FROM (OLD.progress, OLD.phase, OLD.message))
EXECUTE FUNCTION rowlock.tell_progress();

CREATE TRIGGER jobs_finished_end AFTER INSERT ON rowlock.jobs_finished
FOR EACH ROW
WHEN (NEW.owner IS NOT NULL)
EXECUTE FUNCTION rowlock.tell_end();
