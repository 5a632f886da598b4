-- Claim jobs and hold their leases: rowlock.claim, rowlock.claim_next_pending_job, rowlock.heartbeat, rowlock.progress.
--
-- A claim never exceeds the limits of a source, because it first locks the source's row and then counts the running
-- jobs in a separate statement: at READ COMMITTED each statement of a VOLATILE function has its own, younger snapshot.

-- Claim up to `n` ready jobs of these tasks (NULL: of any task) for a worker, under one fresh token: best priority
-- first, then one job of each source in turn, then the oldest. Options: queues (["default"]), lease_seconds (60), sweep
-- (true: first end expired leases and make due jobs claimable). store/jobs/claim.py: claim, store/sources/claim.py:
-- claim_sourced, core/claiming/plan.py.
--
-- Each connection plans its statements only once, perhaps while the table is empty. So sequential scans are switched
-- off, as on the connections of a Python worker (store/engine/postgres/store.py: HOT).
CREATE OR REPLACE FUNCTION rowlock.claim(
    worker text, tasks text[] DEFAULT NULL, n integer DEFAULT 1, options jsonb DEFAULT '{}'
) RETURNS TABLE (
    job_id uuid, token uuid, task text, queue text, priority integer, args json, owner text, source text, batch_id uuid,
    tags json, attempt integer, max_attempts integer, releases integer, losses integer,
    timeout_seconds double precision, lease_expires_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    lease      double precision;
    queues     text[];
    in_queues  text[];          -- the lanes: pairs of queue and task
    of_tasks   text[];
    new_token  uuid := rowlock._new_token();
    taken      uuid[] := '{}';
    picked     uuid[];
    heads      rowlock._head[];
    horizon    rowlock._head;
    admissions rowlock._admission[];
    at         timestamptz;
    low        integer := -101;     -- look for jobs after this priority
    low_source text := '';
    other      text;
BEGIN
    IF jsonb_typeof(options) IS DISTINCT FROM 'object' THEN
        PERFORM rowlock._refuse(
            format('claim: options must be a JSON object, not %s', rowlock._shown(CAST(options AS text))),
            'Write them like {"queues": ["mail"], "lease_seconds": 60}.');
    END IF;
    SELECT min(k) INTO other FROM jsonb_object_keys(options) k WHERE k NOT IN ('queues', 'lease_seconds', 'sweep');
    IF other IS NOT NULL THEN
        PERFORM rowlock._refuse(
            format('claim: no option %s', quote_ident(other)), 'There are queues, lease_seconds, sweep.', 'RL002');
    END IF;
    lease := coalesce(rowlock._seconds('claim', options, 'lease_seconds'), 60);
    PERFORM rowlock._check_worker('claim', worker, lease);
    IF n IS NULL OR n NOT BETWEEN 1 AND 1000 THEN
        PERFORM rowlock._refuse(
            format('claim: n must be from 1 to 1000, not %s', rowlock._shown(CAST(n AS text))),
            'Claim no more jobs than you can run at once, and send heartbeats for each of them.');
    END IF;
    IF coalesce(jsonb_typeof(options -> 'queues'), 'array') NOT IN ('array', 'null') THEN
        PERFORM rowlock._refuse(
            format('claim: queues must be a list of names, not %s', rowlock._shown(CAST(options -> 'queues' AS text))),
            'Write it like {"queues": ["mail", "default"]}.');
    END IF;
    PERFORM rowlock._require_read_committed('claim');
    queues := CASE WHEN jsonb_typeof(options -> 'queues') = 'array'
                   THEN ARRAY(SELECT jsonb_array_elements_text(options -> 'queues')) ELSE '{default}' END;
    IF coalesce(options -> 'sweep' <> 'false', TRUE) THEN
        PERFORM rowlock._sweep_if_needed(lease);
    END IF;
    PERFORM rowlock._seen(worker, coalesce(tasks, '{}'), queues, lease);
    -- Paused queues have no lanes.
    SELECT array_agg(lane.queue), array_agg(lane.task) INTO in_queues, of_tasks
    FROM (
        SELECT DISTINCT u AS queue, t AS task FROM unnest(queues) u CROSS JOIN LATERAL (
            SELECT g FROM unnest(claim.tasks) g
            UNION ALL
            SELECT r FROM rowlock._ready_tasks(u) r WHERE claim.tasks IS NULL) every (t)
        WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = u AND q.paused_at IS NOT NULL)
    ) lane;
    LOOP
        heads := ARRAY(SELECT h FROM rowlock._heads(in_queues, of_tasks, low, low_source, 200) h);
        IF cardinality(heads) = 0 AND cardinality(taken) = 0 AND low = -101 THEN
            -- If there are only plain jobs, as in most claims, one statement does everything.
            at := rowlock._clock();
            RETURN QUERY
                WITH found AS MATERIALIZED (
                    SELECT front.id, front.priority
                    FROM unnest(in_queues, of_tasks) AS lane (queue, task)
                    CROSS JOIN LATERAL (
                        SELECT j.id, j.priority FROM rowlock.jobs_live j
                        WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
                          AND (j.expires_at IS NULL OR j.expires_at > at)
                        ORDER BY j.priority, j.id
                        LIMIT n
                        FOR UPDATE SKIP LOCKED
                    ) front
                ), picked AS MATERIALIZED (
                    SELECT f.id FROM found f ORDER BY f.priority, f.id LIMIT n
                ), claimed AS (
                    -- Check the state again: another worker may have claimed the row between the snapshot and the lock.
                    UPDATE rowlock.jobs_live j
                    SET state = 'running', ready = FALSE, attempt = j.attempt + 1, lease_token = new_token,
                        locked_by = worker, locked_at = at, heartbeat_at = at,
                        lease_expires_at = at + lease * interval '1 second', started_at = at, updated_at = at
                    WHERE j.id = ANY (ARRAY(SELECT p.id FROM picked p)) AND j.ready
                    RETURNING j.*
                ), let_go AS (
                    DELETE FROM rowlock.job_keys k
                    WHERE k.mode = 'while_queued'
                      AND k.job_id = ANY (ARRAY(SELECT c.id FROM claimed c WHERE c.unique_mode = 'while_queued'))
                ), started AS (
                    UPDATE rowlock.batches b SET state = 'running', started_at = coalesce(b.started_at, at)
                    WHERE b.id = ANY (ARRAY(SELECT c.batch_id FROM claimed c WHERE c.batch_id IS NOT NULL))
                      AND b.state = 'queued'
                )
                SELECT c.id, new_token, c.task, c.queue, CAST(c.priority AS integer), c.args, c.owner, c.source, c.batch_id,
                       c.tags, c.attempt, c.max_attempts, c.releases, c.losses, c.timeout_seconds, c.lease_expires_at
                FROM claimed c
                ORDER BY c.priority, c.id;
            RETURN;
        END IF;
        -- If a lane may have more sources, sources of other lanes that come after its end must wait.
        horizon := NULL;
        SELECT * INTO horizon FROM unnest(heads) h WHERE h.last ORDER BY h.priority, h.source LIMIT 1;
        IF horizon.source IS NOT NULL THEN
            heads := ARRAY(
                SELECT h FROM unnest(heads) h WHERE (h.priority, h.source) <= (horizon.priority, horizon.source));
        END IF;
        admissions := '{}';
        at := rowlock._clock();
        IF cardinality(heads) > 0 THEN
            SELECT a.admissions, a.at INTO admissions, at
            FROM rowlock._admit(ARRAY(SELECT DISTINCT h.source FROM unnest(heads) h), cardinality(taken) = 0 AND low = -101) a;
        END IF;
        picked := ARRAY(
            WITH found AS MATERIALIZED (
                -- Lock the oldest ready jobs of each source. No `source =`: with every column but the id fixed, a plan
                -- that was made for an empty table would walk the primary key.
                SELECT front.id, h.priority, h.source, a.turn, a.room, a.class_room
                FROM unnest(heads) h JOIN unnest(admissions) a ON a.source = h.source
                CROSS JOIN LATERAL (
                    SELECT j.id FROM rowlock.jobs_live j
                    WHERE j.ready AND j.source IS NOT NULL AND j.queue = h.queue AND j.task = h.task
                      AND j.priority = h.priority AND j.source >= h.source AND j.source <= h.source
                      AND (j.expires_at IS NULL OR j.expires_at > at)
                    ORDER BY j.priority, j.source, j.id
                    LIMIT least(a.room, n - cardinality(taken))
                    FOR UPDATE SKIP LOCKED
                ) front
                UNION ALL
                -- Plain jobs share one turn.
                SELECT front.id, front.priority, '', 0.5, 2147483647, 2147483647
                FROM unnest(in_queues, of_tasks) AS lane (queue, task)
                CROSS JOIN LATERAL (
                    SELECT j.id, CAST(j.priority AS integer) AS priority FROM rowlock.jobs_live j
                    WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
                      AND j.priority > low AND j.priority <= coalesce(horizon.priority, 100)
                      AND (j.expires_at IS NULL OR j.expires_at > at)
                    ORDER BY j.priority, j.id
                    LIMIT n - cardinality(taken)
                    FOR UPDATE SKIP LOCKED
                ) front
            ), placed AS (
                SELECT f.*, row_number() OVER (PARTITION BY f.source ORDER BY f.priority, f.id) AS of_source,
                       row_number() OVER (PARTITION BY f.priority, f.source ORDER BY f.id) AS round
                FROM found f
            ), in_class AS (
                SELECT p.*, row_number() OVER (
                           PARTITION BY split_part(p.source, ':', 1) ORDER BY p.priority, p.round, p.turn, p.source)
                           AS of_class
                FROM placed p WHERE p.of_source <= p.room
            )
            SELECT c.id FROM in_class c
            WHERE c.source = '' OR c.of_class <= c.class_room
            ORDER BY c.priority, c.round, c.turn, c.source, c.id
            LIMIT n - cardinality(taken));
        IF cardinality(picked) > 0 THEN
            PERFORM rowlock._take(picked, admissions, worker, new_token, lease, at);
            taken := taken || picked;
        END IF;
        EXIT WHEN cardinality(taken) >= n OR horizon.source IS NULL;
        low := horizon.priority;
        low_source := horizon.source;
    END LOOP;
    RETURN QUERY
        SELECT j.id, new_token, j.task, j.queue, CAST(j.priority AS integer), j.args, j.owner, j.source, j.batch_id, j.tags,
               j.attempt, j.max_attempts, j.releases, j.losses, j.timeout_seconds, j.lease_expires_at
        FROM rowlock.jobs_live j
        WHERE j.id = ANY (taken)
        ORDER BY j.priority, j.id;
