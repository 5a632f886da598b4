-- Browsers: a login link is exchanged for a session, which the browser keeps in a cookie.

-- A session is a token that is accepted in a cookie alone, and a token is not accepted in a cookie. Being rows of one
-- table, both are listed, revoked, pruned and checked beside open sockets by the same statements.
ALTER TABLE rowlock.tokens ADD COLUMN kind text NOT NULL DEFAULT 'token';
ALTER TABLE rowlock.tokens ADD CONSTRAINT tokens_kind CHECK (
    kind = 'token' OR (kind = 'session' AND job_id IS NULL AND expires_at IS NOT NULL));
ALTER TABLE rowlock.tokens ADD COLUMN made_from uuid;  -- of a session: the token that asked for it, and with which it is revoked

-- Login links that were not used yet, by the SHA-256 of their secret. Using one deletes it.
CREATE TABLE rowlock.login_links (
    hash       text        PRIMARY KEY,
    owner      text,                             -- whose session it opens; NULL for an operator's
    scope      text        NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT login_links_scope CHECK (scope IN ('jobs', 'operator', 'operator:read')),
    CONSTRAINT login_links_owner CHECK ((owner IS NULL) = (scope <> 'jobs'))
);
