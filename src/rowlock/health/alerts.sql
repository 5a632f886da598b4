-- Alerts, in the order of health/alerts.py.

-- name: take_alert_lease
-- Take or renew the lease of the process that evaluates the rules; no row if another process has it. A lease that ends
-- more than an hour from now was written while the clock was ahead, and counts as expired.
INSERT INTO {t}alert_lease (one, holder, token, expires_at)
SELECT 1, :holder, mine.token, {after(:lease)} FROM {row:mine(token uuid)} WHERE TRUE
ON CONFLICT (one) DO UPDATE
SET holder = excluded.holder, token = excluded.token, expires_at = excluded.expires_at
WHERE {t}alert_lease.token = excluded.token OR {t}alert_lease.expires_at <= {now}
   OR {t}alert_lease.expires_at > {after(3600 + :lease)}
RETURNING one;

-- name: alert_lease
-- The process that has the lease, and the seconds until the lease expires.
SELECT holder, {seconds_until(expires_at)} AS seconds FROM {t}alert_lease;

-- name: leave_alert_lease
-- Give up the lease.
DELETE FROM {t}alert_lease WHERE token = :token;

-- name: hold_alert_lease
-- The fence: a row if this token still has the lease, locked so that no other process takes it before the commit.
SELECT one FROM {t}alert_lease WHERE token = :token AND expires_at > {now}
FOR UPDATE;

-- name: read_alerts
-- All alerts that are pending, firing or resolving.
SELECT rule, subject, value, text, {time(true_since)} AS true_since, {time(false_since)} AS false_since,
       {time(fired_at)} AS fired_at, {time(told_at)} AS told_at, repeats
FROM {t}alerts
ORDER BY rule, subject;

-- name: write_alerts
-- Insert new alerts and update changed ones.
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
-- Store messages, in the transaction that changes the alerts they report.
INSERT INTO {t}alert_messages (id, type, body, created_at, send_after)
SELECT made.id, made.type, made.body, {now}, {now}
FROM {rows:made(id uuid, type text, body json)};

-- name: alert_messages
-- The oldest messages that have not arrived, each with the seconds until its next attempt. The messages of one alert
-- are sent in this order, so that "resolved" never arrives before "firing".
SELECT CAST(id AS text) AS id, type, body, attempts, {seconds_until(send_after)} AS wait,
       -{seconds_until(created_at)} AS age, last_error
FROM {t}alert_messages
ORDER BY created_at, id
LIMIT :n;

-- name: alert_message_sent
-- Delete a message that has arrived, or that won't be tried again.
DELETE FROM {t}alert_messages WHERE id = :id;

-- name: alert_message_failed
-- Count a failed attempt to send a message; the next attempt is :wait seconds from now.
UPDATE {t}alert_messages
SET attempts = attempts + 1, send_after = {after(:wait)}, last_error = :error
WHERE id = :id;
