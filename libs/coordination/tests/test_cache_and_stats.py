"""Cached texts and counts may be lost, and callers get no error."""

from __future__ import annotations

import pytest
import valkey

from prismline_coordination import Cache, CoordinationServer, Stats
from prismline_localstack.testing import ValkeyServer


def test_a_read_is_cached_until_it_expires_or_is_forgotten(valkey_server: ValkeyServer) -> None:
    cache, loads = Cache(CoordinationServer.at(valkey_server.url)), []

    def load() -> str:
        loads.append(1)
        return f"version {len(loads)}"

    assert [cache.read_through("job", load, seconds=60) for _ in range(2)] == ["version 1", "version 1"]
    (name,) = valkey.Valkey.from_url(valkey_server.url).keys()
    assert 50_000 < valkey.Valkey.from_url(valkey_server.url).pttl(name) <= 60_000
    cache.forget("job")
    assert cache.read_through("job", load, seconds=60) == "version 2"


def test_without_a_server_the_source_answers(valkey_server: ValkeyServer) -> None:
    cache = Cache(CoordinationServer.at(valkey_server.url))
    cache.put("job", "old", seconds=60)
    valkey_server.kill()
    assert cache.read_through("job", lambda: "source", seconds=60) == "source"
    cache.forget("job")
    valkey_server.start()
    assert cache.get("job") is None


def test_an_error_of_the_source_is_raised(valkey_server: ValkeyServer) -> None:
    def fail() -> str:
        raise LookupError("no job")

    with pytest.raises(LookupError):
        Cache(CoordinationServer.at(valkey_server.url)).read_through("job", fail, seconds=60)


def test_counts_add_up_and_are_lost_with_the_server(valkey_server: ValkeyServer) -> None:
    stats = Stats(CoordinationServer.at(valkey_server.url))
    assert stats.add("run", {"fetched": 2, "bytes": 10})
    assert stats.add("run", {"fetched": 1})
    assert stats.read("run") == {"fetched": 3, "bytes": 10}
    valkey_server.kill()
    assert not stats.add("run", {"fetched": 1})
    assert stats.read("run") == {}
    valkey_server.start()
    assert stats.add("run", {"fetched": 1})
    assert stats.read("run") == {"fetched": 1}
