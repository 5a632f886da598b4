-- Reads of jobs, in the order of store/read/reads.py.
--
-- Lists and counts have four statements each, one for each index of the finished jobs: by id, by state (dead, cancelled and
-- running jobs have an index), by owner, and by owner and state. A branch for a state that was not asked for begins with a
-- parameter that is FALSE, and reads no row.

-- name: read_job
-- One job, live or finished.
SELECT {job} FROM {t}jobs j WHERE j.id = :job_id;

-- name: read_jobs
-- Jobs by id, newest first.
SELECT {job}
FROM {t}jobs j
WHERE j.id {part:one_of(asked)}
ORDER BY j.id DESC;

-- name: job_states
-- Of these jobs, the ones that exist: their tasks and states, and the files that they name as their results.
SELECT CAST(j.id AS text) AS id, j.task, j.state, j.result_uri
FROM {t}jobs j
WHERE j.id {part:one_of(asked)};

-- name: read_attempts
-- The attempts of a job that did not succeed, in order.
SELECT job_id, attempt, outcome, worker, {time(started_at)} AS started_at, {time(finished_at)} AS finished_at,
       error_code, error_message, traceback
FROM {t}attempts
WHERE job_id = :job_id
ORDER BY attempt;

-- part: running
-- The job is running, and running jobs were asked for. A job that was published to Redis and whose worker has sent no
-- message counts as queued, here and below (core/redis_request.py).
:running AND j.state = 'running' AND j.locked_by IS DISTINCT FROM 'redis-unread'

-- part: waiting
-- The job is queued or retryable, and that state was asked for.
(:queued OR :retryable)
      AND (:queued AND (j.state = 'queued' OR j.state = 'running' AND j.locked_by = 'redis-unread')
           OR :retryable AND j.state = 'retryable')

-- part: is_dead
-- The job is dead. The second comparison repeats the condition of the partial index jobs_finished_trouble, here and below.
j.state = 'dead' AND j.state <> 'succeeded'

-- part: is_cancelled
-- The job is cancelled.
j.state = 'cancelled' AND j.state <> 'succeeded'

-- part: live_state
-- The live job is in a state whose parameter is TRUE. The first condition names no column: if it is false, no row is read.
(:queued OR :running OR :retryable)
      AND CASE WHEN j.state = 'queued' OR j.locked_by = 'redis-unread' THEN CAST(:queued AS boolean)
                       WHEN j.state = 'running' THEN CAST(:running AS boolean)
                       ELSE CAST(:retryable AS boolean) END

-- part: finished_state
-- The finished job is in a state whose parameter is TRUE. The first condition names no column: if it is false, no row is
-- read.
(:succeeded OR :dead OR :cancelled)
      AND CASE j.state WHEN 'succeeded' THEN CAST(:succeeded AS boolean) WHEN 'dead' THEN CAST(:dead AS boolean)
                       ELSE CAST(:cancelled AS boolean) END

-- part: list_of(table | which)
-- A branch of a list: the newest :n matching jobs of one table before :id.
SELECT id FROM (
    SELECT j.id FROM {t}{table} j WHERE {which} AND j.id < :id AND {filter} ORDER BY j.id DESC LIMIT :n) newest

-- part: list(branches)
-- The newest :n jobs of all branches.
{branches}
ORDER BY id DESC
LIMIT :n

-- part: count_of(table | which)
-- A branch of a count: the matching jobs of one table.
SELECT 1 FROM {t}{table} j WHERE {which} AND {filter}

-- part: count(branches)
-- The number of jobs in all branches, up to :n.
SELECT count(*) AS number FROM (
    {branches}
    LIMIT :n) found

-- name: {list,count}_all
-- Jobs in any state.
{part:{this}({part:{this}_of(jobs_live | TRUE)}
    UNION ALL
    {part:{this}_of(jobs_finished | TRUE)})};

-- name: {list,count}_in_states
-- Jobs in the states whose parameters are TRUE.
{part:{this}({part:{this}_of(jobs_live | {part:running})}
    UNION ALL
    {part:{this}_of(jobs_live | {part:waiting})}
    UNION ALL
    {part:{this}_of(jobs_finished | :succeeded AND j.state = 'succeeded')}
    UNION ALL
    {part:{this}_of(jobs_finished | :dead AND {part:is_dead})}
    UNION ALL
    {part:{this}_of(jobs_finished | :cancelled AND {part:is_cancelled})})};

-- name: {list,count}_of_owner
-- Jobs of an owner in the states whose parameters are TRUE.
{part:{this}({part:{this}_of(jobs_live | j.owner = :owner AND {part:live_state})}
    UNION ALL
    {part:{this}_of(jobs_finished | j.owner = :owner AND {part:finished_state})})};

-- name: {list,count}_of_owner_in_trouble
-- Running, dead and cancelled jobs of an owner, if the parameter of that state is TRUE.
{part:{this}({part:{this}_of(jobs_live | {part:running} AND j.owner = :owner)}
    UNION ALL
    {part:{this}_of(jobs_finished | :dead AND {part:is_dead} AND j.owner = :owner)}
    UNION ALL
    {part:{this}_of(jobs_finished | :cancelled AND {part:is_cancelled} AND j.owner = :owner)})};

-- name: never_due
-- Jobs whose `run_after` is :end or later; on SQLite also jobs whose `run_after` is not a number.
SELECT CAST(id AS text) AS id, task FROM {t}jobs_live
WHERE NOT ready AND state <> 'running' AND run_after >= :end
ORDER BY run_after DESC
LIMIT :n;
