-- SQL functions make a follow-up or fail; and jobs that are enqueued together keep the order in which they were given.

-- --- follow-ups

-- Whether JSON holds a whole number of more digits than Python parses, as rowlock.refuse_unreadable has it.
CREATE FUNCTION rowlock._has_long_number(value json) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF octet_length(CAST(value AS text)) <= 4300
       OR strpos(translate(CAST(value AS text), '123456789', '000000000'), repeat('0', 4301)) = 0
    THEN
        RETURN FALSE;
    END IF;
    RETURN EXISTS (
        SELECT 1 FROM jsonb_path_query(CAST(value AS jsonb), 'strict $.** ? (@.type() == "number")') AS found (number)
        WHERE length(split_part(CAST(number AS text), '.', 1)) > 4300);
EXCEPTION WHEN untranslatable_character THEN
    RETURN FALSE;  -- a text with an escaped NUL: it cannot be looked into, and is no reason to refuse
END;
$$;

-- The options that a follow-up may have: FOLLOW_UP_OPTIONS of core/options.py, which a test compares. Not batch_id (its
-- job would be counted in the batch without having joined it), nor unique and window (a follow-up has no key), nor
-- parent_id (that is the job before it).
CREATE FUNCTION rowlock._follow_up_options() RETURNS text[] LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ARRAY['queue', 'priority', 'max_attempts', 'backoff', 'timeout_seconds', 'source', 'on_success', 'on_dead',
                 'on_lost', 'keep_seconds', 'owner', 'tags', 'delay', 'run_after', 'expires_at', 'traceparent']
$$;

-- Refuse a name that no task can have, and names of tasks that Rowlock itself enqueues: their handlers trust their
-- arguments.
CREATE FUNCTION rowlock._check_task(doing text, task text) RETURNS void
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

-- A follow-up as a job carries it. Given by its name alone, it has the options that its worker registered.
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

