"""The manifest: the object under `manifests/` that submits a job. Also the parameters of a decomposition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from prismline_contracts.base import Contract, Key, Lags, Name, Submitted, Survey, Tenant, Timestamp, derived_id
from prismline_contracts.envelope import TraceParent

#: The workload of a manifest that does not name one.
DEFAULT_WORKLOAD = "spectra"


class Params(Contract):
    """Parameters of a workload, as messages carry them.

    People write them in manifests, where an unknown parameter is an error: a manifest has a subclass that forbids it.
    """

    @classmethod
    def unknown(cls, given: Mapping[str, object]) -> list[str]:
        """The names in `given` that this release does not know, sorted."""
        return sorted(given.keys() - cls.model_fields.keys())


class FitParams(Params):
    """Parameters of a decomposition, with the names and defaults of phspectra 1.0.2."""

    beta: Annotated[float, Field(gt=0, le=100, description="Persistence threshold in units of the noise.")] = 3.5
    max_refine_iter: Annotated[int, Field(ge=0, le=100, description="Most refinement iterations.")] = 3
    snr_min: Annotated[float, Field(ge=0, le=1000, description="Least amplitude over noise of a component.")] = 1.5
    mf_snr_min: Annotated[float, Field(ge=0, le=1000, description="Least matched-filter signal-to-noise.")] = 5.0
    f_sep: Annotated[float, Field(ge=0, le=100, description="Separation below which a pair is blended, in FWHM.")] = 1.2
    neg_thresh: Annotated[float, Field(ge=0, le=1000, description="Depth of a negative dip, in units of noise.")] = 5.0
    decomposer: Annotated[Literal["gaussline", "phspectra"], Field(description="What fits the spectra.")] = "gaussline"
    preset: Annotated[
        Literal["best", "compatible"], Field(description="How gaussline chooses the model; phspectra has no choice.")
    ] = "best"
    noise: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | Key | None,
        Field(
            description="Noise: a number in the cube's unit, or the key of a FITS map or of a text file with a value a"
            " channel; absent: estimated from each spectrum."
        ),
    ] = None
    correlation: Annotated[
        Literal["spectrum", "white"] | Lags | None,
        Field(
            description="Correlation of the noise between channels: its values at lags 0, 1, ..., `white` for none, or"
            " `spectrum` for an estimate from each spectrum; absent: estimated once from the cube."
        ),
    ] = None

    @model_validator(mode="after")
    def _given_noise_needs_gaussline(self) -> Self:
        for name in ("noise", "correlation"):
            if getattr(self, name) is not None and self.decomposer != "gaussline":
                raise ValueError(f"{name} can be given to gaussline only: phspectra estimates it by itself")
        return self


class GivenFitParams(Submitted, FitParams, extra="forbid"):
    """Parameters of a decomposition as a person writes them."""


class GivenParams(Submitted, Params, extra="forbid"):
    """No parameters."""


class Manifest(Submitted, Contract):
    """The fields of every manifest. A workload adds its source and its parameters."""

    workload: Name = DEFAULT_WORKLOAD
    #: The group that the run and its results belong to. Runs are listed by survey.
    survey: Survey
    params: Params = GivenParams()
    #: The run still completes if at most this share of its chunks fails.
    tolerated_failure_percent: Annotated[float, Field(ge=0, le=100)] = 0.0
    #: Submissions with the same key start one run.
    idempotency_key: Name | None = None
    job_id: Name | None = None
    #: Who submitted the job over HTTP.
    tenant: Tenant | None = None
    #: Most chunks or tasks of the run that are processed at a time.
    max_concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    #: 1 (lowest) to 9. Absent: 5.
    priority: Annotated[int, Field(ge=1, le=9)] | None = None
    #: The run is stopped at this moment if it has not ended.
    deadline_at: Timestamp | None = None
    #: W3C trace context of the submitter. Absent: the run starts its own trace.
    traceparent: TraceParent | None = None


class SpectraManifest(Manifest):
    """The manifest of the `spectra` workload: a cube to decompose."""

    workload: Literal["spectra"] = "spectra"
    params: GivenFitParams = GivenFitParams()
    cube_key: Key
    #: Bucket of the cube. Absent: that of the manifest.
    cube_bucket: Name | None = None
    #: Whether chunks get a copy of their spectra, or a reference to the bytes of the cube. `auto`: the faster one.
    chunk_input: Literal["copy", "reference", "auto"] = "auto"
    #: Spectra in a chunk. Absent: the splitter chooses, by the cost of a fit.
    chunk_size: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


def run_id_of(bucket: str, idempotency_key: str) -> str:
    """The id of the run that submissions with this idempotency key start."""
    return derived_id("run", bucket, idempotency_key)
