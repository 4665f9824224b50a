"""Settings for the tests of every package.

The variable `SKIPS` names a file with the reasons for which a test may be skipped. Every other skip then fails. The
workflow of continuous integration sets it, so that no test is skipped there because something was not installed.
"""

from __future__ import annotations

import gc
import os
import re
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

# A test session keeps some million objects of libraries and collected tests until its end. With Python's default
# thresholds the garbage collector scans them so often that it takes a fifth of the time of the collection.
gc.set_threshold(20_000, 20, 50)

# The machine may be shared, so no property test fails because it was slow.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

SKIPS = os.environ.get("SKIPS")
#: Regular expressions of the reasons that are permitted. None: all are.
PERMITTED = (
    None if not SKIPS else [re.compile(reason) for reason in tomllib.loads(Path(SKIPS).read_text())["permitted"]]
)
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge the skip of a test."""
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge the skip of a whole file."""
    return _judged((yield))


def _judged(report: Report) -> Report:
    """The report of a skip, or of a failure if the skip is not permitted. An expected failure is no skip."""
    if PERMITTED is not None and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not any(permitted.search(reason) for permitted in PERMITTED):
            report.outcome = "failed"
            report.longrepr = f"{reason}\n{SKIPS} does not permit this skip."
    return report
