"""Which URLs a program may call for a stranger: public web servers, and nothing in its own network.

The link comes from a stranger, and so do every redirect and every DNS answer. A name is resolved once, all of its
addresses are checked, and the connection goes to a checked address, so the name cannot change its address between the
check and the call (DNS rebinding). Webhooks, alerts and the sample systems use these checks; so can your tasks.
"""

from __future__ import annotations

import asyncio
import re
import socket
import unicodedata
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import quote, unquote

from rowlock.core.errors import InvalidArguments, Permanent, SourceError

__all__ = [
    "AddressRefused",
    "Dial",
    "MAX_URL",
    "Resolve",
    "WebTarget",
    "is_public_address",
    "parse_url",
    "public_address",
    "public_socket",
    "refuse_private",
    "system_resolve",
    "web_target",
]

Resolve = Callable[[str], Awaitable[list[str]]]
Dial = Callable[[tuple[Any, ...]], socket.socket]
DEFAULT_PORTS = {"http": 80, "https": 443}
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")  # as Host headers have them
MAX_URL = 8192
MOST_ANSWERS = 64

# Names that no public server has: resolving them would only reveal our network to the DNS.
OUR_NAMES = re.compile(r"(.*\.)?(localhost|local|internal|intranet|lan|home|corp|home\.arpa|onion|test|invalid)")

# Checked in addition to `is_global`, which accepts some of these in some versions of Python.
REFUSED = [
    ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # the metadata service of one cloud, although it looks public
        "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",  # some of these embed an IPv4 address (6to4, Teredo)
    )
]  # fmt: skip
GLOBAL_V6 = IPv6Network("2000::/3")
NAT64 = IPv6Network("64:ff9b::/96")  # NAT64: in a network without IPv4, the address of every site that has IPv4 only

_REFUSED = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_INVISIBLE = re.compile("[\u00ad\u034f\u180b-\u180d\u200b\u2060\u2064\ufe00-\ufe0f\ufeff]")
_JOINERS = "\u200c\u200d"
_OWN_LETTERS = frozenset("ßς" + _JOINERS)  # Python's idna codec makes ss and σ of them: another domain today
_KEPT = "/?:@!$&'()*+,;=%-._~[]"  # in a path and query; everything else is percent-encoded


class AddressRefused(Permanent):
    """A URL or an address that is never called."""


@dataclass(frozen=True, slots=True)
class WebTarget:
    """The parts of a URL that is called."""

    scheme: str
    host: str  # as in the URL: a name, an IPv4 address, or an IPv6 address in brackets
    port: int
    path: str  # with its query

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        return self.host if self.port == DEFAULT_PORTS[self.scheme] else f"{self.host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme and authority: what a robots.txt applies to."""
        return f"{self.scheme}://{self.authority}"

    def at(self, address: str) -> str:
        """The URL with a checked address in place of the name, for a client that must not resolve the name again."""
        place = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{place}:{self.port}{self.path}"


def parse_url(url: str) -> WebTarget:
    """The parts of an http(s) URL as browsers read it: the host in lower case and ASCII, the fragment left out. Raises
    `InvalidArguments` with the reason for a URL that two programs might read differently."""
    if not isinstance(url, str):
        raise InvalidArguments(f"a URL must be text, not {type(url).__name__}")
    try:
        if len(url) > MAX_URL:
            raise ValueError(f"has more than {MAX_URL} characters; use a shorter one")
        return _parsed(url.strip(" "))
    except ValueError as error:
        _, at, rest = url.rpartition("@")  # everything before an @ may be a password
        raise InvalidArguments(f"the URL {('***@' if at else '') + rest[:100]!r} {error}") from None


def web_target(url: str, ports: Collection[int] = (80, 443), *, said: str = "the link is") -> WebTarget:
    """The target of a URL; `AddressRefused` unless it is plain http(s) on one of these ports. The message of the
    refusal begins with `said` and does not contain the URL, which may have a secret in it."""
    try:
        target = parse_url(url.strip().replace(" ", "%20"))
    except InvalidArguments:
        target = None
    if target is None or len(target.url) > MAX_URL:
        raise AddressRefused(f"{said} not a plain http or https URL of a public page", code="URL_REFUSED")
    if target.port not in ports:
        raise AddressRefused(f"port {target.port} of {target.host} is not one of the web", code="PORT_REFUSED")
    return target


async def public_address(target: WebTarget, resolve: Resolve) -> str:
    """The address to connect to. The name is resolved once; if any of its addresses is not public, none is used."""
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
    """Raise `AddressRefused` for a target that is private without asking the DNS: an address that is not public, or a
    name that no public server has."""
    if literal := _literal(target.host):
        _check(target.host, literal)
    elif "." not in target.host or OUR_NAMES.fullmatch(target.host):
        raise AddressRefused(f"{target.host} is not the name of a public server", code="ADDRESS_REFUSED")


