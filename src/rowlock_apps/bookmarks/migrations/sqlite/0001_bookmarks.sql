-- Bookmarks: what was imported, where each link lay, and what its page says of itself. Times are text, as in
-- 2026-03-01T09:00:00.000Z.

-- One upload. Its id is that of its batch; what the batch counted is copied here when it ends, and outlives it.
CREATE TABLE bookmarks_imports (
    id              text    PRIMARY KEY,
    user_id         text    NOT NULL,
    source_type     text    NOT NULL CHECK (source_type IN ('chrome_html')),
    total_items     integer NOT NULL,            -- bookmarks in the file
    without_job     integer NOT NULL DEFAULT 0,  -- of those placed so far, the ones that wait for no job of this import
    state           text,
    processed_items integer,
    failed_items    integer,
    last_error      text,
    created_at      text    NOT NULL,
    finished_at     text
);

-- One canonical link, however it was spelled and in however many folders it lies. `dead_…` is why its page is not known.
CREATE TABLE bookmarks_links (
    id           text PRIMARY KEY,
    url          text NOT NULL,
    host         text NOT NULL,
    dead_code    text,
    dead_message text,
    created_at   text NOT NULL
) WITHOUT ROWID;

-- One bookmark of one import: where the user has put a link, in the user's own spelling. Without foreign keys: a row is
-- written in one transaction with its link, and to look for that again would take a tenth of the time of an import.
CREATE TABLE bookmarks_placements (
    import_id text    NOT NULL,
    position  integer NOT NULL,
    user_id   text    NOT NULL,
    link_id   text,               -- none: it is never fetched
    skipped   text,               -- why: its scheme, or `invalid`
    url       text    NOT NULL,
    title     text    NOT NULL,
    folder    text    NOT NULL,
    added_at  text,
    PRIMARY KEY (import_id, position),
    CHECK ((link_id IS NULL) = (skipped IS NOT NULL))
) WITHOUT ROWID;
CREATE INDEX bookmarks_placements_user ON bookmarks_placements (user_id, import_id);

-- What a page says of itself in its head. Never its text.
CREATE TABLE bookmarks_pages (
    link_id       text PRIMARY KEY REFERENCES bookmarks_links (id),
    final_url     text NOT NULL,
    content_type  text NOT NULL,
    title         text,
    description   text,
    site_name     text,
    image_url     text,
    canonical_url text,
    icon_url      text,
    fetched_at    text NOT NULL
);
