"""Maps and spectra over HTTP equal the content of the Parquet files and the cube, in every state of the run."""

from __future__ import annotations

import gzip
import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from api_world import ApiWorld, urls_job
from cube_world import CHUNK, CUBE, N_CHANNELS, NX, NY, STATUSES, CubeRun
from numpy.typing import NDArray

from prismline_api.maps.building import Maps
from prismline_api.maps.map_cache import MapCache
from prismline_contracts.maps import ChunkShade, MapName
from prismline_contracts.objects import CubeGeometry, LineProfile, geometry_key
from prismline_cube import DisplayAxis, Tile, map_values
from prismline_runtime import Bucket

pytestmark = pytest.mark.emulator

TILE = "application/octet-stream"


@pytest.fixture
def cube(world: ApiWorld) -> CubeRun:
    """A run whose chunks refer to the cube and are PENDING."""
    return CubeRun.create(world)


def tile(run: CubeRun, name: str, level: int = 0, column: int = 0, row: int = 0) -> NDArray[np.float32]:
    """A tile, requested until nothing is pending."""
    while True:
        answer = run.api("GET", f"/runs/{run.run_id}/maps/{name}/tiles/{level}/{column}/{row}")
        assert answer.status_code == 200, answer.text
        if answer.headers["Prismline-Pending"] == "0":
            break
    assert answer.headers["Content-Type"] == TILE
    width = min(256, -(-NX // 2**level) - 256 * column)
    return np.frombuffer(answer.content, "<f4").reshape(-1, width)


def whole(run: CubeRun, name: str) -> NDArray[np.float64]:
    """The map, made from the tables that were written."""
    values = np.full(NX * NY, np.nan)
    for first, table in run.tables.items():
        values[first : first + run.count(first)] = map_values(table, MapName(name), DisplayAxis.of(run.geometry))
    return values.reshape(NY, NX)


def halved(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each two by two pixels, without pixels that have no value."""
    blocks = values.reshape(NY // 2, 2, NX // 2, 2).transpose(0, 2, 1, 3).reshape(NY // 2, NX // 2, 4)
    counts = np.isfinite(blocks).sum(axis=2)
    return np.where(counts, np.nansum(blocks, axis=2) / np.maximum(counts, 1), np.nan)


VALUES = [name.value for name in MapName if name is not MapName.CHUNKS]


class TestTiles:
    @pytest.mark.parametrize("name", VALUES)
    def test_a_tile_equals_what_the_outputs_hold(self, cube: CubeRun, name: str) -> None:
        cube.complete()
        expected = whole(cube, name)
        np.testing.assert_allclose(tile(cube, name), expected[:, :256], rtol=1e-6)
        np.testing.assert_allclose(tile(cube, name, column=1), expected[:, 256:], rtol=1e-6)
        assert np.isfinite(expected).any()

    def test_a_coarse_level_is_the_mean_of_pixels_with_a_value(self, cube: CubeRun) -> None:
        cube.complete()
        expected = halved(whole(cube, "rms"))
        np.testing.assert_allclose(tile(cube, "rms", level=1), expected, rtol=1e-6)

    def test_chunks_that_complete_appear_and_those_that_failed_have_no_value(self, cube: CubeRun) -> None:
        world = cube.world
        assert np.isnan(tile(cube, "rms")).all()
        cube.complete(CHUNK)
        world.deps.chunk_index.forget(cube.run_id)  # what a page sees two seconds later
        np.testing.assert_allclose(tile(cube, "rms"), whole(cube, "rms")[:, :256], rtol=1e-6)
        cube.fail(2 * CHUNK)
        cube.complete(0)
        world.deps.chunk_index.forget(cube.run_id)
        found = tile(cube, "rms")
        np.testing.assert_allclose(found, whole(cube, "rms")[:, :256], rtol=1e-6)
        assert np.isnan(found[3 * CHUNK // NX :]).all()
        states = tile(cube, "chunks")
        shades = list(ChunkShade)
        assert shades[int(states[0, 0])] == "COMPLETED"
        assert shades[int(states[2 * CHUNK // NX + 1, 0])] == "FAILED"
        assert shades[int(states[NY - 1, 0])] == "PENDING"

    def test_an_output_that_was_replaced_is_read_again(self, cube: CubeRun) -> None:
        """A refit patches the output of a chunk that has completed."""
        cube.complete()
        before = tile(cube, "rms")
        cube.tables[0] = cube.tables[0].set_column(3, "rms", [np.full(CHUNK, 0.5)])
        cube.store(0)
        cube.world.deps.chunk_index.forget(cube.run_id)
        after = tile(cube, "rms")
        np.testing.assert_allclose(after, whole(cube, "rms")[:, :256], rtol=1e-6)
        assert after[0, 0] == pytest.approx(0.5)
        assert before[0, 0] != after[0, 0]

    def test_an_output_that_is_not_a_parquet_file_leaves_a_gap(self, cube: CubeRun) -> None:
        cube.complete()
        (key,) = [key for key in cube.world.keys("decompositions/") if key.endswith("0000000.parquet")]
        cube.world.deps.bucket.write(key, b"rubbish" * 100)
        found = tile(cube, "rms")
        assert np.isnan(found[0]).all()
        np.testing.assert_allclose(found[10:], whole(cube, "rms")[10:, :256], rtol=1e-6)
        assert cube.api.get(f"/runs/{cube.run_id}/spectra/0/0")["fit"] is None

    def test_a_tile_is_compressed_and_is_not_sent_twice(self, cube: CubeRun) -> None:
        cube.complete()
        tile(cube, "components")
        path, headers = (
            f"/v1/runs/{cube.run_id}/maps/components/tiles/0/0/0",
            {"Authorization": f"Bearer {cube.api.api_key}"},
        )
        plain = cube.world.client.get(path, headers=headers | {"Accept-Encoding": "identity"})
        packed = cube.world.client.get(path, headers=headers | {"Accept-Encoding": "gzip"})
        assert packed.headers["Content-Encoding"] == "gzip"
        assert packed.content == plain.content
        assert len(gzip.compress(plain.content)) < int(plain.headers["Content-Length"])
        again = cube.world.client.get(path, headers=headers | {"If-None-Match": plain.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")

    @pytest.mark.parametrize("path", ["rms/tiles/9/0/0", "rms/tiles/0/2/0", "rms/tiles/0/0/1"])
    def test_a_tile_that_does_not_exist_is_not_found(self, cube: CubeRun, path: str) -> None:
        detail = cube.api.get(f"/runs/{cube.run_id}/maps/{path}", expect=404)["detail"]
        assert "levels go from 0 to 1" in detail or "tiles" in detail


class TestMemory:
    def test_memory_stays_below_its_bound_and_the_tiles_are_the_same(self, cube: CubeRun) -> None:
        """A tile takes 786 kB and a chunk's values take 7 kB. There is room for one tile."""
        cube.complete()
        deps = cube.world.deps
        bounded, bound = MapCache(900_000), 900_000
        maps = Maps(deps.bucket, deps.chunk_index, bounded, deps.logger)
        chunks = deps.chunk_index.chunks(cube.run)
        for name in VALUES:
            for column in (0, 1, 0):
                found = maps.tile(chunks, MapName(name), Tile(NX, NY, 0, column, 0), patience=60)
                expected = whole(cube, name)[:, 256 * column : 256 * (column + 1)]
                np.testing.assert_allclose(found.values, expected, rtol=1e-6)
                assert bounded.n_bytes <= bound

    def test_only_the_columns_of_the_map_are_read(self, cube: CubeRun, monkeypatch: pytest.MonkeyPatch) -> None:
        """A map of one column takes the footer and that column, which is a small part of the file."""
        cube.complete()
        tile(cube, "rms")  # the footers are known from now on
        read: list[int] = []
        original = Bucket.read_range

        def counting(bucket: Bucket, key: str, start: int, stop: int, *, etag: str) -> bytes:
            read.append(stop - start)
            return original(bucket, key, start, stop, etag=etag)

        monkeypatch.setattr(Bucket, "read_range", counting)
        tile(cube, "chi2")
        size = sum(
            holder.output.size for holder in cube.world.deps.chunk_index.chunks(cube.run).holders if holder.output
        )
        assert 0 < sum(read) < size

    def test_a_request_does_not_wait_for_more_than_its_patience(self, cube: CubeRun) -> None:
        """Chunks that are not read yet are pending, and a later request has them."""
        cube.complete()
        maps, chunks = cube.world.deps.maps, cube.world.deps.chunk_index.chunks(cube.run)
        whole_tile = Tile(NX, NY, 1, 0, 0)
        early = maps.tile(chunks, MapName.RMS, whole_tile, patience=0.0)
        assert early.pending > 0
        late = maps.tile(chunks, MapName.RMS, whole_tile, patience=60.0)
        assert late.pending == 0
        np.testing.assert_allclose(late.values, halved(whole(cube, "rms")), rtol=1e-6)

    def test_requests_for_one_tile_do_not_wait_for_one_another(
        self, cube: CubeRun, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first one waits for S3. The others answer after their own patience, and report pending chunks."""
        cube.complete()
        reading, go_on, original = threading.Event(), threading.Event(), Bucket.read_range

        def slow(bucket: Bucket, key: str, start: int, stop: int, *, etag: str) -> bytes:
            reading.set()
            assert go_on.wait(60)
            return original(bucket, key, start, stop, etag=etag)

        monkeypatch.setattr(Bucket, "read_range", slow)
        maps, chunks = cube.world.deps.maps, cube.world.deps.chunk_index.chunks(cube.run)
        place = Tile(NX, NY, 1, 0, 0)
        early = maps.tile(chunks, MapName.RMS, place, patience=0.0)  # the tile is kept from here on
        assert early.pending > 0
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(maps.tile, chunks, MapName.RMS, place, patience=60.0)
            assert reading.wait(60)
            assert maps.tile(chunks, MapName.RMS, place, patience=0.01).pending > 0
            assert not first.done()
            go_on.set()
            assert first.result().pending == 0
        np.testing.assert_allclose(first.result().values, halved(whole(cube, "rms")), rtol=1e-6)

    def test_a_process_that_shows_no_map_loads_neither_pyarrow_nor_astropy(self) -> None:
        code = "import sys, prismline_api.app; print([m for m in ('pyarrow', 'astropy', 'numpy') if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"


class TestMaps:
    def test_the_maps_of_a_run_are_listed_with_their_units(self, cube: CubeRun) -> None:
        cube.complete(0)
        cube.fail(CHUNK)
        found = cube.api.get(f"/runs/{cube.run_id}/maps")
        assert (found["nx"], found["ny"], found["levels"], found["tile_pixels"]) == (NX, NY, 2, 256)
        assert {entry["name"]: entry["unit"] for entry in found["maps"]} == {
            "integrated": "K km/s", "components": "", "centroid": "km/s", "velocity": "km/s", "width": "km/s",
            "rms": "K", "chi2": "", "flags": "", "chunks": "",
        }  # fmt: skip
        assert found["axis"] == {"name": "Velocity", "unit": "km/s", "start": -5.0, "step": 0.2, "linear": True}
        assert found["chunks"] == {"completed": 1, "failed": 1, "pending": 2}
        assert found["celestial"]["CTYPE1"] == "GLON-CAR"
        assert not found["final"]

    def test_the_range_of_the_values(self, cube: CubeRun) -> None:
        cube.complete()
        while (found := cube.api.get(f"/runs/{cube.run_id}/maps/integrated"))["pending"]:
            pass
        values = whole(cube, "integrated")
        known = values[np.isfinite(values)]
        assert found["n_values"] == known.size
        assert found["minimum"] == pytest.approx(known.min(), abs=1e-6)
        assert found["maximum"] == pytest.approx(known.max())
        for name, percentile in (("low", 1), ("high", 99)):
            assert found[name] == pytest.approx(np.percentile(known, percentile), abs=0.1 * np.ptp(known))

    def test_the_lattice_has_the_coordinates_of_the_header(self, cube: CubeRun) -> None:
        sky = cube.api.get(f"/runs/{cube.run_id}/sky")
        assert (sky["longitude_name"], sky["latitude_name"]) == ("GLON", "GLAT")
        assert (sky["x"][0], sky["x"][-1], sky["y"][-1]) == (0, NX - 1, NY - 1)
        assert sky["longitude"][0][-1] == pytest.approx(30.0 - 0.01 * (NX - 1))
        assert sky["latitude"][-1][0] == pytest.approx(0.01 * (NY - 1))

    def test_the_geometry_and_links_to_the_outputs_are_those_of_the_run(self, cube: CubeRun) -> None:
        cube.complete()
        shown = cube.api("GET", f"/runs/{cube.run_id}/geometry").json()
        assert CubeGeometry.model_validate(shown, strict=False) == cube.geometry
        (chunk, *_) = cube.api("GET", f"/runs/{cube.run_id}/chunks?links=true").json()["items"]
        assert httpx.get(chunk["output_url"]).content[:4] == b"PAR1"
        (without, *_) = cube.api("GET", f"/runs/{cube.run_id}/chunks").json()["items"]
        assert "output_url" not in without
        cube.world.deps.bucket.write(geometry_key(cube.run_id), b"no geometry")
        assert "not in the bucket" in cube.api("GET", f"/runs/{cube.run_id}/geometry").json()["detail"]

    def test_a_run_without_maps_says_why(self, cube: CubeRun) -> None:
        run_id = cube.api.post("/jobs", urls_job())["run"]["run_id"]
        assert "only runs of spectra" in cube.api.get(f"/runs/{run_id}/maps", expect=409)["detail"]
        new = CubeRun.create(cube.world, divided=False)
        assert "not divided" in new.api.get(f"/runs/{new.run_id}/maps", expect=409)["detail"]

    def test_another_tenant_sees_nothing(self, cube: CubeRun) -> None:
        cube.complete()
        other = cube.world.caller("other")
        for path in ("maps", "maps/rms", "maps/rms/tiles/0/0/0", "sky", "spectra/0/0"):
            other.get(f"/runs/{cube.run_id}/{path}", expect=404)


class TestDifferences:
    def test_two_runs_differ_as_their_outputs_do(self, cube: CubeRun) -> None:
        """One chunk of the second run has other values, one is the same, and the others have not completed."""
        second = CubeRun.create(cube.world)
        cube.complete()
        second.complete(0, seed=1)
        second.complete(CHUNK)
        while (found := differences(cube, second, "integrated"))["pending"]:
            pass
        gap = (whole(cube, "integrated") - whole(second, "integrated")).ravel()
        known = gap[np.isfinite(gap)]
        assert found["n_values"] == known.size
        assert found["n_different"] == (known != 0).sum() > 0
        spread = np.ptp(known)
        assert found["median"] == pytest.approx(np.median(known), abs=0.02 * spread)
        assert found["low"] == pytest.approx(np.percentile(known, 1), abs=0.1 * spread)
        assert found["high"] == pytest.approx(np.percentile(known, 99), abs=0.1 * spread)

    def test_a_run_does_not_differ_from_itself(self, cube: CubeRun) -> None:
        cube.complete()
        while (found := differences(cube, cube, "components"))["pending"]:
            pass
        assert (found["n_different"], found["median"]) == (0, 0.0)
        assert found["n_values"] == np.isfinite(whole(cube, "components")).sum()

    def test_runs_that_cannot_be_compared_are_refused(self, cube: CubeRun) -> None:
        path, other = f"/runs/{cube.run_id}/maps", cube.world.caller("other")
        assert "not compared" in cube.api.get(f"{path}/chunks/differences/{cube.run_id}", expect=409)["detail"]
        job = {"workload": "spectra", "name": "grs", "cube_key": "cubes/other/field.fits"}
        cube.world.deps.bucket.write(job["cube_key"], b"a cube")
        theirs = other.post("/jobs", job, expect=202)["run"]
        cube.api.get(f"{path}/rms/differences/{theirs['run_id']}", expect=404)


def differences(first: CubeRun, second: CubeRun, name: str) -> Any:
    return first.api.get(f"/runs/{first.run_id}/maps/{name}/differences/{second.run_id}")


def run_with_a_line(world: ApiWorld) -> CubeRun:
    """A completed run whose components are the sum of two lines."""
    run = CubeRun.create(world, divided=False)
    line = LineProfile(name="hcn_1-0", offsets=[-5.0, 0.0], weights=[0.25, 0.75])
    run.geometry = run.geometry.model_copy(update={"line": line})
    run.divide()
    run.complete()
    return run


class TestSpectra:
    @pytest.mark.parametrize("copied", [False, True])
    def test_a_spectrum_equals_that_of_the_cube_and_has_its_fit(self, world: ApiWorld, copied: bool) -> None:
        run = CubeRun.create(world, copied=copied)
        run.complete()
        seen = set()
        for x, y in [(3, 0), (299, 5), (200, 5), (199, 5), (0, 19), (150, 11), (7, 7), (8, 7), (299, 19)]:
            found = run.api.get(f"/runs/{run.run_id}/spectra/{x}/{y}")
            expected = [None if math.isnan(value) else value for value in run.cube[:, y, x].tolist()]
            assert found["data"] == expected
            first = (y * NX + x) // CHUNK * CHUNK
            row = run.tables[first].slice(y * NX + x - first, 1).to_pylist()[0]
            check_fit(found, row)
            seen.add(row["status"])
            assert found["axis"][0], found["axis"][-1] == (-5.0, pytest.approx(-5.0 + 0.2 * (N_CHANNELS - 1)))
            assert found["longitude"] == pytest.approx(30.0 - 0.01 * x)
            assert (found["axis_unit"], found["signal_unit"]) == ("km/s", "K")
        assert "fitted" in seen
        assert len(seen) > 1

    def test_a_fit_without_errors_and_areas_has_the_areas_of_its_components(self, cube: CubeRun) -> None:
        """phspectra writes neither."""
        cube.complete()
        table = cube.tables[0]
        for name in [name for name in table.column_names if name.endswith("errors") or "fluxes" in name]:
            place = table.column_names.index(name)
            table = table.set_column(place, table.field(name), pa.nulls(len(table), table.field(name).type))
        cube.tables[0] = table
        cube.store(0)
        index = table["status"].to_pylist().index("fitted")
        component = cube.api.get(f"/runs/{cube.run_id}/spectra/{index % NX}/{index // NX}")["fit"]["components"][0]
        area = math.sqrt(2 * math.pi) * component["amplitude"]["value"] * component["stddev"]["value"]
        assert component["flux"] == {"value": pytest.approx(area), "error": None}
        assert component["mean"]["error"] is None

    def test_a_fit_with_a_line_has_its_lines_on_the_axis_and_a_model_of_all_of_them(self, world: ApiWorld) -> None:
        run = run_with_a_line(world)
        row = next(each for each in run.tables[0].to_pylist() if each["status"] == "fitted")
        fit = run.api.get(f"/runs/{run.run_id}/spectra/{row['x']}/{row['y']}")["fit"]
        assert fit["line"] == {"name": "hcn_1-0", "offsets": [-1.0, 0.0], "weights": [0.25, 0.75]}
        parts = zip(row["component_amplitudes"], row["component_means"], row["component_stddevs"], strict=True)
        channels = np.arange(N_CHANNELS)
        model = sum(
            a * weight * np.exp(-0.5 * ((channels - m - offset) / s) ** 2)
            for a, m, s in parts
            for offset, weight in ((-5.0, 0.25), (0.0, 0.75))
        )
        np.testing.assert_allclose(fit["model"], model, atol=1e-12)

    def test_a_fit_with_optical_depths_has_them_in_its_components_and_its_model(self, world: ApiWorld) -> None:
        run = run_with_a_line(world)
        for first, old in list(run.tables.items()):
            table = old
            for name, value in (("component_optical_depths", 4.0), ("component_optical_depth_errors", 0.5)):
                lists = [[value] * len(each or ()) for each in table["component_means"].to_pylist()]
                place = table.column_names.index(name)
                table = table.set_column(place, table.field(name), pa.array(lists, table.field(name).type))
            run.tables[first] = table
            run.store(first)
        row = next(each for each in run.tables[0].to_pylist() if each["status"] == "fitted")
        fit = run.api.get(f"/runs/{run.run_id}/spectra/{row['x']}/{row['y']}")["fit"]
        assert [each["optical_depth"] for each in fit["components"]] == [{"value": 4.0, "error": 0.5}] * len(
            row["component_means"]
        )
        parts = zip(row["component_amplitudes"], row["component_means"], row["component_stddevs"], strict=True)
        channels, model = np.arange(N_CHANNELS), np.zeros(N_CHANNELS)
        for a, m, s in parts:
            profile = sum(
                weight * np.exp(-0.5 * ((channels - m - offset) / s) ** 2)
                for offset, weight in ((-5.0, 0.25), (0.0, 0.75))
            )
            model += a / 4.0 * (1.0 - np.exp(-4.0 * profile))
        np.testing.assert_allclose(fit["model"], model, atol=1e-12)

    def test_a_fit_with_a_baseline_has_it_in_its_model(self, world: ApiWorld) -> None:
        run = CubeRun.create(world)
        run.complete()
        for number, old in list(run.tables.items()):
            table = old
            for name, value in (("baseline_0", 0.5), ("baseline_1", -0.01)):
                field, place = table.schema.field(name), table.column_names.index(name)
                table = table.set_column(place, field, pa.array([value] * len(table), field.type))
            run.tables[number] = table
            run.store(number)
        row = next(each for each in run.tables[0].to_pylist() if each["status"] == "fitted")
        fit = run.api.get(f"/runs/{run.run_id}/spectra/{row['x']}/{row['y']}")["fit"]
        channels = np.arange(N_CHANNELS)
        np.testing.assert_allclose(fit["baseline"], 0.5 - 0.01 * channels)
        model = 0.5 - 0.01 * channels
        for a, m, s in zip(*(row[f"component_{name}"] for name in ("amplitudes", "means", "stddevs")), strict=True):
            model += a * np.exp(-0.5 * ((channels - m) / s) ** 2)
        np.testing.assert_allclose(fit["model"], model, atol=1e-12)

    def test_a_pixel_of_a_chunk_that_failed_has_its_data_and_the_reason(self, cube: CubeRun) -> None:
        cube.fail(0)
        found = cube.api.get(f"/runs/{cube.run_id}/spectra/5/0")
        assert found["data"] == cube.cube[:, 0, 5].tolist()
        assert found["fit"] is None
        assert found["chunk"]["status"] == "failed"
        assert found["chunk"]["error"] == "the kernel gave up <b>here</b>"

    def test_a_cube_that_was_replaced_is_not_shown(self, cube: CubeRun) -> None:
        cube.complete()
        cube.world.deps.bucket.write(CUBE, b"another cube")
        found = cube.api.get(f"/runs/{cube.run_id}/spectra/5/0")
        assert found["data"] is None
        assert "was replaced" in found["data_error"]
        assert found["fit"]["status"] in STATUSES

    def test_a_cube_that_the_service_cannot_read_leaves_the_fit(self, world: ApiWorld) -> None:
        run = CubeRun.create(world, cube_bucket=f"nobody-has-{world.environment}")
        run.complete()
        found = run.api.get(f"/runs/{run.run_id}/spectra/5/0")
        assert "nobody-has-" in found["data_error"]
        assert found["fit"]["status"] in STATUSES

    @pytest.mark.parametrize("pixel", [f"{NX}/0", f"0/{NY}"])
    def test_a_pixel_outside_the_cube_is_not_found(self, cube: CubeRun, pixel: str) -> None:
        assert "x goes from 0 to 299" in cube.api.get(f"/runs/{cube.run_id}/spectra/{pixel}", expect=404)["detail"]


def check_fit(found: dict[str, Any], row: dict[str, Any]) -> None:
    """Check that the fit equals the row of the output, in km/s."""
    fit = found["fit"]
    channels = np.arange(N_CHANNELS)
    parts = list(zip(row["component_amplitudes"], row["component_means"], row["component_stddevs"], strict=True))
    model = sum((a * np.exp(-0.5 * ((channels - m) / s) ** 2) for a, m, s in parts), np.zeros(N_CHANNELS))
    np.testing.assert_allclose(fit["model"], model, atol=1e-12)
    for datum, residual, value in zip(found["data"], fit["residual"], model, strict=True):
        assert residual == (None if datum is None else pytest.approx(datum - value))
    for component, (amplitude, mean, stddev) in zip(fit["components"], parts, strict=True):
        assert component["amplitude"]["value"] == amplitude
        assert component["mean"]["value"] == pytest.approx(-5.0 + 0.2 * mean)
        assert component["stddev"]["value"] == pytest.approx(0.2 * stddev)
    if parts:
        assert fit["components"][0]["flux"]["value"] == pytest.approx(0.2 * row["component_fluxes"][0])
        assert fit["components"][0]["mean"]["error"] == pytest.approx(0.2 * row["component_mean_errors"][0])
    assert (fit["status"], fit["rms"], fit["chi2_reduced"]) == (row["status"], row["rms"], row["chi2_reduced"])
    assert fit["flags"] == {0: [], 1: ["CONVERGED"], 64: ["NO_DATA"]}[row["flags"]]
    assert fit["decomposer"] == row["decomposer"]
