-- Jobs from SQL with every option that Python can give them: rowlock.enqueue(task, args, options), rowlock.enqueue_many.
--
-- The names of options are those of the JSON form in core/options.py, which the table `tasks` and follow-ups carry too.
-- Dropped and not overloaded: with both signatures there, an untyped third argument would become the name of a queue.
--
-- Errors of the functions have SQLSTATEs of their own:
--   RL001 an argument or the value of an option    RL002 an option that there is not    RL003 too large
--   RL004 the batch takes no more jobs             RL005 try again                      RL006 the lease is lost
-- Functions whose names begin with an underscore are parts of the others and may change in any version.

DROP FUNCTION rowlock.enqueue(
    text, jsonb, text, integer, text, text, text[], integer, jsonb, double precision, timestamptz, timestamptz);
DROP FUNCTION rowlock.check_backoff(jsonb);

-- What the functions take from the world, each in a function of its own, so that tests can replace them.
-- Without SET search_path, which would keep them from being inlined; every name in them is qualified.
CREATE FUNCTION rowlock._clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp()';
CREATE FUNCTION rowlock._draw() RETURNS double precision LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.random()';
CREATE FUNCTION rowlock._new_token() RETURNS uuid LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.gen_random_uuid()';

-- An id that grows with time: 48 bits of milliseconds, 12 bits of the fraction of a millisecond, then chance. Without
-- the fraction, jobs of one millisecond would be claimed in any order.
CREATE OR REPLACE FUNCTION rowlock.new_id() RETURNS uuid
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    micros bigint := CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint);
    sub    integer := CAST((micros % 1000) * 4096 / 1000 AS integer);
    bytes  bytea := uuid_send(gen_random_uuid());
BEGIN
    bytes := overlay(bytes PLACING substring(int8send(micros / 1000) FROM 3) FROM 1 FOR 6);
    bytes := set_byte(set_byte(bytes, 6, 112 | (sub >> 8)), 7, sub & 255);
    RETURN CAST(encode(bytes, 'hex') AS uuid);
END;
$$;

-- An error of our own.
CREATE FUNCTION rowlock._refuse(message text, hint text, code text DEFAULT 'RL001') RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = 'rowlock.' || message, HINT = hint, ERRCODE = code;
END;
$$;

