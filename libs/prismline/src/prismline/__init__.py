"""Bring your own work: a function over a list.

from prismline import Permanent, workload

@workload(timeout=60, attempts=3)
def measure(item: dict, *, threshold: float = 5.0) -> dict:
    if not item["path"].endswith(".fits"):
        raise Permanent(f"{item['path']} is not FITS.")
    return {"n": count(item["path"], threshold)}
"""

from prismline.errors import Permanent, WorkloadError
from prismline.workload import Context, Limits, Retry, Workload, workload

__all__ = ["Context", "Limits", "Permanent", "Retry", "Workload", "WorkloadError", "workload"]
