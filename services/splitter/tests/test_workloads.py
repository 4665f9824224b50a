from __future__ import annotations

import errno
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS

from prismline_contracts.captions import CaptionsManifest, CaptionWindow
from prismline_contracts.manifest import SpectraManifest
from prismline_contracts.objects import CubeGeometry
from prismline_runtime import PermanentError
from prismline_splitter.workload import Source, workload_named, workload_names
from prismline_splitter.workloads import spectra as spectra_module
from prismline_splitter.workloads.captions import CaptionsSplitter
from prismline_splitter.workloads.spectra import SpectraSplitter


class FolderBucket:
    """A fake bucket that keeps its objects in a folder."""

    name = "folder"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.uploaded: list[str] = []

    def path(self, key: str) -> Path:
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, key: str, body: bytes) -> None:
        self.path(key).write_bytes(body)

    def upload(self, path: Path, key: str) -> None:
        self.uploaded.append(key)
        shutil.copy(path, self.path(key))

    def list(self, prefix: str) -> list[str]:
        return sorted(f"{prefix}{path.name}" for path in self.path(f"{prefix}x").parent.iterdir())

    def version(self, key: str) -> str:
        return hashlib.md5(self.path(key).read_bytes()).hexdigest()

    def size(self, key: str, *, etag: str) -> int:
        assert self.version(key) == etag
        return self.path(key).stat().st_size

    def download(self, key: str, to: Path, *, etag: str) -> None:
        assert self.version(key) == etag
        shutil.copy(self.path(key), to)


@pytest.fixture
def bucket(tmp_path: Path) -> FolderBucket:
    return FolderBucket(tmp_path / "bucket")


@pytest.fixture
def source(bucket: FolderBucket, tmp_path: Path) -> Source:
    (tmp_path / "work").mkdir()
    plan: dict[str, Any] = {}

    def pinned(name: str, find: Callable[[], Any]) -> Any:
        if name not in plan:
            plan[name] = find()
        return plan[name]

    return Source("r-1", bucket, tmp_path / "work", pinned, lambda _: bucket, 0.002)  # type: ignore[arg-type]


def put_cube(bucket: FolderBucket, data: np.ndarray, **header: Any) -> None:
    hdu = fits.PrimaryHDU(data)
    hdu.header["CTYPE3"] = "VRAD"
    hdu.header.update(header)
    hdu.writeto(bucket.path("cubes/c.fits"))


def manifest(**fields: Any) -> SpectraManifest:
    return SpectraManifest(cube_key="cubes/c.fits", survey="s", **fields)


def test_each_module_is_a_workload_of_its_name() -> None:
    assert sorted(workload_names()) == ["captions", "spectra", "urls"]
    assert {name: workload_named(name).name for name in workload_names()} == {name: name for name in workload_names()}


