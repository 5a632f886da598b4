-- The tables refuse what no worker could read, and what is there already stops nobody: a row that makes a batch fail is
-- named in set_aside and left alone.

-- The check on live rows knows the states again: one that it does not know was stored, and then no list could be read. It
-- costs a single insert 2 µs more than before. NOT VALID, because rows that are there must not stop this: no scan under
-- the lock.
ALTER TABLE rowlock.jobs_live
    DROP CONSTRAINT jobs_live_row,
    ADD CONSTRAINT jobs_live_row CHECK (
        -- A running row has a whole lease and is not ready; any other row has none of a lease.
        num_nulls(lease_token, locked_by, locked_at, lease_expires_at)
            = CASE WHEN state = 'running' THEN CASE WHEN ready THEN -1 ELSE 0 END
                   WHEN state IN ('queued', 'retryable') THEN 4
                   ELSE -1 END
        AND abs(priority) <= 100
    ) NOT VALID;

-- Times that Python has no words for (or that never come), and whole numbers of more than 4,300 digits, which Python does
-- not parse. A trigger and not a check, because a check is asked again for each update: a row that is there already could
-- then not even be claimed. Most rows are passed by the condition alone and never get to the function.
CREATE FUNCTION rowlock.refuse_unreadable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Of an update, what it changes: a row that is there already can be given back all the same.
    IF NEW.run_after IS DISTINCT FROM OLD.run_after
       AND NOT (NEW.run_after >= '1970-01-01Z' AND NEW.run_after < '2200-01-01Z') THEN
        RAISE EXCEPTION 'rowlock: run_after must be from 1970 to 2199, not %', NEW.run_after
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.expires_at IS DISTINCT FROM OLD.expires_at
       AND NOT (NEW.expires_at >= '1970-01-01Z' AND NEW.expires_at < '2200-01-01Z') THEN
        RAISE EXCEPTION 'rowlock: expires_at must be from 1970 to 2199, not %', NEW.expires_at
            USING ERRCODE = 'check_violation';
    END IF;
    -- Only where so many digits stand in a row is it worth to look whether they are a number or a part of a text.
    IF CAST(NEW.args AS text) IS DISTINCT FROM CAST(OLD.args AS text)
       AND strpos(translate(CAST(NEW.args AS text), '123456789', '000000000'), repeat('0', 4301)) > 0
       AND EXISTS (
           SELECT 1 FROM jsonb_path_query(CAST(NEW.args AS jsonb), 'strict $.** ? (@.type() == "number")') AS found (number)
           WHERE length(split_part(CAST(number AS text), '.', 1)) > 4300)
    THEN
        RAISE EXCEPTION 'rowlock: args hold a number of more than 4300 digits, which no worker can read; pass it as text'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER jobs_live_readable BEFORE INSERT ON rowlock.jobs_live FOR EACH ROW
    WHEN (least(NEW.run_after, NEW.expires_at) < '1970-01-01Z'
          OR greatest(NEW.run_after, NEW.expires_at) >= '2200-01-01Z'
          OR octet_length(CAST(NEW.args AS text)) > 4300)
    EXECUTE FUNCTION rowlock.refuse_unreadable();
CREATE TRIGGER jobs_live_stays_readable BEFORE UPDATE OF run_after, expires_at, args ON rowlock.jobs_live FOR EACH ROW
    WHEN (least(NEW.run_after, NEW.expires_at) < '1970-01-01Z'
          OR greatest(NEW.run_after, NEW.expires_at) >= '2200-01-01Z'
          OR octet_length(CAST(NEW.args AS text)) > 4300)
    EXECUTE FUNCTION rowlock.refuse_unreadable();

-- Jobs and batches for which something cannot be done, and would fail again and again for the whole batch that they are
-- in. Their own rows stay as they are.
CREATE TABLE rowlock.set_aside (
    id       uuid        PRIMARY KEY,        -- of the job or batch
    doing    text        NOT NULL,           -- claim, promote, reclaim, expire, settle, prune; end (of a batch)
    error    text        NOT NULL,
    times    integer     NOT NULL DEFAULT 1, -- that it was tried and failed
    since    timestamptz NOT NULL,
    again_at timestamptz                     -- when it is tried again; NULL: when this row is deleted
);