-- A stored follow-up without options that it cannot have, also where it names further ones: older versions of
-- rowlock.enqueue took them.
CREATE FUNCTION rowlock._without_foreign(stored jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept jsonb := stored - ARRAY['batch_id', 'unique', 'window', 'parent_id'];
    way  text;
BEGIN
    FOREACH way IN ARRAY ARRAY['on_success', 'on_dead'] LOOP
        IF jsonb_typeof(kept -> way) = 'object' THEN
            kept := kept || jsonb_build_object(way, rowlock._without_foreign(kept -> way));
        END IF;
    END LOOP;
    RETURN kept;
END;
$$;

-- A stored follow-up with the options of its job, checked; NULL, with a warning, where it cannot be understood: another
-- program wrote it, and the job must end nevertheless. A follow-up without options has those that its task's worker
-- registered. Only what is wrong with the stored text is caught (also that it is nested too deeply), not a right that is
-- missing or a lock that is not had.
CREATE FUNCTION rowlock._read_follow_up(stored json, args json, ended text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o jsonb;
BEGIN
    o := CAST(stored AS jsonb);
    IF jsonb_typeof(o) <> 'object' OR jsonb_typeof(o -> 'task') IS DISTINCT FROM 'string' THEN
        PERFORM rowlock._refuse('enqueue: it names no task', 'Store {"task": "name"}.');
    ELSIF rowlock._has_long_number(args) THEN
        PERFORM rowlock._refuse('enqueue: it would be given a number of more than 4300 digits', 'Give it as text.');
    END IF;
    PERFORM rowlock._check_task('enqueue', o ->> 'task');
    IF o - 'task' - 'bare' = '{}' THEN
        o := coalesce((SELECT CAST(t.options AS jsonb) FROM rowlock.tasks t WHERE t.name = o ->> 'task'), '{}') || o;
    END IF;
    o := rowlock._without_foreign(o);
    RETURN rowlock._options('enqueue', o - 'task' - 'bare')
        || jsonb_build_object('task', o -> 'task', 'bare', coalesce(o -> 'bare' = 'true', FALSE));
EXCEPTION WHEN data_exception OR program_limit_exceeded OR statement_too_complex
            OR SQLSTATE 'RL001' OR SQLSTATE 'RL002' OR SQLSTATE 'RL003' THEN
    RAISE WARNING 'rowlock: % has a follow-up that cannot be understood, and gets none: %', ended, SQLERRM;
    RETURN NULL;
END;
$$;

-- Enqueue the follow-up of a finished job or a batch; answers its id, or NULL if what is stored cannot be understood.
-- `inherited` are options that it has from what has ended. If the insert fails, the whole call fails and can be repeated:
-- a follow-up that is dropped would be lost work.
DROP FUNCTION rowlock._add_follow_up(json, text, jsonb, text);
CREATE FUNCTION rowlock._add_follow_up(stored json, inherited jsonb, args json, ended text) RETURNS uuid
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o    jsonb := rowlock._read_follow_up(stored, args, ended);
    made uuid;
BEGIN
    IF o IS NULL THEN
        RETURN NULL;
    END IF;
    made := rowlock.new_id();
    PERFORM rowlock._insert(
        o ->> 'task', inherited || o,
        ARRAY[CAST(ROW(made, CASE WHEN o -> 'bare' = 'true' THEN json '{}' ELSE args END, NULL, o ->> 'source')
              AS rowlock._new_row)]);
    RETURN made;
END;
$$;

-- Tell the keys and batches of jobs that have ended, and enqueue their follow-ups.
CREATE OR REPLACE FUNCTION rowlock._tell_end(steps rowlock._step[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at   timestamptz := rowlock._clock();
    ids  uuid[];
    one  rowlock._step;
    told record;
BEGIN
    -- Keys that end with their job. `forever` holds on after a success, a window always.
    ids := ARRAY(SELECT s.id FROM unnest(steps) s WHERE s.unique_mode IS NOT NULL AND s.state = 'succeeded');
    IF cardinality(ids) > 0 THEN
        DELETE FROM rowlock.job_keys k WHERE k.job_id = ANY (ids) AND k.mode IN ('until_done', 'while_queued');
    END IF;
    ids := ARRAY(SELECT s.id FROM unnest(steps) s WHERE s.unique_mode IS NOT NULL AND s.state <> 'succeeded');
    IF cardinality(ids) > 0 THEN
        DELETE FROM rowlock.job_keys k
        WHERE k.job_id = ANY (ids) AND k.mode IN ('until_done', 'while_queued', 'forever');
    END IF;

    -- Counters of batches, in this connection's own row of each, in the order of ids.
    IF EXISTS (SELECT 1 FROM unnest(steps) s WHERE s.batch_id IS NOT NULL) THEN
        INSERT INTO rowlock.batch_counts (
            batch_id, shard, processed, failed, cancelled, expired, last_error, last_error_at)
        SELECT c.batch_id, pg_backend_pid() % 16, count(*), count(*) FILTER (WHERE c.failed),
               count(*) FILTER (WHERE c.state = 'cancelled' AND NOT c.expired), count(*) FILTER (WHERE c.expired),
               (array_agg(c.error ORDER BY c.nth DESC) FILTER (WHERE c.failed AND c.error IS NOT NULL))[1],
               CASE WHEN bool_or(c.failed AND c.error IS NOT NULL) THEN at END
        FROM (
            SELECT s.batch_id, s.state, row_number() OVER () AS nth,
                   s.state = 'cancelled' AND coalesce(s.error_code = 'EXPIRED', FALSE) AS expired,
                   s.state = 'dead' OR s.state = 'cancelled' AND coalesce(s.error_code = 'EXPIRED', FALSE) AS failed,
                   nullif(concat_ws(': ', s.error_code, s.error_message), '') AS error
            FROM unnest(steps) s WHERE s.batch_id IS NOT NULL
        ) c
        GROUP BY c.batch_id
        ORDER BY c.batch_id
        ON CONFLICT (batch_id, shard) DO UPDATE
        SET processed = batch_counts.processed + excluded.processed, failed = batch_counts.failed + excluded.failed,
            cancelled = batch_counts.cancelled + excluded.cancelled, expired = batch_counts.expired + excluded.expired,
            last_error = coalesce(excluded.last_error, batch_counts.last_error),
            last_error_at = coalesce(excluded.last_error_at, batch_counts.last_error_at);
    END IF;

    FOREACH one IN ARRAY steps LOOP
        CONTINUE WHEN one.follow_up IS NULL;
        SELECT f.task, f.owner, f.args, f.traceparent INTO told FROM rowlock.jobs_finished f WHERE f.id = one.id;
        PERFORM rowlock._add_follow_up(
            one.follow_up, jsonb_build_object('owner', told.owner, 'traceparent', told.traceparent, 'parent_id', one.id),
            -- As JSON and not as jsonb: the arguments are told as they were stored, also a text with NUL.
            json_build_object('finished', json_build_object(
                'job_id', one.id, 'task', told.task, 'owner', told.owner, 'state', one.state, 'attempt', one.attempt,
                'args', told.args, 'result', one.result,
                'error_code', one.error_code, 'error_message', one.error_message)),
            format('job %s', one.id));
    END LOOP;
    IF EXISTS (SELECT 1 FROM unnest(steps) s WHERE s.batch_id IS NOT NULL) THEN
        PERFORM rowlock._end_batches(ARRAY(SELECT DISTINCT s.batch_id FROM unnest(steps) s WHERE s.batch_id IS NOT NULL));
    END IF;
END;
$$;

-- End batches of these that are sealed and whose jobs are all final. One that somebody holds is left to the next sweep:
-- a transaction that adds jobs to it may stay open for long. So are all of them in a transaction above READ COMMITTED.
CREATE OR REPLACE FUNCTION rowlock._end_batches(ids uuid[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at    timestamptz := rowlock._clock();
    held  uuid[];
    ended integer := 0;
    batch record;
    made  uuid;
BEGIN
    -- Above READ COMMITTED the snapshot may be older than the lock: a job that was added since would not be counted.
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RETURN 0;
    END IF;
    held := ARRAY(
        SELECT b.id FROM rowlock.batches b
        WHERE b.id = ANY (ids) AND b.finished_at IS NULL AND b.sealed_at IS NOT NULL
          AND (SELECT coalesce(sum(c.total - c.processed), 0) FROM rowlock.batch_counts c WHERE c.batch_id = b.id) <= 0
        ORDER BY b.id
        FOR UPDATE SKIP LOCKED);
    IF cardinality(held) = 0 THEN
        RETURN 0;
    END IF;
    FOR batch IN
        -- Counted once more behind the lock: a retry, or a job that was added, may have come in between. The state says
        -- the worst that holds.
        WITH counts AS (
            SELECT c.batch_id, sum(c.total) AS total, sum(c.processed) AS processed, sum(c.failed) AS failed,
                   sum(c.cancelled) AS cancelled, sum(c.expired) AS expired
            FROM rowlock.batch_counts c WHERE c.batch_id = ANY (held) GROUP BY c.batch_id
        ), ending AS (
            SELECT b.id, b.ended_once, coalesce(c.total, 0) AS total, coalesce(c.processed, 0) AS processed,
                   coalesce(c.failed, 0) AS failed, coalesce(c.cancelled, 0) AS cancelled, coalesce(c.expired, 0) AS expired,
                   CASE WHEN b.cancelled_at IS NOT NULL THEN 'cancelled' WHEN c.failed > 0 THEN 'failed'
                        WHEN c.cancelled > 0 THEN 'cancelled' ELSE 'succeeded' END AS state
            FROM rowlock.batches b LEFT JOIN counts c ON c.batch_id = b.id
            WHERE b.id = ANY (held) AND coalesce(c.total, 0) <= coalesce(c.processed, 0)
        )
        UPDATE rowlock.batches b
        SET state = e.state, started_at = coalesce(b.started_at, at), finished_at = at, reopened_at = NULL,
            ended_once = TRUE
        FROM ending e
        WHERE b.id = e.id
        RETURNING b.id, b.name, b.owner, b.on_end, b.parent_id, e.ended_once AS again, e.state, e.total, e.processed, e.failed,
                  e.cancelled, e.expired
    LOOP
        ended := ended + 1;
        CONTINUE WHEN batch.on_end IS NULL OR batch.again;
        made := rowlock._add_follow_up(
            batch.on_end, jsonb_build_object('owner', batch.owner, 'parent_id', batch.parent_id),
            json_build_object('batch', json_build_object(
                'batch_id', batch.id, 'name', batch.name, 'owner', batch.owner, 'state', batch.state,
                'total', batch.total, 'processed', batch.processed, 'failed', batch.failed,
                'succeeded', batch.processed - batch.failed - batch.cancelled, 'dead', batch.failed - batch.expired,
                'cancelled', batch.cancelled, 'expired', batch.expired,
                'last_error', (
                    SELECT c.last_error FROM rowlock.batch_counts c
                    WHERE c.batch_id = batch.id AND c.last_error IS NOT NULL
                    ORDER BY c.last_error_at DESC LIMIT 1))),
            format('batch %s', batch.id));
        UPDATE rowlock.batches b SET end_job = made WHERE b.id = batch.id AND made IS NOT NULL;
    END LOOP;
    RETURN ended;
END;
$$;

-- Successes: an array of {"job_id", "token", "result", "result_uri", "result_checksum"}, of which the last three may be
-- missing. Answers for each job: applied, duplicate (it was applied before, under this token) or lost (the lease is not
-- held any more, and nothing was changed).
CREATE OR REPLACE FUNCTION rowlock.complete_many(jobs jsonb) RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at     timestamptz := rowlock._clock();
    ends   rowlock._ending[];
    bad    rowlock._ending;
    ids    uuid[];
    keys   uuid[];
    marked rowlock._step[];     -- those of which others must be told
    usual  CONSTANT text := '________-____-____-____-____________';
BEGIN
    -- All UUIDs are converted at once. A check by a regular expression for each of them, as rowlock._uuid does it, took a
    -- tenth of the time of the whole call.
    BEGIN
        ends := ARRAY(
            SELECT CAST(ROW(
                one.nth,
                CASE WHEN one.job ->> 'job_id' LIKE usual THEN CAST(one.job ->> 'job_id' AS uuid) END,
                CASE WHEN one.job ->> 'token' LIKE usual THEN CAST(one.job ->> 'token' AS uuid) END,
                'succeeded', one.job -> 'result', one.job ->> 'result_uri',
                CASE WHEN one.job ->> 'result_checksum' ~ '^[0-9a-fA-F]{64}$'
                     THEN 'sha256:' || lower(one.job ->> 'result_checksum') ELSE one.job ->> 'result_checksum' END,
                NULL, NULL, NULL, NULL, NULL, NULL, NULL) AS rowlock._ending)
            FROM rowlock._elements(
                'complete', jobs, ARRAY['job_id', 'token', 'result', 'result_uri', 'result_checksum'])
                WITH ORDINALITY AS one (job, nth));
    EXCEPTION WHEN invalid_text_representation THEN
        ends := NULL;
    END;
    IF ends IS NULL OR EXISTS (SELECT 1 FROM unnest(ends) e WHERE e.job_id IS NULL OR e.token IS NULL) THEN
        -- One of them is none: refuse it by name.
        PERFORM rowlock._lease_part('complete', one, 'job_id'), rowlock._lease_part('complete', one, 'token')
        FROM jsonb_array_elements(jobs) one;
    END IF;
    SELECT e.* INTO bad FROM unnest(ends) e
    WHERE octet_length(CAST(e.result AS text)) > 65536 OR rowlock._has_long_number(e.result)
       OR (e.result_uri IS NULL) <> (e.result_checksum IS NULL) OR octet_length(e.result_uri) > 4096
       OR e.result_checksum !~ '^sha256:[0-9a-fA-F]{64}$'
    LIMIT 1;
    IF octet_length(CAST(bad.result AS text)) > 65536 THEN
        PERFORM rowlock._refuse(
            format('complete: the result of job %s has %s bytes, more than 65536', bad.job_id,
                   octet_length(CAST(bad.result AS text))),
            'Store it elsewhere and give its address as result_uri.', 'RL003');
    ELSIF rowlock._has_long_number(bad.result) THEN
        PERFORM rowlock._refuse(
            format('complete: the result of job %s holds a number of more than 4300 digits, which Python does not parse',
                   bad.job_id), 'Give it as text.');
    ELSIF bad.job_id IS NOT NULL THEN
        PERFORM rowlock._refuse(
            format('complete: the result address of job %s needs an address and a checksum, not %s and %s', bad.job_id,
                   rowlock._shown(bad.result_uri), rowlock._shown(bad.result_checksum)),
            'Give result_uri (up to 4096 bytes) and result_checksum (sha256: and 64 hex digits), or neither.');
    END IF;

    -- The fence in the order of ids, the move and the outcome in one statement, as the worker's hot path does it: through
    -- _settle it took half as long again.
    WITH held AS MATERIALIZED (
        SELECT found.*, e.result AS new_result, e.result_uri AS new_uri, e.result_checksum AS new_checksum
        FROM (SELECT DISTINCT ON (u.job_id, u.token) u.* FROM unnest(ends) u ORDER BY u.job_id, u.token, u.nth) e
        CROSS JOIN LATERAL (
            SELECT j.* FROM rowlock.jobs_live j
            WHERE j.id = e.job_id AND j.lease_token = e.token AND j.state = 'running'
            LIMIT 1
            FOR UPDATE
        ) found
    ), gone AS (
        DELETE FROM rowlock.jobs_live j WHERE j.id = ANY (ARRAY(SELECT h.id FROM held h))
    ), kept AS (
        INSERT INTO rowlock.jobs_finished (
            id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick,
            unique_key, unique_mode, attempt, max_attempts, releases, losses, convictions, backoff, timeout_seconds,
            run_after, expires_at, settled_token, cancel_requested_at, progress, phase, message,
            result, result_uri, result_checksum, on_success, on_dead, on_lost, keep_seconds,
            last_worker, traceparent, parent_id, created_at, started_at, finished_at, updated_at, drop_on)
        SELECT h.id, h.task, h.queue, 'succeeded', h.priority, h.args, h.owner, h.source, h.tags, h.batch_id, h.schedule_id,
               h.tick, h.unique_key, h.unique_mode, h.attempt, h.max_attempts, h.releases, h.losses, h.convictions,
               h.backoff, h.timeout_seconds, h.run_after, h.expires_at, h.lease_token, h.cancel_requested_at, 100, h.phase,
               h.message, h.new_result, coalesce(h.new_uri, h.result_uri),
               CASE WHEN h.new_uri IS NULL THEN h.result_checksum ELSE h.new_checksum END,
               h.on_success, h.on_dead, h.on_lost, h.keep_seconds, h.locked_by, h.traceparent, h.parent_id, h.created_at, h.started_at, at, at,
               -- Kept for 7 days, unless its task says otherwise; a hundred years at most.
               CAST((at + least(greatest(coalesce(h.keep_seconds, 604800), 0), 3155760000) * interval '1 second')
                    AT TIME ZONE 'UTC' AS date) + 1
        FROM held h
    )
    SELECT array_agg(h.id), array_agg(h.lease_token),
           array_agg(CAST(ROW(
               h.id, h.lease_token, 'succeeded', 'succeeded', 0, h.new_result, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL,
               h.attempt, h.locked_by, h.locked_at, h.source, coalesce(h.source_epoch, 0), h.batch_id, h.unique_mode,
               h.on_success) AS rowlock._step))
               FILTER (WHERE num_nonnulls(h.source, h.batch_id, h.unique_mode, h.on_success) > 0)
    INTO ids, keys, marked
    FROM held h;
    IF marked IS NOT NULL THEN
        PERFORM rowlock._tell_end(marked);
        PERFORM rowlock._tell_sources(marked)
        WHERE EXISTS (SELECT 1 FROM unnest(marked) s WHERE s.source IS NOT NULL);
    END IF;
    -- Whether others are duplicates is looked up only if there are any: it touches each partition.
    IF coalesce(cardinality(ids), 0) = cardinality(ends) THEN
        RETURN QUERY SELECT e.job_id, 'applied' FROM unnest(ends) e ORDER BY e.nth;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT e.job_id,
               CASE WHEN done.id IS NOT NULL THEN 'applied'
                    WHEN EXISTS (SELECT 1 FROM rowlock.jobs_live j WHERE j.id = e.job_id AND j.settled_token = e.token)
                      OR EXISTS (SELECT 1 FROM rowlock.jobs_finished f
                                 WHERE f.id = e.job_id AND f.settled_token = e.token) THEN 'duplicate'
                    ELSE 'lost' END
        FROM unnest(ends) e LEFT JOIN unnest(ids, keys) AS done (id, token) ON done.id = e.job_id AND done.token = e.token
        ORDER BY e.nth;
END;
$$;

-- --- the sweep
--
-- One row whose end cannot be written (its follow-up cannot be inserted, for one) stays as it is, with a warning that names
-- it, and holds up neither the others nor the claim that sweeps. Python's sweep sets such a row aside. What is not about a
-- row fails the whole call: a full disk, a deadlock, a right that is missing.

-- End leases that ran out, each by itself; answers how many.
CREATE FUNCTION rowlock._reclaim_each(ends rowlock._ending[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one  rowlock._ending;
    done integer := 0;
BEGIN
    FOREACH one IN ARRAY ends LOOP
        BEGIN
            done := done + (SELECT count(*) FROM rowlock._settle(ARRAY[one], FALSE) s WHERE s.answer = 'applied');
        EXCEPTION
            WHEN insufficient_resources OR transaction_rollback OR insufficient_privilege THEN
                RAISE;
            WHEN OTHERS THEN
                RAISE WARNING 'rowlock: the lease of job % ran out and cannot be ended: %', one.job_id, SQLERRM;
        END;
    END LOOP;
    RETURN done;
END;
$$;

-- End jobs that have not started in time, each by itself; answers how many.
CREATE FUNCTION rowlock._expire_each(overdue rowlock._step[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one  rowlock._step;
    done integer := 0;
BEGIN
    FOREACH one IN ARRAY overdue LOOP
        BEGIN
            PERFORM rowlock._finish(ARRAY[one], FALSE);
            done := done + 1;
        EXCEPTION
            WHEN insufficient_resources OR transaction_rollback OR insufficient_privilege THEN
                RAISE;
            WHEN OTHERS THEN
                RAISE WARNING 'rowlock: job % has not started in time and cannot be cancelled: %', one.id, SQLERRM;
        END;
    END LOOP;
    RETURN done;
END;
$$;

-- End batches that are complete, each by itself; answers how many.
CREATE FUNCTION rowlock._end_each(ids uuid[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one  uuid;
    done integer := 0;
BEGIN
    FOREACH one IN ARRAY ids LOOP
        BEGIN
            done := done + rowlock._end_batches(ARRAY[one]);
        EXCEPTION
            WHEN insufficient_resources OR transaction_rollback OR insufficient_privilege THEN
                RAISE;
            WHEN OTHERS THEN
                RAISE WARNING 'rowlock: batch % is complete and cannot be ended: %', one, SQLERRM;
        END;
    END LOOP;
    RETURN done;
END;
$$;

CREATE OR REPLACE FUNCTION rowlock.sweep(n integer DEFAULT 100, guard_seconds double precision DEFAULT 60)
RETURNS TABLE (reclaimed integer, expired integer, promoted integer, ended integer)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at       timestamptz := rowlock._clock();
    ends     rowlock._ending[];
    overdue  rowlock._step[];
    complete uuid[];
BEGIN
    IF n IS NULL OR n NOT BETWEEN 1 AND 10000 OR guard_seconds IS NULL OR guard_seconds NOT BETWEEN 0 AND 1e9 THEN
        PERFORM rowlock._refuse(
            format('sweep: n must be from 1 to 10000 and guard_seconds from 0 to 1e9, not %s and %s',
                   rowlock._shown(CAST(n AS text)), rowlock._shown(CAST(guard_seconds AS text))),
            'Call rowlock.sweep() without arguments.');
    END IF;
    reclaimed := 0;
    expired := 0;
    ended := 0;
    -- By the lease's own end and the database's clock only, whatever the task, and past every limit.
    ends := ARRAY(
        SELECT CAST(ROW(1, x.id, x.token, 'lost', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) AS rowlock._ending)
        FROM (
            SELECT j.id, j.lease_token AS token FROM rowlock.jobs_live j
            WHERE j.state = 'running' AND j.lease_expires_at < at
              AND (guard_seconds <= 0 OR at > pg_postmaster_start_time() + guard_seconds * interval '1 second')
              AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL
            ORDER BY j.id
            LIMIT n
            FOR UPDATE SKIP LOCKED) x);
    IF cardinality(ends) > 0 THEN
        BEGIN
            SELECT count(*) INTO reclaimed FROM rowlock._settle(ends, FALSE) s WHERE s.answer = 'applied';
        EXCEPTION WHEN OTHERS THEN
            reclaimed := rowlock._reclaim_each(ends);
        END;
    END IF;
    overdue := ARRAY(
        SELECT rowlock._plain_end(x.j, 'EXPIRED', 'not started before expires_at')
        FROM (
            SELECT j FROM rowlock.jobs_live j
            WHERE j.expires_at IS NOT NULL AND j.state <> 'running' AND j.expires_at <= at
              AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL
            ORDER BY j.expires_at
            LIMIT n
            FOR UPDATE SKIP LOCKED) x);
    IF cardinality(overdue) > 0 THEN
        BEGIN
            PERFORM rowlock._finish(overdue, FALSE);
            expired := cardinality(overdue);
        EXCEPTION WHEN OTHERS THEN
            expired := rowlock._expire_each(overdue);
        END;
    END IF;
    promoted := rowlock._promote(n);
    IF EXISTS (SELECT 1 FROM rowlock.batches b WHERE b.finished_at IS NULL) THEN
        complete := ARRAY(
            SELECT b.id FROM rowlock.batches b
            WHERE b.finished_at IS NULL AND b.sealed_at IS NOT NULL
              AND (SELECT coalesce(sum(c.total - c.processed), 0) FROM rowlock.batch_counts c WHERE c.batch_id = b.id) <= 0
              AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = b.id AND coalesce(a.again_at > at, TRUE)) IS NULL
            ORDER BY b.id
            LIMIT n);
        IF cardinality(complete) > 0 THEN
            BEGIN
                ended := rowlock._end_batches(complete);
            EXCEPTION WHEN OTHERS THEN
                ended := rowlock._end_each(complete);
            END;
        END IF;
    END IF;
    RETURN NEXT;
END;
$$;

-- --- keys and ids
--
-- Who may enqueue must not read or delete the keys of others, so these functions have the rights of their owner and do
-- one thing each, to keys that the caller can name. The jobs themselves are inserted with the caller's own rights, under
-- its row level security. Python's statements on PostgreSQL call them as well (store/jobs/keys.sql, jobs.sql).

-- Take keys for jobs, in the order given; answers those that were free.
CREATE FUNCTION rowlock._hold_keys(scope text, keys text[], job_ids uuid[], mode text, ends timestamptz)
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

-- The jobs that hold these keys, and whether their window is over.
CREATE FUNCTION rowlock._key_holders(scope text, keys text[], at timestamptz)
RETURNS TABLE (key text, job_id uuid, over boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT k.key, k.job_id, k.expires_at IS NOT NULL AND k.expires_at <= at FROM rowlock.job_keys k
        WHERE k.scope = _key_holders.scope AND k.key = ANY (keys);
END;
$$;

-- Delete keys whose window is over, so that they can be taken again. Not by the caller's clock alone: that could be set
-- to any time.
CREATE FUNCTION rowlock._clear_keys(scope text, keys text[], at timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM rowlock.job_keys k
    WHERE k.scope = _clear_keys.scope AND k.key = ANY (keys) AND k.expires_at <= least(at, clock_timestamp());
END;
$$;

-- Whether there are jobs with these ids, or were and still hold a key: most ids were not chosen by clients, and are not
-- in job_keys under the scope `id`.
CREATE FUNCTION rowlock._known_ids(ids uuid[]) RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
        SELECT u FROM unnest(ids) u
        WHERE EXISTS (SELECT 1 FROM rowlock.jobs_live j WHERE j.id = u)
           OR EXISTS (SELECT 1 FROM rowlock.jobs_finished f WHERE f.id = u)
           OR EXISTS (SELECT 1 FROM rowlock.job_keys k WHERE k.job_id = u AND k.scope <> 'id');
END;
$$;

-- Reserve ids that clients chose; answers those that no job has or had. In the order of the ids, and waiting for another
-- transaction that reserves one of them.
CREATE FUNCTION rowlock._take_ids(ids uuid[]) RETURNS SETOF uuid
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

-- Undo _take_ids: no job was created under them. Only in the transaction that took them: the id of a job that was pruned
-- is never free again, whoever asks. A row that is seen although the transaction that wrote it still runs is one's own.
CREATE FUNCTION rowlock._give_ids_back(ids uuid[]) RETURNS void
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

-- Take keys for new jobs, as store/jobs/keys.py does: answers who holds each of them now, these jobs or older ones.
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
        -- In the order of the keys, so that two transactions cannot wait for each other in a circle. An insert waits for
        -- a twin that is not yet committed, and goes through if that one is rolled back.
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
        -- Their time is over, or they were let go meanwhile: take them anew.
        PERFORM rowlock._clear_keys(scope, ARRAY(SELECT w.key FROM unnest(wanted) w), at);
    END LOOP;
    IF cardinality(wanted) > 0 THEN
        PERFORM rowlock._refuse(
            format('enqueue: key %s is taken and let go all the time', quote_literal(wanted[1].key)), 'Try again.', 'RL005');
    END IF;
    RETURN QUERY SELECT h.key, CAST(h.value AS uuid) FROM jsonb_each_text(held) h;
END;
$$;

-- Jobs of one task: each element of `jobs` has args and may have key, source and job_id of its own.
CREATE OR REPLACE FUNCTION rowlock._enqueue(doing text, task text, jobs jsonb, options jsonb) RETURNS TABLE (job_id uuid, created boolean)
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
    free    uuid[] := '{}';     -- those of them that no job has or had
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
        PERFORM rowlock._refuse(format('%s: unique says how a key holds, and there is no key', doing), 'Give key as well.');
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
        o := jsonb_build_object('parent_id', own ->> 'job_id') || o;
        inside := mine IS NOT NULL AND mine = CAST(o ->> 'batch_id' AS uuid);
    END IF;

    -- Ids that the caller chose are reserved; one that any job has or had is not made again. The same id once more in this
    -- call is a repeat of that job.
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
        -- Of two jobs with one key the first is it.
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

-- One element of `jobs`, checked.
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

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA rowlock FROM PUBLIC;
-- A role that got its rights before needs those on the new functions.
DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT r.rolname FROM pg_roles r WHERE r.rolname IN ('rowlock_enqueue', 'rowlock_worker', 'rowlock_admin')
    LOOP
        EXECUTE format(
            'GRANT EXECUTE ON FUNCTION rowlock._follow_up_options, rowlock._check_task, rowlock._hold_keys,'
            ' rowlock._key_holders, rowlock._clear_keys, rowlock._known_ids, rowlock._take_ids, rowlock._give_ids_back TO %I',
            role);
        IF role <> 'rowlock_enqueue' THEN
            EXECUTE format(
                'GRANT EXECUTE ON FUNCTION rowlock._has_long_number, rowlock._without_foreign, rowlock._read_follow_up,'
                ' rowlock._add_follow_up, rowlock._reclaim_each, rowlock._expire_each, rowlock._end_each TO %I', role);
        END IF;
    END LOOP;
END $$;
