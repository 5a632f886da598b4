-- Lists and counts of jobs with any filter: store/read/search.py. No search may read a whole table, so each statement reads
-- one index from :id down to :low. There are three statements for each index: `edge` finds the id at which a given number of
-- rows has been read, `look` lists the matching jobs, and `by_state` counts them.

-- part: filter
-- Whether the row `j` fits a filter (store/read/filter.py), apart from its states. CASE and not OR: a plan made once for all
-- values (PostgreSQL's generic plan) takes `:x IS NULL OR …` to leave next to nothing, and would rather sort the whole table
-- than walk an index in the order that was asked for.
CASE WHEN CAST(:task AS text) IS NULL THEN TRUE ELSE j.task = :task END
  AND CASE WHEN CAST(:queue AS text) IS NULL THEN TRUE ELSE j.queue = :queue END
  AND CASE WHEN CAST(:owner AS text) IS NULL THEN TRUE ELSE j.owner = :owner END
  AND CASE WHEN CAST(:source AS text) IS NULL THEN TRUE ELSE j.source = :source END
  AND CASE WHEN CAST(:tag AS text) IS NULL THEN TRUE ELSE {contains(j.tags, :tag, :tag_text)} END
  AND CASE WHEN CAST(:since AS timestamptz) IS NULL THEN TRUE ELSE j.created_at >= :since END
  AND CASE WHEN CAST(:until AS timestamptz) IS NULL THEN TRUE ELSE j.created_at < :until END
  AND CASE WHEN CAST(:batch AS uuid) IS NULL THEN TRUE ELSE j.batch_id = :batch END
  AND CASE WHEN CAST(:parent AS uuid) IS NULL THEN TRUE ELSE j.parent_id = :parent END
  AND CASE WHEN CAST(:schedule AS text) IS NULL THEN TRUE ELSE j.schedule_id = :schedule END
  AND CASE WHEN CAST(:error_code AS text) IS NULL THEN TRUE ELSE j.error_code = :error_code END
  AND CASE WHEN CAST(:attempt AS integer) IS NULL THEN TRUE ELSE j.attempt >= :attempt END
  AND CASE WHEN CAST(:text AS text) IS NULL THEN TRUE ELSE ({holds(j.args, :text)} OR {holds(j.args, :text_ascii)}) END
  AND CASE WHEN CAST(:unchanged_since AS timestamptz) IS NULL THEN TRUE ELSE j.updated_at <= :unchanged_since END

-- part: running
-- The job is running, and running jobs were asked for. A job that was published to Redis and whose worker has sent no
-- message counts as queued, here and below (core/redis_request.py).
:running AND j.state = 'running' AND j.locked_by IS DISTINCT FROM {part:unread}

-- part: live_state
-- The live job is in a state whose parameter is TRUE. The first condition names no column: if it is false, no row is read.
(:queued OR :running OR :retryable)
      AND CASE WHEN j.state = 'queued' OR j.locked_by = {part:unread} THEN CAST(:queued AS boolean)
                       WHEN j.state = 'running' THEN CAST(:running AS boolean)
                       ELSE CAST(:retryable AS boolean) END

-- part: finished_state
-- The finished job is in a state whose parameter is TRUE. The first condition names no column: if it is false, no row is
-- read.
(:succeeded OR :dead OR :cancelled)
      AND CASE j.state WHEN 'succeeded' THEN CAST(:succeeded AS boolean) WHEN 'dead' THEN CAST(:dead AS boolean)
                       ELSE CAST(:cancelled AS boolean) END

-- part: is_dead
-- The job is dead. The second comparison repeats the condition of the partial index jobs_finished_trouble, here and below.
j.state = 'dead' AND j.state <> 'succeeded'

-- part: is_cancelled
-- The job is cancelled.
j.state = 'cancelled' AND j.state <> 'succeeded'

-- part: looked(table | which)
-- The rows that one search reads. `table` may name the index to use.
FROM {t}{table}
WHERE {which} AND j.id < :id AND j.id >= :low

-- part: edge(table | which | state | shown)
-- The row at position :skip, counted from 0.
SELECT CAST(j.id AS text) AS id
{part:looked({table} | {which})}
ORDER BY j.id DESC
LIMIT 1 OFFSET :skip

-- part: look(table | which | state | shown)
-- The newest :n matching jobs.
SELECT CAST(j.id AS text) AS id
{part:looked({table} | {which})} AND {state} AND {part:filter}
ORDER BY j.id DESC
LIMIT :n

-- part: by_state(table | which | state | shown)
-- The number of matching jobs in each state.
SELECT {shown} AS state, count(*) AS number
{part:looked({table} | {which})} AND {state} AND {part:filter}
GROUP BY {shown}

-- part: shown_live
-- The state of a live job as readers see it: a job whose request no worker has read from the Redis stream is queued.
CASE WHEN j.locked_by = {part:unread} THEN 'queued' ELSE j.state END

-- name: {edge,look,by_state}_live
-- All live jobs.
{part:{this}(jobs_live j | TRUE | {part:live_state} | {part:shown_live})};

-- name: {edge,look,by_state}_live_running
-- Running jobs.
{part:{this}(jobs_live j | j.state = 'running' | {part:running} | {part:shown_live})};

-- name: {edge,look,by_state}_live_owner
-- An owner's live jobs.
{part:{this}(jobs_live j | j.owner = :owner | {part:live_state} | {part:shown_live})};

-- name: {edge,look,by_state}_live_batch
-- A batch's live jobs.
{part:{this}(jobs_live j | j.batch_id = :batch | {part:live_state} | {part:shown_live})};

-- name: {edge,look,by_state}_live_parent
-- A job's live children.
{part:{this}(jobs_live j | j.parent_id = :parent | {part:live_state} | {part:shown_live})};

-- name: {edge,look,by_state}_finished
-- All finished jobs.
{part:{this}(jobs_finished j | TRUE | {part:finished_state} | j.state)};

-- name: {edge,look,by_state}_finished_dead
-- Dead jobs.
{part:{this}(jobs_finished j | {part:is_dead} | :dead | j.state)};

-- name: {edge,look,by_state}_finished_cancelled
-- Cancelled jobs.
{part:{this}(jobs_finished j | {part:is_cancelled} | :cancelled | j.state)};

-- name: {edge,look,by_state}_finished_owner
-- An owner's finished jobs.
{part:{this}(jobs_finished j | j.owner = :owner | {part:finished_state} | j.state)};

-- name: {edge,look,by_state}_finished_owner_dead
-- An owner's dead jobs.
{part:{this}(jobs_finished j INDEXED BY rowlock_jobs_finished_owner_trouble | j.owner = :owner AND {part:is_dead} | :dead | j.state)};

-- name: {edge,look,by_state}_finished_owner_cancelled
-- An owner's cancelled jobs.
{part:{this}(jobs_finished j INDEXED BY rowlock_jobs_finished_owner_trouble | j.owner = :owner AND {part:is_cancelled} | :cancelled | j.state)};

-- name: {edge,look,by_state}_finished_batch
-- A batch's finished jobs.
{part:{this}(jobs_finished j | j.batch_id = :batch | {part:finished_state} | j.state)};

-- name: {edge,look,by_state}_finished_parent
-- A job's finished children.
{part:{this}(jobs_finished j | j.parent_id = :parent | {part:finished_state} | j.state)};

-- name: {edge,look,by_state}_finished_schedule
-- A schedule's finished jobs.
{part:{this}(jobs_finished j | j.schedule_id = :schedule | {part:finished_state} | j.state)};
