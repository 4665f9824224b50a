"""The stand-in for Valkey answers like Valkey."""

from __future__ import annotations

from prismline_coordination import CoordinationServer, Leases
from prismline_localstack.testing import ValkeyServer
from tests.simulation.choices import Choices
from tests.simulation.plan import Plan
from tests.simulation.slots import StandInValkey
from tests.simulation.trace import Trace
from tests.simulation.world import World


def test_the_stand_in_gives_renews_and_frees_slots_like_valkey(valkey_server: ValkeyServer) -> None:
    stand_in = StandInValkey(World(Plan(), Choices(record={}), Trace())).leases()
    assert _answers(stand_in) == _answers(Leases(CoordinationServer.at(valkey_server.url)))


def _answers(leases: Leases) -> list[object]:
    first = leases.take("run:r", 3)
    others = leases.take("run:r", 3, wanted=5)
    none = leases.take("run:r", 3)
    elsewhere = leases.take("host:h", 1)
    kept = leases.renew([*first, *elsewhere])
    leases.release(first)
    again = leases.take("run:r", 3)
    lost = leases.renew(first)
    leases.release(first)  # the slot has another holder
    held = [first, others, none, elsewhere, kept, again, lost, leases.take("run:r", 3)]
    tokens = [lease.token for lease in (*first, *others, *again)]
    return [[(lease.resource, lease.slot) for lease in each] for each in held] + [tokens == sorted(set(tokens))]
