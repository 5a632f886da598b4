"""How the SQL of the two engines differs: their capabilities, and their text for each token."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Times beyond these limits are shown as the limit: Python's calendar ends there, and the driver would fail.
EARLIEST, LATEST = "0001-01-02 00:00:00Z", "9999-12-30 00:00:00Z"
LONGEST = 3_155_760_000  # seconds: a finished job is kept for at most a hundred years

POSTGRES_ARRAYS = {
    "uuid": "text[]::uuid[]",  # sent as text, which takes the driver half the time
    "text": "text[]",
    "json": "json[]",
    "int": "integer[]",
    "float": "double precision[]",
    "time": "timestamptz[]",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL and the capabilities of one engine, where the two differ."""

    name: str
    prefix: str
    # Capabilities. An operation checks them (`operation.dialect`) before it calls a statement that only one engine has.
    moves_in_one_statement: bool  # WITH may change rows, so one statement can find rows, move them and return them
    notifies: bool  # statements wake listeners at commit (NOTIFY); otherwise the store sends to stored addresses
    many_writers: bool  # transactions write concurrently, so some need a lock that a single writer makes unnecessary
    partitions: bool  # finished jobs are stored in one partition per day
    is_file: bool  # a file that each process opens itself: no server, no roles, migrated when opened
    clock: str  # SQL for the database's own clock, even if a test sets another time
    migrations_table: str  # SQL that creates the tables `migrations` and `schema_files` if they are missing
    tokens: Mapping[str, Callable[[str], str]]
    rows: Callable[[str, list[tuple[str, str]]], str]
    row: Callable[[str, list[tuple[str, str]]], str]
    place: str  # prefix of a numbered parameter
    leaves_out: re.Pattern[str]  # clauses that only the other engine has


def _postgres_rows(alias: str, columns: list[tuple[str, str]]) -> str:
    arrays = ", ".join(f":{alias}__{n}::{POSTGRES_ARRAYS[kind]}" for n, (_, kind) in enumerate(columns))
    return f"unnest({arrays}) AS {alias}({', '.join(name for name, _ in columns)})"


def _postgres_row(alias: str, columns: list[tuple[str, str]]) -> str:
    kinds = [(name, POSTGRES_ARRAYS[kind].removesuffix("[]").replace("[]", "")) for name, kind in columns]
    return f"(SELECT {', '.join(f':{name}::{kind} AS {name}' for name, kind in kinds)}) AS {alias}"


def _sqlite_rows(alias: str, columns: list[tuple[str, str]]) -> str:
    fields = ", ".join(f"value ->> {n} AS {name}" for n, (name, _) in enumerate(columns))
    return f"(SELECT {fields} FROM json_each(:{alias})) AS {alias}"


def _sqlite_row(alias: str, columns: list[tuple[str, str]]) -> str:
    return f"(SELECT {', '.join(f':{name} AS {name}' for name, _ in columns)}) AS {alias}"


POSTGRES = Dialect(
    "postgres",
    "rowlock.",
    moves_in_one_statement=True,
    notifies=True,
    many_writers=True,
    partitions=True,
    is_file=False,
    clock="now()",
    migrations_table="""\
CREATE SCHEMA IF NOT EXISTS rowlock;
CREATE TABLE IF NOT EXISTS rowlock.migrations (
    number integer PRIMARY KEY, name text NOT NULL, breaking boolean NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS rowlock.schema_files (
    name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());
""",
    tokens={
        "now": lambda _: "coalesce(:now, statement_timestamp())",
        "after": lambda x: f"({{now}} + ({x}) * interval '1 second')",
        # The difference of two epochs, not the epoch of the difference: before PostgreSQL 17, infinity - now() fails.
        "seconds_until": lambda x: f"(date_part('epoch', {x}) - date_part('epoch', {{now}}))",
        "time": lambda x: (
            f"CASE WHEN {x} > '{LATEST}' THEN '{LATEST}' WHEN {x} < '{EARLIEST}' THEN '{EARLIEST}' ELSE {x} END"
        ),
        "drop_on": lambda x: (
            f"((({{now}} + least(greatest({x}, 0), {LONGEST}) * interval '1 second') AT TIME ZONE 'UTC')::date + 1)"
        ),
        "minute": lambda x: f"date_bin('1 minute', {x}, '2000-01-01Z')",
        "hour": lambda x: f"date_bin('1 hour', {x}, '2000-01-01Z')",
        "among": lambda x: f"= ANY(ARRAY({x}))",
        "computed": lambda x: x,
        "greatest": lambda x: f"greatest({x})",
        "class": lambda x: f"split_part({x}, ':', 1)",
    },
    rows=_postgres_rows,
    row=_postgres_row,
    place="$",
    leaves_out=re.compile(r"\s+INDEXED BY \w+"),
)

SQLITE = Dialect(
    "sqlite",
    "rowlock_",
    moves_in_one_statement=False,
    notifies=False,
    many_writers=False,
    partitions=False,
    is_file=True,
    clock="unixepoch('subsec')",
    migrations_table="""\
CREATE TABLE IF NOT EXISTS rowlock_migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, breaking INTEGER NOT NULL,
    applied_at REAL NOT NULL DEFAULT (unixepoch('subsec')));
CREATE TABLE IF NOT EXISTS rowlock_schema_files (
    name TEXT PRIMARY KEY NOT NULL, checksum TEXT NOT NULL,
    applied_at REAL NOT NULL DEFAULT (unixepoch('subsec')));
""",
    tokens={
        "now": lambda _: ":now",
        "after": lambda x: f"({{now}} + ({x}))",
        "seconds_until": lambda x: f"({x} - {{now}})",
        "time": lambda x: f"coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', {x}, 'unixepoch'), {x})",
        "drop_on": lambda x: f"date({{now}} + min(max({x}, 0), {LONGEST}), 'unixepoch', '+1 day')",
        "minute": lambda x: f"(CAST({x} AS INTEGER) / 60 * 60)",
        "hour": lambda x: f"(CAST({x} AS INTEGER) / 3600 * 3600)",
        "among": lambda x: f"IN ({x})",
        "computed": lambda x: f"+{x}",
        "greatest": lambda x: f"max({x})",
        "class": lambda x: f"substr({x}, 1, instr({x} || ':', ':') - 1)",
    },
    rows=_sqlite_rows,
    row=_sqlite_row,
    place="?",
    leaves_out=re.compile(r"\s+FOR (?:UPDATE|KEY SHARE)(?: OF \w+)?(?: SKIP LOCKED)?"),
)

DIALECTS = {dialect.name: dialect for dialect in (POSTGRES, SQLITE)}
