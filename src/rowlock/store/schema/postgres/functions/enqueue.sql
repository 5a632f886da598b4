-- Enqueue from SQL: rowlock.enqueue and rowlock.enqueue_many can set every option that Python can. Options have the
-- names of the JSON form in core/options.py, which the table `tasks` and follow-ups use as well.
--
-- In all of these files, a function whose name begins with an underscore is a helper, which may change in any version.
-- The functions follow the rules of the Python store: the comment on each names the Python code that it repeats, and
-- tests/conformance runs the same tests on both. Errors have their own SQLSTATEs:
--
--   RL001  an argument, or the value of an option      RL004  the batch takes no more jobs
--   RL002  an option that does not exist               RL005  try again
--   RL003  too large                                   RL006  the lease is lost

-- Enqueue one job. Returns its id, or the id of the older job that holds its key. store/jobs/enqueue.py: enqueue,
-- enqueue_once.
CREATE OR REPLACE FUNCTION rowlock.enqueue(task text, args jsonb DEFAULT '{}', options jsonb DEFAULT '{}')
RETURNS uuid
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

-- Enqueue many jobs of one task. `jobs` is an array of {"args": {…}}; each may have its own key, source and job_id. The
-- options apply to all of them. Returns the id of each job, in the order given, and whether it is new.
CREATE OR REPLACE FUNCTION rowlock.enqueue_many(task text, jobs jsonb, options jsonb DEFAULT '{}')
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

-- The common part of both: each element of `jobs` has args and may have key, source and job_id. store/jobs/enqueue.py:
-- enqueue_once.
CREATE OR REPLACE FUNCTION rowlock._enqueue(doing text, task text, jobs jsonb, options jsonb)
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
    wanted  rowlock._new_row[];
    ids     uuid[];
    chosen  uuid[];
    free    uuid[] := '{}';     -- the chosen ids that no job has or had
    lost    uuid[] := '{}';     -- jobs whose key another job holds
    twice   text;
    keyed   boolean;
    holders jsonb := '{}';      -- key -> job
    inside  boolean := FALSE;
