"""Cubes, noise maps and chunk files. A cube is split both ways, and the worker reads the input of each chunk."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

import google_crc32c
import numpy as np
from astropy.io import fits
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from numcodecs import Blosc, Zstd

from prismline_api.maps.chunk_spectra import neighbours, read_spectra
from prismline_contracts.manifest import SpectraManifest
from prismline_contracts.objects import CubeGeometry, geometry_key
from prismline_cube import DisplayAxis
from prismline_cube.testing import (
    BAD_CHUNKS,
    BAD_FITS,
    BAD_ZARR,
    BLOSC,
    BYTES,
    CTYPES,
    GZIP,
    SHAPE,
    VALUES,
    ZSTD,
    description,
    fits_file,
    fits_header,
    grid,
    sharded,
    tiles,
    zip_file,
)
from prismline_ledger import NewChunk
from prismline_runtime import Bucket, PermanentError, UnavailableError
from prismline_runtime.storage import ObjectReader
from prismline_splitter.workload import Source
from prismline_splitter.workloads.spectra import SpectraSplitter
from prismline_worker.chunk_file import ChunkFile
from prismline_worker.cube_chunk import open_cube_chunk
from tests.fuzz.mutations import EXTREMES, documents, encoded, mutated_bytes
from tests.fuzz.target import Target

RUN, CUBE, NOISE = "run-1", "cubes/cube", "noise/noise"


# ---- the readers


class Folder:
    """A bucket in a folder. A range that does not arrive whole is a transient error, as in `Bucket`."""

    name = "bucket"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, key: str) -> Path:
        return self._folder / hashlib.md5(key.encode()).hexdigest()

    def write(self, key: str, body: bytes) -> None:
        self._path(key).write_bytes(body)

    def read(self, key: str) -> bytes:
        return self._path(key).read_bytes()

    def list(self, prefix: str) -> Sequence[str]:
        return []

    def version(self, key: str) -> str:
        return "etag"

    def size(self, key: str, *, etag: str) -> int:
        return self._path(key).stat().st_size

    def open(self, key: str) -> BinaryIO:
        return self._path(key).open("rb")

    def open_version(self, key: str, *, etag: str, size: int, part_bytes: int) -> BinaryIO:
        return io.BufferedReader(ObjectReader(partial(self.read_range, key, etag=etag), size), part_bytes)

    def read_range(self, key: str, start: int, stop: int, *, etag: str) -> bytes:
        with self.open(key) as file:
            file.seek(start)
            body = file.read(stop - start)
        if len(body) != stop - start:
            raise UnavailableError(f"{len(body)} of {stop - start} bytes arrived.")
        return body

    def download(self, key: str, to: Path, *, etag: str) -> None:
        shutil.copy(self._path(key), to)

    def upload(self, path: Path, key: str) -> None:
        shutil.copy(path, self._path(key))


def split_cube(data: bytes) -> None:
    """Split a cube into copies and into references, and read what the workers and the console read."""
    refusals = []
    for chunk_input in ("copy", "reference"):
        try:
            _split(data, None, chunk_input)
        except PermanentError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


def split_copy(data: bytes) -> None:
    """Split a cube into copies, and read them."""
    _split(data, None, "copy")


def _split(data: bytes, noise: bytes | None, chunk_input: str) -> None:
    with TemporaryDirectory(prefix="fuzz-") as name:
        work = Path(name) / "work"
        work.mkdir()
        bucket = cast("Bucket", Folder(Path(name)))
        bucket.write(CUBE, data)
        fields: dict[str, Any] = {"cube_key": CUBE, "survey": "s", "chunk_input": chunk_input}
        if noise is not None:
            bucket.write(NOISE, noise)
            fields["params"] = {"noise": NOISE}
        source = Source(RUN, bucket, work, lambda _, find: find(), lambda _: bucket, 0.002)
        split = SpectraSplitter().split(SpectraManifest.model_validate(fields), source)
        DisplayAxis.of(CubeGeometry.model_validate_json(bucket.read(geometry_key(RUN))))
        for chunk in split.chunks:
            _work_off(chunk, bucket)


def _work_off(chunk: NewChunk, bucket: Bucket) -> None:
    if chunk.reference is None:
        with bucket.open(chunk.chunk_key) as file:
            read_chunk_file(file.read(), n_items=chunk.n_items)
        return
    opened = open_cube_chunk(chunk.reference, RUN, bucket, bucket)
    for block in opened.blocks():
        assert block.spectra.shape == (len(block.x), opened.geometry.n_channels)
    item: Any = SimpleNamespace(cube_reference=chunk.reference)
    read_spectra(item, neighbours(0, chunk.n_items, opened.geometry.n_channels), bucket, lambda _: bucket)


def read_chunk_file(data: bytes, *, n_items: int = 3) -> None:
    """Read a chunk file as the worker and the console do."""
    with suppress(PermanentError), TemporaryDirectory(prefix="fuzz-") as name:
        bucket = cast("Bucket", Folder(Path(name)))
        bucket.write("chunk", data)
        item: Any = SimpleNamespace(cube_reference=None, chunk_key="chunk")
        read_spectra(item, range(min(n_items, 2)), bucket, lambda _: bucket)
    chunk = ChunkFile(io.BytesIO(data), n_items=n_items)
    for block in chunk.blocks():
        assert len(block.x) == len(block.spectra)


def read_noise(data: bytes) -> None:
    """Split a cube whose noise is in a file."""
    _split(fits_file(), data, "copy")


# ---- FITS

#: Values of cards, most of which are wrong in some place.
VALUES_OF_CARDS: tuple[Any, ...] = (
    *(
        0,
        1,
        -1,
        2,
        3,
        4,
        5,
        6,
        8,
        16,
        17,
        32,
        64,
        -32,
        -64,
        999,
        30_000,
        10**9,
        2**31 - 1,
        2**31,
        2**63,
        10**12,
        10**60,
    ),
    *(True, False, "", "x", "IMAGE", "BINTABLE", "VRAD", "FREQ-LSR", "WAVE-TAB", "RA---TAN", "RA---SIN-SIP", "m/s"),
    *(
        "GLON-CAR",
        "GLAT-CAR",
        "STOKES",
        "m**(1/0)",
        "RICE_1",
        "GZIP_1",
        "GZIP_2",
        "NOCOMPRESS",
        "PLIO_1",
        "HCOMPRESS_1",
    ),
    *(
        "1E999",
        "-1E308",
        "NaN",
        "0.0",
        "1.5",
        "-2.5D-1",
        "(1,2)",
        "'",
        "'a''",
        "/",
        "1.2.3",
        "\x7f",
        "1QB(5)",
        "1PE(3)",
    ),
)
#: Keywords that mean something to a reader.
KEYWORDS = (
    *("SIMPLE", "XTENSION", "BITPIX", "NAXIS", "NAXIS1", "NAXIS2", "NAXIS3", "NAXIS4", "PCOUNT", "GCOUNT", "GROUPS"),
    *(
        "END",
        "EXTEND",
        "BSCALE",
        "BZERO",
        "BLANK",
        "BUNIT",
        "OBJECT",
        "CONTINUE",
        "COMMENT",
        "HIERARCH",
        "CTYPE1",
        "CTYPE2",
    ),
    *(
        "CTYPE3",
        "CTYPE4",
        "CRVAL1",
        "CRPIX3",
        "CDELT3",
        "CUNIT1",
        "CUNIT3",
        "CD1_1",
        "CD3_3",
        "PC1_2",
        "PV2_1",
        "PS1_0",
    ),
    *("WCSAXES", "WCSAXESA", "CTYPE1A", "LONPOLE", "LATPOLE", "A_ORDER", "A_0_2", "BP_ORDER", "CPDIS1", "DP1", "D2IM1"),
    *("ZIMAGE", "ZCMPTYPE", "ZBITPIX", "ZNAXIS", "ZNAXIS1", "ZNAXIS3", "ZTILE1", "ZTILE2", "ZTILE3", "ZNAME1", "ZVAL1"),
    *("ZQUANTIZ", "ZDITHER0", "ZBLANK", "ZSCALE", "ZZERO", "ZNAME2", "ZVAL2", "THEAP", "TFIELDS", "TFORM1", "TTYPE1"),
    *("MJD-OBS", "DATE-OBS", "RADESYS", "EQUINOX", "SPECSYS", "RESTFRQ", "CROTA2", "VELREF", "TFORM2", "TTYPE2"),
)
#: Cards of a cube with coordinates, scaling and names.
FULL_CARDS: dict[str, Any] = {
    "CRVAL1": 30.0,
    "CRPIX1": 1.0,
    "CDELT1": -0.01,
    "CUNIT1": "deg",
    "CRVAL2": 0.0,
    "CRPIX2": 1.0,
    "CDELT2": 0.01,
    "CUNIT2": "deg",
    "CRVAL3": 1.0,
    "CRPIX3": 1.0,
    "CDELT3": 2.0,
    "CUNIT3": "m/s",
    "BUNIT": "K",
    "OBJECT": "W43",
}


@st.composite
def changed_cards(draw: DrawFn, *examples: bytes) -> bytes:
    """Mutants of FITS files: cards replaced, inserted, dropped or doubled; HDUs put before; data cut off or damaged."""
    data = draw(st.sampled_from(examples))
    if draw(st.integers(0, 9)) == 0:
        data = fits_header(SIMPLE=True, BITPIX=8, NAXIS=0) * draw(st.integers(1, 3)) + data
    cards = [
        at for at in range(0, len(data), 80) if data[at : at + 8].rstrip().isalnum() or data[at + 8 : at + 10] == b"= "
    ]
    for _ in range(draw(st.integers(0, 4))):
        at, name = draw(st.sampled_from(cards)), draw(st.sampled_from(KEYWORDS))
        if draw(st.booleans()):
            name = data[at : at + 8].decode("ascii", "replace").strip()
        card = _card(name, draw(st.sampled_from(VALUES_OF_CARDS)))
        same = data.find(f"{name:8}".encode())
        edit = draw(st.sampled_from(["set", "set", "set", "here", "drop", "double"]))
        if edit == "set" and same >= 0 and same % 80 == 0:
            data = data[:same] + card + data[same + 80 :]
        elif edit in ("set", "here"):
            data = data[:at] + card + data[at + 80 :]
        elif edit == "drop":
            data = data[:at] + b"COMMENT".ljust(80) + data[at + 80 :]
        else:
            data = data[:at] + data[at : at + 80] + data[at:-80]
    if draw(st.integers(0, 3)) == 0:
        data = draw(mutated_bytes(data))
    return data


def _card(name: str, value: Any) -> bytes:
    if isinstance(value, bool):
        value = "T" if value else "F"
    text = (
        f"{name:8.8}= {value!s:>20}"
        if not isinstance(value, str) or value[:1] in "-'/(0123456789N"
        else f"{name:8.8}= '{value:8}'"
    )
    return text.encode("ascii", "replace")[:80].ljust(80)


def gzipped(data: bytes) -> bytes:
    """A gzip file that is the same for the same `data`."""
    return gzip.compress(data, 1, mtime=0)


@cache
def packed_cubes() -> tuple[bytes, ...]:
    """Tile-compressed cubes of every compression that is read, of integers and of quantized floats."""
    found = []
    for kind in ("RICE_1", "GZIP_1", "GZIP_2", "NOCOMPRESS"):
        for values, how in ((VALUES.astype(">i2"), {}), (np.sin(VALUES), {"quantize_level": 16.0, "dither_seed": 1})):
            body = io.BytesIO()
            options: dict[str, Any] = {"compression_type": kind, **({} if kind == "NOCOMPRESS" else how)}
            unit = fits.CompImageHDU(np.tile(values, (1, 4, 8)), fits.Header(CTYPES), **options)
            with suppress(Exception):  # astropy does not write every combination
                fits.HDUList([fits.PrimaryHDU(), unit]).writeto(body)
                found.append(body.getvalue())
    return tuple(found)


# ---- Zarr


def zarr_examples() -> tuple[tuple[Any, Mapping[str, bytes]], ...]:
    """Descriptions of arrays, and their stored chunks."""
    raw = VALUES.tobytes()
    index = struct.pack("<QQ", 0, len(raw))
    compressors: dict[str, tuple[Any, bytes]] = {
        "blosc": (BLOSC, bytes(Blosc(cname="zstd", shuffle=Blosc.BITSHUFFLE).encode(raw))),
        "lz4": (BLOSC, bytes(Blosc(cname="lz4").encode(raw))),
        "zstd": (ZSTD, bytes(Zstd(checksum=True).encode(raw))),
        "gzip": (GZIP, gzipped(raw)),
    }
    examples = [(description(codecs=[BYTES, codec]), {"c/0/0/0": packed}) for codec, packed in compressors.values()]
    examples += [(description(), {"c/0/0/0": raw})]
    examples += [(description(**sharded(SHAPE, SHAPE, index_codecs=[BYTES])), {"c/0/0/0": raw + index})]
    examples += [
        (description(shape=[6, 8, 5], chunk_grid=grid([3, 4, 5])), {"c/0/0/0": raw[:240], "c/1/1/0": raw[:240]})
    ]
    transposed = {"name": "transpose", "configuration": {"order": [2, 0, 1]}}
    examples += [
        (
            description(codecs=[transposed, BYTES, {"name": "crc32c"}]),
            {"c/0/0/0": raw + struct.pack("<I", google_crc32c.value(raw))},
        )
    ]
    return tuple(examples)


def zip_of(document: Any, chunks: Mapping[str, bytes], name: str = "zarr.json") -> bytes:
    """A Zarr file of a description and stored chunks."""
    return zip_file({name: encoded(document)[: 2**21], **chunks})


@st.composite
def zarr_files(draw: DrawFn) -> bytes:
    """Mutants of Zarr files: the description, the chunks, the names of members, or the whole file."""
    document, chunks = draw(st.sampled_from(zarr_examples()))
    what = draw(st.integers(0, 9))
    if what < 6:
        document = draw(documents(document))
    members = dict(chunks)
    if what in (4, 5, 6, 7):
        members = {name: draw(mutated_bytes(chunk)) for name, chunk in chunks.items()}
    name = draw(st.sampled_from(["zarr.json"] * 8 + ["a/zarr.json", "a//zarr.json", "../zarr.json", "/zarr.json"]))
    data = zip_of(document, members, name)
    return draw(forged_zip(data)) if what >= 8 else data


@st.composite
def forged_zip(draw: DrawFn, data: bytes) -> bytes:
    """Mutants of a ZIP file: numbers in the headers of its members, in their list, and in the end of the list."""
    for _ in range(draw(st.integers(1, 3))):
        magic = draw(st.sampled_from([b"PK\3\4", b"PK\1\2", b"PK\1\2", b"PK\5\6"]))
        at = data.find(magic)
        if at < 0:
            break
        field = at + draw(st.integers(4, 46 if magic == b"PK\1\2" else 22))
        number = draw(st.sampled_from([0, 1, 255, 65_535, 2**31, 2**32 - 1, len(data), len(data) - 1, 40]))
        width = draw(st.sampled_from([1, 2, 4]))
        data = data[:field] + number.to_bytes(8, "little")[:width] + data[field + width :]
    return draw(mutated_bytes(data)) if draw(st.integers(0, 4)) == 0 else data


# ---- chunk files


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """An array in numpy's format."""
    body = io.BytesIO()
    np.save(body, array)
    return body.getvalue()


