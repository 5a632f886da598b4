-- Looking through jobs with any filter, for dashboards: store/look.py. No filter may read a whole table, so each look goes
-- through one index from :id down to :low, and `edge` says where a look of a given number of rows ends. There is one of
-- each statement for each index.

-- part: looked(table | which)
-- The rows of one look. `table` may say which index to take.
FROM {t}{table}
WHERE {which} AND j.id < :id AND j.id >= :low

-- part: edge(table | which)
-- The row after :skip others.
SELECT CAST(j.id AS text) AS id
{part:looked({table} | {which})}
ORDER BY j.id DESC
LIMIT 1 OFFSET :skip

-- part: look(table | which | state)
-- The newest :n jobs that fit.
SELECT CAST(j.id AS text) AS id
{part:looked({table} | {which})} AND {state} AND {filter}
ORDER BY j.id DESC
LIMIT :n

-- part: by_state(table | which | state | shown)
-- How many jobs fit, by state.
SELECT {shown} AS state, count(*) AS number
{part:looked({table} | {which})} AND {state} AND {filter}
GROUP BY {shown}

-- part: shown_live
-- The state of a live job as readers see it: one that nobody has read from its Redis stream is queued.
CASE WHEN j.locked_by = 'redis-unread' THEN 'queued' ELSE j.state END

-- name: edge_live
-- Where a look through live jobs ends.
{part:edge(jobs_live j | TRUE)};

-- name: look_live
-- The newest that fit in a look through live jobs.
{part:look(jobs_live j | TRUE | {part:live_state})};

-- name: by_state_live
-- How many fit in a look through live jobs, by state.
{part:by_state(jobs_live j | TRUE | {part:live_state} | {part:shown_live})};

-- name: edge_live_running
-- Where a look through running jobs ends.
{part:edge(jobs_live j | j.state = 'running')};

-- name: look_live_running
-- The newest that fit in a look through running jobs.
{part:look(jobs_live j | j.state = 'running' | {part:running})};

-- name: by_state_live_running
-- How many fit in a look through running jobs, by state.
{part:by_state(jobs_live j | j.state = 'running' | {part:running} | {part:shown_live})};

-- name: edge_live_owner
-- Where a look through an owner's live jobs ends.
{part:edge(jobs_live j | j.owner = :owner)};

-- name: look_live_owner
-- The newest that fit in a look through an owner's live jobs.
{part:look(jobs_live j | j.owner = :owner | {part:live_state})};

-- name: by_state_live_owner
-- How many fit in a look through an owner's live jobs, by state.
{part:by_state(jobs_live j | j.owner = :owner | {part:live_state} | {part:shown_live})};

-- name: edge_live_batch
-- Where a look through a batch's live jobs ends.
{part:edge(jobs_live j | j.batch_id = :batch)};

-- name: look_live_batch
-- The newest that fit in a look through a batch's live jobs.
{part:look(jobs_live j | j.batch_id = :batch | {part:live_state})};

-- name: by_state_live_batch
-- How many fit in a look through a batch's live jobs, by state.
{part:by_state(jobs_live j | j.batch_id = :batch | {part:live_state} | {part:shown_live})};

-- name: edge_live_parent
-- Where a look through a job's live children ends.
{part:edge(jobs_live j | j.parent_id = :parent)};

-- name: look_live_parent
-- The newest that fit in a look through a job's live children.
{part:look(jobs_live j | j.parent_id = :parent | {part:live_state})};

-- name: by_state_live_parent
-- How many fit in a look through a job's live children, by state.
{part:by_state(jobs_live j | j.parent_id = :parent | {part:live_state} | {part:shown_live})};

-- name: edge_finished
-- Where a look through finished jobs ends.
{part:edge(jobs_finished j | TRUE)};

-- name: look_finished
-- The newest that fit in a look through finished jobs.
{part:look(jobs_finished j | TRUE | {part:finished_state})};

-- name: by_state_finished
-- How many fit in a look through finished jobs, by state.
{part:by_state(jobs_finished j | TRUE | {part:finished_state} | j.state)};

-- name: edge_finished_dead
-- Where a look through dead jobs ends.
{part:edge(jobs_finished j | j.state = 'dead' AND j.state <> 'succeeded')};

-- name: look_finished_dead
-- The newest that fit in a look through dead jobs.
{part:look(jobs_finished j | j.state = 'dead' AND j.state <> 'succeeded' | :dead)};

-- name: by_state_finished_dead
-- How many fit in a look through dead jobs, by state.
{part:by_state(jobs_finished j | j.state = 'dead' AND j.state <> 'succeeded' | :dead | j.state)};

