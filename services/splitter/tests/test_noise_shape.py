"""How the level of a cube's noise varies along its spectra, estimated from a sample of them."""

from __future__ import annotations

import numpy as np
import pytest
from astropy.io import fits

from prismline_contracts.objects import MOST_SHAPE_VALUES, CubeGeometry
from prismline_splitter.noise_shape import shape_in


def noise(n: int, channels: int, seed: int = 2) -> np.ndarray:
    """White noise whose level differs from spectrum to spectrum."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, channels)) * rng.uniform(0.5, 2.0, (n, 1))


def level(channels: int) -> np.ndarray:
    """Noisy edges, and an atmospheric line."""
    at = np.arange(channels) / channels
    return np.where((at < 0.1) | (at > 0.9), 3.0, 1.0) + 2.0 * np.exp(-0.5 * ((at - 0.5) / 0.03) ** 2)


def test_the_shape_is_that_of_the_noise_beside_lines() -> None:
    truth = level(300)
    spectra = noise(1000, 300) * truth
    spectra[:, 70:110] += 10.0 * np.exp(-0.5 * ((np.arange(40) - 20) / 5.0) ** 2)
    spectra[:5] = np.nan
    shape = shape_in(spectra)
    assert shape is not None
    inside = np.ones(300, bool)
    inside[[*range(26, 34), *range(266, 274)]] = False  # the median over five channels rounds the steps
    np.testing.assert_allclose(np.array(shape)[inside], truth[inside], rtol=0.2)


@pytest.mark.parametrize(("n", "channels"), [(100, 100), (256, 200), (1000, 400), (244, 4096)])
def test_noise_of_one_level_has_no_shape(n: int, channels: int) -> None:
    assert [shape_in(noise(n, channels, seed)) for seed in range(10)] == [None] * 10


def test_noise_that_neighbouring_pixels_share_has_no_shape() -> None:
    assert shape_in(np.repeat(noise(40, 300), 10, axis=0)) is None


def test_a_line_in_every_spectrum_has_no_shape() -> None:
    line = 3.0 * np.exp(-0.5 * ((np.arange(300) - 150) / 20.0) ** 2)
    assert shape_in(noise(1000, 300) + line) is None


@pytest.mark.parametrize("spectra", [np.full((300, 200), np.nan), np.ones((300, 200)), noise(50, 200) * level(200)])
def test_blank_constant_and_small_samples_have_no_shape(spectra: np.ndarray) -> None:
    assert shape_in(spectra) is None


def test_a_long_spectrum_has_a_value_for_several_channels() -> None:
    truth = level(3000)
    shape = np.array(shape_in(noise(300, 3000) * truth))
    assert len(shape) == MOST_SHAPE_VALUES
    parts = np.arange(3000) * len(shape) // 3000
    assert np.corrcoef(shape[parts], truth)[0, 1] > 0.95


@pytest.mark.emulator
def test_both_inputs_record_the_same_shape_unless_the_noise_is_given(world, tmp_path) -> None:  # type: ignore[no-untyped-def]
    spectra = (noise(400, 100) * level(100)).T.reshape(100, 20, 20).astype(np.float32)
    path = tmp_path / "cube.fits"
    fits.writeto(path, spectra, fits.Header({"CTYPE3": "VRAD", "CUNIT3": "m/s", "CDELT3": 200.0}))
    found = {kind: shape_of(world, path, kind) for kind in ("copy", "reference")}
    assert found["copy"] == found["reference"]
    assert np.corrcoef(found["copy"], level(100))[0, 1] > 0.9
    assert shape_of(world, path, "reference", noise=1.0) is None


def shape_of(world, path, kind: str, **params):  # type: ignore[no-untyped-def]
    """What a run of the cube records."""
    run_id = world.submit_file(path, chunk_input=kind, idempotency_key=f"{kind}-{len(params)}", params=params)
    assert world.split(run_id, f"manifests/{kind}-{len(params)}.json")
    (key,) = [key for key in world.objects(f"chunks/{run_id}/") if key.endswith("geometry.json")]
    return CubeGeometry.model_validate_json(world.deps.open_bucket(world.bucket).read(key)).noise_shape
