"""For tests: small files that claim more than they hold, and others that a reader of cubes must refuse."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from astropy.io import fits
from numcodecs import Blosc, Zstd

#: The size of a FITS file is a multiple of this many bytes.
RECORD = 2880
#: An array (channel, y, x) of float32 that is stored in one chunk.
SHAPE = (6, 4, 5)
#: Its values: each is the number of its place.
VALUES = np.arange(np.prod(SHAPE), dtype="<f4").reshape(SHAPE)
#: The names of its axes.
CTYPES: dict[str, Any] = {"CTYPE1": "GLON-CAR", "CTYPE2": "GLAT-CAR", "CTYPE3": "VRAD"}
#: The codec of values that are not compressed.
BYTES: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}


# ---- FITS


def fits_header(more: int = 0, **cards: Any) -> bytes:
    """A header of these cards and `more` comments, in whole records. Values are written as they are, right or wrong."""
    text = "".join(f"{name:8}= {_card_value(value):>20}".ljust(80) for name, value in cards.items())
    text += more * "COMMENT".ljust(80) + "END".ljust(80)
    return text.ljust(-(-len(text) // RECORD) * RECORD).encode("ascii")


def _card_value(value: Any) -> str:
    if isinstance(value, bool):
        return "T" if value else "F"
    return f"'{value:8}'" if isinstance(value, str) else str(value)


def fits_file(data: bytes | None = None, **cards: Any) -> bytes:
    """A cube of `VALUES`, with cards replaced or added."""
    given: dict[str, Any] = {"SIMPLE": True, "BITPIX": -32, "NAXIS": 3}
    given |= {f"NAXIS{n}": length for n, length in enumerate(reversed(SHAPE), start=1)} | CTYPES
    data = VALUES.astype(">f4").tobytes() if data is None else data
    return fits_header(**(given | cards)) + data.ljust(-(-len(data) // RECORD) * RECORD, b"\0")


def no_groups() -> bytes:
    """10^12 channels in no group: by the size of the data that GCOUNT = 0 gives, the file is complete."""
    return fits_file(b"", NAXIS1=1, NAXIS2=1, NAXIS3=10**12, GCOUNT=0).ljust(2 * RECORD, b"\0")


def empty_hdus(n: int) -> bytes:
    """A file of `n` HDUs without data."""
    return fits_header(SIMPLE=True, BITPIX=8, NAXIS=0) + fits_header(XTENSION="IMAGE", BITPIX=8, NAXIS=0) * (n - 1)


def tiles(**cards: Any) -> bytes:
    """A tile-compressed cube of `VALUES`, with cards of its table replaced or added."""
    body = io.BytesIO()
    unit = fits.CompImageHDU(VALUES.astype(">f4"), fits.Header(CTYPES), compression_type="GZIP_1", quantize_level=0)
    fits.HDUList([fits.PrimaryHDU(), unit]).writeto(body)
    found = body.getvalue()
    for name, value in cards.items():
        card = f"{name:8}= {_card_value(value):>20}".ljust(80).encode()
        if (at := found.find(card[:9])) >= 0:
            found = found[:at] + card + found[at + 80 :]
        else:
            at = found.index(b"END".ljust(80), RECORD)
            found = found[:at] + card + found[at : at + 80] + found[at + 160 :]
    return found


def gzip_bomb(n_bytes: int) -> bytes:
    """A FITS file of `n_bytes` bytes of zeros in gzip."""
    return gzip.compress(
        fits_header(SIMPLE=True, BITPIX=8, NAXIS=3, NAXIS1=1, NAXIS2=1, NAXIS3=n_bytes) + bytes(n_bytes)
    )


# ---- Zarr in ZIP


def description(**changes: Any) -> dict[str, Any]:
    """The description of an array of `VALUES`."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(SHAPE),
        "data_type": "float32",
        "chunk_grid": grid(SHAPE),
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [BYTES],
        "attributes": dict(CTYPES),
    } | changes


def grid(chunk_shape: Any) -> dict[str, Any]:
    """The chunk grid of a description."""
    return {"name": "regular", "configuration": {"chunk_shape": list(chunk_shape)}}


def sharded(shard: Any, chunk: Any, codecs: Any = (BYTES,), **configuration: Any) -> dict[str, Any]:
    """The fields of a description whose array is stored in shards."""
    inner = {"chunk_shape": list(chunk), "codecs": list(codecs), "index_codecs": [BYTES, {"name": "crc32c"}]}
    return {"chunk_grid": grid(shard), "codecs": [{"name": "sharding_indexed", "configuration": inner | configuration}]}


