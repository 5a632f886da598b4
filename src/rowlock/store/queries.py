"""Named SQL for two engines: loads `sql/*.sql` and fills the dialect's tokens.

A statement is `-- name: claim` (both engines) or `-- name: claim [postgres]`, one sentence of contract, then
the text. Parameters are `:name`. A statement that one engine does not have is skipped there and answers no rows.
Tokens, all of them:

    {t}                      table prefix: `rowlock.` or `rowlock_`
    {now}                    the database's clock, or the test's
    {after(x)}               {now} plus x seconds
    {seconds_until(x)}       seconds from {now} to x
    {time(x)}                a time as the reader gets it, for `times.moment`: datetime, or ISO text
    {drop_on(x)}             the day on which a row kept for x seconds may be dropped
    {rows:g(id uuid, …)}     a batch parameter `g` (a list of tuples) as a table
    {row:g(id uuid, …)}      the parameters `id`, … as a table of one row
    {lock(j)} {skip_locked(j)}  row locks, where the engine has them; () without an alias
    {among(q)}               is one of the rows of query q, in a way that keeps the index whatever the statistics say
    {greatest(a, b)}         the larger one
    {contains(a, b, c)}      the JSON array a has a text, which is b as JSON in ASCII and c as JSON in Unicode
    {not_aside(x)}           the job or batch x is not set aside, or it is time to try it again
    {up_for(x)}              the server has been up for x seconds (true where there is no server)
    {class(x)}               the class of a source: what stands before its colon
    {one_job(a, x)}          joins the job with the id x as `a`
    {by_name()}              after the table `sources`: find rows by their names, whatever the statistics say
    {one_source(a, x)}       joins the source or class with the name x as `a`, if there is one
    {gate}                   how the source `named` stands, as core.source.Gate, from its row `s` and its class's `c`
    {claimed}                the columns of core.job.Claimed, but for its token and worker
    {claiming}               the same of a row `front` that is about to be claimed
    {job}                    the columns of core.job.Job, from the view `jobs j`; JSON as text
    {filter}                 whether the row `j` fits a reads.JobFilter, apart from its states
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any

from rowlock.core.clock import FakeClock
from rowlock.core.job import Job

CLAIMED_COLUMNS = (
    *("id", "task", "queue", "priority", "args", "owner", "source", "source_epoch", "batch_id", "unique_mode"),
    *("attempt", "max_attempts", "releases", "losses", "convictions", "backoff", "timeout_seconds"),
    *("on_success", "on_dead", "on_lost", "cancel_requested_at IS NOT NULL"),
)
# Ids as text: a driver's own UUID type costs more to read than all other columns together.
CLAIMED = ", ".join(f"CAST({c} AS text)" if c in ("id", "batch_id") else c for c in CLAIMED_COLUMNS)
CLAIMING = ", ".join(f"front.{column}" for column in CLAIMED_COLUMNS).replace("attempt,", "attempt + 1,", 1)

# How a source stands, from its row `s`, its class's row `c` and the running jobs; in the order of core.source.Gate.
# `|| ''`, because SQLite compares a column and an expression by other rules than those of the index.
GATE = """coalesce(s.concurrency, c.concurrency), c.total,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute),
       CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END,
       coalesce(s.enabled, TRUE) AND coalesce(c.class_enabled, TRUE),
       {seconds_until({greatest(coalesce(s.paused_until, c.class_paused_until),
                                coalesce(c.class_paused_until, s.paused_until))})},
       s.opened_at IS NOT NULL,
       (SELECT 1 FROM {t}jobs_live p
        WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running'
          AND {not_aside(p.id)}) IS NOT NULL,
       s.tokens, -{seconds_until(s.tokens_at)}, coalesce(s.epoch, 0),
       CASE WHEN coalesce(s.concurrency, c.concurrency) IS NOT NULL THEN (
            SELECT count(*) FROM {t}jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL
              AND {class(r.source)} = c.name || '' AND r.source = named.source AND {not_aside(r.id)}) END,
       CASE WHEN c.total IS NOT NULL THEN (
            SELECT count(*) FROM {t}jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL AND {class(r.source)} = c.name || ''
              AND {not_aside(r.id)}) END,
       s.name IS NOT NULL, c.name IS NOT NULL"""

# JSON as text: a caller's own connection may parse it, and then a parsed string looks like unparsed text.
JSON = {"args", "tags", "backoff", "result"}
JOB_COLUMNS = tuple(field.name for field in fields(Job) if field.name != "unreadable")
JOB_TIMES = tuple(field.name for field in fields(Job) if "datetime" in str(field.type))


def _job(dialect: Dialect) -> str:
    if dialect.name == "sqlite":  # it has no type for JSON, and the view has done the times already
        return ", ".join(f"j.{name}" for name in JOB_COLUMNS)
    of_time = dialect.tokens["time"]
    return ", ".join(
        f"CAST(j.{name} AS text)" if name in JSON else of_time(f"j.{name}") if name in JOB_TIMES else f"j.{name}"
        for name in JOB_COLUMNS
    )


# CASE and not OR: a plan made once for all values (PostgreSQL's generic plan) takes `:x IS NULL OR …` to leave next
# to nothing, and would rather sort the whole table than walk an index in the order that was asked for.
FILTER = " AND ".join(
    f"CASE WHEN CAST(:{name} AS {kind}) IS NULL THEN TRUE ELSE {test} END"
    for name, kind, test in (
        ("task", "text", "j.task = :task"),
        ("queue", "text", "j.queue = :queue"),
        ("owner", "text", "j.owner = :owner"),
        ("source", "text", "j.source = :source"),
        ("tag", "text", "{contains(j.tags, :tag, :tag_text)}"),
        ("since", "timestamptz", "j.created_at >= :since"),
        ("until", "timestamptz", "j.created_at < :until"),
    )
)

# What readers are shown for times beyond these: there Python's calendar ends, and drivers raise for the whole answer.
EARLIEST, LATEST = "0001-01-02 00:00:00Z", "9999-12-30 00:00:00Z"
LONGEST = 3_155_760_000  # seconds that a finished job is kept at most: a hundred years

POSTGRES_ARRAYS = {
    "uuid": "text[]::uuid[]",  # sent as text: half the driver's time for it
    "text": "text[]",
    "json": "json[]",
    "int": "integer[]",
    "float": "double precision[]",
    "time": "timestamptz[]",
}


@dataclass(frozen=True, slots=True)
class Query:
    """One statement, ready for its engine. `sql` is None where the engine does without it."""

    name: str
    sql: str | None
    binds: tuple[tuple[str, int | None], ...]  # in order: (parameter, None) or (batch parameter, column)
    has_batch: bool = field(init=False)  # whether there are columns among them
    names: tuple[str, ...] = field(init=False)  # of the parameters alone, in order
    now: int | None = field(init=False)  # the place of the moment among them

    def __post_init__(self) -> None:
        # Once for all: a statement is bound for each enqueue.
        names = tuple(parameter for parameter, _ in self.binds)
        object.__setattr__(self, "has_batch", any(column is not None for _, column in self.binds))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "now", names.index("now") if "now" in names else None)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What an engine's SQL looks like where the two differ."""

    name: str
    prefix: str
    tokens: Mapping[str, Callable[[str], str]]
    rows: Callable[[str, list[tuple[str, str]]], str]
    row: Callable[[str, list[tuple[str, str]]], str]
    place: str  # how a numbered parameter begins


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


