"""Leases: at most `limit` holders of a resource at a time, over all processes.

A resource has `limit` slots. A lease is one slot, a key set with `SET NX PX`, whose value is the lease's fencing token.
It expires if its holder dies. A holder renews it well before that, and stops its work when it has lost the lease.

Fencing tokens of one resource only grow, even if the server is flushed, because they are not below its clock. So a
store that checks them can refuse the late write of an old holder.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from prismline_coordination.server import CoordinationServer, key

#: How long a lease lasts, in seconds, unless it is renewed. A dead holder's slot is free after that.
LEASE_SECONDS = 30.0
#: The holder counts a lease as lost this many seconds before the server frees the slot. This covers the time that an
#: answer takes, and the holder's time to stop.
SAFETY_SECONDS = 2.0
#: Most slots that one request looks at. In a resource with more slots, the search begins at a random one.
SLOTS_PER_REQUEST = 1000

# KEYS: the fence, then the slots. ARGV: milliseconds, number of leases wanted.
# Answer: position of a slot, token, position, token, ...
_TAKE = """
local time = redis.call('TIME')
local token = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), time[1] * 1000000 + time[2])
local taken, wanted = {}, tonumber(ARGV[2])
for slot = 2, #KEYS do
  if #taken >= 2 * wanted then break end
  local next = string.format('%.0f', token + 1)
  if redis.call('SET', KEYS[slot], next, 'NX', 'PX', ARGV[1]) then
    token = token + 1
    taken[#taken + 1] = slot - 1
    taken[#taken + 1] = next
  end
end
if #taken > 0 then redis.call('SET', KEYS[1], string.format('%.0f', token), 'PX', 86400000) end
return taken
"""

# KEYS: the slots. ARGV: milliseconds, then the tokens. A free slot is taken again, because the server was flushed.
# Answer: 1 for each slot that is held, else 0.
_RENEW = """
local held = {}
for slot = 1, #KEYS do
  local now = redis.call('GET', KEYS[slot])
  if not now or now == ARGV[slot + 1] then
    redis.call('SET', KEYS[slot], ARGV[slot + 1], 'PX', ARGV[1])
    held[slot] = 1
  else
    held[slot] = 0
  end
end
return held
"""

# KEYS: the slots. ARGV: the tokens.
_RELEASE = """
for slot = 1, #KEYS do
  if redis.call('GET', KEYS[slot]) == ARGV[slot] then redis.call('DEL', KEYS[slot]) end
end
return #KEYS
"""


@dataclass(frozen=True)
class Lease:
    """One slot of a resource, held until `until`."""

    resource: str
    slot: int
    #: Larger than the token of every earlier lease of this resource.
    token: int
    #: When the holder has to count it as lost, in seconds of the clock of `Leases`.
    until: float


class Leases:
    """Takes, renews and gives back leases.

    Every call raises UnavailableError if the server does not answer: without a lease there is no work. A call makes
    one request for each resource, however many leases there are.
    """

    def __init__(
        self, server: CoordinationServer, *, seconds: float = LEASE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = server
        self._clock = clock
        #: How long a lease lasts unless it is renewed.
        self.seconds = seconds

    def take(self, resource: str, limit: int, wanted: int = 1) -> list[Lease]:
        """Take up to `wanted` of the `limit` slots of `resource`: as many as are free, perhaps none.

        One call looks at no more than `SLOTS_PER_REQUEST` slots, so it may miss a free one.

        Raises ValueError if limit or wanted is below 1.
        """
        if limit < 1 or wanted < 1:
            raise ValueError(f"A resource has at least one slot, and a caller wants at least one: {limit}, {wanted}.")
        until = self._until()
        first = random.randrange(limit) if limit > SLOTS_PER_REQUEST else 0
        slots = [(first + n) % limit for n in range(min(limit, SLOTS_PER_REQUEST))]
        keys = [key("lease", resource, "fence"), *(_slot_key(resource, slot) for slot in slots)]
        with self._server.asked_to(f"take a lease of {resource}") as valkey:
            taken = valkey.eval(_TAKE, len(keys), *keys, self._milliseconds, min(wanted, limit))
        return [
            Lease(resource, slots[int(position) - 1], int(token), until)
            for position, token in zip(taken[::2], taken[1::2], strict=True)
        ]

    def renew(self, leases: Iterable[Lease]) -> list[Lease]:
        """Renew leases, and return those that are still held.

        A lease is lost if its slot now has another holder. A slot that is free, because the server was flushed or the
        lease expired, is taken again under the same token.
        """
        kept: list[Lease] = []
        for resource, held in _by_resource(leases).items():
            until = self._until()
            keys = [_slot_key(resource, lease.slot) for lease in held]
            with self._server.asked_to(f"renew a lease of {resource}") as valkey:
                answer = valkey.eval(
                    _RENEW, len(keys), *keys, self._milliseconds, *(str(lease.token) for lease in held)
                )
            kept += [replace(lease, until=until) for lease, ok in zip(held, answer, strict=True) if ok]
        return kept

    def release(self, leases: Iterable[Lease]) -> None:
        """Give back leases. A slot that now has another holder is left alone."""
        for resource, held in _by_resource(leases).items():
            keys = [_slot_key(resource, lease.slot) for lease in held]
            with self._server.asked_to(f"give back a lease of {resource}") as valkey:
                valkey.eval(_RELEASE, len(keys), *keys, *(str(lease.token) for lease in held))

    def valid(self, lease: Lease) -> bool:
        """Whether the holder may still act under the lease."""
        return self._clock() < lease.until

    def _until(self) -> float:
        """When a lease that is taken now counts as lost. Call it before the request, so that it is never too late."""
        return self._clock() + max(self.seconds - SAFETY_SECONDS, self.seconds / 2)

    @property
    def _milliseconds(self) -> int:
        return round(self.seconds * 1000)


def _slot_key(resource: str, slot: int) -> str:
    return key("lease", resource, str(slot))


def _by_resource(leases: Iterable[Lease]) -> dict[str, list[Lease]]:
    groups: dict[str, list[Lease]] = defaultdict(list)
    for lease in leases:
        groups[lease.resource].append(lease)
    return groups
