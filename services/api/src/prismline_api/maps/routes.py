"""The paths of maps and spectra. The modules for Parquet and FITS are loaded with the first request for a map."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Header, Path, Response
from pydantic import ValidationError

from prismline_api.dependencies import Dependencies
from prismline_api.maps.models import AxisView, DifferencesView, MapEntry, MapsView, MapView, SkyView, SpectrumView
from prismline_api.parameters import Deps, RunId
from prismline_api.reading import find_run
from prismline_contracts.maps import FLAG_NAMES, ChunkShade, MapName
from prismline_contracts.objects import CubeGeometry, geometry_key
from prismline_http import problems
from prismline_http.access import KeyRoute, Reader
from prismline_http.auth import Caller
from prismline_http.problems import ProblemError, conflict
from prismline_runtime import PermanentError

if TYPE_CHECKING:
    from prismline_api.maps.chunks import RunChunks

#: Header of a tile: the number of completed chunks that are not in it yet.
PENDING_HEADER = "Prismline-Pending"
#: Level of compression. Higher levels hardly compress float32 values any better.
GZIP_LEVEL = 1

_TITLES = {
    MapName.INTEGRATED: "Integrated intensity",
    MapName.COMPONENTS: "Number of components",
    MapName.CENTROID: "Centroid",
    MapName.VELOCITY: "Position of the strongest component",
    MapName.WIDTH: "Width of the strongest component",
    MapName.RMS: "Noise",
    MapName.CHI2: "Reduced chi-square",
    MapName.FLAGS: "Flags",
    MapName.CHUNKS: "State of the chunks",
}
_SHADES = {MapName.FLAGS: list(FLAG_NAMES), MapName.CHUNKS: [shade.value.lower() for shade in ChunkShade]}

Name = Annotated[MapName, Path(description="The map's name.")]
OtherRunId = Annotated[str, Path(max_length=80, description="The id of the other run.")]
Level = Annotated[
    int, Path(ge=0, le=30, description="Level 0 has the cube's pixels. Each further level has half per side.")
]
Column = Annotated[int, Path(ge=0, le=2**31, description="Column of the tile, from the left.")]
Row = Annotated[int, Path(ge=0, le=2**31, description="Row of the tile, from the bottom.")]
PixelX = Annotated[int, Path(ge=0, le=2**31, description="Column of the pixel, from 0.")]
PixelY = Annotated[int, Path(ge=0, le=2**31, description="Row of the pixel, from 0.")]


@dataclasses.dataclass(frozen=True)
class TileAddress:
    """A map, and the place of a tile in it."""

    name: MapName
    level: int
    column: int
    row: int


def _tile_address(name: Name, level: Level, column: Column, row: Row) -> TileAddress:
    return TileAddress(name, level, column, row)


Address = Annotated[TileAddress, Depends(_tile_address)]

router = APIRouter(prefix="/v1/runs/{run_id}", route_class=KeyRoute, tags=["maps"], responses=problems.RESPONSES)


@router.get("/maps", response_model_exclude_none=True)
def get_maps(run_id: RunId, caller: Reader, deps: Deps) -> MapsView:
    """List the maps of a run of `spectra`, with the shape and the coordinates of its cube."""
    from prismline_cube import TILE_PIXELS, levels  # noqa: PLC0415 - numpy

    chunks = _chunks(caller, run_id, deps)
    geometry = chunks.geometry
    return MapsView(
        run_id=run_id,
        name=chunks.survey,
        nx=geometry.nx,
        ny=geometry.ny,
        n_channels=geometry.n_channels,
        tile_pixels=TILE_PIXELS,
        levels=levels(geometry.nx, geometry.ny),
        axis=_axis(chunks),
        signal_unit=geometry.bunit,
        celestial=geometry.celestial,
        maps=[_entry(name, chunks) for name in MapName],
        chunks=dict(Counter(holder.status.lower() for holder in chunks.holders)),
        final=chunks.final,
    )


@router.get("/maps/{name}", response_model_exclude_none=True)
def get_map(run_id: RunId, name: Name, caller: Reader, deps: Deps) -> MapView:
    """Show the range of a map's values. Chunks that cannot be read at once are `pending`: repeat the request."""
    from prismline_api.maps.building import ValueRange  # noqa: PLC0415 - numpy and pyarrow

    chunks = _chunks(caller, run_id, deps)
    if name is MapName.CHUNKS:
        n, last = sum(holder.count for holder in chunks.holders), float(len(ChunkShade) - 1)
        found = ValueRange(n, 0.0, last, 0.0, last, pending=0)
    else:
        found = deps.maps.value_range(chunks, name)
    return MapView(
        **_entry(name, chunks).model_dump(),
        run_id=run_id,
        n_values=found.n_values,
        minimum=found.minimum,
        maximum=found.maximum,
        low=found.low,
        high=found.high,
        pending=found.pending,
        shades=_SHADES.get(name),
    )


@router.get("/maps/{name}/differences/{other_run_id}", response_model_exclude_none=True)
def get_differences(run_id: RunId, name: Name, other_run_id: OtherRunId, caller: Reader, deps: Deps) -> DifferencesView:
    """Compare a map of a run with the same map of another run, whose cube has the same shape."""
    first, second = _chunks(caller, run_id, deps), _chunks(caller, other_run_id, deps)
    if name is MapName.CHUNKS:
        raise conflict("no-differences", "The states of chunks are not compared. Choose another map.")
    one, two = first.geometry, second.geometry
    if (one.nx, one.ny, one.n_channels) != (two.nx, two.ny, two.n_channels):
        raise conflict(
            "other-shape",
            f"The cube of run {run_id} has {one.nx} x {one.ny} pixels and {one.n_channels} channels, and that of run"
            f" {other_run_id} has {two.nx} x {two.ny} and {two.n_channels}. Choose two runs of one cube.",
        )
    found = deps.maps.differences(first, second, name)
    return DifferencesView(
        **_entry(name, first).model_dump(), run_id=run_id, other_run_id=other_run_id, **dataclasses.asdict(found)
    )


