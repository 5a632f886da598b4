"""The numbers of a bridge, as Prometheus reads them."""

import pytest

from rowlock import Rowlock
from rowlock.signals.endpoint import shown
from rowlock.signals.metrics import METRICS
from signals.scraping import names, values
from support.tasks.contract import until
from support.web.remote import Remote


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_bridge_tells_its_lag_and_its_dead_letters(app: Rowlock, remote: Remote) -> None:
    app.metered = True
    async with app.bridge() as bridge:
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        await remote.request(job.id)
        remote.say("job.results", jobId=job.id, status="WEIRD")
        await remote.all_read()
        await bridge._measure()
        text = shown(app.meters, "")[0].decode()
        await until(lambda: values(shown(app.meters, "")[0].decode(), "rowlock_deadletter_entries") == {(): 1})
    assert names(text) == {metric.name for metric in METRICS.values() if metric.counted_in in ("client", "bridge")}
    assert values(text, "rowlock_bridge_lag_entries")["job.results",] == 0
    assert app.meters == [app.enqueued.samples], "a bridge that has stopped has no numbers"
