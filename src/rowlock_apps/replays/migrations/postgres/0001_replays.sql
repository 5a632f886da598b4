-- Users, their matches and their replays, and which jobs export which replay.

CREATE TABLE replays_users (
    id         text        PRIMARY KEY,                     -- the owner that the job API knows
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE replays_matches (
    id            text        PRIMARY KEY,
    owner_user_id text        NOT NULL REFERENCES replays_users (id),
    title         text        NOT NULL,
    played_at     timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX replays_matches_owner ON replays_matches (owner_user_id, created_at, id);

CREATE TABLE replays_replays (
    id            text        PRIMARY KEY,
    owner_user_id text        NOT NULL REFERENCES replays_users (id),
    match_id      text        REFERENCES replays_matches (id),
    title         text        NOT NULL,
    duration_ms   bigint      NOT NULL CHECK (duration_ms >= 0),
    frame_count   integer     NOT NULL CHECK (frame_count >= 0),
    data          text        NOT NULL,                     -- players and frames, as JSON
    created_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX replays_replays_owner ON replays_replays (owner_user_id, created_at, id);
CREATE INDEX replays_replays_match ON replays_replays (match_id);

CREATE TABLE replays_exports (
    job_id        uuid PRIMARY KEY,
    replay_id     text NOT NULL REFERENCES replays_replays (id) ON DELETE CASCADE,
    owner_user_id text NOT NULL REFERENCES replays_users (id),
    job_type      text NOT NULL CHECK (job_type IN ('REPLAY_MP4', 'REPLAY_THUMBNAIL'))
);
CREATE INDEX replays_exports_replay ON replays_exports (replay_id, job_type, job_id);

-- The document's table `jobs`, to read: its columns and its words.
CREATE VIEW replays_jobs AS
SELECT e.job_id, e.job_type, e.owner_user_id, e.replay_id AS target_replay_id,
       CASE WHEN j.state IN ('queued', 'retryable') THEN 'QUEUED'
            WHEN j.state = 'running'   THEN 'RUNNING'
            WHEN j.state = 'succeeded' THEN 'SUCCEEDED'
            WHEN j.state = 'cancelled' THEN 'CANCELLED'
            ELSE 'FAILED'
       END AS status,
       coalesce(j.progress, 0) AS progress,
       j.created_at,
       CASE WHEN j.state NOT IN ('queued', 'retryable') THEN j.started_at END AS started_at,
       j.finished_at AS ended_at,
       j.error_code, j.error_message, j.result_uri, j.result_checksum
FROM replays_exports e
JOIN rowlock.jobs j ON j.id = e.job_id;

-- And under its own name: SET search_path = replays, and queries of the document's table run as written.
CREATE SCHEMA IF NOT EXISTS replays;
CREATE VIEW replays.jobs AS SELECT * FROM replays_jobs;

CREATE FUNCTION replays.refuse_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'replays.jobs only shows the jobs; % is refused', TG_OP
        USING ERRCODE = 'feature_not_supported',
              HINT = 'Create an export by POST /api/replays/{replayId}/exports/mp4 or …/thumbnail; by hand there are '
                     'rowlock jobs retry ID, rowlock jobs cancel ID, rowlock jobs explain ID.';
END
$$;

-- The first makes the view writable in the eyes of PostgreSQL; the second refuses also what would match no row.
CREATE TRIGGER refuse_rows INSTEAD OF INSERT OR UPDATE OR DELETE ON replays.jobs
    FOR EACH ROW EXECUTE FUNCTION replays.refuse_write();
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON replays.jobs
    FOR EACH STATEMENT EXECUTE FUNCTION replays.refuse_write();
