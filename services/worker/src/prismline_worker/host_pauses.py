"""Hosts that asked for fewer requests. No process sends them another request before the time that they named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from prismline_contracts.base import now, timestamp
from prismline_coordination import Cache


class HostPauses:
    """When each host may get requests again. Processes share this in Valkey; without Valkey, each learns it alone."""

    def __init__(self, cache: Cache, *, clock: Callable[[], datetime] = now) -> None:
        self._cache = cache
        self._clock = clock
        self._until: dict[str, datetime] = {}

    def pause(self, host: str, seconds: float) -> None:
        """Send no requests to `host` for `seconds`."""
        until = self._clock() + timedelta(seconds=seconds)
        if until > self._until.get(host, self._clock()):
            self._until[host] = until
            self._cache.put(f"pause:{host}", timestamp(until), seconds=seconds)

    def wait(self, host: str) -> float:
        """Seconds until `host` may get requests again, as far as this process knows."""
        until = self._until.get(host)
        if until is None:
            return 0.0
        left = (until - self._clock()).total_seconds()
        if left <= 0:
            del self._until[host]
        return max(0.0, left)

    def learn(self, host: str) -> None:
        """Read from Valkey how long other processes pause `host`."""
        stored = self._cache.get(f"pause:{host}")
        if stored is not None:
            self._until[host] = max(datetime.fromisoformat(stored), self._until.get(host, self._clock()))
