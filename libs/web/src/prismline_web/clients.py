"""HTTP clients that check an address after it was resolved, and connect to exactly that address.

The check is in the layer that opens connections. So it holds for every redirect and every form of a host, and a name
that later resolves to another address cannot bypass it. TLS verifies the certificate against the host of the URL.

Clients keep no cookies, because one client serves all users, and read no proxies from the environment.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpcore
import httpx

from prismline_web.addresses import allowed

#: Resolves a host and a port to IP addresses, as text.
Resolve = Callable[[str, int], list[str]]
AsyncResolve = Callable[[str, int], Awaitable[list[str]]]
SocketOptions = Iterable[Any] | None


def resolve(host: str, port: int) -> list[str]:
    """The addresses of `host` by the system's resolver. Raises httpcore.ConnectError if it does not resolve."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host} does not resolve: {error}") from error
    return _addresses(found)


async def resolve_async(host: str, port: int) -> list[str]:
    """The same without blocking the event loop."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host} does not resolve: {error}") from error
    return _addresses(found)


def _addresses(found: Iterable[tuple[Any, ...]]) -> list[str]:
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class GuardedNetwork(httpcore.NetworkBackend):
    """Opens connections to public addresses only."""

    def __init__(self, inner: httpcore.NetworkBackend, resolve: Resolve) -> None:
        self._inner = inner
        self._resolve = resolve

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first allowed address that accepts. Raises RefusedAddressError if none is allowed."""
        failure: httpcore.ConnectError | httpcore.ConnectTimeout | None = None
        for address in allowed(host, self._resolve(host, port)):
            try:
                return self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        assert failure is not None, "`allowed` returns at least one address"
        raise failure


class AsyncGuardedNetwork(httpcore.AsyncNetworkBackend):
    """The same for asynchronous clients."""

    def __init__(self, inner: httpcore.AsyncNetworkBackend, resolve: AsyncResolve) -> None:
        self._inner = inner
        self._resolve = resolve

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions = None,
    ) -> httpcore.AsyncNetworkStream:
        """As `GuardedNetwork.connect_tcp`."""
        failure: httpcore.ConnectError | httpcore.ConnectTimeout | None = None
        for address in allowed(host, await self._resolve(host, port)):
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        assert failure is not None, "`allowed` returns at least one address"
        raise failure

    async def sleep(self, seconds: float) -> None:
        """Wait between two attempts to connect."""
        await self._inner.sleep(seconds)


class _GuardedTransport(httpx.HTTPTransport):
    def __init__(self, network: httpcore.NetworkBackend, limits: httpx.Limits) -> None:
        super().__init__(verify=False)  # its pool is replaced by one that verifies
        self._pool = httpcore.ConnectionPool(**_pool_arguments(limits), network_backend=network)


class _AsyncGuardedTransport(httpx.AsyncHTTPTransport):
    def __init__(self, network: httpcore.AsyncNetworkBackend, limits: httpx.Limits) -> None:
        super().__init__(verify=False)  # its pool is replaced by one that verifies
        self._pool = httpcore.AsyncConnectionPool(**_pool_arguments(limits), network_backend=network)


def _pool_arguments(limits: httpx.Limits) -> dict[str, Any]:
    return {
        "ssl_context": httpx.create_ssl_context(trust_env=False),
        "max_connections": limits.max_connections,
        "max_keepalive_connections": limits.max_keepalive_connections,
        "keepalive_expiry": limits.keepalive_expiry,
    }


#: Default limits of a client's connections.
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=5.0)


def guarded_client(
    *,
    allow_private: bool = False,
    limits: httpx.Limits = LIMITS,
    headers: Mapping[str, str] | None = None,
    resolve: Resolve = resolve,
    network: httpcore.NetworkBackend | None = None,
) -> httpx.Client:
    """A client for URLs that users submit. It follows no redirects unless a request says so.

    allow_private: allow every address, for tests and for sites on the deployment's own network.
    resolve, network: other resolvers and sockets, for tests.

    A request raises RefusedAddressError if its host, or that of a redirect, has no address that may be reached.
    """
    inner = network or httpcore.SyncBackend()
    transport = _GuardedTransport(inner if allow_private else GuardedNetwork(inner, resolve), limits)
    return httpx.Client(transport=transport, headers=headers, trust_env=False, cookies=_no_cookies())


def guarded_async_client(
    *,
    allow_private: bool = False,
    gateway: str | None = None,
    limits: httpx.Limits = LIMITS,
    headers: Mapping[str, str] | None = None,
    resolve: AsyncResolve = resolve_async,
    network: httpcore.AsyncNetworkBackend | None = None,
) -> httpx.AsyncClient:
    """The same, asynchronous.

    gateway: URL of an HTTP proxy that makes all requests. It resolves hosts, so it decides which addresses are allowed.
    """
    transport: httpx.AsyncBaseTransport
    if gateway is not None:
        transport = httpx.AsyncHTTPTransport(proxy=gateway, limits=limits, trust_env=False)
    else:
        inner = network or httpcore.AnyIOBackend()
        transport = _AsyncGuardedTransport(inner if allow_private else AsyncGuardedNetwork(inner, resolve), limits)
    return httpx.AsyncClient(transport=transport, headers=headers, trust_env=False, cookies=_no_cookies())


def _no_cookies() -> CookieJar:
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))
