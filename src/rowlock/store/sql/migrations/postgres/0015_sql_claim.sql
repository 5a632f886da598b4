-- How a worker in any language gets jobs: rowlock.claim, rowlock.claim_next_pending_job, and rowlock.sweep.
--
-- A claim is exact because it counts the running jobs of a source in a statement of its own, after it has locked the
-- source's row: under READ COMMITTED each statement of a VOLATILE function has a snapshot of its own.

-- What every Python worker does beside its jobs, for databases without one, up to `n` jobs of each kind: end leases that
-- ran out, cancel waiting jobs whose latest start has passed, make due jobs claimable, end batches. rowlock.claim does it
-- too; pg_cron may. The server must have been up for `guard_seconds`: after an outage every lease looks as if it had run
-- out, and its worker must have had the time to beat again.
CREATE FUNCTION rowlock.sweep(n integer DEFAULT 100, guard_seconds double precision DEFAULT 60)
RETURNS TABLE (reclaimed integer, expired integer, promoted integer, ended integer)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at      timestamptz := rowlock._clock();
    ends    rowlock._ending[];
    overdue rowlock._step[];
BEGIN
    IF n IS NULL OR n NOT BETWEEN 1 AND 10000 OR guard_seconds IS NULL OR guard_seconds < 0 THEN
        PERFORM rowlock._refuse(
            format('sweep: n must be from 1 to 10000 and guard_seconds from 0, not %s and %s',
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
        SELECT count(*) INTO reclaimed FROM rowlock._settle(ends, FALSE) s WHERE s.answer = 'applied';
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
        PERFORM rowlock._finish(overdue, FALSE);
        expired := cardinality(overdue);
    END IF;
    promoted := rowlock._promote(n);
    IF EXISTS (SELECT 1 FROM rowlock.batches b WHERE b.finished_at IS NULL) THEN
        ended := rowlock._end_batches(ARRAY(
            SELECT b.id FROM rowlock.batches b
            WHERE b.finished_at IS NULL AND b.sealed_at IS NOT NULL
              AND (SELECT coalesce(sum(c.total - c.processed), 0) FROM rowlock.batch_counts c WHERE c.batch_id = b.id) <= 0
              AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = b.id AND coalesce(a.again_at > at, TRUE)) IS NULL
            ORDER BY b.id
            LIMIT n));
    END IF;
    RETURN NEXT;
END;
$$;

-- Make due jobs claimable, oldest due first.
CREATE FUNCTION rowlock._promote(n integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at  timestamptz := rowlock._clock();
    ids uuid[];
BEGIN
    ids := ARRAY(
        SELECT j.id FROM rowlock.jobs_live j
        WHERE NOT j.ready AND j.state <> 'running' AND j.run_after <= at
          AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL
        ORDER BY j.run_after
        LIMIT n
        FOR UPDATE SKIP LOCKED);
    IF cardinality(ids) > 0 THEN
        UPDATE rowlock.jobs_live j SET ready = TRUE, updated_at = at WHERE j.id = ANY (ids);
    END IF;
    RETURN cardinality(ids);
END;
$$;

-- Where there are ready jobs of a source: a queue, a task, a priority; `last` of a lane that may have more.
CREATE TYPE rowlock._head AS (queue text, task text, priority integer, source text, last boolean);
-- How many jobs a source lets in (core/sources/admission.py: Admission), and its place in this claim.
CREATE TYPE rowlock._admission AS (
    source text, room integer, class_room integer, epoch integer, level double precision, probe boolean,
    turn double precision);

-- The tasks that have ready jobs in a queue: a loose scan of both claim indexes, one probe for each task.
CREATE FUNCTION rowlock._ready_tasks(of_queue text) RETURNS SETOF text
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

-- Up to `most` sources of each lane behind a priority and source, by priority and name: a loose scan of the turns index,
-- one probe for each source, whatever the number of its jobs.
CREATE FUNCTION rowlock._heads(queues text[], tasks text[], after_priority integer, after_source text, most integer)
RETURNS SETOF rowlock._head
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE head (queue, task, nth, priority, source) AS (
        SELECT lane.queue, lane.task, 0, after_priority, after_source FROM unnest(queues, tasks) AS lane (queue, task)
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
    SELECT head.queue, head.task, head.priority, head.source, head.nth = most FROM head WHERE head.nth > 0
$$;

-- Lock what is limited among these sources, count anew, and ask each how many jobs it lets in. A claim waits for nothing
-- while it holds a source, so it cannot be part of a deadlock: only the first call of a claim (`waits`) waits for classes
-- with a total; sources that another claim has locked are passed over.
CREATE FUNCTION rowlock._admit(names text[], waits boolean, OUT admissions rowlock._admission[], OUT at timestamptz)
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
    -- A statement of its own: its snapshot is younger than the locks.
    admissions := ARRAY(
        SELECT CAST(ROW(
            g.source,
            -- A breaker that is half open lets one job in, as its probe.
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
          -- What has become limited since it was locked is left for the next claim, which will lock it.
          AND (g.source = ANY (ours)
               OR NOT (g.opened OR coalesce(g.concurrency, g.total) IS NOT NULL OR g.rate IS NOT NULL))
          AND (g.total IS NULL OR g.class = ANY (locked)));
END;
$$;

-- Take up to `n` ready jobs for a worker, of these tasks (NULL: of any task), under one fresh token: best priority first,
-- then one job of each source in turn, then the oldest. Options: queues (["default"]), lease_seconds (60), sweep (true:
-- first end leases that ran out and make due jobs claimable).
CREATE FUNCTION rowlock.claim(worker text, tasks text[] DEFAULT NULL, n integer DEFAULT 1, options jsonb DEFAULT '{}')
RETURNS TABLE (
    job_id uuid, token uuid, task text, queue text, priority integer, args json, owner text, source text, batch_id uuid,
    tags json, attempt integer, max_attempts integer, releases integer, losses integer,
    timeout_seconds double precision, lease_expires_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    lease      double precision;
    queues     text[];
    open       text[];
    in_queues  text[];          -- the lanes: pairs of queue and task
    of_tasks   text[];
    new_token  uuid := rowlock._new_token();
    taken      uuid[] := '{}';
    picked     uuid[];
    heads      rowlock._head[];
    horizon    rowlock._head;
    admissions rowlock._admission[];
    at         timestamptz;
    low        integer := -101;     -- behind which sources are looked for
    low_source text := '';
    low_plain  integer := -101;     -- behind which jobs without a source are
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
            'Claim no more jobs than you can run at once, and beat for each of them.');
    END IF;
    IF coalesce(jsonb_typeof(options -> 'queues'), 'array') NOT IN ('array', 'null') THEN
        PERFORM rowlock._refuse(
            format('claim: queues must be a list of names, not %s', rowlock._shown(CAST(options -> 'queues' AS text))),
            'Write it like {"queues": ["mail", "default"]}.');
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM rowlock._refuse(
            format('claim: the transaction is %s', current_setting('transaction_isolation')),
            'Claim under READ COMMITTED: limits of sources are counted under a snapshot that is younger than their lock.');
    END IF;
    queues := CASE WHEN jsonb_typeof(options -> 'queues') = 'array'
                   THEN ARRAY(SELECT jsonb_array_elements_text(options -> 'queues')) ELSE '{default}' END;
    IF coalesce(options -> 'sweep' <> 'false', TRUE) THEN
        PERFORM rowlock._sweep_if_needed(lease);
    END IF;
    PERFORM rowlock._seen(worker, coalesce(tasks, '{}'), queues, lease);
    -- A paused queue has no lane.
    open := ARRAY(
        SELECT DISTINCT u FROM unnest(queues) u
        WHERE NOT EXISTS (SELECT 1 FROM rowlock.queues q WHERE q.name = u AND q.paused_at IS NOT NULL));
    SELECT array_agg(lane.queue), array_agg(lane.task) INTO in_queues, of_tasks
    FROM (
        SELECT o AS queue, t AS task FROM unnest(open) o CROSS JOIN LATERAL (
            SELECT DISTINCT g FROM unnest(claim.tasks) g
            UNION ALL
            SELECT r FROM rowlock._ready_tasks(o) r WHERE claim.tasks IS NULL) every (t)
    ) lane;
    LOOP
        heads := ARRAY(SELECT h FROM rowlock._heads(in_queues, of_tasks, low, low_source, 200) h);
        IF cardinality(heads) = 0 AND cardinality(taken) = 0 AND low = -101 THEN
            -- Jobs without a source alone, as most claims find: all in one statement.
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
                    -- The state is checked again: between the snapshot and the lock the row may have been taken.
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
        -- Behind the end of a lane that may have more, sources of other lanes are not yet next.
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
                -- The oldest ready jobs of each source, locked. Not `source =`: with every column but the id given, a plan
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
                -- Jobs without a source have one turn together.
                SELECT front.id, front.priority, '', 0.5, 2147483647, 2147483647
                FROM unnest(in_queues, of_tasks) AS lane (queue, task)
                CROSS JOIN LATERAL (
                    SELECT j.id, CAST(j.priority AS integer) AS priority FROM rowlock.jobs_live j
                    WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task
                      AND j.priority > low_plain AND j.priority <= coalesce(horizon.priority, 100)
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
        low_plain := horizon.priority;
    END LOOP;
    RETURN QUERY
        SELECT j.id, new_token, j.task, j.queue, CAST(j.priority AS integer), j.args, j.owner, j.source, j.batch_id, j.tags,
               j.attempt, j.max_attempts, j.releases, j.losses, j.timeout_seconds, j.lease_expires_at
        FROM rowlock.jobs_live j
        WHERE j.id = ANY (taken)
        ORDER BY j.priority, j.id;
END;
$$;

-- Write the leases of a claim, and tell sources, keys and batches of it.
CREATE FUNCTION rowlock._take(
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
        -- Take tokens out of the buckets, whose moment never goes back, so that none is filled twice; remember probes.
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

-- The sweep of a claim, behind one look: most claims find nothing to sweep.
CREATE FUNCTION rowlock._sweep_if_needed(guard double precision) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at timestamptz := rowlock._clock();
BEGIN
    -- The order is that of the index: without it, a plan may read the whole table.
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

-- One job of any task in the queue `default`, for a worker that takes whatever is next; no row when there is none.
CREATE FUNCTION rowlock.claim_next_pending_job(worker text)
RETURNS TABLE (
    job_id uuid, token uuid, task text, queue text, priority integer, args json, owner text, source text, batch_id uuid,
    tags json, attempt integer, max_attempts integer, releases integer, losses integer,
    timeout_seconds double precision, lease_expires_at timestamptz)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM rowlock.claim(worker, NULL, 1)
$$;

-- Nobody calls a function without the right to: `rowlock migrate --roles` gives it to the roles that need it.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA rowlock FROM PUBLIC;
