-- Ending attempts and jobs: rowlock.complete, fail, release and cancel, each for one job and for many.
--
-- Everything is under the fence: a job changes only while the caller's token is still its lease. Each statement of a
-- VOLATILE function has its own snapshot under READ COMMITTED, so what is counted after a lock was taken is exact.
-- Locks are taken in the same order as in store/jobs/settle.py (first jobs by id, then batches, then sources).

-- Successes: an array of {"job_id", "token", "result", "result_uri", "result_checksum"}, of which the last three may be
-- missing. Returns for each job: applied, duplicate (it was applied before, under this token) or lost (the lease is no
-- longer held, and nothing was changed). store/jobs/settle.py: succeed.
CREATE OR REPLACE FUNCTION rowlock.complete_many(jobs jsonb) RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at     timestamptz := rowlock._clock();
    ends   rowlock._success[];
    bad    rowlock._success;
    ids    uuid[];
    keys   uuid[];
    marked rowlock._step[];     -- those that have a source, batch, key or follow-up
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
                one.job -> 'result', one.job ->> 'result_uri',
                CASE WHEN one.job ->> 'result_checksum' ~ '^[0-9a-fA-F]{64}$'
                     THEN 'sha256:' || lower(one.job ->> 'result_checksum') ELSE one.job ->> 'result_checksum' END)
                AS rowlock._success)
            FROM rowlock._elements(
                'complete', jobs, ARRAY['job_id', 'token', 'result', 'result_uri', 'result_checksum'])
                WITH ORDINALITY AS one (job, nth));
    EXCEPTION WHEN invalid_text_representation THEN
        ends := NULL;
    END;
    IF ends IS NULL OR EXISTS (SELECT 1 FROM unnest(ends) e WHERE e.job_id IS NULL OR e.token IS NULL) THEN
        -- One of them isn't a UUID: refuse it by name.
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
               h.on_success, h.on_dead, h.on_lost, h.keep_seconds, h.locked_by, h.traceparent, h.parent_id, h.created_at,
               h.started_at, at, at,
               -- Kept for 7 days, unless its task has another time; a hundred years at most.
               CAST((at + least(greatest(coalesce(h.keep_seconds, 604800), 0), 3155760000) * interval '1 second')
                    AT TIME ZONE 'UTC' AS date) + 1
        FROM held h
    )
    SELECT array_agg(h.id), array_agg(h.lease_token),
           array_agg(CAST(ROW(
               h.id, h.lease_token, 'succeeded', 'succeeded', 0, NULL, NULL, 0, 0, 0, NULL, NULL, h.attempt, h.locked_by,
               h.locked_at, h.source, coalesce(h.source_epoch, 0), h.batch_id, h.unique_mode, h.on_success)
               AS rowlock._step))
               FILTER (WHERE num_nonnulls(h.source, h.batch_id, h.unique_mode, h.on_success) > 0)
    INTO ids, keys, marked
    FROM held h;
    IF marked IS NOT NULL THEN
        PERFORM rowlock._tell_end(marked);
        PERFORM rowlock._tell_success(marked)
        WHERE EXISTS (SELECT 1 FROM unnest(marked) s WHERE s.source IS NOT NULL);
    END IF;
    RETURN QUERY
        SELECT e.job_id, CASE WHEN (e.job_id, e.token) IN (SELECT * FROM unnest(ids, keys)) THEN 'applied'
                              ELSE rowlock._why_not(e.job_id, e.token) END
        FROM unnest(ends) e
        ORDER BY e.nth;
END;
$$;

-- One success.
CREATE OR REPLACE FUNCTION rowlock.complete(
    job_id uuid, token uuid, result jsonb DEFAULT NULL, result_uri text DEFAULT NULL, result_checksum text DEFAULT NULL
) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.answer
    FROM rowlock.complete_many(jsonb_build_array(
        jsonb_build_object('job_id', job_id, 'token', token)
        || CASE WHEN result IS NULL THEN '{}' ELSE jsonb_build_object('result', result) END
        || CASE WHEN result_uri IS NULL AND result_checksum IS NULL THEN '{}'
                ELSE jsonb_build_object('result_uri', result_uri, 'result_checksum', result_checksum) END)) c
$$;

-- Failures: an array of {"job_id", "token", "error"} with options: code, permanent (no further try), after (seconds) or
-- backoff instead of the job's own, fault ("source" and "refusal" count against the job's source), retry_after (for how
-- long that source asked for no requests), outcome ("failed", "timed_out", "cancelled", or "lost" if the child process
-- died that ran this job alone). Returns what complete_many does.
CREATE OR REPLACE FUNCTION rowlock.fail_many(jobs jsonb) RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ends rowlock._ending[] := '{}';
    one  jsonb;
    e    rowlock._ending;
