"""The `prismline` command and the documented queries of the AWS command line show the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pyarrow.parquet as pq
import pytest
from astropy.io import fits
from botocore import xform_name

from prismline_contracts.items import ChunkStatus
from prismline_contracts.manifest import FitParams
from tests.cubes import write_cube
from tests.system import System, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def finished(system: System, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of four chunks, of which one failed."""
    where = {"chunk_id": "chunk-0000002"}
    system.set_faults([{"point": "chunk.started", "action": "permanent", "where": where}])
    cube = write_cube(tmp_path_factory.mktemp("cubes") / "cube.fits", ny=2, nx=4)
    run_id = system.submit(cube, survey="cli-survey", chunk_size=2)
    system.wait(run_id)
    system.set_faults([])
    return run_id


def test_submit_and_wait_shows_progress_in_a_pipe(system: System, tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "cube.fits", ny=2, nx=3)
    arguments = ("submit", str(cube), "--survey", "waited", "--beta", "4.5", "--chunk-size", "2", "--wait", "--json")
    document = json.loads(system.cli(*arguments))
    assert (document["status"], document["chunks_completed"]) == ("completed", 3)
    assert document["params"] == FitParams(beta=4.5).model_dump(exclude_none=True), "defaults included"
    progress = system.cli("watch", document["run_id"], stream="stderr")
    assert "completed: 3/3 chunks" in progress


def test_run_tells_of_the_failure_by_its_exit_code(system: System, finished: str) -> None:
    document = json.loads(system.cli("run", finished[:8], "--json", expect=1))
    assert (document["run_id"], document["chunks_total"], document["chunks_failed"]) == (finished, 4, 1)
    assert finished in system.cli("runs", "--survey", "cli-survey")
    assert finished in system.cli("runs")


def test_chunks_can_be_listed_by_status(system: System, finished: str) -> None:
    (failed,) = json.loads(system.cli("chunks", finished, "--status", "failed", "--json"))
    assert failed["chunk_id"] == "chunk-0000002"
    assert len(json.loads(system.cli("chunks", finished, "--json"))) == 4
    shown = json.loads(system.cli("failures", finished, "--json", expect=1))
    assert [chunk["error"] for chunk in shown["chunks"]] == ["Injected permanent fault at chunk.started."]


def test_a_chunk_that_failed_for_good_is_tried_again_until_the_run_has_completed(
    system: System, tmp_path: Path
) -> None:
    system.set_faults([{"point": "chunk.started", "action": "permanent", "where": {"chunk_id": "chunk-0000002"}}])
    run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=2, nx=2), chunk_size=2)
    assert system.wait(run_id).status == "failed"
    system.set_faults([])
    done = json.loads(system.cli("retry", run_id[:12], "--failed", "--wait", "--json"))
    assert (done["n_sent"], done["n_recovered"], done["n_failed"]) == (1, 1, 0)
    wait_for(lambda: (view := system.view(run_id)) and view.status == "completed", "the run to complete")
    assert json.loads(system.cli("run", run_id, "--json"))["error"] is None
    assert f"No chunk of run {run_id} has failed." in system.cli("retry", run_id, expect=2, stream="stderr")


def test_a_picture_is_drawn_of_what_completed(system: System, finished: str, tmp_path: Path) -> None:
    for arguments in (("--to", str(tmp_path / "run.png")), ("--x", "1", "--y", "0", "--to", str(tmp_path / "one.png"))):
        system.cli("plot", finished, *arguments)
        assert Path(arguments[-1]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("pixel", "message"),
    [
        (("--x", "100", "--y", "0"), "The cube has no pixel x=100, y=0: x goes from 0 to 3 and y from 0 to 1."),
        (("--x", "2", "--y", "0"), "The spectrum at x=2, y=0 was not processed: its chunk has not completed"),
    ],
)
def test_a_pixel_that_cannot_be_drawn_is_refused(
    system: System, finished: str, pixel: tuple[str, ...], message: str
) -> None:
    assert message in system.cli("plot", finished, *pixel, expect=2, stream="stderr")


def test_a_run_of_a_cube_without_data_ends_with_a_warning(system: System, tmp_path: Path) -> None:
    cube = tmp_path / "blank.fits"
    data = np.full((20, 2, 2), np.nan, np.float32)
    fits.PrimaryHDU(data, fits.Header({"CTYPE3": "VRAD"})).writeto(cube)
    output = system.cli("submit", str(cube), "--survey", "blank", "--wait", stream="stderr")
    assert "Warning: All 4 spectra of the cube are blank: nothing was fitted." in output
    (run, *_) = json.loads(system.cli("runs", "--survey", "blank", "--json"))
    system.cli("plot", run["run_id"], "--to", str(tmp_path / "blank.png"))
    assert (tmp_path / "blank.png").read_bytes().startswith(b"\x89PNG")


def test_a_given_noise_is_the_noise_of_the_results(system: System, tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "cube.fits", ny=2, nx=3)
    values = np.linspace(0.1, 0.6, 6, dtype=np.float32).reshape(2, 3)
    fits.PrimaryHDU(values).writeto(tmp_path / "rms.fits")
    document = json.loads(
        system.cli("submit", str(cube), "--survey", "noise", "--noise", str(tmp_path / "rms.fits"), "--wait", "--json")
    )
    assert document["params"]["noise"].endswith("rms.fits")
    system.cli("results", document["run_id"], "--to", str(tmp_path / "out"))
    table = pq.read_table(tmp_path / "out" / "decompositions")
    found = {(row["x"], row["y"]): row["rms"] for row in table.to_pylist()}
    assert found == {(x, y): pytest.approx(float(values[y, x])) for y in range(2) for x in range(3)}