-- A value as an error message shows it.
CREATE FUNCTION rowlock._shown(value text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT coalesce(pg_catalog.left(value, 200), 'NULL') $$;

-- A name that can be stored and shown, as core/options.py has it: queue, task, owner, tag.
CREATE FUNCTION rowlock._is_name(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT coalesce(value ~ '^[^\u0001-\u001f\u007f]{1,200}$', FALSE) $$;

-- The name of a source, as core/sources/admission.py has it.
CREATE FUNCTION rowlock._is_source(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(value ~ '^[^\s:\u0001-\u001f\u007f][^\u0001-\u001f\u007f]{0,198}$' AND value !~ ':$', FALSE)
$$;

-- A UUID; NULL if the text is none. Without SET search_path, so that it can be inlined.
CREATE FUNCTION rowlock._uuid(value text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN value OPERATOR(pg_catalog.~*) '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'
                THEN CAST(value AS pg_catalog.uuid) END
$$;

-- A time with its zone, from 1970 to 2199; NULL if the text is none.
CREATE FUNCTION rowlock._moment(value text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found timestamptz;
BEGIN
    IF value !~* '^\d{4}-\d\d-\d\d[T ].*(Z|[+-]\d\d(:?\d\d)?)$' THEN
        RETURN NULL;
    END IF;
    found := CAST(value AS timestamptz);
    RETURN CASE WHEN found >= '1970-01-01Z' AND found < '2200-01-01Z' THEN found END;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END;
$$;

-- A backoff as an object; NULL if it cannot be used. What Python cannot use would be found only after the first failed
-- try, where nobody is left to be told.
CREATE FUNCTION rowlock._backoff(value jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    backoff jsonb := value;
BEGIN
    IF jsonb_typeof(value) = 'string' THEN
        backoff := CAST(value #>> '{}' AS jsonb);
    END IF;
    IF jsonb_typeof(backoff) = 'object'
        AND backoff - ARRAY['kind', 'base', 'cap', 'factor'] = '{}'
        AND coalesce(backoff @@ '
            $.kind.type() == "string" && ($.kind == "fixed" || $.kind == "exponential")
            && $.base.type() == "number" && $.base >= 0 && $.base <= 3200000000
            && (!exists($.cap) || $.cap.type() == "number" && $.cap >= 0 && $.cap <= 3200000000)
            && (!exists($.factor) || $.factor.type() == "number" && $.factor >= 1 && $.factor <= 100)', FALSE)
    THEN
        RETURN backoff;
    END IF;
    RETURN NULL;
EXCEPTION WHEN invalid_text_representation THEN
    RETURN NULL;
END;
$$;

-- A follow-up as a job carries it. Given by its name alone, it has the options that its worker registered.
CREATE FUNCTION rowlock._follow_up(doing text, option text, value jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stored jsonb := value;
BEGIN
    IF jsonb_typeof(value) = 'string' THEN
        stored := jsonb_build_object('task', value)
            || coalesce((SELECT CAST(t.options AS jsonb) FROM rowlock.tasks t WHERE t.name = value #>> '{}'), '{}');
    ELSIF jsonb_typeof(value) = 'object' THEN
        stored := rowlock._options(doing, value - 'task' - 'bare')
            || jsonb_build_object('task', value -> 'task')
            || CASE WHEN value -> 'bare' = 'true' THEN jsonb '{"bare": true}' ELSE '{}' END;
    END IF;
    IF jsonb_typeof(stored -> 'task') IS DISTINCT FROM 'string' OR NOT rowlock._is_name(stored ->> 'task') THEN
        PERFORM rowlock._refuse(
            format('%s: %s must name a task, not %s', doing, option, rowlock._shown(CAST(value AS text))),
            'Give the name of a task, or {"task": "name", …} with the options of its job.');
    END IF;
    IF octet_length(CAST(stored AS text)) > 16384 THEN
        PERFORM rowlock._refuse(
            format('%s: %s takes %s bytes in each job, more than 16384', doing, option, octet_length(CAST(stored AS text))),
            'Give follow-ups by their names.', 'RL003');
    END IF;
    RETURN stored;
END;
$$;

-- The options of a job, checked and in the form in which they are stored. JSON null means: not given.
CREATE FUNCTION rowlock._options(doing text, given jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept   jsonb := '{}';
    option text;
    value  jsonb;
    kind   text;
    plain  text;
    number numeric;
    wanted text;      -- what it must be, if it is not
BEGIN
    IF jsonb_typeof(given) IS DISTINCT FROM 'object' THEN
        PERFORM rowlock._refuse(
            format('%s: options must be a JSON object, not %s', doing, rowlock._shown(CAST(given AS text))),
            'Write them like {"queue": "mail", "delay": 60}.');
    END IF;
    FOR option, value IN SELECT * FROM jsonb_each(given) LOOP
        CONTINUE WHEN value = 'null';
        kind := jsonb_typeof(value);
        plain := CASE WHEN kind = 'string' THEN value #>> '{}' END;
        number := CASE WHEN kind = 'number' THEN CAST(value #>> '{}' AS numeric) END;
        wanted := NULL;
        CASE option
            WHEN 'queue', 'owner' THEN
                IF NOT rowlock._is_name(plain) THEN
                    wanted := 'a string of 1–200 characters without control characters';
                END IF;
            WHEN 'priority' THEN
                IF number IS NULL OR number <> trunc(number) OR number NOT BETWEEN -100 AND 100 THEN
                    wanted := 'a whole number from -100 (first) to 100';
                END IF;
            WHEN 'max_attempts' THEN
                IF number IS NULL OR number <> trunc(number) OR number NOT BETWEEN 1 AND 1000000 THEN
                    wanted := 'a whole number from 1 to 1000000';
                END IF;
            WHEN 'timeout_seconds', 'keep_seconds', 'delay', 'window' THEN
                IF number IS NULL OR number NOT BETWEEN 0 AND 3200000000 THEN
                    wanted := 'a number of seconds from 0 to 3200000000 (100 years)';
                END IF;
            WHEN 'backoff' THEN
                value := rowlock._backoff(value);
                IF value IS NULL THEN
                    value := given -> option;
                    wanted := 'like {"kind": "fixed", "base": 60} or {"kind": "exponential", "base": 10, "cap": 86400,'
                        ' "factor": 2}, in seconds up to 100 years and with a factor from 1 to 100';
                END IF;
            WHEN 'source' THEN
                IF NOT rowlock._is_source(plain) THEN
                    wanted := 'named like api:ebay or domain:example.com';
                END IF;
            WHEN 'on_success', 'on_dead' THEN
                value := rowlock._follow_up(doing, option, value);
            WHEN 'on_lost' THEN
                IF plain IS NULL OR plain NOT IN ('retry', 'dead') THEN
                    wanted := '"retry" or "dead"';
                END IF;
                CONTINUE WHEN plain = 'retry';  -- the default, for which nothing is stored
            WHEN 'tags' THEN
                IF kind <> 'array' OR EXISTS (
                    SELECT 1 FROM jsonb_array_elements(CASE WHEN kind = 'array' THEN value ELSE '[]' END) one
                    WHERE jsonb_typeof(one) <> 'string' OR NOT rowlock._is_name(one #>> '{}'))
                THEN
                    wanted := 'a list of strings of 1–200 characters without control characters';
                END IF;
                CONTINUE WHEN value = '[]';
            WHEN 'batch_id' THEN
                IF rowlock._uuid(plain) IS NULL THEN
                    wanted := 'the id of a batch, a UUID';
                END IF;
            WHEN 'unique' THEN
                IF plain IS NULL OR plain NOT IN ('until_done', 'while_queued', 'forever', 'window') THEN
                    wanted := '"until_done", "while_queued", "forever", or "window" together with "window": seconds';
                END IF;
            WHEN 'run_after', 'expires_at' THEN
                IF rowlock._moment(plain) IS NULL THEN
                    wanted := 'a time with its zone in the years from 1970 to 2199, like "2031-05-01T12:00:00Z"';
                END IF;
            ELSE
                PERFORM rowlock._refuse(
                    format('%s: no option %s', doing, quote_ident(option)),
                    'There are queue, priority, max_attempts, backoff, timeout_seconds, source, on_success, on_dead,'
                    ' on_lost, keep_seconds, owner, tags, batch_id, unique, window, delay, run_after, expires_at; for'
                    ' one job also key, job_id and under.', 'RL002');
        END CASE;
        IF wanted IS NOT NULL THEN
            PERFORM rowlock._refuse(
                format('%s: %s must be %s; not %s', doing, option, wanted, rowlock._shown(CAST(value AS text))),
                'See the options of rowlock.enqueue in the reference of the SQL functions.');
        END IF;
        kept := kept || jsonb_build_object(option, value);
    END LOOP;
    IF kept ? 'delay' AND kept ? 'run_after' THEN
        PERFORM rowlock._refuse(
            format('%s: delay and run_after are both given', doing), 'Give one of them: both say when the job may start.');
    END IF;
    IF coalesce(kept ->> 'unique' = 'window', FALSE) <> (coalesce(CAST(kept ->> 'window' AS numeric), 0) > 0) THEN
        PERFORM rowlock._refuse(
            format('%s: unique "window" and the option window belong together', doing),
            'Give {"unique": "window", "window": seconds}, with more than 0 seconds.');
    END IF;
    RETURN kept;
END;
$$;

CREATE TYPE rowlock._new_row AS (id uuid, args json, key text, source text);

-- The rows of new jobs that share their options, and a wake-up if a worker is idle. The only INSERT of the functions.
CREATE FUNCTION rowlock._insert(task text, o jsonb, rows rowlock._new_row[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at  timestamptz := rowlock._clock();
    due timestamptz := coalesce(
        CAST(o ->> 'run_after' AS timestamptz),
        at + coalesce(CAST(o ->> 'delay' AS double precision), 0) * interval '1 second');
BEGIN
    INSERT INTO rowlock.jobs_live (
        id, args, source, unique_key, task, ready, run_after, queue, priority, max_attempts, backoff, timeout_seconds,
        on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id, unique_mode, expires_at, created_at, updated_at)
    SELECT added.id, added.args, added.source, added.key, _insert.task, due <= at, due,
           coalesce(o ->> 'queue', 'default'), coalesce(CAST(o ->> 'priority' AS numeric), 0),
           coalesce(CAST(o ->> 'max_attempts' AS numeric), 5),
           -- ->> gives the text of an object, and of a text that holds an object: workers register the latter.
           CAST(o ->> 'backoff' AS json), CAST(o ->> 'timeout_seconds' AS double precision),
           CAST(o ->> 'on_success' AS json), CAST(o ->> 'on_dead' AS json), o ->> 'on_lost',
           CAST(o ->> 'keep_seconds' AS double precision), o ->> 'owner', CAST(o ->> 'tags' AS json),
           CAST(o ->> 'batch_id' AS uuid), o ->> 'unique', CAST(o ->> 'expires_at' AS timestamptz), at, at
    FROM unnest(rows) AS added;
    PERFORM pg_notify('rowlock', 'work')
    WHERE EXISTS (SELECT 1 FROM rowlock.workers w WHERE w.idle AND w.expires_at > at);
END;
$$;

-- Take keys for new jobs, as store/jobs/keys.py does: answers who holds each of them now, these jobs or older ones.
CREATE FUNCTION rowlock._take_keys(scope text, o jsonb, rows rowlock._new_row[])
RETURNS TABLE (key text, job_id uuid)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    wanted rowlock._new_row[] := rows;
    held   jsonb := '{}';       -- key -> job
    at     timestamptz := rowlock._clock();
    ends   timestamptz := at + CAST(o ->> 'window' AS double precision) * interval '1 second';
BEGIN
    FOR try IN 1..5 LOOP
        -- In the order of the keys, so that two transactions cannot wait for each other in a circle. An insert waits for
        -- a twin that is not yet committed, and goes through if that one is rolled back.
        WITH taken AS (
            INSERT INTO rowlock.job_keys (scope, key, job_id, mode, expires_at)
            SELECT _take_keys.scope, w.key, w.id, o ->> 'unique', ends FROM unnest(wanted) w ORDER BY w.key
            ON CONFLICT (scope, key) DO NOTHING
            RETURNING job_keys.key, job_keys.job_id)
        SELECT held || coalesce(jsonb_object_agg(taken.key, taken.job_id), '{}') INTO held FROM taken;
        wanted := ARRAY(SELECT w FROM unnest(wanted) w WHERE NOT held ? w.key);
        EXIT WHEN cardinality(wanted) = 0;
        SELECT held || coalesce(jsonb_object_agg(k.key, k.job_id), '{}') INTO held
        FROM rowlock.job_keys k
        WHERE k.scope = _take_keys.scope AND k.key = ANY (ARRAY(SELECT w.key FROM unnest(wanted) w))
          AND (k.expires_at IS NULL OR k.expires_at > at);
        wanted := ARRAY(SELECT w FROM unnest(wanted) w WHERE NOT held ? w.key);
        EXIT WHEN cardinality(wanted) = 0;
        -- Their time is over, or they were let go meanwhile: take them anew.
        DELETE FROM rowlock.job_keys k
        WHERE k.scope = _take_keys.scope AND k.key = ANY (ARRAY(SELECT w.key FROM unnest(wanted) w))
          AND k.expires_at <= at;
    END LOOP;
    IF cardinality(wanted) > 0 THEN
        PERFORM rowlock._refuse(
            format('enqueue: key %s is taken and let go all the time', quote_literal(wanted[1].key)), 'Try again.', 'RL005');
    END IF;
    RETURN QUERY SELECT h.key, CAST(h.value AS uuid) FROM jsonb_each_text(held) h;
END;
$$;

-- Count new jobs into a batch, if it takes any: from outside until it is sealed, from its own jobs until it ends.
CREATE FUNCTION rowlock._join_batch(doing text, batch uuid, number integer, own boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    this record;
BEGIN
    -- Not against others that add, nor against a claim that starts the batch: this transaction may stay open for long.
    SELECT b.name, b.sealed_at, b.finished_at, b.cancelled_at IS NOT NULL AND b.reopened_at IS NULL AS cancelled INTO this
    FROM rowlock.batches b WHERE b.id = batch
    FOR KEY SHARE;
    IF this.name IS NULL THEN
        PERFORM rowlock._refuse(format('%s: there is no batch %s', doing, batch), 'Give the id of an open batch.', 'RL004');
    ELSIF this.finished_at IS NOT NULL OR this.cancelled THEN
        PERFORM rowlock._refuse(
            format('%s: batch %s (%s) %s: no job was added', doing, quote_literal(this.name), batch,
                   CASE WHEN this.finished_at IS NULL THEN 'is cancelled' ELSE 'has ended' END),
            'Make a new batch.', 'RL004');
    ELSIF this.sealed_at IS NOT NULL AND NOT own THEN
        PERFORM rowlock._refuse(
            format('%s: batch %s (%s) is sealed', doing, quote_literal(this.name), batch),
            'Only its own running jobs may add to it: give {"under": {"job_id": …, "token": …}}.', 'RL004');
    END IF;
    -- In rows of their own: settles must not wait for this transaction.
    INSERT INTO rowlock.batch_counts (batch_id, shard, total)
    VALUES (batch, 16 + floor(random() * 16), number)
    ON CONFLICT (batch_id, shard) DO UPDATE SET total = batch_counts.total + excluded.total;
END;
$$;

-- Jobs of one task: each element of `jobs` has args and may have key, source and job_id of its own.
CREATE FUNCTION rowlock._enqueue(doing text, task text, jobs jsonb, options jsonb)
RETURNS TABLE (job_id uuid, created boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known   rowlock.tasks;
    o       jsonb;
    own     jsonb := options -> 'under';
    mine    uuid;
    job     jsonb;
    strange text;
    rows    rowlock._new_row[] := '{}';
    fresh   rowlock._new_row[];
    ids     uuid[];
    keyed   boolean;
    holders jsonb := '{}';      -- key -> job
    inside  boolean := FALSE;
BEGIN
    IF NOT rowlock._is_name(task) THEN
        PERFORM rowlock._refuse(
            format('%s: task must have 1–200 characters without control characters, not %s', doing, rowlock._shown(task)),
            'Give the name under which a worker has registered the task.');
    END IF;
    SELECT * INTO known FROM rowlock.tasks t WHERE t.name = _enqueue.task;
    strange := (
        SELECT min(given) FROM json_object_keys(coalesce(known.options, '{}')) given
        WHERE given NOT IN ('queue', 'priority', 'max_attempts', 'backoff', 'timeout_seconds', 'source', 'on_success',
                            'on_dead', 'on_lost', 'keep_seconds'));
    IF strange IS NOT NULL THEN
        PERFORM rowlock._refuse(
            format('%s: task %s has the option %s, which this function cannot give to a job', doing, task, strange),
            'Run rowlock migrate of the version whose worker registered the task.', 'RL002');
    END IF;
    o := coalesce(CAST(known.options AS jsonb), '{}')
        || rowlock._options(doing, CASE WHEN jsonb_typeof(options) = 'object' THEN options - 'under' ELSE options END);
    keyed := (SELECT bool_or(one ? 'key' AND one -> 'key' <> 'null') FROM jsonb_array_elements(jobs) one);
    IF o ? 'unique' AND NOT coalesce(keyed, FALSE) THEN
        PERFORM rowlock._refuse(format('%s: unique says how a key holds, and there is no key', doing), 'Give key, too.');
    ELSIF keyed AND NOT o ? 'unique' THEN
        o := o || '{"unique": "until_done"}';
    END IF;

    -- Ids in the order of the jobs: they decide which is claimed first.
    ids := ARRAY(SELECT rowlock.new_id() AS new FROM jsonb_array_elements(jobs) ORDER BY new);
    FOR i IN 1..jsonb_array_length(jobs) LOOP
        job := jobs -> (i - 1);
        rows := rows || rowlock._job_row(doing, task, job, ids[i], coalesce(keyed, FALSE), o, known.source_derived);
    END LOOP;

    IF own IS NOT NULL AND own <> 'null' THEN
        -- An attempt makes jobs only as long as it holds its own, and may add to its own batch.
        SELECT j.batch_id INTO mine FROM rowlock.jobs_live j
        WHERE j.id = rowlock._uuid(own ->> 'job_id') AND j.lease_token = rowlock._uuid(own ->> 'token')
          AND j.state = 'running'
        FOR UPDATE;
        IF NOT FOUND THEN
            PERFORM rowlock._refuse(
                format('%s: job %s is no longer held under this token; nothing was enqueued', doing,
                       rowlock._shown(own ->> 'job_id')),
                'Stop working on that job: another worker may have it.', 'RL006');
        END IF;
        inside := mine IS NOT NULL AND mine = CAST(o ->> 'batch_id' AS uuid);
    END IF;

    -- Ids that the caller chose are reserved; one that any job has or had is not made again.
    fresh := rows;
    FOR i IN 1..cardinality(rows) LOOP
        CONTINUE WHEN NOT coalesce(jobs -> (i - 1) ->> 'job_id', '') <> '';
        INSERT INTO rowlock.job_keys (scope, key, job_id, mode) VALUES ('id', CAST(rows[i].id AS text), rows[i].id, 'id')
        ON CONFLICT (scope, key) DO NOTHING;
        IF NOT FOUND
            OR EXISTS (SELECT 1 FROM rowlock.jobs_live j WHERE j.id = rows[i].id)
            OR EXISTS (SELECT 1 FROM rowlock.jobs_finished j WHERE j.id = rows[i].id)
            OR EXISTS (SELECT 1 FROM rowlock.job_keys k WHERE k.job_id = rows[i].id AND k.scope <> 'id')
        THEN
            fresh := ARRAY(SELECT f FROM unnest(fresh) f WHERE f.id <> rows[i].id);
        END IF;
    END LOOP;

    IF keyed AND cardinality(fresh) > 0 THEN
        -- Of two jobs with one key the first is it.
        fresh := ARRAY(SELECT DISTINCT ON (f.key) CAST(f AS rowlock._new_row) FROM unnest(fresh) f ORDER BY f.key, f.id);
        SELECT jsonb_object_agg(t.key, t.job_id) INTO holders
        FROM rowlock._take_keys(task || chr(31) || coalesce(o ->> 'owner', ''), o, fresh) t;
        DELETE FROM rowlock.job_keys k USING unnest(fresh) f
        WHERE k.scope = 'id' AND k.key = CAST(f.id AS text) AND CAST(holders ->> f.key AS uuid) <> f.id;
        fresh := ARRAY(SELECT f FROM unnest(fresh) f WHERE CAST(holders ->> f.key AS uuid) = f.id ORDER BY f.id);
    END IF;
    IF cardinality(fresh) > 0 THEN
        IF o ? 'batch_id' THEN
            PERFORM rowlock._join_batch(doing, CAST(o ->> 'batch_id' AS uuid), cardinality(fresh), inside);
        END IF;
        PERFORM rowlock._insert(task, o, fresh);
    END IF;
    RETURN QUERY
        SELECT CASE WHEN made.id IS NULL THEN coalesce(CAST(holders ->> r.key AS uuid), r.id) ELSE r.id END, made.id IS NOT NULL
        FROM unnest(rows) WITH ORDINALITY AS r (id, args, key, source, nth) LEFT JOIN unnest(fresh) AS made ON made.id = r.id
        ORDER BY r.nth;
END;
$$;

-- One element of `jobs`, checked.
CREATE FUNCTION rowlock._job_row(
    doing text, task text, job jsonb, new_id uuid, keyed boolean, o jsonb, source_derived boolean
) RETURNS rowlock._new_row
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    args   jsonb := job -> 'args';
    key    text := job ->> 'key';
    chosen text := job ->> 'job_id';
    source text := coalesce(job ->> 'source', o ->> 'source');
    size   integer := octet_length(CAST(args AS text));
    other  text;
BEGIN
    SELECT min(k) INTO other
    FROM jsonb_object_keys(CASE WHEN jsonb_typeof(job) = 'object' THEN job ELSE '{}' END) k
    WHERE k NOT IN ('args', 'key', 'source', 'job_id');
    IF other IS NOT NULL THEN
        PERFORM rowlock._refuse(
            format('%s: no option %s of a single job', doing, quote_ident(other)),
            'Each element of jobs is like {"args": {…}}, with key, source and job_id if wanted; other options are shared.',
            'RL002');
    END IF;
    IF coalesce(jsonb_typeof(args), 'null') <> 'object' THEN
        PERFORM rowlock._refuse(
            format('%s: args must be a JSON object, the arguments of task %s, not %s', doing, task,
                   rowlock._shown(CAST(args AS text))),
            'Write arguments by their names, like {"url": "https://example.com"}.');
    END IF;
    IF size > 262144 THEN
        PERFORM rowlock._refuse(
            format('%s: args of task %s have %s bytes, more than 262144', doing, task, size),
            'Store them elsewhere and pass a reference.', 'RL003');
    END IF;
    IF keyed AND (coalesce(key, '') = '' OR jsonb_typeof(job -> 'key') <> 'string' OR octet_length(key) > 512) THEN
        PERFORM rowlock._refuse(
            format('%s: key must be a string of 1–512 bytes, not %s', doing, rowlock._shown(CAST(job -> 'key' AS text))),
            'Of jobs that are enqueued together, either all have a key or none; hash a longer one.');
    END IF;
    IF chosen IS NOT NULL AND rowlock._uuid(chosen) IS NULL THEN
        PERFORM rowlock._refuse(
            format('%s: job_id must be a UUID, not %s', doing, rowlock._shown(chosen)),
            'Leave it out, or give a UUID, best of version 7.');
    END IF;
    IF job ? 'source' AND job -> 'source' <> 'null' AND NOT rowlock._is_source(source) THEN
        PERFORM rowlock._refuse(
            format('%s: source must be named like api:ebay or domain:example.com; not %s', doing, rowlock._shown(source)),
            'The part before the colon is the class, whose limits hold for each of its sources.');
    END IF;
    IF source_derived AND source IS NULL THEN
        RAISE WARNING 'rowlock.%: task % derives its source from its arguments in Python; this job has none, so no limit of'
            ' a source holds for it: give the option source', doing, task;
    END IF;
    RETURN ROW(coalesce(rowlock._uuid(chosen), new_id), CAST(args AS json), key, source);
END;
$$;

-- One job; answers its id, or that of the older job that holds its key.
CREATE FUNCTION rowlock.enqueue(task text, args jsonb DEFAULT '{}', options jsonb DEFAULT '{}') RETURNS uuid
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    of_one CONSTANT text[] := ARRAY['key', 'job_id'];
    job    jsonb := jsonb_build_object('args', args);
    rest   jsonb := coalesce(options, '{}');
BEGIN
    IF jsonb_typeof(rest) = 'object' THEN
        job := job || coalesce(
            (SELECT jsonb_object_agg(g.key, g.value) FROM jsonb_each(rest) g WHERE g.key = ANY (of_one)), '{}');
        rest := rest - of_one;
    END IF;
    RETURN (SELECT made.job_id FROM rowlock._enqueue('enqueue', task, jsonb_build_array(job), rest) made);
END;
$$;

-- Many jobs of one task: `jobs` is an array of {"args": {…}}, each with key, source and job_id of its own if wanted; the
-- options are those of all. Answers, in their order, the id of each and whether it is new.
CREATE FUNCTION rowlock.enqueue_many(task text, jobs jsonb, options jsonb DEFAULT '{}')
RETURNS TABLE (job_id uuid, created boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(jsonb_typeof(jobs), 'null') <> 'array' THEN
        PERFORM rowlock._refuse(
            format('enqueue_many: jobs must be a JSON array, not %s', rowlock._shown(CAST(jobs AS text))),
            'Write it like [{"args": {"n": 1}}, {"args": {"n": 2}}].');
    END IF;
    RETURN QUERY SELECT * FROM rowlock._enqueue('enqueue_many', task, jobs, coalesce(options, '{}'));
END;
$$;
