-- An import ends when all of its links have ended, also those that the job of another import fetches. And the document's
-- two tables as views, as on PostgreSQL; SQLite has no schemas, so `bookmarks.import_jobs` is `bookmarks_import_jobs`.

ALTER TABLE bookmarks_imports ADD COLUMN canceled_at text;  -- when its own jobs were over, but not its shared links
ALTER TABLE bookmarks_imports ADD COLUMN encoding text;
ALTER TABLE bookmarks_imports ADD COLUMN replaced_characters integer NOT NULL DEFAULT 0;  -- bytes that the encoding has no character for

-- A link that an import has no job for, because the job of somebody else was fetching it. `outcome` is how that ended;
-- a link whose job was cancelled is as dead as one whose job died.
CREATE TABLE bookmarks_shared_links (
    import_id  text NOT NULL,
    link_id    text NOT NULL,
    job_id     text NOT NULL,
    outcome    text CHECK (outcome IN ('succeeded', 'dead', 'cancelled')),
    last_error text,
    ended_at   text,
    PRIMARY KEY (import_id, link_id),
    CHECK ((outcome IS NULL) = (ended_at IS NULL))
) WITHOUT ROWID;
CREATE INDEX bookmarks_shared_links_link ON bookmarks_shared_links (link_id);

-- What the jobs of an import's batch, and the links that it shares, have come to so far.
CREATE VIEW bookmarks_import_counts AS
SELECT i.id AS import_id,
       b.id AS batch_id,
       b.state AS batch_state,
       b.state = 'cancelled' AND b.cancelled_at IS NOT NULL AS batch_cancelled,  -- as a whole, and not one link of it
       strftime('%Y-%m-%dT%H:%M:%fZ', b.started_at, 'unixepoch') AS started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', b.finished_at, 'unixepoch') AS finished_at,
       (SELECT coalesce(sum(c.processed), 0) FROM rowlock_batch_counts c WHERE c.batch_id = i.id) AS processed,
       (SELECT coalesce(sum(c.failed), 0) FROM rowlock_batch_counts c WHERE c.batch_id = i.id) AS failed,
       (SELECT coalesce(sum(c.cancelled), 0) FROM rowlock_batch_counts c WHERE c.batch_id = i.id) AS cancelled,
       (SELECT strftime('%Y-%m-%dT%H:%M:%fZ', max(c.last_error_at), 'unixepoch')
        FROM rowlock_batch_counts c WHERE c.batch_id = i.id) AS failed_at,
       (SELECT substr(c.last_error, 1, instr(c.last_error || char(10), char(10)) - 1)
        FROM rowlock_batch_counts c WHERE c.batch_id = i.id AND c.last_error IS NOT NULL
        ORDER BY c.last_error_at DESC LIMIT 1) AS last_error,
       (SELECT count(*) FROM bookmarks_shared_links s WHERE s.import_id = i.id AND s.outcome IS NULL) AS shared_waiting,
       (SELECT count(s.outcome) FROM bookmarks_shared_links s WHERE s.import_id = i.id) AS shared_processed,
       (SELECT count(*) FROM bookmarks_shared_links s WHERE s.import_id = i.id AND s.outcome <> 'succeeded') AS shared_failed,
       (SELECT max(s.ended_at) FROM bookmarks_shared_links s WHERE s.import_id = i.id) AS shared_ended_at,
       (SELECT max(s.ended_at) FROM bookmarks_shared_links s
        WHERE s.import_id = i.id AND s.outcome <> 'succeeded') AS shared_failed_at,
       (SELECT s.last_error FROM bookmarks_shared_links s WHERE s.import_id = i.id AND s.outcome <> 'succeeded'
        ORDER BY s.ended_at DESC LIMIT 1) AS shared_last_error
FROM bookmarks_imports i
LEFT JOIN rowlock_batches b ON b.id = i.id;

