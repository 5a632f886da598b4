"""Alerts: one process at a time evaluates the rules and sends the messages.

Every worker, dispatcher and server takes part, so that the death of all workers is noticed as well. A lease in the
database decides which process does the work; the other processes look again when the lease ends. Messages aren't jobs,
because the alert that no worker is alive can't wait for a worker. A message stays in the database until its receiver
has accepted it, so it arrives at least once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.util import find_spec

from rowlock.core.config import AlertSettings
from rowlock.core.errors import ConfigError, SourceError, StoreError
from rowlock.health import alerts
from rowlock.public_web import AddressRefused, refuse_private, web_target
from rowlock.store.engine.ids import new_token
from rowlock.store.engine.store import Store

log = logging.getLogger("rowlock.alerts")

LEASE_ROUNDS = 3.0  # a holder that misses this many rounds is replaced
FIRST_RETRY, LONGEST_RETRY = 2.0, 300.0
KEPT_SECONDS = 86_400.0  # give up on a message that could not be delivered for this long
REFUSED_TRIES = 5  # give up on a message after this many responses such as 400
IDLE_SECONDS = 3600.0  # the sender sleeps until it is woken
MOST_ALERTS = 100  # unsent messages to read when choosing the next one to send
MOST_UNSENT = 10_000  # unsent messages to read when logging the new ones
ANY_PORT = range(1, 65_536)


class NotDelivered(Exception):
    """A message did not arrive."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused  # the receiver's response was that it does not accept the message


class Alerts:
    """The alerts of one process: while it has the lease, it evaluates the rules and sends messages. Without rules it
    does nothing."""

    def __init__(self, settings: AlertSettings, store: Store, holder: str) -> None:
        if settings.rules:
            check_webhook(settings)
        self._settings, self._store = settings, store
        self._rules = settings.parsed_rules
        self._holder, self._token = holder, new_token()
        self._lease = LEASE_ROUNDS * settings.check_seconds
        self._holds, self._wake = False, asyncio.Event()
        self._logged = frozenset[str]()  # unsent messages that this process has logged

    def start(self, repeat: Callable[..., None]) -> None:
        """Start two loops, so that a slow receiver doesn't delay the next evaluation. `repeat` is `Loops.start` of the
        worker."""
        if self._settings.rules:
            repeat("alerts", self.round, vital=False)
            repeat("alert messages", self.send, self._wake, vital=False)

    async def round(self) -> float:
        """Take or renew the lease and evaluate the rules once; returns the delay before the next round."""
        taken = await self._store.run(alerts.take(self._holder, self._token, self._lease))
        if taken > 0:
            self._holds = False
            return taken * random.uniform(1.0, 1.1)
        found = await self._store.run(alerts.look(self._rules))
        self._holds = await self._store.run(alerts.evaluate(self._token, self._rules, found))
        if self._holds:
            await self._log_unsent()
        self._wake.set()
        return self._settings.check_seconds if self._holds else 0.0

    async def _log_unsent(self) -> None:
        """Log each message that no process has tried to send yet. Logging happens before sending, because messages are
        sent in order: a receiver that fails for an hour would also keep later alerts out of the log."""
        unsent = await self._store.run(alerts.unsent(MOST_UNSENT))
        for message in unsent:
            if message.attempts == 0 and message.id not in self._logged:
                _log(message)
        self._logged = frozenset(message.id for message in unsent)

    async def send(self) -> float:
        """Send the oldest message that is due, if this process has the lease; returns the delay before the next. The
        messages of one alert are sent in order, but one that isn't accepted doesn't hold up other alerts."""
        oldest = await self._store.run(alerts.unsent(MOST_ALERTS)) if self._holds else []
        first = {(one.body.get("rule"), one.body.get("subject")): one for one in reversed(oldest)}.values()
        # A wait beyond LONGEST_RETRY comes from a clock that was ahead.
        waits = {one.id: one.wait if 0 < one.wait <= LONGEST_RETRY else 0.0 for one in first}
        message = next((one for one in oldest if waits.get(one.id) == 0.0), None)
        if message is None:
            return min(waits.values(), default=IDLE_SECONDS)
        try:
            await deliver(self._settings, message)
        except NotDelivered as error:
            await self._failed(message, error)
        else:
            await self._store.run(alerts.arrived(message.id))
        return 0.0

    async def _failed(self, message: alerts.Message, error: NotDelivered) -> None:
        given_up = message.age > KEPT_SECONDS or (error.refused and message.attempts + 1 >= REFUSED_TRIES)
        if given_up:
            log.error("giving up on alert message %s after %d attempts: %s", message.id, message.attempts + 1, error)
            await self._store.run(alerts.arrived(message.id))
            return
        wait = min(LONGEST_RETRY, FIRST_RETRY * 2.0**message.attempts) * random.uniform(0.8, 1.0)
        log.warning("alert message %s was not delivered, trying again in %.0f s: %s", message.id, wait, error)
        await self._store.run(alerts.failed(message.id, wait, str(error)))

    async def stop(self) -> None:
        """Give up the lease, after the loops have ended."""
        if self._holds:
            try:
                await self._store.run(alerts.leave(self._token))
            except StoreError as error:
                log.warning("could not give up the lease of the alerts, which now has to expire: %s", error)


async def deliver(settings: AlertSettings, message: alerts.Message) -> None:
    """Send one message to the webhook, if there is one. Raises NotDelivered."""
    if settings.webhook_url is None or settings.webhook_secret is None:
        return
    from rowlock.health import post

    secrets = [settings.webhook_secret]
    body = {"type": message.type, "timestamp": alerts.iso(datetime.now(UTC)), "data": message.body}
    seconds, private = settings.webhook_timeout_seconds, settings.webhook_private
    try:
        target = web_target(settings.webhook_url, ANY_PORT, said="alerts.webhook_url is")
        answer = await post.deliver(target, message.id, body, secrets, seconds, private=private)
    except (AddressRefused, SourceError) as error:
        raise NotDelivered(str(error)) from None
    if not 200 <= answer.status < 300:
        again = answer.status >= 500 or answer.status in (408, 425, 429)
        raise NotDelivered(f"{target.host} answered {answer.status}", refused=not again)


def _log(message: alerts.Message) -> None:
    about = message.body
    extra = {f"alert_{key}": about.get(key) for key in ("rule", "subject", "value")}
    if message.type == "alert.resolved":
        log.warning("alert resolved: %s: %s", about.get("rule"), about.get("text"), extra=extra)
    else:
        again = " (again)" if message.type == "alert.repeated" else ""
        log.error("alert firing%s: %s: %s", again, about.get("rule"), about.get("text"), extra=extra)


def check_webhook(settings: AlertSettings) -> None:
    """Raise ConfigError at the start if nothing can ever be sent to the configured webhook."""
    if settings.webhook_url is None:
        return
    if not all(map(find_spec, ("aiohttp", "standardwebhooks"))):
        raise ConfigError('alerts.webhook_url needs more packages: pip install "rowlock[webhooks]"')
    try:
        target = web_target(settings.webhook_url, ANY_PORT, said="alerts.webhook_url is")
        if not settings.webhook_private:
            refuse_private(target)
    except AddressRefused as refused:
        hint = "" if settings.webhook_private else "; to allow your own network, set alerts.webhook_private"
        raise ConfigError(f"alerts.webhook_url: {refused}{hint}") from None
