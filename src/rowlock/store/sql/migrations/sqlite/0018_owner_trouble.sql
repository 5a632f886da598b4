-- The dead and cancelled jobs of one owner, for lists by status: the index by owner also has the successes, which are
-- nearly all, and the index by state has the jobs of every owner (an owner without a dead job beside 30,000 of others:
-- 200 ms). A success adds no entry.
CREATE INDEX rowlock_jobs_finished_owner_trouble ON rowlock_jobs_finished (owner, state, id)
WHERE owner IS NOT NULL AND state <> 'succeeded';