def zip_file(members: Mapping[str, bytes]) -> bytes:
    """A ZIP file that compresses nothing."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return body.getvalue()


def zarr_file(chunk: bytes | None = None, *, more: Mapping[str, bytes] | None = None, **changes: Any) -> bytes:
    """A cube of `VALUES` in a Zarr array. `changes` replace fields of its description, `chunk` its only chunk."""
    stored = VALUES.tobytes() if chunk is None else chunk
    document = json.dumps(description(**changes)).encode()
    return zip_file({"zarr.json": document, "c/0/0/0": stored, **(more or {})})


def forged_member(n_bytes: int = 10**15) -> bytes:
    """A Zarr file whose list of members says that the only chunk has `n_bytes` bytes."""
    body = bytearray(zarr_file())
    entry = body.rindex(b"PK\x01\x02")
    assert entry + 46 < len(body)
    name = body.index(b"c/0/0/0", entry)
    extra = struct.pack("<HHQQ", 1, 16, n_bytes, n_bytes)
    body[entry + 20 : entry + 28] = b"\xff" * 8
    body[entry + 30 : entry + 32] = struct.pack("<H", len(extra))
    body[name + 7 : name + 7] = extra
    end = body.rindex(b"PK\x05\x06")
    size = int.from_bytes(body[end + 12 : end + 16], "little")
    body[end + 12 : end + 16] = struct.pack("<L", size + len(extra))
    return bytes(body)


def forged_blosc() -> bytes:
    """A chunk whose Blosc header claims more bytes than there are, so that Blosc would read past their end."""
    packed = bytes(Blosc().encode(VALUES.tobytes()))
    return packed[: len(packed) // 2]


def zstd_bomb(n_bytes: int) -> bytes:
    """A chunk of `n_bytes` zeros."""
    return bytes(Zstd().encode(bytes(n_bytes)))


#: Codecs that compress, as a description names them.
BLOSC: dict[str, Any] = {"name": "blosc", "configuration": {}}
ZSTD: dict[str, Any] = {"name": "zstd", "configuration": {}}
GZIP: dict[str, Any] = {"name": "gzip", "configuration": {}}
#: Zarr files that no reader takes, with a part of the sentence.
BAD_ZARR: dict[str, tuple[bytes, str]] = {
    "a forged size of a member": (forged_member(), "claims 1,000,000,000,000,000 bytes, but the file has"),
    "a chunk shape of 0": (zarr_file(chunk_grid=grid([6, 0, 5])), "chunk shape has the length 0"),
    "a negative shape": (zarr_file(shape=[6, -4, 5]), "shape has the length -4"),
    "an axis beyond all numbers": (zarr_file(shape=[6, 10**400, 5]), "shape has the length 1000"),
    "a shape of text": (zarr_file(shape="abc"), "shape is not a list of integers"),
    "a thousand axes": (zarr_file(shape=[2] * 1000), "its shape has 1000 axes"),
    "an array of a petabyte without a chunk": (
        zarr_file(shape=[10**5, 10**5, 10**5], chunk_grid=grid([10, 10, 10])),
        "decode to 4,000,000,000,000,000 bytes",
    ),
    "a chunk of 4 GB": (zarr_file(chunk_grid=grid([1000, 1000, 1000])), "stored chunks decode to 4,000,000,000 bytes"),
    "millions of chunks": (zarr_file(shape=[3, 1000, 1000], chunk_grid=grid([1, 1, 1])), "has 3,000,000 stored chunks"),
    "millions of chunks in a shard": (
        zarr_file(**sharded([1000, 1000, 1000], [6, 4, 5])),
        "cannot be divided into chunks",
    ),
    "a shard with a giant index": (zarr_file(**sharded([600, 400, 500], [6, 4, 5])), "shards have 1,000,000 chunks"),
    "a shard in a shard": (
        zarr_file(**sharded(SHAPE, SHAPE, sharded(SHAPE, SHAPE)["codecs"])),
        "its shards are divided or encoded again",
    ),
    "a shard whose index is compressed": (
        zarr_file(**sharded(SHAPE, SHAPE, index_codecs=[BYTES, ZSTD])),
        "index of its",
    ),
    "a codec that unpickles": (
        zarr_file(codecs=[{"name": "numcodecs.pickle"}]),
        "its codec numcodecs.pickle is not one",
    ),
    "values compressed twice": (zarr_file(codecs=[BYTES, GZIP, ZSTD]), "compressed more than once"),
    "codecs of text": (zarr_file(codecs="bytes"), "its codec b is not one of"),
    "a codec without a name": (zarr_file(codecs=[{"nam": "bytes"}]), "one of its codecs has no name"),
    "a wrong configuration": (zarr_file(codecs=[{"name": "bytes", "configuration": {"x": 1}}]), "wrong configuration"),
    "a data type of a list": (zarr_file(data_type=[]), "its values are []"),
    "attributes of a list": (zarr_file(attributes=["CTYPE1"]), "0 of its 1 arrays have a FITS header"),
    "JSON that is nested too deeply": (zip_file({"zarr.json": b"[" * 100_000}), "its zarr.json is damaged"),
    "many descriptions": (
        zip_file({f"a{n}/zarr.json": b"{}" for n in range(200)}),
        "it has 200 arrays and groups; at most 100",
    ),
    "a long description": (zip_file({"zarr.json": b" " * 2**21}), "descriptions have 2,097,152 bytes"),
}
#: Zarr files whose description is right, and whose chunk is not, with a part of the sentence.
BAD_CHUNKS: dict[str, tuple[bytes, str]] = {
    "Blosc that ends early": (zarr_file(forged_blosc(), codecs=[BYTES, BLOSC]), "Blosc header has other sizes"),
    "Blosc without a header": (zarr_file(b"\2", codecs=[BYTES, BLOSC]), "Blosc header has other sizes"),
    "a Zstandard bomb": (zarr_file(zstd_bomb(2**28), codecs=[BYTES, ZSTD]), "Zstandard header has another size"),
    "Zstandard that claims 2^60 bytes": (
        zarr_file(b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**60), codecs=[BYTES, ZSTD]),
        "Zstandard header has another size",
    ),
    "a gzip bomb": (zarr_file(gzip.compress(bytes(2**26)), codecs=[BYTES, GZIP]), "gzip data decode to another size"),
    "a chunk that is too long": (zarr_file(bytes(2**20)), "which is more than a stored chunk takes"),
    "a shard whose index lies": (
        zarr_file(bytes(100) + struct.pack("<QQ", 50, 2**40), **sharded([12, 4, 5], SHAPE, index_codecs=[BYTES])),
        "is damaged: its index names the bytes",
    ),
}

#: FITS files, plain or compressed, that no reader takes, with a part of the sentence.
BAD_FITS: dict[str, tuple[bytes, str]] = {
    "no groups": (no_groups(), "header's GCOUNT is 0 and must be 1"),
    "many groups": (fits_file(GCOUNT=2), "header's GCOUNT is 2 and must be 1"),
    "parameters of groups": (fits_file(PCOUNT=7), "header's PCOUNT is 7 and must be 0"),
    "an axis that the file does not hold": (fits_file(NAXIS3=10**60), "truncated: its header promises more bytes than"),
    "a million axes": (fits_file(NAXIS=10**6), "header's NAXIS4 is missing"),
    "too many channels": (
        fits_file(bytes(2**21), BITPIX=8, NAXIS1=1, NAXIS2=1, NAXIS3=2**21),
        "has 2,097,152 channels; submit at most 1,048,576",
    ),
    "thousands of empty HDUs": (empty_hdus(7000), "the first 100 HDUs of the file hold no image data"),
    "a header without an end": (
        fits_file(more=40_000).replace(b"END".ljust(80), b"COMMENT".ljust(80)),
        "the header at byte 0 is damaged or endless",
    ),
    "a header that is too long": (fits_file(more=40_000), "the header at byte 0 is damaged or endless"),
    "a gzip bomb": (gzip_bomb(2**27), "the file expands to more than 67,108,864 bytes"),
    "a gzip file of empty members": (gzip.compress(fits_file()) + gzip.compress(b"") * 100_000, "gzip members with"),
    "tiles that corrupt the memory": (
        tiles(ZCMPTYPE="HCOMPRESS_1"),
        "compressed with HCOMPRESS_1, and not with one of",
    ),
    "tiles of 80 GB": (tiles(ZNAXIS3=10**9), "the file expands to 80,000,000,000 bytes"),
    "tiles without an extent": (tiles(ZTILE1=0), "its ZTILE1 is 0, and not an integer from 1"),
    "more tiles than rows": (tiles(ZNAXIS3=7), "has 28 tiles, but 24 are stored"),
    "tiles of four axes that the header lacks": (tiles(ZNAXIS=4), "its ZNAXIS4 is None, and not an integer"),
    "a table of tiles with 2^63 columns": (tiles(TFIELDS=2**63), "and not an integer from 1 to 999"),
    "tiles of an unknown type": (tiles(ZBITPIX=3), "its ZBITPIX is not one of"),
}
