"""What holds for the tests of every package."""

from __future__ import annotations

import gc

import pytest

# A session of tests keeps some million objects of libraries and of collected tests until its end. With Python's own
# thresholds the garbage collector looks through them so often that it takes a fifth of the time of the collection.
gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of tests that run the whole system come first: the short ones then fill the end of a parallel run."""
    long = {item.path for item in items if item.get_closest_marker("e2e")}
    items.sort(key=lambda item: item.path not in long)
