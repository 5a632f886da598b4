-- Sweeping, which every Python worker does beside its jobs, for databases that have no Python worker.
--
-- If the end of one row can't be written (for example because its follow-up can't be inserted), that row stays as it
-- is, a warning names it, and the other rows and the claim that sweeps go on. Python's sweep finds such rows in the
-- same way and sets them aside (store/upkeep/bad_rows.py: in_halves). Errors that aren't about a row, such as a full
-- disk, a deadlock or a missing right, fail the whole call.

-- Sweep up to `n` rows of each kind: end expired leases, cancel waiting jobs whose `expires_at` has passed, make due
-- jobs claimable, end batches. rowlock.claim calls it, and pg_cron may. No lease is ended until the server has been up
-- for `guard_seconds`: after an outage every lease looks expired, and the workers need time for a heartbeat.
-- store/jobs/leases.py: reclaim, store/jobs/cancel.py: expire, store/jobs/claim.py: promote, store/batches.py: end.
CREATE OR REPLACE FUNCTION rowlock.sweep(n integer DEFAULT 100, guard_seconds double precision DEFAULT 60)
RETURNS TABLE (reclaimed integer, expired integer, promoted integer, ended integer)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at timestamptz := rowlock._clock();
BEGIN
    IF n IS NULL OR n NOT BETWEEN 1 AND 10000 OR guard_seconds IS NULL OR guard_seconds NOT BETWEEN 0 AND 1e9 THEN
        PERFORM rowlock._refuse(
            format('sweep: n must be from 1 to 10000 and guard_seconds from 0 to 1e9, not %s and %s',
                   rowlock._shown(CAST(n AS text)), rowlock._shown(CAST(guard_seconds AS text))),
            'Call rowlock.sweep() without arguments.');
    END IF;
    -- Only the lease's end and the database's clock count, whatever the task and the limits.
    reclaimed := rowlock._end_rows('lease', ARRAY(
        SELECT j.id FROM rowlock.jobs_live j
        WHERE j.state = 'running' AND j.lease_expires_at < at
          AND (guard_seconds <= 0 OR at > pg_postmaster_start_time() + guard_seconds * interval '1 second')
          AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL
        ORDER BY j.id
        LIMIT n
        FOR UPDATE SKIP LOCKED));
    expired := rowlock._end_rows('start', ARRAY(
        SELECT j.id FROM rowlock.jobs_live j
        WHERE j.expires_at IS NOT NULL AND j.state <> 'running' AND j.expires_at <= at
          AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL
        ORDER BY j.expires_at
        LIMIT n
        FOR UPDATE SKIP LOCKED));
    promoted := rowlock._promote(n);
    ended := rowlock._end_rows('batch', ARRAY(
        SELECT b.id FROM rowlock.batches b
        WHERE b.finished_at IS NULL AND b.sealed_at IS NOT NULL
          AND (SELECT coalesce(sum(c.total - c.processed), 0) FROM rowlock.batch_counts c WHERE c.batch_id = b.id) <= 0
          AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = b.id AND coalesce(a.again_at > at, TRUE)) IS NULL
        ORDER BY b.id
        LIMIT n));
    RETURN NEXT;
END;
$$;

-- End these rows: jobs with expired leases, jobs that have not started in time, or complete batches. Returns how many
-- were ended. If it fails for all of them together, each half is tried, and so on. store/upkeep/bad_rows.py: in_halves.
CREATE OR REPLACE FUNCTION rowlock._end_rows(what text, ids uuid[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    middle integer := cardinality(ids) / 2;
    steps  rowlock._step[];
BEGIN
    IF cardinality(ids) = 0 THEN
        RETURN 0;
    ELSIF what = 'lease' THEN
        RETURN (
            SELECT count(*) FROM rowlock._settle(ARRAY(
                SELECT CAST(ROW(1, j.id, j.lease_token, 'lost', NULL, NULL, NULL, NULL, NULL, NULL, NULL) AS rowlock._ending)
                FROM rowlock.jobs_live j WHERE j.id = ANY (ids)), FALSE) s
            WHERE s.answer = 'applied');
    ELSIF what = 'start' THEN
        steps := ARRAY(
            SELECT rowlock._cancelled(j, 'EXPIRED', 'not started before expires_at')
            FROM rowlock.jobs_live j WHERE j.id = ANY (ids));
        PERFORM rowlock._finish(steps, FALSE);
        RETURN cardinality(steps);
    END IF;
    RETURN rowlock._end_batches(ids);
EXCEPTION
    WHEN insufficient_resources OR transaction_rollback OR insufficient_privilege THEN
        RAISE;
    WHEN OTHERS THEN
        IF middle = 0 THEN
            RAISE WARNING 'rowlock: %: %', format(
                CASE what WHEN 'lease' THEN 'the lease of job %s has expired but cannot be ended'
                          WHEN 'start' THEN 'job %s has not started in time and cannot be cancelled'
                          ELSE 'batch %s is complete and cannot be ended' END, ids[1]), SQLERRM;
            RETURN 0;
        END IF;
        RETURN rowlock._end_rows(what, ids[:middle]) + rowlock._end_rows(what, ids[middle + 1:]);
END;
$$;

-- Make due jobs claimable, the longest due first. store/jobs/claim.py: promote.
CREATE OR REPLACE FUNCTION rowlock._promote(n integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at       timestamptz := rowlock._clock();
    promoted integer;
BEGIN
    UPDATE rowlock.jobs_live l SET ready = TRUE, updated_at = at
    WHERE l.id = ANY (ARRAY(
        SELECT j.id FROM rowlock.jobs_live j
        WHERE NOT j.ready AND j.state <> 'running' AND j.run_after <= at
          AND (SELECT 1 FROM rowlock.set_aside a WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL
        ORDER BY j.run_after
        LIMIT n
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS promoted = ROW_COUNT;
    RETURN promoted;
END;
$$;

-- Trigger of events: store the largest deleted id, whoever deletes events.
CREATE OR REPLACE FUNCTION rowlock.tell_deleted_events() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO rowlock.deleted_events AS known (last_id)
    SELECT max(gone.id) FROM gone HAVING max(gone.id) IS NOT NULL
    ON CONFLICT (one) DO UPDATE SET last_id = greatest(known.last_id, excluded.last_id);
    RETURN NULL;
END
$$;
