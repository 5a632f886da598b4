"""Named SQL for two engines: loads the .sql files beside their modules and fills the dialect's tokens.

A statement is `-- name: claim` (both engines) or `-- name: claim [postgres]`, a comment on what it does and why, then
the text. Parameters are `:name`. Calling a statement that the engine doesn't have is an error: the operation must check
a capability of the `Dialect` first.

A part is text that several statements share, or that differs between the engines within a common statement. It begins
with `-- part: due` (or `-- part: due [postgres]` and `-- part: due [sqlite]`) and is included by `{part:due}`, also
by other parts. tests/golden/postgres.sql and sqlite.sql have every statement as it runs, with everything filled in.

Two clauses are written out although only one engine has them; they are removed for the other engine:

    FOR UPDATE [OF j] [SKIP LOCKED], FOR KEY SHARE    PostgreSQL's row locks; SQLite has only one writer
    INDEXED BY i                                      SQLite's only way to choose an index

All tokens:

    {t}                      table prefix: `rowlock.` or `rowlock_`
    {now}                    the database's clock, or the test's clock
    {after(x)}               {now} plus x seconds
    {seconds_until(x)}       seconds from {now} to x
    {time(x)}                a time to return, in the form that `records.moment` reads: datetime, or ISO text
    {minute(x)} {hour(x)}    the start of x's minute or hour
    {drop_on(x)}             the day on which a row kept for x seconds may be dropped
    {rows:g(id uuid, …)}     a batch parameter `g` (a list of tuples) as a table
    {row:g(id uuid, …)}      the single parameters `id`, … as a table of one row
    {in:g(id uuid)}          membership in the values of the batch parameter `g`: `j.id {in:g(id uuid)}`
    {among(q)}               membership in the rows of query q; like {in:…}, uses the index however wrong the statistics
    {computed(x)}            the column x as an expression. If SQLite compared two plain columns, it would apply rules
                             that don't fit the index, and use only its first column, or another index
    {greatest(a, b)}         the larger of the two
    {class(x)}               the class of a source: the text before its colon
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from rowlock.core.times import FakeClock
from rowlock.store.engine.dialects import DIALECTS, Dialect

ROOMS = ("store", "health", "api", "bridge")
NO_STATEMENTS = ("schema", "static", "vectors", "__pycache__")


@dataclass(frozen=True, slots=True)
class Query:
    """One statement, ready for its engine."""

    name: str
    sql: str
    binds: tuple[tuple[str, int | None], ...]  # in order: (parameter, None) or (batch parameter, column)
    is_record: bool = False  # its rows become records by position (`claimed`, `gate`, `job`) and need no column names
    has_batch: bool = field(init=False)  # whether `binds` has batch parameters
    names: tuple[str, ...] = field(init=False)  # the names of the parameters, in order
    now: int | None = field(init=False)  # the index of `now` in `names`

    def __post_init__(self) -> None:
        # Computed once: every enqueue binds a statement.
        names = tuple(parameter for parameter, _ in self.binds)
        object.__setattr__(self, "has_batch", any(column is not None for _, column in self.binds))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "now", names.index("now") if "now" in names else None)


_RECORD = re.compile(r"\{part:(?:claimed|claiming|gate|read_gate|job)\}")
_HEADER = re.compile(r"^-- (name|part): (\w+)(?: \[(\w+)\])?\s*$")
_PART = re.compile(r"\{part:(\w+)\}")
_CALL = re.compile(r"\{(\w+)\(")
_BRACKET = re.compile(r"[()]")
_COMMENT = re.compile(r"^[ \t]*--.*\n?", re.MULTILINE)
_IN = re.compile(r"\{in:(\w+)\((\w+) (\w+)\)\}")
_ROWS = re.compile(r"\{(rows?):(\w+)\(([^)]*)\)\}")
_PARAM = re.compile(r"(?<!:):([a-z_]\w*)")


class SqlText(NamedTuple):
    """A statement or part as written in its file."""

    kind: str  # "name" or "part"
    name: str
    engine: str | None  # None: both engines
    text: str


@cache
def _sections() -> list[SqlText]:
    """Every statement and part of all files, without their comments."""
    return [section for file in statement_files() for section in _sections_of(file.read_text("utf-8"))]


def statement_files() -> list[Traversable]:
    """Every .sql file that contains named statements, which the files of the schema do not."""
    rooms = [resources.files("rowlock").joinpath(room) for room in ROOMS]
    found = []
    while rooms:
        for entry in rooms.pop().iterdir():
            if entry.is_dir() and entry.name not in NO_STATEMENTS:
                rooms.append(entry)
            elif entry.name.endswith(".sql"):
                found.append(entry)
    return found


def _sections_of(text: str) -> Iterator[SqlText]:
    found: list[tuple[re.Match[str], list[str]]] = []
    for line in text.splitlines():
        if match := _HEADER.match(line):
            found.append((match, []))
        elif found and (found[-1][1] or not line.startswith("--")):
            found[-1][1].append(line)
    for match, lines in found:
        yield SqlText(match[1], match[2], match[3], "\n".join(lines).strip())


def _include(text: str, parts: dict[str, str]) -> tuple[str, bool]:
    """The text with each `{part:name}` replaced by that part, and whether one of the parts turns rows into records."""
    is_record = False
    while _PART.search(text):
        is_record = is_record or _RECORD.search(text) is not None
        text = _PART.sub(lambda match: parts[match[1]], text)
    return text, is_record


def fill(text: str, dialect: Dialect) -> str:
    """Replace every token by the dialect's SQL."""
    text = text.replace("{t}", dialect.prefix)
    text = _IN.sub(r"{among(SELECT \1.\2 FROM {rows:\1(\2 \3)})}", dialect.leaves_out.sub("", text))
    text = _ROWS.sub(lambda m: (dialect.rows if m[1] == "rows" else dialect.row)(m[2], _columns(m[3])), text)
    begin = 0
    while (call := _next_call(text, begin)) is not None:
        begin, end, name, inside = call
        text = text[:begin] + dialect.tokens[name](inside) + text[end:]  # the new text may contain tokens
    return text.replace("{now}", dialect.tokens["now"](""))


