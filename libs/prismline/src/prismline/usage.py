"""What processes use, from /proc of Linux."""

from __future__ import annotations

import os
from contextlib import suppress

from prismline.protocol import Usage

PAGE = os.sysconf("SC_PAGE_SIZE")
#: Reading stops at this number of processes: more are too many in any case.
MAX_TREE = 10_000


def own() -> Usage:
    """What this process holds now. Raises OSError if it has no file handle left to find out.

    It is called after each item, so it reads files without the layers of `pathlib` and `io`.
    """
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    return Usage(memory=_resident(os.getpid()), files=files, children=len(tree(os.getpid())) - 1)


def tree(pid: int) -> list[int]:
    """A process and its living descendants. A process that has ended and was not waited for is not among them."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < MAX_TREE:
        each = waiting.pop()
        with suppress(OSError):
            if each != pid and _read(f"/proc/{each}/stat").rpartition(b")")[2].split()[0] in b"ZX":
                continue
            found.append(each)
            for task in os.listdir(f"/proc/{each}/task"):  # noqa: PTH208
                waiting += map(int, _read(f"/proc/{each}/task/{task}/children").split())
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
        return int(_read(f"/proc/{pid}/statm").split()[1]) * PAGE
    return 0


def _proportional(pid: int) -> int:
    with suppress(OSError):
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(descriptor, 65536):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
