"""Tiles equal the parts of a complete map, for every division into chunks and every order of the chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from prismline_cube import TILE_PIXELS, Reduction, Tile, TileSums, levels


def reduced(whole: NDArray[np.float64], level: int, reduction: Reduction) -> NDArray[np.float64]:
    """The map at `level`, made pixel by pixel."""
    scale = 1 << level
    ny, nx = whole.shape
    found = np.full((-(-ny // scale), -(-nx // scale)), np.nan)
    for y, x in np.ndindex(found.shape):
        part = whole[y * scale : (y + 1) * scale, x * scale : (x + 1) * scale]
        known = part[np.isfinite(part)]
        if known.size:
            bits = np.bitwise_or.reduce(known.astype(int))
            found[y, x] = {
                Reduction.MEAN: known.mean(),
                Reduction.MAXIMUM: known.max(),
                Reduction.ANY_BIT: bits,
            }[reduction]
    return found


@settings(max_examples=30, deadline=None)
@given(
    nx=st.integers(1, 700),
    ny=st.integers(1, 40),
    size=st.integers(1, 9000),
    reduction=st.sampled_from(Reduction),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_tile_is_a_part_of_the_reduced_map(nx: int, ny: int, size: int, reduction: Reduction, seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = rng.integers(0, 64, (ny, nx)).astype(float)
    whole[rng.random((ny, nx)) < 0.3] = np.nan
    chunks = [(first, whole.reshape(-1)[first : first + size]) for first in range(0, nx * ny, size)]
    rng.shuffle(chunks)  # type: ignore[arg-type]
    level = int(rng.integers(0, levels(nx, ny)))
    side = TILE_PIXELS << level
    tile = Tile(nx, ny, level, int(rng.integers(0, -(-nx // side))), int(rng.integers(0, -(-ny // side))))
    sums = TileSums(tile, reduction)
    for first, values in chunks:
        if tile.touches(first, len(values)):
            sums.add(first, values)
    top, left = tile.row * TILE_PIXELS, tile.column * TILE_PIXELS
    expected = reduced(whole, level, reduction)[top : top + TILE_PIXELS, left : left + TILE_PIXELS]
    np.testing.assert_allclose(sums.values(), expected, rtol=1e-6)


@pytest.mark.parametrize(("nx", "ny", "expected"), [(1, 1, 1), (256, 256, 1), (257, 1, 2), (3600, 500, 5)])
def test_the_last_level_is_a_single_tile(nx: int, ny: int, expected: int) -> None:
    scale = 1 << (expected - 1)
    assert levels(nx, ny) == expected
    assert Tile(nx, ny, expected - 1, 0, 0).shape == (-(-ny // scale), -(-nx // scale))


@pytest.mark.parametrize("place", [(5, 0, 0), (-1, 0, 0), (0, 15, 0), (0, 0, 2), (4, 1, 0), (0, -1, 0)])
def test_a_tile_outside_the_pyramid_is_refused(place: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"levels go from 0 to 4|tiles"):
        Tile(3600, 500, *place)


def test_a_tile_without_any_chunk_has_no_value() -> None:
    assert np.isnan(TileSums(Tile(10, 10, 0, 0, 0), Reduction.MEAN).values()).all()