END;
$$;

-- Claim the next job of any task in the queue `default`. No row if there is none.
CREATE OR REPLACE FUNCTION rowlock.claim_next_pending_job(worker text)
RETURNS TABLE (
    job_id uuid, token uuid, task text, queue text, priority integer, args json, owner text, source text, batch_id uuid,
    tags json, attempt integer, max_attempts integer, releases integer, losses integer,
    timeout_seconds double precision, lease_expires_at timestamptz)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM rowlock.claim(worker, NULL, 1)
$$;

-- The tasks with ready jobs in a queue: a loose scan of both claim indexes, with one probe for each task.
CREATE OR REPLACE FUNCTION rowlock._ready_tasks(of_queue text) RETURNS SETOF text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE plain (task) AS (
        SELECT ''
        UNION ALL
        SELECT (SELECT j.task FROM rowlock.jobs_live j
                WHERE j.ready AND j.source IS NULL AND j.queue = of_queue AND j.task > plain.task
                ORDER BY j.queue, j.task, j.priority, j.id LIMIT 1)
        FROM plain WHERE plain.task IS NOT NULL
    ), sourced (task) AS (
        SELECT ''
        UNION ALL
        SELECT (SELECT j.task FROM rowlock.jobs_live j
                WHERE j.ready AND j.source IS NOT NULL AND j.queue = of_queue AND j.task > sourced.task
                ORDER BY j.queue, j.task, j.priority, j.source, j.id LIMIT 1)
        FROM sourced WHERE sourced.task IS NOT NULL
    )
    SELECT task FROM plain WHERE task <> '' UNION SELECT task FROM sourced WHERE task <> ''
