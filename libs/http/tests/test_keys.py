"""Keys that do not exist: they are looked up at a limited rate, and other callers are not delayed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from prismline_contracts.jobs import ApiKeyItem, new_api_key
from prismline_coordination import CoordinationServer, RateLimit
from prismline_http.auth import UNKNOWN_BURST, UNKNOWN_SECONDS, Keys
from prismline_http.problems import ProblemError
from prismline_localstack.testing import ValkeyServer

NOW = "2026-03-01T12:00:00.000Z"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class PaperStore:
    """The table of keys in memory. It counts its reads."""

    items: dict[str, ApiKeyItem] = field(default_factory=dict)
    reads: int = 0

    def api_key(self, digest: str) -> ApiKeyItem | None:
        self.reads += 1
        return self.items.get(f"APIKEY#{digest}")

    def note_tenant(self, tenant: str) -> None:
        """The tenants have no part in these tests."""

    def create(self, key: str | None = None) -> str:
        key, item = new_api_key("acme", "test", ("read",), NOW, key=key)
        self.items[item.PK] = item
        return key


@dataclass
class World:
    store: PaperStore = field(default_factory=PaperStore)
    clock: Clock = field(default_factory=Clock)

    def keys(self, valkey: str | None = None) -> Keys:
        """The keys as one instance of the service knows them."""
        limit = RateLimit(CoordinationServer.at(valkey), clock=self.clock)
        return Keys(self.store, 10.0, limit, clock=self.clock)  # type: ignore[arg-type]

    @staticmethod
    def statuses(keys: Keys, number: int, address: str = "192.0.2.1") -> list[int]:
        """The answers to so many random keys from one address."""
        found = []
        for n in range(number):
            with pytest.raises(ProblemError) as refused:
                keys.caller(f"prismline_random{address}{n}", address)
            found.append(refused.value.status_code)
        return found


def test_a_flood_of_random_keys_does_not_reach_the_table() -> None:
    world = World()
    statuses = world.statuses(world.keys(), 1000)
    assert statuses[:UNKNOWN_BURST] == [401] * UNKNOWN_BURST
    assert set(statuses[UNKNOWN_BURST + 1 :]) == {429}
    assert world.store.reads <= UNKNOWN_BURST + 1


def test_a_flood_over_the_addresses_of_one_ipv6_network_is_one_flood() -> None:
    world = World()
    keys = world.keys()
    statuses = [world.statuses(keys, 1, f"2001:db8::{number:x}")[0] for number in range(200)]
    assert statuses[-1] == 429
    assert world.store.reads <= UNKNOWN_BURST + 1


def test_callers_from_other_addresses_and_known_callers_are_not_affected_by_a_flood() -> None:
    world = World()
    keys = world.keys()
    known, other = world.store.create(), world.store.create()
    assert keys.caller(known, "192.0.2.1").tenant == "acme"
    assert world.statuses(keys, 100)[-1] == 429
    assert keys.caller(other, "192.0.2.2").tenant == "acme"
    world.clock.now += 11  # longer than a valid key is remembered
    assert world.statuses(keys, 200)[-1] == 429
    assert keys.caller(known, "192.0.2.1").tenant == "acme"


def test_after_a_flood_an_address_is_served_again_at_the_time_in_the_answer() -> None:
    world = World()
    keys = world.keys()
    world.statuses(keys, 100)
    new = world.store.create()
    with pytest.raises(ProblemError) as refused:
        keys.caller(new, "192.0.2.1")
    assert refused.value.headers is not None
    world.clock.now += int(refused.value.headers["Retry-After"])
    assert keys.caller(new, "192.0.2.1").tenant == "acme"


def test_an_unknown_key_is_looked_up_once_and_works_soon_after_it_was_created() -> None:
    world = World()
    keys, key = world.keys(), "prismline_soon"
    for _ in range(50):
        with pytest.raises(ProblemError):
            keys.caller(key, "192.0.2.1")
    assert world.store.reads == 1
    world.store.create(key)
    world.clock.now += UNKNOWN_SECONDS
    assert keys.caller(key, "192.0.2.1").tenant == "acme"
    assert UNKNOWN_SECONDS <= 5


def test_instances_share_the_limit_of_an_address(valkey_server: ValkeyServer) -> None:
    world = World()
    for _ in range(5):
        world.statuses(world.keys(valkey_server.url), UNKNOWN_BURST)
    assert world.store.reads <= UNKNOWN_BURST + 5
