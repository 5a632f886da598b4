-- What the metrics of the server need beside `reads.stats`, in the order of store/metrics.py.

-- name: source_levels
-- Sources, not classes, with what decides whether their jobs may start and what is left in their buckets. Those with
-- limits of their own come first. One pass over at most :n rows; no job is counted.
SELECT s.name,
       s.enabled AND coalesce(c.class_enabled, TRUE) AS enabled,
       coalesce(s.paused_until > {now}, FALSE) OR coalesce(c.class_paused_until > {now}, FALSE) AS paused,
       s.opened_at IS NOT NULL AS opened,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate,
       CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END AS burst,
       s.tokens, -{seconds_until(s.tokens_at)} AS elapsed
FROM {t}sources s LEFT JOIN {t}sources c ON c.name = {class(s.name)}
WHERE s.name LIKE '%:%'
ORDER BY CASE WHEN s.set_by IS NULL THEN 1 ELSE 0 END, s.name
LIMIT :n;
