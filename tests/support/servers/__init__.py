"""Programs that the tests start or find: PostgreSQL, Redis, PgBouncer, HTTP receivers, Node."""
