"""Rowlock on SQLite (WAL, synchronous=FULL), with its defaults but for pool_size."""

from bench.adapter import run
from bench.systems.rowlock_postgres import RowlockPostgres


class RowlockSqlite(RowlockPostgres):
    engine = "sqlite"
    left_sql = "SELECT count(*) FROM rowlock_jobs_live"


if __name__ == "__main__":
    run(RowlockSqlite)
