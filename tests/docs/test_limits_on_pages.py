"""A limit stands on the generated page of limits, and on no other page: a second one would become wrong."""

from __future__ import annotations

import re

import pytest

from docs import reference
from prismline_api.dependencies import LINK_SECONDS
from prismline_contracts.commands import Queue
from prismline_contracts.delivery import DEAD_LETTER_RETENTION_SECONDS, LIMITS
from prismline_contracts.tasks import MAX_INLINE_URLS, MAX_TASKS_PER_MESSAGE
from prismline_dlq_consumer.decisions import LetterPatience
from prismline_dlq_consumer.sweep_decisions import SweepLimits
from prismline_ledger import Patience
from prismline_splitter.settings import SplitterSettings
from tests.docs.pages import GENERATED, PAGES

WORDS = dict(enumerate(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]))
WORDS |= {14: "fourteen", 15: "fifteen", 20: "twenty", 40: "forty"}
UNITS = {"day": 86_400, "hour": 3600, "minute": 60}


def numbers(n: int) -> str:
    """A pattern of a number, in digits or as a word."""
    return "|".join(re.escape(each) for each in {str(n), f"{n:,}", WORDS.get(n, str(n))})


def times(seconds: float) -> str:
    """A pattern of a time in seconds and in every unit that gives a small whole number."""
    whole = {unit: int(seconds // length) for unit, length in UNITS.items() if seconds % length == 0}
    forms = [rf"(?:{numbers(n)}) {unit}s" for unit, n in whole.items() if 1 < n < 100]
    if seconds >= 100:
        forms.append(rf"(?:{numbers(int(seconds))}) s(?:econds)?")
    return rf"\b(?:{'|'.join(forms)})\b"


LETTERS, SWEEPS = LetterPatience(), SweepLimits()
#: A pattern of the text of each limit.
LIMITS_IN_WORDS = {
    "attempts at a chunk": rf"\b(?:{numbers(Patience().max_attempts)}) attempts\b",
    "patience with a chunk": times(Patience().seconds),
    "lease of an attempt": times(Patience().lease_seconds),
    "patience with a message": times(LETTERS.message_seconds),
    "interval of a deferral": times(LETTERS.deferral_seconds),
    "retention of a dead-letter queue": times(DEAD_LETTER_RETENTION_SECONDS),
    "retention of a queue": times(LIMITS[Queue.CHUNKS].retention_seconds),
    "visibility timeout": times(LIMITS[Queue.CHUNKS].visibility_seconds),
    "silence of a chunk": times(SWEEPS.idle_seconds),
    "time of a split": times(SWEEPS.split_seconds),
    "validity of a link": times(LINK_SECONDS),
    "URLs in a request": rf"\b(?:{numbers(MAX_INLINE_URLS)}) URLs\b",
    "tasks in a message": rf"\b(?:{numbers(MAX_TASKS_PER_MESSAGE)}) tasks\b",
    "tasks of a run without its own queue": (
        rf"\b(?:{numbers(SplitterSettings.model_fields['own_queue_tasks'].default)}) tasks\b"
    ),
}


@pytest.mark.parametrize("what", LIMITS_IN_WORDS)
def test_a_limit_is_on_no_page_but_the_generated_ones(what: str) -> None:
    found = {
        page: [line for line in path.read_text().splitlines() if re.search(LIMITS_IN_WORDS[what], line)]
        for page, path in PAGES.items()
        if page not in GENERATED
    }
    assert {page: lines for page, lines in found.items() if lines} == {}, "link docs/reference/limits.md instead"


def test_the_page_of_limits_has_the_limits_of_chunks_and_letters() -> None:
    page = (reference.FOLDER / "limits.md").read_text()
    for row in (
        f"| {Patience().max_attempts} | `MAX_ATTEMPTS` |",
        f"| {round(Patience().seconds / 3600)} hours | `PATIENCE_SECONDS` |",
        f"| {round(LETTERS.message_seconds / 86_400)} days | `MESSAGE_PATIENCE_SECONDS` |",
    ):
        assert row in page
