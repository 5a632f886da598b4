-- The table `jobs` of the system that this replaces, to read: SET search_path = stickers, and its queries run as written.

CREATE SCHEMA IF NOT EXISTS stickers;

-- A part for each word: a query for one of them reads the tables that can have it, and no other.
CREATE VIEW stickers.jobs AS
SELECT id, owner AS user_id, args ->> 'prompt' AS prompt, 'queued' AS status,
       NULL::text AS worker_id, NULL::timestamptz AS started_at, NULL::timestamptz AS completed_at,
       NULL::text AS error, NULL::text AS image, attempt, created_at
FROM stickers_jobs
WHERE state IN ('queued', 'retryable')
UNION ALL
SELECT id, owner, args ->> 'prompt', 'processing',
       locked_by, started_at, NULL,
       NULL, NULL, attempt, created_at
FROM stickers_jobs
WHERE state = 'running'
UNION ALL
SELECT id, owner, args ->> 'prompt', 'done',
       locked_by, started_at, finished_at,
       NULL, result ->> 'path', attempt, created_at
FROM stickers_jobs
WHERE state = 'succeeded'
UNION ALL
SELECT id, owner, args ->> 'prompt', 'error',
       locked_by, started_at, finished_at,
       coalesce(split_part(error_message, E'\n', 1), error_code), NULL, attempt, created_at
FROM stickers_jobs
WHERE state IN ('dead', 'cancelled');

CREATE FUNCTION stickers.refuse_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'stickers.jobs only shows the jobs; % is refused', TG_OP
        USING ERRCODE = 'feature_not_supported',
              DETAIL = CASE TG_OP
                  WHEN 'INSERT' THEN 'A job is ordered, and paid for, by rowlock_apps.stickers.shop.submit().'
                  ELSE 'The job of a dead worker goes back to the queue by itself when its lease runs out '
                       '(worker.lease_seconds). By age alone a live worker would lose its job and it would run twice.'
              END,
              HINT = 'By hand: rowlock jobs retry ID, rowlock jobs cancel ID, rowlock jobs explain ID.';
END
$$;

-- The first makes the view writable in the eyes of PostgreSQL; the second refuses also what would match no row.
CREATE TRIGGER refuse_rows INSTEAD OF INSERT OR UPDATE OR DELETE ON stickers.jobs
    FOR EACH ROW EXECUTE FUNCTION stickers.refuse_write();
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON stickers.jobs
    FOR EACH STATEMENT EXECUTE FUNCTION stickers.refuse_write();
