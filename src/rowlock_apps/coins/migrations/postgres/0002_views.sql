-- The document's own tables, columns and words: SET search_path = coins, public. Read-only, but for new scrape jobs.

CREATE SCHEMA coins;

CREATE VIEW coins.coin_intakes AS
SELECT id, year, mintmark, denomination, series, title, created_at, priced_at
FROM coins_intakes;

-- A market that no job has met yet has no row in the engine's table: it is enabled, and nothing is known against it.
CREATE VIEW coins.sources AS
SELECT s.id, s.name, s.url,
       coalesce(e.enabled, true) AND coalesce(c.enabled, true)               AS enabled,
       coalesce(e.failure_streak, 0)                                         AS failure_streak,
       e.last_success_at, e.last_failure_at,
       greatest(e.paused_until, c.paused_until)                              AS paused_until,
       coalesce(e.rate_limit_per_minute, c.rate_limit_per_minute)            AS rate_limit_per_minute,
       s.created_at
FROM coins_sources s
LEFT JOIN rowlock.sources e ON e.name = 'api:' || s.id
LEFT JOIN rowlock.sources c ON c.name = 'api';

CREATE VIEW coins.scrape_jobs AS
SELECT id,
       CAST(args ->> 'intake_id' AS bigint)                                  AS intake_id,
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

CREATE VIEW coins.price_points AS
SELECT intake_id, source_id, dedupe_key, external_id, url, title,
       price_cents / 100.0                                                   AS price,
       price_cents, currency, price_type,
       CAST(listed_on AS date)                                               AS listed_on,
       match_strength, created_at, updated_at
FROM coins_price_points;

CREATE VIEW coins.valuations AS
SELECT intake_id,
       value_cents / 100.0                                                   AS value,
       low_cents / 100.0                                                     AS low,
       high_cents / 100.0                                                    AS high,
       currency, basis, points, valued_at
FROM coins_valuations;

-- A new scrape job. What `coins.scrape` says in Python about its queue, tries, backoff and timeout is said here again; a
-- test compares the two.
CREATE FUNCTION coins.add_scrape_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    params jsonb := coalesce(NEW.query_params, '{}');
    args   jsonb := jsonb_build_object('intake_id', NEW.intake_id, 'source_id', NEW.source_id);
BEGIN
    IF coalesce(NEW.status, 'pending') <> 'pending' THEN
        RAISE EXCEPTION 'coins.scrape_jobs: a new job is pending, not %; workers change its status',
            quote_literal(NEW.status) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF num_nonnulls(NEW.id, NEW.locked_by, NEW.locked_at, NEW.heartbeat_at, NEW.attempts, NEW.next_retry_at,
                    NEW.created_at, NEW.completed_at, NEW.error_message) > 0 THEN
        RAISE EXCEPTION 'coins.scrape_jobs: give intake_id, source_id, query_params and status only'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM coins.coin_intakes i WHERE i.id = NEW.intake_id) THEN
        RAISE EXCEPTION 'coins.scrape_jobs: no intake %; see SELECT id FROM coins.coin_intakes',
            coalesce(CAST(NEW.intake_id AS text), 'NULL') USING ERRCODE = 'foreign_key_violation';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM coins.sources s WHERE s.id = NEW.source_id) THEN
        RAISE EXCEPTION 'coins.scrape_jobs: no source %; see SELECT id FROM coins.sources',
            quote_nullable(NEW.source_id) USING ERRCODE = 'foreign_key_violation';
    END IF;
    IF jsonb_typeof(params) <> 'object' THEN
        RAISE EXCEPTION 'coins.scrape_jobs: query_params must be a JSON object, not %', params
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF EXISTS (SELECT 1 FROM jsonb_each(params) p WHERE jsonb_typeof(p.value) NOT IN ('string', 'number')) THEN
        RAISE EXCEPTION 'coins.scrape_jobs: query_params must have texts and numbers as values, not %', params
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF params <> '{}' THEN
        args := args || jsonb_build_object('query_params', params);
    END IF;
    NEW.id := rowlock.enqueue(
        task            => 'coins.scrape',
        args            => args,
        queue           => 'coins',
        source          => 'api:' || NEW.source_id,
        max_attempts    => 8,
        backoff         => '{"kind": "exponential", "base": 300.0, "cap": 86400.0, "factor": 2.0}',
        timeout_seconds => 60);
    NEW.status := 'pending';
    RETURN NEW;
END;
$$;

-- Everything else is refused, with what to do instead as the trigger's argument.
CREATE FUNCTION coins.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'coins.%: % is refused; %', TG_TABLE_NAME, TG_OP, TG_ARGV[0]
        USING ERRCODE = 'feature_not_supported';
END;
$$;

CREATE TRIGGER add_job INSTEAD OF INSERT ON coins.scrape_jobs
    FOR EACH ROW EXECUTE FUNCTION coins.add_scrape_job();
CREATE TRIGGER refuse INSTEAD OF UPDATE OR DELETE ON coins.scrape_jobs
    FOR EACH ROW EXECUTE FUNCTION coins.refuse('use: rowlock jobs cancel ID, rowlock jobs retry ID');
CREATE TRIGGER refuse INSTEAD OF INSERT OR UPDATE OR DELETE ON coins.coin_intakes
    FOR EACH ROW EXECUTE FUNCTION coins.refuse('use: python -m rowlock_apps.coins submit');
CREATE TRIGGER refuse INSTEAD OF INSERT OR UPDATE OR DELETE ON coins.sources
    FOR EACH ROW EXECUTE FUNCTION coins.refuse('use: python -m rowlock_apps.coins market, rowlock sources set|pause|resume');
CREATE TRIGGER refuse INSTEAD OF INSERT OR UPDATE OR DELETE ON coins.price_points
    FOR EACH ROW EXECUTE FUNCTION coins.refuse('price points are written by scrape jobs only');
CREATE TRIGGER refuse INSTEAD OF INSERT OR UPDATE OR DELETE ON coins.valuations
    FOR EACH ROW EXECUTE FUNCTION coins.refuse('valuations are written by scrape jobs only');
