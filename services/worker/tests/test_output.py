from __future__ import annotations

import errno
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_runtime.errors import PermanentError
from prismline_worker.output import OutputFile, from_parquet, patch, timed_out_rows, to_parquet
from prismline_worker.schema import SCHEMA


def table_of(statuses, *, first_x=0):
    """A row for each status; its pixel is (first_x + row, 3)."""
    rows = [
        {
            "x": first_x + row,
            "y": 3,
            "beta": 3.5,
            "rms": None if status in {"timed_out", "blank"} else 0.25,
            "min_persistence": None if status in {"timed_out", "blank"} else 0.875,
            "n_components": {"fitted": 2, "timed_out": -1}.get(status, 0),
            "component_amplitudes": [1.5, 2.5] if status == "fitted" else [],
            "component_means": [10.0, 20.0] if status == "fitted" else [],
            "component_stddevs": [3.0, 4.0] if status == "fitted" else [],
            "status": status,
            "decomposer": "phspectra" if status in {"fitted", "empty"} else None,
        }
        for row, status in enumerate(statuses)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


ALL = ["fitted", "empty", "blank", "timed_out"]


def test_a_table_survives_parquet():
    table = table_of(ALL)
    assert from_parquet(to_parquet(table)) == table


def test_the_same_table_gives_the_same_bytes_however_it_is_cut():
    table = table_of(ALL)
    assert to_parquet(table) == to_parquet(pa.concat_tables([table[:1], table[1:]])) == to_parquet(table_of(ALL))


def test_a_parquet_file_has_the_columns_of_the_published_dataset():
    schema = pq.read_schema(pa.BufferReader(to_parquet(table_of(ALL))))
    assert [(field.name, str(field.type)) for field in schema] == [
        ("x", "int32"),
        ("y", "int32"),
        ("beta", "double"),
        ("rms", "double"),
        ("min_persistence", "double"),
        ("n_components", "int32"),
        ("component_amplitudes", "list<element: double>"),
        ("component_means", "list<element: double>"),
        ("component_stddevs", "list<element: double>"),
        ("status", "string"),
        ("component_amplitude_errors", "list<element: double>"),
        ("component_mean_errors", "list<element: double>"),
        ("component_stddev_errors", "list<element: double>"),
        ("component_fluxes", "list<element: double>"),
        ("component_flux_errors", "list<element: double>"),
        ("chi2_reduced", "double"),
        ("aicc", "double"),
        ("flags", "int32"),
        ("decomposer", "string"),
    ]


def test_a_file_that_was_written_in_blocks_holds_the_same_table():
    table = table_of(ALL * 3)
    with OutputFile() as output:
        for start in range(0, len(table), 5):
            output.add(table[start : start + 5])
        body = output.finish()
    assert from_parquet(body) == table
    assert len(output) == 12
    assert output.timed_out == timed_out_rows(table) == [3, 7, 11]


def other_parquet():
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1]}), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", "not a whole Parquet file"),
        (b"PAR1 no PAR1", "not a whole Parquet file"),
        (to_parquet(table_of(ALL))[:-9], "not a whole Parquet file"),
        (other_parquet(), "does not have the columns"),
    ],
)
def test_what_is_not_an_output_is_refused(body, cause):
    with pytest.raises(PermanentError, match=cause):
        from_parquet(body)


@pytest.mark.parametrize(
    "error", [pa.ArrowMemoryError("malloc of size 64 failed"), OSError(errno.ENOMEM, "Cannot allocate memory")]
)
def test_lack_of_memory_does_not_make_an_output_damaged(monkeypatch, error):
    def read_table(_):
        raise error

    monkeypatch.setattr(pq, "read_table", read_table)
    with pytest.raises(type(error)):
        from_parquet(to_parquet(table_of(ALL)))


@given(st.data())
def test_an_output_with_damaged_bytes_is_refused_or_read(data):
    body = bytearray(to_parquet(table_of(ALL * 5)))
    for _ in range(3):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(PermanentError):
        from_parquet(bytes(body))


def test_timed_out_rows_are_found():
    assert timed_out_rows(table_of(["timed_out", "fitted", "blank", "timed_out"])) == [0, 3]
    assert timed_out_rows(table_of(["fitted"])) == []


@given(st.lists(st.sampled_from(ALL), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_patch_changes_its_rows_and_no_others(statuses, random):
    table = table_of(statuses)
    rows = timed_out_rows(table)
    random.shuffle(rows)
    refit = table_of(["fitted"] * len(statuses)).take(pa.array(rows, pa.int64()))
    patched = patch(table, rows, refit)
    assert patched == table_of(["fitted" if status == "timed_out" else status for status in statuses])
    assert patched.schema == SCHEMA


def test_patching_twice_is_patching_once():
    table = table_of(["fitted", "timed_out"])
    refit = table_of(["empty"], first_x=1)
    once = patch(table, [1], refit)
    assert to_parquet(patch(once, [1], refit)) == to_parquet(once)


@pytest.mark.parametrize(
    ("rows", "refit", "cause"),
    [
        ([1, 2], table_of(["fitted"], first_x=1), "1 refitted rows cannot replace"),
        ([1, 1], table_of(["fitted", "fitted"], first_x=1), "2 refitted rows cannot replace"),
        ([9], table_of(["fitted"], first_x=1), "has 4 rows"),
        ([-1], table_of(["fitted"], first_x=3), "has 4 rows"),
        ([2], table_of(["fitted"], first_x=1), "not those of the rows"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(rows, refit, cause):
    with pytest.raises(PermanentError, match=cause):
        patch(table_of(ALL), np.array(rows).tolist(), refit)
