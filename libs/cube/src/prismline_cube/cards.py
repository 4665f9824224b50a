"""The values of the cards of a FITS header from outside. Each is checked before it is used."""

from __future__ import annotations

import math
from typing import Any

from astropy.io import fits

from prismline_cube.errors import CubeError
from prismline_cube.limits import MAX_TEXT_LENGTH


def value_of(header: fits.Header, key: str) -> Any:
    """The value of a card. None if there is no such card, or if it has no value."""
    try:
        return header.get(key)
    except MemoryError:
        raise
    except Exception as error:  # astropy does not document what it raises for a damaged card
        raise unusable(key, "cannot be read") from error


def number_of(header: fits.Header, key: str, default: float) -> float:
    """The finite number that a card holds, or `default` if there is no such card."""
    value = value_of(header, key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise unusable(key, f"is {value!r:.80} and not a finite number")
    return float(value)


def integer_of(header: fits.Header, key: str, default: int | None = None) -> int:
    """The integer value of a card. Raises CubeError if the card is missing and there is no default."""
    value = value_of(header, key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not float(value).is_integer():
        raise unusable(key, "is missing" if value is None else f"is {value!r:.80} and not an integer")
    return int(value)


def count_of(header: fits.Header, key: str, default: int | None = None) -> int:
    """An integer that is not negative."""
    value = integer_of(header, key, default)
    if value < 0:
        raise unusable(key, f"is {value!s:.20} and must not be negative")
    return value


def text_of(header: fits.Header, key: str) -> str:
    """The text of a card, without blanks around it; empty if there is no such card."""
    value = value_of(header, key)
    text = "" if value is None else str(value).strip()
    if len(text) > MAX_TEXT_LENGTH:
        raise unusable(key, f"has {len(text):,} characters; at most {MAX_TEXT_LENGTH:,} are read")
    return text


def unusable(key: str, what: str) -> CubeError:
    """The error for a card that cannot be used. what: a clause that says why."""
    return CubeError(f"the header's {key} {what}; correct the header and submit the file again")
