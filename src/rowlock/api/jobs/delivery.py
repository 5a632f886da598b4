"""Deliveries of webhooks: which URLs a request may name, the list of a job's deliveries, and the task that makes one.

A delivery is a job that a worker runs. It has no owner, so it isn't in a list of the owner's jobs, makes no events and
counts towards no limit; it is shown with the job that it reports. It is one signed POST, to an IP address that is
checked when the connection is made. Of the receiver's answer only the status is stored or logged, because its content
is not trusted. Redirects are not followed, because their targets are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from rowlock.api.context import JobId, Service, Serving, Who, api_router
from rowlock.api.jobs import webhooks
from rowlock.api.jobs.webhooks import Webhook
from rowlock.api.live.events import Event
from rowlock.api.problems import Refusal, documented
from rowlock.api.schemas import END_TYPES, DeliveryShape, delivery_shape, event_data
from rowlock.client.client import Client
from rowlock.core.config import WebhookSettings
from rowlock.core.errors import Permanent, Retry, SourceError
from rowlock.core.policy import exponential
from rowlock.core.states import State
from rowlock.public_web import AddressRefused, WebTarget, refuse_private, web_target
from rowlock.store.engine.ids import valid_id
from rowlock.store.read import job_rows
from rowlock.worker.attempt.classify import retry_after

if TYPE_CHECKING:  # they need rowlock[webhooks]
    import aiohttp

    from rowlock.health.post import Transport

ANY_PORT = range(1, 65_536)
LONGEST_WAIT = 6 * 3600.0  # between two attempts
LONGEST_HOST = 190  # the host is part of a source's name
LONGEST_PAUSE = 300.0  # seconds for which one answer pauses a host, as long as an open breaker does
# The fields that the database trigger stores when a job ends, besides its state and the time.
STORED = (
    *("job_id", "task", "attempt", "progress", "phase", "message"),
    *("result_uri", "result_checksum", "error_code", "error_message"),
)

router = api_router(prefix="/api/jobs", tags=["webhooks"])


@router.get("/{jobId}/deliveries", responses=documented("JOB_NOT_FOUND"))
async def list_deliveries(job_id: JobId, service: Serving, asker: Who) -> list[DeliveryShape]:
    """The deliveries of a job's webhook and their failed attempts, oldest first: one for each end of the job."""
    job = await service.job_of(asker, job_id)
    found = []
    for delivery_id in await service.run(webhooks.deliveries(job.id)):
        delivery = await service.run(job_rows.get(delivery_id))
        if delivery is not None:  # its own retention may have ended
            attempts = await service.run(job_rows.attempts(delivery_id))
            found.append(delivery_shape(delivery, attempts, service.zone))
    return found


async def accepted(service: Service, owner: str | None, url: str) -> Webhook:
    """The webhook that a request asks for, or a refusal."""
    settings = service.settings.webhooks
    if not settings.enabled:
        raise Refusal("WEBHOOKS_OFF", "the operator can set api.webhooks.enabled")
    target = _checked(url, settings)
    if owner is None:
        raise Refusal("NO_WEBHOOK_SECRET", "webhooks are signed for an owner: create the job with an owner's token")
    if not await service.run(webhooks.signing_secrets(owner)):
        raise Refusal("NO_WEBHOOK_SECRET", "ask the operator for one: rowlock webhooks secret rotate --owner NAME")
    backoff = exponential(settings.retry_seconds, max(settings.retry_seconds, LONGEST_WAIT)).to_json()
    source = f"{webhooks.CLASS}:{target.host}"
    return Webhook(target.url, source, settings.queue, settings.max_attempts, backoff, settings.timeout_seconds)


def _checked(url: str, settings: WebhookSettings) -> WebTarget:
    """The target of a webhook's URL. The host name is not resolved here: the delivery checks the IP address that it
    connects to."""
    try:
        target = web_target(url, ANY_PORT, said="the webhook is")
        if not settings.allow_private:
            refuse_private(target)
    except AddressRefused as refused:
        raise Refusal("WEBHOOK_REFUSED", str(refused)) from None
    if len(target.host) > LONGEST_HOST:
        raise Refusal("WEBHOOK_REFUSED", "the host name is too long")
    if settings.hosts and not any(_fits(target.host, pattern.lower()) for pattern in settings.hosts):
        raise Refusal("WEBHOOK_REFUSED", f"{target.host} is not in the list of hosts that the operator allows")
    return target


def _fits(host: str, pattern: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


# --- the task


async def deliver_job(client: Client, delivery_id: str, event: Any) -> None:
    """Carry out the job that a trigger has made for a webhook. URL and owner are those of the webhook: somebody who
    inserts a job of this task must not have a message signed with an owner's secret."""
    job_id = valid_id(str(event.get("job_id"))) if isinstance(event, dict) else None
    found = None if job_id is None else await client.perform(webhooks.of_delivery(job_id, delivery_id))
    if found is None:
        raise Permanent("this job delivers no webhook: the end of a job did not make it", code="NO_WEBHOOK")
    await deliver(client, delivery_id, *found, event)


async def deliver(
    client: Client, message_id: str, url: str, owner: str, event: dict[str, Any], transport: Transport | None = None
) -> None:
    """Send one message. The exception that it raises decides whether it is tried again."""
    from rowlock.health import post  # needs rowlock[webhooks]

    settings = client.settings.api
    if not settings.webhooks.enabled:
        raise Permanent("api.webhooks.enabled is off for this worker", code="WEBHOOKS_OFF")
    secrets = await client.perform(webhooks.signing_secrets(owner))
    if not secrets:
        raise Retry("the owner has no secret to sign webhooks with", code="NO_WEBHOOK_SECRET")
    try:  # again: the operator may have disallowed the host since the job was created
        target = _checked(url, settings.webhooks)
    except Refusal as refusal:
        raise Permanent(str(refusal), code=refusal.code) from None
    body, seconds = message(event, ZoneInfo(settings.zone)), settings.webhooks.timeout_seconds
    private = settings.webhooks.allow_private
    answer = await post.deliver(target, message_id, body, secrets, seconds, private=private, transport=transport)
    if not 200 <= answer.status < 300:
        raise _failure(target.host, answer)


def message(stored: Mapping[str, Any], zone: ZoneInfo) -> dict[str, Any]:
    """The body: the type, the time and, as data, the fields of the job's last event."""
    state = State(stored["state"])
    at = datetime.fromtimestamp(stored["at"], UTC)
    fields = {name: stored[name] for name in STORED}
    data = event_data(Event(id=0, owner="", type=END_TYPES[state], state=state, at=at, **fields), zone)
    return {"type": data.pop("type"), "timestamp": data.pop("at"), "data": data}


def _failure(host: str, answer: aiohttp.ClientResponse) -> Exception:
    """The exception for an answer that isn't a success. Its code must not begin with HTTP_: repeated HTTP_403 errors,
    for example, would disable the source, and so the deliveries of other owners to this host. For the same reason a
    long Retry-After delays this delivery alone: an owner chooses the receiver, and may share the host with others."""
    status, wait = answer.status, retry_after(answer)
    if status == 410:
        return Permanent(f"{host} answered 410: this address no longer exists", code="STATUS_410")
    if (status >= 500 or status in (408, 429)) and (wait or 0.0) <= LONGEST_PAUSE:
        return SourceError(f"{host} answered {status}", code=f"STATUS_{status}", retry_after=wait)
    return Retry(f"{host} answered {status}", code=f"STATUS_{status}", after=wait)
