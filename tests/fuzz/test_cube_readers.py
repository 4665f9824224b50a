"""Mutants of valid cubes, noise maps and chunk files: a reader returns values or refuses with one sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from prismline_cube.testing import zip_file
from prismline_runtime import PermanentError
from tests.fuzz.rule import sentence_problem
from tests.fuzz.targets import cubes

READERS = {target.name: target for target in cubes.TARGETS}


@pytest.mark.parametrize("name", READERS)
def test_no_exception_of_a_library_leaves_a_reader(name: str) -> None:
    reader = READERS[name]

    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(reader.inputs)
    def read(data: bytes) -> None:
        refusal = refusal_of(reader.run, data)
        assert refusal is None or sentence_problem(refusal) is None

    read()


def refusal_of(read: Callable[[bytes], object], data: bytes) -> str | None:
    """The sentence with which `read` refuses an input. None if it reads it."""
    try:
        read(data)
    except PermanentError as error:
        return str(error)
    return None


@pytest.mark.parametrize("body", [*cubes.PLAIN, *(cubes.zip_of(*example) for example in cubes.zarr_examples())])
def test_the_cubes_that_are_mutated_can_be_split_both_ways(body: bytes) -> None:
    assert refusal_of(cubes.split_cube, body) is None


@pytest.mark.parametrize("body", [*cubes.packed_cubes(), cubes.gzipped(cubes.PLAIN[0])])
def test_the_compressed_cubes_that_are_mutated_can_be_copied(body: bytes) -> None:
    assert refusal_of(cubes.split_copy, body) is None


def test_the_other_files_that_are_mutated_can_be_read() -> None:
    assert refusal_of(cubes.read_chunk_file, zip_file(cubes.CHUNK)) is None
    assert refusal_of(cubes.read_noise, cubes.NOISE_TEXT) is None
    assert refusal_of(cubes.read_noise, cubes.NOISE_FITS) is None
