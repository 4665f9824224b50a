"""Counters that change too often for the ledger, such as fetches and bytes. They may be lost."""

from __future__ import annotations

from collections.abc import Mapping

from prismline_coordination.server import CoordinationServer, key
from prismline_runtime import UnavailableError

#: How long counters are kept after their last change, in seconds: a week.
KEPT_SECONDS = 7 * 86_400


class Stats:
    """Counters by name, each a hash of numbers. They are for people; no code decides from them."""

    def __init__(self, server: CoordinationServer) -> None:
        self._server = server

    def add(self, name: str, counts: Mapping[str, int]) -> bool:
        """Add `counts` to the counters of `name`, in one request. False if the server is down: the counts are lost."""
        if not counts:
            return True
        try:
            with self._server.asked_to("count") as valkey:
                pipeline = valkey.pipeline(transaction=False)
                for field, count in counts.items():
                    pipeline.hincrby(key("stats", name), field, count)
                pipeline.expire(key("stats", name), KEPT_SECONDS)
                pipeline.execute()
        except UnavailableError:
            return False
        return True

    def read(self, name: str) -> dict[str, int]:
        """The counters of `name`. Empty if there are none, or if the server is down."""
        try:
            with self._server.asked_to("read counters") as valkey:
                return {field: int(count) for field, count in valkey.hgetall(key("stats", name)).items()}
        except UnavailableError:
            return {}