def test_a_run_of_urls_does_not_import_the_library_that_reads_cubes() -> None:
    code = (
        "import sys, prismline_splitter.handler, prismline_splitter.submission as submission\n"
        'submission.parse_manifest(b\'{"workload": "urls", "survey": "s", "urls": ["https://example.org/"]}\', "m")\n'
        "assert 'prismline_splitter.workloads.urls' in sys.modules\n"
        "print('astropy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("size", "block_bytes"), [(7, 10**6), (7, 3 * 8 * 5), (1, 10**6), (100, 64)])
def test_chunks_hold_the_cubes_spectra_whatever_their_size(
    bucket: FolderBucket, source: Source, monkeypatch: pytest.MonkeyPatch, dtype: str, size: int, block_bytes: int
) -> None:
    monkeypatch.setattr(spectra_module, "BLOCK_BYTES", block_bytes)
    data = np.random.default_rng(1).normal(size=(5, 4, 6)).astype(dtype)
    data[:, 2, :2] = np.nan
    put_cube(bucket, data)
    split = SpectraSplitter().split(manifest(chunk_size=size), source)
    assert (split.n_items, split.n_blank) == (24, 2)
    assert [chunk.chunk_id for chunk in split.chunks] == [f"chunk-{start:07d}" for start in range(0, 24, size)]
    arrays = []
    for chunk in split.chunks:
        with np.load(bucket.path(chunk.chunk_key)) as file:
            assert len(file["spectra"]) == len(file["x"]) == len(file["y"]) == chunk.n_items
            arrays.append({name: file[name] for name in ("spectra", "x", "y")})
    together = {name: np.concatenate([array[name] for array in arrays]) for name in ("spectra", "x", "y")}
    assert together["spectra"].dtype == np.dtype(dtype)
    np.testing.assert_array_equal(together["spectra"], data.transpose(1, 2, 0).reshape(24, 5))
    assert (together["y"] * 6 + together["x"]).tolist() == list(range(24))
    geometry = CubeGeometry.model_validate_json(bucket.path("chunks/r-1/geometry.json").read_text())
    assert (geometry.n_channels, geometry.ny, geometry.nx) == (5, 4, 6)
    assert list(source.workdir.iterdir()) == [], "temporary files are gone"


GALACTIC = {
    "CTYPE1": "GLON-CAR", "CRVAL1": 30.0, "CRPIX1": 2.0, "CDELT1": -0.01, "CUNIT1": "deg",
    "CTYPE2": "GLAT-CAR", "CRVAL2": 0.0, "CRPIX2": 1.0, "CDELT2": 0.02, "CUNIT2": "deg",
}  # fmt: skip


def inputs(bucket: FolderBucket, split: Any) -> list[dict[str, Any]]:
    """What is in each chunk's file."""
    found = []
    for chunk in split.chunks:
        with np.load(bucket.path(chunk.chunk_key)) as file:
            found.append({name: file[name] for name in file.files})
    return found


def test_each_chunk_has_the_coordinates_of_its_pixels_and_the_cubes_geometry(
    bucket: FolderBucket, source: Source
) -> None:
    put_cube(bucket, np.ones((5, 4, 6), "f4"), **GALACTIC, BUNIT="K")
    first, second = inputs(bucket, SpectraSplitter().split(manifest(chunk_size=13), source))
    sky = WCS(fits.Header(GALACTIC))
    for chunk in (first, second):
        expected = sky.pixel_to_world_values(chunk["x"], chunk["y"])
        np.testing.assert_allclose([chunk["longitude"], chunk["latitude"]], expected)
        geometry = CubeGeometry.model_validate_json(chunk["geometry.json"])
        assert geometry == CubeGeometry.model_validate_json(bucket.path("chunks/r-1/geometry.json").read_text())
        assert geometry.bunit == "K"
    assert first["longitude"][:2] == pytest.approx([30.01, 30.0])
    assert geometry.celestial is not None
    np.testing.assert_allclose(
        WCS(fits.Header(geometry.celestial)).pixel_to_world_values(5, 3), sky.pixel_to_world_values(5, 3)
    )


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 5, 4, 6), {"CTYPE4": "STOKES", **GALACTIC}),
        ((5, 4, 1), GALACTIC),
        ((5, 1, 1), GALACTIC),
    ],
    ids=["four axes", "a strip", "one spectrum"],
)
def test_degenerate_axes_do_not_move_the_pixels(
    bucket: FolderBucket, source: Source, shape: tuple[int, ...], axes: dict[str, Any]
) -> None:
    put_cube(bucket, np.ones(shape, "f4"), **axes)
    (chunk,) = inputs(bucket, SpectraSplitter().split(manifest(), source))
    ny, nx = shape[-2:]
    y, x = np.divmod(np.arange(ny * nx), nx)
    expected = WCS(fits.Header(GALACTIC)).pixel_to_world_values(x, y)
    np.testing.assert_allclose([chunk["longitude"], chunk["latitude"]], expected)