BEGIN
    PERFORM rowlock._check_task(doing, task);
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
        PERFORM rowlock._refuse(format('%s: unique needs a key, and there is no key', doing), 'Give key as well.');
    ELSIF keyed AND NOT o ? 'unique' THEN
        o := o || '{"unique": "until_done"}';
    END IF;

    -- Make ids in the order of the jobs, because they decide which one is claimed first.
    ids := ARRAY(SELECT rowlock.new_id() AS new FROM jsonb_array_elements(jobs) ORDER BY new);
    FOR i IN 1..jsonb_array_length(jobs) LOOP
        job := jobs -> (i - 1);
        rows := rows || rowlock._job_row(doing, task, job, ids[i], coalesce(keyed, FALSE), o, known.source_derived);
    END LOOP;

    IF own IS NOT NULL AND own <> 'null' THEN
        -- An attempt may make jobs only while it holds its own job. It may add them to that job's batch.
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
        o := jsonb_build_object('parent_id', own ->> 'job_id') || o;
        inside := mine IS NOT NULL AND mine = CAST(o ->> 'batch_id' AS uuid);
    END IF;

    -- Reserve the ids that the caller chose. If a job has or had one of them, no new job is made. If an id occurs twice
    -- in this call, the second is a repeat of the first.
    fresh := rows;
    chosen := ARRAY(
        SELECT r.id FROM unnest(rows) WITH ORDINALITY AS r (id, args, key, source, nth)
        WHERE coalesce(jobs -> CAST(r.nth - 1 AS integer) ->> 'job_id', '') <> '');
    IF cardinality(chosen) > 0 THEN
        twice := (
            SELECT CAST(r.id AS text) FROM unnest(rows) r GROUP BY r.id HAVING count(DISTINCT r.key) > 1
            ORDER BY r.id LIMIT 1);
        IF twice IS NOT NULL THEN
            PERFORM rowlock._refuse(
                format('%s: job_id %s is given to jobs with different keys', doing, twice),
                'Give each job an id of its own, or leave it out.');
        END IF;
        chosen := ARRAY(SELECT DISTINCT c FROM unnest(chosen) c);
        free := ARRAY(SELECT t FROM rowlock._take_ids(chosen) t);
        fresh := ARRAY(
            SELECT CAST(ROW(first.id, first.args, first.key, first.source) AS rowlock._new_row)
            FROM (SELECT DISTINCT ON (r.id) r.* FROM unnest(rows) WITH ORDINALITY AS r (id, args, key, source, nth)
                  ORDER BY r.id, r.nth) first
            LEFT JOIN unnest(chosen) c ON c = first.id LEFT JOIN unnest(free) f ON f = first.id
            WHERE c IS NULL OR f IS NOT NULL
            ORDER BY first.nth);
    END IF;
    IF keyed AND cardinality(fresh) > 0 THEN
        -- If two jobs have one key, the first gets it.
        wanted := ARRAY(
            SELECT CAST(ROW(first.id, first.args, first.key, first.source) AS rowlock._new_row)
            FROM (SELECT DISTINCT ON (f.key) f.* FROM unnest(fresh) WITH ORDINALITY AS f (id, args, key, source, nth)
                  ORDER BY f.key, f.nth) first);
        SELECT jsonb_object_agg(t.key, t.job_id) INTO holders
        FROM rowlock._take_keys(task || chr(31) || coalesce(o ->> 'owner', ''), o, wanted) t;
        lost := ARRAY(SELECT f.id FROM unnest(fresh) f WHERE CAST(holders ->> f.key AS uuid) <> f.id);
        fresh := ARRAY(SELECT f FROM unnest(fresh) f WHERE f.id <> ALL (lost));
        IF lost && chosen THEN
            PERFORM rowlock._give_ids_back(ARRAY(SELECT l FROM unnest(lost) l WHERE l = ANY (chosen)));
        END IF;
    END IF;
    IF cardinality(fresh) > 0 THEN
        IF o ? 'batch_id' THEN
            PERFORM rowlock._join_batch(doing, CAST(o ->> 'batch_id' AS uuid), cardinality(fresh), inside);
        END IF;
        PERFORM rowlock._insert(task, o, fresh);
    END IF;
    RETURN QUERY
        SELECT CASE WHEN r.id = ANY (lost) THEN CAST(holders ->> r.key AS uuid) ELSE r.id END,
               made.id IS NOT NULL AND r.nth = min(r.nth) OVER (PARTITION BY r.id)
        FROM unnest(rows) WITH ORDINALITY AS r (id, args, key, source, nth) LEFT JOIN unnest(fresh) AS made ON made.id = r.id
        ORDER BY r.nth;
END;
$$;

