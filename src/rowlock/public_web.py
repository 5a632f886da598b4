"""Which URLs and addresses may be called: public web servers, and nothing that only we can reach.

A link comes from a stranger, and so does every redirect and every answer of the DNS. Names are resolved once, all
answers are checked, and the connection goes to a checked address, so the name cannot
get another address between the check and the call (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import quote

from rowlock.core.errors import InvalidArguments, Permanent, SourceError
from rowlock.core.links import canonical_url

Resolve = Callable[[str], Awaitable[list[str]]]
Dial = Callable[[tuple[Any, ...]], socket.socket]
DEFAULT_PORTS = {"http": 80, "https": 443}
MOST_ANSWERS = 64

# Names that no public server has: resolving them would only reveal our network to the DNS.
OUR_NAMES = re.compile(r"(.*\.)?(localhost|local|internal|intranet|lan|home|corp|home\.arpa|onion|test|invalid)")

# Checked in addition to `is_global`, which accepts some of these in some versions of Python.
REFUSED_V4 = [
    IPv4Network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # the metadata service of one cloud, although it looks public
    )
]  # fmt: skip
GLOBAL_V6 = IPv6Network("2000::/3")
REFUSED_V6 = [IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
NAT64 = IPv6Network("64:ff9b::/96")  # NAT64: in a network without IPv4, the address of every site that has IPv4 only


class AddressRefused(Permanent):
    """A URL or an address that is never called."""


@dataclass(frozen=True, slots=True)
class WebTarget:
    """One request: where to, and what for."""

    scheme: str
    host: str  # as in the URL: a name, an IPv4 address, or an IPv6 address in brackets
    port: int
    path: str  # with its query

    @property
    def url(self) -> str:
        """The whole URL."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """What the Host header says."""
        return self.host if self.port == DEFAULT_PORTS[self.scheme] else f"{self.host}:{self.port}"

    @property
    def origin(self) -> str:
        """Whose robots.txt it is."""
        return f"{self.scheme}://{self.authority}"

    def at(self, address: str) -> str:
        """The URL with a checked address in place of the name, for a client that must not resolve the name again."""
        place = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{place}:{self.port}{self.path}"


def web_target(url: str, ports: Collection[int] = (80, 443), *, said: str = "the link is") -> WebTarget:
    """The target of a URL; `AddressRefused` for what is not plain http(s) on one of these ports. `said` is what the
    refusal begins with: the URL itself may have a secret in it."""
    url = url.strip().replace(" ", "%20")
    try:
        canonical = canonical_url(url)
    except InvalidArguments:
        raise AddressRefused(f"{said} no plain http or https URL of a public page", code="URL_REFUSED") from None
    scheme, _, rest = canonical.partition("://")
    host, port = _host_and_port(rest.partition("/")[0])
    number = int(port) if port else DEFAULT_PORTS[scheme]
    if number not in ports:
        raise AddressRefused(f"port {number} of {host} is not one of the web", code="PORT_REFUSED")
    return WebTarget(scheme, host, number, _path(url))


async def public_address(target: WebTarget, resolve: Resolve) -> str:
    """The address to connect to. Asked for once; if any of its answers is not public, none is used."""
    refuse_private(target)
    if literal := _literal(target.host):
        return literal
    try:
        answers = await resolve(target.host)
    except OSError as error:
        raise SourceError(f"{target.host} has no address: {error.strerror or error}", code="DNS") from None
    if not answers:
        raise SourceError(f"{target.host} has no address", code="DNS")
    for answer in answers[:MOST_ANSWERS]:
        _check(target.host, answer)
    return next((answer for answer in answers[:MOST_ANSWERS] if ":" not in answer), answers[0])


def refuse_private(target: WebTarget) -> None:
    """Refuse what can be seen to be private without the DNS: an address that is not public, a name of our network."""
    if literal := _literal(target.host):
        _check(target.host, literal)
    elif "." not in target.host or OUR_NAMES.fullmatch(target.host):
        raise AddressRefused(f"{target.host} is not the name of a public server", code="ADDRESS_REFUSED")


def is_public_address(address: str) -> bool:
    """Whether an address is global unicast, also what is wrapped into it."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv4Address):
        return _public_v4(found)
    if found.scope_id is not None:
        return False
    if found.ipv4_mapped is not None:
        return _public_v4(found.ipv4_mapped)
    if found in NAT64:
        return _public_v4(IPv4Address(int(found) & 0xFFFFFFFF))
    return _public_v6(found)


def public_socket(info: tuple[Any, ...]) -> socket.socket:
    """A socket for a public address; raises for any other. It is aiohttp's `socket_factory`: it sees the address that
    is connected to, however the client came by it."""
    family, kind, protocol, _, (address, *_) = info
    if not is_public_address(address):
        raise AddressRefused(f"{address} is not a public address", code="ADDRESS_REFUSED")
    return socket.socket(family, kind, protocol)


async def system_resolve(host: str) -> list[str]:
    """The addresses of a name, as the system knows them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def _public_v4(address: IPv4Address) -> bool:
    return address.is_global and not address.is_multicast and not any(address in net for net in REFUSED_V4)


def _public_v6(address: IPv6Address) -> bool:
    """Whether an IPv6 address contains an IPv4 address (6to4, Teredo, compatible). No public server has one of
    these."""
    return (
        address in GLOBAL_V6
        and address.is_global
        and not address.is_multicast
        and not any(address in net for net in REFUSED_V6)
    )


def _check(host: str, address: str) -> None:
    if not is_public_address(address):
        where = address if address in host else f"{host} is at {address}, which"
        raise AddressRefused(f"{where} is not a public address", code="ADDRESS_REFUSED")


def _literal(host: str) -> str | None:
    if host.startswith("["):
        return host[1:-1]
    return host if re.fullmatch(r"[0-9.]+", host) else None


def _host_and_port(authority: str) -> tuple[str, str]:
    """Of a canonical URL: an IPv6 address keeps its brackets."""
    if authority.startswith("["):
        host, _, port = authority.partition("]")
        return f"{host}]", port.removeprefix(":")
    host, _, port = authority.partition(":")
    return host, port


def _path(url: str) -> str:
    """Path and query unchanged: their order may matter to the server."""
    rest = url.partition("://")[2].partition("#")[0]
    found = re.search(r"[/?]", rest)
    path = rest[found.start() :] if found else "/"
    path = path if path.startswith("/") else f"/{path}"
    return quote(path, safe="/?:@!$&'()*+,;=%-._~[]")
