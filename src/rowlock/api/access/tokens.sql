-- Tokens of the job API, in the order of api/access/tokens.py.

-- name: create_token
-- A token, by its hash; with :ttl it is good for that many seconds.
INSERT INTO {t}tokens (id, hash, hint, owner, scope, job_id, created_at, expires_at)
VALUES (:id, :hash, :hint, :owner, :scope, :job_id, {now}, {after(:ttl)});

-- part: token
-- The columns of tokens.Token.
CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id, {time(created_at)} AS created_at,
       {time(expires_at)} AS expires_at, {time(revoked_at)} AS revoked_at

-- part: good
-- The token `t` is neither revoked nor expired, nor is the token revoked that a session was made from: a revoke does not see
-- a session that is being opened at the same moment.
t.revoked_at IS NULL AND coalesce(t.expires_at > {now}, TRUE)
  AND (SELECT p.revoked_at FROM {t}tokens p WHERE p.id = t.made_from) IS NULL

-- name: find_token
-- The token or session with this hash, if it is good now.
SELECT {part:token} FROM {t}tokens t
WHERE hash = :hash AND kind = :kind AND {part:good};

-- name: list_tokens
-- Tokens that people made, and sessions, newest first. Tokens of single jobs are left out: there may be very many, and they
-- expire soon.
SELECT {part:token} FROM {t}tokens t
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
WHERE t.id = asked.id AND {part:good};

-- name: any_token
-- Whether there is a token at all that is good now.
SELECT 1 AS found FROM {t}tokens t
WHERE job_id IS NULL AND {part:good}
LIMIT 1;

-- name: prune_tokens
-- Tokens that ended more than a day ago, in a bounded batch.
DELETE FROM {t}tokens
WHERE id IN (
    SELECT id FROM {t}tokens
    WHERE expires_at < {after(-86400)}
    ORDER BY expires_at
    LIMIT :n
    FOR UPDATE SKIP LOCKED)
RETURNING 1 AS pruned;

-- name: create_link
-- Store a login link by its hash.
INSERT INTO {t}login_links (hash, owner, scope, expires_at)
VALUES (:hash, :owner, :scope, {after(:ttl)});

-- name: forget_links
-- Delete login links that were not used in time.
DELETE FROM {t}login_links WHERE expires_at < {now};

-- name: use_link
-- Use up a login link: it is deleted, so a second use finds no row.
DELETE FROM {t}login_links
WHERE hash = :hash AND expires_at > {now}
RETURNING owner, scope;

-- name: create_session
-- A session, by its hash.
INSERT INTO {t}tokens (id, hash, hint, owner, scope, kind, created_at, expires_at)
VALUES (:id, :hash, :hint, :owner, :scope, 'session', {now}, {after(:ttl)})
RETURNING {part:token};

-- name: create_session_from
-- A session with the rights of a token that is good now. It ends with the token at the latest.
INSERT INTO {t}tokens (id, hash, hint, owner, scope, kind, made_from, created_at, expires_at)
SELECT :id, :hash, :hint, t.owner, t.scope, 'session', t.id, {now},
       CASE WHEN t.expires_at < {after(:ttl)} THEN t.expires_at ELSE {after(:ttl)} END
FROM {t}tokens t
WHERE t.hash = :token AND t.kind = 'token' AND t.job_id IS NULL AND {part:good}
RETURNING {part:token};

-- name: create_ticket
-- A ticket, by its hash.
INSERT INTO {t}tickets (hash, owner, scope, token_id, job_id, good_until, expires_at)
VALUES (:hash, :owner, :scope, :token_id, :job_id, :good_until, {after(:ttl)});

-- name: forget_tickets
-- Delete tickets that were not used in time.
DELETE FROM {t}tickets WHERE expires_at < {now};

-- name: use_ticket
-- Use up a ticket, if it and the token that asked for it are good now: a second use finds no row.
DELETE FROM {t}tickets
WHERE hash = :hash AND expires_at > {now}
  AND (token_id IS NULL OR token_id IN (SELECT t.id FROM {t}tokens t WHERE {part:good}))
RETURNING owner, scope, CAST(token_id AS text) AS token_id, CAST(job_id AS text) AS job_id, good_until;