-- Insert the rows of new jobs that share their options, and wake a worker if one is idle: the only INSERT of a job in
-- these functions. `SET rowlock.wakeups = off` sends no NOTIFY, because PostgreSQL refuses PREPARE TRANSACTION after
-- one. store/jobs/enqueue.py: _insert.
CREATE OR REPLACE FUNCTION rowlock._insert(task text, o jsonb, rows rowlock._new_row[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at  timestamptz := rowlock._clock();
    due timestamptz := coalesce(
        CAST(o ->> 'run_after' AS timestamptz),
        at + coalesce(CAST(o ->> 'delay' AS double precision), 0) * interval '1 second');
BEGIN
    INSERT INTO rowlock.jobs_live (
        id, args, source, unique_key, task, ready, run_after, queue, priority, max_attempts, backoff, timeout_seconds,
        on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id, unique_mode, expires_at, traceparent, parent_id,
        created_at, updated_at)
    SELECT added.id, added.args, added.source, added.key, _insert.task, due <= at, due,
           coalesce(o ->> 'queue', 'default'), coalesce(CAST(o ->> 'priority' AS numeric), 0),
           coalesce(CAST(o ->> 'max_attempts' AS numeric), 5),
           -- ->> works for an object and for a string that contains an object, which is what workers register.
           CAST(o ->> 'backoff' AS json), CAST(o ->> 'timeout_seconds' AS double precision),
           CAST(o ->> 'on_success' AS json), CAST(o ->> 'on_dead' AS json), o ->> 'on_lost',
           CAST(o ->> 'keep_seconds' AS double precision), o ->> 'owner', CAST(o ->> 'tags' AS json),
           CAST(o ->> 'batch_id' AS uuid), o ->> 'unique', CAST(o ->> 'expires_at' AS timestamptz), o ->> 'traceparent',
           CAST(o ->> 'parent_id' AS uuid), at, at
    FROM unnest(rows) AS added;
    PERFORM pg_notify('rowlock', 'work')
    WHERE EXISTS (SELECT 1 FROM rowlock.workers w WHERE w.idle AND w.expires_at > at)
      AND current_setting('rowlock.wakeups', TRUE) IS DISTINCT FROM 'off';
END;
$$;

-- Count new jobs in a batch. It accepts jobs from outside until it is sealed, and from its own jobs until it ends.
-- store/batches.py: join.
CREATE OR REPLACE FUNCTION rowlock._join_batch(doing text, batch uuid, number integer, own boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    this record;
BEGIN
    PERFORM rowlock._require_read_committed(format('%s: batch_id', doing));
    -- Don't block others that add jobs, nor a claim that starts the batch: this transaction may stay open for long.
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
    -- Use separate counter rows, because settles must not wait for this transaction.
    INSERT INTO rowlock.batch_counts (batch_id, shard, total)
    VALUES (batch, 16 + floor(random() * 16), number)
    ON CONFLICT (batch_id, shard) DO UPDATE SET total = batch_counts.total + excluded.total;
END;
$$;

-- Refuse a transaction whose snapshot may be older than the locks that `what` takes. Above READ COMMITTED, every
-- statement sees the snapshot of the first one. Writes under the fence are safe even then, because PostgreSQL fails the
-- transaction (40001) if the row has changed. Counts are not safe.
CREATE OR REPLACE FUNCTION rowlock._require_read_committed(what text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        PERFORM rowlock._refuse(
            format('%s: the transaction is %s', what, current_setting('transaction_isolation')),
            'Call it at READ COMMITTED, because its counts must be younger than its locks.');
    END IF;
END;
$$;

-- --- checks

-- Refuse a name that no task can have, and the names of tasks that Rowlock enqueues itself: their handlers trust their
-- arguments. core/option_checks.py: task_name.
CREATE OR REPLACE FUNCTION rowlock._check_task(doing text, task text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT rowlock._is_name(task) THEN
        PERFORM rowlock._refuse(
            format('%s: task must have 1–200 characters without control characters, not %s', doing, rowlock._shown(task)),
            'Give the name under which a worker has registered the task.');
    ELSIF starts_with(task, 'rowlock.') THEN
        PERFORM rowlock._refuse(
            format('%s: task %s: names that begin with rowlock. are for the tasks of Rowlock itself', doing,
                   rowlock._shown(task)),
            'Give the task another name.');
    END IF;
END;
$$;

-- Check one element of `jobs` and make a row of it.
CREATE OR REPLACE FUNCTION rowlock._job_row(
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
    IF job ? 'source' AND job -> 'source' <> 'null'
       AND (jsonb_typeof(job -> 'source') <> 'string' OR NOT rowlock._is_source(source)) THEN
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

-- Check the options of a job and return them in the form in which they are stored. JSON null means "not given".
-- core/options.py: checked, core/option_checks.py.
CREATE OR REPLACE FUNCTION rowlock._options(doing text, given jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept   jsonb := '{}';
    option text;
    value  jsonb;
    kind   text;
    plain  text;
    number numeric;
    fits   boolean;
    wanted text;      -- the expected value, for the message
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
        fits := TRUE;
        CASE option
            WHEN 'queue', 'owner' THEN
                fits := rowlock._is_name(plain);
                wanted := 'a string of 1–200 characters without control characters';
            WHEN 'priority' THEN
                fits := number = trunc(number) AND number BETWEEN -100 AND 100;
                wanted := 'a whole number from -100 (first) to 100';
            WHEN 'max_attempts' THEN
                fits := number = trunc(number) AND number BETWEEN 1 AND 1000000;
                wanted := 'a whole number from 1 to 1000000';
            WHEN 'timeout_seconds', 'keep_seconds', 'delay', 'window' THEN
                fits := number BETWEEN 0 AND 3200000000;
                wanted := 'a number of seconds from 0 to 3200000000 (100 years)';
            WHEN 'backoff' THEN
                value := rowlock._backoff(value);
                fits := value IS NOT NULL;
                wanted := 'like {"kind": "fixed", "base": 60} or {"kind": "exponential", "base": 10, "cap": 86400,'
                    ' "factor": 2}, in seconds up to 100 years and with a factor from 1 to 100';
            WHEN 'source' THEN
                fits := rowlock._is_source(plain);
                wanted := 'named like api:ebay or domain:example.com';
            WHEN 'on_success', 'on_dead' THEN
                value := rowlock._follow_up(doing, option, value);
            WHEN 'on_lost' THEN
                CONTINUE WHEN plain = 'retry';  -- the default, which isn't stored
                fits := plain = 'dead';
                wanted := '"retry" or "dead"';
            WHEN 'tags' THEN
                CONTINUE WHEN value = '[]';
                fits := kind = 'array' AND NOT EXISTS (
                    SELECT 1 FROM jsonb_array_elements(CASE WHEN kind = 'array' THEN value ELSE '[]' END) one
                    WHERE jsonb_typeof(one) <> 'string' OR NOT rowlock._is_name(one #>> '{}'));
                wanted := 'a list of strings of 1–200 characters without control characters';
            WHEN 'batch_id' THEN
                fits := rowlock._uuid(plain) IS NOT NULL;
                wanted := 'the id of a batch, a UUID';
            WHEN 'parent_id' THEN
                fits := rowlock._uuid(plain) IS NOT NULL;
                wanted := 'the id of the job that makes it, a UUID';
            WHEN 'unique' THEN
                fits := plain IN ('until_done', 'while_queued', 'forever', 'window');
                wanted := '"until_done", "while_queued", "forever", or "window" together with "window": seconds';
            WHEN 'run_after', 'expires_at' THEN
                fits := rowlock._moment(plain) IS NOT NULL;
                wanted := 'a time with its zone in the years from 1970 to 2199, like "2031-05-01T12:00:00Z"';
            WHEN 'traceparent' THEN
                fits := plain ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$';
                wanted := 'a W3C traceparent, like "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"';
            ELSE
                PERFORM rowlock._refuse(
                    format('%s: no option %s', doing, quote_ident(option)),
                    'There are queue, priority, max_attempts, backoff, timeout_seconds, source, on_success, on_dead,'
                    ' on_lost, keep_seconds, owner, tags, batch_id, unique, window, delay, run_after, expires_at, traceparent, parent_id; for'
                    ' one job also key, job_id and under.', 'RL002');
        END CASE;
        IF fits IS NOT TRUE THEN
            PERFORM rowlock._refuse(
                format('%s: %s must be %s; not %s', doing, option, wanted, rowlock._shown(CAST(given -> option AS text))),
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

-- Check a follow-up (on_success, on_dead) and return it as a job stores it. If only its name is given, it gets the
-- options that its task's worker registered. core/options.py: of_follow_up.
CREATE OR REPLACE FUNCTION rowlock._follow_up(doing text, option text, value jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stored jsonb := value;
    other  text;
BEGIN
    IF jsonb_typeof(value) = 'string' THEN
        stored := jsonb_build_object('task', value)
            || coalesce((SELECT CAST(t.options AS jsonb) FROM rowlock.tasks t WHERE t.name = value #>> '{}'), '{}');
    ELSIF jsonb_typeof(value) = 'object' THEN
        SELECT min(k) INTO other FROM jsonb_object_keys(value - 'task' - 'bare') k
        WHERE k <> ALL (rowlock._follow_up_options()) AND value -> k <> 'null';
        IF other IS NOT NULL THEN
            PERFORM rowlock._refuse(
                format('%s: %s: a follow-up has no option %s', doing, option, quote_ident(other)),
                'There are ' || array_to_string(rowlock._follow_up_options(), ', ') || '.', 'RL002');
        END IF;
        stored := rowlock._options(doing, value - 'task' - 'bare')
            || jsonb_build_object('task', value -> 'task')
            || CASE WHEN value -> 'bare' = 'true' THEN jsonb '{"bare": true}' ELSE '{}' END;
    END IF;
    IF jsonb_typeof(stored -> 'task') IS DISTINCT FROM 'string' OR NOT rowlock._is_name(stored ->> 'task') THEN
        PERFORM rowlock._refuse(
            format('%s: %s must name a task, not %s', doing, option, rowlock._shown(CAST(value AS text))),
            'Give the name of a task, or {"task": "name", …} with the options of its job.');
    END IF;
    PERFORM rowlock._check_task(format('%s: %s', doing, option), stored ->> 'task');
    IF octet_length(CAST(stored AS text)) > 16384 THEN
        PERFORM rowlock._refuse(
            format('%s: %s takes %s bytes in each job, more than 16384', doing, option, octet_length(CAST(stored AS text))),
            'Give follow-ups by their names.', 'RL003');
    END IF;
    RETURN stored;
END;
$$;

-- The options that a follow-up may have: FOLLOW_UP_OPTIONS of core/options.py, which a test compares. batch_id is
-- missing because the job would be counted in a batch that it hasn't joined, unique and window because a follow-up has
-- no key, and parent_id because that's the first job.
CREATE OR REPLACE FUNCTION rowlock._follow_up_options() RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ARRAY['queue', 'priority', 'max_attempts', 'backoff', 'timeout_seconds', 'source', 'on_success', 'on_dead',
                 'on_lost', 'keep_seconds', 'owner', 'tags', 'delay', 'run_after', 'expires_at', 'traceparent']
$$;

-- Whether this is a name that can be stored and shown: a queue, task, owner or tag. core/option_checks.py: name.
CREATE OR REPLACE FUNCTION rowlock._is_name(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT coalesce(value ~ '^[^\u0001-\u001f\u007f]{1,200}$', FALSE) $$;

-- Whether this is the name of a source. core/sources/policy.py: check_name.
CREATE OR REPLACE FUNCTION rowlock._is_source(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(value ~ '^[^\s:\u0001-\u001f\u007f][^\u0001-\u001f\u007f]{0,199}$' AND value !~ ':$', FALSE)
$$;

-- The text as a UUID, or NULL if it isn't one. No SET search_path, so that it can be inlined.
CREATE OR REPLACE FUNCTION rowlock._uuid(value text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN value OPERATOR(pg_catalog.~*) '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'
                THEN CAST(value AS pg_catalog.uuid) END
$$;

-- The text as a time, or NULL if it isn't one with a time zone from 1970 to 2199. core/option_checks.py: moment.
CREATE OR REPLACE FUNCTION rowlock._moment(value text) RETURNS timestamptz
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

-- A backoff as an object, or NULL if it can't be used. Python would notice only after the first failed try, too late
-- for the caller to correct it. core/policy.py: checked_backoff.
CREATE OR REPLACE FUNCTION rowlock._backoff(value jsonb) RETURNS jsonb
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

-- Raise one of our own errors.
CREATE OR REPLACE FUNCTION rowlock._refuse(message text, hint text, code text DEFAULT 'RL001') RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = 'rowlock.' || message, HINT = hint, ERRCODE = code;
END;
$$;

-- A value as shown in an error message.
CREATE OR REPLACE FUNCTION rowlock._shown(value text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT coalesce(pg_catalog.left(value, 200), 'NULL') $$;

-- --- keys and ids
--
-- A role that may enqueue must not read or delete other programs' keys. So the functions here are SECURITY DEFINER,
-- with the rights of their owner, and each does one thing to keys that the caller must name. Python's statements call
-- them as well (store/jobs/keys.sql, store/jobs/enqueue.sql). Jobs are inserted with the caller's own rights, under its
-- row level security.

-- Take keys for new jobs. Returns the job that now holds each key: one of these jobs, or an older one.
-- store/jobs/keys.py: take_keys.
CREATE OR REPLACE FUNCTION rowlock._take_keys(scope text, o jsonb, rows rowlock._new_row[])
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
        -- In the order of the keys, so that transactions can't deadlock. An insert waits for an uncommitted one of the
        -- same key, and succeeds if that one is rolled back.
        WITH taken AS (
            SELECT t AS key FROM rowlock._hold_keys(
                scope, ARRAY(SELECT w.key FROM unnest(wanted) w ORDER BY w.key),
                ARRAY(SELECT w.id FROM unnest(wanted) w ORDER BY w.key), o ->> 'unique', ends) t)
        SELECT held || coalesce(jsonb_object_agg(w.key, w.id), '{}') INTO held
        FROM unnest(wanted) w JOIN taken ON taken.key = w.key;
        wanted := ARRAY(SELECT w FROM unnest(wanted) w WHERE NOT held ? w.key);
        EXIT WHEN cardinality(wanted) = 0;
        SELECT held || coalesce(jsonb_object_agg(k.key, k.job_id), '{}') INTO held
        FROM rowlock._key_holders(scope, ARRAY(SELECT w.key FROM unnest(wanted) w), at) k WHERE NOT k.over;
        wanted := ARRAY(SELECT w FROM unnest(wanted) w WHERE NOT held ? w.key);
        EXIT WHEN cardinality(wanted) = 0;
        -- The windows of these keys are over, or they have been released since: try to take them again.
        PERFORM rowlock._clear_keys(scope, ARRAY(SELECT w.key FROM unnest(wanted) w), at);
    END LOOP;
    IF cardinality(wanted) > 0 THEN
        PERFORM rowlock._refuse(
            format('enqueue: other transactions keep taking and releasing key %s', quote_literal(wanted[1].key)),
            'Try again.', 'RL005');
    END IF;
    RETURN QUERY SELECT h.key, CAST(h.value AS uuid) FROM jsonb_each_text(held) h;
END;
$$;

-- Take keys for jobs, in the order given. Returns the keys that were free.
CREATE OR REPLACE FUNCTION rowlock._hold_keys(scope text, keys text[], job_ids uuid[], mode text, ends timestamptz)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(scope, 'id') = 'id' OR coalesce(mode, '') NOT IN ('until_done', 'while_queued', 'forever', 'window') THEN
        PERFORM rowlock._refuse(
            format('enqueue: keys of scope %s cannot be held in mode %s', rowlock._shown(scope), rowlock._shown(mode)),
            'Call rowlock.enqueue.');
    END IF;
    RETURN QUERY
        INSERT INTO rowlock.job_keys (scope, key, job_id, mode, expires_at)
        SELECT _hold_keys.scope, u.key, u.job_id, _hold_keys.mode, ends
        FROM unnest(keys, job_ids) WITH ORDINALITY AS u (key, job_id, nth) ORDER BY u.nth
        ON CONFLICT ON CONSTRAINT job_keys_pkey DO NOTHING
        RETURNING job_keys.key;
END;
$$;

-- Return the jobs that hold these keys, and whether their window is over.
CREATE OR REPLACE FUNCTION rowlock._key_holders(scope text, keys text[], at timestamptz)
RETURNS TABLE (key text, job_id uuid, over boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT k.key, k.job_id, k.expires_at IS NOT NULL AND k.expires_at <= at FROM rowlock.job_keys k
        WHERE k.scope = _key_holders.scope AND k.key = ANY (keys);
END;
$$;

-- Delete keys whose window is over, so that they can be taken again. The real clock must agree with the caller's, which
-- could be set to any time.
CREATE OR REPLACE FUNCTION rowlock._clear_keys(scope text, keys text[], at timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM rowlock.job_keys k
    WHERE k.scope = _clear_keys.scope AND k.key = ANY (keys) AND k.expires_at <= least(at, clock_timestamp());
END;
$$;

-- Reserve ids that clients chose, in the order of the ids. Returns those that no job has or had. Waits for other
-- transactions that are reserving one of them.
CREATE OR REPLACE FUNCTION rowlock._take_ids(ids uuid[]) RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken uuid[];
BEGIN
    WITH reserved AS (
        INSERT INTO rowlock.job_keys (scope, key, job_id, mode)
        SELECT 'id', CAST(u.id AS text), u.id, 'id' FROM unnest(ids) AS u (id) ORDER BY u.id
        ON CONFLICT ON CONSTRAINT job_keys_pkey DO NOTHING
        RETURNING job_keys.job_id)
    SELECT array_agg(r.job_id) INTO taken FROM reserved r;
    RETURN QUERY
        SELECT t FROM unnest(taken) t WHERE t NOT IN (SELECT known FROM rowlock._known_ids(taken) known);
END;
$$;

-- Return those of these ids that a job has, or had and still holds a key for. Most ids were not chosen by clients, so
-- they are not in job_keys under the scope `id`.
CREATE OR REPLACE FUNCTION rowlock._known_ids(ids uuid[]) RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
        SELECT u FROM unnest(ids) u
        WHERE EXISTS (SELECT 1 FROM rowlock.jobs_live j WHERE j.id = u)
           OR EXISTS (SELECT 1 FROM rowlock.jobs_finished f WHERE f.id = u)
           OR EXISTS (SELECT 1 FROM rowlock.job_keys k WHERE k.job_id = u AND k.scope <> 'id');
END;
$$;

-- Undo _take_ids if no job was created. This works only in the transaction that took the ids, because the id of a
-- pruned job must never become free again. A visible row whose transaction is still running must be our own.
CREATE OR REPLACE FUNCTION rowlock._give_ids_back(ids uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mine CONSTANT bigint := CAST(CAST(pg_current_xact_id() AS text) AS bigint);
BEGIN
    DELETE FROM rowlock.job_keys k
    WHERE k.scope = 'id' AND k.key = ANY (CAST(ids AS text[]))
      AND k.job_id NOT IN (SELECT known FROM rowlock._known_ids(ids) known)
      AND pg_xact_status(CAST(CAST(greatest(mine - age(k.xmin), 3) AS text) AS xid8)) = 'in progress';
END;
$$;

-- A trigger for databases with row level security on jobs_live; docs/how-to/supabase.md creates it, and other databases
-- don't pay for it. A role that may enqueue can call the functions above for any key, even one that belongs to somebody
-- else. So at the end of the transaction there must be a job with that key or id, which the policies have admitted.
CREATE OR REPLACE FUNCTION rowlock.refuse_loose_key() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM rowlock.job_keys k WHERE k.scope = NEW.scope AND k.key = NEW.key AND k.job_id = NEW.job_id)
       AND NOT EXISTS (
           SELECT 1 FROM rowlock.jobs_live j
           WHERE j.id = NEW.job_id
             AND (NEW.scope = 'id' OR j.unique_key = NEW.key AND j.task || chr(31) || coalesce(j.owner, '') = NEW.scope))
       AND NOT EXISTS (
           SELECT 1 FROM rowlock.jobs_finished f
           WHERE f.id = NEW.job_id
             AND (NEW.scope = 'id' OR f.unique_key = NEW.key AND f.task || chr(31) || coalesce(f.owner, '') = NEW.scope))
    THEN
        PERFORM rowlock._refuse(
            format('enqueue: key %s is held for job %s, which does not exist or has another key', NEW.key, NEW.job_id),
            'Call rowlock.enqueue.');
    END IF;
    RETURN NULL;
END;
$$;

-- --- time and randomness, each in its own function so that tests can replace it

-- The time. This and the next two functions have no SET search_path, which would prevent inlining; names are qualified.
CREATE OR REPLACE FUNCTION rowlock._clock() RETURNS timestamptz
LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp()';

-- A random number from 0 to 1.
CREATE OR REPLACE FUNCTION rowlock._draw() RETURNS double precision
LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.random()';

-- A lease token.
CREATE OR REPLACE FUNCTION rowlock._new_token() RETURNS uuid
LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.gen_random_uuid()';

-- A UUIDv7, which grows with time: 48 bits of milliseconds, 12 bits of the fraction of a millisecond, then random bits.
-- Without the fraction, jobs of one millisecond would be claimed in any order. store/engine/ids.py.
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

-- --- checks of jobs_live

-- Refuse a row that no worker could read: an unknown state, a time that Python can't represent (or that never comes), a
-- whole number of more than 4,300 digits, which Python doesn't parse. A trigger rather than a CHECK, because a CHECK
-- runs again on each update, so that an existing bad row could not even be claimed.
CREATE OR REPLACE FUNCTION rowlock.refuse_unreadable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- This one condition passes nearly all rows. The code below finds out which part of it failed.
    IF NEW.state IN ('queued', 'running', 'retryable')
       AND least(NEW.run_after, NEW.expires_at) >= '1970-01-01Z'
       AND greatest(NEW.run_after, NEW.expires_at) < '2200-01-01Z'
       AND pg_column_size(NEW.args) <= 4300
    THEN
        RETURN NEW;
    END IF;
    -- On an update, check only changed columns, so that an existing bad row can still be released.
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
    -- Only if there are this many digits in a row, find out whether they are a number or part of a text.
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
            NULL;  -- a text with an escaped NUL, which jsonb can't hold: don't refuse it for that
        END;
    END IF;
    RETURN NEW;
END;
$$;
