-- Search jobs with any filter, for dashboards: store/read/search.py. No search may read a whole table, so each statement reads one
-- index from :id down to :low. There are three statements for each index: `edge` finds the id at which a given number of
-- rows has been read, `look` lists the matching jobs, and `by_state` counts them.

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
{part:looked({table} | {which})} AND {state} AND {filter}
ORDER BY j.id DESC
LIMIT :n

-- part: by_state(table | which | state | shown)
-- The number of matching jobs in each state.
SELECT {shown} AS state, count(*) AS number
{part:looked({table} | {which})} AND {state} AND {filter}
GROUP BY {shown}

-- part: shown_live
-- The state of a live job as readers see it: a job whose request no worker has read from the Redis stream is queued.
CASE WHEN j.locked_by = 'redis-unread' THEN 'queued' ELSE j.state END

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
