"""Cursors: signed positions in lists."""

from __future__ import annotations

import base64

import pytest

from prismline_http.cursors import ForgedCursorError, seal, unseal


def test_a_cursor_gives_back_its_position() -> None:
    assert unseal(b"s", "list", seal(b"s", "list", [3, "abc", True])) == [3, "abc", True]


@pytest.mark.parametrize("forged", ["", "x", "é", "AAAA", "=" * 4, "x" * 5000, "\n", "%00"])
def test_a_text_that_is_not_a_cursor_is_refused(forged: str) -> None:
    with pytest.raises(ForgedCursorError):
        unseal(b"s", "list", forged)


def test_every_changed_byte_is_noticed() -> None:
    cursor = seal(b"s", "list", [3, "abc"])
    sealed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    for position in range(len(sealed)):
        changed = bytearray(sealed)
        changed[position] ^= 1
        with pytest.raises(ForgedCursorError):
            unseal(b"s", "list", base64.urlsafe_b64encode(bytes(changed)).rstrip(b"=").decode())


def test_another_secret_or_list_is_refused() -> None:
    cursor = seal(b"s", "list", 1)
    for secret, subject in ((b"t", "list"), (b"s", "other")):
        with pytest.raises(ForgedCursorError):
            unseal(secret, subject, cursor)