def test_two_runs_of_a_cube_are_compared(system: System, finished: str, tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "cube.fits", ny=2, nx=3)
    runs = [system.submit(cube, survey="compared", params={"snr_min": least}) for least in (1.5, 100.0)]
    for run_id in runs:
        system.wait(run_id)
    to = tmp_path / "difference.pdf"
    document = json.loads(system.cli("compare", *runs, "--to", str(to), "--json"))
    assert to.read_bytes().startswith(b"%PDF")
    assert document["runs"] == runs
    assert document["params"] == {"snr_min": [1.5, 100.0]}
    assert document["pixels"]["compared"] == 6
    first, second = document["counts"]
    assert first["components"] > second["components"]
    assert document["most_different"][0]["difference"] > 0
    shown = system.cli("compare", *runs, "--to", str(to))
    assert "6 pixels fitted in both runs" in shown
    output = system.cli("compare", runs[0], finished, expect=2, stream="stderr")
    assert "The cubes of the two runs cannot be compared: one has 3 columns and the other 4." in output


def test_a_stuck_chunk_is_seen(system: System, tmp_path: Path) -> None:
    system.set_faults([{"point": "chunk.started", "action": "hang", "seconds": 60}])
    run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=1, nx=1))
    wait_for(
        lambda: (
            (run := system.connection.ledger.get_run(run_id))
            and run.latched_at
            and system.chunks(run_id, ChunkStatus.IN_PROGRESS)
        ),
        "the chunk to be started",
    )
    assert json.loads(system.cli("stuck", run_id, "--json")) == []
    (chunk,) = json.loads(system.cli("stuck", run_id, "--minutes", "0", "--json", expect=1))
    assert chunk["status"] == "IN_PROGRESS"
    system.set_faults([])
    assert system.wait(run_id).status == "completed"


#: Stands for the path of a cube.
CUBE = "cube"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "no-such-run"), "There is no run no-such-run."),
        (("submit", "nowhere.fits", "--survey", "s"), "There is no file nowhere.fits."),
        (("submit", CUBE, "--survey", "a/b"), "survey"),
        (("submit", CUBE, "--survey", "s", "--beta", "-1"), "beta: Input should be greater than 0"),
        (("plot", "x", "--x", "1"), "--y"),
        (("chunks", "x", "--status", "lost"), "lost"),
    ],
)
def test_wrong_usage_is_refused_with_a_sentence(
    system: System, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    cube = str(write_cube(tmp_path / "cube.fits", ny=1, nx=1))
    given = [cube if argument == CUBE else argument for argument in arguments]
    assert message in system.cli(*given, expect=2, stream="stderr")


def test_nothing_to_reach_is_an_exit_code_of_its_own(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISMLINE_HOME", "nowhere")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("PRISMLINE_API_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("PRISMLINE_API_KEY", "prismline_k")
    assert "Cannot reach the API" in system.cli("run", "x", expect=3, stream="stderr")
    monkeypatch.delenv("PRISMLINE_API_URL")
    assert "prismline up" in system.cli("runs", expect=3, stream="stderr")


def aws(service: str, operation: str, *arguments: str) -> dict[str, Any]:
    """The answer to a command of the AWS command line, by the model from which it and boto3 make their names.

    The AWS command line 2 is not published as a package.
    """
    client = boto3.client(service)
    call = operation.replace("-", "_")
    members = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[call]).input_shape.members
    options = {xform_name(name, "-"): name for name in members}
    given: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        option = word.removeprefix("--")
        if (switched_off := option.removeprefix("no-")) != option:
            given[options[switched_off]] = False
            continue
        value = next(words)
        given[options[option]] = value if members[options[option]].type_name == "string" else json.loads(value)
    answer: dict[str, Any] = getattr(client, call)(**given)
    return answer


def test_the_documented_aws_queries_work_on_the_ledger(system: System, finished: str) -> None:
    table = ("--table-name", f"prismline-{system.connection.environment}-runs")
    by_run = ("--key-condition-expression", "PK = :pk AND begins_with(SK, :prefix)")

    run = aws("dynamodb", "get-item", *table, "--key", json.dumps({"PK": {"S": finished}, "SK": {"S": "RUN"}}))["Item"]
    assert run["survey"]["S"] == "cli-survey"
    assert [run[name]["N"] for name in ("jobs_total", "jobs_completed", "jobs_failed")] == ["4", "3", "1"]

    values = {":pk": {"S": finished}, ":prefix": {"S": "CHUNK#"}}
    chunks = aws("dynamodb", "query", *table, *by_run, "--expression-attribute-values", json.dumps(values))
    assert [item["SK"]["S"] for item in chunks["Items"]] == [f"CHUNK#chunk-{n:07d}" for n in (0, 2, 4, 6)]

    for status, count in (("IN_PROGRESS", 0), ("FAILED", 1)):
        found = aws(
            "dynamodb",
            "query",
            *table,
            *by_run,
            "--filter-expression",
            "#s = :status",
            "--expression-attribute-names",
            json.dumps({"#s": "status"}),
            "--expression-attribute-values",
            json.dumps(values | {":status": {"S": status}}),
        )
        assert found["Count"] == count

    latest = aws(
        "dynamodb",
        "query",
        *table,
        "--index-name",
        "GSI1",
        "--key-condition-expression",
        "GSI1_PK = :survey",
        "--expression-attribute-values",
        json.dumps({":survey": {"S": "cli-survey"}}),
        "--no-scan-index-forward",
        "--limit",
        "1",
    )
    assert latest["Items"][0]["PK"]["S"] == finished
