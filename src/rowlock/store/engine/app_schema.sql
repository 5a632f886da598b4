-- An app's own migrations, in the order of store/engine/app_schema.py.

-- name: app_migrations
-- The numbers of the applied files.
SELECT number FROM {t}app_migrations WHERE app = :app;

-- name: lock_migrations [postgres]
-- Only one process at a time migrates Rowlock's or an app's tables. (On SQLite, a transaction is alone anyway.)
SELECT pg_advisory_xact_lock(hashtext('rowlock.migrate'));

-- name: mark_app_migration
-- Record a file as applied, in the transaction that runs it.
INSERT INTO {t}app_migrations (app, number, name, applied_at) VALUES (:app, :number, :name, {now});
