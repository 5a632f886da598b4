"""One case for a whole table of rows: `each` reads like `pytest.mark.parametrize` and costs one set-up."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import pytest

Row = tuple[str, dict[str, Any]]  # its name in a report, and the arguments it gives


def each(
    names: str,
    rows: Iterable[Any],
    *,
    ids: Iterable[str] | Callable[[Any], str] | None = None,
    afresh: bool = False,
) -> Callable:
    """Run the body of a test once for each row, as one case. Rows that fail are all reported, each by its name.

    The rows share the fixtures, so a row may leave nothing behind that another row would see. With `afresh` the fixture
    `rig` is emptied between rows; its clock goes on. `pytest.mark.parametrize` is for rows that need a file or a
    process of their own.
    """
    table = list(_named(names.replace(" ", "").split(","), list(rows), ids))
    assert table, "without a row the test would check nothing"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        # Two `each` over one test are one table: every row of the upper with every row of the lower one.
        body, below, inner = getattr(test, "table_of", (test, [("", {})], False))
        emptied = afresh or inner
        rows = [
            (", ".join(filter(None, (name, lower))), given | more) for name, given in table for lower, more in below
        ]

        if inspect.iscoroutinefunction(body):

            @wraps(body)
            async def case(*, subtests: pytest.Subtests, **fixtures: Any) -> None:
                start = await fixtures["rig"].contents() if emptied else None
                for place, (name, arguments) in enumerate(rows):
                    if place and start is not None:
                        await fixtures["rig"].start_over(start)
                    with subtests.test(name):
                        await body(**fixtures, **arguments)
        else:
            assert not emptied, "`afresh` is for tests that await a rig"

            @wraps(body)
            def case(*, subtests: pytest.Subtests, **fixtures: Any) -> None:
                for name, arguments in rows:
                    with subtests.test(name):
                        body(**fixtures, **arguments)

        signature = inspect.signature(body)
        fixtures = [one for one in signature.parameters.values() if one.name not in rows[0][1]]
        asked = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        case.__signature__ = signature.replace(parameters=[*fixtures, asked])
        case.table_of = body, rows, emptied
        return case

    return decorate


def _named(names: list[str], rows: list[Any], ids: Iterable[str] | Callable[[Any], str] | None) -> Iterator[Row]:
    """Each row with its name: the one it was given, else its values."""
    listed = None if ids is None or callable(ids) else list(ids)
    assert listed is None or len(listed) == len(rows), f"{len(rows)} rows have {len(listed or ())} ids"
    for place, row in enumerate(rows):
        marked = isinstance(row, type(pytest.param()))
        assert not (marked and row.marks), f"a row of `each` has no marks: {row!r}"
        values = row.values if marked else (row if len(names) > 1 else (row,))
        assert len(values) == len(names), f"{len(names)} names and {len(values)} values: {row!r}"
        arguments = dict(zip(names, values, strict=True))
        if marked and row.id:
            name = row.id
        elif listed is not None:
            name = listed[place]
        elif callable(ids):
            name = "-".join(str(ids(value)) for value in values)
        else:
            name = ", ".join(f"{key}={value!r:.120}" for key, value in arguments.items())
        yield str(name), arguments
