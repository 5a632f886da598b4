-- SQL functions in a transaction whose isolation level is above READ COMMITTED. There every statement has the snapshot of
-- the first one, so what is read after a lock was taken may be older than the lock. What the functions write under the
-- fence is safe: PostgreSQL ends such a transaction with a serialization failure (40001) if the row has changed since.
-- What they count is not. rowlock.claim refuses such a transaction; so does, from here on, an enqueue into a batch, and
-- the functions that end jobs leave the end of their batches to the next sweep (rowlock._end_batches, migration 0037).

-- Refuse a transaction whose snapshot may be older than the locks that `what` needs.
CREATE FUNCTION rowlock._require_read_committed(what text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        PERFORM rowlock._refuse(
            format('%s: the transaction is %s', what, current_setting('transaction_isolation')),
            'Call it under READ COMMITTED: what it counts must be younger than its locks.');
    END IF;
END;
$$;

-- Count new jobs into a batch, if it takes any: from outside until it is sealed, from its own jobs until it ends. Under an
-- old snapshot a batch that has been sealed since would look open: its row is locked against changes of its key alone.
CREATE OR REPLACE FUNCTION rowlock._join_batch(doing text, batch uuid, number integer, own boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    this record;
BEGIN
    PERFORM rowlock._require_read_committed(format('%s: batch_id', doing));
    -- Not against others that add, nor against a claim that starts the batch: this transaction may stay open for long.
    SELECT b.name, b.sealed_at, b.finished_at, b.cancelled_at IS NOT NULL AND b.reopened_at IS NULL AS cancelled INTO this
    FROM rowlock.batches b WHERE b.id = batch
    FOR KEY SHARE;
    IF this.name IS NULL THEN
        PERFORM rowlock._refuse(format('%s: there is no batch %s', doing, batch), 'Give the id of an open batch.', 'RL004');
    ELSIF this.finished_at IS NOT NULL OR this.cancelled THEN
        PERFORM rowlock._refuse(
            format('%s: batch %s (%s) %s: no job was added', doing, quote_literal(this.name), batch,
                   CASE WHEN this.finished_at IS NULL THEN 'is cancelled' ELSE 'has ended' END),
            'Make a new batch.', 'RL004');
    ELSIF this.sealed_at IS NOT NULL AND NOT own THEN
        PERFORM rowlock._refuse(
            format('%s: batch %s (%s) is sealed', doing, quote_literal(this.name), batch),
            'Only its own running jobs may add to it: give {"under": {"job_id": …, "token": …}}.', 'RL004');
    END IF;
    -- In rows of their own: settles must not wait for this transaction.
    INSERT INTO rowlock.batch_counts (batch_id, shard, total)
    VALUES (batch, 16 + floor(random() * 16), number)
    ON CONFLICT (batch_id, shard) DO UPDATE SET total = batch_counts.total + excluded.total;
END;
$$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA rowlock FROM PUBLIC;
DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT r.rolname FROM pg_roles r WHERE r.rolname IN ('rowlock_enqueue', 'rowlock_worker', 'rowlock_admin')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION rowlock._require_read_committed TO %I', role);
    END LOOP;
END $$;
