"""The schema of a database as text that does not depend on how it came to be: columns in the order of their names,
constraints by their text, no partitions, and no rights of the roles that `migrate --roles` makes: a role belongs to
the whole server, so another test may have made it. Two schemas with the same text behave in the same way.
"""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# In the text of a function: a string, which stays as it is, or blank space and comments.
_BLANK = re.compile(r"('(?:[^']|'')*')|(?:\s|--[^\n]*|/\*.*?\*/)+", re.DOTALL)
_TIGHT = re.compile(r"('(?:[^']|'')*')| ?([,;)])|(\() ?")
_LINE = re.compile(
    r"('(?:[^']|'')*')|(;) ?| (?=(?:SELECT|FROM|WHERE|ORDER BY|(?:LEFT|CROSS) JOIN|UNION|INSERT|UPDATE|DELETE|VALUES|"
    r"RETURN|RETURNING|ON CONFLICT|DECLARE|BEGIN|EXCEPTION|PERFORM|ELSIF|ELSE|RETURNS|LANGUAGE|AS \$)\b)"
)
_TABLES = """
SELECT c.oid, c.relname, c.relkind::text, coalesce(array_to_string(c.reloptions, ', '), ''), pg_get_partkeydef(c.oid)
FROM pg_class c
WHERE c.relnamespace = 'rowlock'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') AND NOT c.relispartition
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i') AND c.relkind = 'S')
ORDER BY c.relname
"""
_COLUMNS = """
SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
       || CASE WHEN a.attcollation <> t.typcollation THEN ' COLLATE ' || co.collname ELSE '' END
       || CASE WHEN a.attstorage <> t.typstorage THEN ' STORAGE ' || a.attstorage::text ELSE '' END
       || CASE WHEN a.attcompression <> '' THEN ' COMPRESSION ' || a.attcompression::text ELSE '' END
       || CASE WHEN coalesce(a.attstattarget, -1) <> -1 THEN ' STATISTICS ' || a.attstattarget ELSE '' END
       || CASE WHEN a.attidentity <> '' THEN ' IDENTITY ' || a.attidentity::text ELSE '' END
       || CASE WHEN d.adbin IS NULL THEN '' WHEN a.attgenerated = 's' THEN ' GENERATED ' ELSE ' DEFAULT ' END
       || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
       || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_collation co ON co.oid = a.attcollation
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attname
"""
# PostgreSQL 18 lists NOT NULL as constraints; the columns have it already.
_CONSTRAINTS = """
SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c
WHERE c.conrelid = %s AND c.contype <> 'n' ORDER BY 1
"""
_INDEXES = "SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i WHERE i.indrelid = %s ORDER BY 1"
_TRIGGERS = "SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t WHERE t.tgrelid = %s AND NOT t.tgisinternal ORDER BY 1"
_POLICIES = "SELECT polname::text FROM pg_policy WHERE polrelid = %s ORDER BY 1"
_COMMENTS = """
SELECT coalesce(a.attname || ': ', '') || d.description FROM pg_description d
LEFT JOIN pg_attribute a ON a.attrelid = d.objoid AND a.attnum = d.objsubid AND d.objsubid > 0
WHERE d.objoid = %s AND d.classoid = 'pg_class'::regclass ORDER BY 1
"""
_GRANTS = """
SELECT 'GRANT ' || g.privilege_type || ' TO ' || CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) g
WHERE c.oid = %s AND g.grantee <> c.relowner AND g.grantee NOT IN (SELECT oid FROM pg_roles WHERE rolname ~ '^rowlock_')
ORDER BY 1
"""
_FUNCTIONS = """
SELECT pg_get_functiondef(p.oid),
       CASE WHEN p.proacl IS NULL THEN '' ELSE E'\n-- execute: ' || coalesce(
           (SELECT string_agg(CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END, ', ' ORDER BY 1)
            FROM aclexplode(p.proacl) g WHERE g.grantee <> p.proowner
              AND g.grantee NOT IN (SELECT oid FROM pg_roles WHERE rolname ~ '^rowlock_')), 'owner only') END
FROM pg_proc p
WHERE p.pronamespace = 'rowlock'::regnamespace ORDER BY p.proname, pg_get_function_identity_arguments(p.oid)
"""
_TYPES = """
SELECT t.typname || ' ' || t.typtype::text || ' '
       || coalesce((SELECT string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder)
                    FROM pg_enum e WHERE e.enumtypid = t.oid),
                   (SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
                    FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped), '')
FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
WHERE t.typnamespace = 'rowlock'::regnamespace AND (t.typtype IN ('e', 'd') OR c.relkind = 'c') ORDER BY 1
"""
_KINDS = {"r": "TABLE", "p": "PARTITIONED TABLE", "v": "VIEW", "S": "SEQUENCE"}