BEGIN
    FOR one IN
        SELECT * FROM rowlock._elements('fail', jobs, ARRAY[
            'job_id', 'token', 'error', 'code', 'permanent', 'after', 'backoff', 'fault', 'retry_after', 'outcome'])
    LOOP
        e := NULL;
        e.nth := cardinality(ends) + 1;
        e.job_id := rowlock._lease_part('fail', one, 'job_id');
        e.token := rowlock._lease_part('fail', one, 'token');
        e.outcome := coalesce(one ->> 'outcome', 'failed');
        e.error_code := rowlock._cut(
            coalesce(one ->> 'code', CASE WHEN e.outcome = 'timed_out' THEN 'TIMEOUT' ELSE 'ERROR' END), 100);
        e.error_message := rowlock._cut(one ->> 'error', 8192);
        e.permanent := coalesce(one -> 'permanent' = 'true', FALSE);
        e.after := rowlock._seconds('fail', one, 'after');
        e.retry_after := rowlock._seconds('fail', one, 'retry_after');
        -- A timeout counts against the source.
        e.fault := coalesce(one ->> 'fault', CASE WHEN e.outcome = 'timed_out' THEN 'source' END);
        e.backoff := rowlock._backoff(nullif(one -> 'backoff', 'null'));
        IF e.outcome NOT IN ('failed', 'timed_out', 'cancelled', 'lost') THEN
            PERFORM rowlock._refuse(
                format('fail: outcome must be failed, timed_out, cancelled or lost; not %s', rowlock._shown(e.outcome)),
                'A success is written by rowlock.complete, a job that is given back by rowlock.release.');
        END IF;
        IF e.fault NOT IN ('source', 'refusal') THEN
            PERFORM rowlock._refuse(
                format('fail: fault must be source or refusal; not %s', rowlock._shown(e.fault)),
                'Leave it out when the failure says nothing about the source of the job.');
        END IF;
        IF jsonb_typeof(one -> 'permanent') NOT IN ('boolean', 'null') THEN
            PERFORM rowlock._refuse(
                format('fail: permanent must be true or false; not %s', rowlock._shown(CAST(one -> 'permanent' AS text))),
                'true means: no further try.');
        END IF;
        IF e.backoff IS NULL AND one -> 'backoff' <> 'null' THEN
            PERFORM rowlock._refuse(
                format('fail: backoff must be like {"kind": "fixed", "base": 60} or {"kind": "exponential", "base": 10,'
                       ' "cap": 86400, "factor": 2}; not %s', rowlock._shown(CAST(one -> 'backoff' AS text))),
                'Leave it out to use the backoff that the job was enqueued with.');
        END IF;
        ends := ends || e;
    END LOOP;
    RETURN QUERY SELECT * FROM rowlock._settle(ends, TRUE);
END;
$$;

-- One failure.
CREATE OR REPLACE FUNCTION rowlock.fail(job_id uuid, token uuid, error text DEFAULT NULL, options jsonb DEFAULT '{}')
RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT f.answer
    FROM rowlock.fail_many(jsonb_build_array(
        jsonb_build_object('job_id', job_id, 'token', token, 'error', error) || coalesce(options, '{}'))) f
$$;

-- Give jobs back without using up a try: an array of {"job_id", "token"} with delay (seconds) and reason if you like. A
-- job that should be cancelled is cancelled instead. Returns what complete_many does.
CREATE OR REPLACE FUNCTION rowlock.release_many(jobs jsonb) RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM rowlock._settle(ARRAY(
        SELECT CAST(ROW(
            one.nth, rowlock._lease_part('release', one.job, 'job_id'), rowlock._lease_part('release', one.job, 'token'),
            'released', NULL, rowlock._cut(coalesce(one.job ->> 'reason', 'released'), 8192),
            coalesce(rowlock._seconds('release', one.job, 'delay'), 0), NULL, NULL, NULL, NULL) AS rowlock._ending)
        FROM rowlock._elements('release', jobs, ARRAY['job_id', 'token', 'delay', 'reason'])
            WITH ORDINALITY AS one (job, nth)), TRUE);
END;
$$;

-- Give one job back.
CREATE OR REPLACE FUNCTION rowlock.release(
    job_id uuid, token uuid, delay double precision DEFAULT 0, reason text DEFAULT NULL
) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.answer
    FROM rowlock.release_many(jsonb_build_array(
        jsonb_build_object('job_id', job_id, 'token', token, 'delay', delay, 'reason', reason))) r
$$;

-- Cancel waiting jobs at once and ask the workers of running ones to stop. Returns for each: cancelled, cancelling (its
-- worker was asked), final (too late) or missing. store/jobs/cancel.py: cancel.
CREATE OR REPLACE FUNCTION rowlock.cancel_many(job_ids uuid[]) RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at      timestamptz := rowlock._clock();
    ids     uuid[] := ARRAY(SELECT DISTINCT u FROM unnest(job_ids) u WHERE u IS NOT NULL ORDER BY u);
    ended   rowlock._step[] := '{}';
    running uuid[] := '{}';
    remote  uuid[] := '{}';
    workers text[] := '{}';
    j       rowlock.jobs_live;
