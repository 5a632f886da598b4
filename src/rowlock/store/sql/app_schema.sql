-- Which of an app's own migrations the database has, in the order of store/app_schema.py.

-- name: app_migrations
-- The numbers that are applied.
SELECT number FROM {t}app_migrations WHERE app = :app;

-- name: lock_migrations [postgres]
-- One at a time, whoever migrates what. (A transaction on SQLite is the only writer already.)
SELECT pg_advisory_xact_lock(hashtext('rowlock.migrate'));

-- name: mark_app_migration
-- In the transaction that runs the file.
INSERT INTO {t}app_migrations (app, number, name, applied_at) VALUES (:app, :number, :name, {now});
