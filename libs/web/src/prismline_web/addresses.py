"""Which addresses a request on behalf of a user may reach. Pure: no resolver, no socket."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from prismline_runtime import PermanentError

#: Addresses that look public, but belong to services of the cloud's host: Azure's.
HOST_SERVICES = frozenset({IPv4Address("168.63.129.16")})
#: IPv6 networks whose last 32 bits are an IPv4 address that a translator connects to (RFC 6052).
TRANSLATED = IPv6Network("64:ff9b::/96")
#: IPv6 networks that carry IPv4 traffic in ways that a public site does not need: local translation (RFC 8215), and
#: IPv4-compatible addresses (RFC 4291, deprecated).
TUNNELS = (IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))
#: Networks of IANA's special-purpose registries that not every release of Python knows as such.
SPECIAL = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "100::/64", "3fff::/20", "5f00::/16")))


class RefusedAddressError(PermanentError):
    """The host of a URL has no address that may be reached."""


def refusal(address: str) -> str | None:
    """Why `address`, an IP address as text, must not be reached. None if it may.

    An IPv6 address that contains an IPv4 address is judged by that one.
    """
    ip = ip_address(address)
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in TRANSLATED:
            inner = IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return refusal(str(inner))
    return _reason(ip)


def _reason(ip: IPv4Address | IPv6Address) -> str | None:
    kinds = {
        "an unspecified address": ip.is_unspecified,
        "a loopback address": ip.is_loopback,
        "a link-local address, where clouds have their metadata": ip.is_link_local,
        "a multicast address": ip.is_multicast,
        "a service of the cloud's host": ip in HOST_SERVICES,
        "a tunnel to another address": isinstance(ip, IPv6Address)
        and (ip.teredo is not None or any(ip in network for network in TUNNELS)),
        "a private address": ip.is_private or (isinstance(ip, IPv6Address) and ip.is_site_local),
        "a reserved address": not ip.is_global
        or ip.is_reserved
        or any(ip in network for network in SPECIAL if network.version == ip.version),
    }
    return next((kind for kind, holds in kinds.items() if holds), None)


def allowed(host: str, addresses: Iterable[str]) -> list[str]:
    """The addresses of `host` that may be reached, in order. Raises RefusedAddressError if there is none."""
    reasons = {address: refusal(address) for address in addresses}
    found = [address for address, reason in reasons.items() if reason is None]
    if not found:
        why = ", ".join(f"{address} is {reason}" for address, reason in reasons.items()) or "it has no address"
        raise RefusedAddressError(f"{host} may not be reached: {why}.")
    return found
