-- What happened to a job since its last attempt that came back (core/policy.py: Streaks). `losses` and `releases` are sums
-- over the job's whole life, from which tries are computed. The limits on losses and releases read these counts instead: a
-- job that comes back often would reach any limit on a sum, in time. Jobs that were lost before this migration begin at 0.
ALTER TABLE rowlock.jobs_live
    ADD COLUMN losses_in_row integer NOT NULL DEFAULT 0,  -- attempts whose worker died; above 0 the job is a suspect
    ADD COLUMN probation integer NOT NULL DEFAULT 0,  -- attempts that have still to come back until a loss counts as a first one again
    ADD COLUMN sigterms_in_row integer NOT NULL DEFAULT 0,  -- releases because a SIGTERM from outside ended its child process
    ADD COLUMN disconnects_in_row integer NOT NULL DEFAULT 0;  -- releases because its transaction was rolled back: a broken connection, a full disk, a conflict

-- core/policy.py: decide. A holder's word is weighed as if nobody had asked for a cancel, of which it may not have heard;
-- then a job that is to be cancelled does not go back to waiting.
CREATE OR REPLACE FUNCTION rowlock._decide(j rowlock.jobs_live, e rowlock._ending, by_holder boolean) RETURNS rowlock._step
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s      rowlock._step;
    draw   double precision := CASE WHEN e.outcome <> 'succeeded' THEN rowlock._draw() END;
    used   integer := j.attempt - j.releases - j.losses;
    cancel boolean := j.cancel_requested_at IS NOT NULL;
BEGIN
    s.id := j.id;
    s.token := e.token;
    s.outcome := e.outcome;
    s.delay := 0;
    s.released := 0;
    s.lost := 0;
    s.convicted := 0;
    s.error_code := e.error_code;
    s.error_message := e.error_message;
    s.attempt := j.attempt;
    s.worker := j.locked_by;
    s.locked_at := j.locked_at;
    s.source := j.source;
    s.source_epoch := coalesce(j.source_epoch, 0);
    s.batch_id := j.batch_id;
    s.unique_mode := j.unique_mode;
    CASE e.outcome
        WHEN 'succeeded' THEN
            s.state := 'succeeded';
            s.result := e.result;
            s.result_uri := coalesce(e.result_uri, j.result_uri);
            s.result_checksum := CASE WHEN e.result_uri IS NULL THEN j.result_checksum ELSE e.result_checksum END;
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
            s.state := 'cancelled';
            s.error_code := 'CANCELLED';
            s.error_message := NULL;
        WHEN 'lost' THEN
            -- A holder says it of a job whose child process died, which convicts the job; the sweep of one whose worker
            -- stopped beating.
            s.lost := 1;
            s.convicted := CAST(by_holder AS integer);
            s.error_code := CASE WHEN by_holder THEN 'CHILD_DIED' ELSE 'WORKER_LOST' END;
            s.error_message := coalesce(
                e.error_message,
                CASE WHEN by_holder
                     THEN format('attempt %s ended with the death of its quarantine process', j.attempt)
                     ELSE format('%s stopped beating during attempt %s', j.locked_by, j.attempt) END);
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
        s.state := 'cancelled';
        s.outcome := 'cancelled';
        s.delay := 0;
        s.error_code := 'CANCELLED';
        s.error_message := NULL;
        s.released := 0;
        s.lost := 0;
        s.convicted := 0;
        s.fault := NULL;
        s.retry_after := NULL;
    END IF;
    s.follow_up := CASE s.state WHEN 'succeeded' THEN j.on_success WHEN 'dead' THEN j.on_dead END;
    RETURN s;
END;
$$;

-- End attempts under the fence. Answers for each: applied, duplicate (this very token has settled it already) or lost.
CREATE OR REPLACE FUNCTION rowlock._settle(ends rowlock._ending[], by_holder boolean) RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at    timestamptz := rowlock._clock();
    steps rowlock._step[];
    part  rowlock._step[];
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
        WHERE s.outcome <> 'succeeded' AND s.attempt > 0
        ON CONFLICT (job_id, attempt) DO NOTHING;

        part := ARRAY(SELECT s FROM unnest(steps) s WHERE s.state IN ('queued', 'retryable'));
        IF cardinality(part) > 0 THEN
            -- Only the holder's own token is left behind: a zombie whose lease was ended must be told `lost`.
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
                progress = NULL, phase = NULL, message = NULL, result_uri = NULL, result_checksum = NULL, updated_at = at
            FROM unnest(part) s
            WHERE j.id = s.id AND j.id = ANY (ARRAY(SELECT p.id FROM unnest(part) p));
        END IF;
        part := ARRAY(SELECT s FROM unnest(steps) s WHERE s.state NOT IN ('queued', 'retryable'));
        IF cardinality(part) > 0 THEN
            PERFORM rowlock._finish(part, by_holder);
        END IF;
        IF EXISTS (SELECT 1 FROM unnest(steps) s
                   WHERE s.source IS NOT NULL
                     AND (s.state = 'succeeded' OR s.fault IS NOT NULL OR s.retry_after IS NOT NULL)) THEN
            PERFORM rowlock._tell_sources(steps);
        END IF;
    END IF;
    RETURN QUERY
        SELECT e.job_id,
               CASE WHEN s.id IS NOT NULL THEN 'applied'
                    WHEN EXISTS (SELECT 1 FROM rowlock.jobs_live j WHERE j.id = e.job_id AND j.settled_token = e.token)
                      OR EXISTS (SELECT 1 FROM rowlock.jobs_finished f
                                 WHERE f.id = e.job_id AND f.settled_token = e.token) THEN 'duplicate'
                    ELSE 'lost' END
        FROM unnest(ends) e LEFT JOIN unnest(steps) s ON s.id = e.job_id AND s.token = e.token;
END;
$$;
