-- What apps bring along: their own tables' migrations, and SQL of their own that enqueues.

CREATE TABLE rowlock.app_migrations (
    app        text        NOT NULL,
    number     integer     NOT NULL,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL,
    PRIMARY KEY (app, number)
);

-- An id that grows with time, as the ids of jobs do: 48 bits of milliseconds, then chance.
CREATE FUNCTION rowlock.new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT CAST(encode(
        set_byte(
            overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send(CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)) FROM 3)
                    FROM 1 FOR 6),
            6, 112 | (get_byte(uuid_send(gen_random_uuid()), 6) & 15)),
        'hex') AS uuid);
$$;

-- A job from SQL: a trigger, another language, psql. It commits with the transaction around it. What Python knows of the
-- task (its queue, tries, backoff, timeout) is not known here and must be given.
CREATE FUNCTION rowlock.enqueue(
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
