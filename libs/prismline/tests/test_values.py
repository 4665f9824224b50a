"""Values as JSON: what is written, and the place of what cannot be."""

import dataclasses
from decimal import Decimal
from typing import Any

import numpy
import pydantic
import pytest

from prismline.values import NotJsonError, decode, encode


@dataclasses.dataclass
class Point:
    x: float
    tags: list[str]


class Model(pydantic.BaseModel):
    point: Point


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ({"a": (1, 2.5, True)}, '{"a":[1,2.5,true]}'),
        ("ü\n", '"\\u00fc\\n"'),
        (Point(1.0, ["a"]), '{"x":1.0,"tags":["a"]}'),
        ([Model(point=Point(1.0, []))], '[{"point":{"x":1.0,"tags":[]}}]'),
        (numpy.float64(0.5), "0.5"),
        (2**70, str(2**70)),
    ],
)
def test_a_value_is_written_as_json(value: Any, text: str) -> None:
    assert encode(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, {2}]}, "The value['a'][1] has the type set, which is no JSON."),
        ([numpy.int64(3)], "The value[0] has the type numpy.int64, which is no JSON."),
        (Decimal(1), "The value has the type decimal.Decimal, which is no JSON."),
        (b"x", "The value has the type bytes, which is no JSON."),
        ({"a": float("-inf")}, "The value['a'] is -inf, which JSON cannot express. Return None instead."),
        ({(1, 2): 3}, "The value has the key (1, 2) of type tuple. JSON needs strings as keys."),
        ({"p": Point(float("nan"), [])}, "The value['p']['x'] is nan, which JSON cannot express."),
        (Point, "The value has the type type, which is no JSON."),
        (["a\udc80.fits"], "The value[0] has half of a surrogate pair, which UTF-8 cannot express: 'a\\udc80.fits'"),
        ({"\ud800": 1}, "A key of the value has half of a surrogate pair"),
        ([10**5000], "The value is no JSON: Exceeds the limit (4300 digits)"),
    ],
)
def test_a_value_that_is_no_json_is_refused_with_its_place(value: Any, text: str) -> None:
    with pytest.raises(NotJsonError) as raised:
        encode(value)
    assert str(raised.value).startswith(text)


UNREADABLE = [
    "",
    "{",
    "NaN",
    "[Infinity]",
    "1e999",
    "'a'",
    b"\xff",
    '"a"'.encode("utf-16"),
    "[" * 100_000,
    '"\\ud800"',
    "9" * 5000,
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_is_no_json_is_not_read(text: str | bytes) -> None:
    with pytest.raises(NotJsonError):
        decode(text)


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert decode(encode("\U0001f52d")) == "\U0001f52d"
