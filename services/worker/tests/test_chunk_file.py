from __future__ import annotations

import errno
import io
import ssl
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prismline_contracts.objects import CubeGeometry
from prismline_runtime.errors import PermanentError, TransientError, UnavailableError
from prismline_worker.chunk_file import ChunkFile, SpectraBlock

SPECTRA = np.arange(24, dtype=np.float32).reshape(3, 8)
PIXELS = np.arange(3, dtype=np.int64)


def npz(save=np.savez, **changes):
    """A chunk file with `changes` to its arrays; None leaves one out."""
    arrays = {"spectra": SPECTRA, "x": PIXELS, "y": PIXELS + 7} | changes
    body = io.BytesIO()
    save(body, **{name: array for name, array in arrays.items() if array is not None})
    return body.getvalue()


def read_chunk(body, **limits):
    chunk = ChunkFile(io.BytesIO(body), **limits)
    return chunk.take(range(len(chunk)))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f4"])
def test_a_chunk_is_read_as_it_was_written(save, dtype):
    chunk = read_chunk(npz(save, spectra=SPECTRA.astype(dtype)), n_items=3)
    np.testing.assert_array_equal(chunk.spectra, SPECTRA)
    np.testing.assert_array_equal(chunk.x, [0, 1, 2])
    np.testing.assert_array_equal(chunk.y, [7, 8, 9])
    assert chunk.x.dtype == chunk.y.dtype == np.int32


def test_blank_channels_are_kept():
    spectra = np.where(SPECTRA == 5, np.nan, SPECTRA)
    np.testing.assert_array_equal(read_chunk(npz(spectra=spectra)).spectra, spectra)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", "not a complete .npz file"),
        (b"GIF89a", "not a complete .npz file"),
        (npz()[:-30], "not a complete .npz file"),
        (npz()[: len(npz()) // 2], "not a complete .npz file"),
        (npz(spectra=None), "lacks spectra.npy"),
        (npz(x=None, y=None), "lacks x.npy, y.npy"),
        (npz(spectra=np.array([[object()]])), "array spectra cannot be read: it holds Python objects"),
        (npz(y=np.array([{}, {}, {}])), "array y cannot be read: it holds Python objects"),
        (npz(spectra=SPECTRA[0]), r"shape \(8,\), not \(spectra, channels\)"),
        (npz(spectra=SPECTRA[None]), r"shape \(1, 3, 8\)"),
        (npz(spectra=SPECTRA[:0], x=PIXELS[:0], y=PIXELS[:0]), r"shape \(0, 8\)"),
        (npz(spectra=SPECTRA[:, :0]), r"shape \(3, 0\)"),
        (npz(spectra=SPECTRA.astype(int)), "spectra are int64, not float32 or float64"),
        (npz(spectra=SPECTRA.astype(complex)), "spectra are complex128"),
        (npz(spectra=SPECTRA.astype("U8")), "spectra are <U8"),
        (npz(x=PIXELS.astype(float)), "x is float64, not integer"),
        (npz(x=PIXELS[:2]), r"x has the shape \(2,\), but there are 3 spectra"),
        (npz(y=PIXELS[:, None]), r"y has the shape \(3, 1\), but there are 3 spectra"),
        (npz(y=PIXELS - 1), "y holds values that are not pixel indices"),
        (npz(x=PIXELS + 2**31), "x holds values that are not pixel indices"),
        (npz(x=PIXELS.astype(np.uint64) + np.uint64(2**63)), "x holds values that are not pixel indices"),
    ],
)
def test_a_file_that_is_not_a_chunk_is_refused_with_the_cause_in_one_sentence(body, cause):
    with pytest.raises(PermanentError, match=cause) as caught:
        read_chunk(body)
    assert str(caught.value).startswith("The chunk file")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_chunk_with_another_number_of_spectra_than_its_message_says_is_refused():
    with pytest.raises(PermanentError, match="holds 3 spectra, but its message says 4"):
        read_chunk(npz(), n_items=4)


