-- The job that made a job: the one whose handler enqueued it, or whose end made it (a follow-up). And of a batch: the job
-- whose handler made it, and the job that its end made (`on_end`). Most jobs have no parent, and NULL costs them nothing:
-- the indexes, which the pages of a job and of a batch read, leave them out.
ALTER TABLE rowlock.jobs_live ADD COLUMN parent_id uuid;
ALTER TABLE rowlock.jobs_finished ADD COLUMN parent_id uuid;
ALTER TABLE rowlock.batches ADD COLUMN parent_id uuid, ADD COLUMN end_job uuid;
CREATE INDEX jobs_live_parent ON rowlock.jobs_live (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX jobs_finished_parent ON rowlock.jobs_finished (parent_id, id) WHERE parent_id IS NOT NULL;

-- Functions whose texts are long learn of it by edits, as in 0023.
CREATE FUNCTION rowlock._edit(which regprocedure, was text, becomes text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    text_now text := pg_get_functiondef(which);
BEGIN
    IF strpos(text_now, was) = 0 THEN
        RAISE EXCEPTION 'migration 0034: % does not have the text %', which, was;
    END IF;
    EXECUTE replace(text_now, was, becomes);
END;
$$;

-- rowlock.enqueue takes it; a job that is made under the lease of another is a child of that one.
SELECT rowlock._edit('rowlock._options(text, jsonb)', $was$
            WHEN 'unique' THEN$was$, $becomes$
            WHEN 'parent_id' THEN
                IF rowlock._uuid(plain) IS NULL THEN
                    wanted := 'the id of the job that makes it, a UUID';
                END IF;
            WHEN 'unique' THEN$becomes$);
SELECT rowlock._edit('rowlock._options(text, jsonb)', 'expires_at, traceparent; for', 'expires_at, traceparent, parent_id; for');
SELECT rowlock._edit('rowlock._enqueue(text, text, jsonb, jsonb)',
    'inside := mine IS NOT NULL', $$o := jsonb_build_object('parent_id', own ->> 'job_id') || o;
        inside := mine IS NOT NULL$$);

-- The row of a new job has it.
SELECT rowlock._edit('rowlock._insert(text, jsonb, rowlock._new_row[])',
    'expires_at, traceparent, created_at, updated_at)', 'expires_at, traceparent, parent_id, created_at, updated_at)');
SELECT rowlock._edit('rowlock._insert(text, jsonb, rowlock._new_row[])',
    $$o ->> 'traceparent', at, at$$, $$o ->> 'traceparent', CAST(o ->> 'parent_id' AS uuid), at, at$$);

-- A job keeps it when it ends.
SELECT rowlock._edit('rowlock._finish(rowlock._step[], boolean)',
    'last_worker, traceparent, created_at,', 'last_worker, traceparent, parent_id, created_at,');
SELECT rowlock._edit('rowlock._finish(rowlock._step[], boolean)',
    'g.traceparent, g.created_at,', 'g.traceparent, g.parent_id, g.created_at,');
-- The success of many forgot the traceparent, too.
SELECT rowlock._edit('rowlock.complete_many(jsonb)',
    'last_worker, created_at,', 'last_worker, traceparent, parent_id, created_at,');
SELECT rowlock._edit('rowlock.complete_many(jsonb)',
    'h.locked_by, h.created_at,', 'h.locked_by, h.traceparent, h.parent_id, h.created_at,');

DROP FUNCTION rowlock._edit(regprocedure, text, text);

-- The follow-up of a finished job, or of a batch. One that cannot be understood was written by another program; the job
-- ends all the same. Its parent is the finished job, or the job that made the batch.
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