CHUNK = {
    "spectra.npy": npy(VALUES[:3, :, 0]),
    "x.npy": npy(np.arange(3, dtype="i4")),
    "y.npy": npy(np.arange(3, dtype="i4")),
    "longitude.npy": npy(np.zeros(3)),
    "latitude.npy": npy(np.zeros(3)),
    "noise.npy": npy(np.ones((3, 1))),
    "geometry.json": CubeGeometry(
        n_channels=4, ny=3, nx=1, ctype="VRAD", crval=0, crpix=1, cdelt=1, cunit="m/s", bunit="K", object_name="o",
        cube_key="c",
    ).model_dump_json().encode(),
}  # fmt: skip
ARRAY_TOKENS = (
    b"(3,)",
    b"(3, 4)",
    b"'<f4'",
    b"'|O'",
    b"'<f8'",
    b"'>i2'",
    b"'V9'",
    b"(-1, 4)",
    b"(3, 10**9)",
    b"True",
    b"((((",
)


@st.composite
def chunk_files(draw: DrawFn) -> bytes:
    """Mutants of chunk files: members damaged, dropped or exchanged, numbers of the ZIP format forged."""
    members = dict(CHUNK)
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(sorted(members)))
        how = draw(st.sampled_from(["bytes", "header", "drop", "exchange"]))
        if how == "bytes":
            members[name] = draw(mutated_bytes(members[name]))
        elif how == "header":
            members[name] = draw(mutated_bytes(members[name], tokens=ARRAY_TOKENS))
        elif how == "drop" and len(members) > 1:
            del members[name]
        else:
            members[name] = draw(st.sampled_from(sorted(CHUNK.values())))
    data = zip_file(members)
    return draw(forged_zip(data)) if draw(st.booleans()) else data


