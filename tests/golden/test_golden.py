"""The contract, as it stands in the files beside this one: a change of any of it is seen in a review.

`postgres.sql` and `sqlite.sql` have the statements that really run, with all parts and tokens filled in.
"""

import dataclasses
import inspect
import json
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
import typer

import rowlock
import rowlock.public_web
import rowlock.testing
from golden.mutate import mutants, problems
from rowlock import Rowlock
from rowlock.api.app import build
from rowlock.cli import main
from rowlock.core.config import Settings
from rowlock.signals.metrics import METRICS
from rowlock.store.engine.statements import load
from support.files.golden import compare, compare_statements
from support.files.schema_dump import postgres_functions, postgres_schema, sqlite_schema

BOUNDS = (
    "format",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "maxItems",
    "minItems",
)

# The first lines of postgres.sql and sqlite.sql.
HEAD = """\
-- Every statement as this engine runs it, by name, with its parameters in brackets. `now` is the time of a fake clock:
-- in production it is NULL on PostgreSQL, which then uses its own clock, and the time of the machine on SQLite."""


@pytest.mark.parametrize("engine", ["postgres", "sqlite"])
def test_the_statements_that_run(engine: str) -> None:
    texts = {}
    for name, query in sorted(load(engine).items()):
        binds = ", ".join(bind if column is None else f"{bind}[{column}]" for bind, column in query.binds)
        texts[f"{name} ({binds})" if binds else name] = query.sql
    compare_statements(f"{engine}.sql", HEAD, texts)


def test_the_schema_of_postgresql(template_url: str) -> None:
    compare("postgres_schema.sql", postgres_schema(template_url))
    compare("postgres_functions.sql", postgres_functions(template_url))


def test_the_schema_of_sqlite(sqlite_template: Path) -> None:
    compare("sqlite_schema.sql", sqlite_schema(sqlite_template))


def test_the_public_names_of_python() -> None:
    lines: list[str] = []
    for module in (rowlock, rowlock.public_web, rowlock.testing):
        for name in sorted(module.__all__):
            lines += described(f"{module.__name__}.{name}", getattr(module, name))
    compare("python.txt", "\n".join(lines))


def described(name: str, value: Any) -> list[str]:
    """A public name with its signature, and those of its members."""
    if not isinstance(value, type):
        return [f"{name}{signature(value)}" if callable(value) else f"{name}: {type(value).__name__}"]
    bases = ", ".join(base.__name__ for base in value.__mro__[1:-1] if issubclass(base, BaseException))
    lines = [f"{name}{signature(value)}" + (f" [{bases}]" if bases else "")]
    if dataclasses.is_dataclass(value):
        lines += [f"    {field.name}: {field.type}" for field in dataclasses.fields(value)]
    for member in sorted(dir(value)):
        found = inspect.getattr_static(value, member)
        if not member.startswith("_") and not hasattr(BaseException, member) and not _is_slot(found):
            if isinstance(found, property):
                lines.append(f"    {member} -> {inspect.signature(found.fget).return_annotation}")  # type: ignore[arg-type]
            elif callable(getattr(value, member)):
                lines.append(f"    {member}{signature(getattr(value, member))}")
            else:
                lines.append(f"    {member}")
    return lines


def _is_slot(member: object) -> bool:
    return inspect.ismemberdescriptor(member)


def signature(value: Any) -> str:
    """With annotations as they are written; a default that is not a plain value is an ellipsis."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    plain = (str, int, float, bool, NoneType, tuple, inspect.Parameter.empty)
    shown = [
        one if isinstance(one.default, plain) or one.default is one.empty else one.replace(default=...)
        for one in found.parameters.values()
    ]
    return str(found.replace(parameters=shown)).replace("Ellipsis", "…")


def test_the_verbs_of_the_command_line() -> None:
    lines: list[str] = []
    for words, command in verbs(typer.main.get_command(main.app), ["rowlock"]):
        lines += ["", " ".join(words) + f": {' '.join((command.help or '').split())}"]
        for one in command.params:
            names = "/".join((*one.opts, *one.secondary_opts))
            default = "" if one.default is None or callable(one.default) else f" = {one.default!r}"
            text = " ".join((getattr(one, "help", None) or "").split())
            lines.append(f"    {names} {_type(one)}{default}{' *' if one.required else ''}: {text}")
        lines += [f"    {line.strip()}" for line in (command.epilog or "").splitlines() if line.strip()]
    compare("help.txt", "\n".join(lines).strip())


def _type(option: Any) -> str:
    if option.param_type_name == "option" and option.is_flag:
        return "flag"
    return f"{option.metavar or option.name}{'…' if option.multiple else ''}"


def verbs(command: Any, path: list[str]) -> list[tuple[list[str], Any]]:
    """Every command and group, with its words."""
    inner = getattr(command, "commands", {})
    return [(path, command), *(found for name, one in inner.items() for found in verbs(one, [*path, name]))]


def test_the_routes_of_the_api() -> None:
    document = build(Rowlock("sqlite:///unused.db")).openapi()
    lines = []
    for path, methods in sorted(document["paths"].items()):
        for method, route in sorted(methods.items()):
            lines.append(f"{method.upper()} {path} {route.get('operationId')}: {route.get('summary')}")
            for one in route.get("parameters", ()):
                star = "*" if one.get("required") else ""
                lines.append(f"    {one['in']} {one['name']}{star}: {kind(one['schema'])}")
            for content in route.get("requestBody", {}).get("content", {}).values():
                lines.append(f"    body: {kind(content['schema'])}")
            for status, answer in sorted(route["responses"].items()):
                for media, content in sorted(answer.get("content", {"-": {}}).items()):
                    lines.append(f"    {status} {media} {kind(content.get('schema', {}))}")
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines.append(name if "properties" in schema else f"{name}: {kind(schema)}")
        for one, inner in schema.get("properties", {}).items():
            star = "*" if one in schema.get("required", ()) else ""
            lines.append(f"    {one}{star}: {kind(inner)}")
    compare("api.txt", "\n".join(lines))


def test_the_settings() -> None:
    schema = Settings.model_json_schema()
    lines = []
    for name, model in (("settings", schema), *sorted(schema["$defs"].items())):
        lines.append(name)
        for one, inner in model.get("properties", {}).items():
            default = f" = {json.dumps(inner['default'])}" if "default" in inner else ""
            lines.append(f"    {one}: {kind(inner)}{default}")
    compare("settings.txt", "\n".join(lines))


def kind(schema: dict[str, Any]) -> str:
    """A JSON schema in a line."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " | ".join(kind(one) for one in schema[several])
    if "const" in schema or "enum" in schema:
        return " | ".join(map(repr, schema.get("enum", [schema.get("const")])))
    bounds = "".join(f" {name}={schema[name]}" for name in BOUNDS if name in schema)
    inner = f"[{kind(schema['items'])}]" if isinstance(schema.get("items"), dict) else ""
    if isinstance(schema.get("additionalProperties"), dict):
        inner = f"{{{kind(schema['additionalProperties'])}}}"
    return f"{schema.get('type', 'any')}{inner}{bounds}"


def test_the_metrics() -> None:
    compare(
        "metrics.txt",
        "\n".join(f"{m.name} {m.kind} {m.counted_in} {','.join(m.labels)}: {m.help}" for m in METRICS.values()),
    )


def test_each_mutant_changes_a_text_that_is_in_the_source_once() -> None:
    assert problems(mutants()) == []
