-- Dispatchers and the schedules that they declare, in the order of dispatchers.py.

-- name: register_dispatcher
-- Register a dispatcher, with the schedules of its code and config.
INSERT INTO {t}dispatchers (id, declares, bell, started_at, seen_at, expires_at)
VALUES (:id, :declares, :address, {now}, {now}, {after(:lease)})
ON CONFLICT (id) DO UPDATE
SET declares = excluded.declares, seen_at = excluded.seen_at, expires_at = excluded.expires_at
RETURNING started_at;

-- name: dispatcher_seen
-- Renew a dispatcher's lease. Returns no row if it has expired: then the dispatcher must declare its schedules again.
UPDATE {t}dispatchers SET seen_at = {now}, expires_at = {after(:lease)}
WHERE id = :id AND expires_at > {now}
RETURNING id;

-- name: remove_dispatcher
-- Delete the row of a dispatcher that is stopping, and those of dispatchers whose lease expired more than a day ago.
DELETE FROM {t}dispatchers WHERE id = :id OR expires_at < {after(-86400)};

-- name: declarations
-- The schedules that each dispatcher declares, and whether it is alive. Includes dead dispatchers whose lease expired
-- less than -:ago seconds ago.
SELECT declares, expires_at > {now} AS alive FROM {t}dispatchers WHERE expires_at > {after(:ago)};

-- name: touch_declared
-- Record that live dispatchers declare these schedules, so that they are not retired.
UPDATE {t}schedules SET declared_at = {now}
WHERE origin <> 'runtime' AND retired_at IS NULL AND declared_at < {after(:ago)}
  AND id {in:asked(id text)};

-- name: retire_schedules
-- Retire schedules that no live process has declared for -:ago seconds; they stay in the list. `spared` holds the
-- schedules of dispatchers that are or recently were alive, because `declared_at` is updated only now and then.
UPDATE {t}schedules SET retired_at = {now}, updated_at = {now}
WHERE origin <> 'runtime' AND retired_at IS NULL AND declared_at < {after(:ago)}
  AND NOT (id {in:spared(id text)})
RETURNING id;
