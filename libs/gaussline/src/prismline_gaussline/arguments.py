"""Reads the arguments of the public functions: arrays of numbers, masked or not, and single numbers.

A function that refuses a value raises ValueError, which names the argument and says what it must be.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def numbers(values: ArrayLike, name: str) -> NDArray[np.floating | np.integer]:
    """``values`` as an array of floats or integers. Masked values become NaN, which makes integers float64."""
    array = _array(values, name)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be an array of numbers, not of {array.dtype}")
    if isinstance(array, np.ma.MaskedArray):
        kind = array.dtype if array.dtype.kind == "f" else np.float64
        return np.where(np.ma.getmaskarray(array), np.nan, array.data).astype(kind)
    return np.asarray(array)


def _array(values: ArrayLike, name: str) -> NDArray[Any]:
    masked = isinstance(values, (list, tuple)) and any(isinstance(row, np.ma.MaskedArray) for row in values)
    try:
        return np.ma.array(values) if masked else np.asanyarray(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers with rows of one length: {error}") from None


def doubles(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """:func:`numbers` as float64."""
    return numbers(values, name).astype(np.float64)


def any_number(value: object) -> float:
    """``value`` as a float; NaN if it is not a number."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def finite_number(value: object, name: str) -> float:
    """``value`` as a finite float that is not negative."""
    number = any_number(value)
    if not math.isfinite(number) or number < 0.0:
        raise ValueError(f"{name} must be a finite number that is not negative, not {value!r}")
    return number


def whole_number(value: object, name: str, least: int, most: int) -> int:
    """``value`` as an int from ``least`` to ``most``."""
    try:
        number = int(value) if not isinstance(value, (bool, str)) else None  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value or not least <= number <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return int(number)
