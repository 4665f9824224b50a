"""Seeds whose schedules once broke a promise, and what each of them found. `make test` runs them for ever.

A seed stands for the same schedule only as long as `draw_plan` draws in the same order. A finding that must not be lost
when that changes has a schedule written by hand in `test_directed.py`, too.
"""

from __future__ import annotations

#: What each seed found, in a few words.
ONCE_FAILED: dict[int, str] = {
    5_002_362: "nobody says that a chunk completed after it had failed: its worker died before it spoke",
    17_725: "nothing: a check took a message of before a recovery for the last one of its chunk",
}
