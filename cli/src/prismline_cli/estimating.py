"""`submit --estimate` and `map --estimate`: what a run would cost. The api computes it; here is what there is to do."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import IO, Any

from prismline.protocol import Description
from prismline_cli.manifests import read_manifest
from prismline_cli.output import console, fail, print_json
from prismline_cli.submission import checked
from prismline_client import Client, Estimate, row_format
from prismline_contracts.fit_costs import fit_kind
from prismline_contracts.manifest import GivenFitParams


def show_submission(given: Path | str, params: dict[str, Any], chunk_size: int | None, *, as_json: bool) -> None:
    """Print the estimate for a manifest, a path, or for a cube, a name."""
    show(of_manifest(given) if isinstance(given, Path) else of_cube(given, params, chunk_size), as_json=as_json)


def of_cube(cube: str, params: dict[str, Any], chunk_size: int | None) -> Estimate:
    """The estimate for a cube, a local file or `s3://BUCKET/KEY`, whose header is read."""
    from prismline_cube.header import describe  # noqa: PLC0415 - imports astropy, which takes a second
    from prismline_cube.inspection import header_of  # noqa: PLC0415
    from prismline_runtime import reader_errors  # noqa: PLC0415

    given = checked(GivenFitParams, params)
    with reader_errors(f"{cube} cannot be read as a cube"), _opened(cube) as file:
        n_bytes = file.seek(0, 2)
        file.seek(0)
        header = describe(header_of(file, n_bytes), 0)  # type: ignore[arg-type]  # a seekable binary file
    return Client.open().estimate(
        "spectra", header.ny * header.nx, channels=header.n_channels, fit=fit_kind(given), chunk_size=chunk_size
    )


def of_manifest(path: Path) -> Estimate:
    """The estimate for a manifest that lists what its run works on."""
    document = read_manifest(path)
    source = document.get("source")
    lists = (document.get("windows"), document.get("urls"), source.get("items") if isinstance(source, dict) else None)
    listed = next((each for each in lists if isinstance(each, list) and each), None)
    if listed is None:
        fail(f"{path} does not list what its run works on, so there is no estimate. Give the cube or the list itself.")
    return Client.open().estimate(str(document.get("workload")), len(listed))


def of_list(items: Path, workload: Description, max_items: int | None) -> Estimate:
    """The estimate for a function over the rows of a file."""
    if not items.is_file():
        fail(f"There is no file {items}.")
    n = _rows(items)
    if n == 0:
        fail(f"{items} is empty.")
    return Client.open().estimate(workload.name, min(n, max_items or n), timeout=workload.limits.timeout)


def show(found: Estimate, *, as_json: bool) -> None:
    """Print an estimate."""
    if as_json:
        print_json(found.model_dump(), option="--estimate")
        return
    console.print(f"{found.usd.least:.2g} to {found.usd.most:.2g} USD on AWS (prices: {found.usd.prices})")
    for reason in found.reasons:
        console.print(reason, soft_wrap=True)
    console.print("Computed, not measured. Nothing was submitted.")


def _opened(cube: str) -> IO[bytes]:
    if not cube.startswith("s3://"):
        if not Path(cube).is_file():
            fail(f"There is no file {cube}.")
        return Path(cube).open("rb")
    from prismline_cli.connection import Connection  # noqa: PLC0415
    from prismline_runtime import Bucket  # noqa: PLC0415

    bucket, _, key = cube.removeprefix("s3://").partition("/")
    return Bucket(Connection.open().s3, bucket).open(key)


def _rows(items: Path) -> int:
    """The rows of a file, as the splitter reads it."""
    format_ = row_format(items)
    if format_ == "parquet":
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - takes a while

        return int(ParquetFile(items).metadata.num_rows)
    with gzip.open(items, "rt", newline="") if items.suffix == ".gz" else items.open(newline="") as lines:
        if format_ == "csv":
            return max(0, sum(1 for row in csv.reader(lines) if row) - 1)
        return sum(1 for line in lines if line.strip())
