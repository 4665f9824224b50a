"""`prismline submit`: where it puts cubes and manifests."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from prismline_cli.connection import Connection
from prismline_cli.output import CommandError
from prismline_cli.submission import correlation_given, line_given, submit

pytestmark = pytest.mark.emulator


@pytest.fixture
def connection(aws_env: dict[str, str]) -> Connection:
    """A connection to an empty bucket."""
    bucket = f"bucket-{aws_env['ENVIRONMENT']}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    return SimpleNamespace(s3=boto3.client("s3"), bucket=bucket)  # type: ignore[return-value]


@pytest.fixture
def cube(tmp_path: Path) -> Path:
    """A local file. Its content does not matter here."""
    path = tmp_path / "cube.fits"
    path.write_bytes(b"first")
    return path


def keys(connection: Connection, prefix: str) -> set[str]:
    found = connection.s3.list_objects_v2(Bucket=connection.bucket, Prefix=prefix).get("Contents", [])
    return {entry["Key"] for entry in found}


def read(connection: Connection, key: str) -> bytes:
    return connection.s3.get_object(Bucket=connection.bucket, Key=key)["Body"].read()


def manifest(connection: Connection, idempotency_key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(connection, f"manifests/{idempotency_key}.json"))
    return found


def test_two_submissions_with_one_file_name_share_no_cube(connection: Connection, cube: Path) -> None:
    first = submit(connection, str(cube), {"survey": "grs", "idempotency_key": "a"})
    cube.write_bytes(b"second")
    second = submit(connection, str(cube), {"survey": "grs", "idempotency_key": "b"})
    assert keys(connection, "cubes/") == {f"cubes/grs/{run_id}/cube.fits" for run_id in (first, second)}
    assert read(connection, manifest(connection, "a")["cube_key"]) == b"first"
    assert read(connection, manifest(connection, "b")["cube_key"]) == b"second"


def test_a_submission_that_is_sent_twice_starts_one_run(connection: Connection, cube: Path) -> None:
    fields = {"survey": "grs", "idempotency_key": "a"}
    run_id = submit(connection, str(cube), fields)
    before = connection.s3.head_object(Bucket=connection.bucket, Key=f"cubes/grs/{run_id}/cube.fits")["ETag"]
    assert submit(connection, str(cube), fields) == run_id
    assert keys(connection, "cubes/") == {f"cubes/grs/{run_id}/cube.fits"}
    after = connection.s3.head_object(Bucket=connection.bucket, Key=f"cubes/grs/{run_id}/cube.fits")["ETag"]
    assert after == before, "the run is pinned to this version"


def test_a_cube_in_the_bucket_stays_where_it_is(connection: Connection) -> None:
    connection.s3.put_object(Bucket=connection.bucket, Key="mine/c.fits", Body=b"x")
    submit(connection, f"s3://{connection.bucket}/mine/c.fits", {"survey": "grs", "idempotency_key": "a"})
    assert manifest(connection, "a")["cube_key"] == "mine/c.fits"
    assert keys(connection, "cubes/") == set()


def test_a_cube_in_another_bucket_stays_where_it_is(connection: Connection) -> None:
    submit(connection, "s3://survey/tiles/c.fits", {"survey": "grs", "idempotency_key": "a"})
    found = manifest(connection, "a")
    assert (found["cube_bucket"], found["cube_key"]) == ("survey", "tiles/c.fits")
    assert keys(connection, "cubes/") == set()


@pytest.mark.parametrize("cube", ["s3://survey", "s3://survey/", "s3:///c.fits"])
def test_an_address_without_an_object_is_refused(connection: Connection, cube: str) -> None:
    with pytest.raises(CommandError, match="s3://BUCKET/KEY"):
        submit(connection, cube, {"survey": "grs"})


@pytest.mark.parametrize("fields", [{"survey": "a/b"}, {"survey": "grs", "chunk_size": 0}])
def test_a_wrong_submission_uploads_nothing(connection: Connection, cube: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(CommandError):
        submit(connection, str(cube), fields)
    assert keys(connection, "") == set()


# ---- noise


def test_noise_that_is_a_number_goes_into_the_parameters(connection: Connection, cube: Path) -> None:
    submit(connection, str(cube), {"survey": "grs", "idempotency_key": "a", "params": {"beta": 4.0}}, noise="0.25")
    assert manifest(connection, "a")["params"] == {"beta": 4.0, "noise": 0.25}
    assert keys(connection, "noise/") == set()


def test_a_noise_map_is_uploaded_beside_the_cube(connection: Connection, cube: Path, tmp_path: Path) -> None:
    (tmp_path / "rms.fits").write_bytes(b"a map")
    fields = {"survey": "grs", "idempotency_key": "a"}
    run_id = submit(connection, str(cube), fields, noise=str(tmp_path / "rms.fits"))
    key = manifest(connection, "a")["params"]["noise"]
    assert key == f"noise/grs/{run_id}/rms.fits"
    assert read(connection, key) == b"a map"


@pytest.mark.parametrize(
    ("noise", "params"), [("-1", {}), ("nan", {}), ("nowhere.fits", {}), ("0.25", {"decomposer": "phspectra"})]
)
def test_a_wrong_noise_uploads_nothing(connection: Connection, cube: Path, noise: str, params: dict[str, Any]) -> None:
    with pytest.raises(CommandError):
        submit(connection, str(cube), {"survey": "grs", "params": params}, noise=noise)
    assert keys(connection, "") == set()


# ---- correlation


@pytest.mark.parametrize(
    ("text", "given"), [("white", "white"), ("spectrum", "spectrum"), ("1,0.5,-0.1", [1.0, 0.5, -0.1])]
)
def test_a_correlation_goes_into_the_parameters(connection: Connection, cube: Path, text: str, given: object) -> None:
    params = {"correlation": correlation_given(text)}
    submit(connection, str(cube), {"survey": "grs", "idempotency_key": "a", "params": params})
    assert manifest(connection, "a")["params"] == {"correlation": given}


@pytest.mark.parametrize("text", ["estimate", "", "1", "0.5,0.1", "1,2", "1,nan", "1,0,0,0,0,0,0,0,0", "1,0.9,-0.9"])
def test_a_wrong_correlation_uploads_nothing(connection: Connection, cube: Path, text: str) -> None:
    with pytest.raises(CommandError, match="correlation"):
        submit(connection, str(cube), {"survey": "grs", "params": {"correlation": correlation_given(text)}})
    assert keys(connection, "") == set()


# ---- lines


def test_a_line_goes_into_the_parameters_with_its_decomposer(connection: Connection, cube: Path) -> None:
    submit(connection, str(cube), {"survey": "grs", "idempotency_key": "a", "params": {"line": line_given("nh3_1-1")}})
    assert manifest(connection, "a")["params"] == {"line": "nh3_1-1", "decomposer": "hyperfine"}


def test_a_table_of_lines_is_read_from_a_file(connection: Connection, cube: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("# km/s  weight\n-4.5  3\n\n0  5  # the strongest\n7.1 1\n")
    params = {"line": line_given(str(tmp_path / "lines.txt"))}
    submit(connection, str(cube), {"survey": "grs", "idempotency_key": "a", "params": params})
    assert manifest(connection, "a")["params"]["line"] == {"offsets": [-4.5, 0.0, 7.1], "weights": [3.0, 5.0, 1.0]}


@pytest.mark.parametrize("text", ["", "# nothing\n", "1 2 3\n", "1\n", "a b\n", "0 -1\n", "nan 1\n", "0 1\n" * 101])
def test_a_wrong_table_of_lines_uploads_nothing(connection: Connection, cube: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "lines.txt").write_text(text)
    with pytest.raises(CommandError, match="line"):
        submit_with_table(connection, str(cube), str(tmp_path / "lines.txt"))
    assert keys(connection, "") == set()


def submit_with_table(connection: Connection, cube: str, table: str) -> None:
    submit(connection, cube, {"survey": "grs", "params": {"line": line_given(table)}})


@pytest.mark.parametrize("params", [{"line": "hcn_1-0", "decomposer": "phspectra"}, {"decomposer": "hyperfine"}])
def test_a_line_and_another_decomposer_are_refused(connection: Connection, cube: Path, params: dict[str, Any]) -> None:
    with pytest.raises(CommandError, match="hyperfine"):
        submit(connection, str(cube), {"survey": "grs", "params": params})
    assert keys(connection, "") == set()
