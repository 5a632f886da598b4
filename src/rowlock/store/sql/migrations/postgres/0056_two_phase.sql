-- rowlock.wakeups = off: no NOTIFY, with which PostgreSQL refuses PREPARE TRANSACTION. The function that inserts jobs learns
-- it by an edit of its text, as in 0023.
DO $do$
DECLARE
    which regprocedure := 'rowlock._insert(text, jsonb, rowlock._new_row[])';
    was text := 'WHERE EXISTS (SELECT 1 FROM rowlock.workers w WHERE w.idle AND w.expires_at > at);';
BEGIN
    IF strpos(pg_get_functiondef(which), was) = 0 THEN
        RAISE EXCEPTION 'migration 0056: % does not have the text %', which, was;
    END IF;
    EXECUTE replace(pg_get_functiondef(which), was, rtrim(was, ';') || $becomes$
      AND current_setting('rowlock.wakeups', TRUE) IS DISTINCT FROM 'off';$becomes$);
END;
$do$;
