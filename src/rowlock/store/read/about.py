"""What a database is: the program that keeps it, and the migrations that it has."""

from __future__ import annotations

from typing import NamedTuple

from rowlock.store.engine.operation import Call, Steps, operation


class About(NamedTuple):
    """One database."""

    server: str  # such as PostgreSQL 17.2
    schema: int  # the number of its newest migration


@operation(read=True)
def about() -> Steps[About]:
    """What the database is."""
    (row,) = yield Call("about")
    return About(row.server, row.schema or 0)
