"""Names and addresses of hosts, as the Host header and settings have them."""

from __future__ import annotations

import ipaddress

LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def without_port(host: str) -> str:
    """The host of a Host header; an IPv6 address keeps its brackets."""
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
