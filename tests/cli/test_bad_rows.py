"""The command beside rows that no Rowlock wrote: every list is read, and what is set aside is shown."""

import asyncio
import json
from pathlib import Path

import pytest

from cli.command import Inside
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from rowlock.store.upkeep import bad_rows as aside
from support.sql.bad_rows import bad_id, bad_rows, insert_bad_rows


@pytest.fixture
def told(folder: Path, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """The command on a database with one row of each defect, one of which is set aside."""

    async def prepare() -> None:
        store = await open_store(database, StoreOptions(migrate=True))
        insert_bad_rows(database)
        await aside.put(store, bad_id("half a lease"), "reclaim", ValueError("no lease_token"))
        await store.close()

    asyncio.run(prepare())
    return Inside.enter(folder, database, monkeypatch, capsys)


def test_lists_and_stories_show_jobs_that_cannot_be_read_and_say_what_of_them(told: Inside, engine: str) -> None:
    listed = {job["id"]: job for job in told.json("jobs", "list", "--limit", "1000")}
    assert set(listed) == {bad_id(name) for name in bad_rows(engine)}
    assert listed[bad_id("due in the year 20000")]["unreadable"] == ["run_after"]
    assert "9999-12-30" in listed[bad_id("due in the year 20000")]["run_after"]
    assert told.out("jobs", "list", "--limit", "1000").count("\n") == len(listed)
    for name in ("a state that there is not", "a number of 5,000 digits", "half a lease"):
        assert told.json("jobs", "show", bad_id(name))["id"] == bad_id(name)
    assert "\nunreadable  args: shown as stored" in told.out("jobs", "show", bad_id("a number of 5,000 digits"))


def test_doctor_and_stats_name_what_is_set_aside(told: Inside) -> None:
    done = told.run("doctor", "--json", code=1)
    rows = [finding for finding in json.loads(done.stdout) if finding["check"] == "rows"]
    (found,) = [finding for finding in rows if finding["level"] == "fail"]
    assert found["text"].startswith(
        f"{bad_id('half a lease')} is set aside: reclaim failed for it, ValueError: no lease_token"
    )
    assert "delete its entry in the table set_aside" in found["do"]
    never = [finding["text"] for finding in rows if finding["level"] == "warn"]
    assert {text.partition(" ")[0] for text in never} >= {bad_id("due at infinity"), bad_id("due in the year 20000")}
    (one,) = told.json("stats")["set_aside"]
    assert (one["id"], one["doing"]) == (bad_id("half a lease"), "reclaim")
    assert f"! {bad_id('half a lease')} is set aside: reclaim failed for it" in told.out("stats")
    assert "set aside" in told.out("jobs", "explain", bad_id("half a lease"))
