"""No more holders than slots, even if the server dies, is flushed or comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import valkey

from prismline_coordination import CoordinationServer, Lease, Leases
from prismline_ledger.testing import Clock
from prismline_localstack.testing import ValkeyServer
from prismline_runtime import UnavailableError


def flush(server: ValkeyServer) -> None:
    valkey.Valkey.from_url(server.url).flushall()


def expire(server: ValkeyServer, lease: Lease) -> None:
    """Let the server free the slot now, as it does when the lease of a dead holder expires."""
    client = valkey.Valkey.from_url(server.url, decode_responses=True)
    (slot,) = [name for name in client.scan_iter("*") if client.get(name) == str(lease.token) and "fence" not in name]
    assert 0 < client.pttl(slot) <= 30_000
    client.pexpireat(slot, 1)


@pytest.fixture
def server(valkey_server: ValkeyServer) -> CoordinationServer:
    return CoordinationServer.at(valkey_server.url)


@pytest.fixture
def leases(server: CoordinationServer) -> Leases:
    return Leases(server)


def test_no_more_leases_than_slots(leases: Leases) -> None:
    assert [lease.slot for lease in leases.take("run:r", 3, wanted=2)] == [0, 1]
    assert len(leases.take("run:r", 3, wanted=2)) == 1
    assert leases.take("run:r", 3) == []
    assert len(leases.take("run:other", 3, wanted=9)) == 3


def test_many_callers_at_once_never_get_more_leases_than_slots(valkey_server: ValkeyServer) -> None:
    def take(_: int) -> list[Lease]:
        return Leases(CoordinationServer.at(valkey_server.url)).take("host:h", 5)

    with ThreadPoolExecutor(8) as pool:
        taken = [lease for got in pool.map(take, range(40)) for lease in got]
    assert sorted(lease.slot for lease in taken) == [0, 1, 2, 3, 4]
    assert len({lease.token for lease in taken}) == 5


def test_a_released_slot_is_free_and_its_next_token_is_larger(leases: Leases) -> None:
    (first,) = leases.take("run:r", 1)
    leases.release([first])
    (second,) = leases.take("run:r", 1)
    assert second.slot == first.slot
    assert second.token > first.token


def test_the_slot_of_a_dead_holder_is_free_after_its_time(leases: Leases, valkey_server: ValkeyServer) -> None:
    (dead,) = leases.take("run:r", 1)
    expire(valkey_server, dead)
    (heir,) = leases.take("run:r", 1)
    assert heir.token > dead.token
    assert leases.renew([dead]) == []
    leases.release([dead])
    assert leases.take("run:r", 1) == [], "an old holder must not free the slot of the next one"


def test_renewing_keeps_a_slot(leases: Leases, valkey_server: ValkeyServer) -> None:
    (lease,) = leases.take("run:r", 1)
    client = valkey.Valkey.from_url(valkey_server.url)
    (slot,) = [name for name in client.scan_iter("*") if b"fence" not in name]
    client.pexpire(slot, 1_000)
    (kept,) = leases.renew([lease])
    assert kept.token == lease.token
    assert client.pttl(slot) > 20_000


def test_after_a_flush_a_holder_renews_its_slot(leases: Leases, valkey_server: ValkeyServer) -> None:
    held = leases.take("run:r", 2, wanted=2)
    flush(valkey_server)
    assert [lease.token for lease in leases.renew(held)] == [lease.token for lease in held]
    assert leases.take("run:r", 2) == []


def test_a_slot_that_another_took_after_a_flush_is_lost(leases: Leases, valkey_server: ValkeyServer) -> None:
    first, second = leases.take("run:r", 2, wanted=2)
    flush(valkey_server)
    (thief,) = leases.take("run:r", 2)
    assert thief.slot == first.slot
    assert [lease.slot for lease in leases.renew([first, second])] == [second.slot]


def test_tokens_grow_over_a_flush_and_a_restart(leases: Leases, valkey_server: ValkeyServer) -> None:
    tokens = [lease.token for lease in leases.take("run:r", 100, wanted=100)]
    flush(valkey_server)
    tokens += [lease.token for lease in leases.take("run:r", 1)]
    valkey_server.kill()
    valkey_server.start()
    tokens += [lease.token for lease in leases.take("run:r", 1)]
    assert tokens == sorted(set(tokens))


def test_without_a_server_there_is_no_lease_and_with_it_there_is_again(
    leases: Leases, valkey_server: ValkeyServer
) -> None:
    held = leases.take("run:r", 1)
    valkey_server.kill()
    for call in (lambda: leases.take("run:r", 1), lambda: leases.renew(held), lambda: leases.release(held)):
        with pytest.raises(UnavailableError, match="Valkey does not answer"):
            call()
    valkey_server.start()
    assert leases.take("run:r", 1)


def test_a_missing_server_setting_is_reported() -> None:
    with pytest.raises(UnavailableError, match="PRISMLINE_VALKEY_URL is not set"):
        Leases(CoordinationServer.at(None)).take("run:r", 1)


def test_a_holder_counts_its_lease_as_lost_before_the_server_frees_it(server: CoordinationServer) -> None:
    clock = Clock()
    leases = Leases(server, clock=clock.monotonic)
    (lease,) = leases.take("run:r", 1)
    clock.advance(27)
    assert leases.valid(lease)
    clock.advance(2)
    assert not leases.valid(lease)


def test_a_very_large_limit_holds_too(leases: Leases) -> None:
    taken = [lease for _ in range(30) for lease in leases.take("run:r", 1500, wanted=100)]
    assert len(taken) <= 1500
    assert len({lease.slot for lease in taken}) == len(taken)
    assert {lease.token for lease in leases.renew(taken)} == {lease.token for lease in taken}


@pytest.mark.parametrize(("limit", "wanted"), [(0, 1), (1, 0)])
def test_a_resource_without_slots_is_refused(leases: Leases, limit: int, wanted: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        leases.take("run:r", limit, wanted)
