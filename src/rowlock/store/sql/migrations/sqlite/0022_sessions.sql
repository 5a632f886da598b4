-- Browsers: a login link is exchanged for a session, which the browser keeps in a cookie.

-- A session is a token that is accepted in a cookie alone, and a token is not accepted in a cookie. Being rows of one
-- table, both are listed, revoked, pruned and checked beside open sockets by the same statements.
ALTER TABLE rowlock_tokens ADD COLUMN kind TEXT NOT NULL DEFAULT 'token' CHECK (
    kind = 'token' OR (kind = 'session' AND job_id IS NULL AND expires_at IS NOT NULL));
ALTER TABLE rowlock_tokens ADD COLUMN made_from TEXT;  -- of a session: the token that asked for it, and with which it is revoked

-- Login links that were not used yet, by the SHA-256 of their secret. Using one deletes it.
CREATE TABLE rowlock_login_links (
    hash       TEXT PRIMARY KEY NOT NULL,
    owner      TEXT,                             -- whose session it opens; NULL for an operator's
    scope      TEXT NOT NULL CHECK (scope IN ('jobs', 'operator', 'operator:read')),
    expires_at REAL NOT NULL,
    CHECK ((owner IS NULL) = (scope <> 'jobs'))
);
