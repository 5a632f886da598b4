"""S0.29, S0.30: failures of links in Sentry, as this app sends them."""

from collections.abc import Iterator

import pytest

from apps.bookmarks.conftest import Make
from apps.bookmarks.files import bookmarks_file
from apps.engines import ONE_ENGINE
from rowlock import fixed
from rowlock_apps.bookmarks.shared import ENRICH
from rowlock_apps.bookmarks.small_web import answer
from support.servers.sentry import Receiver

CANARY = "c4n4ry"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """The app is told of it as a deploy would: by its environment."""
    started = Receiver()
    monkeypatch.setenv("ROWLOCK_SENTRY__DSN", started.dsn)
    yield started
    started.close()


@ONE_ENGINE
async def test_every_failed_try_of_a_link_is_an_event_without_anybodys_data(place: Make, receiver: Receiver) -> None:
    """S0.29"""
    pages = {
        "a.example": answer(status="500 Oh"),
        "b.example": answer(status=f"403 {CANARY}", Set_Cookie=CANARY),
        "c.example": answer(status="302 Found", Location=f"http://u:{CANARY}@c.example/?q={CANARY}"),
    }
    it = await place(pages, backoff=fixed(0.01))
    links = (f"http://{host}/p?token={CANARY}#{CANARY}" for host in pages)
    await it.work(await it.bring(bookmarks_file(*links), user=f"{CANARY}@mail.example"))
    failed = [tuple(event["fingerprint"]) for event in receiver.events]
    assert failed.count(("rowlock", ENRICH, "HTTP_500")) == 2, "both tries"
    assert failed.count(("rowlock", ENRICH, "HTTP_403")) == 1
    assert len(failed) >= 4
    assert {event["tags"]["source"] for event in receiver.events} == {f"domain:{host}" for host in pages}
    assert receiver.text.count(CANARY) == 0


@ONE_ENGINE
async def test_a_link_that_turns_dead_leaves_a_breadcrumb(place: Make, receiver: Receiver) -> None:
    """S0.30"""
    it = await place({"a.example": answer(status="410 Gone")})
    await it.work(await it.bring(bookmarks_file(f"http://a.example/?id={CANARY}")))
    [job] = await it.app.jobs(task=ENRICH)
    (crumb,) = receiver.events[-1]["breadcrumbs"]["values"]
    assert crumb["message"] == f"Job {job.id} ({ENRICH}) is dead: HTTP_410"
