"""A token bucket that all processes share; without a server, one for each process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_coordination import CoordinationServer, RateLimit
from prismline_coordination.rate_limit import admit
from prismline_ledger.testing import Clock
from prismline_localstack.testing import ValkeyServer


def test_a_full_bucket_grants_its_burst_and_then_returns_how_long_to_wait(valkey_server: ValkeyServer) -> None:
    limit = RateLimit(CoordinationServer.at(valkey_server.url))
    granted = [limit.take("t", per_second=0.01, burst=3).granted for _ in range(4)]
    assert granted == [True, True, True, False]
    assert 90 < limit.take("t", per_second=0.01, burst=3).wait <= 100
    assert limit.take("other", per_second=0.01, burst=3).granted


def test_a_caller_that_is_ready_to_wait_gets_a_turn_of_its_own(valkey_server: ValkeyServer) -> None:
    limit = RateLimit(CoordinationServer.at(valkey_server.url))
    waits = [limit.take("h", per_second=0.1, burst=1, longest_wait=25).wait for _ in range(3)]
    assert waits == pytest.approx([0, 10, 20], abs=1)
    refused = limit.take("h", per_second=0.1, burst=1, longest_wait=25)
    assert not refused.granted
    assert refused.wait == pytest.approx(30, abs=1)


def test_processes_share_a_bucket(valkey_server: ValkeyServer) -> None:
    def take(_: int) -> bool:
        return RateLimit(CoordinationServer.at(valkey_server.url)).take("h", per_second=0.01, burst=7).granted

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(40))) == 7


def test_while_the_server_is_down_a_process_limits_itself(valkey_server: ValkeyServer) -> None:
    clock = Clock()
    limit = RateLimit(CoordinationServer.at(valkey_server.url), clock=clock.monotonic)
    valkey_server.kill()
    assert [limit.take("h", per_second=1, burst=2).granted for _ in range(3)] == [True, True, False]
    clock.advance(1)
    assert [limit.take("h", per_second=1, burst=2).granted for _ in range(2)] == [True, False]
    valkey_server.start()
    assert limit.take("h", per_second=1, burst=2).granted


@pytest.mark.parametrize("arguments", [{"per_second": 0, "burst": 1}, {"per_second": 1, "burst": 1, "wanted": 2}])
def test_a_bucket_that_can_never_grant_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="never grants"):
        RateLimit(CoordinationServer.at(None)).take("h", **arguments)


@given(rate=st.floats(0.1, 100), burst=st.integers(1, 20), gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60))
def test_no_window_grants_more_than_burst_and_rate_allow(rate: float, burst: int, gaps: list[float]) -> None:
    clock = Clock()
    limit, granted = RateLimit(CoordinationServer.at(None), clock=clock.monotonic), []
    for gap in gaps:
        clock.advance(gap)
        if limit.take("h", per_second=rate, burst=burst).granted:
            granted.append(clock.monotonic())
    for first, start in enumerate(granted):
        for n, moment in enumerate(granted[first:], 1):
            assert n <= burst + (moment - start) * rate + 1e-3 * rate + 1e-6


def test_the_script_decides_like_the_function(valkey_server: ValkeyServer) -> None:
    limit = RateLimit(CoordinationServer.at(valkey_server.url))
    for wanted, longest in [(2, 0.0), (3, 0.0), (1, 50.0), (5, 60.0), (4, 1000.0)]:
        taken = limit.take(f"{wanted}", per_second=0.1, burst=5, wanted=5)
        again = limit.take(f"{wanted}", per_second=0.1, burst=5, wanted=wanted, longest_wait=longest)
        expected = admit(0, 50, 10, 5, wanted, longest)
        assert taken.granted
        assert (again.granted, again.wait) == (expected.granted, pytest.approx(expected.wait, abs=1))