@router.get(
    "/maps/{name}/tiles/{level}/{column}/{row}",
    response_class=Response,
    responses={
        200: {
            "description": "Rows of little-endian float32, the lowest row first; NaN means no value. A tile"
            f" at the edge has fewer rows or columns. `{PENDING_HEADER}`: completed chunks that are not in it yet.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        304: {"description": "The tile is the one with the ETag in `If-None-Match`."},
    },
)
def get_tile(
    run_id: RunId,
    address: Address,
    caller: Reader,
    deps: Deps,
    if_none_match: Annotated[str | None, Header()] = None,
    accept_encoding: Annotated[str, Header()] = "",
) -> Response:
    """Get a tile of a map: 256 x 256 values, gzip-compressed if the client accepts it."""
    from prismline_cube import Tile  # noqa: PLC0415 - numpy

    chunks = _chunks(caller, run_id, deps)
    try:
        tile = Tile(chunks.geometry.nx, chunks.geometry.ny, address.level, address.column, address.row)
    except ValueError as error:
        raise ProblemError(404, "not-found", f"Run {run_id} has no such tile: {error}.") from error
    answer = deps.maps.tile(chunks, address.name, tile)
    body = answer.values.astype("<f4").tobytes()
    etag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {
        "ETag": etag,
        "Cache-Control": "private, no-cache",
        "Vary": "Accept-Encoding, Authorization, Cookie",
        PENDING_HEADER: str(answer.pending),
    }
    if if_none_match == etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in accept_encoding:
        body = gzip.compress(body, GZIP_LEVEL, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, headers=headers, media_type="application/octet-stream")


@router.get("/geometry", response_model_exclude_none=True)
def get_geometry(run_id: RunId, caller: Reader, deps: Deps) -> CubeGeometry:
    """Show the geometry of a run's cube, as the splitter found it."""
    found = find_run(caller, run_id, deps)
    try:
        return CubeGeometry.model_validate_json(deps.bucket.read(geometry_key(run_id)))
    except (PermanentError, ValidationError) as error:
        raise conflict(
            "no-maps",
            f"Run {run_id} of the workload {found.workload} has no maps and no pixels: the geometry of a cube is not in"
            " the bucket.",
        ) from error


@router.get("/sky")
def get_sky(run_id: RunId, caller: Reader, deps: Deps) -> SkyView:
    """Get the celestial coordinates of the cube on a lattice of pixels."""
    from prismline_api.maps.sky import sky_view  # noqa: PLC0415 - astropy

    return sky_view(_chunks(caller, run_id, deps))


@router.get("/spectra/{x}/{y}", response_model_exclude_none=False)
def get_spectrum(run_id: RunId, x: PixelX, y: PixelY, caller: Reader, deps: Deps) -> SpectrumView:
    """Show the spectrum at a pixel with its fit: components, their sum, the residual, and the chunk that holds it."""
    chunks = _chunks(caller, run_id, deps)
    geometry = chunks.geometry
    if x >= geometry.nx or y >= geometry.ny:
        raise ProblemError(
            404,
            "not-found",
            f"Run {run_id} has no pixel ({x}, {y}): x goes from 0 to {geometry.nx - 1}, y to {geometry.ny - 1}.",
        )
    return deps.spectra.show(chunks, x, y)


def _chunks(caller: Caller, run_id: str, deps: Dependencies) -> RunChunks:
    """The chunks of the caller's run. Raises ProblemError (404, 409)."""
    found = find_run(caller, run_id, deps)
    if found.workload != "spectra":
        raise conflict("no-maps", f"Run {run_id} has the workload {found.workload}; only runs of spectra have maps.")
    run = deps.ledger.get_run(run_id)
    if run is None or run.chunks_total is None:
        raise conflict("not-divided", f"The cube of run {run_id} is not divided into chunks yet. Try again later.")
    try:
        return deps.chunk_index.chunks(run)
    except PermanentError as error:
        raise conflict("no-maps", f"Run {run_id} no longer has maps: {error}") from error


def _axis(chunks: RunChunks) -> AxisView:
    from prismline_cube import DisplayAxis  # noqa: PLC0415 - numpy

    axis = DisplayAxis.of(chunks.geometry)
    return AxisView(name=axis.name, unit=axis.unit, start=axis.start, step=axis.step, linear=chunks.geometry.linear)


def _entry(name: MapName, chunks: RunChunks) -> MapEntry:
    axis, signal = _axis(chunks), chunks.geometry.bunit
    title = _TITLES[name]
    if name in (MapName.CENTROID, MapName.VELOCITY):
        title = title.replace("Centroid", f"Centroid {axis.name.lower()}").replace("Position", axis.name)
    unit = {
        MapName.INTEGRATED: f"{signal} {axis.unit}".strip(),
        MapName.CENTROID: axis.unit,
        MapName.VELOCITY: axis.unit,
        MapName.WIDTH: axis.unit,
        MapName.RMS: signal,
    }.get(name, "")
    return MapEntry(name=name, title=title, unit=unit)