BEGIN
    FOR j IN
        SELECT l.* FROM rowlock.jobs_live l WHERE l.id = ANY (ids) ORDER BY l.id FOR UPDATE
    LOOP
        IF j.state = 'running' AND j.published IS NULL THEN
            running := running || j.id;
            workers := workers || j.locked_by;
            CONTINUE;
        END IF;
        ended := ended || rowlock._cancelled(j, 'CANCELLED', NULL);
        IF j.state = 'running' THEN
            -- A worker behind Redis cannot be made to stop: its job ends here and now (core/redis_request.py).
            remote := remote || j.id;
        END IF;
    END LOOP;
    IF cardinality(remote) > 0 THEN
        INSERT INTO rowlock.attempts (job_id, attempt, outcome, worker, started_at, finished_at, error_code)
        SELECT l.id, l.attempt, 'cancelled', l.locked_by, l.locked_at, at, 'CANCELLED' FROM rowlock.jobs_live l
        WHERE l.id = ANY (remote) AND l.attempt > 0
        ON CONFLICT (job_id, attempt) DO NOTHING;
        DELETE FROM rowlock.outbox o WHERE o.kind = 'request' AND o.job_id = ANY (remote);
        INSERT INTO rowlock.outbox (kind, job_id, take_at) SELECT 'cancel', u, at FROM unnest(remote) u;
    END IF;
    PERFORM rowlock._finish(ended, FALSE);
    IF cardinality(running) > 0 THEN
        UPDATE rowlock.jobs_live l SET cancel_requested_at = coalesce(l.cancel_requested_at, at), updated_at = at
        WHERE l.id = ANY (running);
        PERFORM pg_notify('rowlock', 'cancel:' || w) FROM (SELECT DISTINCT u AS w FROM unnest(workers) u) asked;
    END IF;
    RETURN QUERY
        SELECT asked.id,
               CASE WHEN asked.id = ANY (running) THEN 'cancelling'
                    WHEN f.state = 'cancelled' THEN 'cancelled'
                    WHEN f.state IS NOT NULL THEN 'final'
                    ELSE 'missing' END
        FROM unnest(ids) AS asked (id)
        LEFT JOIN LATERAL (SELECT x.state FROM rowlock.jobs_finished x WHERE x.id = asked.id LIMIT 1) f ON TRUE
        ORDER BY asked.id;
END;
$$;

-- Cancel one job.
CREATE OR REPLACE FUNCTION rowlock.cancel(job_id uuid) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT c.answer FROM rowlock.cancel_many(ARRAY[job_id]) c), 'missing')
$$;

-- --- what follows from the end of an attempt

-- End attempts that did not succeed, under the fence. Returns for each: applied, duplicate (this very token has settled it already) or lost.
-- store/jobs/settle.py: settle_under_fence.
CREATE OR REPLACE FUNCTION rowlock._settle(ends rowlock._ending[], by_holder boolean)
RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at    timestamptz := rowlock._clock();
    steps rowlock._step[];
    back  rowlock._step[];      -- those of jobs that wait for another attempt
BEGIN
    -- The fence, in the order of ids. LATERAL with LIMIT, because a plain join may be planned, while the table is empty,
    -- as a product of both sides, and then cached.
    steps := ARRAY(
        SELECT rowlock._decide(held.j, e.e, by_holder)
        FROM (SELECT DISTINCT ON (u.job_id, u.token) CAST(u AS rowlock._ending) AS e FROM unnest(ends) u
              ORDER BY u.job_id, u.token, u.nth) e
        CROSS JOIN LATERAL (
            SELECT j FROM rowlock.jobs_live j
            WHERE j.id = (e.e).job_id AND j.lease_token = (e.e).token AND j.state = 'running'
            LIMIT 1
            FOR UPDATE
        ) held);
    IF cardinality(steps) > 0 THEN
        INSERT INTO rowlock.attempts (job_id, attempt, outcome, worker, started_at, finished_at, error_code, error_message)
        SELECT s.id, s.attempt, s.outcome, s.worker, s.locked_at, at, s.error_code, s.error_message
        FROM unnest(steps) s
        WHERE s.attempt > 0
        ON CONFLICT (job_id, attempt) DO NOTHING;

        back := ARRAY(SELECT s FROM unnest(steps) s WHERE s.state IN ('queued', 'retryable'));
        IF cardinality(back) > 0 THEN
            -- Only the holder's own token is kept: a zombie whose lease was taken away must get the answer `lost`.
            UPDATE rowlock.jobs_live j
            SET state = s.state, ready = s.delay <= 0, run_after = at + s.delay * interval '1 second',
                releases = j.releases + s.released, losses = j.losses + s.lost, convictions = j.convictions + s.convicted,
                -- core/policy.py: Streaks. What fails or releases a job here holds it: its attempt came back. A hundred
                -- attempts that come back end a probation.
                losses_in_row = CASE WHEN s.lost > 0 THEN j.losses_in_row + 1 ELSE 0 END,
                probation = CASE WHEN s.lost = 0 THEN greatest(j.probation - 1, 0)
                                 WHEN j.losses_in_row > 0 THEN j.probation
                                 WHEN j.probation > 0 THEN 200
                                 ELSE 100 END,
                sigterms_in_row = CASE WHEN s.lost > 0 THEN j.sigterms_in_row ELSE 0 END,
                disconnects_in_row = CASE WHEN s.lost > 0 THEN j.disconnects_in_row ELSE 0 END,
                error_code = s.error_code, error_message = s.error_message,
                settled_token = CASE WHEN by_holder THEN j.lease_token ELSE j.settled_token END,
                lease_token = NULL, locked_by = NULL, locked_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL,
                published = NULL, progress = NULL, phase = NULL, message = NULL, result_uri = NULL, result_checksum = NULL, updated_at = at
            FROM unnest(back) s
            WHERE j.id = s.id AND j.id = ANY (ARRAY(SELECT b.id FROM unnest(back) b));
        END IF;
        PERFORM rowlock._finish(
            ARRAY(SELECT s FROM unnest(steps) s WHERE s.state NOT IN ('queued', 'retryable')), by_holder);
        PERFORM rowlock._tell_failures(steps);
    END IF;
    RETURN QUERY
        SELECT e.job_id, CASE WHEN s.id IS NOT NULL THEN 'applied' ELSE rowlock._why_not(e.job_id, e.token) END
        FROM unnest(ends) e LEFT JOIN unnest(steps) s ON s.id = e.job_id AND s.token = e.token;
END;
$$;

