-- As before, for rowlock.enqueue with its options as one JSON object.

CREATE OR REPLACE FUNCTION coins.add_scrape_job() RETURNS trigger LANGUAGE plpgsql AS $$
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
    NEW.id := rowlock.enqueue('coins.scrape', args, jsonb_build_object(
        'queue', 'coins',
        'source', 'api:' || NEW.source_id,
        'max_attempts', 8,
        'backoff', jsonb '{"kind": "exponential", "base": 300.0, "cap": 86400.0, "factor": 2.0}',
        'timeout_seconds', 60));
    NEW.status := 'pending';
    RETURN NEW;
END;
$$;
