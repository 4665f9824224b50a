from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts.fit_costs import CHUNK_SECONDS, COST_MS, FINE_CHUNKS, FitKind, fit_seconds
from prismline_splitter.chunking import (
    CHUNKS_OF_ONE_SHARD,
    FINE_CHUNK_SECONDS,
    LEAST_CHUNK_SECONDS,
    LEAST_CHUNKS,
    MAX_CHUNK_BYTES,
    SHARDS,
    balanced,
    choose_chunk_size,
    shards_of,
)


def seconds(size: int, n_channels: int, kind: FitKind) -> float:
    """Work in a chunk of `size` spectra."""
    return size * fit_seconds(n_channels, kind)


@given(
    n_spectra=st.integers(1, 10**9),
    n_channels=st.integers(1, 10**5),
    itemsize=st.sampled_from([4, 8]),
    kind=st.sampled_from(sorted(COST_MS)),
)
def test_a_chunk_is_neither_too_much_nor_too_little_work(
    n_spectra: int, n_channels: int, itemsize: int, kind: FitKind
) -> None:
    size = choose_chunk_size(n_spectra, n_channels, itemsize, kind)
    assert size >= 1
    assert size == 1 or size * n_channels * itemsize <= MAX_CHUNK_BYTES
    assert size == 1 or seconds(size, n_channels, kind) <= CHUNK_SECONDS
    limited = size == n_spectra or (size + 1) * n_channels * itemsize > MAX_CHUNK_BYTES
    assert limited or seconds(size + 1, n_channels, kind) >= LEAST_CHUNK_SECONDS * (1 - 1e-9)


def test_a_survey_is_cut_by_work_and_a_field_so_that_all_workers_have_some() -> None:
    assert 10 <= seconds(choose_chunk_size(10**8, 424, 4, "gaussline"), 424, "gaussline") <= 60
    assert 10 <= seconds(choose_chunk_size(10**8, 424, 4, "phspectra"), 424, "phspectra") <= 60
    assert 500_000 / choose_chunk_size(500_000, 424, 4, "gaussline") == pytest.approx(LEAST_CHUNKS, rel=0.01)
    assert choose_chunk_size(100, 424, 4, "gaussline") >= 100


def test_many_workers_can_take_part_in_a_run_of_some_minutes() -> None:
    survey = 2_300_000
    assert survey / choose_chunk_size(survey, 424, 4, "gaussline") > 3 * LEAST_CHUNKS
    for n_spectra in (survey, 10 * survey):
        work = seconds(n_spectra, 424, "gaussline")
        n_chunks = -(-n_spectra // choose_chunk_size(n_spectra, 424, 4, "gaussline"))
        assert n_chunks == pytest.approx(min(FINE_CHUNKS, work / FINE_CHUNK_SECONDS), rel=0.05)


@given(n_spectra=st.integers(1, 10**7), size=st.integers(1, 10**6), together=st.integers(1, 10**4))
def test_chunks_are_as_equal_in_size_as_possible(n_spectra: int, size: int, together: int) -> None:
    found = balanced(n_spectra, size, together)
    assert found % together == 0
    assert found <= max(size, together)
    n_chunks, before = -(-n_spectra // found), -(-n_spectra // max(together, size // together * together))
    assert n_chunks <= before, "there are not more chunks than before"
    last = n_spectra - (n_chunks - 1) * found
    assert last > found - n_chunks * together, "the last chunk is smaller only by what cannot be divided"


@pytest.mark.parametrize(("n_spectra", "size", "expected"), [(100, 33, 25), (100, 100, 100), (101, 100, 51)])
def test_no_tiny_chunk_is_left_at_the_end(n_spectra: int, size: int, expected: int) -> None:
    assert balanced(n_spectra, size) == expected


def test_only_a_run_of_many_chunks_is_counted_by_several_shards() -> None:
    assert [shards_of(n) for n in (0, 1, CHUNKS_OF_ONE_SHARD, CHUNKS_OF_ONE_SHARD + 1)] == [1, 1, 1, SHARDS]
