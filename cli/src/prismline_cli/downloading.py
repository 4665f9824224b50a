"""The outputs of a run of any workload: the objects whose keys its completed chunks contain."""

from __future__ import annotations

from pathlib import Path

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_contracts.items import ChunkStatus, RunItem


def download(connection: Connection, run: RunItem, to: Path) -> list[Path]:
    """Copy the outputs of the run's completed chunks below `to`, each under the key that it has in the bucket."""
    keys = [chunk.output_key for chunk in connection.ledger.chunks(run.run_id, status=ChunkStatus.COMPLETED)]
    if not keys:
        fail(f"No chunk of run {run.run_id} has completed: there is nothing to download.")
    paths = []
    for key in sorted({key for key in keys if key is not None}):
        path = to / key
        path.parent.mkdir(parents=True, exist_ok=True)
        connection.s3.download_file(connection.bucket, key, str(path))
        paths.append(path)
    return paths
