"""A spectrum of a run with its fit: the data from the chunk's input, the components from its output."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismline_api.maps.building import Maps
from prismline_api.maps.chunk_spectra import neighbours, read_spectra
from prismline_api.maps.chunks import Holder, RunChunks
from prismline_api.maps.map_cache import MapCache
from prismline_api.maps.models import ComponentView, FitView, HolderView, LineView, Measured, SpectrumView
from prismline_contracts.decomposition import BASELINE_COLUMNS
from prismline_contracts.items import ChunkItem
from prismline_contracts.maps import flag_names
from prismline_contracts.objects import CubeGeometry
from prismline_cube import DisplayAxis, gaussians, sky_coordinates
from prismline_ledger import Ledger
from prismline_runtime import Bucket, PermanentError, PrismlineError

Spectrum = NDArray[np.floating[Any]]


class SpectrumReader:
    """Shows single spectra. A process has one. Raises UnavailableError if DynamoDB or S3 does not answer."""

    def __init__(
        self, ledger: Ledger, bucket: Bucket, open_bucket: Callable[[str], Bucket], maps: Maps, memory: MapCache
    ) -> None:
        self._ledger = ledger
        self._bucket = bucket
        self._open_bucket = open_bucket
        self._maps = maps
        self._memory = memory

    def show(self, chunks: RunChunks, x: int, y: int) -> SpectrumView:
        """The spectrum at a pixel of the cube."""
        geometry = chunks.geometry
        axis, index = DisplayAxis.of(geometry), y * geometry.nx + x
        shown = SpectrumView(
            run_id=chunks.run_id,
            x=x,
            y=y,
            axis=axis.at(np.arange(geometry.n_channels)).tolist(),
            axis_name=axis.name,
            axis_unit=axis.unit,
            signal_unit=geometry.bunit,
        )
        holder = chunks.at(index)
        if holder is None:
            return shown
        chunk = self._ledger.chunk(chunks.run_id, holder.chunk_id)
        row = None if holder.output is None else self._row(holder, index)
        data, problem = self._data(chunk, index - holder.first, geometry.n_channels)
        longitude, latitude = self._sky(chunks, row or {}, x, y)
        return shown.model_copy(
            update={
                "longitude": longitude,
                "latitude": latitude,
                "data": None if data is None else _numbers(data),
                "data_error": problem,
                "fit": None if row is None else _fit(row, axis, data, geometry),
                "chunk": HolderView(
                    chunk_id=chunk.chunk_id,
                    status=chunk.status,
                    attempts=chunk.attempts,
                    error=chunk.error,
                    last_error=chunk.last_error,
                ),
            }
        )

    def _row(self, holder: Holder, index: int) -> dict[str, Any] | None:
        """The spectrum's row of the output. None if the output was just replaced or cannot be read."""
        assert holder.output is not None, "only completed chunks have rows"
        try:
            return self._maps.row(holder.output, index - holder.first)
        except PermanentError:
            return None

    def _data(self, chunk: ChunkItem, number: int, n_channels: int) -> tuple[Spectrum | None, str | None]:
        """The values of a spectrum, or the reason why there are none."""
        block = neighbours(number, chunk.n_items, n_channels)
        key = ("spectra", chunk.run_id, chunk.chunk_id, chunk.chunk_key, block.start)
        try:
            spectra = self._memory.get(
                key,
                lambda: read_spectra(chunk, block, self._bucket, self._open_bucket),
                lambda found: found.nbytes,
            )
        except PrismlineError as error:  # for example a bucket that this service may not read: the fit is shown
            return None, str(error)
        return spectra[number - block.start], None

    @staticmethod
    def _sky(chunks: RunChunks, row: dict[str, Any], x: int, y: int) -> tuple[float | None, float | None]:
        """Celestial coordinates: from the row of the output, or else from the cube's header, which takes longer."""
        if row.get("longitude") is not None:
            return _number(row["longitude"]), _number(row["latitude"])
        if chunks.geometry.celestial is None:
            return None, None
        pixel = np.array([x], np.int32), np.array([y], np.int32)
        longitude, latitude = sky_coordinates(chunks.geometry.celestial, *pixel)[:, 0]
        return _number(longitude), _number(latitude)


def _fit(row: dict[str, Any], axis: DisplayAxis, data: Spectrum | None, geometry: CubeGeometry) -> FitView:
    """The fit in a row of an output, in units of the axis, and the model: the sum of its components."""
    lists = [row[f"component_{name}"] or [] for name in ("amplitudes", "means", "stddevs")]
    depths = row.get("component_optical_depths") or [math.nan] * len(lists[0])  # absent in outputs of older workers
    components = np.array([*lists, depths], dtype=np.float64).T.reshape(-1, 4)
    if row["component_fluxes"] is None:  # phspectra writes no areas
        row = row | {"component_fluxes": (math.sqrt(2 * math.pi) * components[:, 0] * components[:, 2]).tolist()}
    line = geometry.line
    channels = np.arange(geometry.n_channels, dtype=np.float64)
    coefficients = [row.get(name) for name in BASELINE_COLUMNS]  # absent in outputs of older workers
    known = [value or 0.0 for value in coefficients]
    baseline = None if coefficients[0] is None else np.polynomial.Polynomial(known)(channels)
    model = gaussians(components, channels, line).sum(axis=0) + (0.0 if baseline is None else baseline)
    step = abs(axis.step)
    thick = bool(row.get("component_optical_depths"))
    parts = zip(
        _measured(row, "amplitude", "amplitudes"),
        _measured(row, "mean", "means", step, axis.at),
        _measured(row, "stddev", "stddevs", step),
        _measured(row, "flux", "fluxes", step),
        _measured(row, "optical_depth", "optical_depths") if thick else [None] * len(components),
        strict=True,
    )
    return FitView(
        status=row["status"],
        components=[
            ComponentView(amplitude=amplitude, mean=mean, stddev=stddev, flux=flux, optical_depth=depth)
            for amplitude, mean, stddev, flux, depth in parts
        ],
        line=line
        and LineView(name=line.name, offsets=[each * axis.step for each in line.offsets], weights=line.weights),
        baseline=None if baseline is None else baseline.tolist(),
        model=model.tolist(),
        residual=None if data is None else _numbers(data - model),
        rms=_number(row["rms"]),
        chi2_reduced=_number(row["chi2_reduced"]),
        aicc=_number(row["aicc"]),
        flags=flag_names(row["flags"] or 0),
        decomposer=row["decomposer"],
    )


def _measured(
    row: dict[str, Any], name: str, plural: str, factor: float = 1.0, at: Callable[[float], Any] | None = None
) -> list[Measured]:
    """The values and errors of one quantity of all components, times `factor`. at: the value's place on the axis."""
    values = row[f"component_{plural}"] or []
    errors = row.get(f"component_{name}_errors") or [math.nan] * len(values)
    return [
        Measured(value=float(value * factor if at is None else at(value)), error=_number(error * factor))
        for value, error in zip(values, errors, strict=True)
    ]


def _numbers(values: Spectrum) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