-- name: edge_finished_cancelled
-- Where a look through cancelled jobs ends.
{part:edge(jobs_finished j | j.state = 'cancelled' AND j.state <> 'succeeded')};

-- name: look_finished_cancelled
-- The newest that fit in a look through cancelled jobs.
{part:look(jobs_finished j | j.state = 'cancelled' AND j.state <> 'succeeded' | :cancelled)};

-- name: by_state_finished_cancelled
-- How many fit in a look through cancelled jobs, by state.
{part:by_state(jobs_finished j | j.state = 'cancelled' AND j.state <> 'succeeded' | :cancelled | j.state)};

-- name: edge_finished_owner
-- Where a look through an owner's finished jobs ends.
{part:edge(jobs_finished j | j.owner = :owner)};

-- name: look_finished_owner
-- The newest that fit in a look through an owner's finished jobs.
{part:look(jobs_finished j | j.owner = :owner | {part:finished_state})};

-- name: by_state_finished_owner
-- How many fit in a look through an owner's finished jobs, by state.
{part:by_state(jobs_finished j | j.owner = :owner | {part:finished_state} | j.state)};

-- name: edge_finished_owner_dead
-- Where a look through an owner's dead jobs ends.
{part:edge(jobs_finished j{indexed_by(rowlock_jobs_finished_owner_trouble)} | j.owner = :owner AND j.state = 'dead' AND j.state <> 'succeeded')};

-- name: look_finished_owner_dead
-- The newest that fit in a look through an owner's dead jobs.
{part:look(jobs_finished j{indexed_by(rowlock_jobs_finished_owner_trouble)} | j.owner = :owner AND j.state = 'dead' AND j.state <> 'succeeded' | :dead)};

-- name: by_state_finished_owner_dead
-- How many fit in a look through an owner's dead jobs, by state.
{part:by_state(jobs_finished j{indexed_by(rowlock_jobs_finished_owner_trouble)} | j.owner = :owner AND j.state = 'dead' AND j.state <> 'succeeded' | :dead | j.state)};

-- name: edge_finished_owner_cancelled
-- Where a look through an owner's cancelled jobs ends.
{part:edge(jobs_finished j{indexed_by(rowlock_jobs_finished_owner_trouble)} | j.owner = :owner AND j.state = 'cancelled' AND j.state <> 'succeeded')};

-- name: look_finished_owner_cancelled
-- The newest that fit in a look through an owner's cancelled jobs.
{part:look(jobs_finished j{indexed_by(rowlock_jobs_finished_owner_trouble)} | j.owner = :owner AND j.state = 'cancelled' AND j.state <> 'succeeded' | :cancelled)};

-- name: by_state_finished_owner_cancelled
-- How many fit in a look through an owner's cancelled jobs, by state.
{part:by_state(jobs_finished j{indexed_by(rowlock_jobs_finished_owner_trouble)} | j.owner = :owner AND j.state = 'cancelled' AND j.state <> 'succeeded' | :cancelled | j.state)};

-- name: edge_finished_batch
-- Where a look through a batch's finished jobs ends.
{part:edge(jobs_finished j | j.batch_id = :batch)};

-- name: look_finished_batch
-- The newest that fit in a look through a batch's finished jobs.
{part:look(jobs_finished j | j.batch_id = :batch | {part:finished_state})};

-- name: by_state_finished_batch
-- How many fit in a look through a batch's finished jobs, by state.
{part:by_state(jobs_finished j | j.batch_id = :batch | {part:finished_state} | j.state)};

-- name: edge_finished_parent
-- Where a look through a job's finished children ends.
{part:edge(jobs_finished j | j.parent_id = :parent)};

-- name: look_finished_parent
-- The newest that fit in a look through a job's finished children.
{part:look(jobs_finished j | j.parent_id = :parent | {part:finished_state})};

-- name: by_state_finished_parent
-- How many fit in a look through a job's finished children, by state.
{part:by_state(jobs_finished j | j.parent_id = :parent | {part:finished_state} | j.state)};

-- name: edge_finished_schedule
-- Where a look through a schedule's finished jobs ends.
{part:edge(jobs_finished j | j.schedule_id = :schedule)};

-- name: look_finished_schedule
-- The newest that fit in a look through a schedule's finished jobs.
{part:look(jobs_finished j | j.schedule_id = :schedule | {part:finished_state})};

-- name: by_state_finished_schedule
-- How many fit in a look through a schedule's finished jobs, by state.
{part:by_state(jobs_finished j | j.schedule_id = :schedule | {part:finished_state} | j.state)};
