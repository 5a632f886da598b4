-- The roles of `rowlock migrate --roles` get what they need and no more (store/engine/roles.py). A role that was made before is
-- narrowed here; nothing else changes where there are no such roles.

-- Who cannot read the tokens in the tables sees NULL in the view: with a token, anybody could end the job in its worker's
-- place. has_column_privilege asks for the role that reads the view, whoever owns it.
DO $$
DECLARE
    options text[] := (SELECT c.reloptions FROM pg_class c WHERE c.oid = 'rowlock.jobs'::regclass);
    option  text;
BEGIN
    CREATE OR REPLACE VIEW rowlock.jobs AS
    SELECT id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick,
           attempt, max_attempts, releases, losses, backoff, timeout_seconds, run_after, expires_at,
           CASE WHEN has_column_privilege('rowlock.jobs_live', 'lease_token', 'SELECT') THEN lease_token END AS lease_token,
           locked_by, locked_at, heartbeat_at, lease_expires_at,
           CASE WHEN has_column_privilege('rowlock.jobs_live', 'settled_token', 'SELECT') THEN settled_token END
               AS settled_token,
           cancel_requested_at, progress, phase, message, NULL::json AS result, result_uri,
           result_checksum, error_code, error_message, created_at, started_at,
           NULL::timestamptz AS finished_at, updated_at
    FROM rowlock.jobs_live
    UNION ALL
    SELECT id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick,
           attempt, max_attempts, releases, losses, backoff, timeout_seconds, run_after, expires_at,
           NULL::uuid, last_worker, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz,
           CASE WHEN has_column_privilege('rowlock.jobs_finished', 'settled_token', 'SELECT') THEN settled_token END,
           cancel_requested_at, progress, phase, message, result, result_uri,
           result_checksum, error_code, error_message, created_at, started_at,
           finished_at, updated_at
    FROM rowlock.jobs_finished;
    -- CREATE OR REPLACE forgets the options of a view. An operator may have set security_invoker.
    FOREACH option IN ARRAY coalesce(options, '{}') LOOP
        EXECUTE format('ALTER VIEW rowlock.jobs SET (%s = %L)', split_part(option, '=', 1), split_part(option, '=', 2));
    END LOOP;
END $$;

-- Whether a source is tried out by a job that runs. That compares tokens, which a reader may not see.
CREATE FUNCTION rowlock._probes(source text, at timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM rowlock.sources s JOIN rowlock.jobs_live j ON j.id = s.probe_job
        WHERE s.name = _probes.source AND j.lease_token = s.probe_token AND j.state = 'running'
          AND (SELECT 1 FROM rowlock.set_aside a
               WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL);
END;
$$;
REVOKE EXECUTE ON FUNCTION rowlock._probes FROM PUBLIC;

DO $$
DECLARE
    shown     text;
    tokens_in regclass;
    role      text;
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'rowlock_read') THEN
        FOREACH tokens_in IN ARRAY ARRAY['rowlock.jobs_live', 'rowlock.jobs_finished', 'rowlock.sources']::regclass[] LOOP
            SELECT string_agg(quote_ident(a.attname), ', ') INTO shown FROM pg_attribute a
            WHERE a.attrelid = tokens_in AND a.attnum > 0 AND NOT a.attisdropped
              AND a.attname NOT IN ('lease_token', 'settled_token', 'probe_token');
            EXECUTE format('REVOKE SELECT ON %s FROM rowlock_read', tokens_in);
            EXECUTE format('GRANT SELECT (%s) ON %s TO rowlock_read', shown, tokens_in);
        END LOOP;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'rowlock_enqueue') THEN
        -- Keys and ids are behind functions of migration 0037.
        REVOKE ALL ON rowlock.job_keys, rowlock.jobs_live, rowlock.jobs_finished FROM rowlock_enqueue;
        GRANT INSERT (
            id, args, source, unique_key, task, ready, run_after, queue, priority, max_attempts, backoff, timeout_seconds,
            on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id, unique_mode, expires_at, traceparent,
            parent_id, created_at, updated_at) ON rowlock.jobs_live TO rowlock_enqueue;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'rowlock_worker') THEN
        REVOKE INSERT ON rowlock.job_keys FROM rowlock_worker;
    END IF;
    FOR role IN SELECT r.rolname FROM pg_roles r WHERE r.rolname IN ('rowlock_read', 'rowlock_worker', 'rowlock_admin')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION rowlock._probes TO %I', role);
    END LOOP;
END $$;

-- For databases with row level security on jobs_live (docs/how-to/supabase.md has the trigger that calls it; no other
-- database pays for it). Keys and ids are held by functions that anybody who may enqueue can call, also for a key of
-- somebody else. At the end of the transaction there must be a job that has the key or id: the policies admitted that job.
CREATE FUNCTION rowlock.refuse_loose_key() RETURNS trigger
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
            format('enqueue: key %s is held for job %s, which there is not or which has another key', NEW.key, NEW.job_id),
            'Call rowlock.enqueue.');
    END IF;
    RETURN NULL;
END;
$$;
REVOKE EXECUTE ON FUNCTION rowlock.refuse_loose_key FROM PUBLIC;
