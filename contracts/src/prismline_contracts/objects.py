"""S3 keys of the objects of a run, and the object that describes its cube."""

from __future__ import annotations

from prismline_contracts.base import Contract, Count, Name

#: Prefix of manifests. Creating an object here submits a job.
MANIFEST_PREFIX = "manifests/"
#: Prefix of the Hive-partitioned dataset of all decompositions.
DECOMPOSITIONS_PREFIX = "decompositions/"


class CubeGeometry(Contract):
    """The shape of a run's cube, and its spectral axis in terms of the FITS header.

    The physical value at channel `c`, counted from 0, is `crval + (c + 1 - crpix) * cdelt`, in `cunit`.
    """

    n_channels: Count
    ny: Count
    nx: Count
    ctype: str
    crval: float
    crpix: float
    cdelt: float
    cunit: str
    bunit: str
    object_name: str
    cube_key: Name


def chunk_key(run_id: str, chunk_id: str, suffix: str = "npz") -> str:
    """Key of the input of a chunk."""
    return f"chunks/{run_id}/{chunk_id}.{suffix}"


def manifest_copy_key(run_id: str) -> str:
    """Key of the run's copy of its manifest. The splitter creates it once, when it first reads the manifest."""
    return f"chunks/{run_id}/manifest.json"


def geometry_key(run_id: str) -> str:
    """Key of the `CubeGeometry` of a run."""
    return f"chunks/{run_id}/geometry.json"


def output_prefix(survey: str, run_id: str) -> str:
    """Prefix of all outputs of a run. It is one partition of the dataset."""
    return f"{DECOMPOSITIONS_PREFIX}survey={survey}/run={run_id}/"


def output_key(survey: str, run_id: str, chunk_id: str) -> str:
    """Key of the output of a chunk."""
    return f"{output_prefix(survey, run_id)}{chunk_id}.parquet"
