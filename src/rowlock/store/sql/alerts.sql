-- Alerts, in the order of store/alerts.py.

-- name: take_alert_lease
-- Take or renew the right to evaluate the rules, if nobody else has it. An end that is more than an hour away was written
-- by a clock that was ahead, and counts for nothing.
INSERT INTO {t}alert_lease (one, holder, token, expires_at)
SELECT 1, :holder, mine.token, {after(:lease)} FROM {row:mine(token uuid)} WHERE TRUE
ON CONFLICT (one) DO UPDATE
SET holder = excluded.holder, token = excluded.token, expires_at = excluded.expires_at
WHERE {t}alert_lease.token = excluded.token OR {t}alert_lease.expires_at <= {now}
   OR {t}alert_lease.expires_at > {after(3600 + :lease)}
RETURNING one;

-- name: alert_lease
-- Who evaluates the rules, and how many seconds are left of that.
SELECT holder, {seconds_until(expires_at)} AS seconds FROM {t}alert_lease;

-- name: leave_alert_lease
-- Give up the right to evaluate the rules.
DELETE FROM {t}alert_lease WHERE token = :token;

-- name: hold_alert_lease
-- The fence: a row if this token still has the right. Locked, so that it does not change hands before the commit.
SELECT one FROM {t}alert_lease WHERE token = :token AND expires_at > {now}
{lock()};

-- name: long_running
-- Jobs that have been running for more than -:ago seconds, the longest first. Running jobs are never more than there are slots.
SELECT CAST(id AS text) AS id, queue, task, locked_by, -{seconds_until(locked_at)} AS seconds
FROM {t}jobs_live
WHERE state = 'running' AND locked_by <> 'redis-unread' AND locked_at < {after(:ago)}
ORDER BY locked_at
LIMIT :n;

-- name: dead_lately
-- Jobs that became dead in the last -:ago seconds, by task, among the :n newest dead ones.
SELECT task, count(*) AS number
FROM (
    SELECT j.task, j.finished_at FROM {t}jobs_finished j
    WHERE j.state = 'dead' AND j.state <> 'succeeded'
    ORDER BY j.id DESC LIMIT :n) newest
WHERE finished_at > {after(:ago)}
GROUP BY task;

-- name: broken_sources
-- Sources whose breaker is open or half open, the longest first.
SELECT name, last_error, -{seconds_until(opened_at)} AS seconds
FROM {t}sources WHERE opened_at IS NOT NULL
ORDER BY opened_at
LIMIT :n;

-- name: late_schedules
-- Schedules with a tick that has been due for more than -:ago seconds, the longest first.
SELECT id, -{seconds_until(next_tick)} AS seconds
FROM {t}schedules
WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL AND next_tick < {after(:ago)}
ORDER BY next_tick
LIMIT :n;

-- name: read_alerts
-- All alerts with their times.
SELECT rule, subject, value, text, {time(true_since)} AS true_since, {time(false_since)} AS false_since,
       {time(fired_at)} AS fired_at, {time(told_at)} AS told_at, repeats
FROM {t}alerts
ORDER BY rule, subject;

-- name: write_alerts
-- Write alerts that have changed.
INSERT INTO {t}alerts (rule, subject, value, text, true_since, false_since, fired_at, told_at, repeats)
SELECT found.rule, found.subject, found.value, found.text, found.true_since, found.false_since, found.fired_at,
       found.told_at, found.repeats
FROM {rows:found(rule text, subject text, value float, text text, true_since time, false_since time, fired_at time, told_at time, repeats int)}
WHERE TRUE
ON CONFLICT (rule, subject) DO UPDATE
SET value = excluded.value, text = excluded.text, true_since = excluded.true_since, false_since = excluded.false_since,
    fired_at = excluded.fired_at, told_at = excluded.told_at, repeats = excluded.repeats;

-- name: drop_alert
-- Delete an alert that is over.
DELETE FROM {t}alerts WHERE rule = :rule AND subject = :subject;

-- name: add_alert_messages
-- Store a message, in the transaction of the change that it tells of.
INSERT INTO {t}alert_messages (id, type, body, created_at, send_after)
SELECT made.id, made.type, made.body, {now}, {now}
FROM {rows:made(id uuid, type text, body json)};

-- name: first_alert_message
-- The oldest message that is not sent yet, and the seconds until it may be tried. In order: a resolution must not arrive
-- before what it resolves.
SELECT CAST(id AS text) AS id, type, body, attempts, {seconds_until(send_after)} AS wait,
       -{seconds_until(created_at)} AS age
FROM {t}alert_messages
ORDER BY created_at, id
LIMIT 1;

-- name: unsent_alert_messages
-- Messages that are not sent yet, oldest first.
SELECT CAST(id AS text) AS id, type, body, attempts, last_error, {time(created_at)} AS created_at
FROM {t}alert_messages
ORDER BY created_at, id
LIMIT :n;

-- name: alert_message_sent
-- Delete a message that has arrived or is given up.
DELETE FROM {t}alert_messages WHERE id = :id;

-- name: alert_message_failed
-- Note that a message did not arrive; the next attempt is :wait seconds away.
UPDATE {t}alert_messages
SET attempts = attempts + 1, send_after = {after(:wait)}, last_error = :error
WHERE id = :id;
