"""Decides which objects of the bucket the jobs of a tenant may name. Pure.

A tenant owns the folder with its name below each prefix of sources: `cubes/acme/` belongs to the tenant `acme`. The
default tenant owns the rest of each prefix: everything that is not in the folder of another tenant. So the layout of a
deployment with one tenant has no tenant in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Folders that a client or a proxy might resolve, and characters that it might decode or convert. S3 does neither.
_RESOLVED = frozenset({"", ".", ".."})
_DECODED = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Sources:
    """The keys that the jobs of a tenant may name."""

    #: They are below one of these prefixes.
    prefixes: tuple[str, ...]
    #: Tenants whose folders below the prefixes are excluded.
    others: frozenset[str] = frozenset()

    def refusal(self, key: str) -> str | None:
        """Why a job may not name the key, in one sentence. None if it may."""
        if not _RESOLVED.isdisjoint(key.split("/")) or _DECODED.search(key):
            return f"The key {key!r} has an empty folder, '.', '..', or an encoded or special character."
        below = [key.removeprefix(prefix) for prefix in self.prefixes if key.startswith(prefix)]
        if not below:
            return f"The key {key!r} is not among the sources of your tenant."
        if any("/" in rest and rest.partition("/")[0] in self.others for rest in below):
            return f"The key {key!r} is in the folder of another tenant."
        return None


def sources_of(tenant: str, prefixes: Iterable[str], *, default_tenant: str, tenants: Iterable[str]) -> Sources:
    """The sources of a tenant. prefixes: those of all sources. tenants: all, which only the default tenant needs."""
    if tenant == default_tenant:
        return Sources(tuple(prefixes), frozenset(tenants) - {default_tenant})
    return Sources(tuple(f"{prefix}{tenant}/" for prefix in prefixes))
