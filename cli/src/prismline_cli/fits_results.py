"""Fetch the data for a run's FITS maps, and write them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from astropy.io import fits

from prismline_cli import fits_maps, outputs
from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_contracts import CubeGeometry, RunItem, geometry_key

#: Bytes of the cube that are fetched at a time until its header is complete.
_HEADER_BYTES = 20 * 2880


def write_maps(connection: Connection, run: RunItem, to: Path, *, cubes: bool = False) -> list[Path]:
    """Write the run's maps below `to`, and with `cubes` its model and residual. Returns the files' paths."""
    if run.chunks_completed == 0:
        fail(f"Run {run.run_id} has no completed chunk to map.")
    body = connection.s3.get_object(Bucket=connection.bucket, Key=geometry_key(run.run_id))["Body"].read()
    geometry = CubeGeometry.model_validate_json(body)
    with tempfile.TemporaryDirectory() as folder:
        tables = outputs.download(connection, run, Path(folder))
        cube = None
        if cubes:
            cube = Path(folder) / "cube.fits"
            connection.s3.download_file(connection.bucket, geometry.cube_key, str(cube))
        header = cube_header(connection, geometry.cube_key)
        return fits_maps.write(tables, geometry, header, to, cubes=cubes, cube=cube)


def cube_header(connection: Connection, key: str) -> fits.Header:
    """The header of the first image of the FITS file at `key`. Only the header is read."""
    size, start = _HEADER_BYTES, b""
    while True:
        got = connection.s3.get_object(Bucket=connection.bucket, Key=key, Range=f"bytes={len(start)}-{size - 1}")
        start += got["Body"].read()
        end = start.find(b"END" + b" " * 77)
        while end >= 0 and end % 80:
            end = start.find(b"END" + b" " * 77, end + 1)
        if end >= 0:
            return fits.Header.fromstring(start[:end].decode("ascii"))
        if len(start) < size:
            fail(f"{key} has no FITS header.")
        size *= 2
