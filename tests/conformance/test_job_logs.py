"""Log lines of jobs: in order, the newest ones only, and forgotten after a while."""

import pytest

from rowlock.core.times import FakeClock
from rowlock.store import Store
from rowlock.store.read import job_logs
from rowlock.store.read.job_logs import NewLine
from rowlock.store.upkeep.retention import forget
from support.rigs.rig import Rig


def lines(job_id: str, *messages: str) -> list[NewLine]:
    return [NewLine(job_id, 1, 0.5, "INFO", message) for message in messages]


async def test_the_newest_lines_are_kept_in_their_order(
    rig: Rig, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_logs, "KEPT", 3)
    job, other = await rig.enqueue(), await rig.enqueue()
    await store.run(job_logs.write(lines(job, "a", "b") + lines(other, "x\0y" + "z" * 3000)))
    await store.run(job_logs.write(lines(job, "c", "d")))
    found = await store.run(job_logs.read(job))
    assert ([line.message for line in found.items], found.dropped) == (["b", "c", "d"], 1)
    newer = await store.run(job_logs.read(job, found.items[0].seq))
    assert [line.message for line in newer.items] == ["c", "d"]
    (long,) = (await store.run(job_logs.read(other))).items
    assert (len(long.message), long.message[:3]) == (job_logs.MOST_TEXT, "xyz")
    assert await store.run(job_logs.read("no id")) == ([], 0)


async def test_log_lines_are_pruned_when_they_are_old(rig: Rig, store: Store, clock: FakeClock) -> None:
    await store.run(job_logs.write(lines(await rig.enqueue(), "a")))
    clock.move(job_logs.SECONDS + 10)
    assert [await store.run(forget("prune_logs", 10, job_logs.SECONDS)) for _ in range(2)] == [1, 0]
