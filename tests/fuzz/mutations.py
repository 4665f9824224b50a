"""Strategies that mutate valid examples: most mutants pass the first checks of a parser and break a later one."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

T = TypeVar("T")

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
    *(list(range(2_000)), {f"k{number}": number for number in range(500)}, ["x"] * 2_000),
    json.loads("[" * 150 + "]" * 150),
    json.loads('{"a":' * 150 + "1" + "}" * 150),
)
_NUMERIC = [value for value in EXTREMES if isinstance(value, int | float)]
_TEXTS = [value for value in EXTREMES if isinstance(value, str)]
#: The extremes of the same type: they pass the first check of a value.
_ALIKE: dict[type, Sequence[Any]] = {int: _NUMERIC, float: _NUMERIC, str: _TEXTS}
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
    """Mutants of JSON documents, as bytes. One in three is mutated as bytes again."""
    return st.one_of(documents(*examples).map(encoded), documents(*examples).map(encoded), _broken_json(examples))


def encoded(document: Any) -> bytes:
    """The JSON of a document. Text that is not ASCII is escaped only where UTF-8 cannot encode it."""
    try:
        return json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(document).encode()


@st.composite
def _broken_json(draw: DrawFn, examples: Sequence[Any]) -> bytes:
    return draw(mutated_bytes(encoded(draw(documents(*examples)))))


@st.composite
def documents(draw: DrawFn, *examples: Any) -> Any:
    """Mutants of JSON documents: fields dropped, renamed, doubled, moved, nested, or replaced with extreme values."""
    root = [copy.deepcopy(_one_of(draw, examples))]
    for _ in range(draw(_FEW)):
        places = list(_places(root))
        container, key = _one_of(draw, places)
        _one_of(draw, _MUTATIONS)(draw, container, key, places)
        if not root:
            return None
    return root[0]


def _one_of(draw: DrawFn, values: Sequence[T]) -> T:
    """One of some values. A new `sampled_from` for each draw would take longer."""
    return values[draw(_INDEX) % len(values)]


def _places(container: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a document that holds a value: its container, and its key or index. Long lists are cut off."""
    keys = list(container) if isinstance(container, dict) else range(len(container))
    for key in keys[:50]:
        yield container, key
        if isinstance(container[key], dict | list):
            yield from _places(container[key])


def _replace(draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    alike = _ALIKE.get(type(container[key]), EXTREMES)
    container[key] = copy.deepcopy(_one_of(draw, alike if draw(st.booleans()) else EXTREMES))


def _drop(_draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    del container[key]


def _move(draw: DrawFn, container: Any, key: Any, places: Any) -> None:
    other, other_key = _one_of(draw, places)
    container[key] = copy.deepcopy(other[other_key])


def _nest(draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    value = container[key]
    container[key] = _one_of(draw, [[value], {"a": value}, [value, value], {str(key): value}])


def _rename(draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    if isinstance(container, dict):
        name = _one_of(draw, [f"{key}x", str(key).upper(), "", "__proto__", "\ud800"])
        container[name] = container.pop(key)


def _double(draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    if isinstance(container, dict):
        container[_Twin(key)] = copy.deepcopy(_one_of(draw, EXTREMES))
    else:
        container.insert(key, copy.deepcopy(container[key]))


def _nudge(draw: DrawFn, container: Any, key: Any, _places: Any) -> None:
    """Change a value a little: another number, or a text with something inserted, cut off or repeated."""
    value = container[key]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return
    if isinstance(value, str):
        at = draw(_INDEX) % min(len(value) + 1, 200)
        insert = _one_of(draw, ["", "\0", "\n", " ", "\ud800", "é", "/", "%", '"', "..", value])
        container[key] = value[:at] + insert + value[at + draw(_FEW) :]
    else:
        container[key] = _one_of(draw, [value + 1, value - 1, -value, str(value), draw(_NUMBERS)])


_FEW, _INDEX, _NUMBERS = st.integers(0, 4), st.integers(0, 2**20), st.one_of(st.integers(), st.floats())
_MUTATIONS: list[Callable[[DrawFn, Any, Any, Any], None]] = [
    *(_replace, _replace, _replace, _nudge, _nudge),
    *(_drop, _move, _nest, _rename, _double),
]


@st.composite
def mutated_bytes(draw: DrawFn, *examples: bytes, tokens: Sequence[bytes] = TOKENS) -> bytes:
    """Mutants of binary or text examples: parts cut off, dropped, doubled, overwritten, or tokens inserted."""
    data = _one_of(draw, examples)
    for _ in range(draw(_FEW)):
        at = draw(_INDEX) % (len(data) + 1)
        end = min(len(data), at + _one_of(draw, (0, 1, 2, 4, 8, 80, 512)))
        part, token = data[at:end], _one_of(draw, tokens)
        edits = {
            "insert": data[:at] + token + data[at:],
            "overwrite": data[:at] + token[: max(1, len(part))] + data[at + len(token[: max(1, len(part))]) :],
            "byte": data[:at] + bytes([draw(_INDEX) % 256]) + data[at + 1 :],
            "drop": data[:at] + data[end:],
            "double": data[:end] + part + data[end:],
            "repeat": data[:at] + part * 1_000 + data[end:],
            "cut": data[:at],
        }
        data = _one_of(draw, [*edits.values()])
    return data
