-- Dispatchers and the schedules that they declare, in the order of store/dispatchers.py.

-- name: register_dispatcher
-- A dispatcher is here, and these are the schedules of its code and config.
INSERT INTO {t}dispatchers (id, declares, bell, started_at, seen_at, expires_at)
VALUES (:id, :declares, :bell, {now}, {now}, {after(:lease)})
ON CONFLICT (id) DO UPDATE
SET declares = excluded.declares, seen_at = excluded.seen_at, expires_at = excluded.expires_at
RETURNING started_at;

-- name: dispatcher_seen
-- A dispatcher's sign of life, unless it was believed gone: then it must declare its schedules again.
UPDATE {t}dispatchers SET seen_at = {now}, expires_at = {after(:lease)}
WHERE id = :id AND expires_at > {now}
RETURNING id;

-- name: remove_dispatcher
-- A dispatcher leaves, taking long-silent rows along. What it declared has been declared until now.
DELETE FROM {t}dispatchers WHERE id = :id OR expires_at < {after(-86400)};

-- name: declarations
-- What each dispatcher declares and whether it is alive: live dispatchers, and dead ones whose lease expired less than
-- -:ago seconds ago.
SELECT declares, expires_at > {now} AS alive FROM {t}dispatchers WHERE expires_at > {after(:ago)};

-- name: touch_declared
-- Schedules that living dispatchers declare are not to be retired.
UPDATE {t}schedules SET declared_at = {now}
WHERE origin <> 'runtime' AND retired_at IS NULL AND declared_at < {after(:ago)}
  AND id {among(SELECT asked.id FROM {rows:asked(id text)})};

-- name: retire_schedules
-- Schedules that have left the code and the config of every living process for -:ago seconds: kept, and shown. Spared
-- are those of processes that said something since: when it was last declared is noted only now and then.
UPDATE {t}schedules SET retired_at = {now}, updated_at = {now}
WHERE origin <> 'runtime' AND retired_at IS NULL AND declared_at < {after(:ago)}
  AND NOT (id {among(SELECT spared.id FROM {rows:spared(id text)})})
RETURNING id;
