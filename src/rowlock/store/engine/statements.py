"""Named SQL for two engines: loads the .sql files beside their modules and fills the dialect's tokens.

A statement is `-- name: claim` (both engines) or `-- name: claim [postgres]`, one sentence of contract, then
the text. Parameters are `:name`. To call a statement that the engine does not have is an error: the operation asks
for a capability of the `Dialect` first. `-- name: {edge,look}_live` stands for two statements, `edge_live` and
`look_live`; `{this}` in their text is `edge` and `look`.

A text that several statements share is a part, `-- part: counted(n | batch)`. `{part:counted(total | b)}` stands for
it, with `{n}` and `{batch}` replaced by the arguments; `{part:running}` for a part without parameters. Parts, and the
arguments of parts, may include other parts and tokens.

Tokens, all of them:

    {t}                      table prefix: `rowlock.` or `rowlock_`
    {now}                    the database's clock, or the test's
    {after(x)}               {now} plus x seconds
    {seconds_until(x)}       seconds from {now} to x
    {time(x)}                a time as the reader gets it, for `records.moment`: datetime, or ISO text
    {minute(x)} {hour(x)}    when the minute or the hour of x began
    {drop_on(x)}             the day on which a row kept for x seconds may be dropped
    {rows:g(id uuid, …)}     a batch parameter `g` (a list of tuples) as a table
    {row:g(id uuid, …)}      the parameters `id`, … as a table of one row
    {lock(j)} {skip_locked(j)}  row locks, where the engine has them; () without an alias
    {lock_key()}             a row lock that waits for {lock()} and is waited for by it, but not by others of its kind
                             nor by updates, where the engine has row locks
    {among(q)}               is one of the rows of query q, in a way that keeps the index whatever the statistics say
    {computed(x)}            the column x as an expression. SQLite compares two columns by other rules than those of an
                             index, and then uses only the index's first column, or another index
    {equal_by_range(a, b)}   the indexed column a is b. PostgreSQL is told so by a range: if `=` gives all columns of
                             the index but the last, the id, then the order asked for is that of ids, and a plan that
                             was made for an empty table would walk the primary key
    {greatest(a, b)}         the larger one
    {holds(a, b)}            the JSON a, as it is written, has the text b in it
    {contains(a, b, c)}      the JSON array a has a text, which is b as JSON in ASCII and c as JSON in Unicode
    {not_aside(x)}           the job or batch x is not set aside, or it is time to try it again
    {up_for(x)}              the server has been up for x seconds (true where there is no server)
    {class(x)}               the class of a source: what stands before its colon
    {one_job(a, x)}          joins the job with the id x as `a`
    {end_order()}            the column of jobs_finished by which the latest ends are found. SQLite gives rowids in the
                             order of ends; on PostgreSQL it is the id, the nearest that has an index
    {by_name()}              after the table `sources`: find rows by their names, whatever the statistics say
    {indexed_by(i)}          after a table: take the index i, whatever the statistics say (SQLite alone)
    {one_source(a, x)}       joins the source or class with the name x as `a`, if there is one
    {gate}                   the source `named` as core.sources.admission.Gate, from its row `s` and its class's `c`
    {read_gate}              the same for a reader, who may not see tokens
    {claimed}                the columns of core.job.Claimed, but for its token and worker
    {claiming}               the same of a row `front` as it will be once it is claimed (:epoch: its source's)
    {job}                    the columns of core.job.Job, from the view `jobs j`; JSON as text
    {options(x)}             x for each option of a new job (core/options.py), `@` in it being the option's column
    {kept_options(x)}        x for each option that a job keeps when it ends, and when an operator retries it
    {schedule_options(x)}    x for each option that a schedule has; `#` in it is the column's kind
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Literal

from rowlock.core.clock import FakeClock
from rowlock.core.job import Job
from rowlock.core.options import columns
from rowlock.store.engine.dialects import DIALECTS, Dialect

ROOMS = ("store", "health", "api", "bridge")
NO_STATEMENTS = ("schema", "sql", "static", "vectors", "__pycache__")

CLAIMED_COLUMNS = (
    *("id", "task", "queue", "priority", "args", "owner", "source", "source_epoch", "batch_id", "unique_mode"),
    *("attempt", "max_attempts", "releases", "losses", "convictions"),
    *("losses_in_row", "probation", "sigterms_in_row", "disconnects_in_row", "backoff", "timeout_seconds"),
    *("on_success", "on_dead", "on_lost", "cancel_requested_at IS NOT NULL", "traceparent"),
)
WAITED = "-{seconds_until(run_after)}"
# Ids as text: a driver's own UUID type costs more to read than all other columns together.
CLAIMED = ", ".join(f"CAST({c} AS text)" if c in ("id", "batch_id") else c for c in CLAIMED_COLUMNS) + f", {WAITED}"
_AFTER_CLAIM = {"attempt": "front.attempt + 1", "source_epoch": ":epoch"}  # what the claim will write
CLAIMING = ", ".join(_AFTER_CLAIM.get(column, f"front.{column}") for column in CLAIMED_COLUMNS)
CLAIMING += ", " + WAITED.replace("run_after", "front.run_after")

# Whether the source `s` is tried out by a job that runs. Readers on PostgreSQL ask a function instead: they may not
# read tokens, with which anybody could end the job in its worker's place.
PROBES = """(SELECT 1 FROM {t}jobs_live p
        WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running'
          AND {not_aside(p.id)}) IS NOT NULL"""
# The columns of core.sources.admission.Gate, from the source's row `s`, its class's row `c` and the running jobs.
GATE = """coalesce(s.concurrency, c.concurrency), c.total,
       coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute),
       CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst) ELSE s.burst END,
       coalesce(s.enabled, TRUE) AND coalesce(c.class_enabled, TRUE),
       {seconds_until({greatest(coalesce(s.paused_until, c.class_paused_until),
                                coalesce(c.class_paused_until, s.paused_until))})},
       s.opened_at IS NOT NULL,
       {probes},
       s.tokens, -{seconds_until(s.tokens_at)}, coalesce(s.epoch, 0),
       CASE WHEN coalesce(s.concurrency, c.concurrency) IS NOT NULL THEN (
            SELECT count(*) FROM {t}jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL
              AND {class(r.source)} = {computed(c.name)} AND r.source = named.source AND {not_aside(r.id)}) END,
       CASE WHEN c.total IS NOT NULL THEN (
            SELECT count(*) FROM {t}jobs_live r
            WHERE r.state = 'running' AND r.source IS NOT NULL AND {class(r.source)} = {computed(c.name)}
              AND {not_aside(r.id)}) END,
       s.name IS NOT NULL"""
READ_GATE = GATE.replace("{probes}", "coalesce(rowlock._probes(s.name, {now}), FALSE)")
GATE = GATE.replace("{probes}", PROBES)

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


@dataclass(frozen=True, slots=True)
class Query:
    """One statement, ready for its engine."""

    name: str
    sql: str
    binds: tuple[tuple[str, int | None], ...]  # in order: (parameter, None) or (batch parameter, column)
    is_record: bool = False  # its rows become a record by position ({claimed}, {gate}, {job}), and need no names
    has_batch: bool = field(init=False)  # whether there are columns among them
    names: tuple[str, ...] = field(init=False)  # of the parameters alone, in order
    now: int | None = field(init=False)  # the place of the moment among them

    def __post_init__(self) -> None:
        # Once for all: a statement is bound for each enqueue.
        names = tuple(parameter for parameter, _ in self.binds)
        object.__setattr__(self, "has_batch", any(column is not None for _, column in self.binds))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "now", names.index("now") if "now" in names else None)


_RECORD = re.compile(r"\{(claimed|claiming|gate|read_gate|job)\}")
_HEADER = re.compile(r"^-- (name|part): ([\w{},]+)(?: \[(\w+)\]|\((.+)\))?\s*$")
_SEVERAL = re.compile(r"\{([\w,]+)\}(\w+)")
_PART = re.compile(r"\{part:(\w+)(?:\(((?:[^{}]|\{(?!part:)[^{}]*\})*)\))?\}")
_ROWS = re.compile(r"\{(rows?):(\w+)\(([^)]*)\)\}")
_OPTIONS = re.compile(r"\{(schedule_options|kept_options|options)\(([^{}]*)\)\}")
_OPTIONS_OF: dict[str, Literal["new job", "kept job", "schedule"]] = {
    "options": "new job",
    "kept_options": "kept job",
    "schedule_options": "schedule",
}
_PARAM = re.compile(r"(?<!:):([a-z_]\w*)")


def _texts() -> dict[tuple[str, str | None], str]:
    """Every statement as written, with the parts that it includes: (name, engine or None) -> text."""
    statements: dict[tuple[str, str | None], str] = {}
    parts: dict[str, tuple[list[str], str]] = {}
    for file in statement_files():
        for (kind, name, engine, parameters), text in _sections(file.read_text("utf-8")).items():
            if kind == "part":
                parts[name] = (_listed(parameters), text.strip())
            else:
                statements |= {(one, engine): text.replace("{this}", this) for this, one in _names(name)}
    return {key: _include(text, parts) for key, text in statements.items()}


def statement_files() -> list[Traversable]:
    """Every .sql file of the rooms that have statements; the schema is not made of statements."""
    rooms = [resources.files("rowlock").joinpath(room) for room in ROOMS]
    found = []
    while rooms:
        for entry in rooms.pop().iterdir():
            if entry.is_dir() and entry.name not in NO_STATEMENTS:
                rooms.append(entry)
            elif entry.name.endswith(".sql"):
                found.append(entry)
    return found


def _sections(text: str) -> dict[tuple[Any, ...], str]:
    """The texts of one file by their headers, without the comments before each."""
    found: dict[tuple[Any, ...], str] = {}
    key: tuple[Any, ...] | None = None
    for line in text.splitlines():
        if match := _HEADER.match(line):
            key = match.groups()
            found[key] = ""
        elif key and not (line.startswith("--") and not found[key].strip()):
            found[key] += line + "\n"
    return found


def _names(header: str) -> list[tuple[str, str]]:
    """The statements that a header names, each after its first word."""
    several = _SEVERAL.fullmatch(header)
    return [(this, this + several[2]) for this in several[1].split(",")] if several else [("", header)]


def _include(text: str, parts: dict[str, tuple[list[str], str]]) -> str:
    """Replace each `{part:name(…)}` by the text of that part, the innermost first: an argument may include a part."""

    def included(match: re.Match[str]) -> str:
        parameters, part = parts[match[1]]
        for parameter, value in zip(parameters, _listed(match[2]), strict=True):
            part = part.replace(f"{{{parameter}}}", value)
        return part

    while _PART.search(text):
        text = _PART.sub(included, text)
    return text


def _listed(text: str | None) -> list[str]:
    return text.split(" | ") if text else []


def fill(text: str, dialect: Dialect) -> str:
    """Replace every token by the dialect's SQL."""
    text = text.replace("{claimed}", CLAIMED).replace("{claiming}", CLAIMING)
    text = text.replace("{job}", _job(dialect)).replace("{gate}", GATE)
    text = text.replace("{read_gate}", GATE if dialect.name == "sqlite" else READ_GATE)
    text = _OPTIONS.sub(lambda m: _options(m[1], m[2]), text.replace("{t}", dialect.prefix))
    text = _ROWS.sub(lambda m: (dialect.rows if m[1] == "rows" else dialect.row)(m[2], _columns(m[3])), text)
    while (start := _innermost_call(text)) is not None:
        begin, end, name, inside = start
        text = text[:begin] + dialect.tokens[name](inside) + text[end:]
    return text.replace("{now}", dialect.tokens["now"](""))


def _options(which: str, template: str) -> str:
    """The template once for each option's column: `@` is its name, `#` its kind."""
    listed = columns(_OPTIONS_OF[which])
    return ", ".join(template.replace("@", name).replace("#", kind) for name, kind in listed)


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
    return Query(name, sql, tuple(binds), is_record=_RECORD.search(text) is not None)


class Statements(dict[str, Query]):
    """The statements of one engine, by name."""

    def __missing__(self, name: str) -> Query:
        raise LookupError(f"this engine has no statement {name!r}: the operation must ask for a capability first")


@cache
def load(engine: str) -> Statements:
    """All statements of one engine. Tests rewrite an engine's copy of this to make mutants."""
    dialect = DIALECTS[engine]
    return Statements(
        {
            name: compile_query(name, text, dialect)
            for (name, only), text in _texts().items()
            if only is None or only == engine
        }
    )


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
