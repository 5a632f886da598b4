"""How operations reach a database: PostgreSQL, SQLite, a caller's own connection."""