def postgres_schema(url: str) -> str:
    """Tables, views, sequences and types of the schema `rowlock`."""
    return "\n\n".join(_postgres_schema(url))


def _postgres_schema(url: str) -> Iterator[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = pg_catalog")

        def lines(sql: str, oid: int) -> list[str]:
            return [str(row[0]) for row in connection.execute(sql, (oid,))]

        for oid, name, kind, options, partitioned in connection.execute(_TABLES).fetchall():
            head = f"{_KINDS[kind]} {name}"
            head += f" PARTITION BY {partitioned}" if partitioned else ""
            parts = [head + (f" WITH ({options})" if options else "")]
            if kind == "v":
                parts += lines("SELECT pg_get_viewdef(%s)", oid)
            elif kind != "S":
                parts += [f"    {line}" for query in (_COLUMNS, _CONSTRAINTS) for line in lines(query, oid)]
            parts += [
                line for query in (_INDEXES, _TRIGGERS, _POLICIES, _COMMENTS, _GRANTS) for line in lines(query, oid)
            ]
            yield "\n".join(parts)
        for (line,) in connection.execute(_TYPES).fetchall():
            yield f"TYPE {line}"


def postgres_functions(url: str) -> str:
    """Every function of the schema `rowlock`, with its body and who may execute it. Comments and blank space inside of
    bodies do not count; lines are broken where a statement or one of its clauses begins."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = pg_catalog")
        return "\n\n".join(code(text) + rights for text, rights in connection.execute(_FUNCTIONS))


def code(text: str) -> str:
    """The text of a function without comments, on lines that do not depend on how it was laid out."""
    text = _BLANK.sub(lambda found: found[1] or " ", text)
    text = _TIGHT.sub(lambda found: found[1] or found[2] or found[3], text)
    return _LINE.sub(lambda found: found[1] or f"{found[2] or ''}\n", text).strip()


def sqlite_schema(file: Path) -> str:
    """Tables, indexes, views and triggers of an SQLite file."""
    connection = sqlite3.connect(file)
    try:
        rows = connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
            " AND name NOT LIKE 'sqlite%' ORDER BY tbl_name, type = 'table' DESC, type, name"
        ).fetchall()
    finally:
        connection.close()
    return "\n\n".join(_table(name, sql) if kind == "table" else _flat(sql) for kind, name, _, sql in rows)


def _table(name: str, sql: str) -> str:
    """A table with its columns and constraints in alphabetical order: columns that came later stand at the end."""
    text = _COMMENT.sub(" ", sql)
    start, end = text.index("("), text.rindex(")")
    after = _flat(text[end + 1 :])
    return "\n".join(
        (f"TABLE {name} {after}".rstrip(), *sorted(f"    {_flat(p)}" for p in _listed(text[start + 1 : end])))
    )


def _listed(text: str) -> list[str]:
    """The parts of a list, split at the commas that stand in no parenthesis and no string."""
    parts, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == "'"
        if not quoted:
            depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _flat(text: str) -> str:
    return " ".join(_COMMENT.sub(" ", text).split())