def test_a_chunk_is_never_in_memory_as_a_whole():
    body = npz(np.savez_compressed, spectra=np.zeros((10_000, 1000)), x=np.arange(10_000), y=np.arange(10_000))
    tracemalloc.start()
    try:
        blocks = [len(block.spectra) for block in ChunkFile(io.BytesIO(body)).blocks(800_000)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert blocks == [100] * 100
    assert peak < 8_000_000


@pytest.mark.parametrize(
    ("shape", "cause"),
    [((100_000, 1), "x takes 800000 bytes; at most 400000 may be"), ((1, 100_000), "spectra have 100000 channels")],
)
def test_pixels_or_a_spectrum_that_take_too_much_memory_are_refused(shape, cause):
    pixels = np.arange(shape[0], dtype=np.int64)
    body = npz(np.savez_compressed, spectra=np.zeros(shape), x=pixels, y=pixels)
    with pytest.raises(PermanentError, match=cause):
        read_chunk(body, max_bytes=400_000)


def test_spectra_that_are_stored_channel_by_channel_are_refused():
    with pytest.raises(PermanentError, match="stored channel by channel"):
        read_chunk(npz(spectra=np.asfortranarray(SPECTRA)))


def test_damaged_spectra_are_found_by_their_checksum():
    body = bytearray(npz())
    body[body.index(SPECTRA.tobytes()) + 40] ^= 1
    with pytest.raises(PermanentError, match="Bad CRC-32"):
        read_chunk(bytes(body))


class Failing(io.BytesIO):
    """A file whose reads fail from the given one on."""

    def __init__(self, body, error, after=0):
        super().__init__(body)
        self.error, self.left = error, after

    def read(self, *arguments):
        self.left -= 1
        if self.left < 0:
            raise self.error
        return super().read(*arguments)


def reads_of_a_chunk():
    file = Failing(npz(), AssertionError(), after=1000)
    chunk = ChunkFile(file)
    list(chunk.blocks())
    return 1000 - file.left


@pytest.mark.parametrize(
    "error",
    [
        TransientError("S3 is down."),
        UnavailableError("S3 is down."),
        ssl.SSLError("decryption failed or bad record mac"),
        ConnectionResetError("reset by peer"),
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_while_reading_the_file_is_not_the_chunks_fault(error):
    for after in range(reads_of_a_chunk()):
        with pytest.raises(TransientError) as caught:
            list(ChunkFile(Failing(npz(), error, after)).blocks())
        if isinstance(error, OSError):
            assert isinstance(caught.value, UnavailableError)
            assert type(error).__name__ in str(caught.value)


def test_a_worker_without_memory_tries_the_chunk_again():
    with pytest.raises(TransientError, match="the worker has not enough memory"):
        list(ChunkFile(Failing(npz(), MemoryError())).blocks())


def test_an_array_whose_header_claims_four_gigabytes_is_refused_before_it_is_read():
    body = with_member(npz(x=None), "x.npy", b"\x93NUMPY\2\0" + b"\xff" * 4 + bytes(1000))
    with pytest.raises(PermanentError, match=r"array x cannot be read: its format has the version \(2, 0\)"):
        read_chunk(body)


def test_a_list_of_members_that_is_too_long_is_refused():
    body = npz()
    for n in range(2):
        body = with_member(body, f"{n}" + "x" * 60_000, b"")
    with pytest.raises(PermanentError, match="its list of members has"):
        read_chunk(body)


def test_more_channels_than_a_cube_may_have_are_refused():
    with pytest.raises(PermanentError, match="spectra have 1048577 channels"):
        read_chunk(npz(np.savez_compressed, spectra=np.zeros((3, 2**20 + 1), np.float32)))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_chunk_with_another_compression_method_is_refused(method):
    body = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(npz())) as source, zipfile.ZipFile(body, "w", method) as packed:
        for name in source.namelist():
            packed.writestr(name, source.read(name))
    with pytest.raises(PermanentError, match="compressed with a method that numpy does not use"):
        read_chunk(body.getvalue())


@given(rows=st.sets(st.integers(0, 49), min_size=1), most_bytes=st.integers(1, 2000))
def test_rows_and_blocks_are_parts_of_all_spectra(rows, most_bytes):
    spectra = np.arange(50 * 8, dtype=np.float32).reshape(50, 8)
    chunk = ChunkFile(io.BytesIO(npz(spectra=spectra, x=np.arange(50), y=np.arange(50))))
    blocks = list(chunk.blocks(most_bytes))
    np.testing.assert_array_equal(np.concatenate([block.spectra for block in blocks]), spectra)
    taken = chunk.take(sorted(rows))
    np.testing.assert_array_equal(taken.spectra, spectra[sorted(rows)])
    assert taken.x.tolist() == taken.y.tolist() == sorted(rows)


def test_a_zip_directory_that_understates_a_size_gains_nothing():
    body = bytearray(npz(np.savez_compressed, spectra=np.zeros((1000, 1000)), x=np.arange(1000), y=np.arange(1000)))
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        true_size = struct.pack("<L", archive.getinfo("spectra.npy").file_size)
    directory = body.index(b"PK\x01\x02")
    at = body.index(true_size, directory)
    body[at : at + 4] = struct.pack("<L", 200)
    tracemalloc.start()
    try:
        with pytest.raises(PermanentError, match="Bad CRC-32"):
            read_chunk(bytes(body))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_header_that_claims_more_than_the_file_holds_is_refused():
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 2**10)})
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr("spectra.npy", member.getvalue())
        for name in ("x.npy", "y.npy"):
            pixels = io.BytesIO()
            np.save(pixels, PIXELS)
            archive.writestr(name, pixels.getvalue())
    with pytest.raises(PermanentError, match=f"holds {2**40} spectra, but its message says 3"):
        read_chunk(body.getvalue(), n_items=3)
    with pytest.raises(PermanentError, match=r"x has the shape \(3,\)"):
        read_chunk(body.getvalue())


