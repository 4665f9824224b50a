"""What holds for the tests of every package."""

from __future__ import annotations

import gc

# A session of tests keeps some million objects of libraries and of collected tests until its end. With Python's own
# thresholds the garbage collector looks through them so often that it takes a fifth of the time of the collection.
gc.set_threshold(20_000, 20, 50)
