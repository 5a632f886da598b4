-- The options of each task as its worker registered them, so that a job can be enqueued with them where the task's code
-- is not at hand.

CREATE TABLE rowlock.tasks (
    name           text        PRIMARY KEY,
    source_derived boolean     NOT NULL,        -- a function derives the source from the arguments: it is not in `options`
    options        json        NOT NULL,        -- those that differ from the defaults (core/options.py)
    updated_at     timestamptz NOT NULL
);

-- As before; what the caller does not give is now what the task's worker registered, else the default as before.
CREATE OR REPLACE FUNCTION rowlock.enqueue(
    task            text,
    args            jsonb            DEFAULT '{}',
    queue           text             DEFAULT NULL,
    priority        integer          DEFAULT NULL,
    source          text             DEFAULT NULL,
    owner           text             DEFAULT NULL,
    tags            text[]           DEFAULT NULL,
    max_attempts    integer          DEFAULT NULL,
    backoff         jsonb            DEFAULT NULL,
    timeout_seconds double precision DEFAULT NULL,
    run_after       timestamptz      DEFAULT NULL,
    expires_at      timestamptz      DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    added_id uuid := rowlock.new_id();
    due      timestamptz := coalesce(enqueue.run_after, clock_timestamp());
    known    rowlock.tasks;
    options  jsonb;
    strange  text;
BEGIN
    SELECT * INTO known FROM rowlock.tasks t WHERE t.name = enqueue.task;
    options := coalesce(CAST(known.options AS jsonb), '{}');
    strange := (
        SELECT min(given) FROM jsonb_object_keys(options) given
        WHERE given NOT IN ('queue', 'priority', 'max_attempts', 'backoff', 'timeout_seconds', 'source', 'on_success',
                            'on_dead', 'on_lost', 'keep_seconds'));
    IF strange IS NOT NULL THEN
        RAISE EXCEPTION 'rowlock.enqueue: task % has the option %, which this function cannot give to a job',
            enqueue.task, strange USING ERRCODE = 'feature_not_supported';
    END IF;
    queue := coalesce(enqueue.queue, options ->> 'queue', 'default');
    priority := coalesce(enqueue.priority, CAST(options ->> 'priority' AS integer), 0);
    max_attempts := coalesce(enqueue.max_attempts, CAST(options ->> 'max_attempts' AS integer), 5);
    backoff := coalesce(enqueue.backoff, CAST(options ->> 'backoff' AS jsonb));
    timeout_seconds := coalesce(enqueue.timeout_seconds, CAST(options ->> 'timeout_seconds' AS double precision));
    source := coalesce(enqueue.source, options ->> 'source');
    IF known.source_derived AND enqueue.source IS NULL THEN
        RAISE WARNING 'rowlock.enqueue: task % derives its source from its arguments in Python; this job has none, so no'
            ' limit of a source holds for it: give source => …', enqueue.task;
    END IF;
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
        expires_at, on_success, on_dead, on_lost, keep_seconds, created_at, updated_at)
    VALUES (
        added_id, enqueue.task, enqueue.queue, due <= clock_timestamp(), enqueue.priority,
        CAST(enqueue.args AS json), enqueue.owner, enqueue.source, CAST(to_jsonb(enqueue.tags) AS json),
        enqueue.max_attempts, CAST(enqueue.backoff AS json), enqueue.timeout_seconds, due, enqueue.expires_at,
        CAST(options -> 'on_success' AS json), CAST(options -> 'on_dead' AS json), options ->> 'on_lost',
        CAST(options ->> 'keep_seconds' AS double precision), clock_timestamp(), clock_timestamp());
    PERFORM pg_notify('rowlock', 'work')
    WHERE EXISTS (SELECT 1 FROM rowlock.workers w WHERE w.idle AND w.expires_at > clock_timestamp());
    RETURN added_id;
END;
$$;
