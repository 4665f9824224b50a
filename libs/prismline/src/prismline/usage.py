"""What processes use, from /proc of Linux."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from prismline.protocol import Usage

PAGE = os.sysconf("SC_PAGE_SIZE")
#: Reading stops at this number of processes: more are too many in any case.
MAX_TREE = 10_000


def own() -> Usage:
    """What this process holds now. Raises OSError if it has no file handle left to find out."""
    files = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return Usage(memory=_resident(os.getpid()), files=files, children=len(tree(os.getpid())) - 1)


def tree(pid: int) -> list[int]:
    """A process and its living descendants. A process that has ended and was not waited for is not among them."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < MAX_TREE:
        each = waiting.pop()
        with suppress(OSError):
            state = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0]
            if state in "ZX" and each != pid:
                continue
            found.append(each)
            for task in Path(f"/proc/{each}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return found


def memory(pids: list[int], enough: int) -> int:
    """Resident memory of processes together, in bytes.

    Pages that they share count once for each process if the sum is below `enough`, and exactly if it is not: the exact
    way is slower.
    """
    total = sum(map(_resident, pids))
    return total if total < enough or len(pids) == 1 else sum(map(_proportional, pids))


def _resident(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return 0


def _proportional(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)
