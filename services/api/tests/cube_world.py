"""A run of `spectra` with a cube, outputs and chunks in every state, as the splitter and the workers leave it."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from api_world import Api, ApiWorld
from astropy.io import fits
from numpy.typing import NDArray

from prismline_contracts.base import chunk_id
from prismline_contracts.decomposition import arrow_schema
from prismline_contracts.items import RunItem
from prismline_contracts.objects import CubeGeometry, chunk_key, geometry_key, output_key
from prismline_contracts.references import CubeReference
from prismline_ledger import NewChunk, Outcome, Started

CUBE = "cubes/grs/field.fits"
NX, NY, N_CHANNELS = 300, 20, 30
#: Spectra of a chunk. Chunks begin and end in the middle of a row.
CHUNK = 1_700
CELESTIAL: dict[str, str | int | float | bool] = {
    "CTYPE1": "GLON-CAR", "CTYPE2": "GLAT-CAR", "CUNIT1": "deg", "CUNIT2": "deg", "CRVAL1": 30.0, "CRVAL2": 0.0,
    "CRPIX1": 1.0, "CRPIX2": 1.0, "CDELT1": -0.01, "CDELT2": 0.01,
}  # fmt: skip
STATUSES = ("fitted", "fitted", "fitted", "empty", "blank", "timed_out")


def decomposition(geometry: CubeGeometry, first: int, count: int, seed: int = 0, rows: int | None = None) -> pa.Table:
    """An invented output: up to three components for each spectrum from `first` on, and spectra of other kinds."""
    rng = np.random.default_rng((seed, first))
    y, x = np.divmod(np.arange(first, first + count), geometry.nx)
    status = rng.choice(STATUSES, count)
    n = np.where(status == "fitted", rng.integers(1, 4, count), 0)
    offsets = np.concatenate([[0], np.cumsum(n)]).astype(np.int32)

    def lists(low: float, high: float) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rng.uniform(low, high, offsets[-1])))

    unknown = np.isin(status, ["blank"])
    columns: dict[str, Any] = {
        "x": x,
        "y": y,
        "rms": pa.array(rng.uniform(0.1, 0.2, count), mask=unknown),
        "n_components": np.where(status == "timed_out", -1, n),
        "component_amplitudes": lists(1.0, 5.0),
        "component_means": lists(0.0, geometry.n_channels - 1.0),
        "component_stddevs": lists(1.0, 3.0),
        "status": status,
        "component_amplitude_errors": lists(0.1, 0.2),
        "component_mean_errors": lists(0.1, 0.2),
        "component_stddev_errors": lists(0.1, 0.2),
        "component_fluxes": lists(2.0, 20.0),
        "component_flux_errors": lists(0.1, 0.2),
        "chi2_reduced": pa.array(rng.uniform(0.9, 1.2, count), mask=status != "fitted"),
        "flags": np.where(status == "fitted", 1, np.where(status == "blank", 64, 0)),
        "decomposer": np.where(status == "blank", None, "gaussline"),
    }
    schema = arrow_schema(geometry)
    return pa.table(
        [
            pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in schema
        ],
        schema=schema,
    )


def parquet(table: pa.Table, row_group: int = 400) -> bytes:
    """A file with several row groups, as a worker writes it block by block."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=row_group, compression="zstd")
    body: bytes = sink.getvalue().to_pybytes()
    return body


