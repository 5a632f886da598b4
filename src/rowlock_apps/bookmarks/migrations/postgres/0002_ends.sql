-- When an import began, kept like its end: it is asked for also when the batch is forgotten.
ALTER TABLE bookmarks_imports ADD COLUMN started_at timestamptz;

-- While the batch is there its counters are the truth: what this import had no job for is processed as soon as it is
-- read, the rest when its job has ended. Afterwards, what the batch left. An import has a last error as long as a link of
-- it is dead.
CREATE OR REPLACE VIEW bookmarks.import_jobs AS
SELECT i.id,
       i.user_id,
       i.source_type,
       CASE coalesce(b.state, i.state) WHEN 'cancelled' THEN 'canceled' ELSE coalesce(b.state, i.state) END AS status,
       i.total_items,
       CASE WHEN b.id IS NULL THEN i.processed_items ELSE CAST(i.without_job + n.processed AS integer) END
           AS processed_items,
       CASE WHEN b.id IS NULL THEN i.failed_items ELSE CAST(n.failed AS integer) END AS failed_items,
       i.created_at,
       CASE WHEN b.id IS NULL THEN i.started_at ELSE b.started_at END AS started_at,
       CASE WHEN b.id IS NULL THEN i.finished_at ELSE b.finished_at END AS finished_at,
       split_part(CASE WHEN b.id IS NULL THEN i.last_error WHEN n.failed > 0 THEN n.last_error END, E'\n', 1)
           AS last_error
FROM bookmarks_imports i
LEFT JOIN rowlock.batches b ON b.id = i.id
LEFT JOIN LATERAL (
    SELECT coalesce(sum(c.processed), 0) AS processed,
           coalesce(sum(c.failed), 0) AS failed,
           (array_agg(c.last_error ORDER BY c.last_error_at DESC) FILTER (WHERE c.last_error IS NOT NULL))[1] AS last_error
    FROM rowlock.batch_counts c
    WHERE c.batch_id = i.id
) n ON true;

-- One row for each link: its newest job. `failed` waits for its next try; a cancelled job is as dead as a dead one. A job
-- that somebody has made by hand of what is no link is not shown: it must not hide the others behind an error.
CREATE OR REPLACE VIEW bookmarks.enrichment_jobs AS
SELECT DISTINCT ON (link_canonical_id)
       j.id,
       CASE WHEN j.args ->> 'link_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
            THEN CAST(j.args ->> 'link_id' AS uuid) END AS link_canonical_id,
       CASE j.state WHEN 'retryable' THEN 'failed' WHEN 'cancelled' THEN 'dead' ELSE j.state END AS status,
       j.attempt AS attempts,
       j.max_attempts,
       j.run_after,
       j.locked_at,
       j.locked_by,
       split_part(j.error_message, E'\n', 1) AS last_error,
       j.created_at,
       j.updated_at
FROM rowlock.jobs j
WHERE j.task = 'bookmarks.enrich'
  AND j.args ->> 'link_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
ORDER BY link_canonical_id, j.id DESC;

-- Also what would match no row is refused: it would look as if it had been done.
CREATE TRIGGER read_only_statement BEFORE INSERT OR UPDATE OR DELETE ON bookmarks.import_jobs
    FOR EACH STATEMENT EXECUTE FUNCTION bookmarks.read_only();
CREATE TRIGGER read_only_statement BEFORE INSERT OR UPDATE OR DELETE ON bookmarks.enrichment_jobs
    FOR EACH STATEMENT EXECUTE FUNCTION bookmarks.read_only();
