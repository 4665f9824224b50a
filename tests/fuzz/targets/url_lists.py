"""Lists of URLs: JSON Lines, CSV and text, plain and as gzip files.

Random lists have at most `MOST_BYTES`. The time to read a list grows with its lines, a million of them in some seconds,
and the splitter reads them in slices.
"""

from __future__ import annotations

import gzip
import io
from functools import partial

from hypothesis import strategies as st

from prismline_splitter.lists import ListFormat, UrlList
from prismline_splitter.rows import blocks
from tests.fuzz.mutations import mutated_bytes
from tests.fuzz.target import Target

TEXT = b"https://example.com/\nhttp://example.org:8080/a?b=c#d\n\nhttps://xn--bcher-kva.example/%20\n"
JSONL = b'"https://example.com/"\n{"url": "https://example.org/a", "id": 7}\n{"url": "http://[2001:db8::1]/"}\n'
CSV = b'id,url,note\n1,https://example.com/,"a ""note"""\n2,"https://example.org/\n",x\n'
#: Longest random list.
MOST_BYTES = 200_000
EXAMPLES: dict[ListFormat, bytes] = {"text": TEXT, "jsonl": JSONL, "csv": CSV}


def read_list(data: bytes, list_format: ListFormat, *, compressed: bool = False) -> None:
    """Read a list as the splitter does: estimate its length, then read it in blocks, and continue after the first."""
    urls = UrlList(io.BytesIO(data), list_format, compressed=compressed, name="lists/list")
    urls.estimated_lines()
    after = None
    for block in blocks(urls.lines(), 2):
        after = after or block.after
    if after is not None:
        for _ in urls.lines(after):
            pass


def shortened(data: bytes) -> bytes:
    return data[:MOST_BYTES]


def gzipped(data: bytes) -> bytes:
    """A gzip file that is the same for the same `data`."""
    return gzip.compress(data, 1, mtime=0)


HOSTILE: dict[ListFormat, dict[str, bytes]] = {
    "text": {
        "a_line_of_a_million_characters": b"https://example.com/" + b"a" * 10**6,
        "bytes_that_are_not_utf_8": b"https://example.com/\xff\xfe\n",
        "a_port_that_is_too_large": b"https://example.com:99999999/\n",
        "an_open_bracket_of_an_ipv6_address": b"http://[::1\n",
    },
    "jsonl": {
        "a_document_that_is_nested_a_hundred_thousand_times": b"[" * 100_000,
        "a_number_of_five_thousand_digits": b"9" * 5_000,
        "a_half_of_a_surrogate_pair": b'{"url": "https://example.com/\\ud800"}',
        "a_member_that_is_there_twice": b'{"url": "https://example.com/", "url": {}}',
    },
    "csv": {
        "a_quote_that_is_never_closed": b'url\n"https://example.com/\n' + b"x\n" * 10_000,
        "a_header_without_the_column": b"uri\nhttps://example.com/\n",
        "a_null_character_in_the_header": b"ur\0l,url\nhttps://example.com/\n",
        "a_header_of_a_million_columns": b"," * 10**6 + b"url\n",
    },
}
GZIP_HOSTILE = {
    "a_file_that_is_cut_off": gzipped(TEXT)[:-9],
    "a_file_with_a_wrong_checksum": gzipped(TEXT)[:-8] + bytes(8),
    "a_file_that_expands_a_thousand_times": gzipped(bytes(10**7)),
    "text_that_is_not_compressed": TEXT,
}

TARGETS = [
    Target(
        f"list-{name}",
        run=partial(read_list, list_format=name),
        inputs=mutated_bytes(example).map(shortened),
        hostile=HOSTILE[name],
    )
    for name, example in EXAMPLES.items()
] + [
    Target(
        "list-gzip",
        run=partial(read_list, list_format="text", compressed=True),
        inputs=st.one_of(
            mutated_bytes(gzipped(TEXT), gzipped(TEXT * 20)).map(shortened),
            mutated_bytes(TEXT, tokens=[b"\n" * 10**4, b"a" * 10**6]).map(shortened).map(gzipped),
        ),
        hostile=GZIP_HOSTILE,
    )
]
