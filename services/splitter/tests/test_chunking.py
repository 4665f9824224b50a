from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_splitter.chunking import ChunkSpan, chunk_id, plan_chunks


def test_a_hundred_spectra_in_chunks_of_ten_are_ten_chunks():
    assert plan_chunks(100, 10) == [ChunkSpan(start, 10) for start in range(0, 100, 10)]


def test_the_last_chunk_holds_what_is_left():
    assert plan_chunks(7, 5) == [ChunkSpan(0, 5), ChunkSpan(5, 2)]


def test_a_cube_without_spectra_has_no_chunks():
    assert plan_chunks(0, 5) == []


@pytest.mark.parametrize("chunk_size", [0, -3])
def test_a_chunk_size_below_one_is_refused(chunk_size: int):
    with pytest.raises(ValueError, match="chunk_size"):
        plan_chunks(10, chunk_size)


@given(n_spectra=st.integers(0, 3000), chunk_size=st.integers(1, 700))
def test_every_spectrum_is_in_exactly_one_chunk(n_spectra: int, chunk_size: int):
    spans = plan_chunks(n_spectra, chunk_size)
    assert [index for span in spans for index in range(span.start, span.start + span.n)] == list(range(n_spectra))
    assert all(span.n == chunk_size for span in spans[:-1])
    assert all(1 <= span.n <= chunk_size for span in spans)


def test_a_chunk_is_named_after_its_first_spectrum():
    assert chunk_id(0) == "chunk-0000000"
    assert chunk_id(1500) == "chunk-0001500"
