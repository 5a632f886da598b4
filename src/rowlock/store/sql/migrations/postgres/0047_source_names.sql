-- The name of a source has up to 200 characters, as its error says and as core/sources/policy.py has it: 199 were taken.
CREATE OR REPLACE FUNCTION rowlock._is_source(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(value ~ '^[^\s:\u0001-\u001f\u007f][^\u0001-\u001f\u007f]{0,199}$' AND value !~ ':$', FALSE)
$$;
