-- Where only SQL workers run, nobody summed up what triggers count (migration 0025): the numbers were right, and the
-- table `tallies` grew without an end. Now a SQL worker does it when it tells that it lives, every ten seconds.

-- Move up to `n` tallies into the minutes, the hours and the totals; answers how many. Python workers call it, too. If
-- another process is at it, nothing is done: two would wait for each other's rows.
CREATE FUNCTION rowlock._sum_up(n integer) RETURNS integer
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
    ), minutes AS (
        INSERT INTO rowlock.rollups AS r
        SELECT 60, t.at, t.queue, t.task, t.what, t.run_bucket, t.wait_bucket,
               sum(t.number), sum(t.run_seconds), sum(t.wait_seconds)
        FROM taken t
        GROUP BY t.at, t.queue, t.task, t.what, t.run_bucket, t.wait_bucket
        ON CONFLICT (seconds, at, queue, task, what, run_bucket, wait_bucket) DO UPDATE
        SET number = r.number + excluded.number, run_seconds = r.run_seconds + excluded.run_seconds,
            wait_seconds = r.wait_seconds + excluded.wait_seconds
    ), hours AS (
        INSERT INTO rowlock.rollups AS r
        SELECT 3600, date_bin('1 hour', t.at, '2000-01-01Z'), t.queue, t.task, t.what, t.run_bucket, t.wait_bucket,
               sum(t.number), sum(t.run_seconds), sum(t.wait_seconds)
        FROM taken t
        GROUP BY 2, t.queue, t.task, t.what, t.run_bucket, t.wait_bucket
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

-- Who is at work, for operators. Written at most once in ten seconds; leases never depend on it. What was counted is
-- summed up at this moment, a bounded number in the transaction of the caller, and old minutes and hours are forgotten.
CREATE OR REPLACE FUNCTION rowlock._seen(worker text, tasks text[], queues text[], lease double precision) RETURNS void
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
    -- Under a stricter isolation than this, a row that another worker has just summed up would be an error.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    -- A role that was given its rights by hand may lack those on the counters. Its calls must work all the same.
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

-- Functions run with the rights of the caller. A role that got its rights before needs these, too.
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'rowlock_worker') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON rowlock.tallies, rowlock.rollups TO rowlock_worker;
        GRANT SELECT, INSERT, UPDATE ON rowlock.counters TO rowlock_worker;
        GRANT EXECUTE ON FUNCTION rowlock._sum_up TO rowlock_worker;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'rowlock_admin') THEN
        GRANT EXECUTE ON FUNCTION rowlock._sum_up TO rowlock_admin;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION rowlock._sum_up FROM PUBLIC;
