-- Bookmarks: what was imported, where each link lay, and what its page says of itself.

-- One upload. Its id is that of its batch; what the batch counted is copied here when it ends, and outlives it.
CREATE TABLE bookmarks_imports (
    id              uuid        PRIMARY KEY,
    user_id         text        NOT NULL,
    source_type     text        NOT NULL CHECK (source_type IN ('chrome_html')),
    total_items     integer     NOT NULL,            -- bookmarks in the file
    without_job     integer     NOT NULL DEFAULT 0,  -- of those placed so far, the ones that wait for no job of this import
    state           text,
    processed_items integer,
    failed_items    integer,
    last_error      text,
    created_at      timestamptz NOT NULL,
    finished_at     timestamptz
);

-- One canonical link, however it was spelled and in however many folders it lies. `dead_…` is why its page is not known.
CREATE TABLE bookmarks_links (
    id           uuid        PRIMARY KEY,
    url          text        NOT NULL,
    host         text        NOT NULL,
    dead_code    text,
    dead_message text,
    created_at   timestamptz NOT NULL
);

-- One bookmark of one import: where the user has put a link, in the user's own spelling. Without foreign keys: a row is
-- written in one transaction with its link, and to look for that again would take a tenth of the time of an import.
CREATE TABLE bookmarks_placements (
    import_id uuid        NOT NULL,
    position  integer     NOT NULL,
    user_id   text        NOT NULL,
    link_id   uuid,               -- none: it is never fetched
    skipped   text,               -- why: its scheme, or `invalid`
    url       text        NOT NULL,
    title     text        NOT NULL,
    folder    text        NOT NULL,
    added_at  timestamptz,
    PRIMARY KEY (import_id, position),
    CHECK ((link_id IS NULL) = (skipped IS NOT NULL))
);
CREATE INDEX bookmarks_placements_user ON bookmarks_placements (user_id, import_id);

-- What a page says of itself in its head. Never its text.
CREATE TABLE bookmarks_pages (
    link_id       uuid        PRIMARY KEY REFERENCES bookmarks_links (id),
    final_url     text        NOT NULL,
    content_type  text        NOT NULL,
    title         text,
    description   text,
    site_name     text,
    image_url     text,
    canonical_url text,
    icon_url      text,
    fetched_at    timestamptz NOT NULL
);

-- The two tables of the document, in its own words, to be read: SET search_path = bookmarks.
CREATE SCHEMA bookmarks;

-- While the batch is there its counters are the truth: what this import had no job for is processed as soon as it is
-- read, the rest when its job has ended. Afterwards, what the batch left.
CREATE VIEW bookmarks.import_jobs AS
SELECT i.id,
       i.user_id,
       i.source_type,
       CASE coalesce(b.state, i.state) WHEN 'cancelled' THEN 'canceled' ELSE coalesce(b.state, i.state) END AS status,
       i.total_items,
       CASE WHEN b.id IS NULL THEN i.processed_items ELSE CAST(i.without_job + n.processed AS integer) END
           AS processed_items,
       CASE WHEN b.id IS NULL THEN i.failed_items ELSE CAST(n.failed AS integer) END AS failed_items,
       i.created_at,
       b.started_at,
       coalesce(b.finished_at, i.finished_at) AS finished_at,
       split_part(CASE WHEN b.id IS NULL THEN i.last_error ELSE n.last_error END, E'\n', 1) AS last_error
FROM bookmarks_imports i
LEFT JOIN rowlock.batches b ON b.id = i.id
LEFT JOIN LATERAL (
    SELECT coalesce(sum(c.processed), 0) AS processed,
           coalesce(sum(c.failed), 0) AS failed,
           (array_agg(c.last_error ORDER BY c.last_error_at DESC) FILTER (WHERE c.last_error IS NOT NULL))[1] AS last_error
    FROM rowlock.batch_counts c
    WHERE c.batch_id = i.id
) n ON true;

-- One row for each link: its newest job. `failed` waits for its next try; a cancelled job is as dead as a dead one.
CREATE VIEW bookmarks.enrichment_jobs AS
SELECT DISTINCT ON (link_canonical_id)
       j.id,
       CAST(j.args ->> 'link_id' AS uuid) AS link_canonical_id,
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
ORDER BY link_canonical_id, j.id DESC;

CREATE FUNCTION bookmarks.read_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'bookmarks.% is a view to be read', TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege',
              HINT = 'Imports and their jobs are made by import_file() or python -m rowlock_apps.bookmarks import; '
                  || 'rowlock jobs retry, rowlock jobs cancel and rowlock batches cancel change them.';
END;
$$;

CREATE TRIGGER read_only INSTEAD OF INSERT OR UPDATE OR DELETE ON bookmarks.import_jobs
    FOR EACH ROW EXECUTE FUNCTION bookmarks.read_only();
CREATE TRIGGER read_only INSTEAD OF INSERT OR UPDATE OR DELETE ON bookmarks.enrichment_jobs
    FOR EACH ROW EXECUTE FUNCTION bookmarks.read_only();
