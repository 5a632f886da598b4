-- Views that answer whatever jobs somebody has made, and that refuse every write out loud.

-- A job made by hand may have anything as its intake: it is shown without one, and does not hide the others behind an error.
CREATE OR REPLACE VIEW coins.scrape_jobs AS
SELECT id,
       CASE WHEN args ->> 'intake_id' ~ '^[0-9]{1,18}$' THEN CAST(args ->> 'intake_id' AS bigint) END AS intake_id,
       args ->> 'source_id'                                                  AS source_id,
       coalesce(CAST(args -> 'query_params' AS jsonb), '{}')                 AS query_params,
       CASE WHEN state = 'queued' THEN 'pending'
            WHEN state = 'retryable' AND error_code = 'WORKER_LOST' THEN 'pending'    -- taken back from a dead worker
            WHEN state IN ('dead', 'cancelled') THEN 'failed'
            ELSE state
       END                                                                   AS status,
       locked_by, locked_at, heartbeat_at,
       attempt                                                               AS attempts,
       CASE WHEN state = 'retryable' THEN run_after END                      AS next_retry_at,
       created_at,
       finished_at                                                           AS completed_at,
       error_message
FROM rowlock.jobs
WHERE task = 'coins.scrape';

-- Also what would match no row is refused: it would look as if it had been done.
CREATE TRIGGER refuse_statement BEFORE UPDATE OR DELETE ON coins.scrape_jobs
    FOR EACH STATEMENT EXECUTE FUNCTION coins.refuse('use: rowlock jobs cancel ID, rowlock jobs retry ID');
CREATE TRIGGER refuse_statement BEFORE INSERT OR UPDATE OR DELETE ON coins.coin_intakes
    FOR EACH STATEMENT EXECUTE FUNCTION coins.refuse('use: python -m rowlock_apps.coins submit');
CREATE TRIGGER refuse_statement BEFORE INSERT OR UPDATE OR DELETE ON coins.sources
    FOR EACH STATEMENT EXECUTE FUNCTION coins.refuse('use: python -m rowlock_apps.coins market, rowlock sources set|pause|resume');
CREATE TRIGGER refuse_statement BEFORE INSERT OR UPDATE OR DELETE ON coins.price_points
    FOR EACH STATEMENT EXECUTE FUNCTION coins.refuse('price points are written by scrape jobs only');
CREATE TRIGGER refuse_statement BEFORE INSERT OR UPDATE OR DELETE ON coins.valuations
    FOR EACH STATEMENT EXECUTE FUNCTION coins.refuse('valuations are written by scrape jobs only');
