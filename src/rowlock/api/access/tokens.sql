-- Tokens, sessions, login links and tickets: api/access/tokens.py.

-- part: token
-- The columns of tokens.Token.
CAST(id AS text) AS id, kind, hint, owner, scope, CAST(job_id AS text) AS job_id, {time(created_at)} AS created_at,
       {time(expires_at)} AS expires_at, {time(revoked_at)} AS revoked_at

-- part: good
-- The token `t` is neither revoked nor expired, nor is the token revoked that it was made from: a revoke does not see a
-- session that is being opened at the same moment.
t.revoked_at IS NULL AND coalesce(t.expires_at > {now}, TRUE)
  AND (SELECT p.revoked_at FROM {t}tokens p WHERE p.id = t.made_from) IS NULL

-- name: create_token
-- A token of any kind, by its hash. It is good for :ttl seconds, and not after :until.
INSERT INTO {t}tokens
    (id, hash, hint, kind, uses, owner, scope, job_id, made_from, good_until, created_at, expires_at)
VALUES (:id, :hash, :hint, :kind, :uses, :owner, :scope, :job_id, :made_from, :good_until, {now},
        CASE WHEN CAST(:until AS timestamptz) < {after(:ttl)} THEN :until ELSE {after(:ttl)} END)
RETURNING {part:token};

-- name: find_token
-- The token of this kind with this hash, if it is good now.
SELECT {part:token} FROM {t}tokens t
WHERE hash = :hash AND kind = :kind AND {part:good};

-- name: use_token
-- Use a token of this kind once, if it and the token that asked for it are good now. Of two uses at the same moment, the
-- second waits for the row and then finds no use left.
UPDATE {t}tokens AS t SET uses = uses - 1
WHERE t.hash = :hash AND t.kind = :kind AND t.uses > 0 AND {part:good}
  AND (t.made_from IS NULL OR t.made_from IN (SELECT t.id FROM {t}tokens t WHERE {part:good}))
RETURNING {part:token}, CAST(made_from AS text) AS token_id, good_until;

-- name: list_tokens
-- Tokens that people made, and sessions, newest first. Tokens of single jobs are left out: there may be very many, and they
-- expire soon.
SELECT {part:token} FROM {t}tokens t
WHERE job_id IS NULL AND uses IS NULL
ORDER BY created_at DESC, id DESC
LIMIT :n;

-- name: revoke_tokens
-- End the tokens with this id, hint or hash, and the sessions that were made from them; returns the ones that this call has
-- ended.
UPDATE {t}tokens SET revoked_at = {now}
WHERE revoked_at IS NULL AND uses IS NULL AND (
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
WHERE job_id IS NULL AND uses IS NULL AND {part:good}
LIMIT 1;

-- name: prune_tokens
-- Links and tickets that have expired, and tokens that expired more than a day ago, in a bounded batch.
DELETE FROM {t}tokens
WHERE id IN (
    SELECT id FROM {t}tokens
    WHERE expires_at < CASE WHEN uses IS NULL THEN {after(-86400)} ELSE {now} END
    ORDER BY expires_at
    LIMIT :n
    FOR UPDATE SKIP LOCKED)
RETURNING 1 AS pruned;
