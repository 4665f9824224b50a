"""The outputs of a run of any workload: the objects whose keys its completed chunks contain."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prismline_cli.output import fail
from prismline_client import Client, outdated

#: Objects that are downloaded at a time.
DOWNLOADS = 8


def outputs(client: Client, run_id: str) -> dict[str, str]:
    """A link for each key of an output, in the order of the keys. Ends the command with the reason if there is none."""
    chunks = list(client.chunks(run_id, status="completed", links=True))
    if not chunks:
        fail(f"No chunk of run {run_id} has completed: there is nothing to download.")
    found = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk.output_key or ""):
        if chunk.output_key is not None:
            if chunk.output_url is None:
                raise outdated("gives no links to outputs")
            found[chunk.output_key] = chunk.output_url
    return found


def download(client: Client, run_id: str, to: Path) -> list[Path]:
    """Copy the outputs of the run's completed chunks below `to`, each under the key that it has in the bucket."""
    found = {to / key: url for key, url in outputs(client, run_id).items()}
    for folder in {path.parent for path in found}:
        folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(DOWNLOADS) as pool:
        list(pool.map(client.download, found.values(), found))
    return list(found)
