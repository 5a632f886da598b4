-- Users, their matches and their replays, and which jobs export which replay.

CREATE TABLE replays_users (
    id         text PRIMARY KEY NOT NULL,                   -- the owner that the job API knows
    created_at text NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
);

CREATE TABLE replays_matches (
    id            text PRIMARY KEY NOT NULL,
    owner_user_id text NOT NULL REFERENCES replays_users (id),
    title         text NOT NULL,
    played_at     text,
    created_at    text NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
);
CREATE INDEX replays_matches_owner ON replays_matches (owner_user_id, created_at, id);

CREATE TABLE replays_replays (
    id            text    PRIMARY KEY NOT NULL,
    owner_user_id text    NOT NULL REFERENCES replays_users (id),
    match_id      text    REFERENCES replays_matches (id),
    title         text    NOT NULL,
    duration_ms   integer NOT NULL CHECK (duration_ms >= 0),
    frame_count   integer NOT NULL CHECK (frame_count >= 0),
    data          text    NOT NULL,                         -- players and frames, as JSON
    created_at    text    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
);
CREATE INDEX replays_replays_owner ON replays_replays (owner_user_id, created_at, id);
CREATE INDEX replays_replays_match ON replays_replays (match_id);

CREATE TABLE replays_exports (
    job_id        text PRIMARY KEY NOT NULL,
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
JOIN rowlock_jobs j ON j.id = e.job_id;