@dataclass
class CubeRun:
    """A run of a cube that `tenant` submitted. Its chunks are PENDING until they are completed or failed."""

    world: ApiWorld
    api: Api
    run_id: str
    geometry: CubeGeometry
    #: The cube, (channels, ny, nx).
    cube: NDArray[np.float32]
    firsts: list[int]
    #: The outputs of completed chunks, by their first spectrum.
    tables: dict[int, pa.Table] = field(default_factory=dict)

    @classmethod
    def create(
        cls, world: ApiWorld, *, copied: bool = False, divided: bool = True, cube_bucket: str | None = None
    ) -> CubeRun:
        """Make a run whose chunks refer to the cube, or have a file each. divided: whether it already has its chunks.

        cube_bucket: the bucket that the chunks name for the cube, if it is not the run's bucket.
        """
        api = world.caller()
        rng = np.random.default_rng(7)
        cube = rng.normal(0, 1, (N_CHANNELS, NY, NX)).astype(np.float32)
        cube[:, 0, 3] = np.nan
        body = io.BytesIO()
        fits.PrimaryHDU(cube, fits.Header({"CTYPE3": "VRAD"})).writeto(body)
        world.deps.bucket.write(CUBE, body.getvalue())
        job = api.post("/jobs", {"workload": "spectra", "name": "grs", "cube_key": CUBE}, expect=202)
        run = world.open_run(job)
        geometry = CubeGeometry(
            n_channels=N_CHANNELS, ny=NY, nx=NX, ctype="VRAD", crval=-5000.0, crpix=1.0, cdelt=200.0, cunit="m/s",
            bunit="K", object_name="field", cube_key=CUBE, celestial=CELESTIAL,
        )  # fmt: skip
        made = cls(world, api, run.run_id, geometry, cube, list(range(0, NX * NY, CHUNK)))
        if divided:
            made.divide(copied, cube_bucket)
        return made

    def divide(self, copied: bool = False, cube_bucket: str | None = None) -> None:
        """Add the chunks, as the splitter does."""
        bucket, ledger = self.world.deps.bucket, self.world.deps.ledger
        bucket.write(geometry_key(self.run_id), self.geometry.model_dump_json().encode())
        offset, etag = 2880, bucket.version(CUBE)
        chunks = []
        for first in self.firsts:
            count, identifier = self.count(first), chunk_id(first)
            if copied:
                key = chunk_key(self.run_id, identifier)
                bucket.write(key, self._npz(first, count))
                chunks.append(NewChunk(identifier, key, count))
            else:
                reference = CubeReference(
                    key=CUBE, etag=etag, offset=offset, bitpix=-32, axes=[NX, NY, N_CHANNELS], spectral_axis=3,
                    first=first, count=count, bucket=cube_bucket,
                )  # fmt: skip
                chunks.append(NewChunk(identifier, CUBE, count, reference))
        ledger.add_chunks(self.run_id, chunks)
        ledger.set_total(self.run_id, n_chunks=len(chunks), n_items=NX * NY, n_blank=None)
        ledger.latch(self.run_id)

    @property
    def run(self) -> RunItem:
        return self.world.deps.ledger.run(self.run_id)

    def count(self, first: int) -> int:
        """The number of spectra in a chunk."""
        return min(CHUNK, NX * NY - first)

    def complete(self, *firsts: int, seed: int = 0) -> None:
        """Complete chunks, all of them if none is named."""
        for first in firsts or self.firsts:
            self.tables[first] = decomposition(self.geometry, first, self.count(first), seed)
            started = self._start(first)
            self.world.deps.ledger.complete_chunk(started.chunk, Outcome(self.store(first)), duration_ms=5)

    def store(self, first: int) -> str:
        """Write the output of a chunk, and return its key."""
        key = output_key("grs", self.run_id, chunk_id(first))
        self.world.deps.bucket.write(key, parquet(self.tables[first]))
        return key

    def fail(self, first: int) -> None:
        """Fail a chunk."""
        self.world.deps.ledger.fail_chunk(self._start(first).chunk, "the kernel gave up <b>here</b>")

    def _start(self, first: int) -> Started:
        started = self.world.deps.ledger.start_chunk(self.run_id, chunk_id(first))
        assert isinstance(started, Started)
        return started

    def _npz(self, first: int, count: int) -> bytes:
        y, x = np.divmod(np.arange(first, first + count), NX)
        body = io.BytesIO()
        spectra = np.ascontiguousarray(self.cube[:, y, x].T)
        # Half of the chunks have the format of an older splitter.
        (np.savez if first % (2 * CHUNK) else np.savez_compressed)(body, spectra=spectra, x=x, y=y)
        return body.getvalue()
