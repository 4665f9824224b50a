"""Valkey in memory, for the slots of runs with `max_concurrency`. A server that was down has forgotten everything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from prismline_coordination import CoordinationServer, Leases
from prismline_coordination import leases as scripts
from tests.simulation.scheduler import START

if TYPE_CHECKING:
    from tests.simulation.world import World


class StandInValkey:
    """Replaces Valkey's client: answers the scripts of `Leases`. Each call takes time, and fails like one to AWS."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: Value and expiry of each key.
        self._keys: dict[str, tuple[str, float]] = {}
        self._outages = sorted(each.end for each in world.plan.outages if each.dependency == "valkey")
        self._scripts: dict[str, Callable[[list[str], list[str]], list[Any]]] = {
            scripts._TAKE: self._take,  # noqa: SLF001  the scripts are the client's requests
            scripts._RENEW: self._renew,  # noqa: SLF001
            scripts._RELEASE: self._release,  # noqa: SLF001
        }

    def leases(self) -> Leases:
        """Leases on this server, in virtual time."""
        return Leases(CoordinationServer(lambda: self), clock=self._world.seconds)

    def eval(self, script: str, n_keys: int, *arguments: Any) -> Any:
        """Run a script."""
        texts = [str(each) for each in arguments]
        run = partial(self._scripts[script], texts[:n_keys], texts[n_keys:])
        return self._world.scheduler.gate("valkey", "eval", {"Key": texts[0]}, partial(self._run, run))

    def _run(self, script: Callable[[], Any]) -> Any:
        while self._outages and self._outages[0] <= self._world.seconds():
            self._outages.pop(0)
            self._keys.clear()
        return script()

    @property
    def _now(self) -> float:
        return self._world.scheduler.time

    def _get(self, key: str) -> str | None:
        value, until = self._keys.get(key, ("", START))
        return value if until > self._now else None

    def _take(self, keys: list[str], arguments: list[str]) -> list[Any]:
        lasts, wanted = int(arguments[0]) / 1000, int(arguments[1])
        token, taken = max(int(self._get(keys[0]) or 0), round(self._now * 1_000_000)), list[Any]()
        for slot, key in enumerate(keys[1:], 1):
            if len(taken) < 2 * wanted and self._get(key) is None:
                token += 1
                self._keys[key] = str(token), self._now + lasts
                taken += [slot, str(token)]
        self._keys[keys[0]] = str(token), self._now + 86_400
        return taken

    def _renew(self, keys: list[str], arguments: list[str]) -> list[Any]:
        held = []
        for key, token in zip(keys, arguments[1:], strict=True):
            kept = self._get(key) in {None, token}
            if kept:
                self._keys[key] = token, self._now + int(arguments[0]) / 1000
            held.append(int(kept))
        return held

    def _release(self, keys: list[str], arguments: list[str]) -> list[Any]:
        for key, token in zip(keys, arguments, strict=True):
            if self._get(key) == token:
                del self._keys[key]
        return [len(keys)]
