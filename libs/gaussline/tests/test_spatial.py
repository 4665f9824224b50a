"""The second pass over an image: components that neighbours agree on are found, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from prismline_gaussline import (
    COMPONENT_COLUMNS,
    SPECTRUM_COLUMNS,
    Decomposition,
    Params,
    Preset,
    decompose,
    refit_from_neighbours,
)
from prismline_gaussline.synthetic import NOISE_K, count_jumps, count_matches, make_cube, model

SHAPE = (20, 18)


def f1(table: Decomposition, truth: list[NDArray[np.float64]]) -> float:
    found = sum(count_matches(t, table.components(i)) for i, t in enumerate(truth))
    return 2.0 * found / (len(table.mean) + sum(map(len, truth)))


def jumps(table: Decomposition, shape: tuple[int, int] = SHAPE) -> int:
    return count_jumps([table.components(i) for i in range(len(table))], shape)


def bits(table: Decomposition, rows: list[int] | None = None) -> list[bytes]:
    """The columns of some spectra, without the wall-clock time."""
    chosen = range(len(table)) if rows is None else rows
    at = table.offsets
    result = [getattr(table, name)[list(chosen)].tobytes() for name in SPECTRUM_COLUMNS if name != "seconds"]
    return result + [
        b"".join(getattr(table, name)[at[i] : at[i + 1]].tobytes() for i in chosen) for name in COMPONENT_COLUMNS
    ]


@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_more_components_are_right_and_fewer_jump_from_pixel_to_pixel(smoothing: float) -> None:
    spectra, truth = make_cube(SHAPE, 9601, smoothing=smoothing)
    before = decompose(spectra)
    after = refit_from_neighbours(spectra, before, SHAPE)
    assert f1(after, truth) >= f1(before, truth) + 0.005
    excess = jumps(before) - count_jumps(truth, SHAPE)
    assert jumps(after) <= jumps(before) - 0.3 * excess


def test_a_missed_line_that_all_neighbours_have_is_found_and_a_strong_lone_one_stays() -> None:
    pair = np.array([[2.0, 95.0, 4.0], [1.5, 103.0, 4.0]])
    spectra = model(pair, 200) + np.random.default_rng(9602).normal(0.0, 0.25, (49, 200))
    spectra[24] += model(np.array([[4.0, 160.0, 5.0]]), 200)
    table = decompose(spectra)
    merged = decompose(spectra[24:25], starts=[[[2.4, 98.0, 6.0], [4.0, 160.0, 5.0]]])
    assert merged.n_components[0] == 2
    names = (*SPECTRUM_COLUMNS, *COMPONENT_COLUMNS)
    first = table.offsets[24]
    last = table.offsets[25]
    wrong = {
        name: np.concatenate((getattr(table, name)[:a], getattr(merged, name), getattr(table, name)[b:]))
        for name in names
        for a, b in [(24, 25) if name in SPECTRUM_COLUMNS else (first, last)]
    }
    start = Decomposition(**wrong, thread_seconds=table.thread_seconds)
    found = refit_from_neighbours(spectra, start, (7, 7)).components(24)
    np.testing.assert_allclose(found[:, 1], [95.0, 103.0, 160.0], atol=2.0)


def test_a_part_with_a_margin_of_the_rounds_gives_the_bits_of_the_whole_at_any_number_of_threads() -> None:
    spectra, _ = make_cube(SHAPE, 9603, smoothing=0.7)
    first = decompose(spectra)
    whole = refit_from_neighbours(spectra, first, SHAPE)
    assert bits(whole) != bits(first)
    assert bits(refit_from_neighbours(spectra, first, SHAPE, threads=2)) == bits(whole)
    cut, margin = 9, 2
    piece = spectra[cut * SHAPE[1] :]
    part = refit_from_neighbours(piece, decompose(piece), (SHAPE[0] - cut, SHAPE[1]))
    inner = range((cut + margin) * SHAPE[1], len(spectra))
    assert bits(part, [i - cut * SHAPE[1] for i in inner]) == bits(whole, list(inner))


def test_blank_pixels_have_no_neighbours_and_are_not_neighbours() -> None:
    spectra, _ = make_cube((8, 8), 9604)
    spectra[9] = np.nan
    spectra[30, 50:60] = np.nan
    noise = np.full((64, 1), NOISE_K)
    table = refit_from_neighbours(spectra, decompose(spectra, noise=noise), (8, 8), noise=noise)
    assert table.n_components[9] == 0
    assert np.isnan(table.chi2_reduced[9])
    assert np.isfinite(np.delete(table.chi2_reduced, 9)).all()
    alone = decompose(spectra[:1])
    assert bits(refit_from_neighbours(spectra[:1], alone, (1, 1))) == bits(alone)


def test_a_model_is_replaced_only_by_a_better_one() -> None:
    spectra, _ = make_cube(SHAPE, 9608)
    first = decompose(spectra)
    second = refit_from_neighbours(spectra, first, SHAPE, rounds=1)
    models = [first.components(i) for i in range(len(first))]

    def price(table: Decomposition, i: int) -> float:
        y, x = divmod(i, SHAPE[1])
        around = [
            models[v * SHAPE[1] + u]
            for v in range(max(y - 1, 0), min(y + 2, SHAPE[0]))
            for u in range(max(x - 1, 0), min(x + 2, SHAPE[1]))
            if (v, u) != (y, x)
        ]
        model = table.components(i)
        chi2 = table.chi2_reduced[i] * (spectra.shape[1] - 3 * len(model))
        disagreement = np.mean([count_jumps([model, other], (1, 2)) for other in around])
        return float(chi2 + 10.0 * len(model) + 10.0 * disagreement)

    changed = [i for i in range(len(first)) if bits(first, [i]) != bits(second, [i])]
    assert len(changed) > 20
    assert all(price(second, i) < price(first, i) for i in changed)


def test_a_pixel_among_blank_ones_is_left_alone() -> None:
    spectra, _ = make_cube(SHAPE, 9607)
    image = spectra.reshape(*SHAPE, -1)
    lonely = np.full_like(image, np.nan)
    lonely[::2, ::2] = image[::2, ::2]
    first = decompose(lonely.reshape(spectra.shape))
    assert bits(refit_from_neighbours(lonely.reshape(spectra.shape), first, SHAPE)) == bits(first)


def test_starts_are_fitted_without_a_search() -> None:
    lines = np.array([[3.0, 60.0, 4.0], [3.0, 140.0, 4.0]])
    spectra = model(lines, 200) + np.random.default_rng(9605).normal(0.0, 0.25, (2, 200))
    nonsense = [[3.0, 62.0, 5.0], [-1.0, 20.0, 3.0], [1.0, np.nan, 3.0], [1.0, 900.0, 3.0], [1.0, 20.0, 0.0]]
    table = decompose(spectra, starts=[nonsense, []])
    assert table.n_components.tolist() == [1, 0]
    assert table.mean[0] == pytest.approx(60.0, abs=0.5)


def test_starts_are_in_the_unit_of_the_spectra() -> None:
    pair = np.array([[3.0, 94.0, 4.0], [3.0, 106.0, 4.0]])
    spectra = model(pair, 200) + np.random.default_rng(9609).normal(0.0, 0.05, (20, 200))
    table = decompose(1e-9 * spectra, starts=[pair * [1e-9, 1.0, 1.0]] * 20)
    assert (table.n_components == 2).all()
    np.testing.assert_allclose(table.mean.reshape(20, 2), np.tile(pair[:, 1], (20, 1)), atol=0.5)


def test_spectra_and_table_of_different_images_are_a_value_error() -> None:
    spectra, _ = make_cube((4, 4), 9606)
    table = decompose(spectra)
    with pytest.raises(ValueError, match="not the same spectra"):
        refit_from_neighbours(spectra, table, (4, 5))
    with pytest.raises(ValueError, match="preset"):
        decompose(spectra, Params(preset=Preset.COMPATIBLE), starts=[[]] * 16)
    with pytest.raises(ValueError, match="16"):
        decompose(spectra, starts=[[]] * 15)
