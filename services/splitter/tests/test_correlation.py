"""The correlation of a cube's noise is estimated once, from the same sample whatever the input of the chunks is."""

from __future__ import annotations

import io

import numpy as np
import pytest
from astropy.io import fits

from prismline_contracts.objects import CubeGeometry
from prismline_cube.cube_file import read_header
from prismline_cube.layout import Layout
from prismline_splitter.correlation import correlation_in, sample_parts


def layout_of(shape: tuple[int, int, int], ctypes: tuple[str, str, str] = ("X", "Y", "VRAD")) -> Layout:
    body = io.BytesIO()
    cards = fits.Header({f"CTYPE{n}": ctype for n, ctype in enumerate(ctypes, 1)})
    fits.writeto(body, np.zeros(shape, np.float32), cards)
    body.seek(0)
    found = read_header(body, len(body.getvalue()))
    return Layout(found.stored, found.n_channels, found.n_spectra, found.nx, found.dtype)


def taps_of(width: float) -> np.ndarray:
    return np.exp(-0.5 * (np.arange(-6, 7) / width) ** 2)


def smooth_noise(n: int, channels: int, width: float, seed: int = 3) -> np.ndarray:
    taps = taps_of(width)
    white = np.random.default_rng(seed).normal(size=(n, channels + 12))
    return np.stack([np.convolve(row, taps / np.sqrt((taps**2).sum()), "valid") for row in white])


@pytest.mark.parametrize("shape", [(100, 1, 200), (70, 40, 50), (1000, 20, 30), (3000, 9, 9)])
def test_the_sample_lies_within_the_cube_and_costs_no_more_requests_than_a_chunk(shape: tuple[int, int, int]) -> None:
    layout = layout_of(shape)
    parts = sample_parts(layout)
    index = np.concatenate([np.array(part) for part in parts])
    assert 0 <= index.min() <= index.max() < layout.n_spectra
    assert len(parts) * layout.n_channels <= max(1024, layout.n_channels)


def test_the_sample_of_a_cube_with_its_spectra_in_one_piece_is_spread_over_it() -> None:
    layout = layout_of((100, 100, 128), ("VRAD", "X", "Y"))
    parts = sample_parts(layout)
    assert len(parts) > 4
    assert parts[0].start < 1000 < 9000 < parts[-1].stop


@pytest.mark.parametrize("shape", [(60, 40, 40), (100, 2, 3)])
def test_small_cubes_have_no_sample(shape: tuple[int, int, int]) -> None:
    assert sample_parts(layout_of(shape)) == []


@pytest.mark.parametrize("width", [0.6, 1.0])
def test_the_estimate_is_that_of_the_noise_beside_lines(width: float) -> None:
    spectra = smooth_noise(300, 200, width)
    spectra[:, 90:110] += 8.0 * np.exp(-0.5 * ((np.arange(20) - 10) / 3.0) ** 2)
    spectra[:5] = np.nan
    lags = correlation_in(spectra)
    assert lags is not None
    taps = taps_of(width)
    truth = np.correlate(taps, taps, "full")[len(taps) - 1 :][:3] / (taps**2).sum()
    np.testing.assert_allclose(lags[:3], truth, atol=0.03)


def test_blank_and_constant_samples_have_no_estimate() -> None:
    assert correlation_in(np.full((300, 200), np.nan)) is None
    assert correlation_in(np.ones((300, 200))) is None


@pytest.mark.emulator
def test_both_inputs_record_the_same_correlation(world, tmp_path) -> None:  # type: ignore[no-untyped-def]
    spectra = smooth_noise(400, 100, 1.0).T.reshape(100, 20, 20).astype(np.float32)
    fits.writeto(tmp_path / "cube.fits", spectra, fits.Header({"CTYPE3": "VRAD", "CUNIT3": "m/s", "CDELT3": 200.0}))
    path = tmp_path / "cube.fits"
    found = {kind: correlation_of(world, path, kind) for kind in ("copy", "reference")}
    assert found["copy"] == found["reference"]
    np.testing.assert_allclose(found["copy"][:2], [1.0, np.exp(-0.25)], atol=0.03)
    assert correlation_of(world, path, "reference", correlation="white") is None


def correlation_of(world, path, kind: str, **params):  # type: ignore[no-untyped-def]
    """What a run of the cube records."""
    run_id = world.submit_file(path, chunk_input=kind, idempotency_key=f"{kind}-{len(params)}", params=params)
    assert world.split(run_id, f"manifests/{kind}-{len(params)}.json")
    (key,) = [key for key in world.objects(f"chunks/{run_id}/") if key.endswith("geometry.json")]
    return CubeGeometry.model_validate_json(world.deps.open_bucket(world.bucket).read(key)).noise_correlation
