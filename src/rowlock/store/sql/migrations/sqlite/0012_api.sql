-- The job API: who may ask, and what its clients are told while a job runs.

-- Tokens that `rowlock tokens create` showed once. Only the SHA-256 of a token is stored: who reads this table cannot
-- use what stands there.
CREATE TABLE rowlock_tokens (
    id           TEXT PRIMARY KEY NOT NULL,
    hash         TEXT NOT NULL UNIQUE,
    hint         TEXT NOT NULL,                  -- the first characters, to recognise a token in a list
    owner        TEXT,                           -- whose jobs it opens; NULL for an operator's, which opens all
    scope        TEXT NOT NULL CHECK (scope IN ('jobs', 'operator', 'operator:read')),
    job_id       TEXT,                           -- the only job that it opens, and that only for reading
    created_at   REAL NOT NULL,
    expires_at   REAL,
    revoked_at   REAL,
    CHECK ((owner IS NULL) = (scope <> 'jobs'))
);

-- Tickets: what a browser may put into the address of a WebSocket. Each is good once and for a moment.
CREATE TABLE rowlock_tickets (
    hash       TEXT PRIMARY KEY NOT NULL,
    owner      TEXT,
    scope      TEXT NOT NULL,
    token_id   TEXT,                             -- the token that asked for it: if that is revoked, its sockets close
    job_id     TEXT,
    good_until REAL,                             -- when the JSON Web Token that asked for it expires, in seconds since 1970
    expires_at REAL NOT NULL
);

-- Requests that created a job under an Idempotency-Key: the same request again is answered with the same job.
CREATE TABLE rowlock_requests (
    owner      TEXT NOT NULL,                    -- empty: an operator
    key        TEXT NOT NULL,
    body_hash  TEXT NOT NULL,
    job_id     TEXT,
    expires_at REAL NOT NULL,
    PRIMARY KEY (owner, key)
);

-- What happened to jobs that have an owner, for clients that watch. Triggers write it, in the transaction of the change
-- and whoever makes the change. Jobs without an owner write nothing.
CREATE TABLE rowlock_events (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id          TEXT    NOT NULL,
    owner           TEXT    NOT NULL,
    type            TEXT    NOT NULL,
    task            TEXT    NOT NULL,
    state           TEXT    NOT NULL,
    attempt         INTEGER NOT NULL,
    progress        INTEGER,
    phase           TEXT,
    message         TEXT,
    result_uri      TEXT,
    result_checksum TEXT,
    error_code      TEXT,
    error_message   TEXT,
    at              REAL    NOT NULL
);
CREATE INDEX rowlock_events_owner ON rowlock_events (owner, id);

-- Servers that want to be woken by new events (on SQLite they poll, and nothing reads this table).
CREATE TABLE rowlock_event_listeners (
    id         TEXT PRIMARY KEY NOT NULL,
    expires_at REAL NOT NULL
);

CREATE TRIGGER rowlock_jobs_live_progress AFTER UPDATE OF progress, phase, message ON rowlock_jobs_live
WHEN NEW.owner IS NOT NULL AND NEW.state = 'running'
 AND (NEW.progress IS NOT OLD.progress OR NEW.phase IS NOT OLD.phase OR NEW.message IS NOT OLD.message)
BEGIN
    INSERT INTO rowlock_events (job_id, owner, type, task, state, attempt, progress, phase, message, at)
    VALUES (NEW.id, NEW.owner, 'job.progress', NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message,
            NEW.updated_at);
END;

CREATE TRIGGER rowlock_jobs_finished_end AFTER INSERT ON rowlock_jobs_finished
WHEN NEW.owner IS NOT NULL
BEGIN
    INSERT INTO rowlock_events (job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
                                result_checksum, error_code, error_message, at)
    VALUES (NEW.id, NEW.owner,
            CASE NEW.state WHEN 'succeeded' THEN 'job.completed' WHEN 'dead' THEN 'job.failed' ELSE 'job.cancelled' END,
            NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message, NEW.result_uri,
            NEW.result_checksum, NEW.error_code, NEW.error_message, NEW.finished_at);
END;
