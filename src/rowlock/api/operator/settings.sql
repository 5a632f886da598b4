-- What a database is: api/operator/settings.py.

-- name: about [postgres]
-- The server and its newest migration.
SELECT 'PostgreSQL ' || current_setting('server_version') AS server,
       (SELECT max(number) FROM rowlock.migrations) AS schema;

-- name: about [sqlite]
-- The library and the newest migration of the file.
SELECT 'SQLite ' || sqlite_version() AS server, (SELECT max(number) FROM rowlock_migrations) AS schema;