def _columns(text: str) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in (column.split() for column in text.split(","))]


def _next_call(text: str, start: int) -> tuple[int, int, str, str] | None:
    """The first `{name(…)}` after `start`, with balanced parentheses, as (begin, end, name, inside)."""
    match = _CALL.search(text, start)
    if match is None:
        return None
    depth, at = 1, match.end()
    for bracket in _BRACKET.finditer(text, at):
        at = bracket.end()
        depth += 1 if bracket[0] == "(" else -1
        if depth == 0:
            break
    if depth or text[at : at + 1] != "}":
        raise ValueError(f"unclosed token in SQL: {text[match.start() : at + 20]!r}")
    return match.start(), at + 1, match[1], text[match.end() : at - 1]


def compile_query(name: str, text: str, dialect: Dialect, *, is_record: bool = False) -> Query:
    """Make a statement's text ready for its engine."""
    sql = fill(_COMMENT.sub("", text), dialect).strip().rstrip(";")
    binds: list[tuple[str, int | None]] = []

    def number(match: re.Match[str]) -> str:
        base, _, column = match[1].partition("__")
        bind = (base, int(column) if column else None)
        if bind not in binds:
            binds.append(bind)
        return f"{dialect.place}{binds.index(bind) + 1}"

    return Query(name, _PARAM.sub(number, sql), tuple(binds), is_record)


class Statements(dict[str, Query]):
    """The statements of one engine, by name."""

    def __missing__(self, name: str) -> Query:
        raise LookupError(f"this engine has no statement {name!r}: the operation must ask for a capability first")


@cache
def load(engine: str) -> Statements:
    """All statements of one engine. Tests change this mapping to make mutants."""
    found = parts(engine)
    statements = Statements()
    for section in _sections():
        if section.kind == "name" and section.engine in (None, engine):
            text, is_record = _include(section.text, found)
            statements[section.name] = compile_query(section.name, text, DIALECTS[engine], is_record=is_record)
    return statements


def parts(engine: str) -> dict[str, str]:
    """The parts that an engine's statements may include, as written in their files."""
    return {
        section.name: section.text
        for section in _sections()
        if section.kind == "part" and section.engine in (None, engine)
    }


def bind(query: Query, params: dict[str, Any], clock: FakeClock | None) -> list[Any]:
    """Positional values for `query`. Each batch parameter becomes one array per column."""
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
