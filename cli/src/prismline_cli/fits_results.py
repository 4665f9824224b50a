"""Fetch the data for a run's FITS maps, and write them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from astropy.io import fits

from prismline_cli import downloading, fits_maps, results
from prismline_cli.chunk_inputs import ChunkInputs
from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_cli.runs import RunView
from prismline_client import Client
from prismline_cube.cube_file import HEADER_BYTES
from prismline_cube.errors import CubeError
from prismline_cube.inspection import header_of
from prismline_runtime import Bucket


def write_maps(client: Client, view: RunView, to: Path, *, cubes: bool = False) -> list[Path]:
    """Write the run's maps below `to`, and with `cubes` its model and residual. Returns the files' paths.

    The cube may be in a bucket that only the user can read, so its header and its spectra come from the bucket itself.
    """
    if view.completed == 0:
        fail(f"Run {view.run_id} has no completed chunk to map.")
    geometry, connection = results.geometry_of(client, view.run_id), Connection.open()
    with tempfile.TemporaryDirectory() as folder:
        inputs = ChunkInputs(connection, view.run_id, geometry.nx, download_to=Path(folder))
        header = cube_header(Bucket(connection.s3, inputs.cube_bucket or connection.bucket), geometry.cube_key)
        tables = downloading.download(client, view.run_id, Path(folder))
        spectra = inputs.spectra if cubes else None
        return fits_maps.write(tables, geometry, header, to, cubes=cubes, spectra=spectra)


def cube_header(bucket: Bucket, key: str) -> fits.Header:
    """The header of the cube at `key`. It has no cards if the file can no longer be read."""
    etag = bucket.version(key)
    size = bucket.size(key, etag=etag)
    with bucket.open_version(key, etag=etag, size=size, part_bytes=HEADER_BYTES) as file:
        try:
            return header_of(file, size)
        except CubeError:
            return fits.Header()
