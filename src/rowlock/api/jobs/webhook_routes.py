"""Webhooks of requests: which URLs a request may name, and the route that lists the deliveries.

The delivery itself is a job that a worker runs (delivery.py). It has no owner, so it is in no list of the owner's jobs,
makes no events and counts towards no limit. Its attempts are shown with the job that it reports.
"""

from __future__ import annotations

from rowlock.api import schemas
from rowlock.api.context import JobId, Service, Serving, Who, api_router
from rowlock.api.jobs import webhooks
from rowlock.api.jobs.webhooks import Webhook
from rowlock.api.problems import Refusal, documented
from rowlock.api.schemas import DeliveryShape
from rowlock.core.config import WebhookSettings
from rowlock.core.policy import exponential
from rowlock.public_web import AddressRefused, WebTarget, refuse_private, web_target
from rowlock.store.read import job_rows

ANY_PORT = range(1, 65_536)
LONGEST_WAIT = 6 * 3600.0  # between two attempts
LONGEST_HOST = 190  # the host is part of a source's name

router = api_router(prefix="/api/jobs", tags=["webhooks"])


@router.get("/{jobId}/deliveries", response_model=list[DeliveryShape], responses=documented("JOB_NOT_FOUND"))
async def list_deliveries(job_id: JobId, service: Serving, asker: Who) -> list[DeliveryShape]:
    """The deliveries of a job's webhook and their failed attempts, oldest first: one for each end of the job."""
    job = await service.job_of(asker, job_id)
    found = []
    for delivery_id in await service.run(webhooks.deliveries(job.id)):
        delivery = await service.run(job_rows.get(delivery_id))
        if delivery is not None:  # its own retention may have ended
            attempts = await service.run(job_rows.attempts(delivery_id))
            found.append(schemas.delivery_shape(delivery, attempts, service.zone))
    return found


async def accepted(service: Service, owner: str | None, url: str) -> Webhook:
    """The webhook that a request asks for, or a refusal."""
    settings = service.settings.webhooks
    if not settings.enabled:
        raise Refusal("WEBHOOKS_OFF", "the operator can set api.webhooks.enabled")
    target = checked(url, settings)
    if owner is None:
        raise Refusal("NO_WEBHOOK_SECRET", "webhooks are signed for an owner: create the job with an owner's token")
    if not await service.run(webhooks.signing(owner)):
        raise Refusal("NO_WEBHOOK_SECRET", "ask the operator for one: rowlock webhooks secret rotate --owner NAME")
    backoff = exponential(settings.retry_seconds, max(settings.retry_seconds, LONGEST_WAIT)).to_json()
    source = f"{webhooks.CLASS}:{target.host}"
    return Webhook(target.url, source, settings.queue, settings.max_attempts, backoff, settings.timeout_seconds)


def checked(url: str, settings: WebhookSettings) -> WebTarget:
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
