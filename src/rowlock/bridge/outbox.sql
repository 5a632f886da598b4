-- Messages from the bridge to Redis, in the order of bridge/outbox.py.

-- name: outbox_add
-- Add requests for jobs that this transaction has just claimed. For :patience seconds, only the bridge that claimed the
-- jobs sends them.
INSERT INTO {t}outbox (kind, job_id, token, take_at)
SELECT 'request', picked.id, picked.token, {after(:patience)}
FROM {rows:picked(id uuid, token uuid)};

-- name: publish [postgres]
-- Claim as `claim` does, add the requests, and start the batches of the claimed jobs, in one statement: as three
-- statements in a transaction, this would cost five round trips.
WITH {part:picking}, claimed AS (
    -- Check `ready` again: another worker may have claimed the row between this statement's snapshot and its lock.
    UPDATE rowlock.jobs_live j
    SET {part:leased}, locked_at = {now}, started_at = {now}
    WHERE j.id = ANY(ARRAY(SELECT id FROM picked)) AND j.ready
    RETURNING j.*
), added AS (
    INSERT INTO rowlock.outbox (kind, job_id, token, take_at)
    SELECT 'request', id, lease_token, {after(:patience)} FROM claimed
), begun AS (
    UPDATE rowlock.batches SET state = 'running', started_at = coalesce(started_at, {now})
    WHERE id = ANY(ARRAY(SELECT batch_id FROM claimed WHERE batch_id IS NOT NULL)) AND state = 'queued'
)
SELECT {part:claimed}, {time(created_at)} FROM claimed;

-- name: outbox_cancel
-- Add messages that inform workers that these jobs were cancelled.
INSERT INTO {t}outbox (kind, job_id, take_at)
SELECT 'cancel', asked.id, {now} FROM {rows:asked(id uuid)};

-- name: outbox_wanted
-- The creation times of those of these jobs that are still unread under these leases.
SELECT CAST(j.id AS text) AS id, {time(j.created_at)} AS created_at
FROM {rows:asked(job_id uuid, token uuid)}
CROSS JOIN {t}jobs_live j
WHERE j.id = asked.job_id AND j.lease_token = asked.token AND j.state = 'running' AND {part:unread};

-- name: outbox_take
-- Take over messages that were not sent in time, oldest first: their bridge has died, or Redis was unreachable. For
-- :patience seconds, no other bridge takes them.
UPDATE {t}outbox SET take_at = {after(:patience)}
WHERE id IN (
    SELECT id FROM {t}outbox
    WHERE sent_at IS NULL AND take_at <= {now}
    ORDER BY id
    LIMIT :n
    FOR UPDATE SKIP LOCKED)
RETURNING id, kind, CAST(job_id AS text) AS job_id, CAST(token AS text) AS token;

-- name: outbox_sent [postgres]
-- Mark requests as sent, each with its entry id in the stream. The commit doesn't wait for the disk, because on a busy
-- one that took longer than the statement. If the server crashes and loses the mark, the request is sent once more, as
-- after a crash of the bridge.
WITH marked AS (
    UPDATE rowlock.outbox SET sent_at = {now}, entry = sent.entry
    FROM {rows:sent(job_id uuid, token uuid, entry text)}
    WHERE rowlock.outbox.job_id = sent.job_id AND rowlock.outbox.token = sent.token
)
SELECT set_config('synchronous_commit', 'off', true);

-- name: outbox_sent [sqlite]
-- Mark requests as sent, each with its entry id in the stream.
UPDATE rowlock_outbox SET sent_at = {now}, entry = sent.entry
FROM {rows:sent(job_id uuid, token uuid, entry text)}
WHERE rowlock_outbox.job_id = sent.job_id AND rowlock_outbox.token = sent.token;

-- name: outbox_remove
-- Delete rows by id.
DELETE FROM {t}outbox WHERE id {among(SELECT CAST(gone.id AS bigint) FROM {rows:gone(id text)})};

-- name: outbox_heard
-- Delete the requests of jobs from which a worker has reported.
DELETE FROM {t}outbox
WHERE kind = 'request' AND job_id {in:heard(job_id uuid)};

-- name: outbox_overdue
-- How many unsent messages have been due for more than -:ago seconds, up to :n.
SELECT count(*) AS number FROM (
    SELECT 1 FROM {t}outbox WHERE sent_at IS NULL AND take_at < {after(:ago)} ORDER BY take_at LIMIT :n) overdue;

-- name: outbox_unread
-- How many published requests are unanswered.
SELECT count(*) AS number FROM {t}outbox WHERE kind = 'request';

-- name: outbox_quiet
-- Unanswered requests that were sent more than -:ago seconds ago, after row :id, with the seconds since then.
SELECT o.id, CAST(o.job_id AS text) AS job_id, CAST(o.token AS text) AS token, o.entry,
       -{seconds_until(o.sent_at)} AS age,
       (SELECT 1 FROM {t}jobs_live j
        WHERE j.id = o.job_id AND j.lease_token = o.token AND {part:unread}) IS NOT NULL AS waits
FROM {t}outbox o
WHERE o.kind = 'request' AND o.sent_at < {after(:ago)} AND o.id > CAST(:id AS bigint)
ORDER BY o.id
LIMIT :n;

-- name: outbox_again
-- Make these messages unsent, so that they are sent again.
UPDATE {t}outbox SET sent_at = NULL, entry = NULL, take_at = {now}
WHERE id {among(SELECT CAST(again.id AS bigint) FROM {rows:again(id text)})};
