"""SQLite under many processes, on a full disk, after a fork, and on a network."""

import asyncio
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import apsw
import pytest

from rowlock import StorageFull, StoreError
from rowlock.core.errors import UnsupportedFilesystem
from rowlock.core.job import NewJob
from rowlock.store import Store, open_store
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.sqlite import store as sqlite
from rowlock.store.engine.sqlite.filesystem import network_filesystem
from rowlock.store.jobs import enqueue
from rowlock.store.read import job_rows
from support.each import each
from support.races.disk import disk
from support.races.rig import Race, until


@pytest.fixture
def engine() -> str:
    return "sqlite"


def integrity(url: str) -> list[tuple[str, ...]]:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    try:
        return [tuple(map(str, row)) for row in connection.execute("PRAGMA integrity_check")]
    finally:
        connection.close()


@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=pytest.mark.soak)])
async def test_six_processes_that_do_everything_at_once_see_no_busy_and_lose_nothing(race: Race, seconds: int) -> None:
    crew: list[subprocess.Popen[bytes]] = []
    for number in range(6):
        command = [
            sys.executable,
            "-m",
            "support.races.mixed",
            race.url,
            str(seconds),
            str(race.folder / f"{number}.json"),
        ]
        crew.append(subprocess.Popen(command, env=race.environment()))  # noqa: ASYNC220
    try:
        for process in crew:
            assert await asyncio.to_thread(process.wait, seconds + 40) == 0
    finally:
        for process in crew:
            process.kill()
            process.wait()
    told = [json.loads((race.folder / f"{number}.json").read_text()) for number in range(6)]
    assert [error for one in told for error in one["errors"]] == []
    assert sum(one["lost"] for one in told) == 0
    accepted = [job for one in told for job in one["accepted"]]
    finished = [job for one in told for job in one["finished"]]
    assert len(finished) > 100
    assert len(set(finished)) == len(finished), "a job was finished twice"
    states = {str(job): state for job, state in race.query("SELECT id, state FROM {t}jobs")}
    assert set(states) == set(accepted)
    assert {job for job, state in states.items() if state == "succeeded"} == set(finished)
    assert "running" not in states.values()
    assert integrity(race.url) == [("ok",)]


KEYED = """
import asyncio, json, sys
from rowlock import Rowlock

async def main():
    async with Rowlock(sys.argv[1]) as app:
        @app.task("t")
        async def work(n: int) -> None: ...
        print("ready", flush=True)
        sys.stdin.readline()
        asked = [work.using(key=f"k{n % 5}").enqueue(n=n) for n in range(25)]
        made = await asyncio.gather(*asked)
        print(json.dumps([[n % 5, job.id, job.created] for n, job in enumerate(made)]), flush=True)

asyncio.run(main())
"""


async def test_many_processes_with_the_same_keys_make_one_job_of_each(race: Race) -> None:
    pipe = asyncio.subprocess.PIPE
    started = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", KEYED, race.url, stdin=pipe, stdout=pipe)
        for _ in range(4)
    ]
    try:
        async with asyncio.timeout(60):
            for process in started:
                assert await process.stdout.readline() == b"ready\n"  # type: ignore[union-attr]
            answers = await asyncio.gather(*(process.communicate(b"go\n") for process in started))
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
                await process.wait()
    told = [tuple(row) for out, _ in answers for row in json.loads(out)]
    assert len(told) == 100
    assert len({(key, job_id) for key, job_id, _ in told}) == 5
    assert sum(created for *_, created in told) == 5
    assert {job_id for _, job_id, _ in told} == {row[0] for row in race.query("SELECT id FROM {t}jobs_live")}


async def test_a_full_disk_stops_writes_not_reads_and_everything_goes_on_when_there_is_space(
    url: str, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    with disk(full):
        race = Race(url, tmp_path)
        await race.open()
        try:
            worker = race.start(env={"RACE_DISK": str(full)})
            await race.started()
            ids = await race.enqueue("work", 100, ms=50, options={"max_attempts": 1})
            await race.until_noted("end", 20)
            full.touch()
            with pytest.raises(StorageFull):
                await race.store.run(enqueue.enqueue([(new_id(), "{}")], NewJob(task="work")))
            assert (await race.store.run(job_rows.get(ids[0]))) is not None
            await until(lambda: "database outage, noticed by" in worker.log(), 10, worker.log)
            await until(lambda: len(race.noted("start")) == len(race.noted("end")), 10, worker.log)
            claimed = len(race.noted("start"))
            await asyncio.sleep(1)  # several polls of a process: what must not happen leaves no sign to wait for
            assert len(race.noted("start")) == claimed, "it claims although nothing can be written"
            assert worker.alive
            full.unlink()
            await race.enqueue("work", 1)
            await race.until_noted("start", claimed + 1)
            await race.until_done(20)
            race.judge()
            assert await worker.stop() == 0
        finally:
            await race.close()
    assert integrity(url) == [("ok",)]


async def test_a_full_disk_that_lasts_longer_than_a_lease_loses_nothing(url: str, tmp_path: Path) -> None:
    full = tmp_path / "full"
    with disk(full):
        race = Race(url, tmp_path)
        await race.open()
        try:
            race.start(env={"RACE_DISK": str(full)})
            race.start(env={"RACE_DISK": str(full)})
            await race.started()
            await race.enqueue("work", 12, ms=1500, options={"max_attempts": 1})
            await race.until_noted("start", 12)
            full.touch()
            await asyncio.sleep(
                5
            )  # real: the workers are processes, and a lease is two seconds of the database's clock
            full.unlink()
            await race.until_done(15)
            race.judge()
            assert {row.losses for row in race.rows().values()} == {0}
            assert all(worker.alive for worker in race.workers)
        finally:
            await race.close()


def said_by_a_fork(store: Store) -> str:
    """What a forked child is told that uses a store of its parent."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing was raised"
        try:
            asyncio.new_event_loop().run_until_complete(store.run(job_rows.get(new_id())))
        except StoreError as error:
            said = str(error)
        except BaseException:
            said = traceback.format_exc()
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader) as pipe:
        return pipe.read()


async def test_a_forked_child_that_uses_its_parents_store_is_told_so(race: Race) -> None:
    assert "fork" in said_by_a_fork(race.store)
    await race.enqueue("work")  # and the parent's store still works


MOUNTS = """\
/dev/vda1 / ext4 rw,relatime 0 0
server:/export /srv/shared nfs4 rw,vers=4.2 0 0
tmpfs /srv/shared/fast tmpfs rw 0 0
//server/c$ /mnt/with\\040space cifs rw 0 0
"""


@each(
    "folder, kind",
    [
        ("/srv/shared", "nfs4"),
        ("/srv/shared/jobs", "nfs4"),
        ("/srv/shared/fast/jobs", None),
        ("/srv/sharedness", None),
        ("/mnt/with space/jobs", "cifs"),
        ("/home", None),
    ],
)
def test_a_network_filesystem_is_known_by_its_mount(folder: str, kind: str | None) -> None:
    assert network_filesystem(Path(folder), MOUNTS) == kind


async def test_a_database_on_a_network_filesystem_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sqlite, "network_filesystem", lambda folder: network_filesystem(folder, f"server:/x {tmp_path} nfs rw")
    )
    with pytest.raises(UnsupportedFilesystem, match="nfs"):
        await open_store(f"sqlite:///{tmp_path}/jobs.db")
    assert not (tmp_path / "jobs.db").exists()
