"""The driver finds planted bugs: a wrong exception, a refusal that is no sentence, memory, a dead process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import strategies as st

from prismline_runtime.errors import PermanentError
from tests.fuzz.driver import Report, fuzz
from tests.fuzz.rule import examine
from tests.fuzz.target import Target


def planted(data: bytes) -> str | None:
    """A parser that fails for bytes that begin with some letters."""
    match data[:1]:
        case b"k":
            raise KeyError(data)
        case b"e":
            return ""
        case b"p":
            raise PermanentError("The first letter is a p.")
    return None


def searched(target: Target, folder: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> Report:
    monkeypatch.chdir(folder)
    return fuzz(target, seconds=120, seed=1, most=most)


def test_a_wrong_exception_and_an_empty_refusal_are_found_and_made_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = searched(Target("planted", planted, st.binary(max_size=50)), tmp_path, monkeypatch, most=2)
    kinds = {found.finding.kind.partition(" at ")[0]: found.path.read_bytes() for found in report.found}
    assert kinds == {"KeyError": b"k", "an empty refusal": b"e"}


def test_the_input_that_ended_its_process_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(data: bytes) -> None:
        if data:
            os.kill(os.getpid(), signal.SIGKILL)

    report = searched(Target("dies", dies, st.binary(max_size=5)), tmp_path, monkeypatch, most=1)
    (found,) = report.found
    assert "SIGKILL" in found.finding.text
    assert found.path.read_bytes()


@pytest.mark.parametrize(
    "text", ["", "Two\nlines.", "Traceback (most recent call last)", "a" * 10_000], ids=["empty", "lines", "tb", "long"]
)
def test_a_refusal_that_is_not_one_short_sentence_is_a_finding(text: str) -> None:
    assert examine(Target("refuses", lambda _: text, st.binary()), b"") is not None


def test_more_memory_than_the_rule_allows_is_a_finding() -> None:
    finding = examine(Target("large", lambda _: bytes(b"x" * 350_000_000)[:0].decode(), st.binary()), b"")
    assert finding is not None
    assert finding.kind == "memory"
