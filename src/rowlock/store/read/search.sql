-- List and count jobs with any filter, for store/read/search.py. No search may read a whole table, so each statement
-- reads one index, from :id down to :low. Each index has three statements: `edge` finds the id after a given number of
-- rows, `look` lists the matching jobs, and `by_state` counts them.

-- part: has_tag [postgres]
-- The job has a tag. Compared as JSON, not text, because converting an escape such as \u0000 to text is an error.
EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof(j.tags) WHEN 'array' THEN j.tags END) one
            WHERE one.value::text IN (:tag, :tag_text))

-- part: has_tag [sqlite]
-- The job has a tag.
EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(j.tags) THEN j.tags ELSE '[]' END)
            WHERE value IN (:tag ->> '$', :tag_text ->> '$'))

-- part: has_text [postgres]
-- The JSON text of the arguments contains a text.
(strpos(CAST(j.args AS text), :text) > 0 OR strpos(CAST(j.args AS text), :text_ascii) > 0)

-- part: has_text [sqlite]
-- The JSON text of the arguments contains a text.
(instr(j.args, :text) > 0 OR instr(j.args, :text_ascii) > 0)

-- part: fits
-- The job `j` matches the filter (store/read/filter.py), apart from its state. CASE instead of OR: PostgreSQL's generic
-- plan assumes that `:x IS NULL OR …` leaves next to nothing, and would rather sort the whole table than walk an index
-- in the requested order.
CASE WHEN CAST(:task AS text) IS NULL THEN TRUE ELSE j.task = :task END
  AND CASE WHEN CAST(:queue AS text) IS NULL THEN TRUE ELSE j.queue = :queue END
  AND CASE WHEN CAST(:owner AS text) IS NULL THEN TRUE ELSE j.owner = :owner END
  AND CASE WHEN CAST(:source AS text) IS NULL THEN TRUE ELSE j.source = :source END
  AND CASE WHEN CAST(:tag AS text) IS NULL THEN TRUE ELSE {part:has_tag} END
  AND CASE WHEN CAST(:since AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= :since END
  AND CASE WHEN CAST(:until AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < :until END
  AND CASE WHEN CAST(:batch AS uuid) IS NULL THEN TRUE ELSE j.batch_id = :batch END
  AND CASE WHEN CAST(:parent AS uuid) IS NULL THEN TRUE ELSE j.parent_id = :parent END
  AND CASE WHEN CAST(:schedule AS text) IS NULL THEN TRUE ELSE j.schedule_id = :schedule END
  AND CASE WHEN CAST(:error_code AS text) IS NULL THEN TRUE ELSE j.error_code = :error_code END
  AND CASE WHEN CAST(:attempt AS integer) IS NULL THEN TRUE ELSE j.attempt >= :attempt END
  AND CASE WHEN CAST(:text AS text) IS NULL THEN TRUE ELSE {part:has_text} END
  AND CASE WHEN CAST(:unchanged_since AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= :unchanged_since END

-- part: live_fits
-- The live job is in a wanted state (whose parameter is TRUE) and matches the filter. Here and below, a job that was
-- published to Redis and whose worker has not sent a message counts as queued (core/redis_request.py).
CASE WHEN j.state = 'queued' OR {part:unread} THEN CAST(:queued AS boolean)
     WHEN j.state = 'running' THEN CAST(:running AS boolean)
     ELSE CAST(:retryable AS boolean) END
  AND {part:fits}

-- part: finished_fits
-- The finished job is in a wanted state (whose parameter is TRUE) and matches the filter.
CASE j.state WHEN 'succeeded' THEN CAST(:succeeded AS boolean) WHEN 'dead' THEN CAST(:dead AS boolean)
             ELSE CAST(:cancelled AS boolean) END
  AND {part:fits}

-- part: shown_live
-- The state of a live job as readers see it.
CASE WHEN {part:unread} THEN 'queued' ELSE j.state END

-- part: in_range
-- The range of the index to read.
j.id < :id AND j.id >= :low

-- part: is_troubled
-- The job is in the state :trouble, dead or cancelled. The second comparison repeats the condition of a partial index.
j.state = :trouble AND j.state <> 'succeeded'

-- name: edge_live
-- Live jobs: the row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j
WHERE {part:in_range}
ORDER BY j.id DESC LIMIT 1 OFFSET :skip;

-- name: look_live
-- Live jobs: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j
WHERE {part:in_range} AND {part:live_fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_live
-- Live jobs: how many fit, by state.
SELECT {part:shown_live} AS state, count(*) AS number FROM {t}jobs_live j
WHERE {part:in_range} AND {part:live_fits}
GROUP BY {part:shown_live};

-- name: look_live_running
-- Running jobs: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j
WHERE j.state = 'running' AND {part:in_range} AND {part:live_fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_live_running
-- Running jobs: how many fit, by state.
SELECT {part:shown_live} AS state, count(*) AS number FROM {t}jobs_live j
WHERE j.state = 'running' AND {part:in_range} AND {part:live_fits}
GROUP BY {part:shown_live};

-- name: edge_live_owner
-- An owner's live jobs: the row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j
WHERE j.owner = :owner AND {part:in_range}
ORDER BY j.id DESC LIMIT 1 OFFSET :skip;

-- name: look_live_owner
-- An owner's live jobs: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j
WHERE j.owner = :owner AND {part:in_range} AND {part:live_fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_live_owner
-- An owner's live jobs: how many fit, by state.
SELECT {part:shown_live} AS state, count(*) AS number FROM {t}jobs_live j
WHERE j.owner = :owner AND {part:in_range} AND {part:live_fits}
GROUP BY {part:shown_live};

-- name: edge_live_batch
-- A batch's live jobs: the row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j
WHERE j.batch_id = :batch AND {part:in_range}
ORDER BY j.id DESC LIMIT 1 OFFSET :skip;

-- name: look_live_batch
-- A batch's live jobs: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j
WHERE j.batch_id = :batch AND {part:in_range} AND {part:live_fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_live_batch
-- A batch's live jobs: how many fit, by state.
SELECT {part:shown_live} AS state, count(*) AS number FROM {t}jobs_live j
WHERE j.batch_id = :batch AND {part:in_range} AND {part:live_fits}
GROUP BY {part:shown_live};

-- name: edge_live_parent
-- A job's live children: the row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j
WHERE j.parent_id = :parent AND {part:in_range}
ORDER BY j.id DESC LIMIT 1 OFFSET :skip;

-- name: look_live_parent
-- A job's live children: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_live j
WHERE j.parent_id = :parent AND {part:in_range} AND {part:live_fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_live_parent
-- A job's live children: how many fit, by state.
SELECT {part:shown_live} AS state, count(*) AS number FROM {t}jobs_live j
WHERE j.parent_id = :parent AND {part:in_range} AND {part:live_fits}
GROUP BY {part:shown_live};

-- name: edge_finished
-- Finished jobs: the row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE {part:in_range}
ORDER BY j.id DESC LIMIT 1 OFFSET :skip;

-- name: look_finished
-- Finished jobs: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE {part:in_range} AND {part:finished_fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_finished
-- Finished jobs: how many fit, by state.
SELECT j.state AS state, count(*) AS number FROM {t}jobs_finished j
WHERE {part:in_range} AND {part:finished_fits}
GROUP BY j.state;

-- name: edge_finished_trouble
-- Dead or cancelled jobs: the row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE {part:is_troubled} AND {part:in_range}
ORDER BY j.id DESC LIMIT 1 OFFSET :skip;

-- name: look_finished_trouble
-- Dead or cancelled jobs: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE {part:is_troubled} AND {part:in_range} AND {part:fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_finished_trouble
-- Dead or cancelled jobs: how many fit, by state.
SELECT j.state AS state, count(*) AS number FROM {t}jobs_finished j
WHERE {part:is_troubled} AND {part:in_range} AND {part:fits}
GROUP BY j.state;

-- name: look_owner
-- The newest :n of all jobs of an owner. One statement, so that a job that is just moving between the two tables is
-- found in one of them. Each half reads its own index.
SELECT CAST(u.id AS text) AS id
FROM (SELECT l.id
      FROM (SELECT j.id FROM {t}jobs_live j
            WHERE j.owner = :owner AND {part:in_range}
            ORDER BY j.id DESC LIMIT :n) l
      UNION ALL
      SELECT f.id
      FROM (SELECT j.id FROM {t}jobs_finished j
            WHERE j.owner = :owner AND {part:in_range}
            ORDER BY j.id DESC LIMIT :n) f) u
ORDER BY u.id DESC LIMIT :n;

-- name: edge_finished_owner
-- An owner's finished jobs: the row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE j.owner = :owner AND {part:in_range}
ORDER BY j.id DESC LIMIT 1 OFFSET :skip;

-- name: look_finished_owner
-- An owner's finished jobs: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE j.owner = :owner AND {part:in_range} AND {part:finished_fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_finished_owner
-- An owner's finished jobs: how many fit, by state.
SELECT j.state AS state, count(*) AS number FROM {t}jobs_finished j
WHERE j.owner = :owner AND {part:in_range} AND {part:finished_fits}
GROUP BY j.state;

-- name: edge_finished_owner_trouble
-- An owner's dead or cancelled jobs: the row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j INDEXED BY rowlock_jobs_finished_owner_trouble
WHERE j.owner = :owner AND {part:is_troubled} AND {part:in_range}
ORDER BY j.id DESC LIMIT 1 OFFSET :skip;

-- name: look_finished_owner_trouble
-- An owner's dead or cancelled jobs: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j INDEXED BY rowlock_jobs_finished_owner_trouble
WHERE j.owner = :owner AND {part:is_troubled} AND {part:in_range} AND {part:fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_finished_owner_trouble
-- An owner's dead or cancelled jobs: how many fit, by state.
SELECT j.state AS state, count(*) AS number FROM {t}jobs_finished j INDEXED BY rowlock_jobs_finished_owner_trouble
WHERE j.owner = :owner AND {part:is_troubled} AND {part:in_range} AND {part:fits}
GROUP BY j.state;

-- name: edge_finished_batch
-- A batch's finished jobs: the row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE j.batch_id = :batch AND {part:in_range}
ORDER BY j.id DESC LIMIT 1 OFFSET :skip;

-- name: look_finished_batch
-- A batch's finished jobs: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE j.batch_id = :batch AND {part:in_range} AND {part:finished_fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_finished_batch
-- A batch's finished jobs: how many fit, by state.
SELECT j.state AS state, count(*) AS number FROM {t}jobs_finished j
WHERE j.batch_id = :batch AND {part:in_range} AND {part:finished_fits}
GROUP BY j.state;

-- name: edge_finished_parent
-- A job's finished children: the row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE j.parent_id = :parent AND {part:in_range}
ORDER BY j.id DESC LIMIT 1 OFFSET :skip;

-- name: look_finished_parent
-- A job's finished children: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE j.parent_id = :parent AND {part:in_range} AND {part:finished_fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_finished_parent
-- A job's finished children: how many fit, by state.
SELECT j.state AS state, count(*) AS number FROM {t}jobs_finished j
WHERE j.parent_id = :parent AND {part:in_range} AND {part:finished_fits}
GROUP BY j.state;

-- name: edge_finished_schedule
-- A schedule's finished jobs: the row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE j.schedule_id = :schedule AND {part:in_range}
ORDER BY j.id DESC LIMIT 1 OFFSET :skip;

-- name: look_finished_schedule
-- A schedule's finished jobs: the newest :n that fit.
SELECT CAST(j.id AS text) AS id FROM {t}jobs_finished j
WHERE j.schedule_id = :schedule AND {part:in_range} AND {part:finished_fits}
ORDER BY j.id DESC LIMIT :n;

-- name: by_state_finished_schedule
-- A schedule's finished jobs: how many fit, by state.
SELECT j.state AS state, count(*) AS number FROM {t}jobs_finished j
WHERE j.schedule_id = :schedule AND {part:in_range} AND {part:finished_fits}
GROUP BY j.state;
