"""The results of a run: its Parquet files, and the geometry of its cube."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from prismline_cli.connection import Connection
from prismline_contracts.decomposition import arrow_schema, current
from prismline_contracts.items import RunItem
from prismline_contracts.objects import CubeGeometry, geometry_key, output_prefix


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
    geometry = geometry_of(connection, run)
    same = [current(table).select(arrow_schema().names) for table in tables]
    return Decomposition(geometry, pa.concat_tables(same, promote_options="permissive"))


def geometry_of(connection: Connection, run: RunItem) -> CubeGeometry:
    """The geometry of the run's cube, as the splitter found it."""
    return CubeGeometry.model_validate_json(_read(connection, geometry_key(run.run_id)))


def _read(connection: Connection, key: str) -> bytes:
    return connection.s3.get_object(Bucket=connection.bucket, Key=key)["Body"].read()
