"""Bad input fails its run with one sentence that names the cause. No run hangs and no message is retried."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

from prismline_contracts.base import derived_id
from prismline_cube.testing import empty_hdus, forged_member, grid, no_groups, zarr_file
from tests.cubes import header, write_cube
from tests.invariants import assert_invariants
from tests.system import System, wait_for

pytestmark = pytest.mark.e2e


def _write(data: np.ndarray, **cards: Any) -> Callable[[Path], None]:
    return lambda path: fits.writeto(path, data, header(**cards))


def _truncated(path: Path) -> None:
    write_cube(path)
    path.write_bytes(path.read_bytes()[:4000])


#: Objects instead of a valid cube, with the error of the run.
BAD_CUBES: dict[str, tuple[Callable[[Path], object], str]] = {
    "not FITS": (lambda path: path.write_bytes(b"P6 picture"), "not FITS"),
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "truncated": (_truncated, "truncated"),
    "no spectral axis": (lambda path: write_cube(path, CTYPE3="STOKES"), "no spectral axis"),
    "one axis": (_write(np.ones(50, "f4"), CTYPE1="VRAD", CTYPE2=None, CTYPE3=None), "1 ax"),
    "five axes": (_write(np.ones((1, 1, 60, 2, 2), "f4")), "5 axes"),
    "no data": (lambda path: fits.PrimaryHDU(header=header()).writeto(path), "no "),
    "broken gzip": (lambda path: path.write_bytes(gzip.compress(bytes(9999))[:-20]), "gzip"),
    "no groups": (lambda path: path.write_bytes(no_groups()), "GCOUNT is 0 and must be 1"),
    "forged member": (lambda path: path.write_bytes(forged_member()), "claims 1,000,000,000,000,000 bytes"),
    "empty chunks": (
        lambda path: path.write_bytes(zarr_file(chunk_grid=grid([6, 0, 5]))),
        "chunk shape has the length 0",
    ),
    "empty HDUs": (lambda path: path.write_bytes(empty_hdus(7000)), "first 100 HDUs"),
}


def test_each_bad_cube_fails_its_run_with_the_cause(system: System, tmp_path: Path) -> None:
    run_ids = {}
    for name, (make, _) in BAD_CUBES.items():
        path = tmp_path / f"{name.replace(' ', '-')}.fits"
        make(path)
        run_ids[name] = system.submit(path, survey="bad")
    for name, (_, message) in BAD_CUBES.items():
        run_id = run_ids[name]
        view = system.wait(run_id)
        assert view.status == "failed", name
        assert view.state is not None
        assert message.lower() in (view.state.error_message or "").lower(), name
        assert f"{name.replace(' ', '-')}.fits" in (view.state.error_message or ""), "the sentence names the cube"
        assert (view.state.error_message or "") in system.cli("failures", run_id, expect=1)
        assert_invariants(system, run_id)


#: Bodies of manifests, with the error of the run.
BAD_MANIFESTS: dict[str, tuple[Any, str]] = {
    "not JSON": ("{cube_key: ", "JSON"),
    "a list": ([1, 2], "object"),
    "no survey": ({"cube_key": "cubes/c.fits"}, "survey: Field required"),
    "no cube": ({"survey": "bad"}, "cube_key: Field required"),
    "a slash": ({"cube_key": "cubes/c.fits", "survey": "a/b"}, "survey"),
    "unknown parameter": ({"cube_key": "cubes/c.fits", "survey": "bad", "params": {"betta": 3.0}}, "params.betta"),
    "out of range": ({"cube_key": "cubes/c.fits", "survey": "bad", "params": {"beta": -1.0}}, "params.beta"),
    "wrong type": ({"cube_key": "cubes/c.fits", "survey": "bad", "params": {"beta": "high"}}, "params.beta"),
    "chunk size": ({"cube_key": "cubes/c.fits", "survey": "bad", "chunk_size": 0}, "chunk_size"),
    "unknown workload": (
        {"workload": "paint", "survey": "bad"},
        "no workload 'paint'; choose one of captions, spectra",
    ),
    "no windows": (
        {"workload": "captions", "session_id": "s", "user_id": "u", "windows": []},
        "windows: List should have at least 1 item",
    ),
    "missing cube": ({"cube_key": "cubes/nowhere.fits", "survey": "bad"}, "cubes/nowhere.fits: it does not exist"),
}


def test_each_bad_manifest_fails_its_run_with_the_cause(system: System) -> None:
    keys = {}
    for name, (body, _) in BAD_MANIFESTS.items():
        keys[name] = system.put_manifest(body.encode() if isinstance(body, str) else json.dumps(body).encode())

    def run_of(key: str) -> str | None:
        message = (e for e in system.observer.events() if e["type"] == "prismline.run.submitted.v1")
        return next((str(event["runid"]) for event in message if event["data"]["manifest_key"] == key), None)

    for name, (_, message) in BAD_MANIFESTS.items():
        run_id = wait_for(lambda key=keys[name]: run_of(key), f"the run of the manifest: {name}")
        view = system.wait(run_id)
        assert view.status == "failed", name
        assert view.state is not None
        assert message in (view.state.error_message or ""), name
        assert_invariants(system, run_id)
    assert system.depth("split-dlq") == 0, "the splitter answers a bad submission and does not dead-letter it"


def test_an_object_that_is_no_manifest_starts_nothing(system: System) -> None:
    system.put_manifest(b"{}", key="manifests/readme.txt")
    system.wait_until_idle()
    assert not [e for e in system.observer.events() if e["data"].get("manifest_key") == "manifests/readme.txt"]


def test_ids_of_runs_without_an_idempotency_key_differ_by_upload() -> None:
    assert derived_id("run", "b", "k", "1") != derived_id("run", "b", "k", "2")