-- Why an outcome wasn't applied: `duplicate` if this token has settled the job before, else `lost`.
CREATE OR REPLACE FUNCTION rowlock._why_not(job uuid, token uuid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN EXISTS (SELECT 1 FROM rowlock.jobs_live j WHERE j.id = job AND j.settled_token = token)
                  OR EXISTS (SELECT 1 FROM rowlock.jobs_finished f WHERE f.id = job AND f.settled_token = token)
                THEN 'duplicate' ELSE 'lost' END
$$;

-- What becomes of a job (core/policy.py: decide). What the holder reports is weighed as if nobody had asked for a
-- cancel, of which it may not have heard; then a job that should be cancelled does not go back to waiting.
CREATE OR REPLACE FUNCTION rowlock._decide(j rowlock.jobs_live, e rowlock._ending, by_holder boolean)
RETURNS rowlock._step
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s      rowlock._step := rowlock._cancelled(j, e.error_code, e.error_message);
    draw   double precision := rowlock._draw();
    used   integer := j.attempt - j.releases - j.losses;
    cancel boolean := j.cancel_requested_at IS NOT NULL;
BEGIN
    s.outcome := e.outcome;
    CASE e.outcome
        WHEN 'failed', 'timed_out' THEN
            s.fault := e.fault;
            s.retry_after := e.retry_after;
            IF e.permanent OR used >= j.max_attempts THEN
                s.state := 'dead';
            ELSE
                s.state := 'retryable';
                s.delay := coalesce(
                    e.after * (1 + 0.2 * draw),
                    rowlock._delay(coalesce(e.backoff, rowlock._readable(j.backoff)), used, draw));
                s.delay := greatest(s.delay, e.retry_after * (1 + 0.2 * draw));
            END IF;
        WHEN 'released' THEN
            s.state := 'queued';
            s.delay := e.after;
            s.released := 1;
        WHEN 'cancelled' THEN
            s := rowlock._cancelled(j, 'CANCELLED', NULL);
        WHEN 'lost' THEN
            -- The holder reports a job whose own child process died, which convicts the job; the sweep reports a job whose
            -- worker sends no more heartbeats.
            s.lost := 1;
            s.convicted := CAST(by_holder AS integer);
            s.error_code := CASE WHEN by_holder THEN 'CHILD_DIED' ELSE 'WORKER_LOST' END;
            s.error_message := coalesce(
                e.error_message,
                CASE WHEN by_holder
                     THEN format('attempt %s ended with the death of its quarantine process', j.attempt)
                     ELSE format('%s stopped sending heartbeats during attempt %s', j.locked_by, j.attempt) END);
            IF cancel AND NOT by_holder THEN
                s.state := 'cancelled';
                s.error_code := 'CANCELLED';
            ELSIF by_holder AND j.convictions + 1 >= 2 THEN
                s.state := 'dead';
                s.error_code := 'POISON';
            ELSIF coalesce(j.on_lost, '') = 'dead' OR j.losses_in_row + 1 >= 10 THEN
                s.state := 'dead';
            ELSE
                s.state := 'retryable';
                -- Jitter: the jobs of one dead worker must not all start again at the same moment.
                s.delay := draw * power(2, least(j.losses_in_row, 6));
            END IF;
    END CASE;
    IF cancel AND s.state IN ('queued', 'retryable') THEN
        s := rowlock._cancelled(j, 'CANCELLED', NULL);
    END IF;
    s.follow_up := CASE WHEN s.state = 'dead' THEN j.on_dead END;
    RETURN s;
END;
$$;

-- Seconds before the next try after `tries` tries. A backoff that can't be used counts as the default. core/policy.py:
-- Backoff.
CREATE OR REPLACE FUNCTION rowlock._delay(backoff jsonb, tries integer, draw double precision)
RETURNS double precision
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    usable jsonb := coalesce(
        CASE WHEN jsonb_typeof(backoff) = 'object' THEN rowlock._backoff(backoff) END,
        '{"kind": "exponential", "base": 10}');
    base   double precision := CAST(usable ->> 'base' AS double precision);
BEGIN
    IF usable ->> 'kind' = 'fixed' THEN
        RETURN base * (1 + 0.2 * draw);
    END IF;
    RETURN least(
        coalesce(CAST(usable ->> 'cap' AS double precision), 86400),
        -- The exponent is capped, so that attempt 60 does not overflow.
        base * power(coalesce(CAST(usable ->> 'factor' AS double precision), 2), least(greatest(tries, 1) - 1, 20))
    ) * (0.5 + 0.5 * draw);
END;
$$;

-- The step of a job that ends as cancelled.
CREATE OR REPLACE FUNCTION rowlock._cancelled(j rowlock.jobs_live, code text, message text) RETURNS rowlock._step
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CAST(ROW(
        j.id, j.lease_token, 'cancelled', 'cancelled', 0, code, message, 0, 0, 0, NULL, NULL, j.attempt, j.locked_by,
        j.locked_at, j.source, coalesce(j.source_epoch, 0), j.batch_id, j.unique_mode, NULL) AS rowlock._step);
END;
$$;

-- Move jobs that did not succeed, and that the caller has locked, to jobs_finished, then update their keys and batches.
-- store/jobs/settle.py: finish.
CREATE OR REPLACE FUNCTION rowlock._finish(steps rowlock._step[], by_holder boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at   timestamptz := rowlock._clock();
    ids  uuid[] := ARRAY(SELECT s.id FROM unnest(steps) s);
BEGIN
    IF cardinality(ids) = 0 THEN
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM rowlock.jobs_live j WHERE j.id = ANY (ids) RETURNING j.*
    )
    INSERT INTO rowlock.jobs_finished (
        id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick,
        unique_key, unique_mode, attempt, max_attempts, releases, losses, convictions, backoff, timeout_seconds,
        run_after, expires_at, settled_token, cancel_requested_at, progress, phase, message,
        result_uri, result_checksum, error_code, error_message, on_success, on_dead, on_lost, keep_seconds,
        last_worker, traceparent, parent_id, created_at, started_at, finished_at, updated_at, drop_on)
    SELECT g.id, g.task, g.queue, s.state, g.priority, g.args, g.owner, g.source, g.tags, g.batch_id, g.schedule_id,
           g.tick, g.unique_key, g.unique_mode, g.attempt, g.max_attempts, g.releases + s.released,
           g.losses + s.lost, g.convictions + s.convicted, g.backoff, g.timeout_seconds, g.run_after, g.expires_at,
           CASE WHEN by_holder THEN g.lease_token ELSE g.settled_token END, g.cancel_requested_at,
           g.progress, g.phase, g.message, g.result_uri, g.result_checksum, s.error_code, s.error_message,
           g.on_success, g.on_dead, g.on_lost, g.keep_seconds, g.locked_by, g.traceparent, g.parent_id,
           g.created_at, g.started_at, at, at,
           -- Kept for 30 days, unless its task has another time; a hundred years at most.
           CAST((at + least(greatest(coalesce(g.keep_seconds, 2592000), 0), 3155760000) * interval '1 second')
                AT TIME ZONE 'UTC' AS date) + 1
    FROM gone g JOIN unnest(steps) s ON s.id = g.id;
    PERFORM rowlock._tell_end(steps);
END;
$$;

-- Release the keys of jobs that have ended (all of them as successes, or none), count them in their batches, and enqueue
-- their follow-ups. store/jobs/keys.py: release, store/batches.py: count, store/jobs/follow_ups.py: follow_ups.
CREATE OR REPLACE FUNCTION rowlock._tell_end(steps rowlock._step[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at      timestamptz := rowlock._clock();
    ids     uuid[] := ARRAY(SELECT s.id FROM unnest(steps) s WHERE s.unique_mode IS NOT NULL);
    batches uuid[] := ARRAY(SELECT DISTINCT s.batch_id FROM unnest(steps) s WHERE s.batch_id IS NOT NULL);
    one     rowlock._step;
    job     rowlock.jobs_finished;
BEGIN
    -- Keys that end with their job. `forever` holds on after a success, a window always.
    IF cardinality(ids) > 0 THEN
        DELETE FROM rowlock.job_keys k
        WHERE k.job_id = ANY (ids)
          AND (k.mode IN ('until_done', 'while_queued') OR k.mode = 'forever' AND steps[1].state <> 'succeeded');
    END IF;

    -- Counters of batches, in this connection's own row of each, in the order of ids.
    IF cardinality(batches) > 0 THEN
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
        SELECT f.* INTO job FROM rowlock.jobs_finished f WHERE f.id = one.id;
        PERFORM rowlock._add_follow_up(
            one.follow_up, jsonb_build_object('owner', job.owner, 'traceparent', job.traceparent, 'parent_id', job.id),
            -- As json and not jsonb: the arguments are passed on as they were stored, even a text with NUL.
            json_build_object('finished', json_build_object(
                'job_id', job.id, 'task', job.task, 'owner', job.owner, 'state', job.state, 'attempt', job.attempt,
                'args', job.args, 'result', job.result,
                'error_code', job.error_code, 'error_message', job.error_message)),
            format('job %s', job.id));
    END LOOP;
    IF cardinality(batches) > 0 THEN
        PERFORM rowlock._end_batches(batches);
    END IF;
END;
$$;

-- End those of these batches that are sealed and whose jobs are all final; returns how many. A batch that somebody has
-- locked is left to the next sweep, because a transaction that adds jobs to it may stay open for long. So are all of
-- them in a transaction above READ COMMITTED. store/batches.py: end.
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
        -- Counted once more behind the lock: a job may have been retried or added in between. The state is the worst that
        -- applies.
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

-- --- follow-ups

-- Enqueue the follow-up of a finished job or batch; returns its id, or NULL if what is stored can't be understood.
-- `inherited` are options that it takes over from what has ended. If the insert fails, the whole call fails and can be
-- repeated: a dropped follow-up would be lost work. store/jobs/follow_ups.py: on_end, _follow_up.
CREATE OR REPLACE FUNCTION rowlock._add_follow_up(stored json, inherited jsonb, args json, ended text) RETURNS uuid
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

-- A stored follow-up with the options of its job, checked; NULL, with a warning, if it can't be understood: another
-- program wrote it, and the job must end all the same. A follow-up without options gets those that its task's worker
-- registered. Only what is wrong with the stored text is caught (nesting that is too deep is, a missing right or lock
-- is not). store/jobs/follow_ups.py: _with_task_options; core/options.py: of_follow_up.
CREATE OR REPLACE FUNCTION rowlock._read_follow_up(stored json, args json, ended text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o jsonb;
BEGIN
    o := CAST(stored AS jsonb);
    IF jsonb_typeof(o) <> 'object' OR jsonb_typeof(o -> 'task') IS DISTINCT FROM 'string' THEN
        PERFORM rowlock._refuse('enqueue: it names no task', 'Store {"task": "name"}.');
    ELSIF jsonb_strip_nulls(o) ?| ARRAY['batch_id', 'unique', 'window', 'parent_id'] THEN
        PERFORM rowlock._refuse('enqueue: it has an option that no follow-up has', 'Leave that option out.');
    ELSIF jsonb_path_exists(o, '$.**.on_success ? (@.type() == "string")')
        OR jsonb_path_exists(o, '$.**.on_dead ? (@.type() == "string")')
    THEN
        PERFORM rowlock._refuse('enqueue: a follow-up of its own is stored as text', 'Store {"task": "name"}.');
    ELSIF rowlock._has_long_number(args) THEN
        PERFORM rowlock._refuse('enqueue: it would be given a number of more than 4300 digits', 'Give it as text.');
    END IF;
    PERFORM rowlock._check_task('enqueue', o ->> 'task');
    IF o - 'task' - 'bare' = '{}' THEN
        o := coalesce((SELECT CAST(t.options AS jsonb) FROM rowlock.tasks t WHERE t.name = o ->> 'task'), '{}') || o;
    END IF;
    RETURN rowlock._options('enqueue', o - 'task' - 'bare')
        || jsonb_build_object('task', o -> 'task', 'bare', coalesce(o -> 'bare' = 'true', FALSE));
EXCEPTION WHEN data_exception OR program_limit_exceeded OR statement_too_complex
            OR SQLSTATE 'RL001' OR SQLSTATE 'RL002' OR SQLSTATE 'RL003' THEN
    RAISE WARNING 'rowlock: % has a follow-up that cannot be understood, and gets none: %', ended, SQLERRM;
    RETURN NULL;
END;
$$;

-- --- sources

-- Make rows for sources and classes that have none yet.
CREATE OR REPLACE FUNCTION rowlock._make_sources(names text[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO rowlock.sources (name, created_at)
    SELECT wanted.name, rowlock._clock()
    FROM (SELECT n AS name FROM unnest(names) n UNION SELECT split_part(n, ':', 1) FROM unnest(names) n) wanted
    WHERE NOT EXISTS (SELECT 1 FROM rowlock.sources s WHERE s.name = wanted.name)
    ORDER BY wanted.name
    ON CONFLICT (name) DO NOTHING;
$$;

-- Apply failures to their sources: streaks, the breaker, pauses, blocks. store/sources/outcomes.py: tell,
-- core/sources/breaker.py: after.
CREATE OR REPLACE FUNCTION rowlock._tell_failures(steps rowlock._step[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at    timestamptz := rowlock._clock();
    names text[] := ARRAY(
        SELECT DISTINCT t.source FROM unnest(steps) t
        WHERE t.source IS NOT NULL AND (t.fault IS NOT NULL OR t.retry_after IS NOT NULL) ORDER BY 1);
    this  text;
    s     rowlock._step;
    h     rowlock.sources;
    c     rowlock.sources;      -- the class
BEGIN
    IF cardinality(names) = 0 THEN
        RETURN;
    END IF;
    PERFORM rowlock._make_sources(names);
    PERFORM 1 FROM rowlock.sources x WHERE x.name = ANY (names) ORDER BY x.name FOR UPDATE;
    FOREACH this IN ARRAY names LOOP
        SELECT x.* INTO h FROM rowlock.sources x WHERE x.name = this;
        SELECT x.* INTO c FROM rowlock.sources x WHERE x.name = split_part(this, ':', 1);
        FOREACH s IN ARRAY steps LOOP
            CONTINUE WHEN s.source IS DISTINCT FROM this;
            IF s.retry_after > 0 THEN
                h.paused_until := greatest(h.paused_until, at + s.retry_after * interval '1 second');
            END IF;
            IF s.fault = 'source' THEN
                h.last_failure_at := at;
                h.last_error := coalesce(nullif(concat_ws(': ', s.error_code, s.error_message), ''), h.last_error);
            ELSIF s.fault = 'refusal' THEN
                h.refused_at := at;
                h.refusal_code := coalesce(s.error_code, h.refusal_code);
            END IF;
            -- An attempt that was claimed before the breaker last opened or closed no longer counts.
            CONTINUE WHEN s.source_epoch <> h.epoch;
            IF s.fault = 'source' THEN
                h.failure_streak := h.failure_streak + 1;
                IF h.opened_at IS NOT NULL
                    OR h.failure_streak >= coalesce(h.failure_threshold, c.failure_threshold, 5)
                THEN
                    h.paused_until := greatest(
                        at + interval '1 second' * least(
                            coalesce(h.cooldown_seconds, c.cooldown_seconds, 300)
                            * power(coalesce(h.cooldown_factor, c.cooldown_factor, 1), least(h.opens, 50)), 86400),
                        h.paused_until);
                    h.opened_at := coalesce(h.opened_at, at);
                    h.opens := h.opens + 1;
                    h.epoch := h.epoch + 1;
                END IF;
            ELSIF s.fault = 'refusal' THEN
                h.refusals := h.refusals + 1;
                h.enabled := h.enabled AND NOT coalesce(h.refusals >= coalesce(h.block_after, c.block_after), FALSE);
            END IF;
        END LOOP;
        UPDATE rowlock.sources x
        SET failure_streak = h.failure_streak, opens = h.opens, refusals = h.refusals, enabled = h.enabled,
            opened_at = h.opened_at, epoch = h.epoch, last_failure_at = h.last_failure_at, last_error = h.last_error,
            refused_at = h.refused_at, refusal_code = h.refusal_code, paused_until = h.paused_until,
            -- A breaker that changed forgets its probe; a pause that did not change keeps its moment.
            probe_job = CASE WHEN x.epoch = h.epoch THEN x.probe_job END,
            probe_token = CASE WHEN x.epoch = h.epoch THEN x.probe_token END,
            paused_at = CASE WHEN x.paused_until IS DISTINCT FROM h.paused_until THEN at ELSE x.paused_at END
        WHERE x.name = this;
    END LOOP;
END;
$$;

-- Apply successes to their sources: they end a streak and close a half-open breaker. A success is written at most once
-- a second. store/sources/outcomes.py: tell, core/sources/breaker.py: after.
CREATE OR REPLACE FUNCTION rowlock._tell_success(steps rowlock._step[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at    timestamptz := rowlock._clock();
    names text[] := ARRAY(
        SELECT x.name FROM rowlock.sources x
        WHERE x.name = ANY (ARRAY(SELECT t.source FROM unnest(steps) t WHERE t.source IS NOT NULL))
          AND (x.failure_streak > 0 OR x.refusals > 0 OR x.opened_at IS NOT NULL
               OR x.last_success_at IS NULL OR x.last_success_at <= at - interval '1 second')
        ORDER BY x.name
        FOR UPDATE);
BEGIN
    IF cardinality(names) = 0 THEN
        RETURN;
    END IF;
    UPDATE rowlock.sources x
    SET failure_streak = 0, refusals = 0, last_success_at = at,
        epoch = x.epoch + CASE WHEN x.opened_at IS NULL THEN 0 ELSE 1 END,
        -- A pause that isn't over was made meanwhile, by an operator or the source, and stays.
        paused_until = CASE WHEN x.opened_at IS NULL OR x.paused_until > at THEN x.paused_until END,
        opened_at = NULL, opens = 0, probe_job = NULL, probe_token = NULL
    WHERE x.name = ANY (names)
      AND EXISTS (SELECT 1 FROM unnest(steps) t WHERE t.source = x.name AND t.source_epoch = x.epoch);
END;
$$;

-- --- reading arguments

-- The elements of the array that one of the functions for many jobs was given.
CREATE OR REPLACE FUNCTION rowlock._elements(doing text, jobs jsonb, known text[]) RETURNS SETOF jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    other text;
BEGIN
    IF coalesce(jsonb_typeof(jobs), 'null') <> 'array' THEN
        PERFORM rowlock._refuse(
            format('%s: a JSON array is needed, not %s', doing, rowlock._shown(CAST(jobs AS text))),
            'Write it like [{"job_id": "…", "token": "…"}].');
    END IF;
    IF jsonb_array_length(jobs) > 1000 THEN
        PERFORM rowlock._refuse(
            format('%s: %s jobs are too many for one call', doing, jsonb_array_length(jobs)),
            'Give at most 1000; a hundred at a time is enough.', 'RL003');
    END IF;
    SELECT min(k) INTO other
    FROM jsonb_array_elements(jobs) one
    CROSS JOIN LATERAL jsonb_object_keys(CASE WHEN jsonb_typeof(one) = 'object' THEN one ELSE '{}' END) k
    WHERE k <> ALL (known);
    IF other IS NOT NULL THEN
        PERFORM rowlock._refuse(
            format('%s: no option %s', doing, quote_ident(other)),
            'There are ' || array_to_string(known, ', ') || '.', 'RL002');
    END IF;
    RETURN QUERY SELECT * FROM jsonb_array_elements(jobs);
END;
$$;

-- One part of a lease ({"job_id", "token"}) from JSON; both must be there.
CREATE OR REPLACE FUNCTION rowlock._lease_part(doing text, given jsonb, part text) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found uuid := rowlock._uuid(given ->> part);
BEGIN
    IF found IS NULL THEN
        PERFORM rowlock._refuse(
            format('%s: each element needs %s, a UUID; not %s', doing, part, rowlock._shown(CAST(given AS text))),
            'Write it like {"job_id": "…", "token": "…"}, as rowlock.claim answered them.');
    END IF;
    RETURN found;
END;
$$;

-- A number of seconds among the options, or NULL if it isn't given.
CREATE OR REPLACE FUNCTION rowlock._seconds(doing text, given jsonb, option text) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    value jsonb := given -> option;
BEGIN
    IF value IS NULL OR value = 'null' THEN
        RETURN NULL;
    END IF;
    IF jsonb_typeof(value) <> 'number' OR CAST(value #>> '{}' AS numeric) NOT BETWEEN 0 AND 3200000000 THEN
        PERFORM rowlock._refuse(
            format('%s: %s must be a number of seconds from 0 to 3200000000 (100 years); not %s', doing, option,
                   rowlock._shown(CAST(value AS text))),
            'Give seconds as a JSON number.');
    END IF;
    RETURN CAST(value #>> '{}' AS double precision);
END;
$$;

-- Text of at most so many bytes. core/error_text.py: clean.
CREATE OR REPLACE FUNCTION rowlock._cut(value text, most integer) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN octet_length(value) <= most THEN value
                -- A character has up to four bytes. Exact where all are ASCII, shorter else: no character is cut in two.
                ELSE left(value, CASE WHEN octet_length(left(value, most - 20)) <= most - 20 THEN most - 20
                                      ELSE (most - 20) / 4 END) || ' …(cut)' END
$$;

-- JSON of a row that any program may have written, or NULL if it can't be read.
CREATE OR REPLACE FUNCTION rowlock._readable(value json) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CAST(value AS jsonb);
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END;
$$;

-- Whether JSON contains a whole number of more digits than Python parses: the rule of rowlock.refuse_unreadable.
CREATE OR REPLACE FUNCTION rowlock._has_long_number(value json) RETURNS boolean
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
    RETURN FALSE;  -- a text with an escaped NUL, which jsonb can't hold: don't refuse it for that
END;
$$;

-- --- triggers of jobs_finished and attempts

-- Write an event when a job with an owner ends.
CREATE OR REPLACE FUNCTION rowlock.tell_end() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO rowlock.events (job_id, owner, type, task, state, attempt, progress, phase, message, result_uri,
                                result_checksum, error_code, error_message, at)
    VALUES (NEW.id, NEW.owner,
            CASE NEW.state WHEN 'succeeded' THEN 'job.completed' WHEN 'dead' THEN 'job.failed' ELSE 'job.cancelled' END,
            NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message, NEW.result_uri,
            NEW.result_checksum, NEW.error_code, NEW.error_message, NEW.finished_at);
    IF EXISTS (SELECT 1 FROM rowlock.event_listeners WHERE expires_at > statement_timestamp()) THEN
        PERFORM pg_notify('rowlock', 'events');
    END IF;
    RETURN NULL;
END
$$;

-- Enqueue the delivery of a job's webhook, in the transaction that writes the final state, whoever writes it: a worker
-- of any version, the sweeper, an operator's cancel, somebody's SQL. The delivery has no owner, so it makes no events
-- and counts against no limit. Its content is fixed now: when it is delivered, the job may have been retried or
-- deleted.
CREATE OR REPLACE FUNCTION rowlock.tell_webhook() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    hook     rowlock.webhooks;
    delivery uuid;
BEGIN
    UPDATE rowlock.webhooks SET drop_on = NEW.drop_on WHERE job_id = NEW.id RETURNING * INTO hook;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    delivery := rowlock.new_id();
    INSERT INTO rowlock.webhook_deliveries (job_id, delivery_id) VALUES (NEW.id, delivery);
    INSERT INTO rowlock.jobs_live (id, task, queue, ready, args, source, max_attempts, backoff, timeout_seconds,
                                   run_after, created_at, updated_at)
    VALUES (delivery, 'rowlock.webhook', hook.queue, TRUE,
            json_build_object(
                'url', hook.url,
                'owner', hook.owner,
                'event', json_build_object(
                    'job_id', NEW.id, 'task', NEW.task, 'state', NEW.state, 'attempt', NEW.attempt,
                    'progress', NEW.progress, 'phase', NEW.phase, 'message', NEW.message,
                    'result_uri', NEW.result_uri, 'result_checksum', NEW.result_checksum,
                    'error_code', NEW.error_code, 'error_message', NEW.error_message,
                    'at', extract(epoch FROM NEW.finished_at))),
            hook.source, hook.max_attempts, hook.backoff, hook.timeout_seconds,
            NEW.finished_at, NEW.finished_at, NEW.finished_at);
    IF EXISTS (SELECT 1 FROM rowlock.workers WHERE idle AND expires_at > NEW.finished_at) THEN
        PERFORM pg_notify('rowlock', 'work');
    END IF;
    RETURN NULL;
END
$$;

-- Count jobs that have ended, by minute, queue, task, state, run time and wait time. The bounds of the buckets are
-- those of store/read/counters.py: BOUNDS.
CREATE OR REPLACE FUNCTION rowlock.tell_tallies() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO rowlock.tallies
    SELECT date_bin('1 minute', e.finished_at, '2000-01-01Z'), e.queue, e.task, e.state,
           coalesce(width_bucket(e.ran, '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,900,3600}'), -1),
           coalesce(width_bucket(e.waited, '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,900,3600}'), -1),
           count(*), coalesce(sum(greatest(e.ran, 0)), 0), coalesce(sum(greatest(e.waited, 0)), 0)
    FROM (
        -- Only of successes: the run time of an attempt that did not succeed is counted with the attempt.
        SELECT n.finished_at, n.queue, n.task, n.state,
               CASE WHEN n.state = 'succeeded' THEN
                   date_part('epoch', n.finished_at) - date_part('epoch', n.started_at) END AS ran,
               CASE WHEN n.state = 'succeeded' THEN
                   date_part('epoch', n.started_at) - date_part('epoch', n.run_after) END AS waited
        FROM ended n) e
    GROUP BY 1, 2, 3, 4, 5, 6;
    RETURN NULL;
END
$$;

-- Fill in task, queue and source of an attempt, for readers that group failures: the job's row may be in any partition.
CREATE OR REPLACE FUNCTION rowlock.tell_attempt_task() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.task IS NULL THEN
        SELECT j.task, j.queue, j.source INTO NEW.task, NEW.queue, NEW.source
        FROM rowlock.jobs_live j WHERE j.id = NEW.job_id;
    END IF;
    RETURN NEW;
END
$$;

-- Count attempts that did not succeed.
CREATE OR REPLACE FUNCTION rowlock.tell_attempts() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO rowlock.tallies
    SELECT date_bin('1 minute', e.finished_at, '2000-01-01Z'), coalesce(e.queue, ''), coalesce(e.task, ''),
           'attempt.' || e.outcome,
           coalesce(width_bucket(e.ran, '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,900,3600}'), -1), -1,
           count(*), coalesce(sum(greatest(e.ran, 0)), 0), 0
    FROM (
        SELECT n.finished_at, n.queue, n.task, n.outcome,
               date_part('epoch', n.finished_at) - date_part('epoch', n.started_at) AS ran
        FROM ended n) e
    GROUP BY 1, 2, 3, 4, 5;
    RETURN NULL;
END
$$;
