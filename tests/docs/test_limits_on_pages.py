"""The pages give the same limits as the code: for giving up a chunk, and for cubes from outside."""

from __future__ import annotations

import re

import pytest

from prismline_cube import fpack, gunzip, limits
from prismline_cube.zarr_codecs import NAMES
from prismline_ledger import Patience
from prismline_localstack.settings import REPOSITORY
from prismline_splitter import noise

WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}
ATTEMPTS, HOURS = Patience().max_attempts, round(Patience().seconds / 3600)
SPELT = rf"{WORDS.get(ATTEMPTS, ATTEMPTS)} attempts .{{0,80}}{WORDS.get(HOURS, HOURS)} hours"
#: For each page, a pattern of its text with the present limits.
SAID = {
    "docs/delivery.md": rf"{ATTEMPTS} attempts .{{0,80}}{HOURS} hours",
    "docs/protocol.md": rf"`MAX_ATTEMPTS` \({ATTEMPTS}\).{{0,80}}{WORDS.get(HOURS, HOURS)} hours",
    "docs/architecture.md": SPELT,
    "docs/runbooks/dead-letters.md": SPELT,
    "services/dlq-consumer/README.md": rf"`PATIENCE_SECONDS` \| {ATTEMPTS}, {Patience().seconds:.0f} \|",
}


@pytest.mark.parametrize("page", SAID)
def test_a_page_gives_the_limits_of_now(page: str) -> None:
    text = " ".join((REPOSITORY / page).read_text().split())
    assert re.search(SAID[page], text), (
        f"{page} gives other limits than `Patience` of libs/ledger/src/prismline_ledger/judgement.py"
    )


def _mib(n_bytes: int) -> str:
    return f"{n_bytes // 2**20} MiB"


#: For each row of the limits of cubes, the limit.
CUBES = {
    "channels": f"{limits.MAX_CHANNELS:,}",
    "axes, and the length of an axis": f"{limits.MAX_AXES}, and {limits.MAX_AXIS_LENGTH:,}",
    "decoded values of a compressed file (`.gz`, `.fz`, Zarr)": (
        f"{limits.MAX_EXPANSION} times its size, or {_mib(limits.ALWAYS_EXPANDED_BYTES)} if that is more"
    ),
    "HDUs before the image, and bytes of all their headers": (
        f"{limits.MAX_HDUS}, and {limits.MAX_HEADER_BYTES / 10**6:.2f} MB"
    ),
    "characters of a text in the header that is used": f"{limits.MAX_TEXT_LENGTH:,}",
    "gzip members": (
        f"{gunzip.ALWAYS_MEMBERS:,}; more hold at least {gunzip.LEAST_MEMBER_BYTES // 2**10} KiB on average"
    ),
    "a decoded tile, and the number of tiles": (
        f"{_mib(limits.MAX_TILE_BYTES)}, and {fpack.ALWAYS_TILES:,};"
        f" more hold at least {fpack.LEAST_TILE_BYTES} bytes on average"
    ),
    "codecs of Zarr": ", ".join(f"`{name}`" for name in NAMES),
    "a decoded chunk of Zarr, and the chunks of an array": (
        f"{_mib(limits.MAX_STORED_CHUNK_BYTES)}, and {limits.ALWAYS_STORED_CHUNKS:,};"
        f" more hold at least {limits.LEAST_STORED_CHUNK_BYTES // 2**10} KiB on average"
    ),
    "chunks of a shard": f"{limits.MAX_SHARD_CHUNKS:,}",
    "the list of members of a ZIP file": _mib(limits.MAX_DIRECTORY_BYTES),
    "descriptions (`zarr.json`) in a Zarr file": (
        f"{limits.MAX_DESCRIPTIONS}, together {_mib(limits.MAX_DESCRIPTION_BYTES)}"
    ),
    "noise as text": f"{noise.CHANNEL_TEXT_BYTES} bytes for each channel, and {_mib(noise.COMMENT_BYTES)}",
}


@pytest.mark.parametrize("what", CUBES)
def test_the_page_of_the_splitter_gives_the_limits_of_cubes(what: str) -> None:
    assert f"| {what} | {CUBES[what]}" in (REPOSITORY / "services/splitter/README.md").read_text()
