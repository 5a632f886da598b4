"""Replicas: real worker processes on PostgreSQL, started one after the other as the README says."""

import asyncio
import re
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from apps.stickers.rig import Process, Shop, environment, point_at
from apps.stickers.test_demo import block
from rowlock import JobHandle
from rowlock_apps.stickers import app

SECONDS = 0.25  # that a sticker takes; the document's take 50


async def test_a_second_replica_halves_the_wait_and_no_job_runs_twice(postgres_url: str, tmp_path: Path) -> None:
    """S1.1, S1.3, S1.4, S1.14, S1.15, S1.21, S1.22, S1.23: migrate, one replica, then two, by the README's commands."""
    migrate, worker = (line.split() for line in block("sh", "rowlock migrate").splitlines()[1:3])
    began = time.time()
    shop = Shop(postgres_url, tmp_path / "results")
    env = environment(shop.url, shop.results)
    with ExitStack() as exits:
        assert await exits.enter_context(Process(tmp_path / "migrate.log", env, "-m", *migrate)).ends() == 0
        exits.enter_context(point_at(shop.url))
        async with app:
            await shop.open("ana", 100)
            first = exits.enter_context(Process(tmp_path / "first.log", env, "-m", *worker))
            alone = await ten_stickers(shop, warm=1)
            second = exits.enter_context(Process(tmp_path / "second.log", env, "-m", *worker))
            await second.says("Worker started")
            shared = await ten_stickers(shop, warm=2)
            await shop.check_the_books()
        assert await asyncio.gather(first.stop(), second.stop()) == [0, 0]

    # Not by the seconds: on a busy machine two replicas do not get a processor each.
    assert min(Counter(job.locked_by for job in shared).values()) >= 3
    assert len([job for job in shared if ran_beside_another_replica(job, shared)]) >= 6
    assert {job.attempt for job in alone + shared} == {1}
    assert (len({job.locked_by for job in alone}), len({job.locked_by for job in shared})) == (1, 2)
    check_the_ids([first, second], began)
    check_the_logs([first.log, second.log], [*alone, *shared])


async def ten_stickers(shop: Shop, warm: int) -> list[JobHandle[Any]]:
    """Ten orders that were drawn. Before them one for each replica, which starts its drawing process."""
    for job in [await shop.submit("ana", "warm up", wait_seconds=0.3) for _ in range(warm)]:
        await job.wait(30)
    jobs = [await shop.submit("ana", f"cat {number}", wait_seconds=SECONDS) for number in range(10)]
    for job in jobs:
        await job.wait(30)
    return jobs


def ran_beside_another_replica(job: JobHandle[Any], jobs: Sequence[JobHandle[Any]]) -> bool:
    """Whether another replica was at work in the middle of this job."""
    middle = job.started_at + (job.finished_at - job.started_at) / 2
    others = [other for other in jobs if other.locked_by != job.locked_by]
    return any(other.started_at <= middle < other.finished_at for other in others)


def check_the_ids(replicas: Sequence[Process], began: float) -> None:
    """A worker's id begins with host name, process id and the moment of its start in milliseconds."""
    for replica in replicas:
        (worker,) = re.findall(r"Worker started: (\S+)", replica.log)
        host = socket.gethostname()
        found = re.fullmatch(rf"{re.escape(host)}-(?P<pid>\d+)-(?P<ms>\d{{13}})-\w+", worker)
        assert found, worker
        assert int(found["pid"]) == replica.popen.pid
        assert began * 1000 <= int(found["ms"]) <= time.time() * 1000


def check_the_logs(logs: Sequence[str], jobs: Sequence[JobHandle[Any]]) -> None:
    """Each replica says who it is; each job is claimed by one of them, once, and completed, once."""
    ids = [re.findall(r"Worker started: (\S+)", log) for log in logs]
    assert [len(found) for found in ids] == [1, 1]
    whole = "\n".join(logs)
    for job in jobs:
        (claimed_by,) = re.findall(rf"Job {job.id} claimed by (\S+)", whole)
        assert claimed_by == job.locked_by
        (seconds,) = re.findall(rf"Job {job.id} completed in (\d+\.\d)s", whole)
        assert float(seconds) >= 0.2
