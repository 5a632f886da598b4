"""`each`: every row runs, and every row that fails is named."""

import pytest

from rowlock.core.outcome import Failed
from support.each import each
from support.rigs.rig import Rig

MODE = ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
MATRIX = """
    import asyncio
    import pytest
    from support.each import each

    ran = []

    @each("number, word", [(1, "one"), pytest.param(2, "two", id="the second"), (3, "three")])
    def test_plain(number, word):
        ran.append(word)
        assert number != 1 and word != "two"

    @each("upper", "ab")
    @each("lower", [7, 8], ids=["seven", "eight"])
    async def test_stacked(upper, lower, tmp_path):
        await asyncio.sleep(0)
        ran.append((upper, lower, tmp_path))
        assert (upper, lower) != ("b", 7)

    def test_every_row_ran():
        assert ran[:3] == ["one", "two", "three"]
        assert [row[:2] for row in ran[3:]] == [("a", 7), ("a", 8), ("b", 7), ("b", 8)]
        assert len({row[2] for row in ran[3:]}) == 1
"""


def test_a_matrix_is_one_case_that_runs_every_row_and_names_each_that_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MATRIX)
    result = pytester.runpytest_inprocess("-p", "no:randomly", *MODE)
    result.assert_outcomes(passed=1, failed=5)  # two cases, and their three rows
    for row in ("test_plain [number=1, word='one']", "test_plain [the second]", "test_stacked [upper='b', seven]"):
        result.stdout.fnmatch_lines(f"*{row.replace('[', '[[]')}*")


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([], "without a row"),
        ([(1, 2, 3)], "2 names and 3 values"),
        ([pytest.param(1, 2, marks=pytest.mark.soak)], "has no marks"),
    ],
)
def test_a_table_that_would_check_less_than_it_says_is_refused(rows: list, wrong: str) -> None:
    with pytest.raises(AssertionError, match=wrong):
        each("a, b", rows)


@each("task", ["first", "second"], afresh=True)
async def test_each_row_can_start_with_an_empty_database(rig: Rig, task: str) -> None:
    seeds = {table: len(rows) for table, rows in (await rig.contents()).items()}
    assert seeds == {"rowlock.sources" if rig.store.engine == "postgres" else "rowlock_sources": 2}
    failed = await rig.running(task=task, owner="ana", source="api:a")
    await rig.settle(failed, Failed("E", "no", permanent=True))
    await rig.enqueue(task=task)
    assert len((await rig.contents()).keys() - seeds.keys()) >= 5  # live, finished, attempts, events, tallies
