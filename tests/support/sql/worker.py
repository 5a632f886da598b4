"""A worker that speaks SQL alone: one connection, and short words for what it calls."""

import json
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from support.rigs.rig import TABLES


class Sql:
    """One connection and short words for what a worker calls."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def rows(self, text: str, *values: Any) -> list[dict[str, Any]]:
        return self.connection.execute(text, values).fetchall()

    def value(self, text: str, *values: Any) -> Any:
        (row,) = self.rows(text, *values)
        return next(iter(row.values()))

    def enqueue(self, task: str = "t", **options: Any) -> UUID:
        made: UUID = self.value("SELECT rowlock.enqueue(%s, '{}', %s)", task, json.dumps(options))
        return made

    def claim(self, n: int = 1, *tasks: str, worker: str = "w", **options: Any) -> list[dict[str, Any]]:
        wanted = list(tasks) or ["t"]
        return self.rows("SELECT * FROM rowlock.claim(%s, %s, %s, %s)", worker, wanted, n, json.dumps(options))

    def end(self, verb: str, job: dict[str, Any], *more: Any) -> str:
        places = ", %s" * len(more)
        answer: str = self.value(f"SELECT rowlock.{verb}(%s, %s{places})", job["job_id"], job["token"], *more)
        return answer

    def empty(self) -> None:
        """Remove every row but those of sources: for rows of a table that share one database."""
        for table in (*TABLES, "batch_counts", "batches"):
            self.connection.execute(f"DELETE FROM rowlock.{table}")  # type: ignore[call-overload]

    def job(self, job_id: UUID) -> dict[str, Any]:
        (row,) = self.rows("SELECT * FROM rowlock.jobs WHERE id = %s", job_id)
        return row


def leases(*jobs: dict[str, Any]) -> str:
    return json.dumps([{"job_id": str(job["job_id"]), "token": str(job["token"])} for job in jobs])
