"""The results of a run of spectra: its rows, the geometry of its cube, and the spectra that it read."""

from __future__ import annotations

import io
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from prismline_cli.downloading import DOWNLOADS, outputs
from prismline_cli.output import fail
from prismline_client import ApiError, Client, outdated, part
from prismline_contracts.decomposition import arrow_schema, current
from prismline_contracts.objects import CubeGeometry

#: x and y of a spectrum, from 0.
Pixel = tuple[int, int]


@dataclass(frozen=True)
class Decomposition:
    """The results of a run: one row for each spectrum of its completed chunks, and the geometry of the cube."""

    geometry: CubeGeometry
    table: pa.Table


def load(client: Client, run_id: str) -> Decomposition:
    """Read the run's outputs, of any version, into memory."""
    geometry, links = geometry_of(client, run_id), outputs(client, run_id)
    with ThreadPoolExecutor(DOWNLOADS) as pool:
        tables = [pq.read_table(io.BytesIO(content)) for content in pool.map(client.read, links.values())]
    same = [current(table).select(arrow_schema().names) for table in tables]
    return Decomposition(geometry, pa.concat_tables(same, promote_options="permissive"))


def geometry_of(client: Client, run_id: str) -> CubeGeometry:
    """The geometry of the run's cube, as the splitter found it."""
    try:
        return CubeGeometry.model_validate(client.get(f"/runs/{part(run_id)}/geometry"), strict=False)
    except ApiError as error:
        if "no such path" in str(error):
            raise outdated("does not show the geometry of cubes") from error
        raise


def spectra(client: Client, run_id: str, pixels: Iterable[Pixel]) -> dict[Pixel, NDArray[np.float64]]:
    """The spectra (n_channels,) at those of the pixels that a completed chunk holds."""

    def spectrum(pixel: Pixel) -> NDArray[np.float64] | None:
        found = client.get(f"/runs/{part(run_id)}/spectra/{pixel[0]}/{pixel[1]}")
        if found["chunk"] is None or found["chunk"]["status"].lower() != "completed":
            return None
        if found["data"] is None:
            fail(found["data_error"])
        return np.array(found["data"], dtype=np.float64)  # null is NaN

    wanted = list(pixels)
    with ThreadPoolExecutor(DOWNLOADS) as pool:
        read = zip(wanted, pool.map(spectrum, wanted), strict=True)
        return {pixel: values for pixel, values in read if values is not None}
