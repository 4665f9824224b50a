"""Coordination of processes in Valkey: leases, rate limits, counters, and a cache of hot reads.

Nothing here is durable. A server that dies or is flushed loses no work, because tasks and results are elsewhere.
"""

from prismline_coordination.cache import Cache
from prismline_coordination.leases import Lease, Leases
from prismline_coordination.rate_limit import Admission, RateLimit
from prismline_coordination.server import CoordinationServer, CoordinationSettings
from prismline_coordination.stats import Stats

__all__ = [
    "Admission",
    "Cache",
    "CoordinationServer",
    "CoordinationSettings",
    "Lease",
    "Leases",
    "RateLimit",
    "Stats",
]
