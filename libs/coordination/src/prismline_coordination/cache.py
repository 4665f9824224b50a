"""A cache of hot reads, with expiry. While the server is down, callers read the source instead."""

from __future__ import annotations

from collections.abc import Callable

from prismline_coordination.server import CoordinationServer, key
from prismline_runtime import UnavailableError


class Cache:
    """Texts by key, each kept for some seconds. A server that is down or was flushed is an empty cache."""

    def __init__(self, server: CoordinationServer) -> None:
        self._server = server

    def get(self, name: str) -> str | None:
        """The cached text, or None."""
        try:
            with self._server.asked_to("read the cache") as valkey:
                text: str | None = valkey.get(key("cache", name))
                return text
        except UnavailableError:
            return None

    def put(self, name: str, text: str, *, seconds: float) -> None:
        """Keep a text for `seconds`."""
        try:
            with self._server.asked_to("write the cache") as valkey:
                valkey.set(key("cache", name), text, px=max(1, round(seconds * 1000)))
        except UnavailableError:
            return

    def forget(self, name: str) -> None:
        """Remove a text, because its source has changed."""
        try:
            with self._server.asked_to("write the cache") as valkey:
                valkey.delete(key("cache", name))
        except UnavailableError:
            return

    def read_through(self, name: str, load: Callable[[], str], *, seconds: float) -> str:
        """The cached text. If there is none, the text of `load`, which is then cached. Errors of `load` are raised."""
        text = self.get(name)
        if text is None:
            text = load()
            self.put(name, text, seconds=seconds)
        return text
