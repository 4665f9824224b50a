"""The message of an error is one short line, whatever it quotes."""

from __future__ import annotations

import pytest

from prismline_runtime import PermanentError, ResourceUnavailableError, TransientError


@pytest.mark.parametrize(
    ("quoted", "shown"),
    [("a\nb", r"a\nb"), ("\0", r"\x00"), ("\ud800", r"\ud800"), ("\u202ez", r"\u202ez"), ("é 漢", "é 漢")],
)
def test_a_name_that_cannot_be_printed_is_escaped(quoted: str, shown: str) -> None:
    assert str(PermanentError(f"There is no {quoted}.")) == f"There is no {shown}."
    assert str(TransientError(f"There is no {quoted}.")) == f"There is no {shown}."
    assert str(ResourceUnavailableError(f"There is no {quoted}.", resource="gpu")) == f"There is no {shown}."


def test_a_long_name_is_cut_off() -> None:
    text = str(PermanentError(f"There is no {'a' * 100_000}."))
    assert text.startswith("There is no aaa")
    assert text.endswith("a...")
    assert len(text) == 600
