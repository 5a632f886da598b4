-- The tables refuse what no worker could read, and what is there already stops nobody: a row that makes a batch fail is
-- named in set_aside and left alone.

-- Times that Python has no words for, values of the wrong type, and what is no JSON or holds a whole number of more than
-- 4,300 digits, which Python does not parse. Triggers, because SQLite adds no check to a table that is there.
CREATE TRIGGER rowlock_jobs_live_readable BEFORE INSERT ON rowlock_jobs_live
WHEN typeof(NEW.id) <> 'text'
  OR typeof(NEW.run_after) <> 'real' OR NEW.run_after NOT BETWEEN 0 AND 7258118399.999
  OR NEW.expires_at NOT BETWEEN 0 AND 7258118399.999
  OR typeof(NEW.priority) <> 'integer' OR typeof(NEW.attempt) <> 'integer' OR typeof(NEW.max_attempts) <> 'integer'
  OR NOT json_valid(NEW.args)
  OR length(NEW.args) > 4300
BEGIN
    SELECT RAISE(ABORT, 'rowlock: id must be text (constraint)') WHERE typeof(NEW.id) <> 'text';
    SELECT RAISE(ABORT, 'rowlock: run_after and expires_at must be from 1970 to 2199 (constraint)')
    WHERE typeof(NEW.run_after) <> 'real' OR NEW.run_after NOT BETWEEN 0 AND 7258118399.999
       OR NEW.expires_at NOT BETWEEN 0 AND 7258118399.999;
    SELECT RAISE(ABORT, 'rowlock: priority, attempt and max_attempts must be whole numbers (constraint)')
    WHERE typeof(NEW.priority) <> 'integer' OR typeof(NEW.attempt) <> 'integer' OR typeof(NEW.max_attempts) <> 'integer';
    SELECT RAISE(ABORT, 'rowlock: args must be JSON (constraint)') WHERE NOT json_valid(NEW.args);
    -- Only where so many digits stand in a row is it worth to look whether they are a number or a part of a text.
    SELECT RAISE(ABORT, 'rowlock: args hold a number of more than 4300 digits; pass it as text (constraint)')
    WHERE length(NEW.args) > 4300
      AND NEW.args GLOB '*' || replace(substr(hex(zeroblob(2151)), 2), '0', '[0-9]') || '*'
      AND EXISTS (SELECT 1 FROM json_tree(NEW.args) WHERE type = 'integer' AND typeof(atom) = 'real' AND abs(atom) > 1e308);
END;
-- Of updates, only those that set one of these columns to something else.
CREATE TRIGGER rowlock_jobs_live_stays_readable BEFORE UPDATE OF run_after, expires_at, args ON rowlock_jobs_live
WHEN (NEW.run_after IS NOT OLD.run_after
      AND (typeof(NEW.run_after) <> 'real' OR NEW.run_after NOT BETWEEN 0 AND 7258118399.999))
  OR (NEW.expires_at IS NOT OLD.expires_at AND NEW.expires_at NOT BETWEEN 0 AND 7258118399.999)
  OR (NEW.args IS NOT OLD.args AND NOT json_valid(NEW.args))
BEGIN
    SELECT RAISE(ABORT, 'rowlock: run_after and expires_at must be from 1970 to 2199, and args JSON (constraint)');
END;

-- Jobs and batches for which something cannot be done, and would fail again and again for the whole batch that they are
-- in. Their own rows stay as they are.
CREATE TABLE rowlock_set_aside (
    id       TEXT    PRIMARY KEY NOT NULL,   -- of the job or batch
    doing    TEXT    NOT NULL,               -- claim, promote, reclaim, expire, settle, prune; end (of a batch)
    error    TEXT    NOT NULL,
    times    INTEGER NOT NULL DEFAULT 1,     -- that it was tried and failed
    since    REAL    NOT NULL,
    again_at REAL                            -- when it is tried again; NULL: when this row is deleted
);

-- What people query, as before, but for a time that is none: it is shown as it is stored, not as if there were none.
DROP VIEW rowlock_jobs;
CREATE VIEW rowlock_jobs AS
SELECT
       id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', tick, 'unixepoch'), tick) AS tick, attempt, max_attempts, releases, losses,
       backoff, timeout_seconds, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', run_after, 'unixepoch'), run_after) AS run_after,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch'), expires_at) AS expires_at, lease_token, locked_by,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', locked_at, 'unixepoch'), locked_at) AS locked_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', heartbeat_at, 'unixepoch'), heartbeat_at) AS heartbeat_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', lease_expires_at, 'unixepoch'), lease_expires_at) AS lease_expires_at, settled_token,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', cancel_requested_at, 'unixepoch'), cancel_requested_at) AS cancel_requested_at,
       progress, phase, message, NULL AS result, result_uri, result_checksum, error_code, error_message,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch'), created_at) AS created_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', started_at, 'unixepoch'), started_at) AS started_at, NULL AS finished_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, 'unixepoch'), updated_at) AS updated_at
FROM rowlock_jobs_live
UNION ALL
SELECT
       id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', tick, 'unixepoch'), tick) AS tick, attempt, max_attempts, releases, losses,
       backoff, timeout_seconds, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', run_after, 'unixepoch'), run_after) AS run_after,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch'), expires_at) AS expires_at, NULL AS lease_token,
       last_worker AS locked_by, NULL AS locked_at, NULL AS heartbeat_at, NULL AS lease_expires_at,
       settled_token,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', cancel_requested_at, 'unixepoch'), cancel_requested_at) AS cancel_requested_at,
       progress, phase, message, result, result_uri, result_checksum, error_code, error_message,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch'), created_at) AS created_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', started_at, 'unixepoch'), started_at) AS started_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', finished_at, 'unixepoch'), finished_at) AS finished_at,
       coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, 'unixepoch'), updated_at) AS updated_at
FROM rowlock_jobs_finished;
