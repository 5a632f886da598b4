"""The keys that an identity provider publishes.

They are fetched by a thread, one fetch at a time. A request with a key that is known waits for no fetch
while the provider is slow or away: the keys that were fetched last stay good for an hour. A request with an unknown key
waits for the fetch that is under way; only a few may wait, and after a fetch unknown keys are refused for a while. So
nobody can stop other users by naming keys that do not exist.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future

import jwt

log = logging.getLogger("rowlock.api")

FETCH_SECONDS = 5.0  # for each read from the provider's connection
RENEWED_SECONDS = 240.0  # keys older than this are fetched again, and meanwhile used
FRESH_SECONDS = 300.0  # for keys older than this, the fetch is waited for: a withdrawn key must stop working
KEPT_SECONDS = 3600.0  # while the provider does not answer, its last keys are used up to this age
PATIENCE_SECONDS = 2.0  # how long a known key waits for a fetch
COOLDOWN_SECONDS = 30.0  # after a fetch, no other one for an unknown key
RETRY_SECONDS = 1.0  # after a fetch that failed
STUCK_SECONDS = 30.0  # a fetch that takes longer no longer counts as under way
MOST_WAITING = 50  # requests that wait for an unknown key


class PublishedKeys:
    """The key set at one address."""

    def __init__(self, address: str) -> None:
        self._client = jwt.PyJWKClient(address, cache_jwk_set=False, timeout=FETCH_SECONDS)
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at, self._tried_at, self._failing = float("-inf"), float("-inf"), False
        self._fetch: Future[None] | None = None
        self._begun_at, self._waiting = 0.0, 0

    def __getitem__(self, kid: str) -> jwt.PyJWK:
        return self._keys[kid]

    async def has(self, kid: str) -> bool:
        """Whether there is a key of this id. Fetches the keys if that is not known."""
        age = time.monotonic() - self._fetched_at
        if kid not in self._keys or age > KEPT_SECONDS:
            return await self._appears(kid)
        if age > RENEWED_SECONDS:
            fetch = self._begin()
            if age > FRESH_SECONDS and not self._failing and not await _ended(fetch, PATIENCE_SECONDS):
                self._failing = True  # until a fetch succeeds, nobody else waits
        return kid in self._keys

    async def _appears(self, kid: str) -> bool:
        """Wait for a key that is not known, as long as a fetch takes."""
        pause = RETRY_SECONDS if self._failing else COOLDOWN_SECONDS
        idle = self._fetch is None or self._fetch.done()
        if self._waiting >= MOST_WAITING or (idle and time.monotonic() < self._tried_at + pause):
            return False
        self._waiting += 1
        try:
            await _ended(self._begin(), FETCH_SECONDS)
        finally:
            self._waiting -= 1
        return kid in self._keys and time.monotonic() - self._fetched_at <= KEPT_SECONDS

    def _begin(self) -> Future[None]:
        """The fetch that is under way; begins one if there is none."""
        now = time.monotonic()
        if self._fetch is not None and not self._fetch.done() and now < self._begun_at + STUCK_SECONDS:
            return self._fetch
        if self._failing and now < self._tried_at + RETRY_SECONDS and self._fetch is not None:
            return self._fetch
        self._fetch, self._begun_at = Future(), now
        # A daemon: a provider that hangs does not keep the server from stopping.
        threading.Thread(target=self._run, args=(self._fetch,), name="rowlock-jwks", daemon=True).start()
        return self._fetch

    def _run(self, fetch: Future[None]) -> None:
        try:
            found = {key.key_id: key for key in self._client.get_signing_keys() if key.key_id is not None}
        except Exception as error:  # the provider is away, or its answer isn't a key set
            log.warning("the keys of api.jwt.jwks cannot be fetched: %s", error)
            found = None
        if fetch is self._fetch:  # else it was stuck, and a later one has begun
            self._tried_at, self._failing = time.monotonic(), found is None
            if found is not None:
                self._keys, self._fetched_at = found, self._tried_at
        fetch.set_result(None)


async def _ended(fetch: Future[None], seconds: float) -> bool:
    done, _ = await asyncio.wait({asyncio.wrap_future(fetch)}, timeout=seconds)
    return bool(done)
