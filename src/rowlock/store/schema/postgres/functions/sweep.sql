-- Sweeping: what every Python worker does beside its jobs, for databases that have no Python worker.
--
-- If the end of one row can't be written (its follow-up can't be inserted, for example), that row stays as it is, with
-- a warning that names it, and holds up neither the others nor the claim that sweeps. Python's sweep sets such a row
-- aside (store/upkeep/bad_rows.py: all_or_each). What isn't about a row fails the whole call: a full disk, a deadlock, a missing
-- right.

-- Up to `n` jobs of each kind: end leases that ran out, cancel waiting jobs whose latest start has passed, make due
-- jobs claimable, end batches. rowlock.claim does it; pg_cron may. The server must have been up for `guard_seconds`:
-- after an outage every lease looks as if it had run out, and its worker must have had time for a heartbeat.
-- store/jobs/leases.py: reclaim, store/jobs/cancel.py: expire, store/jobs/claim.py: promote, store/batches.py: end.
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

-- Make due jobs claimable, those that are due longest first. store/jobs/claim.py: promote.
CREATE OR REPLACE FUNCTION rowlock._promote(n integer) RETURNS integer
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

-- End leases that ran out, one at a time; returns how many.
CREATE OR REPLACE FUNCTION rowlock._reclaim_each(ends rowlock._ending[]) RETURNS integer
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

-- End jobs that haven't started in time, one at a time; returns how many.
CREATE OR REPLACE FUNCTION rowlock._expire_each(overdue rowlock._step[]) RETURNS integer
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

-- End batches that are complete, one at a time; returns how many.
CREATE OR REPLACE FUNCTION rowlock._end_each(ids uuid[]) RETURNS integer
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

-- Trigger of events: remember the largest id that was deleted, whoever deletes it.
CREATE OR REPLACE FUNCTION rowlock.tell_deleted_events() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO rowlock.deleted_events AS known (last_id)
    SELECT max(gone.id) FROM gone HAVING max(gone.id) IS NOT NULL
    ON CONFLICT (one) DO UPDATE SET last_id = greatest(known.last_id, excluded.last_id);
    RETURN NULL;
END
$$;
