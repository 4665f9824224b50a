"""Bring your own work: a function over a list.

from prismline import Permanent, workload

@workload(timeout=60, attempts=3)
def measure(item: dict, *, threshold: float = 5.0) -> dict:
    if not item["path"].endswith(".fits"):
        raise Permanent(f"{item['path']} is not FITS.")
    return {"n": count(item["path"], threshold)}

run = prismline.map(measure, items, params={"threshold": 4})
"""

from prismline.errors import Permanent, WorkloadError
from prismline.mapping import map_items as map  # noqa: A004  its name in `prismline.map`
from prismline.results import Result
from prismline.workload import Context, Limits, Retry, Workload, workload

__all__ = ["Context", "Limits", "Permanent", "Result", "Retry", "Workload", "WorkloadError", "map", "workload"]
