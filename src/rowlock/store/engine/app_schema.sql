-- Which of an app's own migrations the database has, in the order of store/engine/app_schema.py.

-- name: app_migrations
-- The numbers that are applied.
SELECT number FROM {t}app_migrations WHERE app = :app;

-- name: lock_migrations [postgres]
-- One process migrates at a time, Rowlock's tables or an app's. (On SQLite a transaction is the only writer anyway.)
SELECT pg_advisory_xact_lock(hashtext('rowlock.migrate'));

-- name: mark_app_migration
-- Note that a file was applied, in the transaction that runs it.
INSERT INTO {t}app_migrations (app, number, name, applied_at) VALUES (:app, :number, :name, {now});
