"""Rate limits: a token bucket for each name, shared by all processes.

The bucket is kept as one number, the time at which it will be full again (the generic cell rate algorithm). One script
reads and changes it, so that two callers never take the same token.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from prismline_coordination.server import CoordinationServer, key
from prismline_runtime import UnavailableError

#: Most names whose buckets a process keeps while the server is down.
MOST_LOCAL = 10_000

# KEYS: the bucket. ARGV: seconds between two tokens, burst, tokens wanted, longest wait. Answer: granted, seconds.
_TAKE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local interval, burst, wanted, longest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now) + wanted * interval
local wait = math.max(0, full - burst * interval - now)
if wait > longest then return {0, tostring(wait)} end
redis.call('SET', KEYS[1], string.format('%.6f', full), 'PX', math.ceil((full - now) * 1000) + 1000)
return {1, tostring(wait)}
"""


@dataclass(frozen=True)
class Admission:
    """Whether tokens were granted, and how long to wait."""

    granted: bool
    #: Granted: seconds until the caller may act. Refused: seconds until asking again may succeed.
    wait: float


class RateLimit:
    """Token buckets. While the server is down, each process limits itself to the same rate.

    So an outage of the server stops no process, but several processes together may exceed the rate until it is back.
    """

    def __init__(self, server: CoordinationServer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._local: OrderedDict[str, float] = OrderedDict()

    def take(self, name: str, *, per_second: float, burst: int, wanted: int = 1, longest_wait: float = 0) -> Admission:
        """Take `wanted` tokens from the bucket `name`.

        per_second: how fast the bucket fills. burst: how many tokens it holds. longest_wait: seconds that the caller is
        ready to wait. Tokens for which it would have to wait longer are not granted.

        Raises ValueError if the rate is not positive, or if more tokens are wanted than the bucket holds.
        """
        if per_second <= 0 or not 1 <= wanted <= burst:
            raise ValueError(f"A bucket of {burst} with {per_second} a second never grants {wanted}.")
        try:
            with self._server.asked_to(f"ask the rate limit of {name}") as valkey:
                granted, wait = valkey.eval(
                    _TAKE, 1, key("rate", name), f"{1 / per_second:.9f}", burst, wanted, f"{longest_wait:.3f}"
                )
        except UnavailableError:
            return self._take_locally(name, 1 / per_second, burst, wanted, longest_wait)
        return Admission(bool(int(granted)), float(wait))

    def _take_locally(self, name: str, interval: float, burst: int, wanted: int, longest_wait: float) -> Admission:
        now = self._clock()
        full = max(self._local.pop(name, now), now)
        admission = admit(now, full, interval, burst, wanted, longest_wait)
        self._local[name] = full + wanted * interval if admission.granted else full
        while len(self._local) > MOST_LOCAL:
            self._local.popitem(last=False)
        return admission


def admit(now: float, full: float, interval: float, burst: int, wanted: int, longest_wait: float) -> Admission:
    """The decision of the script, for a bucket that will be full at `full` (at least `now`). Pure. Times in seconds."""
    wait = max(0.0, full + wanted * interval - burst * interval - now)
    return Admission(wait <= longest_wait, wait)
