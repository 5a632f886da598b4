-- The tables refuse what no worker could read, and what is there already stops nobody: a row that makes a batch fail is
-- named in set_aside and left alone.

-- States that there are not, times that Python has no words for (or that never come), and whole numbers of more than 4,300
-- digits, which Python does not parse. A trigger and not a check, because a check is asked again for each update: a row
-- that is there already could then not even be claimed.
CREATE FUNCTION rowlock.refuse_unreadable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- One condition for nearly all rows; which part of it failed is asked below.
    IF NEW.state IN ('queued', 'running', 'retryable')
       AND least(NEW.run_after, NEW.expires_at) >= '1970-01-01Z'
       AND greatest(NEW.run_after, NEW.expires_at) < '2200-01-01Z'
       AND pg_column_size(NEW.args) <= 4300
    THEN
        RETURN NEW;
    END IF;
    -- Of an update, what it changes: a row that is there already can be given back all the same.
    IF NEW.state IS DISTINCT FROM OLD.state AND NEW.state NOT IN ('queued', 'running', 'retryable') THEN
        RAISE EXCEPTION 'rowlock: state must be queued, running or retryable, not % (constraint)', NEW.state
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.run_after IS DISTINCT FROM OLD.run_after
       AND NOT (NEW.run_after >= '1970-01-01Z' AND NEW.run_after < '2200-01-01Z')
    THEN
        RAISE EXCEPTION 'rowlock: run_after must be from 1970 to 2199, not % (constraint)', NEW.run_after
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.expires_at IS DISTINCT FROM OLD.expires_at
       AND NOT (NEW.expires_at >= '1970-01-01Z' AND NEW.expires_at < '2200-01-01Z')
    THEN
        RAISE EXCEPTION 'rowlock: expires_at must be from 1970 to 2199, not % (constraint)', NEW.expires_at
            USING ERRCODE = 'check_violation';
    END IF;
    -- Only where so many digits stand in a row is it worth to look whether they are a number or a part of a text.
    IF CAST(NEW.args AS text) IS DISTINCT FROM CAST(OLD.args AS text)
       AND strpos(translate(CAST(NEW.args AS text), '123456789', '000000000'), repeat('0', 4301)) > 0
    THEN
        BEGIN
            IF EXISTS (
                SELECT 1
                FROM jsonb_path_query(CAST(NEW.args AS jsonb), 'strict $.** ? (@.type() == "number")') AS found (number)
                WHERE length(split_part(CAST(number AS text), '.', 1)) > 4300)
            THEN
                RAISE EXCEPTION 'rowlock: args hold a number of more than 4300 digits; pass it as text (constraint)'
                    USING ERRCODE = 'check_violation';
            END IF;
        EXCEPTION WHEN untranslatable_character THEN
            NULL;  -- a text with an escaped NUL, which jsonb cannot hold: it cannot be looked into, and is no reason to refuse
        END;
    END IF;
    RETURN NEW;
END;
$$;
-- Without a condition of its own: the function is compiled once for each connection and takes 1 µs of a single insert, a
-- condition (WHEN) is read and prepared again for each statement and takes 9.
CREATE TRIGGER jobs_live_readable BEFORE INSERT ON rowlock.jobs_live
    FOR EACH ROW EXECUTE FUNCTION rowlock.refuse_unreadable();
-- With one, because claims and outcomes update many rows at once.
CREATE TRIGGER jobs_live_state BEFORE UPDATE OF state ON rowlock.jobs_live
    FOR EACH ROW WHEN (NEW.state NOT IN ('queued', 'running', 'retryable'))
    EXECUTE FUNCTION rowlock.refuse_unreadable();
CREATE TRIGGER jobs_live_stays_readable BEFORE UPDATE OF run_after, expires_at, args ON rowlock.jobs_live
    FOR EACH ROW WHEN (
        least(NEW.run_after, NEW.expires_at) < '1970-01-01Z'
        OR greatest(NEW.run_after, NEW.expires_at) >= '2200-01-01Z'
        OR pg_column_size(NEW.args) > 4300)
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
