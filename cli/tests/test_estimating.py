"""`--estimate`: what a run would cost, from the file that would be submitted, which is not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import boto3
import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from cli_world import CliWorld
from pyarrow import parquet

pytestmark = pytest.mark.emulator


@pytest.fixture
def cube(tmp_path: Path) -> Path:
    """A cube of 20 spectra with 30 channels."""
    path = tmp_path / "cube.fits"
    fits.writeto(path, np.zeros((30, 4, 5), np.float32), fits.Header({"CTYPE3": "VRAD"}))
    return path


def objects(world: CliWorld) -> list[str]:
    found = world.connection.s3.list_objects_v2(Bucket=world.connection.bucket).get("Contents", [])
    return [entry["Key"] for entry in found]


def test_submit_shows_what_a_cube_would_cost_and_submits_nothing(world: CliWorld, cube: Path) -> None:
    shown = world.run("submit", str(cube), "--survey", "grs", "--estimate").stdout
    assert "USD on AWS (prices: us-east-1, 2025)" in shown
    assert "0.2 to 2 times the planned" in shown
    assert shown.endswith("Computed, not measured. Nothing was submitted.\n")
    assert objects(world) == []


def test_the_parameters_and_the_size_of_chunks_count(world: CliWorld, cube: Path) -> None:
    usual = world.json("submit", str(cube), "--survey", "grs", "--estimate")
    assert usual["items"] == 20
    slow = world.json("submit", str(cube), "--survey", "grs", "--estimate", "--second-pass")
    assert slow["worked_seconds"]["least"] == pytest.approx(50 * usual["worked_seconds"]["least"])
    fine = world.json("submit", str(cube), "--survey", "grs", "--estimate", "--chunk-size", "1")
    assert fine["usd"]["least"] > 10 * usual["usd"]["least"]


def test_a_cube_in_a_bucket_and_a_compressed_one_are_read_too(world: CliWorld, cube: Path) -> None:
    boto3.client("s3").put_object(Bucket=world.connection.bucket, Key="cubes/c.fits", Body=cube.read_bytes())
    packed = cube.with_name("cube.fits.gz")
    packed.write_bytes(gzip.compress(cube.read_bytes()))
    for name in (f"s3://{world.connection.bucket}/cubes/c.fits", str(packed)):
        assert world.json("submit", name, "--survey", "grs", "--estimate")["items"] == 20


def test_a_manifest_is_estimated_if_it_lists_what_its_run_works_on(world: CliWorld, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"workload": "urls", "survey": "pages", "urls": ["https://example.org"] * 7}))
    found = world.json("submit", "--manifest", str(path), "--estimate")
    assert (found["workload"], found["items"]) == ("urls", 7)
    path.write_text(json.dumps({"workload": "urls", "survey": "pages", "list": {"key": "uploads/list"}}))
    assert (
        "does not list what its run works on"
        in world.run("submit", "--manifest", str(path), "--estimate", expect=2).output
    )
    assert objects(world) == []


def test_map_counts_the_rows_of_every_kind_of_list(
    world: CliWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seeing.py").write_text("def measure(item: dict) -> int:\n    return 1\n")
    Path("rows.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n{"a": 3}')
    Path("rows.csv").write_text('a,b\n1,"x\ny"\n2,z\n3,z\n')
    Path("rows.csv.gz").write_bytes(gzip.compress(Path("rows.csv").read_bytes()))
    parquet.write_table(pa.table({"a": [1, 2, 3]}), "rows.parquet")
    for name in ("rows.jsonl", "rows.csv", "rows.csv.gz", "rows.parquet"):
        assert world.json("map", "seeing:measure", name, "--estimate")["items"] == 3, name
    found = world.json("map", "seeing:measure", "rows.csv", "--estimate", "--max-items", "2")
    assert found["items"] == 2
    assert "No run of seeing:measure has ended anything: each item may take up to its timeout" in found["reasons"][0]
    assert objects(world) == []
