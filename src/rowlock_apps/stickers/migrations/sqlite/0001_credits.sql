-- Who has how many credits, what was ordered, and every move of a credit.

CREATE TABLE stickers_users (
    id      text    PRIMARY KEY NOT NULL,
    credits integer NOT NULL CHECK (credits >= 0)          -- always the sum of this user's ledger
);

CREATE TABLE stickers_orders (
    job_id     text    PRIMARY KEY NOT NULL,
    user_id    text    NOT NULL REFERENCES stickers_users (id),
    prompt     text    NOT NULL,
    request_id text,                                       -- the client's own name for its request
    charges    integer NOT NULL DEFAULT 0,
    refunds    integer NOT NULL DEFAULT 0,
    attempt    integer NOT NULL DEFAULT 0,                 -- the newest that took or gave back money: older ones may not
    created_at text    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),

    UNIQUE (user_id, request_id),
    CONSTRAINT paid_once CHECK (charges - refunds IN (0, 1))
);

CREATE TABLE stickers_ledger (
    id         integer PRIMARY KEY,
    user_id    text    NOT NULL REFERENCES stickers_users (id),
    job_id     text    REFERENCES stickers_orders (job_id),
    kind       text    NOT NULL CHECK (kind IN ('grant', 'charge', 'refund')),
    round      integer,                                    -- the order's first, second … charge or refund
    amount     integer NOT NULL,
    created_at text    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),

    UNIQUE (job_id, kind, round),
    CONSTRAINT sign CHECK (CASE kind WHEN 'charge' THEN amount < 0 ELSE amount > 0 END),
    CONSTRAINT whose CHECK ((kind = 'grant') = (job_id IS NULL) AND (kind = 'grant') = (round IS NULL))
);
CREATE INDEX stickers_ledger_user ON stickers_ledger (user_id);

-- The drawing jobs, under a name that both engines know.
CREATE VIEW stickers_jobs AS
SELECT id, state, attempt, owner, args, locked_by, started_at, finished_at, result, error_code, error_message, created_at
FROM rowlock_jobs
WHERE task = 'stickers.draw';
