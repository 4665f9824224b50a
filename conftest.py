"""Settings for the tests of every package."""

from __future__ import annotations

import gc

# A test session keeps some million objects of libraries and collected tests until its end. With Python's default
# thresholds the garbage collector scans them so often that it takes a fifth of the time of the collection.
gc.set_threshold(20_000, 20, 50)
