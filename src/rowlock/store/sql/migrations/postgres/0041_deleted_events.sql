-- The largest id of an event that was deleted: a client that has read less must reload its jobs. The ids of the events that
-- are left do not tell, because a transaction that rolls back leaves a gap as well. A trigger writes it, whoever deletes.
CREATE TABLE rowlock.deleted_events (
    one     boolean PRIMARY KEY DEFAULT TRUE CHECK (one),
    last_id bigint  NOT NULL
);
INSERT INTO rowlock.deleted_events (last_id) SELECT min(id) - 1 FROM rowlock.events HAVING min(id) > 1;

CREATE FUNCTION rowlock.tell_deleted_events() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO rowlock.deleted_events AS known (last_id)
    SELECT max(gone.id) FROM gone HAVING max(gone.id) IS NOT NULL
    ON CONFLICT (one) DO UPDATE SET last_id = greatest(known.last_id, excluded.last_id);
    RETURN NULL;
END $$;

CREATE TRIGGER events_deleted AFTER DELETE ON rowlock.events
REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT
EXECUTE FUNCTION rowlock.tell_deleted_events();
