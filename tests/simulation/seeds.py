"""Seeds whose schedules once broke a promise, with the finding of each. `make test` runs them every time.

A seed means the same schedule only while `draw_plan` draws in the same order. A finding that must survive such a
change also has a schedule written by hand in `test_directed.py`.
"""

from __future__ import annotations

#: The finding of each seed.
ONCE_FAILED: dict[int, str] = {
    5_002_362: "the late success of a chunk is not announced, because its worker died before the announcement",
    17_725: "no bug: a check mistook a message from before a recovery for the last message of its chunk",
}
