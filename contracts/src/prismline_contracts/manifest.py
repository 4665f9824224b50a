"""The manifest: the object under `manifests/` that submits a job. Also the parameters of a decomposition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from prismline_contracts.base import Contract, Count, Key, Lags, Name, Submitted, Survey, Tenant, Timestamp, derived_id
from prismline_contracts.envelope import TraceParent
from prismline_contracts.pools import in_pool

#: The workload of a manifest that does not name one.
DEFAULT_WORKLOAD = "spectra"

#: Names of the hyperfine groups that gaussline knows.
KnownLine = Literal["n2h+_1-0", "nh3_1-1", "hcn_1-0"]
#: Most lines of a group.
MOST_LINES = 100
#: The decomposer of runs with a line. Releases that know no lines refuse this value.
HYPERFINE = "hyperfine"


class Params(Contract):
    """Parameters of a workload, as messages carry them.

    People write them in manifests, where an unknown parameter is an error: a manifest has a subclass that forbids it.
    """

    @classmethod
    def unknown(cls, given: Mapping[str, object]) -> list[str]:
        """The names in `given` that this release does not know, sorted."""
        return sorted(given.keys() - cls.model_fields.keys())

    def given(self) -> dict[str, Any]:
        """The parameters that the submitter gave, as JSON."""
        return self.model_dump(mode="json", exclude_unset=True, exclude_none=True)

    def in_force(self) -> dict[str, Any]:
        """The parameters with their defaults, as JSON."""
        return self.model_dump(mode="json", exclude_none=True)


_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LineTable(Contract):
    """Lines that belong together: their offsets and their relative strengths."""

    offsets: Annotated[
        list[_Finite],
        Field(min_length=1, max_length=MOST_LINES, description="Velocity of each line minus the group's, km/s."),
    ]
    weights: Annotated[
        list[_Positive], Field(min_length=1, max_length=MOST_LINES, description="Relative strength of each line.")
    ]

    @model_validator(mode="after")
    def _has_a_weight_for_each_offset(self) -> Self:
        if len(self.offsets) != len(self.weights):
            raise ValueError(f"there are {len(self.offsets)} offsets and {len(self.weights)} weights; give one of each")
        return self


class FitParams(Params):
    """Parameters of a decomposition, with the names and defaults of phspectra 1.0.2."""

    beta: Annotated[float, Field(gt=0, le=100, description="Persistence threshold in units of the noise.")] = 3.5
    max_refine_iter: Annotated[int, Field(ge=0, le=100, description="Most refinement iterations.")] = 3
    snr_min: Annotated[float, Field(ge=0, le=1000, description="Least amplitude over noise of a component.")] = 1.5
    mf_snr_min: Annotated[float, Field(ge=0, le=1000, description="Least matched-filter signal-to-noise.")] = 5.0
    f_sep: Annotated[float, Field(ge=0, le=100, description="Separation below which a pair is blended, in FWHM.")] = 1.2
    neg_thresh: Annotated[float, Field(ge=0, le=1000, description="Depth of a negative dip, in units of noise.")] = 5.0
    decomposer: Annotated[
        Literal["gaussline", "phspectra", "hyperfine"],
        Field(description="What fits the spectra; `hyperfine`, which is gaussline with a line, is the default of one."),
    ] = "gaussline"
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
        Lags | Literal["spectrum", "white"] | None,
        Field(
            description="Correlation of the noise between channels: its values at lags 0, 1, ..., `white` for none, or"
            " `spectrum` for an estimate from each spectrum; absent: estimated once from the cube."
        ),
    ] = None

    line: Annotated[
        LineTable | KnownLine | None,
        Field(
            description="Lines that belong together, fitted as one component with a common velocity and width: the name"
            " of a hyperfine group, or a table of offsets and weights; absent: each component is a Gaussian."
        ),
    ] = None
    optical_depth: Annotated[
        bool | None,
        Field(
            description="Whether each component of a run with a line also has an optical depth, summed over its lines."
            " Absent: no, the lines are optically thin."
        ),
    ] = None
    rest_frequency: Annotated[
        _Positive | None,
        Field(
            description="Rest frequency of the observed line in Hz, with which frequencies become velocities; absent:"
            " that of the cube's header."
        ),
    ] = None

    second_pass: Annotated[
        bool | None,
        Field(
            description="Whether spectra that disagree with their neighbours are fitted again, from the neighbours'"
            " components. The chunks then refer to the cube. Absent: no."
        ),
    ] = None
    baseline_order: Annotated[
        Annotated[int, Field(ge=0, le=3)] | None,
        Field(
            description="Order of a polynomial baseline, 0 to 3, that is fitted to each spectrum together with the"
            " lines and subtracted. Absent: no baseline is fitted."
        ),
    ] = None

    @model_validator(mode="after")
    def _the_second_pass_needs_the_best_preset(self) -> Self:
        if self.second_pass and (self.decomposer, self.preset) != ("gaussline", "best"):
            raise ValueError("the second pass is for gaussline with the preset best, without a line")
        return self

    @model_validator(mode="after")
    def _a_baseline_needs_gaussline(self) -> Self:
        if self.baseline_order is not None and self.decomposer != "gaussline":
            raise ValueError("a baseline is fitted by gaussline only, without a line")
        return self

    @model_validator(mode="after")
    def _given_noise_needs_gaussline(self) -> Self:
        for name in ("noise", "correlation"):
            if getattr(self, name) is not None and self.decomposer == "phspectra":
                raise ValueError(f"{name} can be given to gaussline only: phspectra estimates it by itself")
        return self

    @model_validator(mode="after")
    def _a_line_has_its_own_decomposer(self) -> Self:
        if self.line is not None and self.decomposer != HYPERFINE:
            raise ValueError(f"a line is fitted by the decomposer {HYPERFINE} only, not by {self.decomposer}")
        if self.line is None and self.decomposer == HYPERFINE:
            raise ValueError(f"the decomposer {HYPERFINE} needs a line")
        if self.optical_depth and self.line is None:
            raise ValueError("an optical depth is fitted to lines that belong together: give a line too")
        return self


class RefitParams(FitParams):
    """Parameters of a decomposition whose spectra may run out of time. Spectra that are fitted with a line do not."""

    decomposer: Literal["gaussline", "phspectra"] = "gaussline"
    line: None = None
    optical_depth: None = None


class GivenFitParams(Submitted, FitParams, extra="forbid"):
    """Parameters of a decomposition as a person writes them. A line brings its decomposer with it."""

    @model_validator(mode="before")
    @classmethod
    def _with_the_decomposer_of_a_line(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("line") is not None:
            return {"decomposer": HYPERFINE, **given}
        return given

    @field_validator("correlation", mode="before")
    @classmethod
    def _is_a_known_word(cls, correlation: Any) -> Any:
        if isinstance(correlation, str) and correlation not in ("spectrum", "white"):
            raise ValueError("a correlation is spectrum, white, or its values at lags 0, 1, ...")
        return correlation

    @field_validator("line", mode="before")
    @classmethod
    def _is_known(cls, line: Any) -> Any:
        if isinstance(line, str) and line not in get_args(KnownLine):
            raise ValueError(
                f"there is no line {line[:80]!r}; choose one of {', '.join(get_args(KnownLine))}, or give a table"
            )
        return line


class GivenParams(Submitted, Params, extra="forbid"):
    """No parameters."""


class Manifest(Submitted, Contract):
    """The fields of every manifest. A workload adds its source and its parameters."""

    workload: Name = DEFAULT_WORKLOAD
    #: The group that the run and its results belong to. Runs are listed by survey.
    survey: Survey
    params: Params = GivenParams()
    #: The run still completes if at most this share of its chunks or tasks fails. If it is not 0, the run is stopped as
    #: soon as more have failed. Beside `tolerated_failures`, 0 is no limit.
    tolerated_failure_percent: Annotated[float, Field(ge=0, le=100)] = 0.0
    #: The run still completes if at most so many of its chunks or tasks fail, and is stopped as soon as more have.
    tolerated_failures: Count | None = None
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

    @model_validator(mode="after")
    def _the_second_pass_reads_the_cube(self) -> Self:
        if self.params.second_pass and self.chunk_input == "copy":
            raise ValueError("the second pass reads the cube around a chunk: choose the chunk input reference or auto")
        return self


def run_id_of(bucket: str, idempotency_key: str, pool: str | None = None) -> str:
    """The id of the run that submissions with this idempotency key start in a pool, or without one."""
    return in_pool(derived_id("run", bucket, idempotency_key), pool)