WHOLE = npz()
PACKED = npz(np.savez_compressed)


@given(
    body=st.sampled_from([WHOLE, PACKED]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.floats(0.5, 1),
)
@example(body=WHOLE, changes=[(0.0, 0)], cut=1.0)
@settings(deadline=None, max_examples=300)
def test_a_damaged_chunk_is_either_refused_or_well_formed(body, changes, cut):
    damaged = bytearray(body)
    for place, value in changes:
        damaged[int(place * len(damaged))] = value
    try:
        chunk = read_chunk(bytes(damaged[: int(cut * len(damaged))]), n_items=3)
    except PermanentError:
        return
    assert isinstance(chunk, SpectraBlock)
    assert chunk.spectra.ndim == 2
    assert chunk.x.shape == chunk.y.shape == (3,)


@given(st.binary(max_size=200))
def test_bytes_that_are_not_a_zip_file_are_refused(body):
    with pytest.raises(PermanentError):
        read_chunk(body)


# ---- arrays that a newer splitter adds


def with_member(body, name, content):
    file = io.BytesIO(body)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, content)
    return file.getvalue()


GEOMETRY = CubeGeometry(
    n_channels=8, ny=9, nx=3, ctype="VRAD", crval=0.0, crpix=1.0, cdelt=1.0, cunit="m/s", bunit="K", object_name="",
    cube_key="c",
)  # fmt: skip


def test_rows_keep_their_coordinates_and_their_noise():
    longitude, noise = np.array([1.0, np.nan, 3.0]), np.array([[0.1], [0.2], [0.3]])
    chunk = ChunkFile(io.BytesIO(npz(longitude=longitude, latitude=-longitude, noise=noise)))
    taken = chunk.take([0, 2])
    np.testing.assert_array_equal(taken.longitude, [1.0, 3.0])
    np.testing.assert_array_equal(taken.noise, [[0.1], [0.3]])
    (first, *_), (*_, last) = list(chunk.blocks(32)), list(chunk.blocks(32))
    assert (first.longitude[0], last.latitude[0], last.noise[0, 0]) == (1.0, -3.0, 0.3)


def test_every_row_has_the_noise_of_the_channels():
    noise = np.linspace(0.1, 0.8, 8)[None, :]
    for block in ChunkFile(io.BytesIO(npz(noise=noise))).blocks(32):
        np.testing.assert_array_equal(block.noise, noise)


def test_the_input_of_an_older_splitter_has_neither():
    chunk = ChunkFile(io.BytesIO(npz()))
    assert chunk.geometry is None
    assert chunk.take([0]).longitude is chunk.take([0]).noise is None


def test_the_geometry_is_read_from_the_chunk():
    body = with_member(npz(), "geometry.json", GEOMETRY.model_dump_json())
    assert ChunkFile(io.BytesIO(body)).geometry == GEOMETRY


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (npz(longitude=np.zeros(2)), r"longitude is float64 of shape \(2,\), not float of \(3,\)"),
        (npz(latitude=PIXELS), "latitude is int64"),
        (npz(noise=np.zeros((3, 8))), r"noise is float64 of shape \(3, 8\), not float of \(3, 1\) or \(1, 8\)"),
        (with_member(npz(), "geometry.json", "{}"), "geometry is invalid: n_channels"),
        (with_member(npz(), "geometry.json", " " * 100_000), "geometry is too long"),
    ],
)
def test_invalid_coordinates_noise_or_geometry_are_refused(body, cause):
    with pytest.raises(PermanentError, match=cause) as caught:
        read_chunk(body)
    assert "\n" not in str(caught.value)