-- While the batch is there, an import is what its counters and its shared links say: bookmarks that wait for no job are
-- processed as soon as they are read, the others when their job has ended; a link whose job was cancelled is as dead as a
-- dead one. Afterwards, what was kept at the end; an import that waits for shared links for so long that its batch is
-- forgotten has nothing else left to wait for. An import has a last error as long as a link of it is dead.
CREATE VIEW bookmarks_import_jobs AS
SELECT i.id,
       i.user_id,
       i.source_type,
       CASE WHEN n.batch_id IS NULL AND i.state IS NOT NULL
            THEN CASE i.state WHEN 'cancelled' THEN 'canceled' ELSE i.state END
            WHEN n.batch_cancelled OR i.canceled_at IS NOT NULL THEN 'canceled'
            WHEN n.batch_id IS NULL THEN CASE WHEN n.shared_waiting > 0 THEN 'running'
                                              WHEN n.shared_failed = 0 THEN 'succeeded' ELSE 'failed' END
            WHEN n.finished_at IS NULL THEN n.batch_state
            WHEN n.shared_waiting > 0 THEN 'running'
            WHEN n.batch_state = 'succeeded' AND n.shared_failed = 0 THEN 'succeeded'
            ELSE 'failed'
       END AS status,
       i.total_items,
       CASE WHEN n.batch_id IS NULL THEN coalesce(i.processed_items, i.total_items - n.shared_waiting)
            ELSE i.without_job + n.processed + n.shared_processed END AS processed_items,
       CASE WHEN n.batch_id IS NULL THEN coalesce(i.failed_items, n.shared_failed)
            ELSE n.failed + CASE WHEN n.batch_cancelled THEN 0 ELSE n.cancelled END + n.shared_failed END AS failed_items,
       i.created_at,
       CASE WHEN n.batch_id IS NULL THEN i.started_at ELSE n.started_at END AS started_at,
       CASE WHEN n.batch_id IS NULL THEN coalesce(i.finished_at, CASE WHEN n.shared_waiting = 0 THEN n.shared_ended_at END)
            WHEN i.canceled_at IS NOT NULL THEN i.canceled_at
            WHEN n.batch_cancelled OR n.shared_waiting = 0 THEN CASE WHEN n.finished_at IS NOT NULL
                                                     THEN max(n.finished_at, coalesce(n.shared_ended_at, '')) END
       END AS finished_at,
       CASE WHEN n.batch_id IS NULL THEN substr(i.last_error, 1, instr(i.last_error || char(10), char(10)) - 1)
            WHEN n.failed > 0 AND n.shared_failed > 0 AND n.shared_failed_at > n.failed_at THEN n.shared_last_error
            WHEN n.failed > 0 THEN n.last_error
            WHEN n.shared_failed > 0 THEN n.shared_last_error
       END AS last_error
FROM bookmarks_imports i
JOIN bookmarks_import_counts n ON n.import_id = i.id;

-- One row for each link: its newest job. `failed` waits for its next try; a cancelled job is as dead as a dead one. A job
-- that somebody has made by hand of what is no link is not shown.
CREATE VIEW bookmarks_enrichment_jobs AS
SELECT id, link_canonical_id, status, attempts, max_attempts, run_after, locked_at, locked_by,
       substr(last_error, 1, instr(last_error || char(10), char(10)) - 1) AS last_error,
       created_at, updated_at
FROM (SELECT j.id,
             j.args ->> '$.link_id' AS link_canonical_id,
             CASE j.state WHEN 'retryable' THEN 'failed' WHEN 'cancelled' THEN 'dead' ELSE j.state END AS status,
             j.attempt AS attempts,
             j.max_attempts,
             j.run_after,
             j.locked_at,
             j.locked_by,
             j.error_message AS last_error,
             j.created_at,
             j.updated_at,
             row_number() OVER (PARTITION BY j.args ->> '$.link_id' ORDER BY j.id DESC) AS newest
      FROM rowlock_jobs j
      WHERE j.task = 'bookmarks.enrich'
        AND j.args ->> '$.link_id' GLOB '????????-????-????-????-????????????'
        AND j.args ->> '$.link_id' NOT GLOB '*[^0-9a-f-]*')
WHERE newest = 1;

-- Jobs that are not final, found by their id.
CREATE VIEW bookmarks_live_jobs AS SELECT id FROM rowlock_jobs_live;
