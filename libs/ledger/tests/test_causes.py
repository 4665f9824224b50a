"""Failures are grouped by their error, without the numbers and ids in it."""

from __future__ import annotations

import pytest

from prismline_ledger.causes import Cause, Failure, causes_of, folded


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It did not answer within 10.5 seconds.", "It did not answer within 3 seconds."),
        ("chunk-0000010 holds 4 spectra", "chunk-0000200 holds 1,000 spectra"),
        ("Run 7b0b3f0e-2f5e-5d0c-8c39-9a1f3c1f7a11 is gone", "Run 0b5c1e0e-2f5e-4d0c-8c39-9a1f3c1f7a11 is gone"),
        ("ETag 5d1e7a3e8d0f was replaced", "ETag 9a393a1b2f0c was replaced"),
    ],
)
def test_messages_that_differ_in_numbers_and_ids_are_one_cause(one: str, other: str) -> None:
    assert folded(one) == folded(other)


def test_messages_with_other_words_are_other_causes() -> None:
    assert folded("The site answered 404 Not Found.") != folded("The site answered 404 Gone.")


def test_the_cause_with_the_latest_failure_comes_first_with_its_count_and_its_latest_example() -> None:
    first = Failure("a", "2026-03-10T12:00:00Z", "It holds 1 line.")
    second = Failure("b", "2026-03-10T12:00:05Z", "Not found.")
    third = Failure("c", "2026-03-10T12:00:09Z", "It holds 2 lines.")
    fourth = Failure("d", "2026-03-10T12:00:07Z", "It holds 9 lines.")
    assert causes_of([first, second, third, fourth]) == [Cause(2, third), Cause(1, second), Cause(1, first)]
