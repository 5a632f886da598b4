-- Counts of ends and failures, in the order of store/read/counters.py. New counts are in `tallies` until a worker sums
-- them up. Every reader adds both in one statement, so that no row is missed or counted twice meanwhile.

-- name: totals
-- All counts since the beginning.
SELECT queue, task, what, sum(number) AS number
FROM (
    SELECT queue, task, what, number FROM {t}counters
    UNION ALL
    SELECT queue, task, what, number FROM {t}tallies) counted
GROUP BY queue, task, what
ORDER BY queue, task, what;

-- part: counted
-- Counts since :since, by minutes or hours, of one queue or task if it is given. Counts that have not been summed up
-- have their minute in either case.
FROM (
    SELECT r.at, r.queue, r.task, r.what, r.run_bucket, r.wait_bucket, r.number FROM {t}rollups r
    WHERE r.seconds = :seconds AND r.at >= :since
    UNION ALL
    SELECT y.at, y.queue, y.task, y.what, y.run_bucket, y.wait_bucket, y.number FROM {t}tallies y
    WHERE y.at >= :since) counted
WHERE CASE WHEN CAST(:queue AS text) IS NULL THEN TRUE ELSE queue = :queue END
  AND CASE WHEN CAST(:task AS text) IS NULL THEN TRUE ELSE task = :task END

-- name: ends_by_queue
-- For each minute or hour since :since and each queue, the number of each kind of end.
SELECT {time(counted.at)} AS at, queue, what, sum(number) AS number
{part:counted}
GROUP BY counted.at, queue, what;

-- name: ends_by_time
-- For each minute or hour since :since, the number of each kind of end.
SELECT {time(counted.at)} AS at, what, sum(number) AS number
{part:counted}
GROUP BY counted.at, what;

-- name: buckets_by_time
-- For each minute or hour since :since, the number of attempts in each bucket of run times, or (if :what is 'wait') of
-- jobs in each bucket of wait times. Only successes have a bucket of wait times.
SELECT {time(found.at)} AS at, bucket, sum(number) AS number
FROM (
    SELECT counted.at, CASE :what WHEN 'wait' THEN wait_bucket ELSE run_bucket END AS bucket, number
    {part:counted}) found
WHERE bucket >= 0
GROUP BY found.at, bucket;

-- name: spread_by_queue
-- For each queue since :since, the number of successes in each pair of buckets of run and wait times.
SELECT queue, run_bucket, wait_bucket, sum(number) AS number
{part:counted} AND what = 'succeeded'
GROUP BY queue, run_bucket, wait_bucket;

-- name: any_tally
-- Whether there are tallies to sum up.
SELECT 1 AS found FROM {t}tallies LIMIT 1;

-- name: sum_up [postgres]
-- Move up to :n tallies into the minutes, the hours and the totals. The function is in functions/claim.sql, because SQL
-- workers call it as well.
SELECT rowlock._sum_up(:n) AS moved;

-- name: sum_up_rollups [sqlite]
-- Add the tallies to the minutes (:seconds is 60) or to the hours (3600).
INSERT INTO rowlock_rollups
SELECT :seconds, CASE :seconds WHEN 60 THEN at ELSE {hour(at)} END, queue, task, what, run_bucket, wait_bucket,
       sum(number), sum(run_seconds), sum(wait_seconds)
FROM rowlock_tallies WHERE TRUE
GROUP BY 2, queue, task, what, run_bucket, wait_bucket
ON CONFLICT (seconds, at, queue, task, what, run_bucket, wait_bucket) DO UPDATE
SET number = number + excluded.number, run_seconds = run_seconds + excluded.run_seconds,
    wait_seconds = wait_seconds + excluded.wait_seconds;

-- name: sum_up_totals [sqlite]
-- Add the tallies to the totals.
INSERT INTO rowlock_counters
SELECT queue, task, what, run_bucket, wait_bucket, sum(number), sum(run_seconds), sum(wait_seconds)
FROM rowlock_tallies WHERE TRUE
GROUP BY queue, task, what, run_bucket, wait_bucket
ON CONFLICT (queue, task, what, run_bucket, wait_bucket) DO UPDATE
SET number = number + excluded.number, run_seconds = run_seconds + excluded.run_seconds,
    wait_seconds = wait_seconds + excluded.wait_seconds;

-- name: sum_up_remove [sqlite]
-- Delete the tallies, which have been summed up.
DELETE FROM rowlock_tallies;

-- name: forget_rollups
-- Delete minutes (:seconds is 60) or hours (3600) that began more than -:ago seconds ago.
DELETE FROM {t}rollups WHERE seconds = :seconds AND at < {after(:ago)};

-- name: begin_sample
-- Reserve this minute's sample for the calling process. Returns no row if another process has it.
INSERT INTO {t}queue_samples (at, queue, ready, waiting, running)
SELECT {minute({now})}, '', 0, 0, 0
WHERE TRUE
ON CONFLICT (at, queue) DO NOTHING
RETURNING 1 AS mine;

-- name: write_samples
-- Store the length of each queue in this minute.
INSERT INTO {t}queue_samples (at, queue, ready, waiting, running, oldest_seconds)
SELECT {minute({now})}, s.queue, s.ready, s.waiting, s.running, s.oldest
FROM {rows:s(queue text, ready int, waiting int, running int, oldest float)}
WHERE TRUE
ON CONFLICT (at, queue) DO NOTHING;

-- part: sampled
-- Samples since :since, of one queue if it is given.
FROM {t}queue_samples
WHERE at >= :since AND queue <> ''
  AND CASE WHEN CAST(:queue AS text) IS NULL THEN TRUE ELSE queue = :queue END

-- name: samples
-- The length of each queue in each minute: the newest :n samples.
SELECT {time(at)} AS at, queue, ready, waiting, running, oldest_seconds
{part:sampled}
ORDER BY {t}queue_samples.at DESC
LIMIT :n;

-- name: samples_by_hour
-- The maximum length of each queue in each hour: the newest :n.
SELECT {time(hours.at)} AS at, queue, ready, waiting, running, oldest_seconds
FROM (
    SELECT {hour(at)} AS at, queue, max(ready) AS ready, max(waiting) AS waiting, max(running) AS running,
           max(oldest_seconds) AS oldest_seconds
    {part:sampled}
    GROUP BY 1, 2) hours
ORDER BY hours.at DESC
LIMIT :n;

-- name: forget_samples
-- Delete samples that were taken more than -:ago seconds ago.
DELETE FROM {t}queue_samples WHERE at < {after(:ago)};