$$;

-- Up to `most` sources of each pair of queue and task, after a priority and source, by priority and name: a loose scan
-- of the index jobs_live_turns, with one probe for each source, however many jobs it has. plpgsql caches the plan.
-- store/sources/claim.py: look.
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
                -- If there is none, the first source of the next priority.
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

-- Lock those of these sources that have limits, count again, and work out how many jobs each admits. Only the first
-- call of a claim (`waits`) waits for locks, those of classes with a total; sources that another claim has locked are
-- skipped. So a claim never waits while it holds a source, and can't be part of a deadlock. core/sources/admission.py:
-- admit.
CREATE OR REPLACE FUNCTION rowlock._admit(names text[], waits boolean, OUT admissions rowlock._admission[], OUT at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    classes text[] := ARRAY(SELECT DISTINCT split_part(u, ':', 1) FROM unnest(names) u);
    locked  text[];
    ours    text[];
BEGIN
    PERFORM rowlock._make_sources(names);
    IF waits THEN
        locked := ARRAY(
            SELECT c.name FROM rowlock.sources c WHERE c.name = ANY (classes) AND c.total IS NOT NULL
            ORDER BY c.name FOR UPDATE);
    ELSE
        locked := ARRAY(
            SELECT c.name FROM rowlock.sources c WHERE c.name = ANY (classes) AND c.total IS NOT NULL
            ORDER BY c.name FOR UPDATE SKIP LOCKED);
    END IF;
    ours := ARRAY(
        SELECT s.name
        FROM rowlock.sources s LEFT JOIN rowlock.sources c ON c.name = split_part(s.name, ':', 1)
        WHERE s.name = ANY (names)
          AND (s.opened_at IS NOT NULL OR coalesce(s.concurrency, c.concurrency, c.total) IS NOT NULL
               OR coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) IS NOT NULL)
        ORDER BY s.name
        FOR UPDATE OF s SKIP LOCKED);
    at := rowlock._clock();
    -- A separate statement, so that its snapshot is younger than the locks.
    admissions := ARRAY(
        SELECT CAST(ROW(
            g.source,
            -- A half-open breaker admits one job, its probe.
            least(CASE WHEN g.opened THEN 1 ELSE 2147483647 END, coalesce(g.concurrency - g.running, 2147483647),
                  coalesce(floor(b.level + 1e-9), 2147483647)),
            coalesce(g.total - g.class_running, 2147483647), g.epoch, b.level, g.opened, rowlock._draw())
            AS rowlock._admission)
        FROM (
            SELECT named.source, split_part(named.source, ':', 1) AS class,
                   coalesce(s.concurrency, c.concurrency) AS concurrency, c.total,
                   coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate,
                   CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END AS burst,
                   coalesce(s.enabled, TRUE) AND coalesce(c.class_enabled, TRUE) AS enabled,
                   coalesce(greatest(s.paused_until, c.class_paused_until) > at, FALSE) AS paused,
                   s.opened_at IS NOT NULL AS opened,
                   EXISTS (SELECT 1 FROM rowlock.jobs_live p
                           WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running'
                             AND (SELECT 1 FROM rowlock.set_aside a
                                  WHERE a.id = p.id AND coalesce(a.again_at > at, TRUE)) IS NULL) AS probing,
                   s.tokens, extract(epoch FROM at) - extract(epoch FROM s.tokens_at) AS elapsed,
                   coalesce(s.epoch, 0) AS epoch,
                   CASE WHEN coalesce(s.concurrency, c.concurrency) IS NOT NULL THEN (
                       SELECT count(*) FROM rowlock.jobs_live r
                       WHERE r.state = 'running' AND r.source IS NOT NULL AND split_part(r.source, ':', 1) = c.name
                         AND r.source = named.source
                         AND (SELECT 1 FROM rowlock.set_aside a
                              WHERE a.id = r.id AND coalesce(a.again_at > at, TRUE)) IS NULL) END AS running,
                   CASE WHEN c.total IS NOT NULL THEN (
                       SELECT count(*) FROM rowlock.jobs_live r
                       WHERE r.state = 'running' AND r.source IS NOT NULL AND split_part(r.source, ':', 1) = c.name
                         AND (SELECT 1 FROM rowlock.set_aside a
                              WHERE a.id = r.id AND coalesce(a.again_at > at, TRUE)) IS NULL) END AS class_running
            FROM unnest(names) AS named (source)
            LEFT JOIN LATERAL (SELECT * FROM rowlock.sources x WHERE x.name = named.source LIMIT 1) s ON TRUE
            LEFT JOIN LATERAL (
                SELECT * FROM rowlock.sources x WHERE x.name = split_part(named.source, ':', 1) LIMIT 1) c ON TRUE
        ) g
        CROSS JOIN LATERAL (
            SELECT CASE WHEN g.rate IS NULL THEN NULL
                        WHEN g.tokens IS NULL THEN coalesce(g.burst, greatest(1, floor(g.rate / 60)))
                        ELSE least(coalesce(g.burst, greatest(1, floor(g.rate / 60))),
                                   g.tokens + g.rate / 60 * greatest(0, coalesce(g.elapsed, 0))) END AS level
        ) b
        WHERE g.enabled AND NOT g.paused AND NOT (g.opened AND g.probing)
          AND coalesce(g.running < g.concurrency, TRUE) AND coalesce(g.class_running < g.total, TRUE)
          AND coalesce(floor(b.level + 1e-9) >= 1, TRUE)
          -- A source that has got a limit in the meantime isn't locked, so leave it to the next claim.
          AND (g.source = ANY (ours)
               OR NOT (g.opened OR coalesce(g.concurrency, g.total) IS NOT NULL OR g.rate IS NOT NULL))
          AND (g.total IS NULL OR g.class = ANY (locked)));
