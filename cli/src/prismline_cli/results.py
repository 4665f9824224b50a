"""The results of a run: its Parquet files, the geometry of its cube, and its spectra."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from prismline_cli.connection import Connection
from prismline_contracts import (
    ChunkItem,
    ChunkStatus,
    CubeGeometry,
    CubeReference,
    RunItem,
    geometry_key,
    output_prefix,
)
from prismline_contracts.decomposition import arrow_schema, current
from prismline_cube import reader_of
from prismline_runtime import Bucket


@dataclass(frozen=True)
class Decomposition:
    """The results of a run: one row for each spectrum of its completed chunks, and the geometry of the cube."""

    geometry: CubeGeometry
    table: pa.Table


def output_keys(connection: Connection, run: RunItem) -> Iterator[str]:
    """The keys of the run's outputs."""
    pages = connection.s3.get_paginator("list_objects_v2").paginate(
        Bucket=connection.bucket, Prefix=output_prefix(run.survey, run.run_id)
    )
    for page in pages:
        for item in page.get("Contents", []):
            yield item["Key"]


def load(connection: Connection, run: RunItem) -> Decomposition:
    """Read the run's outputs, of any version, into memory."""
    tables = [pq.read_table(io.BytesIO(_read(connection, key))) for key in output_keys(connection, run)]
    geometry = CubeGeometry.model_validate_json(_read(connection, geometry_key(run.run_id)))
    same = [current(table).select(arrow_schema().names) for table in tables]
    return Decomposition(geometry, pa.concat_tables(same, promote_options="permissive"))


def spectra(
    connection: Connection, run: RunItem, pixels: list[tuple[int, int]], nx: int
) -> dict[tuple[int, int], NDArray[np.floating]]:
    """The spectra (n_channels,) at `pixels` (x, y), from the inputs of the chunks that hold them."""
    copied: dict[str, list[tuple[int, int]]] = {}
    referred: dict[str, tuple[CubeReference, list[tuple[int, int]]]] = {}
    chunks = sorted(connection.ledger.chunks(run.run_id, status=ChunkStatus.COMPLETED), key=_start)
    for x, y in pixels:
        if not 0 <= x < nx:
            continue
        holder = next((c for c in reversed(chunks) if _start(c) <= y * nx + x < _start(c) + c.n_items), None)
        if holder is None:
            continue
        if (reference := holder.cube_reference) is None:
            copied.setdefault(holder.chunk_key, []).append((x, y))
        else:  # references to one cube differ only in `first` and `count`, so one reader serves all chunks
            whole = reference.model_copy(update={"first": 0, "count": reference.n_spectra})
            referred.setdefault(whole.model_dump_json(), (whole, []))[1].append((x, y))
    found = {}
    for key, members in copied.items():
        with np.load(io.BytesIO(_read(connection, key)), allow_pickle=False) as chunk:
            index = {pixel: n for n, pixel in enumerate(zip(chunk["x"].tolist(), chunk["y"].tolist(), strict=True))}
            data = chunk["spectra"]
            found.update({pixel: data[index[pixel]] for pixel in members if pixel in index})
    for whole, members in referred.values():
        found.update(_from_cube(connection, whole, members))
    return found


def _from_cube(
    connection: Connection, cube: CubeReference, pixels: list[tuple[int, int]]
) -> dict[tuple[int, int], NDArray[np.floating]]:
    """The spectra at `pixels`, read out of the cube itself."""
    bucket = Bucket(connection.s3, cube.bucket or connection.bucket)
    ordered = sorted(set(pixels), key=lambda pixel: pixel[1] * cube.nx + pixel[0])
    index = np.array([y * cube.nx + x for x, y in ordered], dtype=np.int64)
    return dict(zip(ordered, reader_of(cube, bucket).gather(index), strict=True))


def _start(chunk: ChunkItem) -> int:
    return int(chunk.chunk_id.removeprefix("chunk-"))


def _read(connection: Connection, key: str) -> bytes:
    return connection.s3.get_object(Bucket=connection.bucket, Key=key)["Body"].read()
