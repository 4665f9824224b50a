"""The value of an item as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from pydantic import BaseModel

#: Longest value of an item as JSON, in bytes: it has to fit into an item of DynamoDB (400 KiB) with what belongs to it.
MAX_VALUE_BYTES = 256 * 1024


class NotJsonError(ValueError):
    """A value cannot be written as JSON. The text says which part of it."""


class TooLargeError(ValueError):
    """A value is too large to be kept."""


class WrongCountError(ValueError):
    """A vectorized function has not returned one value for each item."""


def encode(value: Any) -> str:
    """The value of an item as JSON. Raises NotJsonError and TooLargeError."""
    text = to_json(value)
    if len(text) > MAX_VALUE_BYTES:
        raise TooLargeError(
            f"The value has {len(text):,} bytes of JSON, more than {MAX_VALUE_BYTES:,}. "
            "Write it to a file or an object, and return where it is."
        )
    return text


def to_json(value: Any) -> str:
    """A value as JSON in ASCII. Dataclasses and pydantic models become objects. Raises NotJsonError."""
    try:
        text = json.dumps(value, allow_nan=False, default=_plain, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJsonError(_fault(value) or f"The value is no JSON: {error}.") from error
    if _has_half_a_character(text):
        raise NotJsonError(_fault(value) or "The value has half of a surrogate pair, which UTF-8 cannot express.")
    return text


def decode(text: str | bytes) -> Any:
    """A value from JSON in UTF-8. NaN, infinity and halves of surrogate pairs raise NotJsonError like other faults."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        half = _has_half_a_character(text)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(f"It is no JSON: {error}.") from error
    if half:
        raise NotJsonError("It is no JSON: a string has half of a surrogate pair.")
    return value


def _has_half_a_character(text: str) -> bool:
    """Whether a JSON text has a string that UTF-8 cannot express. Such a character is always written as `\\ud8..`."""
    if "\\ud" not in text and "\\uD" not in text:
        return False
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name:.40} is no JSON value")


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} is no JSON type")


def _fault(value: Any, place: str = "The value", depth: int = 0) -> str | None:
    """A sentence about the first part that is no JSON, or None if none is found."""
    if depth > 100:
        return f"{place[:200]} is nested too deeply or contains itself."
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, str):
        half = f"{place} has half of a surrogate pair, which UTF-8 cannot express: {value!r:.80}."
        return half if any("\ud800" <= character <= "\udfff" for character in value) else None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{place} is {value}, which JSON cannot express. Return None instead."
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str | bool | int | float | None):
                return f"{place} has the key {key!r:.80} of type {type(key).__name__}. JSON needs strings as keys."
            if isinstance(key, str) and (fault := _fault(key, f"A key of {place[:1].lower()}{place[1:]}", depth + 1)):
                return fault
            if fault := _fault(each, f"{place}[{key!r:.80}]", depth + 1):
                return fault
        return None
    if isinstance(value, list | tuple):
        faults = (_fault(each, f"{place}[{index}]", depth + 1) for index, each in enumerate(value))
        return next((fault for fault in faults if fault), None)
    try:
        return _fault(_plain(value), place, depth + 1)
    except TypeError:
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        return f"{place} has the type {kind}, which is no JSON. Convert it to numbers, strings, lists and dictionaries."