END;
$$;

-- Write the leases of a claim, take tokens from the buckets of its sources, and update keys and batches.
-- store/sources/claim.py: _claim, _spend, store/jobs/claim.py: release_queued_keys, store/batches.py: start.
CREATE OR REPLACE FUNCTION rowlock._take(
    picked uuid[], admissions rowlock._admission[], worker text, token uuid, lease double precision, at timestamptz
) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    queued  uuid[];
    batches uuid[];
    sources text[];
BEGIN
    WITH claimed AS (
        UPDATE rowlock.jobs_live j
        SET state = 'running', ready = FALSE, attempt = j.attempt + 1, lease_token = token, locked_by = worker,
            locked_at = at, heartbeat_at = at, lease_expires_at = at + lease * interval '1 second',
            started_at = at, updated_at = at,
            source_epoch = CASE WHEN j.source IS NULL THEN j.source_epoch
                                ELSE (SELECT a.epoch FROM unnest(admissions) a WHERE a.source = j.source) END
        WHERE j.id = ANY (picked) AND j.ready
        RETURNING j.id, j.unique_mode, j.batch_id, j.source
    )
    SELECT array_agg(c.id) FILTER (WHERE c.unique_mode = 'while_queued'),
           array_agg(DISTINCT c.batch_id) FILTER (WHERE c.batch_id IS NOT NULL),
           array_agg(c.source) FILTER (WHERE c.source IS NOT NULL)
    INTO queued, batches, sources
    FROM claimed c;
    IF sources IS NOT NULL THEN
        -- Take tokens from the buckets, and store probes. tokens_at never goes back, or a period would fill a bucket
        -- twice.
        UPDATE rowlock.sources s
        SET tokens = CASE WHEN spent.level IS NULL THEN s.tokens ELSE spent.level - spent.count END,
            tokens_at = CASE WHEN spent.level IS NULL THEN s.tokens_at ELSE greatest(coalesce(s.tokens_at, at), at) END,
            probe_job = CASE WHEN spent.probe THEN (
                SELECT j.id FROM rowlock.jobs_live j
                WHERE j.id = ANY (picked) AND j.source = s.name AND j.lease_token = token LIMIT 1) ELSE s.probe_job END,
            probe_token = CASE WHEN spent.probe THEN token ELSE s.probe_token END
        FROM (
            SELECT a.source, a.level, a.probe, count(*) AS count
            FROM unnest(admissions) a JOIN unnest(sources) u ON u = a.source
            WHERE a.level IS NOT NULL OR a.probe
            GROUP BY a.source, a.level, a.probe
        ) spent
        WHERE s.name = spent.source AND s.name = ANY (sources);
    END IF;
    IF queued IS NOT NULL THEN
        DELETE FROM rowlock.job_keys k WHERE k.mode = 'while_queued' AND k.job_id = ANY (queued);
    END IF;
    IF batches IS NOT NULL THEN
        UPDATE rowlock.batches b SET state = 'running', started_at = coalesce(b.started_at, at)
        WHERE b.id = ANY (batches) AND b.state = 'queued';
    END IF;
