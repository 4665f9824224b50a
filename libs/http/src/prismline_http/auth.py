"""The callers of requests: API keys, their tenants and scopes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Protocol, TypeVar

from prismline_contracts.jobs import API_KEY_PREFIX, Scope, api_key_sha256
from prismline_http.key_store import KeyStore
from prismline_http.problems import ProblemError

T = TypeVar("T")

#: Most keys, and most addresses, that are remembered.
MOST_KEPT = 1000
#: How long an unknown key is remembered, in seconds. A new key that was tried before it existed works after this time.
UNKNOWN_SECONDS = 2.0
#: Unknown keys of one address that are looked up: in a second on average, and at once.
UNKNOWN_PER_SECOND, UNKNOWN_BURST = 5.0, 20
#: Bits of an IPv6 address that name the network of a customer.
IPV6_PREFIX = 64
#: Longest key that is looked up.
MAX_KEY_CHARS = 200
#: Header of a 401, which tells clients to send a key (RFC 6750).
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="prismline"'}


class Admission(Protocol):
    """Whether a request is granted, and if not, after how many seconds it would be."""

    @property
    def granted(self) -> bool:
        """Whether it is granted."""

    @property
    def wait(self) -> float:
        """Seconds to wait."""


class TokenBuckets(Protocol):
    """Limits of rates, for example prismline_coordination.RateLimit."""

    def take(self, name: str, *, per_second: float, burst: int) -> Admission:
        """Take a token from the bucket `name`, which fills at `per_second` and holds `burst` tokens."""


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
    """Finds the caller of a request by the API key. A valid key is remembered for `cache_seconds`.

    Anybody can send random keys. So an unknown key is remembered for a short time, and the number of unknown keys that
    are looked up for one address is limited. Beyond the limit, only keys that were valid before are looked up for it.
    """

    def __init__(
        self, store: KeyStore, cache_seconds: float, limit: TokenBuckets, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._cache_seconds = cache_seconds
        self._limit = limit
        self._clock = clock
        self._cache: dict[str, tuple[float, Caller]] = {}
        #: Tenants whose items exist.
        self._noted: set[str] = set()
        #: Until when keys are taken for unknown, by their hash.
        self._unknown: dict[str, float] = {}
        #: Until when unknown keys of an address are refused without a look-up.
        self._refused: dict[str, float] = {}

    def caller(self, key: str | None, address: str) -> Caller:
        """The caller with this key, who sent the request from `address`.

        Raises ProblemError (401) if there is no such key or it was revoked, and (429) if the address has sent too many.
        """
        if not key:
            raise ProblemError(
                401,
                "key-missing",
                "Send an API key: `Authorization: Bearer <key>`. `prismline jobs keys create` makes one.",
                headers=CHALLENGE,
            )
        if not key.startswith(API_KEY_PREFIX) or len(key) > MAX_KEY_CHARS:
            raise _unknown()
        return self.caller_by_hash(api_key_sha256(key), address)

    def caller_by_hash(self, digest: str, address: str) -> Caller:
        """The caller whose key has this hash. Raises ProblemError as `caller`."""
        now = self._clock()
        until, caller = self._cache.get(digest, (0.0, None))
        if caller is not None and now < until:
            return caller
        if caller is None:
            self._refuse_unknown(digest, _network(address), now)
        item = self._store.api_key(digest)
        if item is None or item.revoked_at is not None:
            self._cache.pop(digest, None)
            self._note_unknown(digest, _network(address), now)
            raise _unknown()
        if item.tenant not in self._noted:  # an earlier release made the key
            self._store.note_tenant(item.tenant)
            self._noted.add(item.tenant)
        caller = Caller(tenant=item.tenant, key_id=item.key_id, scopes=frozenset(item.scopes))
        _keep(self._cache, digest, (now + self._cache_seconds, caller))
        return caller

    def _refuse_unknown(self, digest: str, network: str, now: float) -> None:
        """Raises ProblemError if the key is known to be unknown, or no more keys of the network are looked up."""
        if now < self._unknown.get(digest, 0.0):
            raise _unknown()
        wait = self._refused.get(network, 0.0) - now
        if wait > 0:
            seconds = math.ceil(wait)
            raise ProblemError(
                429,
                "too-many-unknown-keys",
                f"Too many requests with API keys that are not valid came from your address. Wait {seconds} s.",
                headers={"Retry-After": str(seconds)},
            )

    def _note_unknown(self, digest: str, network: str, now: float) -> None:
        _keep(self._unknown, digest, now + UNKNOWN_SECONDS)
        admission = self._limit.take(f"unknown-keys:{network}", per_second=UNKNOWN_PER_SECOND, burst=UNKNOWN_BURST)
        if not admission.granted:
            _keep(self._refused, network, now + max(1.0, admission.wait))


def _keep(memory: dict[str, T], name: str, value: T) -> None:
    if len(memory) >= MOST_KEPT:
        memory.clear()
    memory[name] = value


def _network(address: str) -> str:
    """The address, or the network of an IPv6 address: one customer of a provider has all its addresses."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    return str(ip) if ip.version == 4 else str(ip_network((ip, IPV6_PREFIX), strict=False))


def _unknown() -> ProblemError:
    return ProblemError(
        401,
        "key-unknown",
        "The API key is not valid: it is wrong or was revoked. `prismline jobs keys create` makes a new one.",
        headers=CHALLENGE | {"WWW-Authenticate": 'Bearer realm="prismline", error="invalid_token"'},
    )
