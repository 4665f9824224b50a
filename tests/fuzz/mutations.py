"""Strategies that mutate valid examples: most mutants pass the first checks of a parser and break a later one."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

#: Values that parsers tend not to expect.
EXTREMES: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], [None], {"": None}),
    *(0, -0.0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, -(10**30)),
    *(0.5, 1e308, -1e308, 5e-324, 1e-320, math.inf, -math.inf, math.nan, 1.0000000000000002),
    *("", " ", "\0", "a\nb", "\r\n", "\ud800", "\udfff\ud800", "\u202e", "\ufeff", "é", "e\u0301", "😀", "x" * 70_000),
    *("0", "-1", "1e999", "NaN", "null", "true", "[]", "{}", "٣", "0x10", "1_000"),
    *("..", "../../etc/passwd", "/", "a//b", "%00", "%2e%2e%2f", "s3://bucket/key", "*", "?", "#", "{}", "${a}", "%s"),
    *("http://[::1", "http://127.0.0.1:99999/", "https://example.com", "http://a@b:c@d/", "file:///etc/passwd"),
    *("2026-13-45T99:99:99Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "2026-02-30", "P1Y"),
    *(list(range(2_000)), {f"k{number}": number for number in range(500)}, ["x"] * 20_000),
    json.loads("[" * 150 + "]" * 150),
    json.loads('{"a":' * 150 + "1" + "}" * 150),
)
#: Pieces of text that mean something to a parser of JSON, headers, URLs, lines or numbers.
TOKENS: tuple[bytes, ...] = (
    *(b"{", b"}", b"[", b"]", b'"', b"'", b":", b",", b";", b"\\", b"\\u0000", b"\\ud800", b"null", b"NaN", b"-", b"."),
    *(b"\0", b"\n", b"\r\n", b"\t", b" ", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x1f\x8b", b"%"),
    *(b"0", b"1e999", b"-1", b"9" * 400, b"9" * 5_000, b"18446744073709551616", b"[" * 100_000, b'{"a":' * 5_000),
    *(b"A" * 70_000, b"/../", b"//", b"@", b"?", b"#", b"=", b"&", b"\x7f", b"\x1b[2J"),
)


class _Twin(str):
    """A key that is equal to no other one, so that an object can hold the same name twice."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def json_bytes(*examples: Any) -> SearchStrategy[bytes]:
    """Mutants of JSON documents, as bytes. Some of them are mutated as bytes again."""
    texts = documents(*examples).flatmap(lambda document: st.sampled_from(_encodings(document)))
    return st.one_of(texts, texts, texts.flatmap(mutated_bytes))


def _encodings(document: Any) -> list[bytes]:
    return [
        json.dumps(document).encode(),
        json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"),
    ]


@st.composite
def documents(draw: DrawFn, *examples: Any) -> Any:
    """Mutants of JSON documents: fields dropped, renamed, doubled, moved, nested, or replaced with extreme values."""
    root = [copy.deepcopy(draw(st.sampled_from(examples)))]
    for _ in range(draw(st.integers(0, 4))):
        places = list(_places(root))
        container, key = places[draw(st.integers(0, len(places) - 1))]
        draw(st.sampled_from(_MUTATIONS))(draw, container, key, places)
        if not root:
            return None
    return root[0]


def _places(container: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a document that holds a value: its container, and its key or index. Long lists are cut off."""
    keys = list(container) if isinstance(container, dict) else range(len(container))
    for key in keys[:50]:
        yield container, key
        if isinstance(container[key], dict | list):
            yield from _places(container[key])


def _replace(draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    container[key] = copy.deepcopy(draw(st.sampled_from(EXTREMES)))


def _drop(_draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    del container[key]


def _move(draw: DrawFn, container: Any, key: Any, places: Any) -> None:
    other, other_key = places[draw(st.integers(0, len(places) - 1))]
    container[key] = copy.deepcopy(other[other_key])


def _nest(draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    value = container[key]
    container[key] = draw(st.sampled_from([[value], {"a": value}, [value, value], {str(key): value}]))


def _rename(draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    if isinstance(container, dict):
        container[draw(st.sampled_from([f"{key}x", str(key).upper(), "", "__proto__", "\ud800"]))] = container.pop(key)


def _double(draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    if isinstance(container, dict):
        container[_Twin(key)] = copy.deepcopy(draw(st.sampled_from(EXTREMES)))
    else:
        container.insert(key, copy.deepcopy(container[key]))


def _nudge(draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    """Change a value a little: another number, or a text with something inserted, cut off or repeated."""
    value = container[key]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return
    if isinstance(value, str):
        at = draw(st.integers(0, min(len(value), 200)))
        insert = draw(st.sampled_from(["", "\0", "\n", " ", "\ud800", "é", "/", "%", '"', "..", value]))
        container[key] = value[:at] + insert + value[at + draw(st.integers(0, 3)) :]
    else:
        container[key] = draw(st.sampled_from([value + 1, value - 1, -value, value + 0.5, str(value), draw(_NUMBERS)]))


_NUMBERS = st.one_of(st.integers(), st.floats())
_MUTATIONS: list[Callable[[DrawFn, Any, Any, Any], None]] = [
    *(_replace, _replace, _replace, _nudge, _nudge),
    *(_drop, _move, _nest, _rename, _double),
]


@st.composite
def mutated_bytes(draw: DrawFn, *examples: bytes, tokens: Sequence[bytes] = TOKENS) -> bytes:
    """Mutants of binary or text examples: parts cut off, dropped, doubled, overwritten, or tokens inserted."""
    data = draw(st.sampled_from(examples))
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.sampled_from([0, 1, 2, 4, 8, 80, 512])))
        edit = draw(st.sampled_from(["insert", "overwrite", "byte", "drop", "double", "cut", "repeat"]))
        if edit == "insert":
            data = data[:at] + draw(st.sampled_from(tokens)) + data[at:]
        elif edit == "overwrite":
            token = draw(st.sampled_from(tokens))[: max(1, end - at)]
            data = data[:at] + token + data[at + len(token) :]
        elif edit == "byte":
            data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
        elif edit == "drop":
            data = data[:at] + data[end:]
        elif edit == "double":
            data = data[:end] + data[at:end] + data[end:]
        elif edit == "cut":
            data = data[:at]
        else:
            data = data[:at] + data[at:end] * draw(st.sampled_from([10, 1_000])) + data[end:]
    return data
