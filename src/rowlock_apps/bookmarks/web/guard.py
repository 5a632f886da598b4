"""Redirects under the checks of `rowlock.public_web`: where a link leads is checked again at every hop."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urljoin

from rowlock.public_web import AddressRefused, WebTarget, web_target


def redirected(target: WebTarget, location: str, ports: Collection[int]) -> WebTarget:
    """The target of a redirect; it must pass all checks of a first request."""
    try:
        joined = urljoin(target.url, location)
    except ValueError:
        raise AddressRefused(f"{target.host} redirects to what is no URL", code="URL_REFUSED") from None
    return web_target(joined, ports, said=f"{target.host} redirects to what is")
