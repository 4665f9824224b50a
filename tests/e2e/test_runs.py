"""Cubes from submission to dataset, over real queues."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import phspectra
import pyarrow.dataset
import pytest
from astropy.io import fits

import prismline_gaussline
from prismline_cli.results import spectra
from prismline_client import Client
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.system import CHUNK_SERVICES, System, wait_for

pytestmark = pytest.mark.e2e


def test_a_generated_cube_is_decomposed(system: System, tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "cube.fits", ny=4, nx=5)
    run_id = system.submit(cube, chunk_size=6)
    view = system.wait(run_id)
    assert (view.status, view.completed, view.failed, view.total) == ("completed", 4, 0, 4)
    table = system.table(run_id)
    assert len(table) == 20
    assert sum(n == 1 for n in table["n_components"].to_pylist()) >= 15, "most spectra hold exactly their one line"
    assert_invariants(system, run_id, nx=5)
    events = {event["id"]: event["type"] for event in system.events(run_id)}  # repeated events have the same id
    announcements = [kind.removeprefix("prismline.run.") for kind in events.values()]
    assert [kind for kind in announcements if "chunk" not in kind] == [
        "submitted.v1",
        "started.v1"
        if announcements.index("started.v1") < announcements.index("split.completed.v1")
        else "split.completed.v1",
        "split.completed.v1"
        if announcements.index("started.v1") < announcements.index("split.completed.v1")
        else "started.v1",
        "drained.v1",
        "completed.v1",
    ]


def test_a_cube_that_is_in_s3_is_decomposed_by_reference(system: System, tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "cube.fits", ny=4, nx=5)
    s3, bucket = system.connection.s3, system.connection.bucket
    s3.upload_file(str(cube), bucket, "tiles/cube.fits")
    copied = system.submit(cube, chunk_size=6, chunk_input="copy")
    referred = system.submit(f"s3://{bucket}/tiles/cube.fits", chunk_size=6, chunk_input="reference")
    for run_id, n_inputs in ((copied, 4), (referred, 0)):
        view = system.wait(run_id)
        assert (view.status, view.completed, view.failed, view.total) == ("completed", 4, 0, 4)
        assert_invariants(system, run_id, nx=5)
        objects = s3.list_objects_v2(Bucket=bucket, Prefix=f"chunks/{run_id}/chunk-").get("Contents", [])
        assert len(objects) == n_inputs
    assert system.table(referred).equals(system.table(copied))
    shown = json.loads(system.cli("chunks", referred, "--json"))
    assert [chunk["reference"]["first"] for chunk in shown] == [0, 6, 12, 18]
    assert system.cli("chunks", referred).count("reference") == 4
    pixels = [(4, 3), (0, 0), (2, 1)]
    drawn = [spectra(Client.open(), run_id, pixels) for run_id in (copied, referred)]
    data = fits.getdata(cube)
    for x, y in pixels:
        for found in drawn:
            np.testing.assert_array_equal(found[x, y], data[:, y, x])


def with_phspectra(spectra: np.ndarray) -> list[int]:
    return [len(phspectra.fit_gaussians(np.nan_to_num(spectrum))) for spectrum in spectra]


def with_gaussline(spectra: np.ndarray) -> list[int]:
    """The noise of the whole cube has one correlation."""
    correlation = prismline_gaussline.estimate_correlation(spectra)
    return prismline_gaussline.decompose(spectra, correlation=correlation).n_components.tolist()


def first_rows(cube: Path, rows: int, to: Path) -> Path:
    """A cube with the first rows of another cube."""
    with fits.open(cube) as hdus:
        hdus[0].data = hdus[0].data[..., :rows, :]
        hdus.writeto(to)
    return to


# phspectra takes 0.2 s for a spectrum, in this test and in the worker, so it gets fewer spectra.
@pytest.mark.parametrize(
    ("decomposer", "directly", "rows"), [("phspectra", with_phspectra, 3), ("gaussline", with_gaussline, 10)]
)
def test_a_real_cube_gives_what_the_decomposer_gives_directly(
    system: System,
    grs_cube: Path,
    tmp_path: Path,
    decomposer: str,
    directly: Callable[[np.ndarray], list[int]],
    rows: int,
) -> None:
    cube = first_rows(grs_cube, rows, tmp_path / "grs.fits")
    run_id = system.submit(cube, survey="grs", chunk_size=10, params={"decomposer": decomposer})
    view = system.wait(run_id)
    assert (view.status, view.total, view.failed) == ("completed", rows, 0)
    assert_invariants(system, run_id, nx=10)
    document = json.loads(system.cli("run", run_id, "--json"))
    assert (document["n_spectra"], document["chunks_completed"], document["chunks_failed"]) == (10 * rows, rows, 0)

    system.cli("results", run_id, "--to", str(tmp_path))
    dataset = pyarrow.dataset.dataset(tmp_path / "decompositions", partitioning="hive")
    spectra = dataset.to_table(filter=pyarrow.dataset.field("run") == run_id).to_pylist()
    assert len(spectra) == 10 * rows
    assert {row["survey"] for row in spectra} == {"grs"}
    fitted = [row for row in spectra if row["status"] != "blank"]
    assert {row["decomposer"] for row in fitted} == {decomposer}
    data = fits.getdata(cube).squeeze().astype("f8")
    direct = directly(np.array([data[:, row["y"], row["x"]] for row in fitted]))
    assert [row["n_components"] for row in fitted] == direct


def test_two_runs_of_one_survey_do_not_touch_each_other(system: System, tmp_path: Path) -> None:
    first = system.submit(write_cube(tmp_path / "a.fits", seed=1), survey="twice", chunk_size=5)
    second = system.submit(write_cube(tmp_path / "b.fits", seed=2), survey="twice", chunk_size=7)
    for run_id in (first, second):
        assert system.wait(run_id).status == "completed"
        assert_invariants(system, run_id, nx=5)
    assert system.table(first)["component_means"] != system.table(second)["component_means"]
    assert {view["run_id"] for view in json.loads(system.cli("runs", "--survey", "twice", "--json"))} == {first, second}


def test_a_submission_that_is_sent_twice_runs_once(system: System, tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "cube.fits", ny=2, nx=2)
    first = system.submit(cube, idempotency_key="once")
    system.wait(first)
    second = system.submit(cube, idempotency_key="once")
    system.wait_until_idle()
    assert first == second
    assert system.item(first).chunks_completed == 1
    assert [chunk.attempts for chunk in system.chunks(first)] == [1]
    assert_invariants(system, first, nx=2)


def test_a_manifest_put_by_hand_starts_a_run(system: System, tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "cube.fits", ny=1, nx=3)
    system.connection.s3.upload_file(str(cube), system.connection.bucket, "cubes/hand.fits")
    body = json.dumps({"cube_key": "cubes/hand.fits", "survey": "by-hand", "params": {"beta": 4.0}, "note": "ignored"})
    system.put_manifest(body.encode())
    run = wait_for(lambda: system.connection.ledger.runs_of("by-hand"), "the run to appear")[0]
    assert system.wait(run.run_id).status == "completed"
    assert set(system.table(run.run_id)["beta"].to_pylist()) == {4.0}


def test_blank_spectra_are_counted_and_not_fitted(system: System, tmp_path: Path) -> None:
    path = write_cube(tmp_path / "cube.fits", ny=2, nx=4)
    with fits.open(path, mode="update") as hdus:
        hdus[0].data[:, 1, :] = float("nan")
    run_id = system.submit(path, chunk_size=3)
    assert system.wait(run_id).status == "completed"
    assert system.item(run_id).n_blank == 4
    statuses = system.table(run_id)["status"].to_pylist()
    assert statuses[4:] == ["blank"] * 4
    assert "blank" not in statuses[:4]
    assert_invariants(system, run_id, nx=4)


def test_a_cancelled_run_processes_no_further_chunk(faults: System, tmp_path: Path) -> None:
    system = faults
    system.set_faults([{"point": "chunk.started", "action": "hang", "seconds": 1.0}])
    run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=6, nx=10), chunk_size=1)
    wait_for(lambda: system.events(run_id, "chunk.completed"), "the first chunk to complete")
    system.cli("cancel", run_id)
    view = system.wait(run_id)
    assert view.status == "cancelled"
    system.wait_until_idle()
    view = system.view(run_id)
    assert view is not None
    assert view.completed < 30
    assert view.failed == 0
    assert sum(chunk.attempts for chunk in system.chunks(run_id)) == view.completed
    assert_invariants(system, run_id, nx=10)
    assert "cancelled already" in system_error(system, "cancel", run_id)


def test_a_cancelled_run_goes_on_and_completes(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        System.running(
            tmp_path_factory.mktemp("goes-on"), patch, services=CHUNK_SERVICES, SWEEP_IDLE_SECONDS="2"
        ) as system,
    ):
        system.set_faults([{"point": "chunk.started", "action": "hang", "seconds": 5.0}])
        run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=4, nx=5), chunk_size=1)
        system.cancel_in_mid_run(run_id)
        system.set_faults([])
        system.cli("retry", run_id, "--cancelled", "--wait")
        view = system.wait(run_id)
        assert (view.status, view.completed, view.total) == ("completed", 20, 20)
        system.wait_until_idle()
        assert_invariants(system, run_id, nx=5, cancelled=True)


def test_spectra_that_run_out_of_time_are_done_in_the_slow_lane(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    settings = {"SPECTRUM_BUDGET_SECONDS": "0.000001"}
    with (
        pytest.MonkeyPatch.context() as patch,
        System.running(tmp_path_factory.mktemp("slow"), patch, services=CHUNK_SERVICES, **settings) as system,
    ):
        cube = write_cube(tmp_path / "cube.fits", ny=2, nx=3)
        for decomposer in ("phspectra", "gaussline"):
            run_id = system.submit(cube, chunk_size=3, params={"decomposer": decomposer})
            assert system.wait(run_id).status == "completed"
            assert system.item(run_id).n_timed_out == 0
            statuses = system.table(run_id)["status"].to_pylist()
            assert len(statuses) == 6
            assert set(statuses) <= {"fitted", "empty"}
            assert_invariants(system, run_id, nx=3)


def system_error(system: System, *arguments: str) -> str:
    """Run a command that has to fail. Return its standard error."""
    return system.cli(*arguments, expect=2, stream="stderr")
