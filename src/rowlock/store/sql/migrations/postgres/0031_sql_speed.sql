-- SQL functions: what a claim and a completion of a hundred jobs spent beside their two statements.
--
-- A claim planned its main statement anew in every call, and the search for sources, a function in the language sql, too:
-- a third of its time. Plans that are made once must also fit a table that was empty then, so the ways that would read
-- all of it are switched off, as on the connections of a Python worker (engines/postgres.py, HOT).
ALTER FUNCTION rowlock.claim(text, text[], integer, jsonb) SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION rowlock.claim(text, text[], integer, jsonb) SET enable_seqscan = off;
ALTER FUNCTION rowlock.claim(text, text[], integer, jsonb) SET enable_bitmapscan = off;

-- Up to `most` sources of each lane behind a priority and source, by priority and name: a loose scan of the turns index,
-- one probe for each source, whatever the number of its jobs. In plpgsql, which keeps the plan.
CREATE OR REPLACE FUNCTION rowlock._heads(
    queues text[], tasks text[], after_priority integer, after_source text, most integer
) RETURNS SETOF rowlock._head
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE head (queue, task, nth, priority, source) AS (
        SELECT lane.queue, lane.task, 0, after_priority, after_source
        FROM unnest(_heads.queues, _heads.tasks) AS lane (queue, task)
        UNION ALL
        SELECT head.queue, head.task, head.nth + 1, CAST(following.priority AS integer), following.source
        FROM head CROSS JOIN LATERAL (
            SELECT f.priority, f.source FROM rowlock.jobs_live f
            WHERE f.id = coalesce(
                -- The next source of this priority.
                (SELECT j.id FROM rowlock.jobs_live j
                 WHERE j.ready AND j.source IS NOT NULL AND j.queue = head.queue AND j.task = head.task
                   AND j.priority = head.priority AND j.source > head.source
                 ORDER BY j.priority, j.source, j.id LIMIT 1),
                -- None: the first source of the next priority.
                (SELECT j.id FROM rowlock.jobs_live j
                 WHERE j.ready AND j.source IS NOT NULL AND j.queue = head.queue AND j.task = head.task
                   AND j.priority > head.priority
                 ORDER BY j.priority, j.source, j.id LIMIT 1))
            LIMIT 1
        ) following
        WHERE head.nth < most
    )
    SELECT head.queue, head.task, head.priority, head.source, head.nth = most FROM head WHERE head.nth > 0;
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
    WHERE octet_length(CAST(e.result AS text)) > 65536 OR (e.result_uri IS NULL) <> (e.result_checksum IS NULL)
       OR octet_length(e.result_uri) > 4096 OR e.result_checksum !~ '^sha256:[0-9a-fA-F]{64}$'
    LIMIT 1;
    IF octet_length(CAST(bad.result AS text)) > 65536 THEN
        PERFORM rowlock._refuse(
            format('complete: the result of job %s has %s bytes, more than 65536', bad.job_id,
                   octet_length(CAST(bad.result AS text))),
            'Store it elsewhere and give its address as result_uri.', 'RL003');
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
            last_worker, created_at, started_at, finished_at, updated_at, drop_on)
        SELECT h.id, h.task, h.queue, 'succeeded', h.priority, h.args, h.owner, h.source, h.tags, h.batch_id, h.schedule_id,
               h.tick, h.unique_key, h.unique_mode, h.attempt, h.max_attempts, h.releases, h.losses, h.convictions,
               h.backoff, h.timeout_seconds, h.run_after, h.expires_at, h.lease_token, h.cancel_requested_at, 100, h.phase,
               h.message, h.new_result, coalesce(h.new_uri, h.result_uri),
               CASE WHEN h.new_uri IS NULL THEN h.result_checksum ELSE h.new_checksum END,
               h.on_success, h.on_dead, h.on_lost, h.keep_seconds, h.locked_by, h.created_at, h.started_at, at, at,
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