def _alias(inside: str) -> tuple[str, str]:
    alias, _, expression = inside.partition(", ")
    return alias, expression


def _of(alias: str) -> str:
    return f" OF {alias}" if alias else ""


def _not_aside(prefix: str, x: str) -> str:
    # A scalar sub-select is one probe for each row; NOT EXISTS may become a join that reads all of them first.
    return f"(SELECT 1 FROM {prefix}set_aside a WHERE a.id = {x} AND coalesce(a.again_at > {{now}}, TRUE)) IS NULL"


POSTGRES = Dialect(
    "postgres",
    "rowlock.",
    {
        "now": lambda _: "coalesce(:now, statement_timestamp())",
        "after": lambda x: f"({{now}} + ({x}) * interval '1 second')",
        # Not of the difference: PostgreSQL below 17 has none between now and infinity, and raises.
        "seconds_until": lambda x: f"(date_part('epoch', {x}) - date_part('epoch', {{now}}))",
        "time": lambda x: (
            f"CASE WHEN {x} > '{LATEST}' THEN '{LATEST}' WHEN {x} < '{EARLIEST}' THEN '{EARLIEST}' ELSE {x} END"
        ),
        "drop_on": lambda x: (
            f"((({{now}} + least(greatest({x}, 0), {LONGEST}) * interval '1 second') AT TIME ZONE 'UTC')::date + 1)"
        ),
        "lock": lambda alias: f"FOR UPDATE{_of(alias)}",
        "skip_locked": lambda alias: f"FOR UPDATE{_of(alias)} SKIP LOCKED",
        "among": lambda x: f"= ANY(ARRAY({x}))",
        "greatest": lambda x: f"greatest({x})",
        "class": lambda x: f"split_part({x}, ':', 1)",
        # LATERAL with LIMIT, because a plain join may be planned as a product while the tables are empty.
        "one_job": lambda x: "CROSS JOIN LATERAL (SELECT * FROM rowlock.jobs_live WHERE id = {1} LIMIT 1) {0}".format(
            *_alias(x)
        ),
        "by_name": lambda _: "",
        "one_source": lambda x: (
            "LEFT JOIN LATERAL (SELECT * FROM rowlock.sources WHERE name = {1} LIMIT 1) {0} ON TRUE".format(*_alias(x))
        ),
        # As JSON and not as text: to turn an escape like \\u0000 into a character is an error.
        "contains": lambda x: (
            "EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof({0}) WHEN 'array' THEN {0} END) one"
            " WHERE one.value::text IN ({1}, {2}))".format(*x.split(", "))
        ),
        "not_aside": lambda x: _not_aside("rowlock.", x),
        "up_for": lambda x: (
            f"(CAST({x} AS double precision) <= 0 "
            f"OR {{now}} > pg_postmaster_start_time() + ({x}) * interval '1 second')"
        ),
    },
    _postgres_rows,
    _postgres_row,
    place="$",
)

