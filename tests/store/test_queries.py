"""Named SQL: tokens are filled, mistakes in them are found at load, and every statement is one its engine accepts."""

import ast
import dataclasses
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import apsw
import asyncpg
import psycopg
import pytest

import rowlock.store
from rowlock.core.job import Claimed, Job
from rowlock.core.options import columns
from rowlock.store.engine import migrate
from rowlock.store.engine import statements as queries
from rowlock.store.engine.dialects import POSTGRES, SQLITE, Dialect
from rowlock.store.engine.statements import (
    Query,
    _include,
    _sections,
    compile_query,
    fill,
    load,
    parts,
    statement_files,
)
from support.each import each

DIALECTS = [POSTGRES, SQLITE]
CAPABILITIES = {field.name for field in dataclasses.fields(Dialect) if field.type == "bool"}
STORE = Path(rowlock.store.__file__).parent
HEADER = r"^-- name: (\w+)(?: \[(\w+)\])?$"
by_name = each("dialect", DIALECTS, ids=lambda dialect: dialect.name)


@cache
def nodes() -> list[ast.AST]:
    """All of the package's code."""
    files = [file.read_text("utf-8") for file in STORE.parent.rglob("*.py")]
    return [node for text in files for node in ast.walk(ast.parse(text))]


@cache
def called_names() -> set[str]:
    """The names in every `Call("…")` of the package, as patterns: a name may be put together from parts."""
    calls = [node for node in nodes() if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Call"]
    return {pattern(node.args[0]) for node in calls} - {""}


def pattern(name: ast.AST) -> str:
    """What a name looks like; nothing for one that only a variable knows."""
    if isinstance(name, ast.JoinedStr):
        return "".join(pattern(part) or r"\w+" for part in name.values)
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""


def written_names() -> list[tuple[str, str | None]]:
    """(name, engine) of every statement in the SQL files, in order."""
    texts = [file.read_text("utf-8") for file in statement_files()]
    headers = [found for text in texts for found in re.findall(HEADER, text, re.MULTILINE)]
    return [(name, engine or None) for name, engine in headers]


# Tokens


@by_name
def test_the_table_prefix_is_filled(dialect: Dialect) -> None:
    assert fill("SELECT 1 FROM {t}jobs_live", dialect) == f"SELECT 1 FROM {dialect.prefix}jobs_live"


@by_name
def test_tokens_may_stand_inside_each_other(dialect: Dialect) -> None:
    text = fill("{drop_on(coalesce(keep, greatest(:a, 2)))} {after(-(1 + :x))} {greatest(a, (b))}", dialect)
    assert "{" not in text
    assert "}" not in text
    assert "coalesce(keep, greatest(:a, 2))" in text
    assert "-(1 + :x)" in text


@each(
    "lock",
    ["FOR UPDATE", "FOR UPDATE OF j", "FOR UPDATE SKIP LOCKED", "FOR UPDATE OF j SKIP LOCKED", "FOR KEY SHARE"],
)
def test_sqlite_gets_statements_without_row_locks(lock: str) -> None:
    text = f"SELECT id FROM (SELECT j.id FROM jobs j LIMIT :n\n    {lock}) f"
    assert fill(text, POSTGRES) == text
    assert fill(text, SQLITE) == "SELECT id FROM (SELECT j.id FROM jobs j LIMIT :n) f"


def test_postgres_gets_statements_without_the_choice_of_an_index() -> None:
    text = "SELECT name FROM sources s INDEXED BY sources_by_name\nWHERE name = :name"
    assert fill(text, SQLITE) == text
    assert fill(text, POSTGRES) == "SELECT name FROM sources s\nWHERE name = :name"


def test_a_value_may_be_one_of_a_batch_parameter() -> None:
    assert fill("id {in:asked(id uuid)}", POSTGRES) == (
        "id = ANY(ARRAY(SELECT asked.id FROM unnest(:asked__0::text[]::uuid[]) AS asked(id)))"
    )
    assert fill("id {in:asked(id uuid)}", SQLITE) == (
        "id IN (SELECT asked.id FROM (SELECT value ->> 0 AS id FROM json_each(:asked)) AS asked)"
    )


def test_a_batch_parameter_is_a_table() -> None:
    text = "SELECT 1 FROM {rows:mine(id uuid, n int)}"
    postgres = compile_query("q", text, POSTGRES)
    assert postgres.sql == "SELECT 1 FROM unnest($1::text[]::uuid[], $2::integer[]) AS mine(id, n)"
    assert postgres.binds == (("mine", 0), ("mine", 1))
    sqlite = compile_query("q", text, SQLITE)
    assert sqlite.binds == (("mine", None),)
    assert apsw.Connection(":memory:").execute(
        sqlite.sql.replace("SELECT 1", "SELECT id, n"), ('[["a", 1], ["b", null]]',)
    ).fetchall() == [("a", 1), ("b", None)]


def test_a_parameter_used_twice_is_bound_once() -> None:
    query = compile_query("q", "SELECT :a, :b, :a, {now}, {now}, '12:30', x::text;", POSTGRES)
    assert query.binds == (("a", None), ("b", None), ("now", None))
    assert query.sql.startswith("SELECT $1, $2, $1,")
    assert query.sql.endswith("'12:30', x::text")


@by_name
def test_comments_in_a_statement_bind_no_parameters(dialect: Dialect) -> None:
    assert compile_query("q", "SELECT 1 -- kept\n  -- a {now} and :nothing\n, 2;\n", dialect).binds == ()


@by_name
@each(
    "text",
    [
        "SELECT {after(:x) FROM t",
        "SELECT {after((:x)} FROM t",
        "SELECT {time(j",
        "SELECT {time(j)",
        "SELECT {after(:x",
    ],
)
def test_an_unclosed_token_is_an_error_that_shows_it(dialect: Dialect, text: str) -> None:
    with pytest.raises(ValueError, match=r"unclosed token.*\{(after|time)"):
        fill(text, dialect)


@by_name
def test_an_unknown_token_is_an_error_that_names_it(dialect: Dialect) -> None:
    with pytest.raises((ValueError, LookupError), match="nothing"):
        compile_query("q", "SELECT {nothing(x)}", dialect)


def test_the_docstring_lists_every_token() -> None:
    """And there are few of them: a reader must know them all to read a statement."""
    listed = re.findall(r"\{(\w+)[(:}]", queries.__doc__ or "")
    used = {
        token
        for file in statement_files()
        for token in re.findall(r"\{(\w+)[(:}]", re.sub(r"^ *--.*", "", file.read_text("utf-8"), flags=re.MULTILINE))
    }
    assert used - set(listed) == set()
    assert set(POSTGRES.tokens) == set(SQLITE.tokens)
    assert set(POSTGRES.tokens) - set(listed) == set()
    assert len(used - {"part"}) <= 15


# Every statement


def test_every_name_that_is_called_is_written() -> None:
    written = {name for name, _ in written_names()}
    assert {name for name in called_names() if not any(re.fullmatch(name, other) for other in written)} == set()
    assert len(called_names()) >= 30


def test_every_written_name_is_used() -> None:
    texts = {pattern(node) for node in nodes() if isinstance(node, ast.Constant)}
    unused = {name for name, _ in written_names() if name not in texts}
    assert {name for name in unused if not any(re.fullmatch(other, name) for other in called_names())} == set()


# Operations that only run where their callers have found the capability.
ASKED_BEFORE = {"_days", "_default_days", "_notify_idle", "begin", "gaps", "writers_from"}


def test_a_statement_that_one_engine_lacks_is_called_only_where_a_capability_is_asked_for() -> None:
    lacking = set(load("postgres")) ^ set(load("sqlite"))
    called: set[str] = set()
    unasked: set[str] = set()
    for function in (node for node in nodes() if isinstance(node, ast.FunctionDef)):
        inside = list(ast.walk(function))
        names = {node.value for node in inside if isinstance(node, ast.Constant) and node.value in lacking}
        asks = any(isinstance(node, ast.Attribute) and node.attr in CAPABILITIES for node in inside)
        if any(getattr(node, "id", "") == "Call" for node in inside):
            called |= names
            unasked |= {function.name for _ in names if not asks}
    assert unasked == ASKED_BEFORE
    assert lacking - called == {"prune_default"}  # named in a variable


def test_a_call_of_a_statement_that_the_engine_lacks_is_an_error() -> None:
    with pytest.raises(LookupError, match="no statement 'notify_idle'"):
        load("sqlite")["notify_idle"]


def test_no_statement_is_written_twice_for_one_engine() -> None:
    names = written_names()
    assert len(names) == len(set(names))
    assert {engine for _, engine in names} <= {None, "postgres", "sqlite"}
    both = {name for name, engine in names if engine is None}
    assert not both & {name for name, engine in names if engine is not None}


@each("engine", ["postgres", "sqlite"])
def test_no_token_is_left_in_any_statement(engine: str) -> None:
    assert set(load(engine)) == {name for name, only in written_names() if only in (None, engine)}
    for query in load(engine).values():
        assert not re.search(r"\{\w*[:(}]", query.sql), query.name


def test_both_engines_take_the_same_parameters() -> None:
    for name, query in load("postgres").items():
        other = load("sqlite").get(name)
        if other and name != "claim":  # SQLite's has read its candidates before, with the lanes
            assert {bind for bind, _ in query.binds} - {"now"} == {bind for bind, _ in other.binds} - {"now"}, name


@pytest.fixture(scope="module")
def sqlite_tables() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    connection.execute(migrate.script(SQLITE))
    yield connection
    connection.close()


def statements(engine: str) -> list[Query]:
    return sorted(load(engine).values(), key=lambda query: query.name)


def test_every_statement_is_one_that_sqlite_accepts(sqlite_tables: apsw.Connection) -> None:
    refused = {}
    for query in statements("sqlite"):
        try:
            sqlite_tables.execute(f"EXPLAIN {query.sql}", [None for _ in query.binds])
        except apsw.Error as error:
            refused[query.name] = str(error)
    assert refused == {}


def test_every_statement_is_one_that_postgres_accepts(postgres_url: str) -> None:
    refused = {}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(migrate.script(POSTGRES))
        for query in statements("postgres"):
            try:
                connection.execute(f"PREPARE {query.name}_ AS {query.sql}")  # type: ignore[call-overload]
            except psycopg.Error as error:
                refused[query.name] = str(error)
    assert refused == {}


def sqlite_columns(connection: apsw.Connection, query: Query) -> list[str]:
    """The names of the columns that a statement answers with, without running it."""
    found: list[str] = []

    def look(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        found.extend(column for column, _ in cursor.getdescription())
        return False

    cursor = connection.cursor()
    cursor.exec_trace = look
    with pytest.raises(apsw.ExecTraceAbort):
        cursor.execute(query.sql, [None for _ in query.binds])
    return found


async def test_rows_have_the_same_columns_by_name_on_both_engines(
    sqlite_tables: apsw.Connection, postgres_url: str
) -> None:
    sqlite = {query.name: sqlite_columns(sqlite_tables, query) for query in statements("sqlite")}
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(migrate.script(POSTGRES))
        prepared = {query.name: await connection.prepare(query.sql) for query in statements("postgres")}
        postgres = {name: [column.name for column in each.get_attributes()] for name, each in prepared.items()}
    finally:
        await connection.close()
    records = {query.name for engine in ("sqlite", "postgres") for query in statements(engine) if query.is_record}
    named = {name: columns for name, columns in [*sqlite.items(), *postgres.items()] if name not in records}
    unnamed = {name: columns for name, columns in named.items() if not all(map(str.isidentifier, columns))}
    assert unnamed == {}
    answers_once = {
        "enqueue",
        "enqueue_one",
        "enqueue_rows",
        "promote",
        "succeed",
    }  # SQLite reads in a second statement
    not_read = {"outbox_sent"}  # PostgreSQL answers with the setting that it changes
    both = (named.keys() & sqlite.keys() & postgres.keys()) - answers_once - not_read
    assert {name: (sqlite[name], postgres[name]) for name in both if sqlite[name] != postgres[name]} == {}


def test_one_statement_per_name_and_a_sentence_for_each() -> None:
    for file in statement_files():
        headers = re.split(r"^-- (name|part): .*$", file.read_text("utf-8"), flags=re.MULTILINE)[1:]
        for kind, text in zip(headers[::2], headers[1::2], strict=True):
            assert text.lstrip("\n").startswith("-- "), f"{file.name}: no sentence before {text.strip()[:60]!r}"
            code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
            assert code.count(";") == (kind == "name"), f"{file.name}: {code.strip()[:60]!r}"


def test_every_part_is_included_by_a_statement_and_written_once_for_each_engine() -> None:
    text = "".join(file.read_text("utf-8") for file in statement_files())
    written = re.findall(r"^-- part: (\w+)(?: \[(\w+)\])?$", text, re.MULTILINE)
    assert {name for name, _ in written} == set(re.findall(r"\{part:(\w+)", text))
    twice = [name for name, engine in written if (name, "") in written and (engine or written.count((name, "")) > 1)]
    assert twice == []
    assert sorted(set(written)) == sorted(written)


# Lists of columns that the statements repeat from Python


def listed(part: str) -> list[str]:
    """The columns of a part, without tables, casts and conditions."""
    text = re.sub(r"CAST\((\w+) AS text\)", r"\1", parts("sqlite")[part])
    return [re.sub(r"front\.|:| IS NOT NULL", "", column).strip() for column in text.split(",")]


def test_a_claim_answers_with_the_fields_of_a_claimed_job_in_their_order() -> None:
    token_and_worker = 2
    renamed = {"cancel_requested": "cancel_requested_at", "waited": "-{seconds_until(run_after)}"}
    fields = [renamed.get(name, name) for name in Claimed._fields[:-token_and_worker]]
    assert listed("claimed") == fields
    written = {"source_epoch": "epoch", "attempt": "attempt + 1"}  # by the claim that follows
    assert listed("claiming") == [written.get(name, name) for name in fields]


def test_every_option_of_a_job_is_inserted_and_kept() -> None:
    assert listed("options") == listed("given_options") == [name for name, _ in columns("new job")]
    assert listed("kept_columns")[-len(list(columns("kept job"))) :] == [name for name, _ in columns("kept job")]


@each(
    "name, forms",
    [
        (
            "declare_schedules",
            ("{0}", "s.{0}", "{0} = excluded.{0}", "CAST({{t}}schedules.{0} AS text)", "CAST(excluded.{0} AS text)"),
        ),
        ("fire_jobs", ("{0}", "s.{0}")),
    ],
)
def test_every_option_of_a_schedule_is_written_in_its_order(name: str, forms: tuple[str, ...]) -> None:
    (section,) = (section for section in _sections() if section.name == name)
    text = " ".join(section.text.split())
    for form in forms:
        assert ", ".join(form.format(column) for column, _ in columns("schedule")) in text
    if name == "declare_schedules":  # core.options.scheduled gives the values in this order
        assert ", ".join(f"{column} {kind}" for column, kind in columns("schedule")) in text


def test_a_job_is_read_with_the_fields_of_its_record_in_their_order() -> None:
    for engine in ("postgres", "sqlite"):
        columns = re.findall(r"\bj\.(\w+)", parts(engine)["job"])
        assert columns == [field.name for field in dataclasses.fields(Job) if field.name != "unreadable"]


def test_a_part_is_included_with_the_parts_in_it() -> None:
    written = {"page": "{part:mine} AND id < :id", "mine": "owner = :me"}
    assert _include("WHERE {part:page};", written)[0] == "WHERE owner = :me AND id < :id;"
    with pytest.raises(LookupError, match="nothing"):
        _include("{part:nothing}", written)


def test_a_mutant_of_one_store_leaves_the_loaded_statements_alone() -> None:
    assert load("sqlite") is load("sqlite")
    assert queries.load("postgres") is not queries.load("sqlite")
