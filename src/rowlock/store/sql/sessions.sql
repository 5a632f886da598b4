-- Login links and sessions, in the order of store/sessions.py.

-- name: create_link
-- A login link, by its hash.
INSERT INTO {t}login_links (hash, owner, scope, expires_at)
VALUES (:hash, :owner, :scope, {after(:ttl)});

-- name: forget_links
-- Login links that nobody used in time.
DELETE FROM {t}login_links WHERE expires_at < {now};

-- name: use_link
-- Delete a login link that is good now: a second use finds nothing.
DELETE FROM {t}login_links
WHERE hash = :hash AND expires_at > {now}
RETURNING owner, scope;

-- part: session
-- The stored session, in the order of tokens.Token.
RETURNING CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id,
          {time(created_at)} AS created_at, {time(expires_at)} AS expires_at, {time(revoked_at)} AS revoked_at

-- name: create_session
-- A session, by its hash.
INSERT INTO {t}tokens (id, hash, hint, owner, scope, kind, created_at, expires_at)
VALUES (:id, :hash, :hint, :owner, :scope, 'session', {now}, {after(:ttl)})
{part:session};

-- name: create_session_from
-- A session with the rights of a token that is good now. It ends with the token at the latest.
INSERT INTO {t}tokens (id, hash, hint, owner, scope, kind, made_from, created_at, expires_at)
SELECT :id, :hash, :hint, t.owner, t.scope, 'session', t.id, {now},
       CASE WHEN t.expires_at < {after(:ttl)} THEN t.expires_at ELSE {after(:ttl)} END
FROM {t}tokens t
WHERE t.hash = :token AND t.kind = 'token' AND t.job_id IS NULL AND {part:good(t)}
{part:session};
