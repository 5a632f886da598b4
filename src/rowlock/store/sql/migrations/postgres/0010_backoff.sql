-- A backoff given in SQL is checked where it is given. What Python cannot use would be found only after the first failed
-- try, where nobody is left to be told.

CREATE FUNCTION rowlock.check_backoff(backoff jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF backoff IS NULL OR backoff = 'null' THEN
        RETURN;  -- the default
    END IF;
    IF jsonb_typeof(backoff) = 'object'
        AND backoff - ARRAY['kind', 'base', 'cap', 'factor'] = '{}'
        AND coalesce(backoff @@ '
            $.kind.type() == "string" && ($.kind == "fixed" || $.kind == "exponential")
            && $.base.type() == "number" && $.base >= 0 && $.base <= 3200000000
            && (!exists($.cap) || $.cap.type() == "number" && $.cap >= 0 && $.cap <= 3200000000)
            && (!exists($.factor) || $.factor.type() == "number" && $.factor >= 1 && $.factor <= 100)', FALSE)
    THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'rowlock.enqueue: backoff must be like {"kind": "fixed", "base": 60} or {"kind": "exponential",'
        ' "base": 10, "cap": 86400, "factor": 2}, in seconds up to 100 years and with a factor from 1 to 100; not %',
        left(CAST(backoff AS text), 200) USING ERRCODE = 'invalid_parameter_value';
END;
$$;

-- As before, and with that check.
CREATE OR REPLACE FUNCTION rowlock.enqueue(
    task            text,
    args            jsonb            DEFAULT '{}',
    queue           text             DEFAULT 'default',
    priority        integer          DEFAULT 0,
    source          text             DEFAULT NULL,
    owner           text             DEFAULT NULL,
    tags            text[]           DEFAULT NULL,
    max_attempts    integer          DEFAULT 5,
    backoff         jsonb            DEFAULT NULL,
    timeout_seconds double precision DEFAULT NULL,
    run_after       timestamptz      DEFAULT NULL,
    expires_at      timestamptz      DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    added_id uuid := rowlock.new_id();
    due      timestamptz := coalesce(enqueue.run_after, clock_timestamp());
BEGIN
    IF coalesce(enqueue.task, '') !~ '^[^[:cntrl:]]{1,200}$' THEN
        RAISE EXCEPTION 'rowlock.enqueue: task must have 1–200 characters without control characters, not %',
            quote_nullable(enqueue.task) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(enqueue.queue, '') !~ '^[^[:cntrl:]]{1,200}$' THEN
        RAISE EXCEPTION 'rowlock.enqueue: queue must have 1–200 characters without control characters, not %',
            quote_nullable(enqueue.queue) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(jsonb_typeof(enqueue.args), 'null') <> 'object' THEN
        RAISE EXCEPTION 'rowlock.enqueue: args must be a JSON object, the arguments of task %, not %',
            enqueue.task, quote_nullable(CAST(enqueue.args AS text)) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF octet_length(CAST(enqueue.args AS text)) > 262144 THEN
        RAISE EXCEPTION 'rowlock.enqueue: args of task % have % bytes, more than 262144; store them and pass a reference',
            enqueue.task, octet_length(CAST(enqueue.args AS text)) USING ERRCODE = 'program_limit_exceeded';
    END IF;
    IF enqueue.priority IS NULL OR enqueue.priority NOT BETWEEN -100 AND 100 THEN
        RAISE EXCEPTION 'rowlock.enqueue: priority must be from -100 (first) to 100 (last), not %',
            coalesce(CAST(enqueue.priority AS text), 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF enqueue.max_attempts IS NULL OR enqueue.max_attempts NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'rowlock.enqueue: max_attempts must be from 1 to 1000000, not %',
            coalesce(CAST(enqueue.max_attempts AS text), 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF enqueue.timeout_seconds <= 0 OR enqueue.timeout_seconds = 'NaN' OR enqueue.timeout_seconds = 'Infinity' THEN
        RAISE EXCEPTION 'rowlock.enqueue: timeout_seconds must be above 0, not %', enqueue.timeout_seconds
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM rowlock.check_backoff(enqueue.backoff);
    IF enqueue.source !~ '^[^[:space:]:[:cntrl:]][^[:cntrl:]]{0,198}$' OR enqueue.source ~ ':$' THEN
        RAISE EXCEPTION 'rowlock.enqueue: a source is named like api:ebay or domain:example.com, not %',
            quote_literal(enqueue.source) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO rowlock.jobs_live (
        id, task, queue, ready, priority, args, owner, source, tags, max_attempts, backoff, timeout_seconds, run_after,
        expires_at, created_at, updated_at)
    VALUES (
        added_id, enqueue.task, enqueue.queue, due <= clock_timestamp(), enqueue.priority,
        CAST(enqueue.args AS json), enqueue.owner, enqueue.source, CAST(to_jsonb(enqueue.tags) AS json),
        enqueue.max_attempts, CAST(enqueue.backoff AS json), enqueue.timeout_seconds, due, enqueue.expires_at,
        clock_timestamp(), clock_timestamp());
    PERFORM pg_notify('rowlock', 'work')
    WHERE EXISTS (SELECT 1 FROM rowlock.workers w WHERE w.idle AND w.expires_at > clock_timestamp());
    RETURN added_id;
END;
$$;
