-- Webhooks and their secrets, in the order of webhooks.py. A trigger of jobs_finished enqueues the deliveries.

-- name: add_webhook
-- The webhook of a job that this transaction creates.
INSERT INTO {t}webhooks (job_id, owner, url, source, queue, max_attempts, backoff, timeout_seconds)
SELECT hook.job_id, :owner, :url, :source, :queue, :max_attempts, hook.backoff, :timeout_seconds
FROM {row:hook(job_id uuid, backoff json)};

-- name: webhook_deliveries
-- The jobs that deliver the webhook of a job, oldest first.
SELECT CAST(delivery_id AS text) AS id FROM {t}webhook_deliveries WHERE job_id = :job_id ORDER BY delivery_id;

-- name: webhook_of_delivery
-- The webhook that a delivery is for.
SELECT w.url, w.owner
FROM {t}webhook_deliveries d JOIN {t}webhooks w ON w.job_id = d.job_id
WHERE d.job_id = :job_id AND d.delivery_id = :delivery_id;

-- name: prune_webhooks
-- Webhooks of jobs that are gone, in a bounded batch, and with them the list of their deliveries. A job that was retried
-- is live although the day of its first end has come. A delivery that is still to be made needs its webhook.
DELETE FROM {t}webhooks
WHERE job_id IN (
    SELECT w.job_id FROM {t}webhooks w
    WHERE w.drop_on < {drop_on(0)} AND NOT EXISTS (SELECT 1 FROM {t}jobs_live j WHERE j.id = w.job_id)
      AND NOT EXISTS (
          SELECT 1 FROM {t}webhook_deliveries d JOIN {t}jobs_live j ON j.id = d.delivery_id WHERE d.job_id = w.job_id)
    LIMIT :n
    FOR UPDATE OF w SKIP LOCKED)
RETURNING job_id;

-- name: end_webhook_secrets
-- The owner's newest secret signs for :overlap more seconds beside the one that replaces it.
UPDATE {t}webhook_secrets SET expires_at = {after(:overlap)} WHERE owner = :owner AND expires_at IS NULL;

-- name: forget_webhook_secrets
-- Delete the owner's secrets that were replaced before, also if they still sign, so that never more than two sign.
DELETE FROM {t}webhook_secrets WHERE owner = :owner AND expires_at IS NOT NULL;

-- name: create_webhook_secret
-- A new secret, which signs from now on.
INSERT INTO {t}webhook_secrets (id, owner, secret, hint, created_at) VALUES (:id, :owner, :secret, :hint, {now});

-- name: signing_secrets
-- The secrets that sign the webhooks of an owner now, newest first.
SELECT secret FROM {t}webhook_secrets
WHERE owner = :owner AND coalesce(expires_at > {now}, TRUE)
ORDER BY created_at DESC, id DESC;

-- name: list_webhook_secrets
-- The secrets that sign now: everything about them but the secret itself.
SELECT CAST(id AS text) AS id, owner, hint, {time(created_at)} AS created_at, {time(expires_at)} AS expires_at
FROM {t}webhook_secrets
WHERE coalesce(expires_at > {now}, TRUE)
ORDER BY owner, created_at DESC
LIMIT :n;
