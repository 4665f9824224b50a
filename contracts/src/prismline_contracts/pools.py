"""Pools: groups of workers with an author's package. A pool has its own queue, dead-letter queue and role.

The id of a run begins with the name of its pool. IAM can restrict a role to items and objects only by the beginning of
their keys, and the keys of a run begin with its id. So the role of a pool reaches the runs of this pool alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import StringConstraints

#: At most 24 characters, so that the names of a pool's resources stay below the limits of AWS.
POOL_PATTERN = r"^[a-z][a-z0-9-]{0,22}[a-z0-9]$"
PoolName = Annotated[str, StringConstraints(pattern=POOL_PATTERN)]

#: Between the pool and the rest of a run's id. Neither the name of a pool nor the id of another run contains it.
POOL_SEPARATOR = "_"
#: Beginning of the short names of the queues of pools.
POOL_QUEUE_PREFIX = "pool-"


def pool_queue(pool: str) -> str:
    """The short name of the queue of a pool."""
    return f"{POOL_QUEUE_PREFIX}{pool}"


def in_pool(run_id: str, pool: str | None) -> str:
    """The id of a run in a pool; without one, `run_id` itself."""
    return run_id if pool is None else f"{pool}{POOL_SEPARATOR}{run_id}"


def pool_of(run_id: str) -> str | None:
    """The pool of a run. None: the common workers process it."""
    pool, separator, _ = run_id.partition(POOL_SEPARATOR)
    return pool if separator else None


def pool_named(manifest: Mapping[str, Any]) -> str | None:
    """The pool that the document of a manifest names. None also if what it names cannot be a pool."""
    pool = manifest.get("pool")
    return pool if isinstance(pool, str) and is_pool_name(pool) else None


def is_pool_name(text: str) -> bool:
    """Whether a pool may have this name."""
    return re.fullmatch(POOL_PATTERN, text) is not None


def not_a_pool_name(text: str) -> str:
    """The sentence for a name that no pool can have."""
    return f"{text!r} cannot be the name of a pool: 2 to 24 lower-case letters, digits and hyphens, a letter first."


def no_pool(pool: str) -> str:
    """The sentence for a pool that does not exist."""
    return f"There is no pool {pool} in this environment. Deploy it, or leave the pool out for the common workers."