@pytest.mark.parametrize(
    "header", [{}, {"CTYPE1": "GLON-CAR"}, GALACTIC | {"CTYPE2": "GLAT-TAN"}, GALACTIC | {"CD1_1": 0.0, "CD2_2": 0.0}]
)
def test_a_cube_whose_coordinates_cannot_be_read_is_split_without_them(
    bucket: FolderBucket, source: Source, header: dict[str, Any]
) -> None:
    put_cube(bucket, np.ones((5, 4, 6), "f4"), **header)
    (chunk,) = inputs(bucket, SpectraSplitter().split(manifest(), source))
    assert "longitude" not in chunk
    assert CubeGeometry.model_validate_json(chunk["geometry.json"]).celestial is None


# ---- noise that the submission gives


def noise_manifest() -> SpectraManifest:
    return manifest(chunk_size=13, params={"noise": "noise/n"})


def put_fits(path: Path, values: np.ndarray) -> None:
    fits.PrimaryHDU(values).writeto(path)


def put_text(path: Path, values: np.ndarray) -> None:
    np.savetxt(path, values)


@pytest.mark.parametrize("shape", [(4, 6), (1, 4, 6)])
def test_each_chunk_gets_its_part_of_a_noise_map(bucket: FolderBucket, source: Source, shape: tuple[int, ...]) -> None:
    put_cube(bucket, np.ones((5, 4, 6), "f4"))
    put_fits(bucket.path("noise/n"), np.arange(1.0, 25.0, dtype="f4").reshape(shape))
    first, second = inputs(bucket, SpectraSplitter().split(noise_manifest(), source))
    np.testing.assert_array_equal(np.concatenate([first["noise"], second["noise"]])[:, 0], np.arange(1.0, 25.0))


@pytest.mark.parametrize("put", [put_fits, put_text])
def test_every_chunk_gets_the_noise_of_the_channels(bucket: FolderBucket, source: Source, put: Any) -> None:
    put_cube(bucket, np.ones((5, 4, 6), "f4"))
    put(bucket.path("noise/n"), np.arange(1.0, 6.0))
    for chunk in inputs(bucket, SpectraSplitter().split(noise_manifest(), source)):
        np.testing.assert_array_equal(chunk["noise"], [[1.0, 2.0, 3.0, 4.0, 5.0]])


@pytest.mark.parametrize(
    ("put", "values", "cause"),
    [
        (put_fits, np.ones((6, 4)), r"its shape is \(6, 4\), but the cube has \(y, x\) = \(4, 6\) and 5 channels"),
        (put_text, np.ones(24), r"its shape is \(24,\)"),
        (put_fits, np.full((4, 6), np.nan), "none of its values is a positive number"),
        (lambda path, _: path.write_bytes(b"SIMPLE  = T"), None, "the header at byte 0 is damaged"),
        (lambda path, _: path.write_text("0.1 or so"), None, "it is neither FITS nor a text file"),
    ],
)
def test_a_noise_that_does_not_fit_the_cube_is_refused_with_the_reason(
    bucket: FolderBucket, source: Source, put: Any, values: Any, cause: str
) -> None:
    put_cube(bucket, np.ones((5, 4, 6), "f4"))
    put(bucket.path("noise/n"), values)
    with pytest.raises(PermanentError, match="The noise noise/n cannot be used: " + cause):
        SpectraSplitter().split(noise_manifest(), source)


def test_a_split_that_is_repeated_writes_the_same_bytes(bucket: FolderBucket, source: Source) -> None:
    put_cube(bucket, np.ones((5, 4, 6), "f4"))
    first, second = (
        {c.chunk_key: bucket.path(c.chunk_key).read_bytes() for c in split.chunks}
        for split in (
            SpectraSplitter().split(manifest(chunk_size=7), source),
            SpectraSplitter().split(manifest(chunk_size=7), source),
        )
    )
    assert first == second


