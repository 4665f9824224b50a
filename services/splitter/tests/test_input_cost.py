"""Which input `auto` chooses, and the size of chunks that refer to a cube."""

from __future__ import annotations

import pytest

from prismline_contracts.fit_costs import FitKind
from prismline_contracts.references import CubeReference
from prismline_cube import Grid, Layout
from prismline_splitter.chunking import choose_chunk_size, choose_reference_size
from prismline_splitter.input_cost import cost_of

REQUEST_SECONDS = 0.002


def layout(*axes: int, spectral_axis: int = 3) -> Layout:
    """A cube of float32 with these axes, NAXIS1 first."""
    n = 1
    for length in axes:
        n *= length
    n //= axes[spectral_axis - 1]
    return Layout.of(
        CubeReference(
            key="k", etag="e", offset=2880, bitpix=-32, axes=list(axes), spectral_axis=spectral_axis, first=0, count=n
        )
    )


def sizes(cube: Layout, kind: FitKind = "gaussline") -> tuple[int, int]:
    copied = choose_chunk_size(cube.n_spectra, cube.n_channels, cube.dtype.itemsize, kind)
    return copied, choose_reference_size(copied, cube, kind)


def chosen(cube: Layout, request_seconds: float = REQUEST_SECONDS) -> str:
    copied, referring = sizes(cube)
    return cost_of(cube, copied_chunk=copied, referring_chunk=referring, request_seconds=request_seconds).cheaper


@pytest.mark.parametrize("side", [450, 1416, 7700])
def test_a_large_cube_with_the_spectral_axis_last_is_referred_to(side: int) -> None:
    assert chosen(layout(side, side, 424)) == "reference"


def test_with_slow_requests_a_cube_with_the_spectral_axis_last_is_copied() -> None:
    assert chosen(layout(450, 450, 424), request_seconds=0.6) == "copy"


@pytest.mark.parametrize("axes", [(424, 60, 60), (424, 1416, 1416)])
def test_a_cube_whose_chunks_are_one_range_is_referred_to_even_with_slow_requests(axes: tuple[int, ...]) -> None:
    assert chosen(layout(*axes, spectral_axis=1), request_seconds=0.02) == "reference"


def test_many_short_ranges_are_worse_than_a_copy() -> None:
    assert chosen(layout(100, 100, 424)) == "copy"


def test_chunks_are_larger_if_their_ranges_would_be_short_but_there_are_at_least_four() -> None:
    copied, referring = sizes(layout(450, 450, 424))
    assert copied < referring <= 450 * 450 // 4
    copied, referring = sizes(layout(7700, 7700, 424))
    assert referring == copied, "a chunk with that much work has long ranges already"


def test_longer_ranges_never_exceed_the_work_that_a_chunk_may_have() -> None:
    copied, referring = sizes(layout(323, 323, 424), "phspectra")
    assert referring == copied, "a chunk of phspectra is 20 seconds of work, however short its ranges"


def test_chunks_hold_whole_rows_if_that_makes_them_one_range() -> None:
    copied, referring = sizes(layout(450, 424, 450, spectral_axis=2))
    assert referring % 450 == 0
    assert 0 < copied - referring < 2 * 450, "one row less, if that makes the chunks equal in size"


@pytest.mark.parametrize(("rows", "expected"), [(64, "reference"), (700, "copy")])
def test_a_cube_whose_stored_chunks_several_workers_would_read_is_copied(rows: int, expected: str) -> None:
    """A Zarr array of 1400 x 1400 spectra: a chunk of 20 seconds holds some 280 rows."""
    cube, grid = layout(1400, 1400, 424), Grid((1400, 1400, 424), (64, rows, 424), 3)
    copied, _ = sizes(cube)
    referring = choose_reference_size(copied, cube, "gaussline", grid)
    assert (referring % grid.together == 0) == (expected == "reference")
    found = cost_of(cube, copied_chunk=copied, referring_chunk=referring, request_seconds=REQUEST_SECONDS, grid=grid)
    assert found.cheaper == expected
