-- Tokens of the job API, in the order of store/tokens.py.

-- name: create_token
-- A token, by its hash; with :ttl it is good for that many seconds.
INSERT INTO {t}tokens (id, hash, hint, owner, scope, job_id, created_at, expires_at)
VALUES (:id, :hash, :hint, :owner, :scope, :job_id, {now}, {after(:ttl)});

-- part: tokens
-- What is known about tokens, in the order of tokens.Token.
SELECT CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id,
       {time(created_at)} AS created_at, {time(expires_at)} AS expires_at, {time(revoked_at)} AS revoked_at
FROM {t}tokens t

-- part: good(token)
-- This token is neither revoked nor expired, nor is the token revoked that a session was made from: a revoke does not see
-- a session that is being opened at the same moment.
{token}.revoked_at IS NULL AND coalesce({token}.expires_at > {now}, TRUE)
  AND (SELECT p.revoked_at FROM {t}tokens p WHERE p.id = {token}.made_from) IS NULL

-- name: find_token
-- The token or session with this hash, if it is good now.
{part:tokens}
WHERE hash = :hash AND kind = :kind AND {part:good(t)};

-- name: list_tokens
-- Every token that people made and every session, newest first. Tokens of single jobs are left out: there may be very many, and they end
-- by themselves.
{part:tokens}
WHERE job_id IS NULL
ORDER BY created_at DESC, id DESC
LIMIT :n;

-- name: revoke_tokens
-- End the tokens with this id, hint or hash, and the sessions that were made from them; returns the ones that this call has
-- ended.
UPDATE {t}tokens SET revoked_at = {now}
WHERE revoked_at IS NULL AND (
    CAST(id AS text) = :which OR hint = :which OR hash = :which
    OR made_from IN (
        SELECT t.id FROM {t}tokens t WHERE CAST(t.id AS text) = :which OR t.hint = :which OR t.hash = :which))
RETURNING CAST(id AS text) AS id, hint;

-- name: good_tokens
-- Of these tokens, the ones that are still good: open sockets are closed when theirs is not.
SELECT CAST(t.id AS text) AS id
FROM {rows:asked(id uuid)}
CROSS JOIN {t}tokens t
WHERE t.id = asked.id AND {part:good(t)};

-- name: any_token
-- Whether there is a token at all that is good now.
SELECT 1 AS found FROM {t}tokens t
WHERE job_id IS NULL AND {part:good(t)}
LIMIT 1;

-- name: prune_tokens
-- Tokens that ended more than a day ago, in a bounded batch.
DELETE FROM {t}tokens
WHERE id IN (
    SELECT id FROM {t}tokens
    WHERE expires_at < {after(-86400)}
    ORDER BY expires_at
    LIMIT :n
    {skip_locked()})
RETURNING id;

-- name: create_ticket
-- A ticket, by its hash.
INSERT INTO {t}tickets (hash, owner, scope, token_id, job_id, good_until, expires_at)
VALUES (:hash, :owner, :scope, :token_id, :job_id, :good_until, {after(:ttl)});

-- name: forget_tickets
-- Tickets that nobody used in time.
DELETE FROM {t}tickets WHERE expires_at < {now};

-- name: use_ticket
-- Take a ticket away, if it and the token that asked for it are good now: a second use finds nothing.
DELETE FROM {t}tickets
WHERE hash = :hash AND expires_at > {now}
  AND (token_id IS NULL OR token_id IN (SELECT t.id FROM {t}tokens t WHERE {part:good(t)}))
RETURNING owner, scope, CAST(token_id AS text) AS token_id, CAST(job_id AS text) AS job_id, good_until;