def test_without_a_size_a_small_cube_is_one_chunk(bucket: FolderBucket, source: Source) -> None:
    put_cube(bucket, np.ones((5, 4, 6), "f4"))
    assert [chunk.n_items for chunk in SpectraSplitter().split(manifest(), source).chunks] == [24]


def test_a_chunk_that_is_too_large_is_refused_with_a_size_that_fits(
    bucket: FolderBucket, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_cube(bucket, np.ones((5, 4, 6), "f4"))
    monkeypatch.setattr(spectra_module, "MAX_CHUNK_BYTES", 205)
    with pytest.raises(PermanentError, match="choose a chunk size of at most 10"):
        SpectraSplitter().split(manifest(chunk_size=11), source)
    assert len(SpectraSplitter().split(manifest(chunk_size=10), source).chunks) == 3


def test_a_run_of_too_many_chunks_is_refused_with_a_size_that_fits(
    bucket: FolderBucket, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_cube(bucket, np.ones((5, 4, 6), "f4"))
    monkeypatch.setattr(spectra_module, "MAX_CHUNKS", 5)
    with pytest.raises(PermanentError, match="a run has at most 5; choose a chunk size of at least 5"):
        SpectraSplitter().split(manifest(chunk_size=4), source)
    assert bucket.uploaded == [], "the refusal comes before the first upload"
    assert len(SpectraSplitter().split(manifest(chunk_size=5), source).chunks) == 5


def test_a_repeated_split_uploads_only_missing_chunks(bucket: FolderBucket, source: Source) -> None:
    values = np.ones((5, 4, 6), "f4")
    values[:, 0, :2] = np.nan
    put_cube(bucket, values)
    whole = SpectraSplitter().split(manifest(chunk_size=7), source)
    keys = [chunk.chunk_key for chunk in whole.chunks]
    bucket.uploaded.clear()
    bucket.path(keys[2]).unlink()
    again = SpectraSplitter().split(manifest(chunk_size=7), source)
    assert bucket.uploaded == [keys[2]]
    assert (again.chunks, again.n_blank) == (whole.chunks, whole.n_blank)


@pytest.mark.parametrize("disk_bytes", [1000, 10**9], ids=["the cube's own", "others are on it"])
def test_a_disk_that_the_cube_alone_fills_is_a_permanent_error(
    disk_bytes: int, bucket: FolderBucket, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_cube(bucket, np.ones((5, 4, 6), "f4"))

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spectra_module, "write_npz", full)
    monkeypatch.setattr(spectra_module.shutil, "disk_usage", lambda _: SimpleNamespace(total=disk_bytes))
    alone = pytest.raises(PermanentError, match="it fills the splitter's disk, which needs room for twice the cube")
    with alone if disk_bytes == 1000 else pytest.raises(OSError, match="No space left"):
        SpectraSplitter().split(manifest(chunk_size=7), source)


def test_each_window_is_a_chunk_with_its_frames(bucket: FolderBucket, source: Source) -> None:
    windows = [{"window_index": n, "frame_count": 2, "frames": [f"f/{n}a.png", f"f/{n}b.png"]} for n in (0, 1, 12)]
    document = {"workload": "captions", "session_id": "s-1", "user_id": "u", "windows": windows}
    split = CaptionsSplitter().split(CaptionsManifest.model_validate_json(json.dumps(document)), source)
    assert (split.n_items, split.n_blank) == (3, 0)
    assert [chunk.chunk_id for chunk in split.chunks] == ["chunk-0000000", "chunk-0000001", "chunk-0000012"]
    assert [chunk.n_items for chunk in split.chunks] == [1, 1, 1]
    window = CaptionWindow.model_validate_json(bucket.path(split.chunks[2].chunk_key).read_text())
    assert (window.session_id, window.user_id, window.window_index) == ("s-1", "u", 12)
    assert window.frames == ["f/12a.png", "f/12b.png"]
