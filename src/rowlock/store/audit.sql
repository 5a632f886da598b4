-- The audit of operators' actions, in the order of store/audit.py.

-- name: write_audit
-- Write one entry.
INSERT INTO {t}audit (at, who, via, address, action, target, number, details)
VALUES ({now}, :who, :via, :address, :action, :target, :number, :details)
RETURNING id;

-- name: add_to_audit
-- Add to the number of jobs that an action has changed.
UPDATE {t}audit SET number = number + :number WHERE id = :id;

-- name: list_audit
-- The entries before :before, newest first.
SELECT id, {time(at)} AS at, who, via, address, action, target, number AS count, CAST(details AS text) AS details
FROM {t}audit
WHERE id < :before
ORDER BY id DESC
LIMIT :n;

-- name: prune_audit
-- Delete entries that are older than -:ago seconds.
DELETE FROM {t}audit
WHERE id IN (
    SELECT id FROM {t}audit
    WHERE at < {after(:ago)}
    ORDER BY id
    LIMIT :n)
RETURNING 1 AS pruned;
