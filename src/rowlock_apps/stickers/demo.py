"""`rowlock demo stickers`: two replicas draw for some users. One prompt cannot be drawn, one user has no credits, one
replica is killed at work. At the end every credit is where it belongs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tempfile
import time
from pathlib import Path

from rowlock import JobHandle, State
from rowlock_apps.stage import Stage, stage
from rowlock_apps.stickers import drawing, ledger, shop
from rowlock_apps.stickers.app import app, reconcile
from rowlock_apps.stickers.replicas import Replica

LONGEST_SECONDS = 45.0
LOOK_SECONDS = 0.1
DRAWING_SECONDS = 0.5  # of a slow model; a real one takes 50
VICTIM_SECONDS, VICTIM_LOOK_SECONDS = 2.0, 0.03  # of the first order: its replica is surely killed at work
IMPOSSIBLE = "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen"  # does not fit on a sticker
PROMPTS = {
    "ana": ["a cat with a hat", "tea at five", "a fox in the snow", "hello!"],
    "bob": ["pizza", IMPOSSIBLE, "a robot that waters plants"],
    "eve": ["a cactus", "monday"],
}
NEWS = re.compile(r"Worker started: \S+|Job \S+ reclaimed from .*")
WORDS = {
    State.QUEUED: "queued",
    State.RETRYABLE: "queued",
    State.RUNNING: "processing",
    State.SUCCEEDED: "done",
    State.DEAD: "error",
    State.CANCELLED: "error",
}


class ReplicaEnded(Exception):
    """A replica has died that the demo did not kill."""


class Demo:
    """One run: its orders, its replicas, and its mistakes."""

    def __init__(self, database: str, results: str, scratch: str, screen: Stage) -> None:
        self.database, self.results, self.scratch, self.screen = database, results, scratch, screen
        self.replicas: list[Replica] = []
        self.orders: list[JobHandle[dict[str, str]]] = []
        self.before: dict[str, int] = {}  # by user: credits before the orders
        self.mistakes: list[str] = []

    async def run(self) -> None:
        """From empty accounts to a balanced ledger."""
        try:
            await asyncio.gather(self.start_replica("replica 1"), self.start_replica("replica 2"))
            await self.place_orders()
            await self.kill_a_replica()
            await self.watch()
        finally:
            await asyncio.gather(*(replica.stop() for replica in self.replicas))
        await self.check()

    async def start_replica(self, name: str) -> None:
        """Start one more worker, which draws one sticker at a time."""
        replica = Replica(name, lambda line: self.hear(name, line))
        self.replicas.append(replica)
        # A killed process leaves temporary files; they are in the demo's folder and are deleted with it.
        env = {"ROWLOCK_DATABASE_URL": self.database, "STICKERS_RESULTS": self.results, "TMPDIR": self.scratch}
        await replica.start(env)

    def hear(self, name: str, line: str) -> None:
        """Show the interesting lines of a replica's log."""
        if news := NEWS.search(line):
            self.screen.say(f"{name}: {news[0]}")

    async def place_orders(self) -> None:
        """All orders at once, including orders that must be refused."""
        for user, prompts in PROMPTS.items():
            await self.fill_purse(user, len(prompts))
            for prompt in prompts:
                await self.order(user, prompt)
        self.screen.say(f"{len(self.orders)} stickers ordered by {', '.join(PROMPTS)}; each took a credit")
        await self.click_twice()
        await self.order_without_credit()

    async def fill_purse(self, user: str, needed: int) -> None:
        """An account with enough credits; an earlier run may have left some."""
        await shop.open_account(user)
        lacking = needed - await shop.credits_of(user)
        if lacking > 0:
            await shop.top_up(user, lacking)
        self.before[user] = await shop.credits_of(user)

    async def order(self, user: str, prompt: str, request_id: str | None = None) -> str:
        """Order a sticker; returns the job's id."""
        seconds = VICTIM_SECONDS if not self.orders else DRAWING_SECONDS
        job = await shop.submit(user, prompt, request_id=request_id, wait_seconds=seconds)
        self.orders.append(job)
        return job.id

    async def click_twice(self) -> None:
        """Repeat a request: it gets the first job and no second charge."""
        await self.fill_purse("dora", 2)
        click = f"click {time.time_ns()}"
        first, second = [await self.order("dora", "double trouble", click) for _ in range(2)]
        self.orders.pop()
        self.expect(first == second, "a double click made two orders")
        self.screen.say("dora clicked twice: one order, one charge")

    async def order_without_credit(self) -> None:
        """An order that must be refused and must leave no row."""
        await shop.open_account("zoe")
        try:
            await shop.submit("zoe", "a free lunch")
            self.mistakes.append("zoe ordered without a credit")
        except shop.NoCredit as error:
            self.screen.say(f"refused: {error}")

    async def kill_a_replica(self) -> None:
        """Kill a replica while it draws, and start another as a platform would. The job is reclaimed when its lease
        expires."""
        victim = self.orders[0]
        while victim.phase != "thinking":  # read often, because a drawing takes only about a second
            await asyncio.sleep(VICTIM_LOOK_SECONDS)
            await victim.refresh()
        holder = next(replica for replica in self.replicas if f"-{replica.pid}-" in victim.locked_by)
        holder.kill()
        self.screen.say(f"kill -9 of {holder.name}, which was drawing {victim.args['prompt']!r}")
        await self.start_replica("replica 3")

    async def watch(self) -> None:
        """Wait until every order has ended and every refund was made."""
        while not all(order.record.final for order in self.orders):
            await self.look()
        await (await reconcile.enqueue()).wait(LONGEST_SECONDS)
        while await app.jobs(state=[State.QUEUED, State.RUNNING, State.RETRYABLE], task="stickers.refund"):
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Read the orders and show them."""
        await asyncio.sleep(LOOK_SECONDS)
        ended = [replica for replica in self.replicas if not replica.alive and not replica.killed]
        if ended:
            raise ReplicaEnded(f"{ended[0].name} ended by itself: {ended[0].last_words}")
        for order in self.orders:
            if not order.record.final:
                await order.refresh()
                if order.state is State.DEAD:
                    reason = str(order.error_message).partition("\n")[0]
                    self.screen.say(f"error: {reason}; {order.owner} gets the credit back")
        words = [WORDS[order.state] for order in self.orders]
        self.screen.numbers("jobs", {word: words.count(word) for word in dict.fromkeys(WORDS.values())})
        self.screen.bar("stickers", sum(order.record.final for order in self.orders), len(self.orders))

    async def check(self) -> None:
        """What must hold at the end."""
        self.expect(self.orders[0].losses > 0, "the killed replica had its sticker done already")
        for order in self.orders:
            prompt, wanted = order.args["prompt"], State.SUCCEEDED
            if prompt == IMPOSSIBLE:
                wanted = State.DEAD
            self.expect(order.state is wanted, f"{prompt!r} is {order.state}: {order.error_message}")
            if order.state is State.SUCCEEDED:
                self.expect(_is_whole(order.result), f"the picture of {prompt!r} is not whole")
        for user, credits in self.before.items():
            drawn = sum(order.owner == user for order in self.drawn)
            left = await shop.credits_of(user)
            self.expect(left == credits - drawn, f"{user} has {left} credits after {drawn} stickers, and had {credits}")
        async with app.transaction() as tx:
            self.expect(not await ledger.unbalanced(tx), "the ledger does not balance")

    @property
    def drawn(self) -> list[JobHandle[dict[str, str]]]:
        return [order for order in self.orders if order.state is State.SUCCEEDED]

    def expect(self, holds: bool, otherwise: str) -> None:
        """Record a mistake unless the condition holds."""
        if not holds:
            self.mistakes.append(otherwise)


async def play(database: str, live: bool) -> list[str]:
    """Run the demo on a database; returns its mistakes."""
    app.configure(app.settings.model_copy(update={"database": database}))
    await app.migrate()
    kept, began = os.environ.get("STICKERS_RESULTS"), time.monotonic()
    print("Users pay one credit for a sticker. Two replicas draw, one sticker at a time each.", flush=True)
    with tempfile.TemporaryDirectory(prefix="rowlock-stickers-") as scratch:
        async with app:
            with stage(live) as screen:
                demo = Demo(database, kept or f"{scratch}/results", scratch, screen)
                try:
                    async with asyncio.timeout(LONGEST_SECONDS):
                        await demo.run()
                except TimeoutError:
                    demo.mistakes.append(f"not all stickers were done after {LONGEST_SECONDS:.0f} s")
                except ReplicaEnded as error:
                    demo.mistakes.append(str(error))
        _summarise(demo, time.monotonic() - began)
        if kept:
            _show_all(demo)
    return demo.mistakes


def _is_whole(result: dict[str, str]) -> bool:
    data = Path(result["path"]).read_bytes()
    return f"sha256:{hashlib.sha256(data).hexdigest()}" == result["checksum"]


def _summarise(demo: Demo, seconds: float) -> None:
    failed = [order for order in demo.orders if order.state is State.DEAD]
    print()
    print(f"done       {len(demo.drawn)} stickers drawn in {seconds:.1f} s, each paid for once")
    if not demo.mistakes:
        print("           the killed replica's sticker was drawn by another one when its lease had run out")
        print(f"           {len(failed)} could not be drawn and was paid back; every credit is in the ledger")
        print("pictures   STICKERS_RESULTS=stickers rowlock demo stickers    keeps them in the folder stickers")


def _show_all(demo: Demo) -> None:
    sheet = Path(demo.results, "contact-sheet.png")
    drawing.save(drawing.contact_sheet([Path(order.result["path"]) for order in demo.drawn]), sheet)
    print(f"           all of this run are on {sheet}")