# ---- targets


def hostile(bad: Mapping[str, tuple[bytes, str]]) -> dict[str, bytes]:
    """Hostile files under names as the corpus has them."""
    return {name.replace(" ", "_").replace("^", "_to_the_"): body for name, (body, _) in bad.items()}


def _target(
    name: str, run: Callable[[bytes], None], inputs: SearchStrategy[bytes], corpus: Mapping[str, bytes]
) -> Target:
    return Target(name, run=cast("Callable[[bytes], str | None]", run), inputs=inputs, hostile=corpus, prepare=_prepare)


def _prepare() -> None:
    """Import what readers import for their first file."""
    split_cube(fits_file(**FULL_CARDS))
    split_cube(zip_of(*zarr_examples()[0]))


PLAIN = fits_file(**FULL_CARDS), fits_file(VALUES.astype(">i2").tobytes(), BITPIX=16, BLANK=3, BSCALE=0.5, BZERO=1.0)
NOISE_FITS = fits_file(np.ones(20, ">f4").tobytes(), NAXIS=2, NAXIS1=5, NAXIS2=4)
NOISE_TEXT = b"0.1\n0.2\n0.3\n0.4\n0.5\n0.6\n"

TARGETS = [
    _target("cube-fits", split_cube, changed_cards(*PLAIN), hostile(BAD_FITS)),
    _target(
        "cube-gzip",
        split_cube,
        st.one_of(mutated_bytes(*(gzipped(each) for each in PLAIN)), changed_cards(*PLAIN).map(gzipped)),
        {"a_member_that_is_cut_off": gzipped(PLAIN[0])[:-9], "a_wrong_checksum": gzipped(PLAIN[0])[:-8] + bytes(8)},
    ),
    _target(
        "cube-fpack",
        split_cube,
        st.deferred(lambda: changed_cards(*packed_cubes())),
        {
            "a_table_without_tiles": tiles(TTYPE1="x"),
            "tiles_of_an_unknown_format": tiles(TFORM1="1PX(3)"),
            "a_heap_outside_the_file": tiles(THEAP=10**12),
            "a_dithering_that_reads_before_its_random_numbers": tiles(
                ZQUANTIZ="SUBTRACTIVE_DITHER_1", ZDITHER0=-(10**6)
            ),
        },
    ),
    _target("cube-zarr", split_cube, zarr_files(), hostile(BAD_ZARR | BAD_CHUNKS)),
    _target(
        "noise",
        read_noise,
        st.one_of(
            changed_cards(NOISE_FITS, tiles()),
            mutated_bytes(
                NOISE_TEXT, tokens=(b"nan", b"1e999", b"#", b",", b"0x1", b"1_0", b"\xff", b"\0", b"9" * 5000)
            ),
        ),
        {
            "a_map_that_claims_a_terabyte": fits_header(SIMPLE=True, BITPIX=-64, NAXIS=2, NAXIS1=10**6, NAXIS2=10**6),
            "text_that_is_too_long": b"1\n" * 2**20,
            "text_with_a_long_line": b"1 " * 2**18,
            "thousands_of_empty_hdus": hostile(BAD_FITS)["thousands_of_empty_HDUs"],
        },
    ),
    _target(
        "chunk-file",
        read_chunk_file,
        chunk_files(),
        {
            "an_array_header_of_four_gigabytes": zip_file(
                CHUNK | {"x.npy": b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(9)}
            ),
            "an_array_of_python_objects": zip_file(CHUNK | {"y.npy": npy(np.array([{}, {}, {}]))}),
            "a_geometry_of_extremes": zip_file(CHUNK | {"geometry.json": encoded({"n_channels": EXTREMES[-1]})}),
            "a_shape_of_terabytes": zip_file(CHUNK | {"x.npy": npy(np.zeros(1)).replace(b"(1,), ", b"(9**9,)")}),
        },
    ),
]
