from __future__ import annotations

import errno
import json
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts.commands import ChunkProcess
from prismline_contracts.decomposition import arrow_schema
from prismline_contracts.manifest import FitParams
from prismline_contracts.objects import CubeGeometry
from prismline_runtime.errors import PermanentError
from prismline_worker.output import OutputFile, from_parquet, metadata_of, patch, timed_out_rows, to_parquet
from prismline_worker.schema import SCHEMA

GEOMETRY = CubeGeometry(
    n_channels=40, ny=1, nx=4, ctype="VRAD", crval=5000.0, crpix=1.0, cdelt=-200.0, cunit="m/s", bunit="K",
    object_name="", cube_key="c", celestial={"CTYPE1": "GLON-CAR", "CTYPE2": "GLAT-CAR"},
)  # fmt: skip


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


def test_the_same_table_gives_the_same_bytes_however_it_is_chunked():
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
        ("component_means_physical", "list<element: double>"),
        ("component_mean_errors_physical", "list<element: double>"),
        ("component_stddevs_physical", "list<element: double>"),
        ("component_stddev_errors_physical", "list<element: double>"),
        ("component_fluxes_physical", "list<element: double>"),
        ("component_flux_errors_physical", "list<element: double>"),
        ("longitude", "double"),
        ("latitude", "double"),
        ("component_optical_depths", "list<element: double>"),
        ("component_optical_depth_errors", "list<element: double>"),
        ("baseline_0", "double"),
        ("baseline_1", "double"),
        ("baseline_2", "double"),
        ("baseline_3", "double"),
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
        (b"", "not a complete Parquet file"),
        (b"PAR1 no PAR1", "not a complete Parquet file"),
        (to_parquet(table_of(ALL))[:-9], "not a complete Parquet file"),
        (other_parquet(), "does not have the columns"),
    ],
)
def test_a_file_that_is_not_an_output_is_refused(body, cause):
    with pytest.raises(PermanentError, match=cause):
        from_parquet(body)


@pytest.mark.parametrize(
    "error", [pa.ArrowMemoryError("malloc of size 64 failed"), OSError(errno.ENOMEM, "Cannot allocate memory")]
)
def test_lack_of_memory_is_not_reported_as_a_damaged_output(monkeypatch, error):
    def read(_):
        raise error

    monkeypatch.setattr(pq.ParquetFile, "read", read)
    with pytest.raises(type(error)):
        from_parquet(to_parquet(table_of(ALL)))


@given(st.data())
def test_an_output_with_damaged_bytes_is_refused_or_read(data):
    body = bytearray(to_parquet(table_of(ALL * 5)))
    for _ in range(3):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(PermanentError):
        assert from_parquet(bytes(body)).schema.names[: len(SCHEMA)] == SCHEMA.names


def test_an_output_whose_column_has_no_readable_name_is_refused():
    body = to_parquet(table_of(ALL)).replace(b"min_persistence", b"\x80in_persistence")
    with pytest.raises(PermanentError, match="not a complete Parquet file"):
        from_parquet(body)


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


def test_patching_twice_has_the_effect_of_patching_once():
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


def test_the_metadata_averages_the_assumptions_about_the_noise_over_all_blocks():
    def block(n, correlation):
        return table_of(ALL[:1] * n).replace_schema_metadata({"noise": correlation})

    with OutputFile() as output:
        output.add(block(1, "0.1"))
        output.add(block(3, "0.5"))
        body = output.finish()
    assert float(pq.read_metadata(pa.BufferReader(body)).metadata[b"noise"]) == 0.4


# ---- files of other versions


def version_1(table):
    """`table` as the first version wrote it."""
    return table.select(arrow_schema(version=1).names)


def test_a_refit_patches_a_file_that_an_older_worker_wrote():
    """While the refit waited in its queue, a worker was deployed that writes more columns than the old one."""
    old = from_parquet(to_parquet(version_1(table_of(ALL))))
    refit = table_of(["fitted"], first_x=3).set_column(
        SCHEMA.get_field_index("longitude"), SCHEMA.field("longitude"), pa.array([24.5])
    )
    patched = from_parquet(to_parquet(patch(old, [3], refit)))
    assert patched.schema == SCHEMA
    assert patched["status"].to_pylist() == ["fitted", "empty", "blank", "fitted"]
    assert patched["longitude"].to_pylist() == [None, None, None, 24.5]
    assert version_1(patched)[:3] == version_1(table_of(ALL))[:3]


def test_a_refit_by_an_older_worker_keeps_the_columns_that_it_does_not_know():
    newer = table_of(ALL).append_column("a_later_column", pa.array([1.0, 2.0, 3.0, 4.0]))
    patched = patch(from_parquet(to_parquet(newer)), [3], table_of(["fitted"], first_x=3))
    assert patched.column_names == [*SCHEMA.names, "a_later_column"]
    assert patched["a_later_column"].to_pylist() == [1.0, 2.0, 3.0, None]


def test_a_refit_keeps_the_metadata_of_the_file():
    with OutputFile(GEOMETRY, {"prismline.run_id": "r-1"}) as output:
        output.add(table_of(ALL).replace_schema_metadata({"noise": "0.25"}))
        body = output.finish()
    patched = to_parquet(patch(from_parquet(body), [3], table_of(["empty"], first_x=3)))
    metadata = pq.read_metadata(pa.BufferReader(patched)).metadata
    assert metadata[b"prismline.run_id"] == b"r-1"
    assert metadata[b"noise"] == b"0.25"
    assert pq.read_schema(pa.BufferReader(patched)).field("component_fluxes_physical").metadata[b"unit"] == b"K m/s"


def test_the_metadata_has_the_run_its_parameters_and_the_units():
    command = ChunkProcess(
        run_id="r-1", job_id="first light", survey="grs", workload="spectra", chunk_id="chunk-0000000", n_items=4,
        bucket="b", chunk_key="k", params={},
    )  # fmt: skip
    with OutputFile(GEOMETRY, metadata_of(command, FitParams(beta=4.0), GEOMETRY)) as output:
        output.add(table_of(ALL))
        body = output.finish()
    metadata = {key.decode(): value.decode() for key, value in pq.read_metadata(pa.BufferReader(body)).metadata.items()}
    assert metadata["prismline.job_id"] == "first light"
    assert json.loads(metadata["prismline.params"]) == {
        "beta": 4.0, "max_refine_iter": 3, "snr_min": 1.5, "mf_snr_min": 5.0, "f_sep": 1.2, "neg_thresh": 5.0,
        "decomposer": "gaussline", "preset": "best",
    }  # fmt: skip
    units = json.loads(metadata["prismline.units"])
    assert (units["component_amplitudes"], units["component_means_physical"]) == ("K", "m/s")
    assert (units["component_fluxes_physical"], units["longitude"]) == ("K m/s", "deg")
    assert json.loads(metadata["prismline.geometry"])["celestial"] == {"CTYPE1": "GLON-CAR", "CTYPE2": "GLAT-CAR"}