SQLITE = Dialect(
    "sqlite",
    "rowlock_",
    {
        "now": lambda _: ":now",
        "after": lambda x: f"({{now}} + ({x}))",
        "seconds_until": lambda x: f"({x} - {{now}})",
        "time": lambda x: f"coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', {x}, 'unixepoch'), {x})",
        "drop_on": lambda x: f"date({{now}} + min(max({x}, 0), {LONGEST}), 'unixepoch', '+1 day')",
        "lock": lambda _: "",
        "skip_locked": lambda _: "",
        "among": lambda x: f"IN ({x})",
        "greatest": lambda x: f"max({x})",
        "class": lambda x: f"substr({x}, 1, instr({x} || ':', ':') - 1)",
        "one_job": lambda x: "JOIN rowlock_jobs_live {0} ON {0}.id = {1}".format(*_alias(x)),
        "one_source": lambda x: "LEFT JOIN rowlock_sources {0}{{by_name()}} ON {0}.name = {1}".format(*_alias(x)),
        # Statistics from when there were two sources would make it read all of twenty thousand.
        "by_name": lambda _: " INDEXED BY sqlite_autoindex_rowlock_sources_1",
        "contains": lambda x: (
            "EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid({0}) THEN {0} ELSE '[]' END)"
            " WHERE value IN ({1} ->> '$', {2} ->> '$'))".format(*x.split(", "))
        ),
        "not_aside": lambda x: _not_aside("rowlock_", x),
        "up_for": lambda x: f"({x} IS NOT NULL)",
    },
    _sqlite_rows,
    _sqlite_row,
    place="?",
)

_NAME = re.compile(r"^-- name: (\w+)(?: \[(\w+)\])?\s*$")
_ROWS = re.compile(r"\{(rows?):(\w+)\(([^)]*)\)\}")
_PARAM = re.compile(r"(?<!:):([a-z_]\w*)")


