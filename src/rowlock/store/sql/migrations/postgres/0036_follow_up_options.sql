-- The follow-up of a finished job, or of a batch. One that cannot be understood was written by another program; the job
-- ends all the same. Its parent is the finished job, or the job that made the batch.
--
-- New: a follow-up without options in the row gets those that its task's worker has registered (store/jobs/follow_ups.py). A
-- program that names a task of another program does not know them, and they were dropped in silence.
CREATE OR REPLACE FUNCTION rowlock._add_follow_up(stored json, owner text, args jsonb, ended text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o     jsonb;
    other text;
    made  uuid;
    batch uuid := CAST(args #>> '{batch,batch_id}' AS uuid);  -- this and the next are written by the callers
    maker uuid := CAST(args #>> '{finished,job_id}' AS uuid);
BEGIN
    o := CAST(stored AS jsonb);
    IF NOT EXISTS (SELECT 1 FROM jsonb_object_keys(o) k WHERE k NOT IN ('task', 'bare')) THEN
        o := coalesce((SELECT CAST(t.options AS jsonb) FROM rowlock.tasks t WHERE t.name = o ->> 'task'), '{}') || o;
    END IF;
    SELECT min(k) INTO other FROM jsonb_object_keys(o) k
    WHERE k NOT IN ('task', 'bare', 'queue', 'priority', 'max_attempts', 'backoff', 'timeout_seconds', 'source',
                    'on_success', 'on_dead', 'on_lost', 'keep_seconds', 'owner', 'tags', 'batch_id', 'unique', 'window',
                    'delay', 'run_after', 'expires_at');
    IF other IS NOT NULL THEN
        RAISE EXCEPTION 'no option %', quote_ident(other);
    END IF;
    IF batch IS NOT NULL THEN
        SELECT b.parent_id INTO maker FROM rowlock.batches b WHERE b.id = batch;
    END IF;
    made := rowlock.new_id();
    PERFORM rowlock._insert(
        o ->> 'task',
        CASE WHEN owner IS NULL THEN o ELSE jsonb_build_object('owner', owner) || o END
            || jsonb_build_object('parent_id', maker),
        ARRAY[CAST(ROW(
            made, CAST(CASE WHEN o -> 'bare' = 'true' THEN '{}' ELSE args END AS json), NULL, o ->> 'source')
            AS rowlock._new_row)]);
    IF batch IS NOT NULL THEN
        UPDATE rowlock.batches b SET end_job = made WHERE b.id = batch;
    END IF;
EXCEPTION
    WHEN lock_not_available OR deadlock_detected OR query_canceled OR serialization_failure THEN
        RAISE;  -- nothing that the row has caused
    WHEN OTHERS THEN
        RAISE WARNING 'rowlock: % has a follow-up that cannot be understood, and gets none: %', ended, SQLERRM;
END;
$$;
