"""A URL of a user cannot reach addresses that only the services can reach."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ipaddress import ip_address

import httpcore
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_web import RefusedAddressError, guarded_async_client, guarded_client, refusal
from prismline_web.clients import resolve_async

#: Any public address. The tests never connect to it.
PUBLIC = "93.184.215.14"
PUBLIC_6 = "2606:2800:220:1:248:1893:25c8:1946"

REFUSED = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "unspecified": ["0.0.0.0", "::"],
    "this network": ["0.1.2.3"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd00::1", "fc00::1", "fec0::1"],
    "shared": ["100.64.0.1", "100.127.255.255", "100.100.100.200"],
    "link-local": ["169.254.0.1", "fe80::1", "fe80::1%eth0"],
    "metadata": ["169.254.169.254", "169.254.170.2", "fd00:ec2::254", "168.63.129.16", "192.0.0.192"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1"],
    "documentation": ["2001:db8::1", "3fff::1"],
    "mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::ffff:0:0"],
    "translated": ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1"],
    "6to4 and teredo": ["2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"],
    "compatible": ["::127.0.0.1", "::a00:1"],
}
ALLOWED = [
    PUBLIC,
    PUBLIC_6,
    "1.1.1.1",
    "172.32.0.1",
    "100.128.0.1",
    "::ffff:1.1.1.1",
    "64:ff9b::101:101",
    "2002:101:101::",
]

#: Other notations of forbidden addresses as hosts of URLs. The system's resolver understands all of them.
DISGUISES = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "0x7F.1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.169.254",
    "[fd00:ec2::254]",
    "\uff11\uff12\uff17.0.0.1",
]


@pytest.mark.parametrize("address", [address for group in REFUSED.values() for address in group])
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert refusal(address) is not None


@pytest.mark.parametrize("address", ALLOWED)
def test_a_public_address_is_allowed(address: str) -> None:
    assert refusal(address) is None


@given(st.ip_addresses(v=4))
def test_an_ipv6_form_is_judged_by_the_ipv4_address_in_it(address: object) -> None:
    value = int(ip_address(str(address)))
    for form in (f"::ffff:{address}", f"64:ff9b::{value >> 16:x}:{value & 0xFFFF:x}"):
        assert (refusal(form) is None) == (refusal(str(address)) is None)


class Network(httpcore.AsyncMockBackend):
    """Records the addresses that it shall connect to, and answers every request with the same response."""

    def __init__(self, answer: bytes = b"HTTP/1.1 204 No Content\r\n\r\n") -> None:
        super().__init__([answer])
        self.connected: list[str] = []
        self.dead: set[str] = set()

    async def connect_tcp(self, host: str, *arguments: object, **options: object) -> httpcore.AsyncNetworkStream:
        self.connected.append(host)
        if host in self.dead:
            raise httpcore.ConnectError("refused")
        return await super().connect_tcp(host, *arguments, **options)  # type: ignore[arg-type]


def answers(*rounds: list[str]) -> Callable[..., object]:
    """A resolver that gives one answer after the other, and then always the last one."""
    left = list(rounds)

    async def resolve(host: str, port: int) -> list[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


def get(url: str, network: Network, resolve: Callable[..., object] | None = None, **options: object) -> int:
    async def run() -> int:
        arguments = {"resolve": resolve} if resolve else {}
        async with guarded_async_client(network=network, **arguments) as client:  # type: ignore[arg-type]
            return (await client.get(url, **options)).status_code  # type: ignore[arg-type]

    return asyncio.run(run())


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", DISGUISES)
def test_no_form_of_a_forbidden_host_is_connected_to(host: str, scheme: str) -> None:
    network = Network()
    with pytest.raises((RefusedAddressError, httpx.InvalidURL, httpx.ConnectError)):
        get(f"{scheme}://{host}/latest/meta-data", network)
    assert network.connected == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f.1", "017700000001", "[::ffff:127.0.0.1]", "localhost"]
)
def test_the_refusal_says_which_address_and_why(host: str) -> None:
    with pytest.raises(RefusedAddressError, match=r"may not be reached: .*is a loopback address"):
        get(f"http://{host}/", Network())


def test_the_synchronous_client_refuses_too() -> None:
    with guarded_client() as client, pytest.raises(RefusedAddressError, match="loopback"):
        client.get("http://127.0.0.1:1/")


def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    network = Network()
    assert get("http://site.example/", network, answers([PUBLIC])) == 204
    assert network.connected == [PUBLIC]


def test_a_name_that_changes_its_address_is_connected_to_at_the_checked_one() -> None:
    network = Network()
    assert get("http://rebind.example/", network, answers([PUBLIC], ["127.0.0.1"])) == 204
    assert network.connected == [PUBLIC], "the second answer was never used"


def test_a_name_that_has_changed_its_address_is_checked_again_at_the_next_connection() -> None:
    network = Network(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
    resolve = answers([PUBLIC], ["169.254.169.254"])

    async def run() -> None:
        async with guarded_async_client(network=network, resolve=resolve) as client:  # type: ignore[arg-type]
            await client.get("http://rebind.example/")
            with pytest.raises(RefusedAddressError, match="link-local"):
                await client.get("http://rebind.example/")

    asyncio.run(run())
    assert network.connected == [PUBLIC]


@pytest.mark.parametrize("target", ["http://127.0.0.1/", "http://169.254.169.254/latest", "http://[::1]/", "//0x7f.1/"])
def test_a_redirect_is_checked_like_the_first_request(target: str) -> None:
    network = Network(f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode())

    async def resolve(host: str, port: int) -> list[str]:
        return [PUBLIC] if host == "site.example" else await resolve_async(host, port)

    with pytest.raises(RefusedAddressError):
        get("http://site.example/", network, resolve, follow_redirects=True)
    assert network.connected == [PUBLIC]


def test_the_public_ones_of_several_addresses_are_tried_in_turn() -> None:
    network = Network()
    network.dead = {PUBLIC_6}
    assert get("http://site.example/", network, answers(["10.0.0.1", PUBLIC_6, PUBLIC])) == 204
    assert network.connected == [PUBLIC_6, PUBLIC]


def test_a_name_that_does_not_resolve_is_a_connection_error() -> None:
    with pytest.raises(httpx.ConnectError, match="does not resolve"):
        get("http://no-such-host.invalid/", Network())


def test_allow_private_switches_the_check_off() -> None:
    network = Network()

    async def run() -> int:
        async with guarded_async_client(network=network, allow_private=True) as client:
            return (await client.get("http://127.0.0.1:9/")).status_code

    assert asyncio.run(run()) == 204
    assert network.connected == ["127.0.0.1"]


def test_clients_keep_no_cookies(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(b"HTTP/1.1 200 OK\r\nSet-Cookie: who=tenant-a\r\nContent-Length: 0\r\n\r\n")

    async def run() -> int:
        async with guarded_async_client(network=network, resolve=answers([PUBLIC])) as client:  # type: ignore[arg-type]
            await client.get("http://site.example/")
            return len(client.cookies)

    assert asyncio.run(run()) == 0


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    network = Network()
    assert get("http://site.example/", network, answers([PUBLIC])) == 204
    assert network.connected == [PUBLIC]
