-- What a job and its attempts tell observers: the span that created the job (a W3C traceparent; none unless traces are
-- switched on), and the traceback of each attempt that failed.
ALTER TABLE rowlock.jobs_live ADD COLUMN traceparent text;
ALTER TABLE rowlock.jobs_finished ADD COLUMN traceparent text;
ALTER TABLE rowlock.attempts ADD COLUMN traceback text;

-- The functions learn the option by edits of their texts: whole, they would hide what is new in 300 lines.
CREATE FUNCTION rowlock._edit(which regprocedure, was text, becomes text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    text_now text := pg_get_functiondef(which);
BEGIN
    IF strpos(text_now, was) = 0 THEN
        RAISE EXCEPTION 'migration 0023: % does not have the text %', which, was;
    END IF;
    EXECUTE replace(text_now, was, becomes);
END;
$$;

-- rowlock.enqueue takes it, checked by its form.
SELECT rowlock._edit('rowlock._options(text, jsonb)', $was$
            ELSE
                PERFORM rowlock._refuse($was$, $becomes$
            WHEN 'traceparent' THEN
                IF coalesce(plain !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$', TRUE) THEN
                    wanted := 'a W3C traceparent, like "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"';
                END IF;
            ELSE
                PERFORM rowlock._refuse($becomes$);
SELECT rowlock._edit('rowlock._options(text, jsonb)', 'run_after, expires_at; for', 'run_after, expires_at, traceparent; for');

-- The row of a new job has it.
SELECT rowlock._edit('rowlock._insert(text, jsonb, rowlock._new_row[])',
    'expires_at, created_at, updated_at)', 'expires_at, traceparent, created_at, updated_at)');
SELECT rowlock._edit('rowlock._insert(text, jsonb, rowlock._new_row[])',
    $$CAST(o ->> 'expires_at' AS timestamptz), at, at$$,
    $$CAST(o ->> 'expires_at' AS timestamptz), o ->> 'traceparent', at, at$$);

-- A job keeps it when it ends.
SELECT rowlock._edit('rowlock._finish(rowlock._step[], boolean)',
    'last_worker, created_at,', 'last_worker, traceparent, created_at,');
SELECT rowlock._edit('rowlock._finish(rowlock._step[], boolean)',
    $$g.locked_by,
           g.created_at,$$,
    $$g.locked_by,
           g.traceparent, g.created_at,$$);

DROP FUNCTION rowlock._edit(regprocedure, text, text);
