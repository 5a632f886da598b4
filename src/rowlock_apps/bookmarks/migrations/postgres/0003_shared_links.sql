-- An import ends when all of its links have ended, also those that the job of another import fetches.

ALTER TABLE bookmarks_imports ADD COLUMN canceled_at timestamptz;  -- when its own jobs were over, but not its shared links
ALTER TABLE bookmarks_imports ADD COLUMN encoding text;
ALTER TABLE bookmarks_imports ADD COLUMN replaced_characters integer NOT NULL DEFAULT 0;  -- bytes that the encoding has no character for

-- A link that an import has no job for, because the job of somebody else was fetching it. `outcome` is how that ended;
-- a link whose job was cancelled is as dead as one whose job died.
CREATE TABLE bookmarks_shared_links (
    import_id  uuid        NOT NULL,
    link_id    uuid        NOT NULL,
    job_id     uuid        NOT NULL,
    outcome    text        CHECK (outcome IN ('succeeded', 'dead', 'cancelled')),
    last_error text,
    ended_at   timestamptz,
    PRIMARY KEY (import_id, link_id),
    CHECK ((outcome IS NULL) = (ended_at IS NULL))
);
CREATE INDEX bookmarks_shared_links_link ON bookmarks_shared_links (link_id);

-- While the batch is there, an import is what its counters and its shared links say: bookmarks that wait for no job are
-- processed as soon as they are read, the others when their job has ended; a link whose job was cancelled is as dead as a
-- dead one. Afterwards, what was kept at the end; an import that waits for shared links for so long that its batch is
-- forgotten has nothing else left to wait for. An import has a last error as long as a link of it is dead.
CREATE OR REPLACE VIEW bookmarks.import_jobs AS
SELECT i.id,
       i.user_id,
       i.source_type,
       CASE WHEN b.id IS NULL AND i.state IS NOT NULL
            THEN CASE i.state WHEN 'cancelled' THEN 'canceled' ELSE i.state END
            WHEN n.batch_cancelled OR i.canceled_at IS NOT NULL THEN 'canceled'
            WHEN b.id IS NULL THEN CASE WHEN s.waiting > 0 THEN 'running' WHEN s.failed = 0 THEN 'succeeded' ELSE 'failed' END
            WHEN b.finished_at IS NULL THEN b.state
            WHEN s.waiting > 0 THEN 'running'
            WHEN b.state = 'succeeded' AND s.failed = 0 THEN 'succeeded'
            ELSE 'failed'
       END AS status,
       i.total_items,
       CAST(CASE WHEN b.id IS NULL THEN coalesce(i.processed_items, i.total_items - s.waiting)
                 ELSE i.without_job + n.processed + s.processed END AS integer) AS processed_items,
       CAST(CASE WHEN b.id IS NULL THEN coalesce(i.failed_items, s.failed)
                 ELSE n.failed + CASE WHEN n.batch_cancelled THEN 0 ELSE n.cancelled END + s.failed
            END AS integer) AS failed_items,
       i.created_at,
       CASE WHEN b.id IS NULL THEN i.started_at ELSE b.started_at END AS started_at,
       CASE WHEN b.id IS NULL THEN coalesce(i.finished_at, CASE WHEN s.waiting = 0 THEN s.ended_at END)
            WHEN i.canceled_at IS NOT NULL THEN i.canceled_at
            WHEN n.batch_cancelled OR s.waiting = 0 THEN CASE WHEN b.finished_at IS NOT NULL
                                                                  THEN greatest(b.finished_at, s.ended_at) END
       END AS finished_at,
       split_part(
           CASE WHEN b.id IS NULL THEN i.last_error
                WHEN n.failed > 0 AND s.failed > 0 AND s.failed_at > n.last_error_at THEN s.last_error
                WHEN n.failed > 0 THEN n.last_error
                WHEN s.failed > 0 THEN s.last_error
           END, E'\n', 1) AS last_error
FROM bookmarks_imports i
LEFT JOIN rowlock.batches b ON b.id = i.id
LEFT JOIN LATERAL (
    SELECT coalesce(sum(c.processed), 0) AS processed,
           coalesce(sum(c.failed), 0) AS failed,
           coalesce(sum(c.cancelled), 0) AS cancelled,
           b.state = 'cancelled' AND b.cancelled_at IS NOT NULL AS batch_cancelled,  -- as a whole, and not one link of it
           max(c.last_error_at) AS last_error_at,
           (array_agg(c.last_error ORDER BY c.last_error_at DESC) FILTER (WHERE c.last_error IS NOT NULL))[1] AS last_error
    FROM rowlock.batch_counts c
    WHERE c.batch_id = i.id
) n ON true
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE l.outcome IS NULL) AS waiting,
           count(*) FILTER (WHERE l.outcome IS NOT NULL) AS processed,
           count(*) FILTER (WHERE l.outcome <> 'succeeded') AS failed,
           max(l.ended_at) AS ended_at,
           max(l.ended_at) FILTER (WHERE l.outcome <> 'succeeded') AS failed_at,
           (array_agg(l.last_error ORDER BY l.ended_at DESC) FILTER (WHERE l.outcome <> 'succeeded'))[1] AS last_error
    FROM bookmarks_shared_links l
    WHERE l.import_id = i.id
) s ON true;

-- The names that these views have on SQLite, which has no schemas, too: the app's own SQL is the same on both.
CREATE VIEW bookmarks_import_jobs AS SELECT * FROM bookmarks.import_jobs;
CREATE VIEW bookmarks_enrichment_jobs AS SELECT * FROM bookmarks.enrichment_jobs;

-- Jobs that are not final, found by their id.
CREATE VIEW bookmarks_live_jobs AS SELECT id FROM rowlock.jobs_live;
