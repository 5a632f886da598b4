-- The largest id of an event that was deleted: a client that has read less must reload its jobs. The ids of the events that
-- are left do not tell on PostgreSQL, because a transaction that rolls back leaves a gap as well.
CREATE TABLE rowlock_deleted_events (
    one     INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    last_id INTEGER NOT NULL
);
INSERT INTO rowlock_deleted_events (one, last_id) SELECT 1, min(id) - 1 FROM rowlock_events HAVING min(id) > 1;

CREATE TRIGGER rowlock_events_deleted AFTER DELETE ON rowlock_events
BEGIN
    INSERT INTO rowlock_deleted_events (one, last_id) VALUES (1, OLD.id)
    ON CONFLICT (one) DO UPDATE SET last_id = max(last_id, excluded.last_id);
END;
