"""`rowlock report`: one page for notes about an incident, with true numbers and without a way to run anything."""

import asyncio
from html.parser import HTMLParser
from pathlib import Path

from cli.command import Cli, Inside
from rowlock import Permanent, Rowlock
from rowlock.core.option_checks import NAME
from rowlock.core.states import FINAL
from rowlock.store import audit, workers
from rowlock.store.audit import Actor
from rowlock.store.read import counters, search
from rowlock.store.read.reads import JobFilter

HOSTILE = (Path(__file__).parents[1] / "browser" / "hostile.txt").read_text("utf-8").splitlines()


class Read(HTMLParser):
    """The tags and attributes of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.text = set[str](), set[str](), ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


async def incident(url: str, names: list[str]) -> None:
    """Three jobs that succeed, one that fails for each name, and these names wherever a text can be given."""
    async with Rowlock(url) as app:
        store = await app.store()
        for number, name in enumerate(names):

            @app.task(f"{name} {number}", max_attempts=1)
            async def fails(text: str) -> None:
                raise Permanent(text, code="BROKEN")

            await fails.enqueue(text=name)
            await fails.using(queue=name, delay=600).enqueue(text=name)
            await app.schedules.add(f"{name} {number}", fails, every="1h", args={"text": name})
            await store.run(audit.write_alone(Actor(name, "cli"), "jobs.retry", name))
            await store.run(workers.register(f"{name} {number}", name, 1, name, [name], [name], 1, None, 60))

        @app.task("fine")
        async def fine() -> None: ...

        await fine.enqueue_many([{}] * 3)
        async with app.worker():
            async with asyncio.timeout(60):
                while await unfinished(app):
                    await asyncio.sleep(0.05)
            await counters.sample(store)
        while await store.run(counters.sum_up()):
            pass


async def unfinished(app: Rowlock) -> bool:
    counts = await (await app.store()).run(search.count(JobFilter(queue="default")))
    return any(one.count for state, one in counts.items() if state not in FINAL)


def test_a_report_has_the_numbers_of_its_time(here: Inside, cli: Cli) -> None:
    asyncio.run(incident(cli.env["ROWLOCK_DATABASE_URL"], ["links"]))
    file = cli.folder / "out.html"
    assert here.out("report", "--html", str(file), "--since", "2h").startswith(f"{file}: ")
    read = Read(file.read_text("utf-8"))
    assert "4 jobs ended and 1 attempts failed" in read.text
    for word in ("links 0", "BROKEN", "every 1h (UTC)", "jobs.retry", "Half took less than"):
        assert word in read.text
    assert {"svg", "rect", "table"} <= read.tags


def test_hostile_text_in_a_report_stays_text(inside: Inside, folder: Path) -> None:
    pages = []
    for names in (["plain"], [name for name in HOSTILE if NAME.fullmatch(name) and len(name) < 150]):
        asyncio.run(incident(f"sqlite:///{folder}/inside.db", names))
        inside.out("report", "--html", "out.html")
        pages.append(Read((folder / "out.html").read_text("utf-8")))
    plain, hostile = pages
    assert (hostile.tags, hostile.attributes) == (plain.tags, plain.attributes)  # none of them has become markup
    assert not {"script", "a", "img", "link", "iframe", "object"} & hostile.tags
    assert not {"href", "src", "style", "onload"} & hostile.attributes
    assert "<script>window.ran++</script>" in hostile.text  # it is shown as it is
    assert "default-src 'none'" in (folder / "out.html").read_text("utf-8")


def test_a_report_of_nothing_says_so_and_a_wrong_time_or_file_is_refused(inside: Inside, folder: Path) -> None:
    inside.out("report", "--html", "out.html")
    assert "nothing was counted in this time" in (folder / "out.html").read_text("utf-8")
    assert "within the last 30 days" in inside.error("report", "--html", "out.html", "--since", "60d", code=2)
    assert "cannot be written" in inside.error("report", "--html", "no/such/folder.html", code=2)