def _texts() -> dict[tuple[str, str | None], str]:
    """Every statement as written: (name, engine or None) -> text."""
    found: dict[tuple[str, str | None], str] = {}
    for file in sorted(resources.files("rowlock.store").joinpath("sql").iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".sql"):
            continue
        key: tuple[str, str | None] | None = None
        for line in file.read_text("utf-8").splitlines():
            if match := _NAME.match(line):
                key = (match[1], match[2])
                found[key] = ""
            elif key and not (line.startswith("--") and not found[key].strip()):
                found[key] += line + "\n"
    # A single job needs no arrays, which cost it a quarter of its time; keys and sources may differ from job to job.
    # For the rest the texts must not differ.
    for engine in ("postgres", "sqlite"):
        many = found["enqueue", engine]
        found["enqueue_one", engine] = many.replace("{rows:added(", "{row:added(")
        rows = many.replace("args json)}", "args json, unique_key text, source text)}")
        rows = rows.replace(":unique_key", "added.unique_key").replace(":source", "added.source")
        found["enqueue_rows", engine] = rows
    return found


def fill(text: str, dialect: Dialect) -> str:
    """Replace every token by the dialect's SQL."""
    text = text.replace("{claimed}", CLAIMED).replace("{claiming}", CLAIMING)
    text = text.replace("{job}", _job(dialect)).replace("{filter}", FILTER).replace("{gate}", GATE)
    text = text.replace("{t}", dialect.prefix)
    text = _ROWS.sub(lambda m: (dialect.rows if m[1] == "rows" else dialect.row)(m[2], _columns(m[3])), text)
    while (start := _innermost_call(text)) is not None:
        begin, end, name, inside = start
        text = text[:begin] + dialect.tokens[name](inside) + text[end:]
    return text.replace("{now}", dialect.tokens["now"](""))


def _columns(text: str) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in (column.split() for column in text.split(","))]


def _innermost_call(text: str) -> tuple[int, int, str, str] | None:
    """The first `{name(…)}` with balanced parentheses, as (begin, end, name, inside)."""
    match = re.search(r"\{(\w+)\(", text)
    if match is None:
        return None
    depth, at = 1, match.end()
    while depth and at < len(text):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    if text[at : at + 1] != "}":
        raise ValueError(f"unclosed token in SQL: {text[match.start() : at + 20]!r}")
    return match.start(), at + 1, match[1], text[match.end() : at - 1]


def compile_query(name: str, text: str, dialect: Dialect) -> Query:
    """One statement's text, ready for its engine."""
    sql = "\n".join(line for line in fill(text, dialect).splitlines() if not line.lstrip().startswith("--"))
    sql = sql.strip().rstrip(";")
    binds: list[tuple[str, int | None]] = []

    def number(match: re.Match[str]) -> str:
        base, _, column = match[1].partition("__")
        bind = (base, int(column) if column else None)
        if bind not in binds:
            binds.append(bind)
        return f"{dialect.place}{binds.index(bind) + 1}"

    sql = _PARAM.sub(number, sql)
    return Query(name, sql, tuple(binds))


@cache
def load(dialect_name: str) -> dict[str, Query]:
    """All statements of one engine, by name. Tests rewrite an engine's copy of this to make mutants."""
    dialect = {"postgres": POSTGRES, "sqlite": SQLITE}[dialect_name]
    texts = _texts()
    queries: dict[str, Query] = {}
    for name in {name for name, _ in texts}:
        text = texts.get((name, dialect_name), texts.get((name, None)))
        queries[name] = Query(name, None, ()) if text is None else compile_query(name, text, dialect)
    return queries


def bind(query: Query, params: dict[str, Any], clock: FakeClock | None) -> list[Any]:
    """Positional values for `query`; batch parameters become one array per column."""
    given = params | {"now": clock.now()} if clock else params
    if not query.has_batch:
        return list(map(given.get, query.names))
    columns: dict[str, list[tuple[Any, ...]]] = {}
    values: list[Any] = []
    for name, column in query.binds:
        if column is None:
            values.append(given.get(name))
            continue
        if name not in columns:
            rows = params[name]
            columns[name] = list(zip(*rows, strict=True)) if rows else []
        values.append(columns[name][column] if columns[name] else [])
    return values