def is_public_address(address: str) -> bool:
    """Whether an IP address is global unicast; for an IPv4 address inside an IPv6 one, whether that is."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv6Address):
        if found.scope_id is not None:
            return False
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif found in NAT64:
            found = IPv4Address(int(found) & 0xFFFFFFFF)
        elif found not in GLOBAL_V6:
            return False
    return found.is_global and not found.is_multicast and not any(found in network for network in REFUSED)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def without_port(host: str) -> str:
    """The host of a Host header; an IPv6 address keeps its brackets."""
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def public_socket(info: tuple[Any, ...]) -> socket.socket:
    """A socket for a public address; `AddressRefused` for any other. Give it to aiohttp as `socket_factory`: it then
    sees the address that is really connected to, whichever way the client found it."""
    family, kind, protocol, _, (address, *_) = info
    if not is_public_address(address):
        raise AddressRefused(f"{address} is not a public address", code="ADDRESS_REFUSED")
    return socket.socket(family, kind, protocol)


async def system_resolve(host: str) -> list[str]:
    """The addresses of a name, from the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def _check(host: str, address: str) -> None:
    if not is_public_address(address):
        where = address if address in host else f"{host} is at {address}, which"
        raise AddressRefused(f"{where} is not a public address", code="ADDRESS_REFUSED")


def _literal(host: str) -> str | None:
    if host.startswith("["):
        return host[1:-1]
    return host if re.fullmatch(r"[0-9.]+", host) else None


def _parsed(url: str) -> WebTarget:
    if found := _REFUSED.search(url):
        raise ValueError(f"has {found[0]!r} at position {found.start()}; percent-encode it or take it out")
    scheme, slashes, rest = url.partition("://")
    scheme = scheme.lower()
    if not slashes or scheme not in DEFAULT_PORTS:
        raise ValueError("must begin with http:// or https://")
    page, mark, query = rest.partition("#")[0].partition("?")
    if "\\" in page:
        raise ValueError("has a backslash, which some programs take for a slash; write / or %5C")
    host, _, path = page.partition("/")
    if "@" in host:
        raise ValueError("has a user name or password; take it out and hand it to the HTTP client by itself")
    port = ""
    if ":" in host.rpartition("]")[2]:
        host, _, port = host.rpartition(":")
    host = _host(host)
    return WebTarget(scheme, host, _port(port, scheme), quote(f"/{path}{mark}{query}", safe=_KEPT))


def _host(host: str) -> str:
    if host.startswith("["):
        return _ipv6(host)
    # As browsers map names (UTS 46). NFKC twice, because it makes capitals too, as of ℡.
    name = unicodedata.normalize("NFKC", _INVISIBLE.sub("", unquote(host))).replace("。", ".").replace("ẞ", "ß")
    name = unicodedata.normalize("NFKC", "".join(c if c in _OWN_LETTERS else c.casefold() for c in name))
    if bad := next((c for c in name if not _fits_host(c)), ""):
        raise ValueError(f"has {bad!r} in its host; only letters, digits, - and _ are allowed")
    labels = name.removesuffix(".").split(".")  # with and without the last dot it is the same name in the DNS
    if not all(labels):
        raise ValueError("has no host, or an empty part in it; write it as in https://example.com/page")
    # Cut at 64 characters: punycode is slow for long labels, and a label of 64 is refused below.
    name = ".".join(label if label.isascii() else f"xn--{label[:64].encode('punycode').decode()}" for label in labels)
    if len(name) > 253 or max(map(len, name.split("."))) > 63:
        raise ValueError("has a host that is too long for a name; at most 253 characters, 63 between two dots")
    if re.fullmatch("[0-9]+|0x[0-9a-f]*", labels[-1]):
        _ipv4(name)
    return name


def _fits_host(char: str) -> bool:
    if char.isascii():
        return char.isalnum() or char in "-_."
    # Unassigned characters are refused: a later version of Unicode may map them, and the key would change.
    return char in _JOINERS or (unicodedata.category(char)[0] not in "CZ" and char != "\ufffd")


def _ipv4(host: str) -> None:
    """Refuse 127.1 and 0x7f.1, which some programs take for an address and others for a name."""
    try:
        IPv4Address(host)
    except ValueError:
        raise ValueError("has a host that ends in a number but is not four numbers from 0 to 255") from None


def _ipv6(host: str) -> str:
    try:
        words = IPv6Address(host[1:-1] if host.endswith("]") and "%" not in host else "").packed.hex(":", 2)
    except ValueError:
        raise ValueError("has a [ in its host but no IPv6 address without zone in brackets") from None
    # Not by str(): Python 3.13 began to write some addresses in another way.
    text = ":".join(f"{int(word, 16):x}" for word in words.split(":"))
    zeros = max(re.finditer(r"\b0(:0\b)+", text), key=lambda run: len(run[0]), default=None)
    if zeros:
        text = f"{text[: zeros.start()].rstrip(':')}::{text[zeros.end() :].lstrip(':')}"
    return f"[{text}]"


def _port(port: str, scheme: str) -> int:
    number = port.lstrip("0")
    if port and not (re.fullmatch("[0-9]{1,5}", number) and int(number) <= 65_535):
        raise ValueError("has a port that is not a number from 1 to 65535; correct it or leave it out")
    return int(number) if number else DEFAULT_PORTS[scheme]
