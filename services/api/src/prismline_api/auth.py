"""The callers of requests: API keys, their tenants and scopes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from prismline_api.problems import ProblemError
from prismline_api.store import JobStore
from prismline_contracts import API_KEY_PREFIX, Scope, api_key_sha256

#: Most keys that are remembered.
CACHED_KEYS = 1000
#: Longest key that is looked up.
MAX_KEY_CHARS = 200
#: Header of a 401, which tells clients to send a key (RFC 6750).
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="prismline"'}


@dataclass(frozen=True)
class Caller:
    """The tenant that a valid API key belongs to, and what the key may do."""

    tenant: str
    key_id: str
    scopes: frozenset[str]

    @property
    def sees_all(self) -> bool:
        """Whether the key shows the runs of every tenant, and runs without a tenant."""
        return "all" in self.scopes

    def require(self, scope: Scope) -> None:
        """Check that the key has the scope. Raises ProblemError (403)."""
        if scope not in self.scopes:
            raise ProblemError(
                403, "scope-missing", f"This API key may not do that. Use or request a key with the scope {scope}."
            )


class Keys:
    """Finds the caller of a request by the API key. A valid key is remembered for `cache_seconds`."""

    def __init__(self, store: JobStore, cache_seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._cache: dict[str, tuple[float, Caller]] = {}
        #: Tenants whose items exist.
        self._noted: set[str] = set()

    def caller(self, key: str | None) -> Caller:
        """The caller with this key. Raises ProblemError (401) if there is no such key, or it was revoked."""
        if not key:
            raise ProblemError(
                401,
                "key-missing",
                "Send an API key: `Authorization: Bearer <key>`. `prismline jobs keys create` makes one.",
                headers=CHALLENGE,
            )
        if not key.startswith(API_KEY_PREFIX) or len(key) > MAX_KEY_CHARS:
            raise _unknown()
        return self.caller_by_hash(api_key_sha256(key))

    def caller_by_hash(self, digest: str) -> Caller:
        """The caller whose key has this hash. Raises ProblemError (401) if there is no such key, or it was revoked."""
        until, caller = self._cache.get(digest, (0.0, None))
        if caller is not None and self._clock() < until:
            return caller
        self._cache.pop(digest, None)
        item = self._store.api_key(digest)
        if item is None or item.revoked_at is not None:
            raise _unknown()
        if item.tenant not in self._noted:  # an earlier release made the key
            self._store.note_tenant(item.tenant)
            self._noted.add(item.tenant)
        caller = Caller(tenant=item.tenant, key_id=item.key_id, scopes=frozenset(item.scopes))
        if len(self._cache) >= CACHED_KEYS:
            self._cache.clear()
        self._cache[digest] = (self._clock() + self._cache_seconds, caller)
        return caller


def _unknown() -> ProblemError:
    return ProblemError(
        401,
        "key-unknown",
        "The API key is not valid: it is wrong or was revoked. `prismline jobs keys create` makes a new one.",
        headers=CHALLENGE | {"WWW-Authenticate": 'Bearer realm="prismline", error="invalid_token"'},
    )
