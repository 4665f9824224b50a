"""An author's work: the lines that a runner writes, which the author's code may have damaged, and a file of items."""

from __future__ import annotations

import io
import json
from typing import Any

from prismline.protocol import read_reply
from prismline.sources import rows_of
from prismline.values import encode
from tests.fuzz.mutations import json_bytes, mutated_bytes
from tests.fuzz.target import Target

USAGE = {"memory": 50_000_000, "files": 8, "children": 0}
REPLIES: list[dict[str, Any]] = [
    {"kind": "done", "item_id": "a", "duration_ms": 3, "usage": USAGE, "value": {"n": [1, 2.5, None]}},
    {
        "kind": "failed",
        "item_id": "a",
        "error": "why",
        "error_type": "ValueError",
        "traceback": "line",
        "permanent": False,
        "attempts": 3,
        "delay": 1.0,
        "starved": True,
        "duration_ms": 3,
        "usage": USAGE,
    },
    {"kind": "refused", "error": "No module named 'a'", "error_type": "ModuleNotFoundError"},
    {
        "kind": "ready",
        "version": 1,
        "description": {"name": "a", "item": {}, "parameters": {}, "limits": {"timeout": 1.5}, "code": "0"},
        "usage": USAGE,
    },
]
ITEMS = b'{"path": "a.fits", "n": [1, 2.5]}\n\n"text"\n7\n{"path": "\\u00fc"}\r\n'


def reply(data: bytes) -> str | None:
    """Read a line of a runner, as a supervisor does. A value can be written again."""
    found = read_reply(data)
    if found is not None and found.kind == "done":
        encode(found.value)
    return "The line is no answer." if found is None else None


def items(data: bytes) -> str | None:
    """Read all rows of a file. Each item can be written again. Returns the longest reason of a rejected row."""
    reasons = [""]
    for row in rows_of(io.BytesIO(data)):
        reasons.append(row.rejected)
        if not row.rejected:
            encode(row.item)
    return max(reasons, key=len) or None


TARGETS = [
    Target(
        "runner-replies",
        run=reply,
        inputs=json_bytes(*REPLIES),
        hostile={
            "nested_a_hundred_thousand_times": b"[" * 100_000,
            "a_value_that_is_not_a_number": json.dumps(REPLIES[0]).replace("2.5", "NaN").encode(),
            "a_duration_of_four_hundred_digits": json.dumps({**REPLIES[0], "duration_ms": 10**400}).encode(),
            "an_error_with_half_of_a_surrogate_pair": json.dumps({**REPLIES[1], "error": "\ud800"}).encode(),
            "limits_below_zero": json.dumps(REPLIES[3]).replace("1.5", "-1.5").encode(),
            "an_empty_line": b"",
        },
    ),
    Target(
        "items-jsonl",
        run=items,
        inputs=mutated_bytes(ITEMS, ITEMS * 20),
        hostile={
            "a_line_of_three_megabytes": b'"' + b"a" * 3_000_000 + b'"\n1\n',
            "nested_a_hundred_thousand_times": b"[" * 100_000,
            "a_number_of_five_thousand_digits": b"9" * 5_000,
            "a_number_that_is_infinite": b"1e999\n-1" + b"0" * 400 + b".0e300\n",
            "half_of_a_surrogate_pair": b'{"\\ud800": "\\udfff\\ud800"}\n',
            "bytes_that_are_not_utf_8": b"\xff\xfe\n\x80\n",
            "a_null_character": b"\0\n",
        },
    ),
]