END;
$$;

-- The sweep of a claim. It checks first, because most claims find nothing to sweep. store/jobs/leases.py: to_sweep.
CREATE OR REPLACE FUNCTION rowlock._sweep_if_needed(guard double precision) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at timestamptz := rowlock._clock();
BEGIN
    -- ORDER BY keeps the plan on the index; without it, the whole table may be read.
    IF (SELECT 1 FROM rowlock.jobs_live j WHERE j.state = 'running' AND j.lease_expires_at < at ORDER BY j.id LIMIT 1)
           IS NOT NULL
       OR (SELECT 1 FROM rowlock.jobs_live j WHERE j.expires_at IS NOT NULL AND j.state <> 'running' AND j.expires_at <= at
           ORDER BY j.expires_at LIMIT 1) IS NOT NULL
       OR (SELECT 1 FROM rowlock.batches b WHERE b.finished_at IS NULL AND b.sealed_at IS NOT NULL ORDER BY b.id LIMIT 1)
           IS NOT NULL
    THEN
        PERFORM rowlock.sweep(100, guard);
    ELSE
        PERFORM rowlock._promote(1000);
    END IF;
END;
$$;

-- Whether a running job is the probe of a source's half-open breaker. Compares tokens, which a reader may not see.
CREATE OR REPLACE FUNCTION rowlock._probes(source text, at timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM rowlock.sources s JOIN rowlock.jobs_live j ON j.id = s.probe_job
        WHERE s.name = _probes.source AND j.lease_token = s.probe_token AND j.state = 'running'
          AND (SELECT 1 FROM rowlock.set_aside a
               WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL);
END;
$$;

-- --- leases

-- Renew leases: an array of {"job_id", "token"}. Returns for each: held, cancel (still held, and asked to stop) or lost
-- (stop working: another worker may have it), and the end of the lease. A locked row is skipped instead of waited for,
-- and doesn't count as lost. store/jobs/leases.py: beat, held.
CREATE OR REPLACE FUNCTION rowlock.heartbeat(worker text, leases jsonb, lease_seconds double precision DEFAULT 60)
RETURNS TABLE (job_id uuid, answer text, lease_expires_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at   timestamptz := rowlock._clock();
    mine jsonb := CASE WHEN jsonb_typeof(leases) = 'object' THEN jsonb_build_array(leases) ELSE leases END;
    ids  uuid[];
    keys uuid[];
BEGIN
    PERFORM rowlock._check_worker('heartbeat', worker, heartbeat.lease_seconds);
    SELECT array_agg(rowlock._lease_part('heartbeat', one, 'job_id')), array_agg(rowlock._lease_part('heartbeat', one, 'token'))
    INTO ids, keys
    FROM rowlock._elements('heartbeat', mine, ARRAY['job_id', 'token']) one;
    UPDATE rowlock.jobs_live j
    SET heartbeat_at = at, lease_expires_at = at + heartbeat.lease_seconds * interval '1 second'
    WHERE j.id = ANY (ARRAY(
        SELECT found.id
        FROM (SELECT * FROM unnest(ids, keys) AS u (id, token) ORDER BY u.id) mine
        CROSS JOIN LATERAL (
            SELECT l.id FROM rowlock.jobs_live l
            WHERE l.id = mine.id AND l.lease_token = mine.token AND l.state = 'running'
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) found));
    PERFORM rowlock._seen(worker, NULL, NULL, heartbeat.lease_seconds);
    -- This read doesn't wait for row locks.
    RETURN QUERY
        SELECT mine.id,
               CASE WHEN held.id IS NULL THEN 'lost' WHEN held.cancel_requested_at IS NOT NULL THEN 'cancel' ELSE 'held' END,
               held.lease_expires_at
        FROM unnest(ids, keys) AS mine (id, token)
        LEFT JOIN LATERAL (
            SELECT j.id, j.cancel_requested_at, j.lease_expires_at FROM rowlock.jobs_live j
            WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
            LIMIT 1
        ) held ON TRUE;
END;
$$;

-- Store the progress of running jobs: an array of {"job_id", "token", "progress", "phase", "message"}. Progress is 0 to
-- 100 and never decreases within an attempt. Returns for each: held, cancel or lost, as heartbeat does.
-- store/jobs/leases.py: progress.
CREATE OR REPLACE FUNCTION rowlock.progress_many(jobs jsonb) RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at   timestamptz := rowlock._clock();
    ids  uuid[];
    keys uuid[];
    held uuid[];
    bad  text;
BEGIN
    SELECT array_agg(rowlock._lease_part('progress', one, 'job_id')), array_agg(rowlock._lease_part('progress', one, 'token')),
           min(CAST(one -> 'progress' AS text)) FILTER (
               WHERE one -> 'progress' <> 'null'
                 AND NOT coalesce(one @@ '$.progress >= 0 && $.progress <= 100 && $.progress.type() == "number"', FALSE))
    INTO ids, keys, bad
    FROM rowlock._elements('progress', jobs, ARRAY['job_id', 'token', 'progress', 'phase', 'message']) one;
    IF bad IS NOT NULL THEN
        PERFORM rowlock._refuse(
            format('progress: progress must be a number from 0 to 100, not %s', rowlock._shown(bad)),
            'Give percent, or null to report only a phase or a message.');
    END IF;
    held := ARRAY(
        SELECT found.id
        FROM (SELECT * FROM unnest(ids, keys) AS u (id, token) ORDER BY u.id) mine
        CROSS JOIN LATERAL (
            SELECT j.id FROM rowlock.jobs_live j
            WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
            LIMIT 1
            FOR UPDATE
        ) found);
    UPDATE rowlock.jobs_live j
    SET progress = CASE WHEN reported.progress >= coalesce(j.progress, 0) THEN reported.progress ELSE j.progress END,
        phase = reported.phase, message = reported.message, updated_at = at
    FROM (
        -- If one lease has two reports, the last counts.
        SELECT DISTINCT ON (u.one ->> 'job_id', u.one ->> 'token')
               CAST(u.one ->> 'job_id' AS uuid) AS id, CAST(u.one ->> 'token' AS uuid) AS token,
               CAST(CAST(u.one ->> 'progress' AS numeric) AS smallint) AS progress,
               rowlock._cut(u.one ->> 'phase', 8192) AS phase, rowlock._cut(u.one ->> 'message', 8192) AS message
        FROM jsonb_array_elements(jobs) WITH ORDINALITY AS u (one, nth)
        ORDER BY u.one ->> 'job_id', u.one ->> 'token', u.nth DESC
    ) reported
    WHERE j.id = reported.id AND j.lease_token = reported.token AND j.id = ANY (held);
    RETURN QUERY
        SELECT mine.id,
               CASE WHEN h.id IS NULL THEN 'lost' WHEN h.cancel_requested_at IS NOT NULL THEN 'cancel' ELSE 'held' END
        FROM unnest(ids, keys) AS mine (id, token)
        LEFT JOIN LATERAL (
            SELECT j.id, j.cancel_requested_at FROM rowlock.jobs_live j
            WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running'
            LIMIT 1
        ) h ON TRUE;
END;
$$;

-- Store the progress of one job.
CREATE OR REPLACE FUNCTION rowlock.progress(
    job_id uuid, token uuid, progress integer DEFAULT NULL, phase text DEFAULT NULL, message text DEFAULT NULL
) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.answer
    FROM rowlock.progress_many(jsonb_build_array(jsonb_build_object(
        'job_id', job_id, 'token', token, 'progress', progress, 'phase', phase, 'message', message))) p
$$;

-- Refuse a worker's name or a lease that can't be used.
CREATE OR REPLACE FUNCTION rowlock._check_worker(doing text, worker text, lease double precision) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT rowlock._is_name(worker) THEN
        PERFORM rowlock._refuse(
            format('%s: worker must have 1–200 characters without control characters, not %s', doing,
                   rowlock._shown(worker)),
            'Choose a name when the worker starts, such as host name, process id and time.');
    END IF;
    IF lease IS NULL OR NOT lease BETWEEN 1 AND 86400 THEN
        PERFORM rowlock._refuse(
            format('%s: lease_seconds must be from 1 to 86400, not %s', doing, rowlock._shown(CAST(lease AS text))),
            'Send at least four heartbeats in this time.');
    END IF;
END;
$$;

-- Renew a worker's row, at most once in ten seconds; leases never depend on it. At the same time, sum up the triggers'
-- counts (a bounded number of rows, in the caller's transaction) and delete old minutes and hours. store/workers.py:
-- seen, store/read/counters.py: sum_up, forget.
CREATE OR REPLACE FUNCTION rowlock._seen(worker text, tasks text[], queues text[], lease double precision)
RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := rowlock._clock();
BEGIN
    IF EXISTS (
        SELECT 1 FROM rowlock.workers w
        WHERE w.id = worker AND w.seen_at BETWEEN moment - interval '10 seconds' AND moment)
    THEN
        RETURN;
    END IF;
    INSERT INTO rowlock.workers (
        id, hostname, pid, version, queues, tasks, pool_size, started_at, seen_at, expires_at)
    VALUES (worker, coalesce(host(inet_client_addr()), 'local'), pg_backend_pid(), 'sql',
            to_json(coalesce(queues, '{}')), to_json(coalesce(tasks, '{}')), 1, moment, moment,
            moment + greatest(lease, 60) * interval '1 second')
    ON CONFLICT (id) DO UPDATE
    SET seen_at = excluded.seen_at, expires_at = excluded.expires_at,
        queues = CASE WHEN _seen.queues IS NULL THEN workers.queues ELSE excluded.queues END,
        tasks = CASE WHEN _seen.tasks IS NULL THEN workers.tasks ELSE excluded.tasks END;
    -- At a stricter isolation level, a row that another worker has just summed up would raise an error.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    -- A role whose rights were granted by hand may lack those on the counters. Its calls must work all the same.
    BEGIN
        IF rowlock._sum_up(5000) > 0 THEN
            DELETE FROM rowlock.rollups
            WHERE ctid = ANY (ARRAY(
                (SELECT r.ctid FROM rowlock.rollups r
                 WHERE r.seconds = 60 AND r.at < moment - interval '26 hours' LIMIT 1000)
                UNION ALL
                (SELECT r.ctid FROM rowlock.rollups r
                 WHERE r.seconds = 3600 AND r.at < moment - interval '35 days' LIMIT 1000)));
        END IF;
    EXCEPTION WHEN insufficient_privilege THEN
        NULL;
    END;
END;
$$;

-- Move up to `n` tallies into the minutes, the hours and the totals; returns how many. Python workers call it as well
-- (store/read/counters.py: sum_up). Does nothing while another process is at it, for whose rows it would have to wait.
CREATE OR REPLACE FUNCTION rowlock._sum_up(n integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moved integer;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('rowlock.tallies')) THEN
        RETURN 0;
    END IF;
    WITH taken AS (
        DELETE FROM rowlock.tallies
        WHERE ctid = ANY (ARRAY(SELECT y.ctid FROM rowlock.tallies y LIMIT n FOR UPDATE SKIP LOCKED))
        RETURNING *
    ), minutes_and_hours AS (
        INSERT INTO rowlock.rollups AS r
        SELECT p.seconds, date_bin(p.seconds * interval '1 second', t.at, '2000-01-01Z') AS began,
               t.queue, t.task, t.what, t.run_bucket, t.wait_bucket,
               sum(t.number), sum(t.run_seconds), sum(t.wait_seconds)
        FROM taken t CROSS JOIN (VALUES (60), (3600)) AS p (seconds)
        GROUP BY p.seconds, began, t.queue, t.task, t.what, t.run_bucket, t.wait_bucket
        ON CONFLICT (seconds, at, queue, task, what, run_bucket, wait_bucket) DO UPDATE
        SET number = r.number + excluded.number, run_seconds = r.run_seconds + excluded.run_seconds,
            wait_seconds = r.wait_seconds + excluded.wait_seconds
    ), totals AS (
        INSERT INTO rowlock.counters AS c
        SELECT t.queue, t.task, t.what, t.run_bucket, t.wait_bucket,
               sum(t.number), sum(t.run_seconds), sum(t.wait_seconds)
        FROM taken t
        GROUP BY t.queue, t.task, t.what, t.run_bucket, t.wait_bucket
        ON CONFLICT (queue, task, what, run_bucket, wait_bucket) DO UPDATE
        SET number = c.number + excluded.number, run_seconds = c.run_seconds + excluded.run_seconds,
            wait_seconds = c.wait_seconds + excluded.wait_seconds
    )
    SELECT count(*) INTO moved FROM taken;
    RETURN moved;
END;
$$;

-- Trigger of jobs_live: write an event when the progress of a job with an owner changes.
CREATE OR REPLACE FUNCTION rowlock.tell_progress() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO rowlock.events (job_id, owner, type, task, state, attempt, progress, phase, message, at)
    VALUES (NEW.id, NEW.owner, 'job.progress', NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message,
            NEW.updated_at);
    IF EXISTS (SELECT 1 FROM rowlock.event_listeners WHERE expires_at > statement_timestamp()) THEN
        PERFORM pg_notify('rowlock', 'events');
    END IF;
    RETURN NULL;
END
$$;
