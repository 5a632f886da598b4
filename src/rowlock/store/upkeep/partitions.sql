-- Day partitions of the finished jobs, in the order of partitions.py. A row may be dropped on its day `drop_on` or
-- later, that is, if drop_on < {drop_on(0)}, which is tomorrow.

-- name: tomorrow [postgres]
-- Tomorrow's date, by the database's clock, as ISO text, because a cast to text would depend on DateStyle.
SELECT to_char({drop_on(0)}, 'YYYY-MM-DD') AS day;

-- name: tomorrow [sqlite]
-- Tomorrow's date, by the database's clock.
SELECT {drop_on(0)} AS day;

-- name: partitions [postgres]
-- The existing partitions.
SELECT c.relname
FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'rowlock.jobs_finished'::regclass
ORDER BY c.relname;

-- name: default_days [postgres]
-- Days from :first on that have rows in the default partition already, and so can't get their own. A loose index scan
-- with one probe for each day.
WITH RECURSIVE days (day) AS (
    SELECT min(drop_on) FROM rowlock.jobs_finished_default WHERE drop_on >= CAST(CAST(:first AS text) AS date)
    UNION ALL
    SELECT (SELECT min(f.drop_on) FROM rowlock.jobs_finished_default f WHERE f.drop_on > days.day)
    FROM days
    WHERE days.day IS NOT NULL
)
SELECT to_char(day, 'YYYY-MM-DD') AS day FROM days WHERE day IS NOT NULL;
